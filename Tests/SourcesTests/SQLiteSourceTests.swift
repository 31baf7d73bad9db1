import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing
import Transport

/// The source `sqlite` on files made by SQLite's own shell.
@Suite(.serialized, .enabled(if: SQLiteShell.isInstalled, "needs sqlite3")) struct SQLiteSourceTests {
  let scratch = Scratch()
  private var path: String { scratch("a.db") }
  private var shell: SQLiteShell { SQLiteShell(path) }

  private func pipeline(_ parameters: String, restoring state: [UInt8]? = nil, events: Int = .max) throws
    -> RealPipeline
  {
    try RealPipeline(
      """
      sources: { rows: { sqlite: { path: '\(path)', \(parameters) } } }
      sinks:
        out: { from: rows, probe: {} }
        lost: { from: rows.errors, chain: [ { map: '[event.code, event.error]' } ], probe: {} }
      """, restoring: state
    ) { $0.executor.limits.events = events }
  }

  private func complaints(_ parameters: String, then chain: String = "[]") -> [String] {
    PipelineText.complaints(
      """
      sources: { rows: { sqlite: { path: a.db, \(parameters) } } }
      sinks: { out: { from: rows, chain: \(chain), discard: {} } }
      """)
  }

  @Test func sendsWhatIsStored() throws {
    try shell.run(
      """
      CREATE TABLE t(a, b);
      INSERT INTO t VALUES (1, NULL), (9007199254740993, 0.5), ('ä"x', x'00ff'), (CAST(x'ff61' AS TEXT), '');
      """)
    let running = try pipeline("query: SELECT * FROM t")
    #expect(running.runToEnd() == .completed)
    #expect(
      running.events == [
        #"{"a":1,"b":null}"#, #"{"a":9007199254740993,"b":0.5}"#, #"{"a":"ä\"x","b":"AP8="}"#, #"{"a":"/2E=","b":""}"#,
      ])
  }

  @Test func convertsToDeclaredTypes() throws {
    try shell.run(
      """
      CREATE TABLE t(id, flag, at, n);
      INSERT INTO t VALUES (1, 1, '2026-01-02 03:04:05', 2), (2, 0, 1767225600, 2.5), (3, 7, NULL, 1), (4, NULL, 'x', 1);
      """)
    let running = try pipeline(
      "query: SELECT * FROM t ORDER BY id, columns: { id: int, flag: bool, at: timestamp, n: double }")
    #expect(running.runToEnd() == .completed)
    #expect(
      running.events == [
        #"{"id":1,"flag":true,"at":"2026-01-02T03:04:05Z","n":2.0}"#,
        #"{"id":2,"flag":false,"at":"2026-01-01T00:00:00Z","n":2.5}"#,
      ])
    #expect(
      running.probe("lost").events == [
        #"["RX501","the column 'flag' is not of type bool"]"#, #"["RX501","the column 'at' is not of type timestamp"]"#,
      ])
  }

  /// With pages of every size, and turns of any size.
  @Test(arguments: [1, 2, 7, 1000], [1, 3, .max])
  func readsByAGrowingKey(_ rows: Int, _ events: Int) throws {
    try shell.run(
      """
      CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v);
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) INSERT INTO t SELECT i, i * i FROM n;
      """)
    let running = try pipeline("query: 'SELECT v, id FROM t -- all', key: id, maxRows: \(rows)", events: events)
    #expect(running.runToEnd() == .completed)
    #expect(running.events == (1...20).map { #"{"v":\#($0 * $0),"id":\#($0)}"# })
  }

  /// Each restart continues after the last row of a turn: nothing is skipped or repeated.
  @Test(arguments: [1, 3, .max]) func continuesBehindItsKey(_ events: Int) throws {
    try shell.run("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v);")
    var seen: [String] = []
    var state: [UInt8]?
    for round in 0..<4 {
      try shell.run("INSERT INTO t(v) VALUES (\(round)), (\(round)), (\(round));")
      let running = try pipeline(
        "query: SELECT * FROM t;, key: id, every: 10ms, maxRows: 2", restoring: state, events: events)
      // In the middle, for some rounds.
      running.run { running.events.count >= (round == 3 ? 12 - seen.count : 2) }
      state = try #require(running.suspend()) as [UInt8]
      seen += running.events
    }
    #expect(seen == (0..<12).map { #"{"id":\#($0 + 1),"v":\#($0 / 3)}"# })
  }

  @Test func beginsWhereTheFileSays() throws {
    try shell.run("CREATE TABLE t(a, b); INSERT INTO t VALUES (1, 1), (1, 2), (2, 1), (2, NULL), (3, 0);")
    let running = try pipeline("query: SELECT * FROM t, key: [a, b], start: [1, 1]")
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#"{"a":1,"b":2}"#, #"{"a":2,"b":1}"#, #"{"a":3,"b":0}"#])
  }

  /// Keys of all types, and texts that a collation treats as equal.
  @Test func knowsEveryKey() throws {
    try shell.run(
      """
      CREATE TABLE t(k COLLATE NOCASE);
      INSERT INTO t VALUES ('b'), ('B'), (x'00'), (2.5), (-1), (NULL), ('a b'), ('');
      """)
    var state: [UInt8]?
    var seen: [String] = []
    for count in [3, 7] {
      let running = try pipeline("query: SELECT k FROM t, key: k, every: 10ms, maxRows: 1", restoring: state)
      running.run { seen.count + running.events.count >= count }
      state = try #require(running.suspend()) as [UInt8]
      seen += running.events
    }
    #expect(
      seen == [
        #"{"k":-1}"#, #"{"k":2.5}"#, #"{"k":""}"#, #"{"k":"B"}"#, #"{"k":"a b"}"#, #"{"k":"b"}"#, #"{"k":"AA=="}"#,
      ])
  }

  @Test func aKeyThatIsNoneIsAnError() throws {
    try shell.run("CREATE TABLE t(k); INSERT INTO t VALUES (1), (2), (2.0), (3);")
    let running = try pipeline("query: SELECT k FROM t, key: k")
    running.runToEnd()
    #expect(
      running.failure?.message
        == "two rows have the same key, 2.0: add a column to 'key' that distinguishes them")
    #expect(running.events.isEmpty)
  }

  @Test(arguments: [
    ("query: SELECT 1; SELECT 2", "'query' is not a single statement that only reads"),
    ("query: DELETE FROM t", "'query' is not a single statement that only reads"),
    ("query: 'SELECT 1 AS a, 2 AS a'", "'query' has two columns 'a': name one of them with AS"),
    ("query: SELECT * FROM t, key: id", "'query' has no column 'id', which 'key' names"),
    ("query: SELECT v FROM t, columns: { w: int }", "'query' has no column 'w', which 'columns' names"),
    ("query: SELECT v FROM t, maxRows: 1", "the result has more than 1 rows, which 'maxRows' allows"),
    ("query: SELECT v FROM t, maxBytes: 20B", "the result has more than the 20 bytes that 'maxBytes' allows"),
    ("query: 'SELECT :x'", "'query' has the parameter ':x', but 'bind' does not"),
    ("query: SELECT 1, bind: { y: '1' }", "'bind' has 'y', but 'query' has no parameter ':y'"),
    ("query: 'SELECT ?'", "a parameter of 'query' has no name: write :NAME"),
    ("query: SELECT x FROM t", ": no such column: x"), ("query: SELECT * FROM u", ": no such table: u"),
    (
      "timeout: 50ms, query: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
      "the query had not ended after 50ms"
    ),
  ])
  func failsWith(_ parameters: String, _ message: String) throws {
    try shell.run("CREATE TABLE t(v); INSERT INTO t VALUES (1), (2);")
    let running = try pipeline(parameters)
    running.runToEnd()
    let found = running.failure?.message ?? "none"
    #expect(found.hasSuffix(message), "\(found)")
    #expect(running.events.isEmpty)
  }

  @Test func bindsValuesAndNoText() throws {
    try shell.run("CREATE TABLE t(v); INSERT INTO t VALUES ('a'), (''' OR 1 --');")
    let running = try RealPipeline(
      """
      sources: { names: { values: ["' OR 1 --", "b", "a"] } }
      sinks:
        out:
          from: names
          chain:
            - flattenMap:
                policy: concat
                signal:
                  sqlite: { path: '\(path)', query: SELECT v FROM t WHERE v = :v, bind: { v: event } }
          probe: {}
      """)
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#"{"v":"' OR 1 --"}"#, #"{"v":"a"}"#])
  }

  @Test func createsNothing() throws {
    let running = try pipeline("query: SELECT 1")
    running.runToEnd()
    #expect(running.failure?.message == "\(path): unable to open database file: No such file or directory")
    #expect(!FileManager.default.fileExists(atPath: path))
  }

  /// A poll of a locked file fails, and the next one continues.
  @Test func waitsForOthers() throws {
    try shell.run("CREATE TABLE t(id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1);")
    var locker: Database? = try Database(path, .foreignWriting(creates: false))
    try locker?.execute("BEGIN EXCLUSIVE; INSERT INTO t VALUES (2)")
    let running = try pipeline("query: SELECT id FROM t, key: id, every: 5ms, busyTimeout: 1ms")
    running.run { running.probe("lost").events.count >= 2 }
    #expect(running.probe("lost").events.first == #"["RX528","\#(path): database is locked, also after 1ms"]"#)
    #expect(running.events.isEmpty)
    try locker?.execute("COMMIT")
    locker = nil
    running.run { running.events.count == 2 }
    #expect(running.events == [#"{"id":1}"#, #"{"id":2}"#])
    _ = running.suspend()
  }

  @Test func refusesTheStateOfAPipeline() throws {
    try shell.run("PRAGMA application_id = 0x72786473; CREATE TABLE t(v);")
    let running = try pipeline("query: SELECT v FROM t")
    running.runToEnd()
    #expect(
      running.failure?.message == "\(path) is the state of a pipeline of rxd, which no pipeline may read")
  }

  @Test func knowsMistakes() {
    #expect(complaints("query: ''").first?.contains("'query' of 'sqlite' is empty") == true)
    #expect(complaints("query: \"SELECT '{{ event }}'\"").first?.contains("has no templates") == true)
    #expect(complaints("query: SELECT 1, start: 3").first?.contains("no effect without 'key'") == true)
    #expect(complaints("query: SELECT 1, key: [a, b], start: 3").first?.contains("has 1 value") == true)
    #expect(complaints("query: SELECT 1, key: [a, a]").first?.contains("twice") == true)
    #expect(
      complaints("query: SELECT 1, columns: { id: int }", then: "[ { filter: event.di > 1 } ]").first?
        .contains("di") == true)
    #expect(
      complaints("query: SELECT 1, columns: { id: int, n: string }", then: "[ { filter: event.id > 'x' } ]").count == 1)
    #expect(complaints("query: SELECT 1, key: id", then: "[ { filter: event.id > 1 && event.x == 2 } ]").isEmpty)
  }
}
