import CLinux
internal import DequeModule
import Glibc
import PipelineCore

/// The part of a ``FilesWriter`` that its thread alone uses.
final class FilesWork: @unchecked Sendable {
  private final class Open {
    let file: FilesWriter.File
    let work: WriterWork
    var blocks = Deque<FilesWriter.Block>()
    var isUnsynced = false
    /// The time of the last write, in nanoseconds since 1970.
    var last: Int64 = 0
    /// A rotation that failed has been reported.
    var hasReported = false
    /// The full file's name, until the next one is open.
    var full: String?

    init(_ file: FilesWriter.File, _ work: WriterWork) {
      self.file = file
      self.work = work
    }
  }

  private let tree: FileTree
  private let options: FilesWriter.Options
  private let cancellation: WakeEvent
  private let trouble: @Sendable (PosixError?) -> Void
  private let noted: @Sendable (PosixError) -> Void
  private let cut: @Sendable (String, Int64) -> Void
  private var open: [ObjectIdentifier: Open] = [:]
  /// Commands that are not done yet.
  private var commands = Deque<FilesWriter.Command>()
  /// Files with blocks to write, in the order of their first blocks.
  private var waiting = Deque<Open>()
  /// The bytes of blocks that have ended in the present run.
  private var ended = 0
  /// The opening of a file waits for room.
  private var room = RoomWait()
  /// When to continue work that waits for room, on the monotonic clock; nil: none waits.
  private(set) var retry: Int64?
  /// The acknowledgements of blocks that are written and not synced.
  private var unsynced: [FileWriter.Acknowledgement] = []
  /// Closed files with writes that are not synced: they are synced with the others, all at once if they are many.
  private var leaving: [SyncedFile] = []
  /// The maximum number of leaving files: with more, they are synced before they are due.
  private static let mostLeaving = 512
  private let system: FileSystemSync?
  /// When files must be synced, on the monotonic clock.
  private(set) var syncDue: Int64?
  /// Once set, nothing more is written.
  private(set) var failure: PosixError?
  private let keeper: RotationKeeper?
  /// All files are closed for good.
  private(set) var isClosed = false

  init(
    _ tree: FileTree, _ options: FilesWriter.Options, _ cancellation: WakeEvent,
    _ trouble: @escaping @Sendable (PosixError?) -> Void, _ noted: @escaping @Sendable (PosixError) -> Void,
    _ cut: @escaping @Sendable (String, Int64) -> Void
  ) {
    self.tree = tree
    self.options = options
    self.cancellation = cancellation
    self.trouble = trouble
    self.noted = noted
    self.cut = cut
    system = options.sync.isLater ? FileSystemSync(tree.root) : nil
    keeper = options.rotation.map { RotationKeeper(tree, $0, noted, options.step) }
  }

  /// The writer was abandoned; nothing waits for it.
  var isGivenUp: Bool { cancellation.isAwake }

  /// Runs the commands in order, after those that wait for room, until one finds none; returns the number of bytes that
  /// are finished. Never waits for room.
  func run(_ new: [FilesWriter.Command]) -> Int {
    commands.append(contentsOf: new)
    ended = 0
    retry = nil
    while let command = commands.first {
      checkForEnd()
      guard isDone(command) else { return ended }
      commands.removeFirst()
    }
    while let open = waiting.first {
      checkForEnd()
      guard write(open) else { return ended }
      waiting.removeFirst()
    }
    return ended
  }

  /// False: it waits for room, and is done again at ``retry``.
  private func isDone(_ command: FilesWriter.Command) -> Bool {
    switch command {
    case .write(let file, let block):
      switch opened(file, for: block) {
      case .open(let open):
        if open.blocks.isEmpty { waiting.append(open) }
        open.blocks.append(block)
      case .refused: ended += block.content.count
      case .full: return false
      }
    case .close(let file):
      guard let closing = open[ObjectIdentifier(file)] else { return true }
      guard write(closing) else { return false }
      open[ObjectIdentifier(file)] = nil
      waiting.removeAll { $0 === closing }
      leave(closing)
    case .rotate(let file, let start, let time): return rotateIfFull(file, start, time)
    case .compress(let file, let names): keeper?.look(at: file.path, compressing: names)
    }
    return true
  }

  /// Nothing more is written when the writer was given up.
  private func checkForEnd() {
    guard failure == nil, isGivenUp else { return }
    let refusal = room.reason ?? open.values.lazy.compactMap(\.work.refusal?.error).first
    failure =
      refusal ?? PosixError("write to", tree.root, code: ECANCELED, detail: "it was given up")
  }

  /// Whether work that has failed is done again later, because the disk or the table of descriptors is full.
  private func waits(because error: PosixError) -> Bool {
    guard error.isShortage, !isGivenUp else { return false }
    if room.reason == nil { trouble(error) }
    retry = room.refused(error)
    return true
  }

  private func hasRoom() {
    if room.done() { trouble(nil) }
  }

  private enum Opening {
    case open(Open)
    /// The block has been ended or refused.
    case refused
    case full
  }

  private func opened(_ file: FilesWriter.File, for block: FilesWriter.Block) -> Opening {
    if let failure {
      block.end(.failure(.init(failure, written: 0)))
      return .refused
    }
    if let known = open[ObjectIdentifier(file)] { return .open(known) }
    // A lost execution may have filled files that no state knows.
    if options.rotation != nil, let marks = options.marks, block.opening == 1 {
      tree.cutRotated(file.path, marks)
    }
    do throws(PosixError) {
      let work = try withDescriptors { () throws(PosixError) -> WriterWork in
        var writing = FileWriter.Options()
        writing.sync = self.options.sync
        writing.start = block.start
        writing.mark = self.options.marks.map { ($0, file.number) }
        return try WriterWork(
          .below(self.tree, path: file.path), options: writing, cancellation: self.cancellation,
          trouble: self.trouble)
      }
      hasRoom()
      if work.cutBytes > 0 { cut(tree.name(file.path), work.cutBytes) }
      file.extend(by: work.stretches)
      file.isOpen(for: block.opening)
      let open = Open(file, work)
      file.isRotatedAway(false)
      open.last = file.lastWrite(or: (try? work.file?.descriptor.status().modified) ?? block.time)
      self.open[ObjectIdentifier(file)] = open
      // An earlier execution may not have renamed its full files.
      if let keeper {
        let (full, uncommitted) = ((try? tree.rotated(file.path)) ?? [], file.uncommitted)
        keeper.look(
          at: file.path, compressing: full.filter { !$0.isCompressed && !uncommitted.contains($0.name) }.map(\.name))
      }
      return .open(open)
    } catch {
      if waits(because: error) { return .full }
      if options.refusesPaths, tree.isRefusal(error) {
        block.refusal(error)
      } else {
        failure = error
        block.end(.failure(.init(error, written: 0)))
      }
      return .refused
    }
  }

  /// Runs `work` again once closed files that wait for a sync have released their descriptors, if it found none.
  private func withDescriptors<T>(_ work: () throws(PosixError) -> T) throws(PosixError) -> T {
    do throws(PosixError) {
      return try work()
    } catch {
      guard error.isShortage, !error.isFull, !leaving.isEmpty else { throw error }
      sync()
      return try work()
    }
  }

  /// Writes the blocks of a file; false: the rest of them waits for room.
  private func write(_ open: Open) -> Bool {
    guard reopen(open) else { return false }
    guard let rotation = options.rotation else {
      guard open.blocks.isEmpty || write(open.blocks, to: open) else { return false }
      open.blocks = []
      return true
    }
    while let block = open.blocks.first {
      // The rest of a block is written to the same file as its start.
      let isBegun = (open.work.refusal?.taken ?? 0) > 0
      if !isBegun, rotation.isFull(open.work.end, adding: block.content.count, last: open.last, now: block.time) {
        rotate(open, before: block)
      }
      open.last = block.time
      open.file.lastWrite.store(block.time, ordering: .relaxed)
      guard reopen(open), write([block], to: open) else { return false }
      open.blocks.removeFirst()
    }
    return true
  }

  /// Renames a full file; ``reopen(_:)`` begins the next one.
  private func rotate(_ open: Open, before block: FilesWriter.Block) {
    // The program that moved the file away has rotated it.
    guard failure == nil, open.work.isStill(at: tree.name(open.file.path)) else { return }
    sync(open)
    if failure != nil { return }
    do throws(PosixError) {
      let since = options.rotation?.fullSince(last: open.last, now: block.time) ?? block.time
      let name = try tree.rotate(open.file.path, at: since, syncs: options.sync != .never, options.step)
      if options.marks != nil { open.file.isFull(name, after: block.start) }
      guard options.step("open") else { throw .givenUp(open.file.path) }
      open.full = name
    } catch {
      if error.code == ECANCELED {
        failure = error
      } else if !open.hasReported {
        // The file continues to grow.
        open.hasReported = true
        noted(error)
      }
    }
  }

  /// Begins a new file, if the last one has been renamed; false: there is no room for it.
  private func reopen(_ open: Open) -> Bool {
    guard let name = open.full, failure == nil else { return true }
    do throws(PosixError) {
      try withDescriptors { () throws(PosixError) in try open.work.reopen() }
    } catch {
      if waits(because: error) { return false }
      failure = error
      return true
    }
    hasRoom()
    open.full = nil
    if let stretches = open.work.changedStretches() { open.file.extend(by: stretches) }
    open.hasReported = false
    // Without saved states, no file is ever cut back.
    keeper?.look(at: open.file.path, compressing: options.marks == nil ? [name] : [])
    return true
  }

  /// Renames a file that is full now, and closes it. Without a row the next one is not begun. False: blocks of the file wait for room.
  private func rotateIfFull(_ file: FilesWriter.File, _ start: Int64, _ time: Int64) -> Bool {
    guard let rotation = options.rotation else { return true }
    let path = file.path
    let known = open[ObjectIdentifier(file)]
    if let known {
      guard write(known) else { return false }
      waiting.removeAll { $0 === known }
    }
    let end: Int64
    let last: Int64
    if let known {
      (end, last) = (known.work.end, known.last)
    } else {
      guard failure == nil,
        case .success(let status) = FileDescriptor.Status.read(tree.name(path), followsLinks: false),
        status.kind == .regular
      else { return true }
      (end, last) = (status.size, file.lastWrite(or: status.modified))
    }
    guard failure == nil, rotation.isFull(end, adding: 0, last: last, now: time) else { return true }
    if let known {
      guard known.work.isStill(at: tree.name(path)) else { return true }
      sync(known)
      if failure != nil { return true }
    }
    do throws(PosixError) {
      let name = try tree.rotate(
        path, at: rotation.fullSince(last: last, now: time), syncs: options.sync != .never, options.step)
      open[ObjectIdentifier(file)] = nil
      file.isRotatedAway(true)
      if options.marks != nil { file.isFull(name, after: start) }
      // Without saved states, no file is ever cut back.
      keeper?.look(at: path, compressing: options.marks == nil ? [name] : [])
    } catch {
      if error.code == ECANCELED {
        failure = error
      } else if !(known?.hasReported ?? false) {
        known?.hasReported = true
        noted(error)
      }
    }
    return true
  }

  /// False: they wait for room.
  private func write(_ blocks: some Collection<FilesWriter.Block>, to open: Open) -> Bool {
    if let failure {
      var taken = open.work.refusal?.taken ?? 0
      for block in blocks {
        let count = block.content.count
        block.end(.failure(.init(failure, written: min(count, taken))))
        taken -= min(count, taken)
        ended += count
      }
      return true
    }
    let outcome = open.work.write(
      blocks.map { FileWriter.Block(content: $0.content, completion: nil, acknowledgement: nil) })
    if let stretches = open.work.changedStretches() { open.file.extend(by: stretches) }
    if let next = outcome.retry {
      retry = next
      return false
    }
    failure = outcome.failure
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
      ended += count
    }
    if let next = open.work.nextSync { syncDue = min(syncDue ?? next, next) }
    return true
  }

  /// Syncs one file whose writes need that.
  private func sync(_ open: Open) {
    if open.isUnsynced || open.work.nextSync != nil { checkForEnd() }
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

  /// Closes a file; where acknowledgements wait for a sync, it waits for the sync of all files.
  private func leave(_ closing: Open) {
    guard options.sync.isLater, closing.isUnsynced, failure == nil, let file = closing.work.file else {
      return sync(closing)
    }
    closing.isUnsynced = false
    leaving.append(file)
    if leaving.count >= Self.mostLeaving { sync() }
  }

  /// Syncs the written data, and acknowledges it.
  func sync() {
    syncDue = nil
    // Data that is synced and acknowledged is not lost when the writer is given up.
    let isBehind = open.values.contains { $0.isUnsynced || $0.work.nextSync != nil }
    if isBehind || !unsynced.isEmpty || !leaving.isEmpty { checkForEnd() }
    let left = leaving
    leaving = []
    let files = left + open.values.lazy.filter(\.isUnsynced).compactMap(\.work.file)
    if failure == nil, let system, system.covers(files) {
      do throws(PosixError) {
        try system.sync()
        for file in files { file.wasSynced() }
        for open in open.values { open.isUnsynced = false }
      } catch {
        failure = error
      }
    } else {
      for file in left where failure == nil {
        do throws(PosixError) { try file.sync() } catch { failure = error }
      }
    }
    for open in open.values { sync(open) }
    let acknowledgements = unsynced
    unsynced = []
    for acknowledge in acknowledgements {
      // It is unknown whether data written before another failure was synced.
      acknowledge(failure.map { .failure(.init($0, written: 0)) } ?? .success(()))
    }
  }

  /// Syncs and closes all files, once. False: full files are still being compressed; `whenDone` will be called, and
  /// then this method again. If that is given up, no written data is lost, so it is not a failure.
  func closeAll(_ whenDone: @escaping @Sendable () -> Void) -> Bool {
    if !isClosed { sync() }
    isClosed = true
    open = [:]
    return keeper?.close(isGivenUp: isGivenUp, whenDone) ?? true
  }
}

/// Syncs the whole file system of a directory: with many files that is one wait for the device instead of two for each.
final class FileSystemSync {
  private let directory: FileDescriptor
  private var device: UInt64 = 0
  private let calls: WriterCalls.Clock
  /// The minimum number of files for a sync of the whole file system, which waits for other writers, too.
  private static let fewest = 16

  /// Nil: the directory cannot be read, or the kernel does not report what fails.
  init?(_ path: String) {
    guard Self.kernelReports else { return nil }
    let number = uninterrupted { Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
    guard number >= 0 else { return nil }
    directory = FileDescriptor(number, name: path)
    calls = WriterCalls.add(path)
    guard let status = try? directory.status() else { return nil }
    device = status.device
  }

  deinit { WriterCalls.remove(calls) }

  /// Since Linux 5.8 the call reports failed writes.
  private static let kernelReports: Bool = {
    var name = utsname()
    guard uname(&name) == 0 else { return false }
    let release = withUnsafeBytes(of: &name.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    let numbers = release.split { !$0.isNumber }.prefix(2).compactMap { Int($0) }
    return numbers.count == 2 && (numbers[0] > 5 || numbers[0] == 5 && numbers[1] >= 8)
  }()

  /// Whether these files are many, and all of the file system.
  func covers(_ files: [SyncedFile]) -> Bool {
    files.count >= Self.fewest && files.allSatisfy { (try? $0.descriptor.status().device) == device }
  }

  func sync() throws(PosixError) {
    try calls.during { () throws(PosixError) in
      if uninterrupted({ rx_sync_file_system(directory.number) }) != 0 { throw PosixError("sync", directory.name) }
    }
  }
}
