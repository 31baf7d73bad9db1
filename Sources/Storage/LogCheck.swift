import Glibc

/// Finds damage in the log of a store (`-wal`). SQLite does not report it, because it takes the first frame with a
/// wrong checksum for the end of the log.
///
/// A crash truncates a log at its end. So there is no commit of the same log after the first incomplete frame, unless
/// bytes have changed. A power failure may leave one there, but only of a transaction that was not synced, and so was
/// not acknowledged.
///
/// The format is documented at https://www.sqlite.org/fileformat2.html#walformat: a header of 32 bytes, then frames,
/// each a header of 24 bytes and a page. Numbers are big-endian; the words that a checksum adds are big-endian or
/// little-endian, as the header says.
struct LogCheck {
  struct Damage: Equatable {
    /// The number of frames before the first damaged one.
    var whole: Int
    /// The number of frames from the first damaged one to the last commit.
    var lost: Int
  }

  private static let headerBytes = 32
  private static let frameBytes = 24

  /// Reads the log once. Nil if it is intact, does not exist, or cannot be read.
  static func damage(ofLog path: String) -> Damage? {
    let file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    guard file >= 0 else { return nil }
    defer { close(file) }
    let header = UnsafeMutableRawBufferPointer.allocate(byteCount: headerBytes, alignment: 8)
    defer { header.deallocate() }
    guard read(file, header, at: 0) else { return nil }
    let magic = number(header, 0)
    let pageBytes = Int(number(header, 8))
    var sums = Sums(isBigEndian: magic & 1 == 1)
    sums.add(header[0..<24])
    guard magic & ~1 == 0x377F_0682, sums.are(at: header, 24), pageBytes >= 512, pageBytes <= 65_536 else {
      // An interrupted first write leaves no frame, so if there are frames, the header was damaged later.
      var status = stat()
      let size = fstat(file, &status) == 0 ? Int(status.st_size) : 0
      let isEmpty = header.allSatisfy { $0 == 0 }
      return isEmpty || size <= headerBytes + frameBytes + 512
        ? nil : Damage(whole: 0, lost: size / (frameBytes + StoreSchema.pageBytes))
    }
    let (first, second) = (number(header, 16), number(header, 20))
    let frame = UnsafeMutableRawBufferPointer.allocate(byteCount: frameBytes + pageBytes, alignment: 8)
    defer { frame.deallocate() }
    var index = 0
    var firstBroken: Int?
    var lastCommit = -1
    while read(file, frame, at: headerBytes + index * frame.count) {
      let isOfLog = number(frame, 8) == first && number(frame, 12) == second
      if firstBroken == nil {
        sums.add(frame[0..<8])
        sums.add(frame[frameBytes...])
        if !isOfLog || !sums.are(at: frame, 16) { firstBroken = index }
      } else if isOfLog, number(frame, 4) != 0 {
        lastCommit = index
      }
      index += 1
    }
    guard let firstBroken, lastCommit > firstBroken else { return nil }
    return Damage(whole: firstBroken, lost: lastCommit - firstBroken + 1)
  }

  /// Rebuilds the file of a store from its log, which contains every page that was written since the log was started.
  /// If the log was never moved into the file, the store becomes complete; otherwise pages are missing. Returns whether
  /// a file was written.
  static func makeFile(_ path: String, fromLog log: String) -> Bool {
    let file = open(log, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    guard file >= 0 else { return false }
    defer { close(file) }
    let header = UnsafeMutableRawBufferPointer.allocate(byteCount: headerBytes, alignment: 8)
    defer { header.deallocate() }
    guard read(file, header, at: 0) else { return false }
    let pageBytes = Int(number(header, 8))
    var sums = Sums(isBigEndian: number(header, 0) & 1 == 1)
    sums.add(header[0..<24])
    guard number(header, 0) & ~1 == 0x377F_0682, sums.are(at: header, 24), pageBytes >= 512, pageBytes <= 65_536 else {
      return false
    }
    let frame = UnsafeMutableRawBufferPointer.allocate(byteCount: frameBytes + pageBytes, alignment: 8)
    defer { frame.deallocate() }
    // The pages of complete transactions, by number.
    var (pages, open): ([UInt32: Int], [UInt32: Int]) = ([:], [:])
    var index = 0
    while read(file, frame, at: headerBytes + index * frame.count) {
      sums.add(frame[0..<8])
      sums.add(frame[frameBytes...])
      guard number(frame, 8) == number(header, 16), number(frame, 12) == number(header, 20), sums.are(at: frame, 16)
      else {
        break
      }
      open[number(frame, 0)] = index
      if number(frame, 4) != 0 {
        pages.merge(open) { $1 }
        open = [:]
      }
      index += 1
    }
    // Without its first page the file would not be a database.
    guard pages[1] != nil else { return false }
    // The file gets its name only when it is complete: SQLite would remove the log alongside a file without pages.
    let copy = path + ".copy"
    unlink(copy)
    let made = Glibc.open(copy, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
    guard made >= 0 else { return false }
    defer {
      close(made)
      unlink(copy)
    }
    for (page, index) in pages {
      guard page > 0, read(file, frame, at: headerBytes + index * frame.count) else { continue }
      let bytes = frame[frameBytes...]
      guard
        pwrite(made, bytes.base.baseAddress.map { $0 + frameBytes }, pageBytes, off_t(page - 1) * off_t(pageBytes))
          == pageBytes
      else { return false }
    }
    guard fsync(made) == 0, rename(copy, path) == 0 else { return false }
    return (try? StoreFile.syncDirectory(of: path)) != nil
  }

  /// Fills the buffer; false if the file ends earlier.
  static func read(_ file: Int32, _ buffer: UnsafeMutableRawBufferPointer, at offset: Int) -> Bool {
    var done = 0
    while done < buffer.count {
      let count = pread(file, buffer.baseAddress! + done, buffer.count - done, off_t(offset + done))
      if count < 0, errno == EINTR { continue }
      if count <= 0 { return false }
      done += count
    }
    return true
  }

  private static func number(_ bytes: UnsafeMutableRawBufferPointer, _ offset: Int) -> UInt32 {
    number(UnsafeRawBufferPointer(bytes), offset)
  }

  static func number(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> UInt32 {
    UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
  }

  /// The running checksum of a log, which continues from frame to frame.
  struct Sums {
    let isBigEndian: Bool
    var first: UInt32 = 0
    var second: UInt32 = 0

    init(isBigEndian: Bool) { self.isBigEndian = isBigEndian }

    /// Adds pairs of words; the number of bytes must be a multiple of 8.
    mutating func add(_ bytes: Slice<UnsafeMutableRawBufferPointer>) {
      let bytes = UnsafeRawBufferPointer(rebasing: bytes)
      add(bytes, 0..<bytes.count)
    }

    mutating func add(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>) {
      var (first, second) = (first, second)
      for offset in stride(from: range.lowerBound, to: range.upperBound, by: 8) {
        let left = bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
        let right = bytes.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self)
        first &+= (isBigEndian ? UInt32(bigEndian: left) : UInt32(littleEndian: left)) &+ second
        second &+= (isBigEndian ? UInt32(bigEndian: right) : UInt32(littleEndian: right)) &+ first
      }
      (self.first, self.second) = (first, second)
    }

    func are(at bytes: UnsafeMutableRawBufferPointer, _ offset: Int) -> Bool {
      are(at: UnsafeRawBufferPointer(bytes), offset)
    }

    func are(at bytes: UnsafeRawBufferPointer, _ offset: Int) -> Bool {
      LogCheck.number(bytes, offset) == first && LogCheck.number(bytes, offset + 4) == second
    }
  }
}
