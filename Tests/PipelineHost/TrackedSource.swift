import PipelineCore
import Synchronization

/// A source whose batches a test sends, and that records the outcome of each.
package struct TrackedSource: SourceComponent {
  package static let spec = ComponentSpec<TrackedSource>("tracked", summary: "Sends what a test says.")
  package let feed = Feed()

  package init() {}

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    let node = Node(nodeContext, downstream: downstream)
    feed.node = node
    return node
  }

  package final class Feed: @unchecked Sendable {
    package fileprivate(set) weak var node: Node?
    private let reported = Mutex<[Int: Ack.Outcome]>([:])
    /// Called on the thread that reports an outcome, before it is in `outcomes`.
    package var hears: @Sendable (Int) -> Void = { _ in }
    /// Called after an outcome was added to `outcomes`.
    package var ring: @Sendable () -> Void = {}

    /// The outcomes of the batches, by number.
    package var outcomes: [Int: Ack.Outcome] { reported.withLock { $0 } }

    /// Posts a batch. `steps`: how many further steps it defers, one after another.
    package func send(_ number: Int, _ values: [Int64], steps: Int = 0) {
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

  package final class Node: RunningSource {
    fileprivate var left = 0
    package override func resumed(_ token: Int) {
      left -= 1
      if left > 0 { later() } else { produce(.int(-1)) }
    }
  }
}

/// A sink that holds a receipt for the events of each turn, and acknowledges it when a test says so.
package struct HoldingSink: SinkComponent {
  package static let spec = ComponentSpec<HoldingSink>("holding", summary: "Holds.")
  package let held = Held()

  package init() {}

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(held, nodeContext) }

  package final class Held: @unchecked Sendable {
    package var events: [Int64] = []
    package var receipts: [Receipt] = []
    fileprivate weak var node: Node?

    package func release() {
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
      if taken > 0 { held.receipts.append(take(taken, bytes: 0)) }
      taken = 0
    }
    override func cancel() { held.receipts = [] }

    /// The sink has finished when everything is acknowledged.
    fileprivate func end() {
      guard isFinishing, held.receipts.allSatisfy({ $0.left == 0 }) else { return }
      nonisolated(unsafe) let node = self
      executor.post { node.drained() }
    }
  }
}
