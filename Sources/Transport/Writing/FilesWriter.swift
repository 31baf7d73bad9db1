import Glibc
import PipelineCore
import Synchronization

/// Writes blocks of bytes to many files below one directory, by one thread at a time, in order for each file. The
/// caller says which files are open.
///
/// It keeps the promises of ``FileWriter``: it waits while the disk or the table of descriptors is full, and after any
/// other failure of a write or a sync it has failed for good. Only a file that cannot be opened because of its path is
/// not a failure: its blocks are refused.
package final class FilesWriter: Sendable {
  package struct Options: Sendable {
    /// The limit of waiting bytes, for the caller.
    package var queueBytes = 8 << 20
    package var sync = FileWriter.Sync.never
    /// Files are marked for a later execution; nil: they are not.
    package var marks: WriterMarks?
    /// Whether a file that cannot be opened because of its path is a failure of its blocks only.
    package var refusesPaths = true
    /// When files are full; nil: never.
    package var rotation: FileRotation?
    /// Called before each step of a rotation; false: the process would have been killed there. For tests.
    var step: @Sendable (String) -> Bool = { _ in true }
    package init() {}
  }

  /// One file, from its first block until the caller releases it. It may be closed and opened again meanwhile.
  package final class File: Sendable {
    /// The path relative to the directory.
    package let path: String
    package let number: UInt64
    private let opened = Atomic(0)
    private let rotatedAway = Atomic(false)
    /// When it was last written to, in nanoseconds since 1970; 0: not by this writer.
    let lastWrite = Atomic<Int64>(0)
    /// The same; `modified`: the time in the file system, for a file that an earlier execution has written.
    func lastWrite(or modified: Int64) -> Int64 {
      let written = lastWrite.load(ordering: .relaxed)
      return written == 0 ? modified : written
    }
    private let stretches = Mutex<[WriterWork.Stretch]>([])
    /// The names of full files, each with the number of bytes written up to its end; and the counts of the last states.
    private let full = Mutex<(files: [(name: String, count: Int64)], counts: [Int64])>(([], []))

    package init(_ path: String, number: UInt64) {
      self.path = path
      self.number = number
    }

    /// Whether its content has another name, and nothing has been written under its path since.
    package var isRotatedAway: Bool { rotatedAway.load(ordering: .acquiring) }
    func isRotatedAway(_ isIt: Bool) { rotatedAway.store(isIt, ordering: .releasing) }

    /// Whether the file has been opened for blocks with this ``Block/opening``.
    package func isOpen(_ opening: Int) -> Bool { opened.load(ordering: .acquiring) == opening }

    /// The end of the file when the given number of bytes has been written for it; nil: that is not known yet, or others write to it. Counts must not
    /// decrease from call to call.
    package func position(after count: Int64) -> FilePosition? {
      stretches.withLock { stretches in
        if let index = stretches.lastIndex(where: { $0.start <= count }) {
          stretches.removeFirst(index)
        }
        return stretches.first?.position(after: count)
      }
    }

    /// A state with this count is being saved. Returns the full files that can no longer be cut back: those that end
    /// before the state before the previous one, which is on the disk, because no state is drafted while another is
    /// being written.
    package func saves(_ count: Int64) -> [String] {
      full.withLock { full in
        full.counts = full.counts.suffix(2) + [count]
        guard full.counts.count == 3, let oldest = full.counts.first else { return [] }
        defer { full.files.removeAll { $0.count <= oldest } }
        return full.files.filter { $0.count <= oldest }.map(\.name)
      }
    }

    func isFull(_ name: String, after count: Int64) {
      full.withLock { $0.files.append((name, count)) }
    }
    /// Whether full files wait for states before they are compressed.
    package var awaitsStates: Bool { !uncommitted.isEmpty }
    /// The full files from which a later execution may have to cut something.
    var uncommitted: Set<String> { full.withLock { Set($0.files.map(\.name)) } }

    func isOpen(for opening: Int) { opened.store(opening, ordering: .releasing) }
    func extend(by newer: [WriterWork.Stretch]) {
      stretches.withLock { $0 = $0.extended(by: newer) }
    }
  }

  package struct Block: Sendable {
    package var content: FileWriter.Content
    /// The number of bytes that precede it in the file.
    package var start: Int64
    /// The number of the opening that it belongs to, from 1: each ``FilesWriter/close(_:)`` adds one.
    package var opening: Int
    /// When it was queued, in nanoseconds since 1970: the clock of rotations.
    package var time: Int64
    /// See ``FileWriter/Completion``.
    package var completion: FileWriter.Completion
    /// See ``FileWriter/Acknowledgement``.
    package var acknowledgement: FileWriter.Acknowledgement
    /// Called in place of both if the file cannot be opened because of its path.
    package var refusal: @Sendable (PosixError) -> Void

    package init(
      _ content: FileWriter.Content, start: Int64, opening: Int, time: Int64 = 0,
      completion: @escaping FileWriter.Completion,
      acknowledgement: @escaping FileWriter.Acknowledgement,
      refusal: @escaping @Sendable (PosixError) -> Void
    ) {
      self.content = content
      self.start = start
      self.opening = opening
      self.time = time
      self.completion = completion
      self.acknowledgement = acknowledgement
      self.refusal = refusal
    }

    func end(_ result: Result<Void, FileWriter.WriteFailure>) {
      completion(result)
      acknowledgement(result)
    }
  }

  enum Command {
    case write(File, Block)
    case close(File)
    case rotate(File, start: Int64, time: Int64)
    case compress(File, [String])
  }

  private struct State {
    var queue: [Command] = []
    /// Bytes queued or being written.
    var bytes = 0
    /// Whether all queued blocks are to be synced and acknowledged soon.
    var isSyncAwaited = false
    var closed = false
    var failure: PosixError?
    var ended = false
    /// Blocks wait for room.
    var isDiskFull = false
    /// Requests another turn.
    var wake: @Sendable () -> Void = {}
  }

  private let options: Options
  private let state: Guarded<State>
  private let cancellation: WakeEvent
  private let turns: SerialWork

  /// Checks that the directory can be entered.
  /// - Parameters:
  ///   - trouble: Called on the writer's thread when it waits for room, with nil when it has some, and when a moved
  ///     file cannot be opened again.
  ///   - noted: Called when a full file cannot be renamed, compressed or removed. Writing continues.
  ///   - cut: Called on the writer's thread with the path of a file and the number of bytes that were cut off it,
  ///     because they are written again.
  package init(
    _ tree: FileTree, options: Options, trouble: @escaping @Sendable (PosixError?) -> Void,
    noted: @escaping @Sendable (PosixError) -> Void = { _ in },
    cut: @escaping @Sendable (_ path: String, _ bytes: Int64) -> Void = { _, _ in }
  ) throws(PosixError) {
    try tree.check()
    self.options = options
    cancellation = try WakeEvent()
    let work = FilesWork(tree, options, cancellation, trouble, noted, cut)
    let state = Guarded(State())
    self.state = state
    let turns = try SerialWork(on: FileWriter.threads) { Self.turn(work, state) }
    self.turns = turns
    state.withLock { state in state.wake = { [weak turns] in turns?.wake() } }
  }

  /// Queues a block. Never waits.
  package func add(_ block: Block, to file: File) {
    let refused = state.withLock { state -> PosixError? in
      if let failure = state.failure { return failure }
      if state.closed {
        return PosixError("write to", file.path, code: ECANCELED, detail: "it has been closed")
      }
      state.bytes += block.content.count
      state.queue.append(.write(file, block))
      return nil
    }
    if let refused { return block.end(.failure(.init(refused, written: 0))) }
    turns.wake()
  }

  /// Closes a file after its queued blocks. Later blocks open it again.
  package func close(_ file: File) {
    state.withLock { $0.queue.append(.close(file)) }
    turns.wake()
  }

  /// Renames a file that is full at this time, in nanoseconds since 1970, after its queued blocks, even if it is
  /// closed. The next block begins a new one.
  /// - Parameter start: The number of bytes that have been queued for it.
  package func rotate(_ file: File, after start: Int64, at time: Int64) {
    state.withLock { $0.queue.append(.rotate(file, start: start, time: time)) }
    turns.wake()
  }

  /// Compresses full files; see ``File/saves(_:)``.
  package func compress(_ names: [String], of file: File) {
    state.withLock { $0.queue.append(.compress(file, names)) }
    turns.wake()
  }

  /// The bytes waiting or being written.
  package var queuedBytes: Int { state.withLock(\.bytes) }
  /// Whether the disk, or the table of descriptors, has no room for the queued blocks.
  package var isDiskFull: Bool { state.withLock(\.isDiskFull) }
  /// The reason why writing has stopped; nil while the writer works.
  package var failure: PosixError? { state.withLock(\.failure) }

  /// Syncs and acknowledges everything that is queued now as soon as it is written.
  package func acknowledgeSoon() {
    state.withLock { $0.isSyncAwaited = true }
    turns.wake()
  }

  /// Accepts no more blocks, writes the queued ones and returns when that is done. After `limit` the rest completes with an error.
  package func close(within limit: TimeSpan = .seconds(30)) {
    state.withLock { $0.closed = true }
    turns.wake()
    state.waitForEnd(within: limit) {
      cancellation.wake()
      turns.wake()
    } hasEnded: {
      $0.ended
    }
  }

  deinit {
    state.withLock { $0.closed = true }
    turns.wake()
  }

  private enum Job {
    case commands([Command], syncs: Bool)
    case close
  }

  /// Does all work that is due.
  private static func turn(_ work: FilesWork, _ state: Guarded<State>) -> SerialWork.Next {
    while true {
      if let retry = work.retry, retry > monotonicNow(), !work.isGivenUp {
        guard let due = work.syncDue else { return .at(retry) }
        guard monotonicNow() >= due else { return .at(min(due, retry)) }
        work.sync()
        continue
      }
      let job = state.withLock { state -> Job? in
        // Work that waits for room precedes newer work.
        if work.retry != nil { return .commands([], syncs: false) }
        if work.isClosed { return .close }
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
      case nil:
        guard let due = work.syncDue else { return .whenWoken }
        guard monotonicNow() >= due else { return .at(due) }
        work.sync()
      case .commands(let commands, let syncs):
        let done = work.run(commands)
        if syncs || work.syncDue.map({ monotonicNow() >= $0 }) == true { work.sync() }
        state.withLock { state in
          state.bytes -= done
          state.isDiskFull = work.retry != nil
          state.failure = state.failure ?? work.failure
        }
      case .close:
        guard work.closeAll(state.withLock(\.wake)) else { return .whenWoken }
        state.withLock { state in
          state.failure = state.failure ?? work.failure
          state.ended = true
        }
        state.notify()
        return .over
      }
    }
  }
}
