import Glibc
import PipelineCore
import Transport

/// A replica of another machine's store: the file and its log, as that machine sends them. Used by one thread at a
/// time.
///
/// Accepted data is on the disk. The replica is always a store that SQLite can open; SQLite ignores an incomplete
/// transaction.
package final class StandbyStore {
  package enum Refusal: Error, Equatable {
    /// The data sent does not continue this position; nil: there is no copy yet.
    case elsewhere(LogPosition?)
    /// The bytes are invalid; the reason is a sentence without a full stop.
    case damaged(String)
    /// A write failed; the reason is a sentence without a full stop.
    case failed(String)
  }

  private let path: String
  /// The files of the copy, or of the new copy that replaces it when complete.
  private var parts: (file: String, log: String) {
    isReplacing ? (path + ".part", path + ".part-wal") : (path, path + "-wal")
  }
  /// Whether received data builds a new copy, which replaces the old one when complete.
  private var isReplacing = false
  /// The number of the latest transfer. Pieces of earlier transfers may arrive late.
  private var sending: UInt64?
  private var hasFile: Bool
  private var reader: LogFormat.Reader?

  /// - Parameter path: The path of the store; its directory must exist.
  /// - Throws: ``Refusal/failed(_:)``.
  package init(_ path: String) throws(Refusal) {
    self.path = path
    hasFile = access(path, F_OK) == 0
    if access(path + ".whole", F_OK) == 0 { try install() }
    for end in [".part", ".part-wal"] { unlink(path + end) }
    reader = hasFile ? LogFormat.read(path + "-wal") : nil
  }

  /// The position of the copy; nil: there is no copy, or the transfer of its file is unknown.
  package var position: LogPosition? { hasFile ? reader?.position ?? sending.map(LogPosition.file) : nil }

  // MARK: The log

  /// Appends frames of a log, the first one preceded by the log's header.
  ///
  /// - Parameters:
  ///   - from: The number of frames before these.
  ///   - after: For the beginning of a log, the position of the copy that the log follows.
  ///   - isWhole: Whether these frames are the last that the store has.
  package func append(
    _ bytes: UnsafeRawBufferPointer, salt: UInt64, from: Int, after: LogPosition?, isWhole: Bool
  ) throws(Refusal) {
    guard let position else { throw .elsewhere(nil) }
    if from == 0 {
      // An incomplete copy has only one log.
      guard after == position, salt != position.salt, !isReplacing || reader == nil else { throw .elsewhere(position) }
      guard let next = LogFormat.Reader(header: bytes) else { throw .damaged("the log has no header") }
      let checked = try check(bytes, next)
      try begin()
      try write(bytes, to: parts.log, at: 0, creates: true)
      reader = checked
    } else {
      guard position.salt == salt, position.frames == from, let known = reader else { throw .elsewhere(position) }
      let checked = try check(bytes, known)
      try write(bytes, to: parts.log, at: LogFormat.offset(of: from), creates: false)
      reader = checked
    }
    if isWhole { try finish() }
  }

  /// Moves the log into the file, so that the next one can begin.
  private func begin() throws(Refusal) {
    guard !isReplacing, reader != nil else { return }
    do throws(DatabaseError) {
      let database = try Database(path, .writing)
      // SQLite opens the log with the first read; before that, a checkpoint would do nothing.
      _ = try database.number("PRAGMA schema_version")
      try database.truncateLog()
    } catch { throw .failed("the log of \(path) cannot be moved into the file: \(error.message)") }
    guard FileDescriptor.Status(path: path + "-wal")?.size ?? 0 == 0 else {
      throw .failed("the log of \(path) was not moved into the file")
    }
    (reader, sending) = (nil, nil)
    if unlink(path + "-wal") != 0, errno != ENOENT { throw .failed(PosixError("remove", path + "-wal").message) }
  }

  /// The reader after these frames.
  private func check(_ bytes: UnsafeRawBufferPointer, _ reader: LogFormat.Reader) throws(Refusal) -> LogFormat.Reader {
    var next = reader
    let head = reader.position.frames == 0 ? LogFormat.headerBytes : 0
    guard bytes.count > head, (bytes.count - head) % LogFormat.frameBytes == 0 else {
      throw .damaged("\(bytes.count) bytes are not whole frames")
    }
    for start in stride(from: head, to: bytes.count, by: LogFormat.frameBytes) {
      guard next.take(UnsafeRawBufferPointer(rebasing: bytes[start..<(start + LogFormat.frameBytes)])) else {
        throw .damaged("frame \(next.position.frames) is not the next of its log")
      }
    }
    return next
  }

  // MARK: The file

  /// Accepts a piece of the file of a new copy, which replaces the old one when complete.
  ///
  /// - Parameters:
  ///   - offset: 0 starts a new transfer.
  ///   - total: The size of the file.
  ///   - sending: Identifies the transfer.
  ///   - isWhole: Whether the store has no log, so that the last piece completes it.
  package func take(
    _ bytes: UnsafeRawBufferPointer, at offset: Int, of total: Int, sending: UInt64, isWhole: Bool
  ) throws(Refusal) {
    if offset == 0 {
      for end in [".part", ".part-wal"] { unlink(path + end) }
      (isReplacing, hasFile, reader, self.sending) = (true, false, nil, sending)
    }
    let size = offset == 0 ? 0 : Int(FileDescriptor.Status(path: path + ".part")?.size ?? -1)
    guard isReplacing, !hasFile, sending == self.sending, offset == size, offset + bytes.count <= total, total > 0
    else {
      throw .elsewhere(position)
    }
    try write(bytes, to: path + ".part", at: offset, creates: offset == 0)
    guard offset + bytes.count == total else { return }
    hasFile = true
    if isWhole { try finish() }
  }

  /// Called when the new copy, if any, contains the whole store.
  private func finish() throws(Refusal) {
    guard isReplacing else { return }
    try write(UnsafeRawBufferPointer(start: nil, count: 0), to: path + ".whole", at: 0, creates: true)
    try install()
    isReplacing = false
  }

  /// Replaces the copy with the complete new one. Can be repeated after a crash.
  private func install() throws(Refusal) {
    // A log belongs to its file.
    if access(path + ".part", F_OK) == 0 {
      if unlink(path + "-wal") != 0, errno != ENOENT { throw .failed(PosixError("remove", path + "-wal").message) }
      try syncDirectory()
      guard rename(path + ".part", path) == 0 else { throw .failed(PosixError("rename", path + ".part").message) }
      try syncDirectory()
    }
    if rename(path + ".part-wal", path + "-wal") != 0, errno != ENOENT {
      throw .failed(PosixError("rename", path + ".part-wal").message)
    }
    try syncDirectory()
    unlink(path + ".whole")
    hasFile = true
  }

  private func syncDirectory() throws(Refusal) {
    do { try StoreFile.syncDirectory(of: path) } catch {
      throw .failed((error as? DatabaseError)?.message ?? "\(error)")
    }
  }

  private func write(
    _ bytes: UnsafeRawBufferPointer, to path: String, at offset: Int, creates: Bool
  ) throws(Refusal) {
    let flags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | (creates ? O_CREAT | O_TRUNC : 0)
    let file = uninterrupted { open(path, flags, 0o600) }
    guard file >= 0 else { throw .failed(PosixError("open", path).message) }
    defer { close(file) }
    var done = 0
    while done < bytes.count, let base = bytes.baseAddress {
      let count = uninterrupted { pwrite(file, base + done, bytes.count - done, off_t(offset + done)) }
      guard count > 0 else { throw .failed(PosixError("write", path).message) }
      done += count
    }
    guard uninterrupted({ fdatasync(file) }) == 0 else { throw .failed(PosixError("sync", path).message) }
    if creates { try syncDirectory() }
  }
}
