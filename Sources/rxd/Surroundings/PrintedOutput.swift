import PipelineCore
import Synchronization
import Transport

/// Standard output for sinks that print instead of sending: whole events of all pipelines, in the order in which they
/// were added.
final class PrintedOutput: Sendable {
  private struct State {
    /// The output of the current turns.
    var pending: [UInt8] = []
    /// The number of blocks that the writer has and has not written.
    var blocks = 0
    var whenWritten: [@Sendable () -> Void] = []
    var whenFailed: [@Sendable (PosixError) -> Void] = []
    var failure: PosixError?
  }
  private let state = Mutex(State())
  /// Locked while blocks are handed to the writer, so that they keep their order.
  private let handingOver = Mutex(())
  private let writer: FileWriter
  /// A block of this size is passed to the writer before the turn ends.
  private static let largeBlock = 1 << 20
  /// The maximum number of bytes that may wait; above it, the reader is behind.
  private static let most = 4 << 20

  init() throws(PosixError) { writer = try FileWriter(.descriptor(.standardOutput)) }

  /// Adds a whole event.
  func append(_ bytes: [UInt8]) {
    let isLarge = state.withLock { state in
      state.pending += bytes
      return state.pending.count >= Self.largeBlock
    }
    if isLarge { flush() }
  }

  /// Passes the added events to the writer, in one block with those of other pipelines.
  func flush() {
    handingOver.withLock { _ in
      let bytes = state.withLock { state in
        defer { state.pending = [] }
        if !state.pending.isEmpty { state.blocks += 1 }
        return state.pending
      }
      if !bytes.isEmpty { writer.add(.bytes(bytes), { [self] result in written(result) }) }
    }
  }

  private func written(_ result: Result<Void, FileWriter.WriteFailure>) {
    let calls = state.withLock { state -> [@Sendable () -> Void] in
      state.blocks -= 1
      var calls: [@Sendable () -> Void] = []
      if case .failure(let failure) = result, state.failure == nil {
        state.failure = failure.error
        calls = state.whenFailed.map { call in { call(failure.error) } }
        state.whenFailed = []
      }
      if state.blocks == 0 {
        calls += state.whenWritten
        state.whenWritten = []
      }
      return calls
    }
    for call in calls { call() }
  }

  /// Whether the reader is behind.
  var isFull: Bool { writer.queuedBytes > Self.most }

  /// Calls `body` once when the reader has caught up, on any thread.
  func whenRoom(_ body: @escaping @Sendable () -> Void) { writer.whenRoom(nil, body) }

  /// Calls `body` once when everything that was added so far is written, or cannot be; perhaps at once.
  func whenWritten(_ body: @escaping @Sendable () -> Void) {
    flush()
    let isDone = state.withLock { state in
      if state.blocks == 0 { return true }
      state.whenWritten.append(body)
      return false
    }
    if isDone { body() }
  }

  /// Calls `body` once when nothing can be written any more; at once if that is already the case.
  func whenFailed(_ body: @escaping @Sendable (PosixError) -> Void) {
    let failure = state.withLock { state in
      if state.failure == nil { state.whenFailed.append(body) }
      return state.failure
    }
    if let failure { body(failure) }
  }

  /// Writes the remaining blocks.
  func close(within limit: TimeSpan) {
    flush()
    writer.close(within: limit)
  }
}
