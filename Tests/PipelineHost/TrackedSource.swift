import PipelineCore
import Synchronization

/// A source whose batches a test sends, and that hears what becomes of each.
public struct TrackedSource: SourceComponent {
  public static let spec = ComponentSpec<TrackedSource>("tracked", summary: "Sends what a test says.")
  public let feed = Feed()

  public init() {}

  public func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    let node = Node(nodeContext, downstream: downstream)
    feed.node = node
    return node
  }

  public final class Feed: @unchecked Sendable {
    public fileprivate(set) weak var node: Node?
    private let reported = Mutex<[Int: Ack.Outcome]>([:])
    /// Called on whichever thread hears of an outcome, before it is in `outcomes`.
    public var hears: @Sendable (Int) -> Void = { _ in }
    /// Called when it is.
    public var ring: @Sendable () -> Void = {}

    /// What has become of the batches, by their numbers.
    public var outcomes: [Int: Ack.Outcome] { reported.withLock { $0 } }

    /// Posts a batch. `steps`: how many steps it puts off, one after the other.
    public func send(_ number: Int, _ values: [Int64], steps: Int = 0) {
      guard let node else { return }
      nonisolated(unsafe) let sender = node
      node.executor.postBatch { [self] in
        sender.executor.track(
          Ack { outcome in
            self.hears(number)
            self.reported.withLock { $0[number] = outcome }
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

/// A sink that has a receipt for what it took in each turn, and acknowledges it when a test says so.
public struct HoldingSink: SinkComponent {
  public static let spec = ComponentSpec<HoldingSink>("holding", summary: "Holds.")
  public let held = Held()

  public init() {}

  public func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(held, nodeContext) }

  public final class Held: @unchecked Sendable {
    public var events: [Int64] = []
    public var receipts: [Receipt] = []
    fileprivate weak var node: Node?

    public func release() {
      for receipt in receipts { receipt.acknowledgeAll() }
      node?.end()
    }
  }

  final class Node: RunningSink {
    private let held: Held
    private var taken = 0
    private var isFinishing = false
    init(_ held: Held, _ nodeContext: NodeContext) {
      self.held = held
      super.init(nodeContext)
      held.node = self
    }
    override func receive(_ event: Event) {
      held.events.append(event.value.asInt)
      taken += 1
    }
    override func finish() {
      turnEnded()
      isFinishing = true
      end()
    }
    override func turnEnded() {
      if taken > 0 { held.receipts.append(take(taken)) }
      taken = 0
    }
    override func cancel() { held.receipts = [] }

    /// It is through when everything is acknowledged.
    fileprivate func end() {
      guard isFinishing, held.receipts.allSatisfy({ $0.left == 0 }) else { return }
      nonisolated(unsafe) let node = self
      executor.post { node.drained() }
    }
  }
}
