import PipelineCore
import Synchronization

/// A source whose batches a test sends, and that hears what becomes of each.
public struct TrackedSource: SourceComponent {
  public static let spec = ComponentSpec<TrackedSource>("tracked", summary: "Sends what a test says.")
  public let feed = Feed()

  public init() {}

  public func makeSource(_ seat: Seat, downstream: Downstream) -> RunningSource {
    let node = Node(seat, downstream: downstream)
    feed.node = node
    return node
  }

  public final class Feed: @unchecked Sendable {
    public fileprivate(set) weak var node: Node?
    private let told = Mutex<[Int: Settlement.Outcome]>([:])
    /// Called on whichever thread hears of an outcome, before it is in `outcomes`.
    public var hears: @Sendable (Int) -> Void = { _ in }
    /// Called when it is.
    public var ring: @Sendable () -> Void = {}

    /// What has become of the batches, by their numbers.
    public var outcomes: [Int: Settlement.Outcome] { told.withLock { $0 } }

    /// Posts a batch. `steps`: how many steps it puts off, one after the other.
    public func send(_ number: Int, _ values: [Int64], steps: Int = 0) {
      guard let node else { return }
      nonisolated(unsafe) let sender = node
      node.executor.postBatch { [self] in
        sender.executor.track(
          Settlement { outcome in
            self.hears(number)
            self.told.withLock { $0[number] = outcome }
            self.ring()
          })
        for value in values { sender.produce(.int(value)) }
        sender.left = steps
        if steps > 0 { sender.later() }
      }
    }
  }

  public final class Node: RunningSource {
    fileprivate var left = 0
    public override func resumed(_ token: Int) {
      left -= 1
      if left > 0 { later() } else { produce(.int(-1)) }
    }
  }
}

/// A sink that holds the settlement of each turn in which it took something, until a test lets go of it.
public struct HoldingSink: SinkComponent {
  public static let spec = ComponentSpec<HoldingSink>("holding", summary: "Holds.")
  public let held = Held()

  public init() {}

  public func makeSink(_ seat: Seat) -> RunningSink { Node(held, seat) }

  public final class Held: @unchecked Sendable {
    public var events: [Int64] = []
    public var settlements: [Settlement] = []

    public func release() {
      for settlement in settlements { settlement.release() }
    }
  }

  final class Node: RunningSink {
    private let held: Held
    private var hasTaken = false
    init(_ held: Held, _ seat: Seat) {
      self.held = held
      super.init(seat)
    }
    override func receive(_ event: Event) {
      held.events.append(event.value.asInt)
      hasTaken = true
    }
    override func finish() {
      turnEnded()
      drained()
    }
    override func turnEnded() {
      if hasTaken, let settlement = executor.settlement {
        settlement.hold()
        held.settlements.append(settlement)
      }
      hasTaken = false
    }
    override func abandon() { held.settlements = [] }
  }
}
