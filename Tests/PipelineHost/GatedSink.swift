import PipelineCore

/// A sink that acknowledges what it took in a turn when a test says so, and pauses the input when it has no more room.
package struct GatedSink: SinkComponent {
  package static let spec = ComponentSpec<GatedSink>("gated", summary: "Waits.")
  package let held: Held

  package init() { self.init(room: .max) }

  /// - Parameters:
  ///   - room: After how many events the input is paused.
  ///   - acknowledges: Whether it acknowledges each turn when it ends, without being told to.
  package init(room: Int, acknowledges: Bool = false) { held = Held(room: room, acknowledges: acknowledges) }

  package final class Held: @unchecked Sendable {
    /// What came in each turn, as JSON.
    package var turns: [(texts: [String], receipt: Receipt, isAcknowledged: Bool)] = []
    package var all: [String] { turns.flatMap(\.texts) }
    package var count: Int { turns.reduce(0) { $0 + $1.texts.count } }
    /// The number of events that came after the turn in which the sink became full, before it had room again.
    package fileprivate(set) var overruns = 0
    fileprivate var room: Int
    fileprivate var isFull = false
    fileprivate var fullTurn: UInt64 = 0
    fileprivate weak var node: Node?

    fileprivate let acknowledges: Bool

    fileprivate init(room: Int, acknowledges: Bool) { (self.room, self.acknowledges) = (room, acknowledges) }

    /// Acknowledges a turn, once; there may be no such turn.
    package func acknowledge(_ index: Int) {
      guard turns.indices.contains(index), !turns[index].isAcknowledged else { return }
      turns[index].isAcknowledged = true
      turns[index].receipt.acknowledgeAll()
    }

    package func acknowledgeAll() { for index in turns.indices { acknowledge(index) } }

    /// Takes as many events more before it pauses the input. Called in a turn.
    package func makeRoom(_ count: Int) {
      room += count
      guard isFull, room > 0 else { return }
      isFull = false
      node?.resumeInput()
    }
  }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(held, nodeContext) }

  final class Node: RunningSink {
    private let held: Held
    private var taken: [String] = []

    init(_ held: Held, _ nodeContext: NodeContext) {
      self.held = held
      super.init(nodeContext)
      held.node = self
    }

    override func receive(_ event: Event) {
      taken.append(OwnedValue(event.value).json)
      held.room -= 1
      if held.isFull, executor.turns != held.fullTurn { held.overruns += 1 }
      if held.room <= 0, !held.isFull {
        held.isFull = true
        held.fullTurn = executor.turns
        pauseInput()
      }
    }

    override func turnEnded() {
      guard !taken.isEmpty else { return }
      held.turns.append((taken, take(taken.count, bytes: 0), false))
      taken = []
      if held.acknowledges { held.acknowledgeAll() }
    }

    override func finish() {
      turnEnded()
      held.acknowledgeAll()
      drained()
    }
  }
}
