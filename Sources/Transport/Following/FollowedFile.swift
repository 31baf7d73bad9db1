import CLinux
import Glibc
import PipelineCore

/// One followed file. Used on the follower's thread only.
final class FollowedFile {
  struct Key: Hashable {
    var device: UInt64
    var inode: UInt64
    init(_ status: FileDescriptor.Status) {
      device = status.device
      inode = status.inode
    }
  }

  let key: Key
  let file: FileDescriptor
  /// In nanoseconds since 1970; 0 if the file system does not report it.
  let born: Int64
  var path: String
  /// The path without links when the file was found; nil: its path has no links.
  var target: String?
  var watch: Int32 = -1
  /// Whether a program has the file open for writing, as far as events show.
  var writers = Writers.unknown
  /// When to ask the system again whether a program has the file open, on the monotonic clock.
  var askAgainAt = Int64.min
  /// The offset of the last incomplete line whose wait was reported.
  var reportedLine: Int64 = -1
  /// The position in the reading order; `max` until it has one.
  var order = Int.max
  /// Whether a configured path leads to the file.
  var isNamed = true
  /// Whether there may be data to read.
  var isDirty = true
  /// Whether the last read failed and is to be tried again.
  var isUnreadable = false
  /// When the file last grew or lost its name, on the monotonic clock.
  var lastChange = monotonicNow()
  private(set) var lines: LineAssembler
  private let rewriteWait: TimeSpan
  /// The earlier content that the file may get back; nil: the file is read normally.
  var earlier: EarlierContent?
  /// Whether the file has been read to its end.
  private var isCaughtUp = false
  /// The decompressed content; nil: the file is read as it is.
  private let content: CompressedContent?
  /// The first bytes of the file, or of its decompressed content; they distinguish a rewritten file from one that has
  /// grown.
  private var head: [UInt8] = [] { didSet { fingerprint = FilePosition.hash(head[...]) } }
  private var fingerprint = FilePosition.hash([])

  enum Writers { case unknown, open, closed }

  /// The last bytes that were delivered; for a compressed file, the last bytes of the file.
  private(set) var tail: FileTail?

  init(_ file: FileDescriptor, _ status: FileDescriptor.Status, _ options: FileFollower.Options) {
    self.file = file
    path = file.name
    key = Key(status)
    born = rx_birth_time(file.number)
    rewriteWait = options.rewriteWait
    lines = LineAssembler(maxLine: options.maxLine, policy: options.whenTooLong)
    lines.endsAnywhere = options.endsAnywhere
    content = nil
    _ = checkHead()
  }

  /// A file that rotation has compressed: its content is decompressed, and offsets count bytes of the content.
  ///
  /// - Parameter head: The first bytes of the content.
  init(
    _ file: FileDescriptor, _ status: FileDescriptor.Status, _ content: CompressedContent, head: [UInt8],
    _ options: FileFollower.Options
  ) {
    self.file = file
    path = file.name
    key = Key(status)
    born = rx_birth_time(file.number)
    rewriteWait = options.rewriteWait
    lines = LineAssembler(maxLine: options.maxLine, policy: options.whenTooLong)
    lines.endsAnywhere = options.endsAnywhere
    self.content = content
    isNamed = false
    remember(head: head)
    tail = file.tail(ofCompressed: status.size)
  }

  private func remember(head: [UInt8]) { self.head = head }

  /// How far the content has been decompressed; nil: the file is read as it is.
  var compressed: CompressedContent.State? { content?.state }

  /// Whether the content is decompressed.
  var isCompressed: Bool { content != nil }

  /// Whether the file is compressed but not decompressed here: such a file is refused.
  var isRefused: Bool { content == nil && head.withUnsafeBytes { Compression(startOf: $0) } != nil }

  /// Whether compressed content has ended before the offset at which reading was to start.
  var isTooShort: Bool { content.map { $0.offset < lines.readOffset } ?? false }

  /// When the file was last written to, in nanoseconds since 1970. Programs that compress a file preserve this time.
  var modified: Int64 { (try? file.status().modified) ?? 0 }

  /// Starts at this offset.
  func seek(to offset: Int64) { lines.reset(offset: offset) }

  /// The content that was read, to compare with a file that may have the same content.
  ///
  /// - Parameter file: This file, if another file is compared with it; nil: the file itself was changed.
  func content(of file: FollowedFile? = nil) -> EarlierContent? {
    guard !isCompressed, lines.offset > 0 else { return nil }
    // In a shorter file, the lost part of a line would be searched repeatedly.
    if file == nil, tail?.end != lines.offset || lines.isWithinLostLine { return nil }
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    let wall = Int64(now.tv_sec) &* 1_000_000_000 &+ Int64(now.tv_nsec)
    return EarlierContent(
      position: position, head: head, readAt: wall &- (monotonicNow() &- lastChange), file: file,
      wait: rewriteWait.nanoseconds)
  }

  /// Drops the incomplete line, and skips its rest.
  func skipHeldLine() {
    guard lines.held > 0 else { return }
    lines.reset(offset: lines.readOffset)
    lines.skipToLineStart()
  }

  /// Compares the file with its earlier content; nil: there is none.
  private func earlierProgress() throws(PosixError) -> Progress? {
    guard earlier != nil else { return nil }
    let now = file.head()
    guard var earlier else { return nil }
    let verdict = try earlier.compare(file, startingAs: now)
    self.earlier = nil
    switch verdict {
    case .waits:
      self.earlier = earlier
      return .waits
    case .other: return .other
    case .same(let position, let isAll):
      let former = earlier.file
      head = now
      tail = position.tail
      if former != nil || lines.offset != position.offset || lines.held > 0, !lines.isWithinLostLine {
        lines.reset(offset: position.offset)
      }
      isCaughtUp = false
      return .same(position, isAll ? former : nil)
    }
  }

  /// Starts with the first line that begins at or after the offset.
  func seek(toLineAfter offset: Int64) throws(PosixError) {
    lines.reset(offset: offset)
    guard offset > 0 else { return }
    var last: UInt8 = 10
    let count = try withUnsafeMutableBytes(of: &last) { bytes throws(PosixError) in
      try file.read(into: bytes, at: offset - 1)
    }
    if count == 1, last != 10 { lines.skipToLineStart() }
  }

  var position: FilePosition {
    if !isCompressed, tail?.end != lines.offset { tail = file.tail(before: lines.offset) }
    return position(at: lines.offset)
  }

  /// The position after a block of the file that is being delivered.
  func position(behind block: LineBlock) -> FilePosition {
    if !isCompressed {
      let count = block.slab.count
      let isWhole = count >= FileTail.most && block.offset &+ Int64(count) == block.endOffset
      tail =
        isWhole
        ? FileTail(
          UnsafeRawBufferPointer(start: block.slab.start + (count - FileTail.most), count: FileTail.most),
          end: block.endOffset)
        : file.tail(before: block.endOffset)
    }
    return position(at: block.endOffset)
  }

  private func position(at offset: Int64) -> FilePosition {
    var position = FilePosition(
      path: path, device: key.device, inode: key.inode, fingerprint: fingerprint,
      fingerprintBytes: head.count, offset: offset, born: born)
    position.target = target
    position.tail = tail
    return position
  }

  /// Whether the position belongs to this file.
  func isSame(as position: FilePosition) -> Bool {
    key.inode == position.inode && (born == 0 || position.born == 0 || born == position.born) && startsAs(position)
  }

  /// Whether the file starts with the first bytes of the position.
  func startsAs(_ position: FilePosition) -> Bool {
    FileDescriptor.starts(head, as: position)
  }

  enum Progress {
    case read, end
    /// The file may get its earlier content back; it is checked again later.
    case waits
    /// The file has the earlier content up to this position. `FollowedFile`: the one that had the name before, if no
    /// more of it was read; nil: this file was rewritten, or more was read of the other.
    case same(FilePosition, FollowedFile?)
    /// The file has other content than before, or than the file that had its name.
    case other
    /// The file has been read up to its present end; the kernel reports later data.
    case caughtUp
    /// The file had been read up to this offset when it was replaced or truncated.
    case truncated(Int64)
  }

  /// Reads once, after checking that the file has not been replaced. `deliver` also receives whether that was all the
  /// data for now. `small`: a buffer for data added after the file was read to its end.
  func read(
    _ blockBytes: Int, small: UnsafeMutableRawBufferPointer, deliver: (LineBlock, _ isNewest: Bool) -> Void
  ) throws(PosixError) -> Progress {
    if let content { return try read(content, blockBytes) { deliver($0, false) } }
    if let progress = try earlierProgress() {
      if case .other = progress, lines.readOffset > 0 { return startAgain(deliver) }
      return progress
    }
    guard checkHead() else { return try changed(deliver) }
    let reached = lines.readOffset
    if isCaughtUp {
      // Saves asking for the size: a short read means the end.
      let count = try file.read(into: small, at: reached)
      if count > 0, count < small.count {
        if reached == 0 { try refuseCompressed(UnsafeRawBufferPointer(rebasing: small[..<count]), file.name) }
        lastChange = monotonicNow()
        lines.space(count).copyMemory(from: UnsafeRawBufferPointer(rebasing: small[..<count]))
        lines.filled(count) { deliver($0, true) }
        lines.release()
        return .caughtUp
      }
      isCaughtUp = false
    }
    let size = try file.status().size
    guard size >= reached else { return try changed(deliver) }
    guard size > reached else {
      isCaughtUp = true
      lines.release()
      return .end
    }
    // Sized for the available data, so that a small addition needs little memory.
    let wanted = Int(min(size - reached, Int64(blockBytes)))
    let room = UnsafeMutableRawBufferPointer(rebasing: lines.space(wanted).prefix(blockBytes))
    let count = try file.read(into: room, at: reached)
    if count == 0 { return .end }
    if reached == 0 { try refuseCompressed(UnsafeRawBufferPointer(rebasing: room[..<count]), file.name) }
    lastChange = monotonicNow()
    isCaughtUp = reached &+ Int64(count) >= size
    let isNewest = isCaughtUp
    lines.filled(count) { deliver($0, isNewest) }
    if isCaughtUp { lines.release() }
    return isCaughtUp ? .caughtUp : .read
  }

  /// Decompresses once.
  private func read(
    _ content: CompressedContent, _ blockBytes: Int, deliver: (LineBlock) -> Void
  ) throws(PosixError) -> Progress {
    var room = UnsafeMutableRawBufferPointer(rebasing: lines.space(blockBytes).prefix(blockBytes))
    let skipped = lines.readOffset &- content.offset
    if skipped > 0 { room = UnsafeMutableRawBufferPointer(rebasing: room.prefix(Int(clamping: skipped))) }
    let count = try content.read(into: room)
    guard count > 0 else {
      lines.release()
      return .end
    }
    lastChange = monotonicNow()
    if skipped <= 0 { lines.filled(count, deliver: deliver) }
    return .read
  }

  /// Handles a file that has become shorter, or starts with other bytes.
  private func changed(_ deliver: (LineBlock, _ isNewest: Bool) -> Void) throws(PosixError) -> Progress {
    earlier = content()
    let progress = try earlierProgress() ?? .other
    if case .other = progress { return startAgain(deliver) }
    return progress
  }

  /// Starts again at the beginning of a file that was replaced or truncated.
  private func startAgain(_ deliver: (LineBlock, _ isNewest: Bool) -> Void) -> Progress {
    let reached = lines.readOffset
    isCaughtUp = false
    head = []
    _ = checkHead()
    lines.finish { deliver($0, false) }
    lines.reset(offset: 0)
    tail = nil
    return .truncated(reached)
  }

  /// Whether the part read so far ends within a line.
  var isWithinLine: Bool { content == nil && lines.isWithinLine }

  /// Delivers the last line, which has no newline; the file is still followed.
  func endLine(deliver: (LineBlock) -> Void) { lines.endLine(deliver: deliver) }

  /// Delivers the last line at the end of the file, even without a newline.
  func finish(deliver: (LineBlock) -> Void) { lines.finish(deliver: deliver) }

  /// Whether the file still starts with the same bytes; remembers more of them while few are known.
  private func checkHead() -> Bool {
    withUnsafeTemporaryAllocation(byteCount: FilePosition.headBytes, alignment: 1) { now in
      let count = uninterrupted { pread(file.number, now.baseAddress, now.count, 0) }
      guard count >= head.count else { return count < 0 }
      if let start = now.baseAddress, memcmp(start, head, head.count) != 0 { return false }
      if count > head.count { head = Array(now.prefix(count)) }
      return true
    }
  }
}
