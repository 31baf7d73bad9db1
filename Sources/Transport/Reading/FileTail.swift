import Glibc
import PipelineCore

/// The last bytes of a file before a position: what distinguishes a file that was restored, with another inode, from another file
/// that has its name.
package struct FileTail: Sendable, Equatable {
  /// The offset behind the bytes, at or before the position.
  package var end: Int64
  /// How many there are, at most ``most``.
  package var count: Int
  package var hash: UInt64
  /// The file is compressed, and these are its last bytes as it is: positions count bytes of its content.
  package var isOfCompressed = false

  static let most = 256
  /// A beginning of a file with fewer bytes than this is often that of other files, too.
  static let leastEvidence = 64

  init(_ bytes: UnsafeRawBufferPointer, end: Int64) {
    self.end = end
    count = bytes.count
    hash = Self.hash(bytes)
  }

  /// FNV-1a.
  private static func hash(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325
    for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return hash
  }
}

extension FileTail: StateValue {
  package func save(to state: inout StateWriter) {
    state.write(end)
    state.write(count)
    state.write(hash)
    state.write(isOfCompressed)
  }

  package init(from state: inout StateReader) throws(StateFault) {
    end = try state.read()
    count = try state.read(in: 1...Self.most)
    hash = try state.read()
    isOfCompressed = try state.read()
    guard end >= Int64(count) else { throw StateFault("a file position is none") }
  }
}

extension FileDescriptor {
  /// The last bytes of a regular file before an offset; nil: there are none, or they cannot be read.
  package func tail(before end: Int64) -> FileTail? {
    guard end > 0 else { return nil }
    return withUnsafeTemporaryAllocation(byteCount: FileTail.most, alignment: 8) { room in
      let wanted = Int(min(end, Int64(room.count)))
      let count = uninterrupted { pread(number, room.baseAddress, wanted, off_t(end - Int64(wanted))) }
      guard count == wanted else { return nil }
      return FileTail(UnsafeRawBufferPointer(rebasing: room[..<wanted]), end: end)
    }
  }

  /// The last bytes of a compressed file of `size` bytes.
  func tail(ofCompressed size: Int64) -> FileTail? {
    var tail = tail(before: size)
    tail?.isOfCompressed = true
    return tail
  }

  /// Whether the bytes before the position are those that were there; true if they are not known.
  package func endsAs(_ position: FilePosition) -> Bool {
    guard let known = position.tail else { return true }
    return withUnsafeTemporaryAllocation(byteCount: FileTail.most, alignment: 8) { room in
      let count = uninterrupted { pread(number, room.baseAddress, known.count, off_t(known.end - Int64(known.count))) }
      guard count == known.count else { return false }
      return FileTail(UnsafeRawBufferPointer(rebasing: room[..<count]), end: known.end).hash == known.hash
    }
  }

  /// Whether a file that is another one than that of the position has what that had up to the position. Its first bytes are the
  /// same.
  ///
  /// Another file can begin as the old one did, with a few bytes: it counts only if it has not changed since `savedAt`.
  ///
  /// - Parameter savedAt: When the position was noted, in nanoseconds since 1970; 0: unknown.
  package func holdsContent(of position: FilePosition, _ status: Status, savedAt: Int64) -> Bool {
    guard let tail = position.tail, tail.isOfCompressed || status.size >= position.offset, endsAs(position) else {
      return false
    }
    // The clock of files lags by some milliseconds.
    return tail.end >= FileTail.leastEvidence || status.modified < savedAt &- 1_000_000_000
  }

  /// Whether it starts with the bytes of the position, as it is.
  package func startsAs(_ position: FilePosition) -> Bool { Self.starts(head(), as: position) }
}
