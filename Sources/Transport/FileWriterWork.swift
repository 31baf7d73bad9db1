import Glibc
import PipelineCore

/// The writing part of a `FileWriter`. Made by the creating thread, then used by one thread at a time.
final class WriterWork: @unchecked Sendable {
  let options: FileWriter.Options
  private let target: FileWriter.Target
  private let cancellation: WakeEvent
  private let trouble: @Sendable (PosixError) -> Void
  private var file: FileDescriptor?
  private var identity: (device: UInt64, inode: UInt64)?
  /// The first opened target is a file for appending.
  private(set) var isRegular = false
  /// The file ends within a line that this writer did not write.
  private var needsNewline = false
  /// Once set, nothing more is written.
  private var failure: PosixError?
  private let scratch = OutputBuffer()
  private let calls: WriterCalls.Clock
  /// Writing to the target waits for a device only, not for a reader.
  private var waitsForDevice = false
  /// The bytes that the system has taken in the present `write`.
  private var taken = 0
  /// When the next sync is due, on the monotonic clock; nil if nothing is unsynced or syncing is off.
  private(set) var nextSync: Int64?

  /// Blocks from this size on are not copied together.
  private static let large = 64 << 10
  private static let together = 256 << 10

  init(
    _ target: FileWriter.Target, options: FileWriter.Options, cancellation: WakeEvent,
    trouble: @escaping @Sendable (PosixError) -> Void
  ) throws(PosixError) {
    self.target = target
    self.options = options
    self.cancellation = cancellation
    self.trouble = trouble
    calls = WriterCalls.add(target.name)
    switch target {
    case .descriptor(let descriptor):
      file = Self.withoutBlocking(descriptor)
      waitsForDevice = (try? descriptor.status())?.kind == .regular
    case .append:
      try openForAppending()
      isRegular = waitsForDevice
    case .replace(let path, _): removeLeftovers(of: path)
    }
  }

  deinit { WriterCalls.remove(calls) }

  private func sync() throws(PosixError) {
    guard let file else { return }
    try calls.during { () throws(PosixError) in try file.sync() }
  }

  struct Outcome {
    /// Why the blocks do not count as written, if so.
    var failure: PosixError?
    /// The number of bytes of the blocks, from the first on, that have been written nevertheless.
    var written = 0
  }

  /// Writes the blocks in order.
  func write(_ blocks: [FileWriter.Block]) -> Outcome {
    if let failure { return Outcome(failure: failure) }
    taken = 0
    do throws(PosixError) {
      if case .replace(let path, let permissions) = target {
        try replace(path, permissions, blocks)
        return Outcome()
      }
      if case .append(let path, _) = target { try reopenIfMoved(path) }
      if needsNewline {
        try writeAll([10])
        needsNewline = false
        taken = 0
      }
      if blocks.count == 1 {
        try borrowing(blocks[0].content) { bytes throws(PosixError) in try self.writeAll(bytes) }
      } else {
        scratch.clear()
        for block in blocks { try write(block.content) }
        try flushScratch()
      }
      switch options.sync {
      case .never: break
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
      failure = error
      return Outcome(failure: error, written: options.sync == .batch ? 0 : taken)
    }
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

  private func write(_ block: FileWriter.Content) throws(PosixError) {
    if block.count >= Self.large || scratch.count + block.count > Self.together {
      try flushScratch()
    }
    if block.count < Self.large {
      block.withBytes { scratch.append($0) }
    } else {
      try borrowing(block) { bytes throws(PosixError) in try self.writeAll(bytes) }
    }
  }

  /// Typed throws do not pass through the standard library's closures.
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
    try waitingForRoom { () throws(PosixError) in
      let done =
        try self.waitsForDevice
        ? self.calls.during { () throws(PosixError) in try file.write(bytes, written: &written) }
        : file.write(bytes, written: &written, stop: self.cancellation)
      if !done { throw PosixError("write to", file.name, code: ECANCELED, detail: "it was given up") }
    }
  }

  /// Runs `work` again as long as the disk is full; written data stays written.
  private func waitingForRoom(_ work: () throws(PosixError) -> Void) throws(PosixError) {
    var delay: Int32 = 100
    var reported = false
    while true {
      do throws(PosixError) {
        return try work()
      } catch {
        guard error.isFull, options.waitsForRoom else { throw error }
        if !reported { trouble(error) }
        reported = true
        var entry = pollfd(fd: cancellation.descriptor, events: Int16(POLLIN), revents: 0)
        if poll(&entry, 1, delay) > 0 { throw error }
        delay = min(delay * 2, 2000)
      }
    }
  }

  private func replace(_ path: String, _ permissions: mode_t, _ blocks: [FileWriter.Block])
    throws(PosixError)
  {
    guard let newest = blocks.last else { return }
    try waitingForRoom { () throws(PosixError) in
      try self.borrowing(newest.content) { bytes throws(PosixError) in
        try self.calls.during { () throws(PosixError) in
          try replaceFile(path, with: bytes, permissions: permissions)
        }
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

  private func openForAppending() throws(PosixError) {
    guard case .append(let path, let permissions) = target else { return }
    let opened = try FileDescriptor.openForAppending(path, permissions: permissions)
    let status = try opened.status()
    needsNewline = false
    waitsForDevice = status.kind == .regular
    if waitsForDevice { needsNewline = opened.endsWithinLine(size: status.size) }
    identity = (status.device, status.inode)
    file = opened
  }

  /// Follows a log rotation: reopens the path if it names another file.
  private func reopenIfMoved(_ path: String) throws(PosixError) {
    if let now = FileDescriptor.Status(path: path), let identity,
      now.device == identity.device, now.inode == identity.inode
    {
      return
    }
    if nextSync != nil || options.sync == .batch { try sync() }
    nextSync = nil
    try openForAppending()
  }
}
