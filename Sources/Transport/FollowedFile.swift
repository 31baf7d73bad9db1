import CLinux
import Glibc
import PipelineCore

/// One file that is being followed. Used on the follower's thread only.
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
  /// Nanoseconds since 1970, 0 where the file system does not say.
  let born: Int64
  var path: String
  var watch: Int32 = -1
  /// Its place among the files that are read; `max` until it has one.
  var order = Int.max
  /// A path that is asked for leads to the file.
  var isNamed = true
  /// There may be something to read.
  var isDirty = true
  /// The last read has failed; it is tried again.
  var isUnreadable = false
  /// On the monotonic clock: when it last grew, or lost its name.
  var lastChange = monotonicNow()
  private(set) var lines: LineAssembler
  /// It has been read to its end.
  private var isCaughtUp = false
  /// The first bytes, by which a rewritten file is told from a grown one.
  private var head: [UInt8] = [] { didSet { fingerprint = Self.hash(head[...]) } }
  private var fingerprint = FollowedFile.hash([])

  static let headBytes = 256

  init(_ file: FileDescriptor, _ status: FileDescriptor.Status, _ options: FileFollower.Options) {
    self.file = file
    path = file.name
    key = Key(status)
    born = rx_birth_time(file.number)
    lines = LineAssembler(maxLine: options.maxLine, policy: options.whenTooLong)
    _ = checkHead()
  }

  /// Begins somewhere else than at the beginning.
  func seek(to offset: Int64) { lines.reset(offset: offset) }

  /// Begins with the first line that starts at or after the offset.
  func seek(toLineAfter offset: Int64) throws(PosixError) {
    lines.reset(offset: offset)
    guard offset > 0 else { return }
    var last: UInt8 = 10
    let count = try withUnsafeMutableBytes(of: &last) { bytes throws(PosixError) in
      try file.read(into: bytes, at: offset - 1)
    }
    if count == 1, last != 10 { lines.skipToLineStart() }
  }

  var position: FilePosition { position(at: lines.offset) }

  func position(at offset: Int64) -> FilePosition {
    FilePosition(
      path: path, device: key.device, inode: key.inode, fingerprint: fingerprint,
      fingerprintBytes: head.count, offset: offset, born: born)
  }

  /// Whether this is the file that the position was taken of.
  func isSame(as position: FilePosition) -> Bool {
    key.inode == position.inode && (born == 0 || position.born == 0 || born == position.born)
      && head.count >= position.fingerprintBytes
      && Self.hash(head.prefix(position.fingerprintBytes)) == position.fingerprint
  }

  enum Progress: Equatable {
    case read, end
    /// Read, up to where the file ended at the last look: what came since then has news of its own.
    case caughtUp
    /// The file had been read so far when it was found to be another one or shorter.
    case truncated(Int64)
  }

  /// Reads once, after looking whether the file is still what it was. `deliver` is told, too, whether that was
  /// all there is for now. `small`: memory for what has come since the file was read to its end.
  func read(
    _ blockBytes: Int, small: UnsafeMutableRawBufferPointer, deliver: (LineBlock, _ isNewest: Bool) -> Void
  ) throws(PosixError) -> Progress {
    guard checkHead() else { return startAgain(deliver) }
    let reached = lines.readOffset
    if isCaughtUp {
      // How much there is to read is not asked for: what is less than there is room for is all of it.
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
    guard size >= reached else { return startAgain(deliver) }
    guard size > reached else {
      isCaughtUp = true
      lines.release()
      return .end
    }
    // What is there to read is known, so a small addition needs little memory.
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

  /// The file has become another one.
  private func startAgain(_ deliver: (LineBlock, _ isNewest: Bool) -> Void) -> Progress {
    let reached = lines.readOffset
    isCaughtUp = false
    head = []
    _ = checkHead()
    lines.finish { deliver($0, false) }
    lines.reset(offset: 0)
    return .truncated(reached)
  }

  /// The last line, even without newline.
  func finish(deliver: (LineBlock) -> Void) { lines.finish(deliver: deliver) }

  /// Whether the file begins as it did; remembers more of it while there is little.
  private func checkHead() -> Bool {
    withUnsafeTemporaryAllocation(byteCount: Self.headBytes, alignment: 1) { now in
      let count = uninterrupted { pread(file.number, now.baseAddress, now.count, 0) }
      guard count >= head.count else { return count < 0 }
      if let start = now.baseAddress, memcmp(start, head, head.count) != 0 { return false }
      if count > head.count { head = Array(now.prefix(count)) }
      return true
    }
  }

  /// FNV-1a.
  static func hash(_ bytes: ArraySlice<UInt8>) -> UInt64 {
    bytes.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
  }
}
