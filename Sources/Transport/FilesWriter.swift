import Glibc
import PipelineCore
import Synchronization

/// Writes blocks of bytes to many files below one directory, on one thread, in order for each file. The caller says which files are open.
///
/// It keeps the promises of ``FileWriter``: it waits while the disk or the table of descriptors is full, and after any other failure of a
/// write or a sync it has failed for good. Only a file that cannot be opened because of its path is no failure: its blocks are refused.
public final class FilesWriter: Sendable {
  public struct Options: Sendable {
    /// The limit of waiting bytes, for ``FilesWriter/whenRoom(_:)``.
    public var queueBytes = 8 << 20
    public var sync = FileWriter.Sync.never
    /// Files are marked for a later execution; nil: they are not.
    public var marks: WriterMarks?
    public init() {}
  }

  /// One file, from its first block until the caller forgets it. It may be closed and opened again meanwhile.
  public final class File: Sendable {
    /// Below the directory.
    public let path: String
    public let number: UInt64
    private let opened = Atomic(0)
    private let stretches = Mutex<[WriterWork.Stretch]>([])

    public init(_ path: String, number: UInt64) {
      self.path = path
      self.number = number
    }

    /// Whether the file has been opened for blocks with this ``Block/opening``.
    public func isOpen(_ opening: Int) -> Bool { opened.load(ordering: .acquiring) == opening }

    /// Where the file ends when so many bytes have been written for it; nil: that is not known yet, or others write to it. Counts must not
    /// decrease from call to call.
    public func place(after count: Int64) -> FilePosition? {
      stretches.withLock { stretches in
        if let index = stretches.lastIndex(where: { $0.start <= count }) { stretches.removeFirst(index) }
        return stretches.first?.place(after: count)
      }
    }

    fileprivate func isOpen(for opening: Int) { opened.store(opening, ordering: .releasing) }
    fileprivate func extend(by newer: [WriterWork.Stretch]) {
      stretches.withLock { $0 = $0.extended(by: newer) }
    }
  }

  public struct Block: Sendable {
    public var content: FileWriter.Content
    /// How many bytes came before it for the file.
    public var start: Int64
    /// The number of the opening for which it comes, from 1: one more after each ``FilesWriter/close(_:)``.
    public var opening: Int
    /// See ``FileWriter/Completion``.
    public var completion: FileWriter.Completion
    /// See ``FileWriter/Acknowledgement``.
    public var acknowledgement: FileWriter.Acknowledgement
    /// Called in place of both if the file cannot be opened because of its path.
    public var refusal: @Sendable (PosixError) -> Void

    public init(
      _ content: FileWriter.Content, start: Int64, opening: Int, completion: @escaping FileWriter.Completion,
      acknowledgement: @escaping FileWriter.Acknowledgement, refusal: @escaping @Sendable (PosixError) -> Void
    ) {
      self.content = content
      self.start = start
      self.opening = opening
      self.completion = completion
      self.acknowledgement = acknowledgement
      self.refusal = refusal
    }

    func end(_ result: Result<Void, FileWriter.WriteFailure>) {
      completion(result)
      acknowledgement(result)
    }
  }

  fileprivate enum Command {
    case write(File, Block)
    case close(File)
  }

  private struct State {
    var queue: [Command] = []
    /// Bytes queued or being written.
    var bytes = 0
    /// Everything that is queued shall be synced and acknowledged soon.
    var isSyncAwaited = false
    var closed = false
    var failure: PosixError?
    var waitingForRoom: [@Sendable () -> Void] = []
    var thread: OwnThread?
    var ended = false
  }

  private let options: Options
  private let state = Guarded(State())
  private let cancellation: WakeEvent

  /// Checks that the directory can be entered, and starts the thread.
  /// - Parameters:
  ///   - trouble: Called on the writer's thread when it waits for room, and when a moved file cannot be opened again.
  ///   - cut: Called on the writer's thread with the path of a file and how many bytes were cut off it, because they come again.
  public init(
    _ tree: FileTree, options: Options, trouble: @escaping @Sendable (PosixError) -> Void,
    cut: @escaping @Sendable (_ path: String, _ bytes: Int64) -> Void = { _, _ in }
  ) throws(PosixError) {
    try tree.check()
    self.options = options
    cancellation = try WakeEvent()
    let work = FilesWork(tree, options, cancellation, trouble, cut)
    let state = state
    let thread = try OwnThread("rxd write") { Self.run(work, state, options.queueBytes) }
    state.withLock { $0.thread = thread }
  }

  /// Queues a block. Never waits.
  public func add(_ block: Block, to file: File) {
    let refused = state.withLock { state -> PosixError? in
      if let failure = state.failure { return failure }
      if state.closed { return PosixError("write to", file.path, code: ECANCELED, detail: "it has been closed") }
      state.bytes += block.content.count
      state.queue.append(.write(file, block))
      return nil
    }
    if let refused { return block.end(.failure(.init(refused, written: 0))) }
    state.notify()
  }

  /// Closes a file behind its queued blocks. Later ones open it again.
  public func close(_ file: File) {
    state.withLock { $0.queue.append(.close(file)) }
    state.notify()
  }

  /// The bytes waiting or being written.
  public var queuedBytes: Int { state.withLock(\.bytes) }
  /// Why nothing is written any more; nil while the writer works.
  public var failure: PosixError? { state.withLock(\.failure) }

  /// See ``FileWriter/whenRoom(_:)``.
  public func whenRoom(_ body: @escaping @Sendable () -> Void) {
    let limit = options.queueBytes
    let now = state.withLock { state in
      if state.bytes <= limit / 2 || state.failure != nil || state.closed { return true }
      state.waitingForRoom.append(body)
      return false
    }
    if now { body() }
  }

  /// Has everything that was queued so far be synced and acknowledged as soon as it is written.
  public func acknowledgeSoon() {
    state.withLock { $0.isSyncAwaited = true }
    state.notify()
  }

  /// Takes no more blocks, writes the queued ones and returns when that is done. After `limit` the rest completes with an error.
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
      // A device that hangs in the kernel keeps its thread, which then ends with the process.
      if state.wait(until: monotonicNow() &+ 2_000_000_000, ended) == nil { return }
    }
    thread?.join()
  }

  deinit {
    state.withLock { $0.closed = true }
    state.notify()
  }

  private enum Job {
    case commands([Command], syncs: Bool)
    case close
  }

  private static func run(_ work: FilesWork, _ state: Guarded<State>, _ limit: Int) {
    while true {
      let job = state.wait(until: work.syncDue) { state -> Job? in
        if !state.queue.isEmpty || state.isSyncAwaited {
          defer {
            state.queue = []
            state.isSyncAwaited = false
          }
          return .commands(state.queue, syncs: state.isSyncAwaited)
        }
        return state.closed ? .close : nil
      }
      switch job {
      case nil: work.sync()
      case .commands(let commands, let syncs):
        let done = work.run(commands)
        if syncs || work.syncDue.map({ monotonicNow() >= $0 }) == true { work.sync() }
        let waiting = state.withLock { state -> [@Sendable () -> Void] in
          state.bytes -= done
          state.failure = state.failure ?? work.failure
          guard state.bytes <= limit / 2 || state.failure != nil else { return [] }
          defer { state.waitingForRoom = [] }
          return state.waitingForRoom
        }
        for body in waiting { body() }
      case .close:
        work.sync()
        work.closeAll()
        let waiting = state.withLock { state in
          state.failure = state.failure ?? work.failure
          state.ended = true
          defer { state.waitingForRoom = [] }
          return state.waitingForRoom
        }
        state.notify()
        for body in waiting { body() }
        return
      }
    }
  }
}

/// The part of a ``FilesWriter`` that its thread alone uses.
private final class FilesWork: @unchecked Sendable {
  private final class Open {
    let file: FilesWriter.File
    let work: WriterWork
    var blocks: [FilesWriter.Block] = []
    var isUnsynced = false

    init(_ file: FilesWriter.File, _ work: WriterWork) {
      self.file = file
      self.work = work
    }
  }

  private let tree: FileTree
  private let options: FilesWriter.Options
  private let cancellation: WakeEvent
  private let trouble: @Sendable (PosixError) -> Void
  private let cut: @Sendable (String, Int64) -> Void
  private var open: [ObjectIdentifier: Open] = [:]
  /// Those with blocks to write, in the order of their first blocks.
  private var waiting: [Open] = []
  /// The acknowledgements of blocks that are written and not synced.
  private var unsynced: [FileWriter.Acknowledgement] = []
  /// When files must be synced, on the monotonic clock.
  private(set) var syncDue: Int64?
  /// Once set, nothing more is written.
  private(set) var failure: PosixError?

  init(
    _ tree: FileTree, _ options: FilesWriter.Options, _ cancellation: WakeEvent,
    _ trouble: @escaping @Sendable (PosixError) -> Void, _ cut: @escaping @Sendable (String, Int64) -> Void
  ) {
    self.tree = tree
    self.options = options
    self.cancellation = cancellation
    self.trouble = trouble
    self.cut = cut
  }

  /// Runs the commands in order; returns how many bytes they had.
  func run(_ commands: [FilesWriter.Command]) -> Int {
    var bytes = 0
    for command in commands {
      checkForEnd()
      switch command {
      case .write(let file, let block):
        bytes += block.content.count
        guard let open = opened(file, for: block) else { continue }
        if open.blocks.isEmpty { waiting.append(open) }
        open.blocks.append(block)
      case .close(let file):
        guard let closing = open.removeValue(forKey: ObjectIdentifier(file)) else { continue }
        write(closing)
        waiting.removeAll { $0 === closing }
        sync(closing)
      }
    }
    for open in waiting { write(open) }
    waiting = []
    return bytes
  }

  /// Nothing more is written when the writer was given up.
  private func checkForEnd() {
    guard failure == nil, cancellation.isAwake else { return }
    failure = PosixError("write to", tree.root, code: ECANCELED, detail: "it was given up")
  }

  /// The open file; nil: the block has been ended or refused.
  private func opened(_ file: FilesWriter.File, for block: FilesWriter.Block) -> Open? {
    if let failure {
      block.end(.failure(.init(failure, written: 0)))
      return nil
    }
    if let known = open[ObjectIdentifier(file)] { return known }
    do throws(PosixError) {
      let work = try waitingForRoom { () throws(PosixError) -> WriterWork in
        var writing = FileWriter.Options()
        writing.sync = self.options.sync
        writing.start = block.start
        writing.mark = self.options.marks.map { ($0, file.number) }
        return try WriterWork(
          .below(self.tree, path: file.path), options: writing, cancellation: self.cancellation, trouble: self.trouble)
      }
      if work.cutBytes > 0 { cut(tree.name(file.path), work.cutBytes) }
      file.extend(by: work.stretches)
      file.isOpen(for: block.opening)
      let open = Open(file, work)
      self.open[ObjectIdentifier(file)] = open
      return open
    } catch {
      if tree.isRefusal(error) {
        block.refusal(error)
      } else {
        failure = error
        block.end(.failure(.init(error, written: 0)))
      }
      return nil
    }
  }

  /// Runs `work` again as long as the disk or the table of descriptors is full.
  private func waitingForRoom<T>(_ work: () throws(PosixError) -> T) throws(PosixError) -> T {
    var delay: Int32 = 100
    var reported = false
    while true {
      do throws(PosixError) {
        return try work()
      } catch {
        guard error.isShortage else { throw error }
        if !reported { trouble(error) }
        reported = true
        var entry = pollfd(fd: cancellation.descriptor, events: Int16(POLLIN), revents: 0)
        if poll(&entry, 1, delay) > 0 { throw error }
        delay = min(delay * 2, 2000)
      }
    }
  }

  private func write(_ open: Open) {
    let blocks = open.blocks
    open.blocks = []
    guard !blocks.isEmpty else { return }
    if let failure {
      for block in blocks { block.end(.failure(.init(failure, written: 0))) }
      return
    }
    let outcome = open.work.write(
      blocks.map { FileWriter.Block(content: $0.content, completion: nil, acknowledgement: nil) })
    failure = outcome.failure
    if let stretches = open.work.changedStretches() { open.file.extend(by: stretches) }
    var total = 0
    for block in blocks {
      let count = block.content.count
      if let failure {
        block.end(.failure(.init(failure, written: min(count, max(0, outcome.written - total)))))
      } else if case .acknowledged(let limit) = options.sync {
        block.completion(.success(()))
        unsynced.append(block.acknowledgement)
        open.isUnsynced = true
        if syncDue == nil { syncDue = monotonicNow() &+ max(0, min(limit.nanoseconds, 1 << 60)) }
      } else {
        block.end(.success(()))
      }
      total += count
    }
    if let next = open.work.nextSync { syncDue = min(syncDue ?? next, next) }
  }

  /// Syncs one file whose writes need that.
  private func sync(_ open: Open) {
    checkForEnd()
    if open.isUnsynced, failure == nil {
      do throws(PosixError) {
        try open.work.syncCalls.during { () throws(PosixError) in try open.work.file?.sync() }
      } catch {
        failure = error
      }
    }
    open.isUnsynced = false
    failure = failure ?? open.work.syncIfDue(closing: true)
  }

  /// Syncs what is written, and acknowledges it.
  func sync() {
    syncDue = nil
    for open in open.values { sync(open) }
    let acknowledgements = unsynced
    unsynced = []
    for acknowledge in acknowledgements {
      // Of what was written before another failure it is not known that it has been synced.
      acknowledge(failure.map { .failure(.init($0, written: 0)) } ?? .success(()))
    }
  }

  func closeAll() { open = [:] }
}
