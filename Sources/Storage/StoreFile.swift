import Glibc
import PipelineCore
import Transport

/// The open store of one pipeline, used by one thread.
final class StoreFile {
  private let path: String
  let database: Database
  private let insertRow: Statement
  private let deleteRow: Statement
  private let insertPart: Statement
  private let insertLetter: Statement
  let identity: UInt64
  /// The highest number that a row has ever had.
  var lastRow: Int64
  /// The checksums of the parts of the state that are on the disk.
  private var sums: [Int64] = []
  /// The identity of the file.
  private var place: Place?
  /// The size of all dead letters, in bytes; nil: not counted yet.
  private var deadLetterBytes: Int64?
  private let gate: ReaderGate
  /// Whether the file says that it was not closed in order. The first transaction writes that, so that opening needs no room.
  private var isMarked: Bool
  /// The largest log that is not moved into the file, in pages: as much as the file has, within these bounds.
  private static let logPages = 128...4000
  /// How much of the log stays on the disk when it is begun anew, in bytes, so that the next commits find their place.
  private var keptLogBytes = 0
  /// How many pages the connection keeps in memory.
  private var cachedPages = StoreCaches.mostPages

  /// Opens a store, or creates it.
  /// - Throws: ``DatabaseError``, ``StoreDamage``, ``StoreRefusal``.
  init(_ path: String) throws {
    self.path = path
    // SQLite makes files as the umask says, and others must not read events.
    gate = try ReaderGate(path, creates: true)
    database = try Database(path, .writing)
    // Closing a descriptor of the file gives up the locks that the process has on it.
    database.companion = StoreHold(gate)
    database.keepLogAtEnd()
    // Debian's SQLite writes zeros to all that is deleted: every delivered event would go through the log twice, and a full disk would have no
    // room to delete anything. `FAST` does it where a page is written anyway.
    try database.execute(
      """
      PRAGMA secure_delete = FAST; PRAGMA busy_timeout = 1000; PRAGMA page_size = \(StoreSchema.pageBytes); PRAGMA auto_vacuum = INCREMENTAL;
      PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = \(StoreCaches.mostPages); PRAGMA temp_store = MEMORY
      """)
    if try database.isEmpty {
      // A crash between the two leaves an empty file, which is created again.
      try database.execute(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN IMMEDIATE;" + StoreSchema.create)
      var generator = SystemRandomNumberGenerator()
      try database.setMeta("identity", Int64(bitPattern: generator.next()))
      try database.setMeta("last_row", 0)
      try database.setMeta("parts", 0)
      try database.setMeta("is_clean", 1)
      try database.execute("COMMIT")
      try Self.syncDirectory(of: path)
    }
    if let refusal = try database.refusal() { throw StoreRefusal("\(path) cannot be used: \(refusal)") }
    try database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864")
    // Earlier versions of rxd mapped this file. This connection has the store alone, so no process maps it now.
    unlink(path + "-shm")
    guard let identity = try database.meta("identity") else { throw StoreDamage("its identity is missing") }
    self.identity = UInt64(bitPattern: identity)
    // A large file is checked only after a crash, and a very large one not at all: rows have checksums of their own.
    if try Self.size(database) <= (try database.meta("is_clean") == 1 ? 16 << 20 : 256 << 20) {
      let verdict = try database.text("PRAGMA quick_check(1)")
      if verdict != "ok" { throw StoreDamage(verdict ?? "it cannot be checked") }
    }
    // After a crash the number may be that of a row that has been removed since.
    lastRow = max(
      try database.meta("last_row") ?? 0, try database.number("SELECT max(number) FROM outbox") ?? 0)
    guard StoreContents.rowNumbers.contains(lastRow) else {
      throw StoreDamage("the number of its last row, \(lastRow), is impossible")
    }
    insertRow = try database.prepare(
      "INSERT OR REPLACE INTO outbox(number, sink, events, size, sum, body) VALUES(?1, ?2, ?3, ?4, ?5, ?6)")
    deleteRow = try database.prepare("DELETE FROM outbox WHERE number = ?1")
    insertPart = try database.prepare("INSERT OR REPLACE INTO state(part, sum, body) VALUES(?1, ?2, ?3)")
    insertLetter = try database.prepare(
      """
      INSERT INTO deadletter(time, code, step, size, sum, document) VALUES(?1, ?2, ?3, ?4, ?5, ?6)
      """)
    let statement = try database.prepare("SELECT sum FROM state ORDER BY part")
    while try statement.step() { sums.append(statement.number(0)) }
    isMarked = try database.meta("is_clean") != 1
    place = Self.place(path)
  }

  /// A file or a directory, whatever its name.
  struct Place: Hashable, Sendable {
    var device: UInt64
    var inode: UInt64
  }

  private static func place(_ path: String) -> Place? {
    FileDescriptor.Status(path: path).map { Place(device: $0.device, inode: $0.inode) }
  }

  /// The directory that has the name now in which the file of this path is; nil: there is none.
  static func directory(of path: String) -> Place? {
    place(path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ".")
  }

  /// Whether the file still has its name: false if it was removed or replaced since it was opened.
  var isInPlace: Bool {
    guard let place, let now = Self.place(path) else { return place == nil }
    return place == now
  }

  /// Writes a copy of the open file's contents, even if another file has its name.
  func copy(to other: String) throws(DatabaseError) {
    unlink(other)
    let quoted = other.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "''")
    try database.execute("VACUUM INTO '\(quoted)'")
  }

  private static func size(_ database: Database) throws(DatabaseError) -> Int64 {
    (try database.number("PRAGMA page_count") ?? 0) * (try database.number("PRAGMA page_size") ?? 0)
  }

  /// A new file survives a power cut only if its directory is on the disk.
  static func syncDirectory(of path: String) throws {
    let directory = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? "."
    let number = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard number >= 0 else { throw DatabaseError(code: 14, message: PosixError("open", directory).message) }
    defer { close(number) }
    if fsync(number) != 0 { throw DatabaseError(code: 10, message: PosixError("sync", directory).message) }
  }

  func state() throws -> [UInt8]? { try database.state() }
  func backlogs() throws(DatabaseError) -> [String: OutboxBacklog] { try database.backlogs() }

  // MARK: Writing

  /// Writes transactions in one, and returns when it is on the disk. The same ones may be written again after an error, by a
  /// file that has been opened anew.
  func write(_ transactions: [StoreTransaction]) throws(DatabaseError) {
    try change { file throws(DatabaseError) in
      for transaction in transactions { try file.write(transaction) }
    }
  }

  /// Runs `body` in one transaction, and returns when it is on the disk.
  func change(_ body: (StoreFile) throws(DatabaseError) -> Void) throws(DatabaseError) {
    try database.execute("BEGIN IMMEDIATE")
    do throws(DatabaseError) {
      let before = (lastRow, sums)
      let wasMarked = isMarked
      do throws(DatabaseError) {
        if !isMarked { try database.setMeta("is_clean", 0) }
        isMarked = true
        try body(self)
        if lastRow != before.0 { try database.setMeta("last_row", lastRow) }
        try database.execute("COMMIT")
      } catch {
        (lastRow, sums) = before
        isMarked = wasMarked
        deadLetterBytes = nil
        throw error
      }
    } catch {
      if database.isInTransaction { try? database.execute("ROLLBACK") }
      throw error
    }
  }

  /// Writes a part of a transaction.
  func write(_ transaction: StoreTransaction) throws(DatabaseError) {
    for row in transaction.rows {
      insertRow.bind(1, row.number)
      insertRow.bind(2, row.sink)
      insertRow.bind(3, Int64(row.events))
      insertRow.bind(4, Int64(row.bytes.count))
      insertRow.bind(5, StoreSchema.sum(row.bytes, row.number))
      try Self.run(insertRow, 6, row.bytes[...])
      lastRow = max(lastRow, row.number)
    }
    for row in transaction.removed {
      deleteRow.bind(1, row.number)
      try deleteRow.run()
    }
    for letter in transaction.deadLetters { try write(letter) }
    switch transaction.state {
    case .keep: break
    case .clear: try replace([], ends: [])
    case .replace(let state): try replace(state.bytes, ends: state.ends)
    }
  }

  private func write(_ letter: StoredDeadLetter) throws(DatabaseError) {
    insertLetter.bind(1, letter.time)
    insertLetter.bind(2, letter.code)
    insertLetter.bind(3, letter.step)
    insertLetter.bind(4, Int64(letter.document.count))
    insertLetter.bind(5, StoreSchema.sum(letter.document, letter.time))
    try Self.run(insertLetter, 6, letter.document[...])
    if let bytes = deadLetterBytes { deadLetterBytes = bytes + Int64(letter.document.count) }
  }

  /// Writes the parts that have changed.
  private func replace(_ bytes: [UInt8], ends: [Int]) throws(DatabaseError) {
    var part = 0
    var start = 0
    for end in ends {
      while start < end {
        let stop = min(end, start + StoreSchema.partBytes)
        let sum = bytes.withUnsafeBytes {
          StoreSchema.sum(UnsafeRawBufferPointer(rebasing: $0[start..<stop]), Int64(part))
        }
        if part >= sums.count || sums[part] != sum {
          insertPart.bind(1, Int64(part))
          insertPart.bind(2, sum)
          try Self.run(insertPart, 3, bytes[start..<stop])
          if part < sums.count { sums[part] = sum } else { sums.append(sum) }
        }
        part += 1
        start = stop
      }
    }
    if part < sums.count {
      try database.execute("DELETE FROM state WHERE part >= \(part)")
      sums.removeLast(sums.count - part)
    }
    if try database.meta("parts") != Int64(part) { try database.setMeta("parts", Int64(part)) }
  }

  private static func run(_ statement: Statement, _ index: Int32, _ bytes: ArraySlice<UInt8>) throws(DatabaseError) {
    var failure: DatabaseError?
    bytes.withUnsafeBytes { body in
      statement.bind(index, body)
      do throws(DatabaseError) { try statement.run() } catch { failure = error }
    }
    if let failure { throw failure }
  }

  /// Deletes the oldest dead letters if all of them are larger than `bytes`, until the rest is at most nine tenths of it. Returns the number of
  /// deleted ones.
  func boundDeadLetters(to bytes: Int64) throws(DatabaseError) -> Int {
    var total: Int64
    if let known = deadLetterBytes {
      total = known
    } else {
      total = try database.number("SELECT total(size) FROM deadletter") ?? 0
    }
    deadLetterBytes = total
    guard total > bytes else { return 0 }
    var last: Int64 = 0
    let oldest = try database.prepare("SELECT number, size FROM deadletter ORDER BY number")
    while total > bytes / 10 * 9, try oldest.step() {
      last = oldest.number(0)
      total -= oldest.number(1)
    }
    oldest.reset()
    try database.execute("DELETE FROM deadletter WHERE number <= \(last)")
    deadLetterBytes = total
    return database.changes
  }

  // MARK: Memory

  /// Keeps at most so many pages in memory; none between two uses if they are fewer than a transaction needs.
  func boundCache(to pages: Int) {
    let used = max(pages, StoreCaches.leastPages)
    // Without it more memory is used, and nothing is wrong.
    if used != cachedPages, (try? database.execute("PRAGMA cache_size = \(used)")) != nil { cachedPages = used }
    if pages < StoreCaches.leastPages { try? database.execute("PRAGMA shrink_memory") }
  }

  // MARK: Reading

  func rows(
    of sink: String, after number: Int64, bytes: Int, damaged: (RemovedRow) -> Void
  ) throws(DatabaseError) -> [OutboxRow] {
    var rows: [OutboxRow] = []
    var size = 0
    try database.rows(of: sink, after: number, damaged: damaged) { row in
      if !rows.isEmpty, size + row.bytes.count > bytes { return false }
      size += row.bytes.count
      rows.append(row)
      return size < bytes
    }
    return rows
  }

  /// What the file has for new records without growing, in bytes.
  var freeBytes: Int {
    let pages = (try? database.number("PRAGMA freelist_count")) ?? 0
    return Int(clamping: pages) * StoreSchema.pageBytes
  }

  /// Gives space back to the file system, a little at a time.
  ///
  /// - Parameter isFull: The file system has no room: also a little is given back.
  func shrink(isFull: Bool = false) throws(DatabaseError) {
    let free = try database.number("PRAGMA freelist_count") ?? 0
    let pages = try database.number("PRAGMA page_count") ?? 0
    guard free > (isFull ? 0 : 1024), isFull || free > pages / 2 else { return }
    let statement = try database.prepare("PRAGMA incremental_vacuum(2048)")
    while try statement.step() {}
  }

  /// What the log has on the disk, in bytes.
  var logBytes: Int { database.logPages * StoreSchema.pageBytes }

  /// A log that is so many times as large as it should be is a trouble.
  private static let excess = 4

  /// Moves what the log has into the file, if the log is large for what the file holds, so that a small store has a small log. Readers
  /// put it off.
  ///
  /// - Parameter isSmall: Also if it is small.
  /// - Returns: Whether readers have kept it in the log, which has become much larger than it should be.
  @discardableResult
  func boundLog(isSmall: Bool = false) throws(DatabaseError) -> Bool {
    let (pages, bounds) = (database.logPages, Self.logPages)
    guard pages > (isSmall ? 0 : bounds.lowerBound) else { return false }
    let held = try database.number("PRAGMA page_count") ?? 0
    let most = min(Int(clamping: held), bounds.upperBound)
    guard isSmall || pages > most else { return false }
    guard gate.close(within: .zero) else { return pages > Self.excess * max(most, bounds.lowerBound) }
    defer { gate.open() }
    // A log that has another name now is emptied in place.
    guard isInPlace else {
      try database.truncateLog()
      return false
    }
    guard try database.checkpoint() else { return false }
    // Without a header, a reader beside this connection ignores the pages of the old log, which the next commits overwrite.
    let number = Glibc.open(path + "-wal", O_WRONLY | O_CLOEXEC | O_NOFOLLOW)
    guard number >= 0 else { return false }
    let header = [UInt8](repeating: 0, count: 32)
    _ = uninterrupted { pwrite(number, header, header.count, 0) }
    Glibc.close(number)
    // The log keeps its place on the disk, up to this.
    let kept = max(bounds.lowerBound, min(Int(clamping: held), bounds.upperBound)) * StoreSchema.pageBytes
    guard kept > keptLogBytes * 2 || kept < keptLogBytes / 2 else { return false }
    try database.execute("PRAGMA journal_size_limit = \(kept)")
    keptLogBytes = kept
    return false
  }

  /// Marks the store as closed in order. Nothing is written afterwards.
  func end() throws(DatabaseError) {
    try database.setMeta("is_clean", 1)
    // A reader that takes longer finds all in the log.
    guard gate.close(within: .seconds(2)) else { return }
    defer { gate.open() }
    try database.truncateLog()
    if isInPlace { unlink(path + "-wal") }
  }
}

/// Keeps readers of a store and its one writer apart: a reader needs the file and the log to stay what they are together. From the outside it is a lock of
/// the open file (flock(2)), which readers share.
final class ReaderGate {
  private let number: Int32

  /// - Throws: The file cannot be opened.
  init(_ path: String, creates: Bool) throws(DatabaseError) {
    let flags = creates ? O_RDWR | O_CREAT : O_RDONLY
    number = uninterrupted { Glibc.open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0o600) }
    if number < 0 { throw DatabaseError(code: 14, message: PosixError("open", path).message, errno: errno) }
  }

  deinit { Glibc.close(number) }

  /// The open file; nil: the system does not say.
  var place: StoreFile.Place? {
    var status = stat()
    guard fstat(number, &status) == 0 else { return nil }
    return StoreFile.Place(device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
  }

  private func take(_ operation: Int32, within limit: TimeSpan) -> Bool {
    let end = monotonicNow() + limit.nanoseconds
    while uninterrupted({ flock(number, operation | LOCK_NB) }) != 0 {
      // A file system without such locks has no readers that take them.
      guard errno == EWOULDBLOCK else { return true }
      guard monotonicNow() < end else { return false }
      usleep(2000)
    }
    return true
  }

  /// Keeps readers out until ``open()``; false: there are some.
  func close(within limit: TimeSpan) -> Bool { take(LOCK_EX, within: limit) }
  func open() { _ = flock(number, LOCK_UN) }
  /// Enters as a reader, until this object is released; false: the gate was closed for the whole time.
  func enter(within limit: TimeSpan) -> Bool { take(LOCK_SH, within: limit) }
}

/// Why a store cannot be opened; another attempt would fail, too. One sentence without a full stop.
package struct StoreRefusal: Error, Sendable {
  package var message: String
  package init(_ message: String) { self.message = message }
}
