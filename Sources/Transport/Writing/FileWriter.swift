import Glibc
import PipelineCore
import Synchronization

/// Writes blocks of bytes to a stream or file on another thread, in order, with a bounded queue: a file on one of the
/// threads that all files share; a stream, whose reader may block it for any time, on a thread of its own.
///
/// Blocks that queue up during a write are written together. Each block's completion is called exactly once, in order,
/// on the thread that wrote it. The writer waits while the disk or the table of descriptors is full (`trouble` is
/// called); after any other failure it has failed for good: all queued and later blocks complete with that error, and
/// with the number of their bytes written before it.
///
/// Appending to a file whose last line lacks its newline, as after a crash, writes a newline first, so that no new line
/// is joined to the torn one. A writer that knows where an earlier one ended (``Options/resume``) cuts the file back to
/// that offset instead.
///
/// A thread without other work can write instead of the writer's thread: it queues a block that `isLeft` and then calls
/// `write()`, which saves waking a thread. That is for files only, which rarely block, and not if each write must be
/// synced.
package final class FileWriter: Sendable {
  package enum Target: Sendable {
    /// A stream opened by the caller.
    case descriptor(FileDescriptor)
    /// Appends to a file, which is created if needed. A file that was renamed or removed, as by log rotation, is
    /// reopened.
    case append(path: String, permissions: mode_t = 0o640)
    /// The same for a path below a directory that it cannot leave. Its directories are made if needed.
    case below(FileTree, path: String, permissions: mode_t = 0o640)
    /// Each block replaces the content of the file atomically. Of waiting blocks only the newest is written, also if they wait for room.
    case replace(path: String, permissions: mode_t = 0o640)
  }

  /// When written data must be on the device.
  package enum Sync: Sendable, Equatable {
    case never
    /// Before the completions of the blocks that were written together.
    case batch
    /// At most this long after the write; completions do not wait for it.
    case interval(TimeSpan)
    /// At most this long after the write. Completions do not wait for it, acknowledgements do: many blocks share a
    /// sync, and writing continues meanwhile.
    case acknowledged(within: TimeSpan)
  }

  package struct Options: Sendable {
    /// The limit of waiting bytes; a single larger block is taken when nothing waits.
    package var queueBytes = 8 << 20
    package var sync = Sync.never
    /// The end of an earlier writer (``FileWriter/position(after:)``): the file is cut off there.
    package var resume: FilePosition?
    /// Whether the output after ``resume`` is cut off, because it will be written again. Otherwise it is kept.
    package var cutsBack = true
    /// The number of bytes that earlier writers of this execution have written to the file.
    var start: Int64 = 0
    /// The number of the file, to be noted in it; nil: nothing is noted.
    var mark: (marks: WriterMarks, number: UInt64)?
    package init() {}
  }

  /// The outcome of ``Options/resume``.
  package enum Resumption: Sendable, Equatable {
    /// The file ends there.
    case exact
    /// The file is longer, and was not cut: ``Options/cutsBack`` is false.
    case kept
    /// The file was longer. If it had been renamed, `path` is its new name.
    case cut(path: String, bytes: Int64)
    /// The position is no longer in the file, or cannot be restored, with the reason: a clause for a message.
    case lost(String)
  }

  /// The reason why a block does not count as written.
  package struct WriteFailure: Error, Sendable, Equatable {
    package var error: PosixError
    /// The bytes at the start of the block that the system took before the failure; 0 after a failed sync, which leaves
    /// it unknown.
    package var written: Int
    package init(_ error: PosixError, written: Int) {
      self.error = error
      self.written = written
    }
  }

  /// Called when the system has taken a block, or did not: its memory is the caller's again.
  package typealias Completion = @Sendable (Result<Void, WriteFailure>) -> Void
  /// Called once after the completion, when the block need not be written again: with ``Sync/acknowledged(within:)`` when
  /// it is on the device, otherwise at once.
  package typealias Acknowledgement = @Sendable (Result<Void, WriteFailure>) -> Void

  /// The bytes of a block.
  package enum Content: @unchecked Sendable {
    case bytes([UInt8])
    /// Must not change before the completion.
    case buffer(OutputBuffer)
    /// Immutable bytes in memory that an object owns.
    case held(UnsafeRawBufferPointer, by: AnyObject)

    var count: Int {
      switch self {
      case .bytes(let bytes): bytes.count
      case .buffer(let buffer): buffer.count
      case .held(let bytes, _): bytes.count
      }
    }

    func withBytes(_ body: (UnsafeRawBufferPointer) -> Void) {
      switch self {
      case .bytes(let bytes): bytes.withUnsafeBytes { body($0) }
      case .buffer(let buffer): body(buffer.bytes)
      case .held(let bytes, let owner): withExtendedLifetime(owner) { body(bytes) }
      }
    }
  }

  struct Block: Sendable {
    var content: Content
    var completion: Completion?
    var acknowledgement: Acknowledgement?

    func end(_ result: Result<Void, WriteFailure>) {
      completion?(result)
      acknowledgement?(result)
    }
  }

  private struct State {
    var queue: [Block] = []
    /// Bytes queued or being written.
    var bytes = 0
    /// All bytes of blocks that were queued, and those of them that have been written.
    var added: Int64 = 0
    var written: Int64 = 0
    /// The stretches written to each file; at least the newest.
    var stretches: [WriterWork.Stretch]
    /// The open file.
    var file: SyncedFile?
    /// The acknowledgements of blocks that are written and not synced.
    var unsynced: [Acknowledgement] = []
    /// The time by which the blocks must be synced, on the monotonic clock.
    var syncDue: Int64?
    /// A sync is due as soon as this many bytes have been written.
    var awaited: Int64?
    /// A thread is writing, or blocks wait for room.
    var isWriting = false
    /// Blocks that wait for room on the disk, and when they are written again, on the monotonic clock.
    var refused: (blocks: [Block], retry: Int64)?
    /// The number of calls of `write` that wait for room.
    var waiters = 0
    var closed = false
    var failure: PosixError?
    /// Callbacks for the moment at which at most `limit` bytes are queued.
    var waitingForRoom: [(limit: Int, body: @Sendable () -> Void)] = []
    /// All is written that ever will be.
    var ended = false
  }

  /// The threads of all files that are written.
  static let threads = SharedThreads("rxd write", usual: max(2, Processors.available), most: 64)

  private let target: Target
  private let options: Options
  private let trouble: @Sendable (PosixError?) -> Void
  private let state: Guarded<State>
  private let work: WriterWork
  private let turns: SerialWork
  /// Whether blocks may be left to a thread that calls `write()`.
  package let mayBeLeft: Bool
  /// Whether writing may wait for a reader.
  package let mayBlock: Bool
  /// Woken when the thread must stop its current call.
  private let cancellation: WakeEvent
  /// The outcome of ``Options/resume``; nil without.
  package let resumption: Resumption?

  /// Opens the target.
  /// - Parameter trouble: Called on the writer's thread when it waits for room, once for each time, and with nil when it has some again.
  package init(
    _ target: Target, options: Options = Options(),
    trouble: @escaping @Sendable (PosixError?) -> Void = { _ in }
  ) throws(PosixError) {
    self.target = target
    self.options = options
    self.trouble = trouble
    cancellation = try WakeEvent()
    work = try WriterWork(target, options: options, cancellation: cancellation, trouble: trouble)
    resumption = work.resumption
    state = Guarded(State(stretches: work.stretches, file: work.file))
    mayBlock = work.mayBlock
    mayBeLeft = work.isRegular && (options.sync == .never || options.acknowledgesLater)
    let state = state
    let work = work
    let turn: SerialWork.Body = { Self.turn(work, state) }
    turns = work.mayBlock ? try SerialWork(onThread: "rxd write", turn) : try SerialWork(on: Self.threads, turn)
  }

  /// Queues a block; waits while the queue is full. False: the writer is closed or has failed, and the completion has
  /// been called with the error.
  @discardableResult
  package func write(_ bytes: [UInt8], _ completion: Completion? = nil) -> Bool {
    enqueue(Block(content: .bytes(bytes), completion: completion), whenFull: .wait)
  }

  /// Queues a buffer, which must not change before `completion`; waits while the queue is full.
  @discardableResult
  package func write(_ buffer: OutputBuffer, _ completion: Completion? = nil) -> Bool {
    enqueue(Block(content: .buffer(buffer), completion: completion), whenFull: .wait)
  }

  /// Queues a block unless the queue is full; returns whether it did. Never waits.
  package func offer(_ bytes: [UInt8], _ completion: Completion? = nil) -> Bool {
    enqueue(Block(content: .bytes(bytes), completion: completion), whenFull: .refuse)
  }

  /// Calls `body` once when at most `limit` bytes are queued, by default half of the maximum; perhaps at once, on the
  /// writer's thread or the caller's.
  package func whenRoom(_ limit: Int? = nil, _ body: @escaping @Sendable () -> Void) {
    let limit = limit ?? options.queueBytes / 2
    let now = state.withLock { state in
      if state.bytes <= limit || state.failure != nil || state.closed { return true }
      state.waitingForRoom.append((limit, body))
      return false
    }
    if now { body() }
  }

  /// The bytes waiting or being written.
  package var queuedBytes: Int { state.withLock { $0.bytes } }

  /// Whether the disk, or the table of descriptors, has no room for the queued blocks.
  package var isDiskFull: Bool { state.withLock { $0.refused != nil } }

  /// The reason why writing has stopped; nil while the writer works.
  package var failure: PosixError? { state.withLock { $0.failure } }

  /// Queues a block even if the queue is full, for callers with their own backpressure. Never waits.
  ///
  /// - Parameter isLeft: Some thread calls `write()` soon, if ``mayBeLeft``; the writer's thread is not woken.
  package func add(
    _ content: Content, isLeft: Bool = false, _ completion: Completion? = nil, acknowledging: Acknowledgement? = nil
  ) {
    let block = Block(content: content, completion: completion, acknowledgement: acknowledging)
    _ = enqueue(block, whenFull: .exceed, isLeft: isLeft && mayBeLeft)
  }

  /// Writes the queued blocks on the calling thread, unless another thread is writing, which then writes them. May
  /// block as long as the target does.
  package func write() {
    guard mayBeLeft else { return }
    while let blocks = state.withLock({ Self.take(&$0) }) {
      if Self.write(blocks, work, state) { turns.wake() }
    }
  }

  private enum Fullness { case wait, refuse, exceed }

  private func enqueue(_ block: Block, whenFull: Fullness, isLeft: Bool = false) -> Bool {
    let count = block.content.count
    let limit = options.queueBytes
    enum Outcome {
      case taken, full
      case refused(PosixError)
    }
    var isWaiting = false
    let outcome = state.wait(until: nil) { state -> Outcome? in
      if isWaiting { state.waiters -= 1 }
      isWaiting = false
      if let failure = state.failure { return .refused(failure) }
      if state.closed {
        return .refused(
          PosixError("write to", target.name, code: ECANCELED, detail: "it has been closed"))
      }
      if state.bytes > 0, state.bytes + count > limit, whenFull != .exceed {
        if whenFull != .wait { return .full }
        isWaiting = true
        state.waiters += 1
        return nil
      }
      state.bytes += count
      state.added &+= Int64(count)
      state.queue.append(block)
      return .taken
    }
    switch outcome {
    case .taken:
      if !isLeft { turns.wake() }
      return true
    case .full, nil: return false
    case .refused(let error):
      block.end(.failure(WriteFailure(error, written: 0)))
      return false
    }
  }

  /// Accepts no more blocks, writes the queued ones and returns when that is done. After `limit` the rest completes
  /// with an error. If several threads close the writer, the shortest limit counts. Not on the writer's thread.
  package func close(within limit: TimeSpan = .seconds(30)) {
    state.withLock { $0.closed = true }
    state.notify()
    turns.wake()
    state.waitForEnd(within: limit) {
      cancellation.wake()
      turns.wake()
    } hasEnded: {
      $0.ended
    }
  }

  deinit {
    // No thread waits in `write` any more; queued blocks are still written.
    state.withLock { $0.closed = true }
    turns.wake()
  }

  private enum Job {
    case write([Block])
    case acknowledge
    case sync
    case close
    /// There is no work before this time.
    case rest(Int64?)

    var isEnd: Bool { if case .close = self { true } else { false } }
  }

  /// Does all work that is due.
  private static func turn(_ work: WriterWork, _ state: Guarded<State>) -> SerialWork.Next {
    while true {
      let job = state.withLock { state -> Job in
        let due = work.options.acknowledgesLater ? state.syncDue : work.nextSync
        let isDue = due.map { $0 == .min || monotonicNow() >= $0 } ?? false
        if isDue, work.options.acknowledgesLater { return .acknowledge }
        if let refused = state.refused {
          if isDue { return .sync }
          guard work.isGivenUp || monotonicNow() >= refused.retry else {
            return .rest(min(refused.retry, due ?? .max))
          }
          state.refused = nil
          guard work.replaces else { return .write(refused.blocks) }
          // Newer content replaces the waiting blocks, which may never get room.
          defer { state.queue = [] }
          return .write(refused.blocks + state.queue)
        }
        if let blocks = take(&state) { return .write(blocks) }
        if state.closed, !state.isWriting { return .close }
        return isDue && !state.isWriting ? .sync : .rest(due)
      }
      switch job {
      case .write(let blocks): _ = write(blocks, work, state)
      case .acknowledge: acknowledgeWritten(work, state)
      case .rest(let due): return due.map { .at($0) } ?? .whenWoken
      case .sync, .close:
        if let failure = work.syncIfDue(closing: job.isEnd) {
          state.withLock { $0.failure = $0.failure ?? failure }
        }
        guard job.isEnd else { continue }
        acknowledgeWritten(work, state)
        state.withLock { $0.ended = true }
        state.notify()
        return .over
      }
    }
  }

  /// Syncs, and acknowledges the blocks that had been written before. Other threads may write meanwhile.
  private static func acknowledgeWritten(_ work: WriterWork, _ state: Guarded<State>) {
    let (acknowledgements, file) = state.withLock { state -> ([Acknowledgement], SyncedFile?) in
      defer {
        state.unsynced = []
        state.syncDue = nil
      }
      return (state.unsynced, state.file)
    }
    if acknowledgements.isEmpty { return }
    // Earlier files were synced when this one was opened.
    var failure: PosixError?
    do throws(PosixError) {
      try work.syncCalls.during { () throws(PosixError) in try file?.sync() }
    } catch {
      failure = error
    }
    // It is unknown whether data written before another failure was synced.
    failure = state.withLock { state in
      state.failure = state.failure ?? failure
      return state.failure
    }
    for acknowledge in acknowledgements {
      acknowledge(failure.map { .failure(WriteFailure($0, written: 0)) } ?? .success(()))
    }
  }

  /// The blocks for the calling thread to write; nil if there are none, or another thread is writing.
  private static func take(_ state: inout State) -> [Block]? {
    guard !state.isWriting, !state.queue.isEmpty else { return nil }
    state.isWriting = true
    defer { state.queue = [] }
    return state.queue
  }

  /// Writes blocks; returns whether the writer needs a turn. Blocks for which the disk has no room are left to that turn.
  private static func write(_ blocks: [Block], _ work: WriterWork, _ state: Guarded<State>) -> Bool {
    let outcome = work.write(blocks)
    let failure = outcome.failure
    let stretches = work.changedStretches()
    if failure != nil || stretches != nil {
      // Set before the completions, whose receivers may ask for positions.
      state.withLock { state in
        state.failure = state.failure ?? failure
        guard let stretches else { return }
        state.stretches = state.stretches.extended(by: stretches)
        state.file = work.file
      }
    }
    if let retry = outcome.retry {
      state.withLock { $0.refused = (blocks, retry) }
      return true
    }
    let isLater = work.options.acknowledgesLater && failure == nil
    // Each failure goes out before its completion, which returns the buffer: its new owner may clear it.
    var total = 0
    for block in blocks {
      let count = block.content.count
      if let failure {
        // The system has taken the first bytes of the blocks that were written together.
        let written = min(count, max(0, outcome.written - total))
        block.end(.failure(WriteFailure(failure, written: written)))
      } else if isLater {
        block.completion?(.success(()))
      } else {
        block.end(.success(()))
      }
      total += count
    }
    let (waiting, isAwaited) = state.withLock { state -> ([@Sendable () -> Void], Bool) in
      state.bytes -= total
      state.written &+= Int64(total)
      state.isWriting = false
      var isAwaited = state.closed || state.waiters > 0 || !state.queue.isEmpty
      if isLater { isAwaited = noteUnsynced(blocks, work.options, &state) || isAwaited }
      if state.waitingForRoom.isEmpty { return ([], isAwaited) }
      let bytes = state.bytes
      let ready = state.waitingForRoom.filter { failure != nil || bytes <= $0.limit }.map(\.body)
      state.waitingForRoom.removeAll { failure != nil || bytes <= $0.limit }
      return (ready, isAwaited)
    }
    if isAwaited { state.notify() }
    for body in waiting { body() }
    return isAwaited
  }

  /// The blocks are written and must be synced; returns whether the writer has a turn to do.
  private static func noteUnsynced(_ blocks: [Block], _ options: Options, _ state: inout State) -> Bool {
    let due = state.syncDue
    state.unsynced += blocks.lazy.compactMap(\.acknowledgement)
    if state.unsynced.isEmpty { return false }
    if let awaited = state.awaited, state.written >= awaited {
      state.awaited = nil
      state.syncDue = .min
    } else if case .acknowledged(let limit) = options.sync, due == nil {
      state.syncDue = monotonicNow() &+ max(0, min(limit.nanoseconds, 1 << 60))
    }
    return state.syncDue != due
  }

  /// With ``Sync/acknowledged(within:)``: syncs and acknowledges everything that is queued now as soon as it is written.
  package func acknowledgeSoon() {
    let isDue = state.withLock { state in
      guard options.acknowledgesLater else { return false }
      if state.written < state.added {
        state.awaited = state.added
        return false
      }
      if state.unsynced.isEmpty { return false }
      state.syncDue = .min
      return true
    }
    if isDue { turns.wake() }
  }

  // MARK: - Places

  /// The number of bytes that have been queued so far.
  package var added: Int64 { state.withLock(\.added) }

  /// The end of the file when the given number of queued bytes has been written, as far as is known now: a rotation may send
  /// queued bytes to another file. Nil: the target is not a regular file for appending, or others write to it.
  /// Counts must not decrease from call to call.
  package func position(after count: Int64) -> FilePosition? {
    state.withLock { state in
      if let index = state.stretches.lastIndex(where: { $0.start <= count }) { state.stretches.removeFirst(index) }
      return state.stretches.first?.position(after: count)
    }
  }

  /// Whether others write to the file, too.
  package var isShared: Bool { state.withLock { $0.stretches.last?.isShared ?? false } }
}

extension FileWriter.Sync {
  /// Acknowledgements wait for a sync that many writes share.
  var isLater: Bool { if case .acknowledged = self { true } else { false } }
}

extension FileWriter.Options {
  var acknowledgesLater: Bool { sync.isLater }
  /// Whether written data is synced at all.
  var isSynced: Bool { sync != .never }
}

extension FileWriter.Target {
  /// Whether both are the same target, as far as their names tell.
  package func isSame(as other: FileWriter.Target) -> Bool {
    switch (self, other) {
    case (.descriptor(let one), .descriptor(let other)): one.number == other.number
    case (.append(let one, _), .append(let other, _)): one == other
    default: false
    }
  }

  /// The name of the file or stream, for messages.
  package var name: String {
    switch self {
    case .descriptor(let file): file.name
    case .append(let path, _), .replace(let path, _): path
    case .below(let tree, let path, _): tree.name(path)
    }
  }
}
