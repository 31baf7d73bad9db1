import CLinux
import Glibc
import PipelineCore

/// The part of a ``FilesWriter`` that its thread alone uses.
final class FilesWork: @unchecked Sendable {
  private final class Open {
    let file: FilesWriter.File
    let work: WriterWork
    var blocks: [FilesWriter.Block] = []
    var isUnsynced = false
    /// When it was last written to, in nanoseconds since 1970.
    var last: Int64 = 0
    /// A rotation that failed has been reported.
    var hasReported = false

    init(_ file: FilesWriter.File, _ work: WriterWork) {
      self.file = file
      self.work = work
    }
  }

  private let tree: FileTree
  private let options: FilesWriter.Options
  private let cancellation: WakeEvent
  private let trouble: @Sendable (PosixError?) -> Void
  private let cut: @Sendable (String, Int64) -> Void
  private var open: [ObjectIdentifier: Open] = [:]
  /// Files with blocks to write, in the order of their first blocks.
  private var waiting: [Open] = []
  /// The acknowledgements of blocks that are written and not synced.
  private var unsynced: [FileWriter.Acknowledgement] = []
  /// Closed files with writes that are not synced: they are synced with the others, all at once if they are many.
  private var leaving: [SyncedFile] = []
  /// With more of them, they are synced before their time.
  private static let mostLeaving = 512
  private let system: FileSystemSync?
  /// When files must be synced, on the monotonic clock.
  private(set) var syncDue: Int64?
  /// Once set, nothing more is written.
  private(set) var failure: PosixError?
  private let keeper: RotationKeeper?

  init(
    _ tree: FileTree, _ options: FilesWriter.Options, _ cancellation: WakeEvent,
    _ trouble: @escaping @Sendable (PosixError?) -> Void,
    _ cut: @escaping @Sendable (String, Int64) -> Void
  ) {
    self.tree = tree
    self.options = options
    self.cancellation = cancellation
    self.trouble = trouble
    self.cut = cut
    system = options.sync.isLater ? FileSystemSync(tree.root) : nil
    keeper = options.rotation.map { RotationKeeper(tree, $0, trouble, options.step) }
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
        leave(closing)
      case .rotate(let file, let start, let time): rotateIfFull(file, start, time)
      case .compress(let file, let names): keeper?.look(at: file.path, compressing: names)
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
    // A lost execution may have filled files that no state knows.
    if options.rotation != nil, let marks = options.marks, block.opening == 1 {
      tree.cutRotated(file.path, marks)
    }
    do throws(PosixError) {
      let work = try waitingForRoom { () throws(PosixError) -> WriterWork in
        var writing = FileWriter.Options()
        writing.sync = self.options.sync
        writing.start = block.start
        writing.mark = self.options.marks.map { ($0, file.number) }
        return try WriterWork(
          .below(self.tree, path: file.path), options: writing, cancellation: self.cancellation,
          trouble: self.trouble)
      }
      if work.cutBytes > 0 { cut(tree.name(file.path), work.cutBytes) }
      file.extend(by: work.stretches)
      file.isOpen(for: block.opening)
      let open = Open(file, work)
      file.isRotatedAway(false)
      open.last = file.lastWrite(or: (try? work.file?.descriptor.status().modified) ?? block.time)
      self.open[ObjectIdentifier(file)] = open
      // An earlier execution may have left full files as they were.
      if let keeper {
        let (full, uncommitted) = ((try? tree.rotated(file.path)) ?? [], file.uncommitted)
        keeper.look(
          at: file.path, compressing: full.filter { !$0.isCompressed && !uncommitted.contains($0.name) }.map(\.name))
      }
      return open
    } catch {
      if options.refusesPaths, tree.isRefusal(error) {
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
        let result = try work()
        if reported { trouble(nil) }
        return result
      } catch {
        guard error.isShortage else { throw error }
        // Closed files that wait for a sync still have their descriptors.
        if !error.isFull, !leaving.isEmpty {
          sync()
          continue
        }
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
    guard let rotation = options.rotation else { return write(blocks, to: open) }
    for block in blocks {
      if rotation.isFull(
        open.work.end, adding: block.content.count, last: open.last, now: block.time)
      {
        rotate(open, before: block)
      }
      open.last = block.time
      open.file.lastWrite.store(block.time, ordering: .relaxed)
      write([block], to: open)
    }
  }

  /// Begins a new file.
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
      do throws(PosixError) {
        try waitingForRoom { () throws(PosixError) in try open.work.reopen() }
      } catch {
        failure = error
        return
      }
      if let stretches = open.work.changedStretches() { open.file.extend(by: stretches) }
      open.hasReported = false
      // Where no states are kept, nothing is ever cut.
      keeper?.look(at: open.file.path, compressing: options.marks == nil ? [name] : [])
    } catch {
      if error.code == ECANCELED {
        failure = error
      } else if !open.hasReported {
        // The file goes on growing.
        open.hasReported = true
        trouble(error)
      }
    }
  }

  /// Gives a file that is full by now its name, and closes it. Without a row the next one is not begun.
  private func rotateIfFull(_ file: FilesWriter.File, _ start: Int64, _ time: Int64) {
    guard let rotation = options.rotation else { return }
    let path = file.path
    let known = open[ObjectIdentifier(file)]
    if let known {
      waiting.removeAll { $0 === known }
      write(known)
    }
    let end: Int64
    let last: Int64
    if let known {
      (end, last) = (known.work.end, known.last)
    } else {
      guard failure == nil,
        case .success(let status) = FileDescriptor.Status.read(tree.name(path), followsLinks: false),
        status.kind == .regular
      else { return }
      (end, last) = (status.size, file.lastWrite(or: status.modified))
    }
    guard failure == nil, rotation.isFull(end, adding: 0, last: last, now: time) else { return }
    if let known {
      guard known.work.isStill(at: tree.name(path)) else { return }
      sync(known)
      if failure != nil { return }
    }
    do throws(PosixError) {
      let name = try tree.rotate(
        path, at: rotation.fullSince(last: last, now: time), syncs: options.sync != .never, options.step)
      open[ObjectIdentifier(file)] = nil
      file.isRotatedAway(true)
      if options.marks != nil { file.isFull(name, after: start) }
      // Where no states are kept, nothing is ever cut.
      keeper?.look(at: path, compressing: options.marks == nil ? [name] : [])
    } catch {
      if error.code == ECANCELED {
        failure = error
      } else if !(known?.hasReported ?? false) {
        known?.hasReported = true
        trouble(error)
      }
    }
  }

  private func write(_ blocks: [FilesWriter.Block], to open: Open) {
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

  /// A file is closed; where acknowledgements wait for a sync, it waits for that of all files.
  private func leave(_ closing: Open) {
    guard options.sync.isLater, closing.isUnsynced, failure == nil, let file = closing.work.file else {
      return sync(closing)
    }
    closing.isUnsynced = false
    leaving.append(file)
    if leaving.count >= Self.mostLeaving { sync() }
  }

  /// Syncs what is written, and acknowledges it.
  func sync() {
    syncDue = nil
    checkForEnd()
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
      // Whether data written before another failure was synced is not known.
      acknowledge(failure.map { .failure(.init($0, written: 0)) } ?? .success(()))
    }
  }

  func closeAll() {
    open = [:]
    keeper?.close { [cancellation] in cancellation.isAwake }
  }
}

/// Syncs the whole file system of a directory: with many files that is one wait for the device in place of two for each.
final class FileSystemSync {
  private let directory: FileDescriptor
  private var device: UInt64 = 0
  private let calls: WriterCalls.Clock
  /// With fewer files, others that write to the file system are not waited for.
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
