import Glibc

/// The replication position of a store's copy. Equal positions mean equal contents: a log is identified by the salts of
/// its header, the number of its frames and the checksum of the last one, which depends on all earlier ones; a file
/// without a log by the number of its transfer.
package struct LogPosition: Sendable, Equatable {
  /// The two salts of the header, which SQLite changes whenever it resets the log. 0: there is no log.
  package var salt: UInt64
  package var frames: Int
  /// The checksum of the last frame; for a file without a log, the number of its transfer.
  package var sum: UInt64

  package init(salt: UInt64, frames: Int, sum: UInt64) {
    self.salt = salt
    self.frames = frames
    self.sum = sum
  }

  /// The position of a file sent in this transfer, before its log.
  package static func file(_ sending: UInt64) -> LogPosition { LogPosition(salt: 0, frames: 0, sum: sending) }

  /// `SALT FRAMES SUM`, the salt and the checksum in hexadecimal digits.
  package var text: String { "\(String(salt, radix: 16)) \(frames) \(String(sum, radix: 16))" }

  /// Parses a position; nil: the text is not one.
  package init?(text: some StringProtocol) {
    let words = text.split { $0 == " " || $0 == "\n" }
    guard words.count == 3, let salt = UInt64(words[0], radix: 16), let frames = Int(words[1]), frames >= 0,
      let sum = UInt64(words[2], radix: 16)
    else { return nil }
    self.init(salt: salt, frames: frames, sum: sum)
  }
}

/// The format of a log (`-wal`); see ``LogCheck``.
enum LogFormat {
  static let headerBytes = 32
  static let frameBytes = 24 + StoreSchema.pageBytes

  /// The offset of a frame; for frame 0, the start of the log, because the header is sent with the first frame.
  static func offset(of frame: Int) -> Int { frame == 0 ? 0 : headerBytes + frame * frameBytes }

  /// Checks frames of a log one after another, as SQLite does when it reads a log.
  struct Reader {
    private var sums: LogCheck.Sums
    private(set) var position: LogPosition
    /// The number of frames up to the end of the last transaction. A crash may leave frames after it, which SQLite
    /// overwrites.
    private(set) var committed = 0

    /// Nil: the bytes are not the header of a store's log.
    init?(header: UnsafeRawBufferPointer) {
      guard header.count >= headerBytes else { return nil }
      let magic = LogCheck.number(header, 0)
      var sums = LogCheck.Sums(isBigEndian: magic & 1 == 1)
      sums.add(header, 0..<24)
      guard magic & ~1 == 0x377F_0682, sums.are(at: header, 24),
        Int(LogCheck.number(header, 8)) == StoreSchema.pageBytes
      else { return nil }
      self.sums = sums
      let salt = UInt64(LogCheck.number(header, 16)) << 32 | UInt64(LogCheck.number(header, 20))
      position = LogPosition(salt: salt, frames: 0, sum: 0)
    }

    /// Accepts the next frame; returns false, without a change, if the frame does not belong to this log.
    mutating func take(_ frame: UnsafeRawBufferPointer) -> Bool {
      let salt = UInt64(LogCheck.number(frame, 8)) << 32 | UInt64(LogCheck.number(frame, 12))
      guard frame.count == frameBytes, salt == position.salt else { return false }
      var next = sums
      next.add(frame, 0..<8)
      next.add(frame, 24..<frameBytes)
      guard next.are(at: frame, 16) else { return false }
      sums = next
      position.frames += 1
      position.sum = LogFormat.sum(frame)
      if LogCheck.number(frame, 4) != 0 { committed = position.frames }
      return true
    }
  }

  /// The checksum in the header of a frame.
  static func sum(_ frame: UnsafeRawBufferPointer) -> UInt64 {
    UInt64(LogCheck.number(frame, 16)) << 32 | UInt64(LogCheck.number(frame, 20))
  }

  /// The checksum of the last of the first `frames` frames of a log; nil: the log has fewer.
  static func sum(of frames: Int, _ path: String) -> UInt64? {
    let file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    guard file >= 0 else { return nil }
    defer { close(file) }
    return withUnsafeTemporaryAllocation(byteCount: 24, alignment: 8) { head in
      guard frames > 0, LogCheck.read(file, head, at: headerBytes + (frames - 1) * frameBytes) else { return nil }
      return sum(UnsafeRawBufferPointer(head))
    }
  }

  /// Reads a log from its beginning to the last whole frame; nil if it does not exist or has no frame.
  static func read(_ path: String) -> Reader? {
    let file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    guard file >= 0 else { return nil }
    defer { close(file) }
    let room = UnsafeMutableRawBufferPointer.allocate(byteCount: frameBytes, alignment: 8)
    defer { room.deallocate() }
    let header = UnsafeMutableRawBufferPointer(rebasing: room[..<headerBytes])
    guard LogCheck.read(file, header, at: 0), var reader = Reader(header: UnsafeRawBufferPointer(header)) else {
      return nil
    }
    while LogCheck.read(file, room, at: headerBytes + reader.position.frames * frameBytes),
      reader.take(UnsafeRawBufferPointer(room))
    {}
    return reader.position.frames == 0 ? nil : reader
  }

  /// The salts of a log's header; 0: there is none.
  static func salt(_ path: String) -> UInt64 {
    let file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    guard file >= 0 else { return 0 }
    defer { close(file) }
    return withUnsafeTemporaryAllocation(byteCount: headerBytes, alignment: 8) { header in
      guard LogCheck.read(file, header, at: 0) else { return 0 }
      return Reader(header: UnsafeRawBufferPointer(header))?.position.salt ?? 0
    }
  }
}
