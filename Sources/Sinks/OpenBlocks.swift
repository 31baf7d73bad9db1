import PipelineCore
import Synchronization
import Transport

/// The blocks that a sink has handed to a writer that may wait for a reader, with the receipts of their events. In a
/// reload they go to the next version with the writer, which continues writing meanwhile.
final class OpenBlocks: Sendable {
  typealias Outcome = Result<Void, FileWriter.WriteFailure>

  private struct Block {
    var receipts: [Receipt]
    /// Replaces the receipts between two versions.
    var left: [LeftReceipt] = []
    /// Counted as written, or as failed.
    var isWritten = false
    /// The outcome of a block that was written between two versions.
    var outcome: Outcome?
  }

  /// The version that has the blocks.
  private struct Owner: Sendable {
    let executor: Executor
    let node: Weak<StreamSink>
    let trouble: SinkTroubles.Note
    let log: @Sendable (String) -> Void

    init(_ sink: StreamSink) {
      executor = sink.executor
      node = Weak(sink)
      trouble = sink.trouble
      let (log, label) = (sink.execution.services.log, sink.execution.plan.steps[sink.nodeContext.step.number].label)
      self.log = { log(.error, label, $0) }
    }

    func failed(_ error: PosixError) {
      let node = node
      executor.post { node.object?.failed(error) }
    }
  }

  private struct State {
    /// The blocks by number, which ascends in the order of writing.
    var blocks: [Int: Block] = [:]
    var last = 0
    /// The sink that uses the blocks; nil between two versions of a pipeline.
    var owner: Owner?
    /// The reason why the writer waits for room.
    var trouble: PosixError?
    /// The reason why writing has stopped, if it stopped between two versions of a pipeline.
    var failure: PosixError?
  }
  private let state = Mutex(State())

  // MARK: In turns

  /// Reports the writer's events to this sink from now on.
  func lead(to sink: StreamSink) {
    let owner = Owner(sink)
    let trouble = state.withLock { state in
      state.owner = owner
      return state.trouble
    }
    if let trouble { owner.trouble.begins(trouble.message) }
  }

  /// A block is about to be queued. Returns its number.
  func add(_ receipts: [Receipt]) -> Int {
    state.withLock { state in
      state.last += 1
      state.blocks[state.last] = Block(receipts: receipts)
      return state.last
    }
  }

  /// Notifies senders that the next version decides over the open blocks.
  func announceHandover() {
    let receipts = state.withLock { $0.blocks.values.flatMap(\.receipts) }
    for receipt in receipts { receipt.announceHandover() }
  }

  /// Detaches the sink from the blocks. `count` is called between two completions.
  func leave<Counts>(_ count: () -> Counts) -> Counts {
    let (written, counts) = state.withLock { state -> ([Receipt], Counts) in
      state.owner = nil
      var written: [Receipt] = []
      for number in state.blocks.keys {
        let receipts = state.blocks[number]?.receipts ?? []
        state.blocks[number]?.receipts = []
        if state.blocks[number]?.isWritten == true {
          written += receipts
        } else {
          state.blocks[number]?.left = receipts.compactMap { $0.leave() }
        }
      }
      return (written, count())
    }
    // The system has them; a stream has no disk to wait for.
    for receipt in written { receipt.acknowledgeAll() }
    return counts
  }

  /// The sink takes over, in order, the blocks that an earlier version has left.
  func goOn(with sink: StreamSink) {
    let left = state.withLock { state in state.blocks.sorted { $0.key < $1.key }.map { ($0.key, $0.value.left) } }
    for (number, left) in left {
      let receipts = left.compactMap(sink.take)
      let (outcome, isWritten) = state.withLock { state -> (Outcome?, Bool) in
        let block = state.blocks[number]
        state.blocks[number]?.receipts = receipts
        state.blocks[number]?.left = []
        if block?.outcome != nil { state.blocks[number] = nil }
        return (block?.outcome, block?.isWritten == true)
      }
      if let outcome {
        for receipt in receipts { receipt.acknowledgeAll(outcome) }
      } else if isWritten {
        for receipt in receipts { receipt.freeMemory() }
      }
    }
    lead(to: sink)
    if let failure = state.withLock({ $0.failure.take() }) { Owner(sink).failed(failure) }
  }

  // MARK: Between two versions

  /// The number of unwritten events that no sender sends again.
  var unsaved: Int {
    state.withLock { state in
      state.blocks.values.reduce(0) { sum, block in
        block.isWritten ? sum : sum + block.left.reduce(0) { $0 + ($1.notifiesSender ? 0 : $1.events) }
      }
    }
  }

  /// No version has taken over: senders that wait hear it, and send again.
  func failSenders() {
    let left = state.withLock { $0.blocks.values.flatMap(\.left) }
    for receipt in left where receipt.notifiesSender { receipt.release(.failed(LeftReceipt.untaken)) }
  }

  // MARK: On the writer's thread

  /// The system has written a block, or failed to; `count` counts its events.
  func written(_ number: Int, _ count: () -> Void) {
    let receipts = state.withLock { state in
      count()
      state.blocks[number]?.isWritten = true
      return state.blocks[number]?.receipts ?? []
    }
    for receipt in receipts { receipt.freeMemory() }
  }

  /// Ends a block with its final outcome.
  func end(_ number: Int, _ outcome: Outcome) {
    let (receipts, owner) = state.withLock { state -> ([Receipt], Owner?) in
      let block = state.blocks[number]
      if block?.left.isEmpty == false {
        state.blocks[number]?.outcome = outcome
      } else {
        state.blocks[number] = nil
      }
      if state.owner == nil, case .failure(let failure) = outcome { state.failure = state.failure ?? failure.error }
      return (block?.receipts ?? [], state.owner)
    }
    for receipt in receipts { receipt.acknowledgeAll(outcome) }
    if case .failure(let failure) = outcome { owner?.failed(failure.error) }
  }

  /// The writer waits for room, or has some again.
  func waits(because error: PosixError?) {
    let owner = state.withLock { state in
      state.trouble = error
      return state.owner
    }
    guard let owner else { return }
    guard let error else { return owner.trouble.ends() }
    owner.trouble.begins(error.message)
    owner.log("\(error.message); waiting until it can be written")
  }
}
