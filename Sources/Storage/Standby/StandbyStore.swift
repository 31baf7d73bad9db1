import Glibc
import PipelineCore
import Transport

/// A copy of another machine's store: its file, and the log that follows it, as that machine sends them. Used by one thread at a
/// time.
///
/// Everything that was taken is on the disk. The copy is always a store that SQLite can open: of a transaction that was not sent whole
/// it sees nothing.
package final class StandbyStore {
  package enum Refusal: Error, Equatable {
    /// What was sent does not follow this position; nil: there is no copy yet.
    case elsewhere(LogPosition?)
    /// The bytes are not what a store sends; a sentence without a full stop.
    case damaged(String)
    /// The disk refuses; a sentence without a full stop.
    case failed(String)
  }

  private let path: String
  /// The copy, or the one that replaces it when it is whole.
  private var parts: (file: String, log: String) {
    isReplacing ? (path + ".part", path + ".part-wal") : (path, path + "-wal")
  }
  /// Whether what comes makes a new copy, which replaces the one before when it is whole.
  private var isReplacing = false
  /// The file that was begun last. A piece of an earlier one may come late.
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

  /// How far the copy has come; nil: there is none, or nothing says which file without a log it is.
  package var position: LogPosition? { hasFile ? reader?.position ?? sending.map(LogPosition.file) : nil }

  // MARK: The log

  /// Takes frames of a log, the first of them with its header.
  ///
  /// - Parameters:
  ///   - from: The number of frames before these.
  ///   - after: For the beginning of a log, the position of the copy that the log follows.
  ///   - isWhole: Whether the store has nothing after these.
  package func append(
    _ bytes: UnsafeRawBufferPointer, salt: UInt64, from: Int, after: LogPosition?, isWhole: Bool
  ) throws(Refusal) {
    guard let position else { throw .elsewhere(nil) }
    if from == 0 {
      // A copy that is not whole has one log.
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
      // SQLite opens the log with the first read, and before that there is nothing to move.
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

  /// Takes a piece of the file of a new copy, which replaces the one before when it is whole.
  ///
  /// - Parameters:
  ///   - offset: 0 begins anew.
  ///   - total: The size of the file.
  ///   - sending: Tells this file from others that were begun.
  ///   - isWhole: Whether the store has no log, so that the last piece is all of it.
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

  /// The new copy, if there is one, has all that the store has.
  private func finish() throws(Refusal) {
    guard isReplacing else { return }
    try write(UnsafeRawBufferPointer(start: nil, count: 0), to: path + ".whole", at: 0, creates: true)
    try install()
    isReplacing = false
  }

  /// Replaces the copy with the whole new one. After a crash it goes on where it was.
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
