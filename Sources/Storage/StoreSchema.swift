import CDigest
import PipelineCore
import Transport

/// The tables of a store, and how to read them.
///
/// ```
/// meta        identity, last_row, parts, is_clean, pipeline
/// state       the saved state, in parts of at most 64 KiB
/// page        state of steps with many keys: parts of the state that change independently. From version 2 on
///             Version 3: more keys are in a directory alongside the store (``SpillFile``)
/// outbox      rows that sinks have to deliver
/// deadletter  rejected events that nothing reads
/// ```
///
/// Every body has a checksum, because SQLite checks only the pages of its log, not those of the file.
struct StoreSchema {
  static let applicationID = Database.storeApplicationID
  static let version: Int64 = 3
  static let versionWithPages: Int64 = 2
  /// The version of a store without pages, which earlier versions of rxd can read.
  static let versionWithoutPages: Int64 = 1
  /// Rows are large: with pages of 4 KiB, writing takes almost twice the time.
  static let pageBytes = 8192
  static let partBytes = 64 << 10

  static let create = """
    CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE state(part INTEGER PRIMARY KEY, sum INTEGER NOT NULL, body BLOB NOT NULL);
    CREATE TABLE outbox(number INTEGER PRIMARY KEY, sink TEXT NOT NULL, events INTEGER NOT NULL,
      size INTEGER NOT NULL, sum INTEGER NOT NULL, body BLOB NOT NULL);
    CREATE INDEX outbox_sink ON outbox(sink, number, events, size);
    CREATE TABLE deadletter(number INTEGER PRIMARY KEY, time INTEGER NOT NULL, code TEXT NOT NULL,
      step TEXT NOT NULL, size INTEGER NOT NULL, sum INTEGER NOT NULL, document BLOB NOT NULL);
    PRAGMA application_id = \(applicationID);
    PRAGMA user_version = \(versionWithoutPages);
    """

  /// Adds the table of pages to a store.
  static let createPages = """
    CREATE TABLE IF NOT EXISTS page(id INTEGER PRIMARY KEY, sum INTEGER NOT NULL, body BLOB NOT NULL);
    PRAGMA user_version = \(versionWithPages);
    """

  /// Lets versions of rxd that know no keys alongside the store refuse it. The store has pages.
  static let noteSpilledKeys = "PRAGMA user_version = \(version)"

  /// The number of a page's record; its upper half is the owner.
  static func id(of page: StatePage) -> Int64 { page.owner << 32 | page.number }
  static func owner(of id: Int64) -> Int64 { id >> 32 }
  static func number(of id: Int64) -> Int64 { id & 0xFFFF_FFFF }

  /// The checksum of a body; it depends on the number of the record that the body belongs to.
  static func sum(_ bytes: UnsafeRawBufferPointer, _ number: Int64) -> Int64 {
    Int64(bitPattern: rx_xxh3_seeded(bytes.baseAddress, bytes.count, UInt64(bitPattern: number)))
  }

  static func sum(_ bytes: [UInt8], _ number: Int64) -> Int64 { bytes.withUnsafeBytes { sum($0, number) } }
}

extension Database {
  /// Why the file is not a store of this version; nil if it is one. A new file is not one yet.
  func refusal() throws(DatabaseError) -> String? {
    let application = try number("PRAGMA application_id") ?? 0
    let version = try number("PRAGMA user_version") ?? 0
    guard application == StoreSchema.applicationID else { return "it is not a store of rxd" }
    guard version <= StoreSchema.version else {
      return "its format is \(version), and this version of rxd reads \(StoreSchema.version)"
    }
    return nil
  }

  var isEmpty: Bool { get throws(DatabaseError) { try number("SELECT count(*) FROM sqlite_master") == 0 } }

  func meta(_ key: String) throws(DatabaseError) -> Int64? {
    try number("SELECT value FROM meta WHERE key = '\(key)'")
  }

  func setMeta(_ key: String, _ value: Int64) throws(DatabaseError) {
    try execute("INSERT OR REPLACE INTO meta(key, value) VALUES('\(key)', \(value))")
  }

  /// The saved state; nil if there is none.
  /// - Throws: ``StoreDamage`` if a part is missing or damaged.
  func state() throws -> [UInt8]? {
    let parts = try meta("parts") ?? 0
    guard parts > 0 else { return nil }
    let statement = try prepare("SELECT part, sum, body FROM state ORDER BY part")
    var bytes: [UInt8] = []
    var count: Int64 = 0
    while try statement.step() {
      let body = statement.bytes(2)
      guard statement.number(0) == count, StoreSchema.sum(body, count) == statement.number(1) else {
        throw StoreDamage("part \(count) of the state is damaged")
      }
      bytes.append(contentsOf: body)
      count += 1
    }
    guard count == parts else { throw StoreDamage("\(parts - count) of \(parts) parts of the state are missing") }
    guard try hasPages else { return bytes }
    let pages = try prepare("SELECT id, sum, body FROM page ORDER BY id")
    while try pages.step() {
      let (id, body) = (pages.number(0), pages.bytes(2))
      let (owner, number) = (StoreSchema.owner(of: id), StoreSchema.number(of: id))
      guard StoreSchema.sum(body, id) == pages.number(1) else {
        throw StoreDamage("page \(number) of owner \(owner) of the state is damaged")
      }
      StatePage.append(owner, number, body, to: &bytes)
    }
    return bytes
  }

  /// Whether the store has a table of pages.
  var hasPages: Bool {
    get throws(DatabaseError) { try number("PRAGMA user_version") ?? 0 > StoreSchema.versionWithoutPages }
  }

  /// The owners of the store's pages.
  func owners() throws(DatabaseError) -> Set<Int64> {
    guard try hasPages else { return [] }
    var owners: Set<Int64> = []
    var next: Int64 = 0
    while let id = try number("SELECT min(id) FROM page WHERE id >= \(next)") {
      owners.insert(StoreSchema.owner(of: id))
      next = (StoreSchema.owner(of: id) + 1) << 32
    }
    return owners
  }

  func backlogs() throws(DatabaseError) -> [String: OutboxBacklog] {
    let statement = try prepare(
      "SELECT sink, count(*), sum(events), sum(size), min(number), max(number) FROM outbox GROUP BY sink")
    var all: [String: OutboxBacklog] = [:]
    while try statement.step() {
      var backlog = OutboxBacklog()
      backlog.rows = Int(statement.number(1))
      backlog.events = Int(statement.number(2))
      backlog.bytes = Int(statement.number(3))
      backlog.first = statement.number(4)
      backlog.last = statement.number(5)
      all[statement.text(0)] = backlog
    }
    return all
  }

  /// Calls `body` for each undamaged row of the outbox after `number`, until it returns false; damaged rows go to
  /// `damaged`.
  func rows(
    of sink: String? = nil, after number: Int64, damaged: (RemovedRow) -> Void, _ body: (OutboxRow) -> Bool
  ) throws(DatabaseError) {
    let statement = try prepare(
      "SELECT number, sink, events, sum, body FROM outbox WHERE number > ?1 "
        + (sink == nil ? "" : "AND sink = ?2 ") + "ORDER BY number")
    statement.bind(1, number)
    if let sink { statement.bind(2, sink) }
    while try statement.step() {
      let number = statement.number(0)
      let bytes = statement.bytes(4)
      let events = Int(statement.number(2))
      guard StoreSchema.sum(bytes, number) == statement.number(3), events >= 0 else {
        damaged(RemovedRow(number: number, sink: statement.text(1), events: events, size: bytes.count))
        continue
      }
      if !body(OutboxRow(number: number, sink: statement.text(1), events: events, bytes: Array(bytes))) { return }
    }
  }
}

/// A record of a store that is damaged or missing.
struct StoreDamage: Error {
  /// The damage, as a clause: `part 3 of the state is damaged`.
  var message: String
  init(_ message: String) { self.message = message }
}
