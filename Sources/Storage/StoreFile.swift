import Glibc
import PipelineCore
import Transport

/// The open store of one pipeline; must be used by one thread.
final class StoreFile {
  private let path: String
  let database: Database
  private let insertRow: Statement
  private let deleteRow: Statement
  private let insertPart: Statement
  private let insertLetter: Statement
  let identity: UInt64
  /// The highest number that any row has had so far.
  var lastRow: Int64
  /// The checksums of the parts of the state that are on the disk.
  private var sums: [Int64] = []
  /// The owners whose pages are on the disk.
  private(set) var owners: Set<Int64>
  /// Writes and removes pages; nil: the store has had none yet.
  private var pages: (insert: Statement, delete: Statement)?
  /// Identifies the file.
  private var fileIdentity: FileIdentity?
  /// The size of all dead letters in bytes; nil: it has not been counted yet.
  private var deadLetterBytes: Int64?
  private let gate: ReaderGate
  /// Whether the file is marked as not closed cleanly. The first transaction sets the mark, so that opening needs no
  /// space.
  private var isMarked: Bool
  /// The bounds for the size of a log, in pages, up to which it is not moved into the file: it may be as large as the
  /// file, within these bounds.
  private static let logPages = 128...4000
  /// The bytes of the log that stay allocated on the disk when it restarts, so that the next commits need no new space.
  private var keptLogBytes = 0
  /// The number of pages that the connection keeps in memory.
  private var cachedPages = StoreCaches.mostPages

  /// Opens a store, or creates it.
  /// - Throws: ``DatabaseError``, ``StoreDamage``, ``StoreRefusal``.
  init(_ path: String) throws {
    self.path = path
    // From now on, the copy on another machine, if any, may lag behind.
    if unlink(StoreCopier.mark(beside: path)) == 0 { try Self.syncDirectory(of: path) }
    // SQLite creates files as the umask permits, but others must not read events.
    gate = try ReaderGate(path, creates: true)
    database = try Database(path, .writing)
    // Closing a descriptor of the file would release the locks that the process has on it.
    database.companion = StoreHold(gate)
    database.keepLogAtEnd()
    // Debian's SQLite overwrites everything deleted with zeros: every delivered event would go through the log twice,
    // and a full disk would have no space for deleting anything. `FAST` overwrites only where a page is written anyway.
    try database.execute(
      """
      PRAGMA secure_delete = FAST; PRAGMA busy_timeout = 1000; PRAGMA page_size = \(StoreSchema.pageBytes); PRAGMA auto_vacuum = INCREMENTAL;
      PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = \(StoreCaches.mostPages); PRAGMA temp_store = MEMORY
      """)
    if try database.isEmpty {
      // If a crash comes between the two statements, the empty file is initialized again.
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
    // Earlier versions of rxd mapped this file. This connection has exclusive access, so no process maps it now.
    unlink(path + "-shm")
    guard let identity = try database.meta("identity") else { throw StoreDamage("its identity is missing") }
    self.identity = UInt64(bitPattern: identity)
    // A large file is checked only after a crash, and a very large one never, because rows have their own checksums.
    if try Self.size(database) <= (try database.meta("is_clean") == 1 ? 16 << 20 : 256 << 20) {
      let verdict = try database.text("PRAGMA quick_check(1)")
      if verdict != "ok" { throw StoreDamage(verdict ?? "it cannot be checked") }
    }
    // The last row may have been removed, so its saved number counts as well as those of the rows that are left.
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
    owners = try database.owners()
    isMarked = try database.meta("is_clean") != 1
    fileIdentity = Self.fileIdentity(path)
  }

  /// Identifies a file or a directory, whatever its name.
  struct FileIdentity: Hashable, Sendable {
    var device: UInt64
    var inode: UInt64
  }

  private static func fileIdentity(_ path: String) -> FileIdentity? {
    FileDescriptor.Status(path: path).map { FileIdentity(device: $0.device, inode: $0.inode) }
  }

  /// Identifies the directory that now has the name of this path's directory; nil if there is none.
  static func directory(of path: String) -> FileIdentity? {
    fileIdentity(path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ".")
  }

  /// Whether the file still has its name: false if it was removed or replaced after it was opened.
  var isInPlace: Bool {
    guard let fileIdentity, let now = Self.fileIdentity(path) else { return fileIdentity == nil }
    return fileIdentity == now
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

  /// Syncs the directory of a file: only then does the name of a new file survive a power failure.
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

  /// Writes several transactions as one, and returns when it is on the disk. After an error the same transactions may
  /// be written again, by a reopened file.
  func write(_ transactions: [StoreTransaction]) throws(DatabaseError) {
    try change { file throws(DatabaseError) in
      for transaction in transactions { try file.write(transaction) }
    }
  }

  /// Runs `body` in one transaction, and returns when it is on the disk.
  func change(_ body: (StoreFile) throws(DatabaseError) -> Void) throws(DatabaseError) {
    try database.execute("BEGIN IMMEDIATE")
    do throws(DatabaseError) {
      let before = (lastRow, sums, owners)
      let wasMarked = isMarked
      do throws(DatabaseError) {
        if !isMarked { try database.setMeta("is_clean", 0) }
        isMarked = true
        try body(self)
        if lastRow != before.0 { try database.setMeta("last_row", lastRow) }
        try database.execute("COMMIT")
      } catch {
        (lastRow, sums, owners) = before
        pages = nil
        isMarked = wasMarked
        deadLetterBytes = nil
        throw error
      }
    } catch {
      if database.isInTransaction { try? database.execute("ROLLBACK") }
      throw error
    }
  }

  /// Writes one of several transactions; the caller must have begun a database transaction.
  func write(_ transaction: StoreTransaction) throws(DatabaseError) {
    for (former, name) in transaction.renamed {
      let statement = try database.prepare("UPDATE outbox SET sink = ?2 WHERE sink = ?1")
      statement.bind(1, former)
      statement.bind(2, name)
      try statement.run()
    }
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
    case .clear:
      try replace([], ends: [])
      try write([], of: [])
    case .replace(let state):
      try replace(state.bytes, ends: state.ends)
      try write(state.pages, of: state.owners)
      if state.spilled.contains(where: \.hasKeys) { try noteSpilledKeys() }
    }
  }

  /// Writes the pages that have changed, and removes the pages of other owners.
  private func write(_ changed: [StatePage], of owners: Set<Int64>) throws(DatabaseError) {
    if !changed.isEmpty {
      let pages = try statementsOfPages()
      for page in changed {
        let id = StoreSchema.id(of: page)
        if page.bytes.isEmpty {
          pages.delete.bind(1, id)
          try pages.delete.run()
        } else {
          pages.insert.bind(1, id)
          pages.insert.bind(2, StoreSchema.sum(page.bytes, id))
          try Self.run(pages.insert, 3, page.bytes[...])
        }
      }
    }
    for gone in self.owners.subtracting(owners) {
      try database.execute("DELETE FROM page WHERE id >= \(gone << 32) AND id < \((gone + 1) << 32)")
    }
    self.owners = owners
  }

  private func noteSpilledKeys() throws(DatabaseError) {
    guard try database.number("PRAGMA user_version") ?? 0 < StoreSchema.version else { return }
    _ = try statementsOfPages()
    try database.execute(StoreSchema.noteSpilledKeys)
  }

  private func statementsOfPages() throws(DatabaseError) -> (insert: Statement, delete: Statement) {
    if let pages { return pages }
    if !(try database.hasPages) { try database.execute(StoreSchema.createPages) }
    let made = (
      try database.prepare("INSERT OR REPLACE INTO page(id, sum, body) VALUES(?1, ?2, ?3)"),
      try database.prepare("DELETE FROM page WHERE id = ?1")
    )
    pages = made
    return made
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

  /// Writes those parts of the state that have changed.
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

  /// If the total size of the dead letters exceeds `bytes`, deletes the oldest until the rest is at most nine tenths of
  /// `bytes`. Returns the number of deleted letters.
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

  /// Keeps at most this many pages in memory. If a transaction needs more, none are kept between transactions.
  func boundCache(to pages: Int) {
    let used = max(pages, StoreCaches.leastPages)
    // If this fails, more memory is used, but nothing is wrong.
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

  /// The bytes in the file that new records can use without making it grow.
  var freeBytes: Int {
    let pages = (try? database.number("PRAGMA freelist_count")) ?? 0
    return Int(clamping: pages) * StoreSchema.pageBytes
  }

  /// Returns space to the file system, a little at a time.
  ///
  /// - Parameter isFull: Whether the file system is full: even a little space is then returned.
  func shrink(isFull: Bool = false) throws(DatabaseError) {
    let free = try database.number("PRAGMA freelist_count") ?? 0
    let pages = try database.number("PRAGMA page_count") ?? 0
    guard free > (isFull ? 0 : 1024), isFull || free > pages / 2 else { return }
    let statement = try database.prepare("PRAGMA incremental_vacuum(2048)")
    while try statement.step() {}
  }

  /// The number of frames in the log.
  var logFrames: Int { database.logPages }

  /// The size of the log on the disk, in bytes.
  var logBytes: Int { database.logPages * StoreSchema.pageBytes }

  /// A log larger than its limit by this factor is reported.
  private static let excess = 4

  /// Moves the contents of the log into the file if the log is large compared with the file, so that a small store has
  /// a small log. Readers delay this.
  ///
  /// - Parameter isSmall: Whether to move a small log as well.
  /// - Returns: Whether the log has become much larger than it should be because readers prevent the move.
  @discardableResult
  func boundLog(isSmall: Bool = false) throws(DatabaseError) -> Bool {
    let (pages, bounds) = (database.logPages, Self.logPages)
    guard pages > (isSmall ? 0 : bounds.lowerBound) else { return false }
    let held = try database.number("PRAGMA page_count") ?? 0
    let most = min(Int(clamping: held), bounds.upperBound)
    guard isSmall || pages > most else { return false }
    guard gate.close(within: .zero) else { return pages > Self.excess * max(most, bounds.lowerBound) }
    defer { gate.open() }
    // A log that has been renamed is emptied in place.
    guard isInPlace else {
      try database.truncateLog()
      return false
    }
    guard try database.checkpoint() else { return false }
    // Without a header, readers outside this process ignore the pages of the old log, which the next commits overwrite.
    let number = Glibc.open(path + "-wal", O_WRONLY | O_CLOEXEC | O_NOFOLLOW)
    guard number >= 0 else { return false }
    let header = [UInt8](repeating: 0, count: 32)
    _ = uninterrupted { pwrite(number, header, header.count, 0) }
    Glibc.close(number)
    // Up to this size, the log stays allocated on the disk.
    let kept = max(bounds.lowerBound, min(Int(clamping: held), bounds.upperBound)) * StoreSchema.pageBytes
    guard kept > keptLogBytes * 2 || kept < keptLogBytes / 2 else { return false }
    try database.execute("PRAGMA journal_size_limit = \(kept)")
    keptLogBytes = kept
    return false
  }

  /// Marks the store as closed cleanly. Nothing may be written afterwards.
  func end() throws(DatabaseError) {
    try database.setMeta("is_clean", 1)
    // A reader that takes longer finds everything in the log.
    guard gate.close(within: .seconds(2)) else { return }
    defer { gate.open() }
    try database.truncateLog()
    if isInPlace { unlink(path + "-wal") }
  }
}

/// Separates the readers of a store from its one writer: while a reader reads, file and log must not change relative to
/// each other. The gate is a lock of the open file (flock(2)), which readers share.
final class ReaderGate {
  private let number: Int32

  /// - Throws: If the file cannot be opened.
  init(_ path: String, creates: Bool) throws(DatabaseError) {
    let flags = creates ? O_RDWR | O_CREAT : O_RDONLY
    number = uninterrupted { Glibc.open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0o600) }
    if number < 0 { throw DatabaseError(code: 14, message: PosixError("open", path).message, errno: errno) }
  }

  deinit { Glibc.close(number) }

  /// Identifies the open file; nil if it cannot be identified.
  var fileIdentity: StoreFile.FileIdentity? {
    var status = stat()
    guard fstat(number, &status) == 0 else { return nil }
    return StoreFile.FileIdentity(device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
  }

  private func take(_ operation: Int32, within limit: TimeSpan) -> Bool {
    let end = monotonicNow() + limit.nanoseconds
    while uninterrupted({ flock(number, operation | LOCK_NB) }) != 0 {
      // If the file system has no such locks, readers do not take them either.
      guard errno == EWOULDBLOCK else { return true }
      guard monotonicNow() < end else { return false }
      usleep(2000)
    }
    return true
  }

  /// Keeps readers out until ``open()``; false if there were readers for the whole time.
  func close(within limit: TimeSpan) -> Bool { take(LOCK_EX, within: limit) }
  func open() { _ = flock(number, LOCK_UN) }
  /// Enters as a reader, until this object is released; false if the gate was closed for the whole time.
  func enter(within limit: TimeSpan) -> Bool { take(LOCK_SH, within: limit) }
}

/// Why a store cannot be opened, as one sentence without a full stop. Another attempt would fail as well.
package struct StoreRefusal: Error, Sendable {
  package var message: String
  package init(_ message: String) { self.message = message }
}
