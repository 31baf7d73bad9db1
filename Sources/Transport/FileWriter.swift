import Glibc
import PipelineCore
import Synchronization

/// Writes blocks of bytes to a stream or file on a thread of its own, in order, with a bounded queue.
///
/// Blocks that pile up while the thread writes go out together. Each block's completion is called
/// exactly once, in order, on the thread that wrote it. A full disk is waited for (`trouble` is told);
/// after any other failure the writer has failed for good: all blocks in hand and all later ones
/// complete with that error, and with how much of them had arrived before it.
///
/// Appending to a file whose last line lacks its newline, as a crash can leave it, writes a newline
/// first: the torn line stays what it was, and no new line is glued to it.
///
/// A thread that has nothing else to do can write in place of the writer's: it hands over a block with `leave` and then calls
/// `write()`, which saves waking a thread. That is for files only, which rarely make anybody wait, and not where
/// something is to be synced.
public final class FileWriter: Sendable {
  public enum Target: Sendable {
    /// A stream that somebody else has opened.
    case descriptor(FileDescriptor)
    /// Added to the end of a file, made if need be. A file that was renamed or removed meanwhile, as
    /// log rotation does, is opened anew.
    case append(path: String, permissions: mode_t = 0o640)
    /// Each block is a new content of the file, put in place in one step. Of blocks that wait, only
    /// the newest is written.
    case replace(path: String, permissions: mode_t = 0o640)
  }

  /// When what was written must have reached the device.
  public enum Sync: Sendable, Equatable {
    case never
    /// Before the completions of the blocks that were written together.
    case batch
    /// At most that long after; completions do not wait for it.
    case interval(TimeSpan)
  }

  public struct Options: Sendable {
    /// Bytes that may wait; a single larger block is taken when nothing waits.
    public var queueBytes = 8 << 20
    public var sync = Sync.never
    /// Whether a full disk is waited for rather than a failure.
    public var waitsForRoom = true
    public init() {}
  }

  /// Why a block must not count as written.
  public struct WriteFailure: Error, Sendable, Equatable {
    public var error: PosixError
    /// Bytes at the beginning of the block that the system took before the failure; 0 where nobody knows whether they
    /// last, because a sync has failed.
    public var written: Int
    public init(_ error: PosixError, written: Int) {
      self.error = error
      self.written = written
    }
  }

  public typealias Completion = @Sendable (Result<Void, WriteFailure>) -> Void

  /// Bytes that nobody changes any more, in memory that `owner` keeps.
  public struct Bytes: @unchecked Sendable {
    public let bytes: UnsafeRawBufferPointer
    private let owner: AnyObject
    public init(_ bytes: UnsafeRawBufferPointer, heldBy owner: AnyObject) {
      self.bytes = bytes
      self.owner = owner
    }
  }

  enum Content: @unchecked Sendable {
    case bytes([UInt8])
    case buffer(OutputBuffer)
    case held(Bytes)

    var count: Int {
      switch self {
      case .bytes(let bytes): bytes.count
      case .buffer(let buffer): buffer.count
      case .held(let held): held.bytes.count
      }
    }

    func withBytes(_ body: (UnsafeRawBufferPointer) -> Void) {
      switch self {
      case .bytes(let bytes): bytes.withUnsafeBytes { body($0) }
      case .buffer(let buffer): body(buffer.bytes)
      case .held(let held): body(held.bytes)
      }
    }
  }

  struct Block: Sendable {
    var content: Content
    var completion: Completion?
  }

  private struct State {
    var queue: [Block] = []
    /// Bytes queued or being written.
    var bytes = 0
    /// Some thread is writing.
    var isWriting = false
    /// How many wait in `write` for room.
    var waiters = 0
    var closed = false
    var failure: PosixError?
    var waitingForRoom: [@Sendable () -> Void] = []
    var thread: OwnThread?
    /// The thread has nothing more to do.
    var ended = false
  }

  private let target: Target
  private let options: Options
  private let trouble: @Sendable (PosixError) -> Void
  private let state: Guarded<State>
  private let work: WriterWork
  /// Whether `leave` and `write()` are of use here.
  public let mayBeLeft: Bool
  /// Woken when the thread must give up what it is doing.
  private let cancellation: WakeEvent

  /// Opens the target and starts the thread.
  /// - Parameter trouble: told of a full disk, once per spell; called on the writer's thread.
  public init(
    _ target: Target, options: Options = Options(),
    trouble: @escaping @Sendable (PosixError) -> Void = { _ in }
  ) throws(PosixError) {
    self.target = target
    self.options = options
    self.trouble = trouble
    state = Guarded(State())
    cancellation = try WakeEvent()
    work = try WriterWork(target, options: options, cancellation: cancellation, trouble: trouble)
    mayBeLeft = options.sync == .never && work.isRegular
    let state = state
    let work = work
    let thread = try OwnThread("rxd write") { Self.run(work, state) }
    state.withLock { $0.thread = thread }
  }

  /// Hands over a block; waits while the queue is full. `false`: closed or failed, the completion has
  /// been called with the error.
  @discardableResult
  public func write(_ bytes: [UInt8], _ completion: Completion? = nil) -> Bool {
    enqueue(Block(content: .bytes(bytes), completion: completion), whenFull: .wait)
  }

  /// Hands over a buffer, which must stay untouched until `completion`; waits while the queue is full.
  @discardableResult
  public func write(_ buffer: OutputBuffer, _ completion: Completion? = nil) -> Bool {
    enqueue(Block(content: .buffer(buffer), completion: completion), whenFull: .wait)
  }

  /// Hands over a block unless the queue is full; whether it did. Never waits.
  public func offer(_ bytes: [UInt8], _ completion: Completion? = nil) -> Bool {
    enqueue(Block(content: .bytes(bytes), completion: completion), whenFull: .refuse)
  }

  /// Calls `body` once as soon as the queue is at most half full, perhaps at once; on the writer's
  /// thread or the caller's.
  public func whenRoom(_ body: @escaping @Sendable () -> Void) {
    let limit = options.queueBytes
    let now = state.withLock { state in
      if state.bytes <= limit / 2 || state.failure != nil || state.closed { return true }
      state.waitingForRoom.append(body)
      return false
    }
    if now { body() }
  }

  /// Bytes that wait or are being written.
  public var queuedBytes: Int { state.withLock { $0.bytes } }

  /// Why nothing is written any more; nil while that is not so.
  public var failure: PosixError? { state.withLock { $0.failure } }

  /// Hands over a buffer even where the queue is full, for who holds back what makes the next one. Never waits.
  public func add(_ buffer: OutputBuffer, _ completion: Completion? = nil) {
    _ = enqueue(Block(content: .buffer(buffer), completion: completion), whenFull: .exceed)
  }

  /// The same for bytes in memory of somebody else.
  public func add(_ bytes: Bytes, _ completion: Completion? = nil) {
    _ = enqueue(Block(content: .held(bytes), completion: completion), whenFull: .exceed)
  }

  /// Hands over a buffer and leaves it to the caller that `write()` is called soon, on some thread. Never waits.
  public func leave(_ buffer: OutputBuffer, _ completion: Completion? = nil) {
    _ = enqueue(Block(content: .buffer(buffer), completion: completion), whenFull: .exceed, isLeft: mayBeLeft)
  }

  /// The same for bytes in memory of somebody else.
  public func leave(_ bytes: Bytes, _ completion: Completion? = nil) {
    _ = enqueue(Block(content: .held(bytes), completion: completion), whenFull: .exceed, isLeft: mayBeLeft)
  }

  /// Writes what waits, on the calling thread, unless another one is just writing and so will do it. May block for as long as the
  /// target does.
  public func write() {
    guard mayBeLeft else { return }
    while let blocks = state.withLock({ Self.take(&$0) }) { Self.write(blocks, work, state) }
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
      state.queue.append(block)
      return .taken
    }
    switch outcome {
    case .taken:
      if !isLeft { state.notify() }
      return true
    case .full, nil: return false
    case .refused(let error):
      block.completion?(.failure(WriteFailure(error, written: 0)))
      return false
    }
  }

  /// Takes no more blocks, writes what waits and returns when that is done, or, after `limit`, gives
  /// up: what is left completes with an error. Of several threads that close it, the shortest limit counts. Not on the
  /// writer's thread.
  public func close(within limit: TimeSpan = .seconds(30)) {
    let thread = state.withLock { state -> OwnThread? in
      state.closed = true
      return state.thread.take()
    }
    state.notify()
    let (deadline, overflow) = monotonicNow().addingReportingOverflow(limit.nanoseconds)
    let ended: (inout State) -> Bool? = { $0.ended ? true : nil }
    if state.wait(until: overflow ? nil : deadline, ended) == nil {
      cancellation.wake()
      // A device that hangs inside the kernel keeps its thread; it ends with the process.
      if state.wait(until: monotonicNow() &+ 2_000_000_000, ended) == nil { return }
    }
    thread?.join()
  }

  deinit {
    // Nobody can be waiting in `write` any more; what is queued is still written.
    state.withLock { $0.closed = true }
    state.notify()
  }

  private static func run(_ work: WriterWork, _ state: Guarded<State>) {
    while true {
      let taken = state.wait(until: work.nextSync) { state -> (blocks: [Block], closed: Bool)? in
        if let blocks = take(&state) { return (blocks, false) }
        return state.closed && !state.isWriting ? ([], true) : nil
      }
      if let taken, !taken.closed {
        write(taken.blocks, work, state)
        continue
      }
      if let failure = work.syncIfDue(closing: taken != nil) {
        state.withLock { $0.failure = $0.failure ?? failure }
      }
      if taken != nil {
        state.withLock { $0.ended = true }
        state.notify()
        return
      }
    }
  }

  /// What waits, for the calling thread to write; nil if there is nothing, or another thread is writing.
  private static func take(_ state: inout State) -> [Block]? {
    guard !state.isWriting, !state.queue.isEmpty else { return nil }
    state.isWriting = true
    defer { state.queue = [] }
    return state.queue
  }

  private static func write(_ blocks: [Block], _ work: WriterWork, _ state: Guarded<State>) {
    let outcome = work.write(blocks)
    let failure = outcome.failure
    if let failure { state.withLock { $0.failure = failure } }
    // Each before its completion, which gives the buffer back: whoever gets it may empty it.
    var total = 0
    for block in blocks {
      let count = block.content.count
      if let failure {
        // What the system has taken of those that were written together is a beginning of them.
        let written = min(count, max(0, outcome.written - total))
        block.completion?(.failure(WriteFailure(failure, written: written)))
      } else {
        block.completion?(.success(()))
      }
      total += count
    }
    let (waiting, isAwaited) = state.withLock { state -> ([@Sendable () -> Void], Bool) in
      state.bytes -= total
      state.isWriting = false
      let isAwaited = state.closed || state.waiters > 0 || !state.queue.isEmpty
      guard state.bytes <= work.options.queueBytes / 2 || failure != nil else { return ([], isAwaited) }
      defer { state.waitingForRoom = [] }
      return (state.waitingForRoom, isAwaited)
    }
    if isAwaited { state.notify() }
    for body in waiting { body() }
  }
}

extension FileWriter.Target {
  /// The file or stream, for messages.
  public var name: String {
    switch self {
    case .descriptor(let file): file.name
    case .append(let path, _), .replace(let path, _): path
    }
  }
}
