import Glibc
import PipelineCore

/// The last bytes of a file before a position. They distinguish a file that was restored, with another inode, from a
/// different file with the same name.
package struct FileTail: Sendable, Equatable {
  /// The offset after the bytes, at or before the position.
  package var end: Int64
  /// The number of bytes, at most ``most``.
  package var count: Int
  package var hash: UInt64
  /// Whether the file is compressed and these are the last of its compressed bytes, although positions count bytes of
  /// the content.
  package var isOfCompressed = false

  static let most = 256
  /// A position below this is weak evidence: many files begin with the same few bytes.
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
    guard end >= Int64(count) else { throw StateFault("a file position is invalid") }
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

  /// Whether the bytes before the position are unchanged; true if they are unknown.
  package func endsAs(_ position: FilePosition) -> Bool {
    guard let known = position.tail else { return true }
    return withUnsafeTemporaryAllocation(byteCount: FileTail.most, alignment: 8) { room in
      let count = uninterrupted { pread(number, room.baseAddress, known.count, off_t(known.end - Int64(known.count))) }
      guard count == known.count else { return false }
      return FileTail(UnsafeRawBufferPointer(rebasing: room[..<count]), end: known.end).hash == known.hash
    }
  }

  /// Whether a file other than the position's has the same content up to the position. The caller has checked its first
  /// bytes.
  ///
  /// A different file can begin with the same few bytes as the old one, so with a low position it counts only if it has
  /// not changed since `savedAt`.
  ///
  /// - Parameter savedAt: When the position was noted, in nanoseconds since 1970; 0: unknown.
  package func holdsContent(of position: FilePosition, _ status: Status, savedAt: Int64) -> Bool {
    guard let tail = position.tail, tail.isOfCompressed || status.size >= position.offset, endsAs(position) else {
      return false
    }
    // File times lag behind the clock by some milliseconds.
    return tail.end >= FileTail.leastEvidence || status.modified < savedAt &- 1_000_000_000
  }

  /// Whether the file, without decompression, starts with the first bytes of the position.
  package func startsAs(_ position: FilePosition) -> Bool { Self.starts(head(), as: position) }
}
