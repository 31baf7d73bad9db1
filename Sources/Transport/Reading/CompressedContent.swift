internal import CCompress
import Glibc
import PipelineCore

/// The content of a compressed file, decompressed from its start as a stream. Used by one thread at a time.
///
/// Needs 64 KiB of memory for the file, and the library's: 40 KiB for gzip, at most 8 MiB for zstd.
final class CompressedContent {
  enum State {
    /// There may be more content.
    case more
    /// The file ends before its content does. If the file grows, reading continues.
    case unfinished
    /// The file ends with its content.
    case whole
    /// The rest of the content cannot be decompressed.
    case damaged
  }

  private(set) var state = State.more
  /// The offset of the next byte of the content.
  private(set) var offset: Int64 = 0
  private let file: FileDescriptor
  private let decompressor: OpaquePointer
  private let input = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
  private var filled = 0
  private var used = 0
  /// The offset in the file of the first byte after `input`.
  private var fileOffset: Int64 = 0
  /// Whether a complete member has just ended, so that the file may end here.
  private var isBetweenParts = false

  private static let formats: [(ending: String, format: Decompressor.Format)] = [(".gz", .gzip), (".zst", .zstd)]

  /// The name endings of the formats.
  static var endings: [String] { formats.map(\.ending) }

  /// The name that a compressed file had before compression, and its format; nil: the name is not that of a compressed
  /// file.
  static func original(_ path: String) -> (path: String, format: Decompressor.Format)? {
    formats.first { path.hasSuffix($0.ending) }.map { (String(path.dropLast($0.ending.utf8.count)), $0.format) }
  }

  /// Nil if the library is not installed or memory is short.
  init?(_ file: FileDescriptor, _ format: Decompressor.Format) {
    guard let decompressor = rx_decompressor_new(format.number) else {
      input.deallocate()
      return nil
    }
    self.file = file
    self.decompressor = decompressor
  }

  deinit {
    rx_decompressor_free(decompressor)
    input.deallocate()
  }

  /// Decompresses up to `room.count` bytes. Returns 0 unless the state is `more`.
  func read(into room: UnsafeMutableRawBufferPointer) throws(PosixError) -> Int {
    guard state == .more || state == .unfinished, room.count > 0 else { return 0 }
    while true {
      if used == filled {
        filled = try file.read(into: input, at: fileOffset)
        used = 0
        fileOffset &+= Int64(filled)
        if filled == 0, isBetweenParts {
          state = .whole
          return 0
        }
      }
      let given = filled - used
      var took = 0
      var made = 0
      let code = rx_decompress(
        decompressor, input.baseAddress.map { $0 + used }, given, &took, room.baseAddress, room.count, &made)
      used += took
      offset &+= Int64(made)
      isBetweenParts = code == Int32(RX_WHOLE)
      switch code {
      case Int32(RX_WHOLE), Int32(RX_MORE): state = .more
      default: state = given == 0 ? .unfinished : .damaged
      }
      if made > 0 || state != .more { return made }
    }
  }

  /// The first bytes of the content of a file, at most ``FilePosition/headBytes``, and the state after them.
  ///
  /// - Returns: Nil if the library is not installed or memory is short.
  static func head(
    of file: FileDescriptor, _ format: Decompressor.Format
  ) throws(PosixError) -> (bytes: [UInt8], state: State)? {
    guard let content = CompressedContent(file, format) else { return nil }
    var bytes: [UInt8] = []
    return try withUnsafeTemporaryAllocation(byteCount: FilePosition.headBytes, alignment: 1) {
      room throws(PosixError) in
      repeat {
        let left = UnsafeMutableRawBufferPointer(rebasing: room[..<(FilePosition.headBytes - bytes.count)])
        let count = try content.read(into: left)
        bytes += left[..<count]
      } while content.state == .more && bytes.count < FilePosition.headBytes
      return (bytes, content.state)
    }
  }
}
