import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing
import Transport

/// The sink `sqlite`, checked with SQLite's own shell.
@Suite(.serialized, .enabled(if: SQLiteShell.isInstalled, "needs sqlite3")) struct SQLiteSinkTests {
  let scratch = Scratch()
  private var path: String { scratch("a.db") }
  private var shell: SQLiteShell { SQLiteShell(path) }

  private func pipeline(_ events: String, _ parameters: String) throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { values: \(events) } }
      sinks:
        db: { from: in, sqlite: { path: '\(path)', table: t, \(parameters) } }
        lost: { from: db.errors, chain: [ { map: '[event.code, event.error, event.event]' } ], probe: {} }
      """)
  }

  @Test func storesEveryType() throws {
    let running = try pipeline(
      #"[ { n: 9007199254740993, d: 2.5, s: "ä\"'x", b: true, l: [1, "2"], m: { a: null } } ]"#,
      """
      create: 'CREATE TABLE t(n, d, s, b, l, m, z, x, at)', columns: { n: event.n, d: event.d, s: event.s, b: event.b, l: event.l, m: event.m,
      z: event.?nothing, x: "b'\\\\x00\\\\xff'", at: "timestamp('2026-01-02T03:04:05Z')" }
      """)
    #expect(running.runToEnd() == .completed)
    #expect(
      try shell.run(
        "SELECT n, d, s, b, l, m, typeof(z), typeof(x), hex(x), at, typeof(n), typeof(d), typeof(l) FROM t;")
        == #"9007199254740993|2.5|ä"'x|1|[1,"2"]|{"a":null}|null|blob|00FF|2026-01-02T03:04:05Z|integer|real|text"#)
    #expect(running.counters.sent == 1)
  }

  /// Only the rows that the table rejects go to the errors output.
  @Test func takesErrorsOfRowsApart() throws {
    try shell.run("CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER CHECK(v < 10)); INSERT INTO t VALUES (3, 0);")
    let running = try pipeline(
      "[ { id: 1, v: 1 }, { id: 2, v: 10 }, { id: 3, v: 3 }, { id: x, v: 4 }, { id: 5, v: 5 }, { v: 6 } ]",
      "columns: { id: event.id, v: event.v }")
    #expect(running.runToEnd() == .completed)
    #expect(try shell.run("SELECT id, v FROM t ORDER BY id;") == "1|1\n3|0\n5|5")
    let lost = running.probe("lost").events
    #expect(lost.count == 4)
    for (event, reason) in [
      (#"{"v":6}"#, "id"), (#"{"id":2,"v":10}"#, "CHECK constraint failed: v < 10"),
      (#"{"id":3,"v":3}"#, "UNIQUE constraint failed: t.id"), (#"{"id":"x","v":4}"#, "datatype mismatch"),
    ] {
      #expect(
        lost.contains { $0.hasPrefix(#"["RX504""#) && $0.contains(reason) && $0.hasSuffix(event + "]") },
        "\(reason): \(lost)")
    }
    #expect(running.counters.sent == 2 && running.counters.rejected == 4)
  }

  /// A constraint that fails only at the end of a transaction, and one that ends it.
  @Test(arguments: [
    "CREATE TABLE p(id INTEGER PRIMARY KEY); INSERT INTO p VALUES (1), (3); CREATE TABLE t(id REFERENCES p(id) DEFERRABLE INITIALLY DEFERRED);",
    "CREATE TABLE t(id CHECK(id <> 2) ); CREATE TRIGGER g BEFORE INSERT ON t WHEN new.id = 2 BEGIN SELECT RAISE(ROLLBACK, 'not two'); END;",
  ])
  func findsTheRowThatEndsATransaction(_ tables: String) throws {
    try shell.run(tables)
    let running = try pipeline("[1, 2, 3]", "columns: { id: event }")
    #expect(running.runToEnd() == .completed)
    #expect(try shell.run("SELECT id FROM t ORDER BY id;") == "1\n3")
    #expect(running.probe("lost").events.count == 1)
    #expect(running.probe("lost").events.first?.hasSuffix(",2]") == true)
  }

  @Test func changesWhatIsThere() throws {
    let running = try pipeline(
      "[ { id: a, v: 1 }, { id: b, v: 2 }, { id: a, v: 3 } ]",
      "mode: upsert, key: id, columns: { id: event.id, v: event.v }, create: 'CREATE TABLE IF NOT EXISTS t(id TEXT PRIMARY KEY, v)'"
    )
    #expect(running.runToEnd() == .completed)
    #expect(try shell.run("SELECT id, v FROM t ORDER BY id;") == "a|3\nb|2")
    let again = try pipeline(
      "[ { id: b } ]",
      "mode: upsert, key: id, columns: { id: event.id }, create: 'CREATE TABLE IF NOT EXISTS t(id TEXT PRIMARY KEY, v)'"
    )
    #expect(again.runToEnd() == .completed)
    #expect(try shell.run("SELECT id, v FROM t ORDER BY id;") == "a|3\nb|2")
  }

  @Test func createsNothingUnasked() throws {
    let running = try pipeline("[1]", "columns: { v: event }, retry: 1ms")
    running.run { running.log.contains { $0.contains("trying again") } }
    #expect(!FileManager.default.fileExists(atPath: path))
    #expect(running.log.contains { $0.contains("unable to open database file") })
    // The sink waits for the table.
    try shell.run("CREATE TABLE t(v);")
    #expect(running.runToEnd() == .completed)
    #expect(try shell.run("SELECT v FROM t;") == "1")
  }

  @Test(arguments: [
    ("CREATE TABLE u(v);", ": no such table: t"), ("CREATE TABLE t(w);", "no column named v"),
    (
      "PRAGMA application_id = 0x72786473; CREATE TABLE t(v);",
      "is the state of a pipeline of rxd, which no sink may write"
    ),
  ])
  func endsWhereNothingCanBeWritten(_ tables: String, _ message: String) throws {
    try shell.run(tables)
    let running = try pipeline("[1]", "columns: { v: event }")
    running.runToEnd()
    let found = running.failure?.message ?? "none"
    #expect(found.hasSuffix(message), "\(found)")
  }

  /// A missing file does not delay an end without events.
  @Test func endsWithoutEvents() throws {
    let running = try pipeline("[]", "columns: { v: event }, retry: 1ms")
    #expect(running.runToEnd() == .completed)
    #expect(!FileManager.default.fileExists(atPath: path))
  }

  /// Acknowledged when committed, not earlier.
  @Test func acknowledgesBehindTheCommit() throws {
    try shell.run("CREATE TABLE t(v);")
    let source = TrackedSource()
    let running = try RealPipeline(
      "sources: { in: { never: {} } }\nsinks: { db: { from: in, sqlite: { path: '\(path)', table: t, columns: { v: event }, batch: { every: 0s }, busyTimeout: 1ms, retry: 1ms } } }"
    ) { $0.replacements.sources = { $0 == "in" ? source : nil } }
    source.feed.ring = running.ring
    running.run { source.feed.node != nil }
    // The sink waits where it first accesses the file.
    var locker: Database? = try Database(
      path, .foreignWriting(creates: false), limits: DatabaseLimits(busy: .seconds(600)))
    try locker?.execute("BEGIN EXCLUSIVE")
    source.feed.send(0, [1, 2])
    running.run { running.log.contains { $0.contains("database is locked; trying again") } }
    #expect(source.feed.outcomes.isEmpty)
    try locker?.execute("COMMIT")
    locker = nil
    running.run { source.feed.outcomes[0] != nil }
    #expect(source.feed.outcomes[0] == .acknowledged)
    #expect(try shell.run("SELECT v FROM t;") == "1\n2")
    #expect(running.log.contains { $0.contains("the database accepts rows again") })
    running.inTurn { $0.execution.drain() }
    #expect(running.runToEnd() == .completed)
  }

  @Test func writesManyInOrder() throws {
    try shell.run("PRAGMA journal_mode = WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v);")
    let running = try pipeline(
      "[\((0..<5000).map { "\($0)" }.joined(separator: ","))]", "columns: { v: event }, batch: 700, queue: 100")
    #expect(running.runToEnd() == .completed)
    #expect(try shell.run("SELECT count(*), sum(id - 1 = v) FROM t;") == "5000|5000")
  }

  private func complaints(_ parameters: String) -> [String] {
    PipelineText.complaints(
      "sources: { in: { values: [1] } }\nsinks: { db: { from: in, sqlite: { path: a.db, table: t, \(parameters) } } }")
  }

  @Test func knowsMistakes() {
    #expect(complaints("columns: {}").first?.contains("nothing to write") == true)
    #expect(complaints("columns: { v: event }, mode: upsert").first?.contains("needs 'key'") == true)
    #expect(
      complaints("columns: { v: event }, key: v").first?.contains("has no effect without 'mode: upsert'") == true)
    #expect(complaints("columns: { v: event }, mode: upsert, key: w").first?.contains("'w'") == true)
    #expect(complaints("columns: { v: event }").isEmpty)
  }
}
