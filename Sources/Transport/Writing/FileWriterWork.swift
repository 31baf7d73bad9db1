import Glibc
import PipelineCore

/// The writing part of a `FileWriter`. Made by the creating thread, then used by one thread at a time.
final class WriterWork: @unchecked Sendable {
  let options: FileWriter.Options
  private let target: FileWriter.Target
  private let cancellation: WakeEvent
  private let trouble: @Sendable (PosixError?) -> Void
  private(set) var file: SyncedFile?
  private var identity: (device: UInt64, inode: UInt64)?
  /// The stretches written to regular files, as far as they have changed.
  private(set) var stretches: [Stretch] = []
  private var haveStretchesChanged = false
  /// The outcome of resuming at the offset where an earlier writer ended.
  private(set) var resumption: FileWriter.Resumption?
  /// The number of bytes that were cut off when the file was opened, because they will be written again.
  private(set) var cutBytes: Int64 = 0
  /// The reason why the path of a moved file could not be opened again.
  private var refused: PosixError?
  /// The number of bytes of blocks that have been written so far.
  private var written: Int64 = 0
  /// The size of the file after those bytes.
  private(set) var end: Int64 = 0
  /// Up to where the system has been asked to write the file to the device.
  private var writebackEnd: Int64 = 0
  /// The first opened target is a file for appending.
  private(set) var isRegular = false
  /// The file ends within a line that this writer did not write.
  private var needsNewline = false
  /// Once set, nothing more is written.
  private var failure: PosixError?
  private let scratch = OutputBuffer()
  private let calls: WriterCalls.Clock
  /// The syncs of another thread.
  let syncCalls: WriterCalls.Clock
  /// Writing to the target waits for a device only, not for a reader.
  private var waitsForDevice = false
  /// Whether each block replaces the content of the file.
  var replaces: Bool { if case .replace = target { true } else { false } }
  /// Whether writing may wait for a reader.
  var mayBlock: Bool { !replaces && !waitsForDevice }
  /// The bytes that the system has taken of the present blocks.
  private var taken = 0
  /// The present blocks wait for room.
  private var room = RoomWait()
  /// When the next sync is due, on the monotonic clock; nil if nothing is unsynced or syncing is off.
  private(set) var nextSync: Int64?

  /// Blocks from this size on are not copied together.
  private static let large = 64 << 10
  private static let together = 256 << 10
  /// Written data goes to the device in stretches of this size while more is written, instead of all at once at the sync.
  private static let writeback: Int64 = 4 << 20

  init(
    _ target: FileWriter.Target, options: FileWriter.Options, cancellation: WakeEvent,
    trouble: @escaping @Sendable (PosixError?) -> Void
  ) throws(PosixError) {
    self.target = target
    self.options = options
    self.cancellation = cancellation
    self.trouble = trouble
    calls = WriterCalls.add(target.name)
    syncCalls = WriterCalls.add(target.name)
    switch target {
    case .descriptor(let descriptor):
      file = SyncedFile(Self.withoutBlocking(descriptor))
      waitsForDevice = (try? descriptor.status())?.kind == .regular
    case .append, .below:
      written = options.start
      try openForAppending(resuming: options.resume)
      isRegular = waitsForDevice
      haveStretchesChanged = false
    case .replace(let path, _): removeLeftovers(of: path)
    }
  }

  deinit {
    WriterCalls.remove(calls)
    WriterCalls.remove(syncCalls)
  }

  /// The writer was abandoned; nothing waits for it.
  var isGivenUp: Bool { cancellation.isAwake }

  /// The state of the device after a failed sync is unknown, even if the disk was full: the sync is never repeated.
  private func sync() throws(PosixError) {
    guard let file else { return }
    do throws(PosixError) {
      try calls.during { () throws(PosixError) in try file.sync() }
    } catch {
      failure = error
      throw error
    }
  }

  struct Outcome {
    /// The reason why the blocks do not count as written; nil: they do.
    var failure: PosixError?
    /// The number of bytes of the blocks, from the first on, that have been written nevertheless.
    var written = 0
    /// When these blocks must be written again, on the monotonic clock, perhaps with more after them: the disk, or the
    /// table of descriptors that a moved file needs to be opened again, is full. The bytes already written are kept.
    var retry: Int64?
  }

  /// Why the current blocks wait for room, and the number of their bytes that are written; nil: none wait.
  var refusal: (error: PosixError, taken: Int)? { room.reason.map { ($0, taken) } }

  /// Writes the blocks in order. Never waits for room.
  func write(_ blocks: [FileWriter.Block]) -> Outcome {
    if let failure { return Outcome(failure: failure) }
    let before = room.reason == nil ? 0 : taken
    taken = before
    do throws(PosixError) {
      if case .replace(let path, let permissions) = target {
        try replace(path, permissions, blocks)
        hasRoom()
        return Outcome()
      }
      // The rest of a block is written to the same file as its start.
      if taken == 0 {
        switch target {
        case .append(let path, _): try reopenIfMoved(path)
        case .below(let tree, let path, _): try reopenIfMoved(tree.name(path))
        case .descriptor, .replace: break
        }
        if needsNewline {
          try writeAll([10])
          needsNewline = false
          end += 1
          taken = 0
        }
      }
      try write(blocks, from: taken)
      hasRoom()
      if waitsForDevice { noteWritten(taken) }
      switch options.sync {
      case .never, .acknowledged: break
      case .batch:
        taken = 0
        try sync()
      case .interval(let interval):
        if nextSync == nil {
          nextSync = monotonicNow() &+ max(0, min(interval.nanoseconds, 1 << 60))
        }
        return Outcome(failure: syncIfDue(closing: false))
      }
      return Outcome()
    } catch {
      // After a failed sync, nothing is tried again.
      if failure == nil, error.isShortage, !isGivenUp {
        if room.reason == nil { trouble(error) }
        return Outcome(retry: room.refused(error, madeProgress: taken > before))
      }
      failure = error
      return Outcome(failure: error, written: options.sync == .batch ? 0 : taken)
    }
  }

  private func hasRoom() {
    if room.done() { trouble(nil) }
  }

  /// Writes the blocks but for their first bytes, of which `written` have been written before.
  private func write(_ blocks: [FileWriter.Block], from written: Int) throws(PosixError) {
    var skipped = written
    scratch.clear()
    for block in blocks {
      let count = block.content.count
      guard skipped < count || count == 0 else {
        skipped -= count
        continue
      }
      try borrowing(block.content) { bytes throws(PosixError) in
        try self.write(UnsafeRawBufferPointer(rebasing: bytes[min(skipped, count)...]), isAlone: blocks.count == 1)
      }
      skipped = 0
    }
    try flushScratch()
  }

  /// Syncs if that is due, or at the end if data is unsynced.
  func syncIfDue(closing: Bool) -> PosixError? {
    guard let due = nextSync, closing || monotonicNow() >= due else { return failure }
    nextSync = nil
    do throws(PosixError) {
      try sync()
      return failure
    } catch {
      failure = error
      return error
    }
  }

  private func write(_ bytes: UnsafeRawBufferPointer, isAlone: Bool) throws(PosixError) {
    if isAlone { return try writeAll(bytes) }
    if bytes.count >= Self.large || scratch.count + bytes.count > Self.together { try flushScratch() }
    if bytes.count < Self.large { scratch.append(bytes) } else { try writeAll(bytes) }
  }

  /// The standard library's closures do not pass typed throws through.
  private func borrowing(
    _ block: FileWriter.Content, _ body: (UnsafeRawBufferPointer) throws(PosixError) -> Void
  ) throws(PosixError) {
    var failure: PosixError?
    block.withBytes { bytes in
      do throws(PosixError) { try body(bytes) } catch { failure = error }
    }
    if let failure { throw failure }
  }

  private func flushScratch() throws(PosixError) {
    guard scratch.count > 0 else { return }
    try writeAll(scratch.bytes)
    scratch.clear()
  }

  private func writeAll(_ bytes: [UInt8]) throws(PosixError) {
    try borrowing(.bytes(bytes)) { bytes throws(PosixError) in try self.writeAll(bytes) }
  }

  private func writeAll(_ bytes: UnsafeRawBufferPointer) throws(PosixError) {
    guard let file else { return }
    var written = 0
    defer { taken += written }
    let done =
      try waitsForDevice
      ? calls.during { () throws(PosixError) in try file.descriptor.write(bytes, written: &written) }
      : file.descriptor.write(bytes, written: &written, stop: cancellation)
    if !done { throw PosixError("write to", file.descriptor.name, code: ECANCELED, detail: "it was given up") }
  }

  private func replace(_ path: String, _ permissions: mode_t, _ blocks: [FileWriter.Block])
    throws(PosixError)
  {
    guard let newest = blocks.last else { return }
    try borrowing(newest.content) { bytes throws(PosixError) in
      try self.calls.during { () throws(PosixError) in
        try replaceFile(path, with: bytes, permissions: permissions)
      }
    }
  }

  // MARK: - The file

  /// The same pipe through a non-blocking description of our own, so that `cancellation` works while the reader sleeps;
  /// the original description, which others share, stays unchanged.
  private static func withoutBlocking(_ file: FileDescriptor) -> FileDescriptor {
    guard let status = try? file.status(), status.kind == .fifo else { return file }
    let path = "/proc/self/fd/\(file.number)"
    let number = uninterrupted { open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK) }
    return number < 0 ? file : FileDescriptor(number, name: file.name)
  }

  private func openForAppending(resuming saved: FilePosition? = nil) throws(PosixError) {
    let path: String
    let opened: FileDescriptor
    switch target {
    case .descriptor, .replace: return
    case .append(let name, let permissions):
      path = name
      opened = try FileDescriptor.openForAppending(name, permissions: permissions)
    case .below(let tree, let name, let permissions):
      path = tree.name(name)
      opened = try tree.openForAppending(name, permissions: permissions, syncs: options.isSynced)
    }
    var status = try opened.status()
    cutBack(opened, &status)
    needsNewline = false
    waitsForDevice = status.kind == .regular
    if waitsForDevice {
      if let saved {
        let found = WriterPosition(saved, path).restore(in: opened, status, cutsBack: options.cutsBack)
        resumption = found.resumption
        if let size = found.size { status.size = size }
        // The position is at the end of a whole event, whatever byte that ends with.
        needsNewline = found.size == nil && opened.endsWithinLine(size: status.size)
      } else {
        needsNewline = opened.endsWithinLine(size: status.size)
      }
    }
    identity = (status.device, status.inode)
    file = SyncedFile(opened, inDirectory: waitsForDevice)
    guard waitsForDevice else { return }
    begin(Stretch(opened, status, path, after: written, needsNewline: needsNewline))
  }

  /// Whether the path still names the open file.
  func isStill(at path: String) -> Bool {
    guard let now = FileDescriptor.Status(path: path), let identity else { return false }
    return now.device == identity.device && now.inode == identity.inode
  }

  /// Continues in a new file, after this one was renamed and synced.
  func reopen() throws(PosixError) {
    nextSync = nil
    try openForAppending()
  }

  /// Follows a log rotation: reopens the path if it names another file.
  private func reopenIfMoved(_ path: String) throws(PosixError) {
    if let now = FileDescriptor.Status(path: path), let identity,
      now.device == identity.device, now.inode == identity.inode
    {
      if waitsForDevice, now.size != end { changed(now, path) }
      return
    }
    if nextSync != nil || options.sync == .batch || options.acknowledgesLater { try sync() }
    nextSync = nil
    do throws(PosixError) {
      try openForAppending()
    } catch {
      // Another file at the path must not end the writer: the moved file takes the rest.
      guard case .below(let tree, _, _) = target, tree.isRefusal(error) else { throw error }
      if refused != error { trouble(error) }
      refused = error
    }
  }

  // MARK: - Marks

  /// Cuts off the output that an earlier execution wrote after the state from which this one continues: its events are written again.
  private func cutBack(_ opened: FileDescriptor, _ status: inout FileDescriptor.Status) {
    guard let (marks, _) = options.mark, let mark = WriterMark(of: opened), marks.isLost(mark),
      status.size > mark.size,
      uninterrupted({ ftruncate(opened.number, off_t(mark.size)) }) == 0
    else { return }
    cutBytes = status.size - mark.size
    status.size = mark.size
  }

  private func putMark(_ stretch: Stretch) {
    guard let (marks, number) = options.mark, let opened = file?.descriptor else { return }
    if stretch.isShared { return WriterMark.remove(from: opened) }
    let mark = WriterMark(
      writer: marks.writer, number: number, start: written, size: stretch.size + (stretch.needsNewline ? 1 : 0))
    // A file that was closed and is opened again has the same mark.
    if let known = WriterMark(of: opened), known.writer == mark.writer, known.number == number,
      known.end(after: written) == mark.size
    {
      return
    }
    mark.put(on: opened)
  }

  // MARK: - Stretches

  /// The file was truncated, or others write to it.
  private func changed(_ status: FileDescriptor.Status, _ path: String) {
    guard let opened = file?.descriptor else { return }
    let isShared = stretches.last?.isShared == true || status.size > end
    needsNewline = status.size < end && opened.endsWithinLine(size: status.size)
    // Earlier stretches of this file are no longer valid.
    stretches = []
    begin(
      Stretch(opened, status, path, after: written, needsNewline: needsNewline, isShared: isShared, isSameFile: true))
  }

  private func begin(_ stretch: Stretch) {
    putMark(stretch)
    stretches.append(stretch)
    end = stretch.size
    writebackEnd = end
    haveStretchesChanged = true
  }

  private func noteWritten(_ count: Int) {
    written &+= Int64(count)
    end &+= Int64(count)
    beginWriteback()
    guard let last = stretches.indices.last, let file else { return }
    if stretches[last].readHead(of: file.descriptor) { haveStretchesChanged = true }
  }

  private func beginWriteback() {
    let count = end - writebackEnd
    guard count >= Self.writeback, options.isSynced, options.sync != .batch, let file else { return }
    calls.during { file.descriptor.beginWriteback(from: writebackEnd, count: count) }
    writebackEnd = end
  }

  /// The stretches since the last call, the newest one again; nil: nothing is new.
  func changedStretches() -> [Stretch]? {
    guard haveStretchesChanged else { return nil }
    haveStretchesChanged = false
    let changed = stretches
    stretches = Array(stretches.suffix(1))
    return changed
  }
}
