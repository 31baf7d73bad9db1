import Glibc

/// Finds damage in the log of a store (`-wal`), which SQLite does not report: it takes the first frame with a wrong checksum for the
/// end of the log.
///
/// A crash cuts a log at its end, so behind the first frame that is not whole there is no commit of the same log, unless bytes have
/// changed. A power cut may leave one there: of a transaction that was not synced, and so was not acknowledged.
///
/// The format is that of https://www.sqlite.org/fileformat2.html#walformat: a header of 32 bytes, then frames of a header of 24 bytes and
/// a page. Numbers are big-endian; the words that a checksum adds up are big-endian or little-endian, as the header says.
struct LogCheck {
  struct Damage: Equatable {
    /// Frames before the first one that is not whole.
    var whole: Int
    /// Frames from there to the last commit.
    var lost: Int
  }

  private static let headerBytes = 32
  private static let frameBytes = 24

  /// Reads the log once. Nil: it is whole, there is none, or it cannot be read.
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
      // An interrupted first write leaves no frame behind; so frames of this log follow a header that has changed.
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

  /// Makes the file of a store again from its log, which has every page that was written since the log was begun: a store whose log was
  /// never moved into the file becomes whole, another one lacks pages. Returns whether it has made the file.
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
    // The pages of whole transactions, by number.
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
    // Without the first page it is not a database.
    guard pages[1] != nil else { return false }
    // It gets its name when it is whole: SQLite would remove the log beside a file without pages.
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

  /// False: the file ends before.
  private static func read(_ file: Int32, _ buffer: UnsafeMutableRawBufferPointer, at offset: Int) -> Bool {
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
    UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
  }

  private struct Sums {
    let isBigEndian: Bool
    var first: UInt32 = 0
    var second: UInt32 = 0

    init(isBigEndian: Bool) { self.isBigEndian = isBigEndian }

    /// Pairs of words; the number of bytes is a multiple of 8.
    mutating func add(_ bytes: Slice<UnsafeMutableRawBufferPointer>) {
      let bytes = UnsafeRawBufferPointer(rebasing: bytes)
      var (first, second) = (first, second)
      for offset in stride(from: 0, to: bytes.count, by: 8) {
        let left = bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
        let right = bytes.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self)
        first &+= (isBigEndian ? UInt32(bigEndian: left) : UInt32(littleEndian: left)) &+ second
        second &+= (isBigEndian ? UInt32(bigEndian: right) : UInt32(littleEndian: right)) &+ first
      }
      (self.first, self.second) = (first, second)
    }

    func are(at bytes: UnsafeMutableRawBufferPointer, _ offset: Int) -> Bool {
      number(bytes, offset) == first && number(bytes, offset + 4) == second
    }
  }
}
