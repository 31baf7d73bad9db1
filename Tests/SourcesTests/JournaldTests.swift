import Foundation
import PipelineCore
import PipelineHost
import Testing

/// The source `journald`, on files written by systemd's own tools.
@Suite(.enabled(if: JournalFiles.canBeMade, "needs systemd-journal-remote of Debian"))
struct JournaldTests {
  private let journal = JournalFiles()
  typealias Entry = JournalFiles.Entry

  private func pipeline(
    _ parameters: String = "follow: false", chain: String = "{ map: event.MESSAGE }", restoring: [UInt8]? = nil
  ) throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { journald: { directory: '\(journal.path)', \(parameters) } } }
      sinks: { out: { from: in, chain: [ \(chain) ], probe: {} }, bad: { from: in.errors, probe: {} } }
      """, restoring: restoring)
  }

  private func messages(_ parameters: String, chain: String = "{ map: event.MESSAGE }") throws -> [String] {
    let pipeline = try pipeline(parameters, chain: chain)
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.probe("bad").events == [])
    return pipeline.events
  }

  @Test func typesFields() throws {
    var entry = Entry([
      "MESSAGE": "two\nlines", "PRIORITY": "3", "_PID": "12", "_SYSTEMD_UNIT": "a.service", "CODE_LINE": "no number",
      "_SOURCE_REALTIME_TIMESTAMP": "1700000000000007", "A": "1", "EMPTY": "",
    ])
    entry.fields += [("A", Array("2".utf8)), ("DATA", [0xFF, 0x00, 0x0A]), ("A", Array("3".utf8))]
    try journal.write([entry])
    journal.close()
    let events = try messages("follow: false", chain: "{ unset: [__CURSOR, _BOOT_ID] }")
    #expect(events.count == 1)
    let event = try #require(
      try JSONSerialization.jsonObject(with: Data(events.first.map { Array($0.utf8) } ?? [])) as? [String: Any])
    #expect(event["MESSAGE"] as? String == "two\nlines")
    #expect(event["PRIORITY"] as? Int == 3 && event["_PID"] as? Int == 12)
    #expect(event["CODE_LINE"] as? String == "no number")
    #expect(event["A"] as? [String] == ["1", "2", "3"])
    #expect(event["DATA"] as? String == Data([0xFF, 0x00, 0x0A]).base64EncodedString())
    #expect(event["EMPTY"] as? String == "")
    #expect(event["__REALTIME_TIMESTAMP"] as? String == "2023-11-14T22:13:21Z")
    #expect(event["_SOURCE_REALTIME_TIMESTAMP"] as? String == "2023-11-14T22:13:20.000007Z")
    #expect(event["__MONOTONIC_TIMESTAMP"] as? String == "1700000.001s")
    #expect(event["__TRUNCATED"] == nil)
  }

  /// `rxd check` knows the types.
  @Test func theCheckKnowsTheFields() {
    func complaints(_ chain: String) -> [String] {
      PipelineText.complaints(
        "sources: { in: { journald: {} } }\nsinks: { out: { from: in, chain: [ \(chain) ], discard: {} } }")
    }
    #expect(complaints("{ filter: 'event.__REALTIME_TIMESTAMP < timestamp(\"2026-01-01T00:00:00Z\")' }") == [])
    #expect(complaints("{ filter: 'event.?PRIORITY.orValue(6) <= 3' }") == [])
    #expect(complaints("{ map: event.__CURSOR + 1 }").count == 1)
  }

  @Test(arguments: [
    ("units: [a]", ["of a", "about a"]), ("units: [a.service, b]", ["of a", "about a", "of b"]),
    ("priority: warning", ["of a", "of b"]), ("priority: 3", ["of b"]),
    ("match: { SYSLOG_IDENTIFIER: x }", ["of b", "plain"]),
    ("match: { SYSLOG_IDENTIFIER: [x, y] }", ["of a", "of b", "plain"]),
    ("match: { SYSLOG_IDENTIFIER: x, PRIORITY: 7 }", ["plain"]),
    ("units: [a, b], priority: err", ["of b"]), ("units: [c]", []),
  ]) func readsWhatIsAskedFor(_ parameters: String, _ expected: [String]) throws {
    try journal.write([
      Entry(["MESSAGE": "of a", "_SYSTEMD_UNIT": "a.service", "PRIORITY": "4", "SYSLOG_IDENTIFIER": "y"]),
      Entry(["MESSAGE": "about a", "_PID": "1", "UNIT": "a.service", "PRIORITY": "6"]),
      Entry(["MESSAGE": "of b", "_SYSTEMD_UNIT": "b.service", "PRIORITY": "3", "SYSLOG_IDENTIFIER": "x"]),
      Entry(["MESSAGE": "plain", "PRIORITY": "7", "SYSLOG_IDENTIFIER": "x"]),
      Entry(["MESSAGE": "no priority"]),
    ])
    journal.close()
    #expect(try messages("follow: false, \(parameters)") == expected.map { "\"\($0)\"" })
  }

  @Test func startsAtTheGivenPlace() throws {
    let hourAgo = UInt64(Date().timeIntervalSince1970 - 3600) * 1_000_000
    try journal.write([
      Entry(["MESSAGE": "old"]), Entry(["MESSAGE": "second"]),
      Entry(["MESSAGE": "recent"], at: hourAgo + 600_000_000), Entry(["MESSAGE": "last"], at: hourAgo + 700_000_000),
    ])
    journal.close()
    let all = [#""old""#, #""second""#, #""recent""#, #""last""#]
    #expect(try messages("follow: false, since: beginning") == all)
    #expect(try messages("follow: false, since: -1h") == Array(all[2...]))
    #expect(try messages("follow: false, since: 1h") == Array(all[2...]))
    #expect(try messages("follow: false, since: '2023-11-14T22:13:22Z'") == Array(all[1...]))
    #expect(try messages("follow: false, since: '2023-11-14T22:13:22.000001Z'") == Array(all[2...]))
    // The file has no entries of this boot.
    #expect(try messages("follow: false, since: boot") == [])
    let cursors = try messages("follow: false", chain: "{ map: event.__CURSOR }")
    #expect(try messages("follow: false, since: \(cursors[1])") == Array(all[2...]))
  }

  @Test func startsWithTheBoot() throws {
    let boot = try String(contentsOfFile: "/proc/sys/kernel/random/boot_id", encoding: .utf8)
      .filter { $0 != "-" && $0 != "\n" }
    try journal.write(messages: ["of another boot"])
    journal.close()
    let text = """
      __REALTIME_TIMESTAMP=1800000000000000
      __MONOTONIC_TIMESTAMP=5
      _BOOT_ID=\(boot)
      MESSAGE=of this boot


      """
    journal.folder.append(text, to: "boot.export")
    try JournalFiles.run(
      "systemd-journal-remote", "--split-mode=none", "-o", journal.folder("boot.journal"),
      journal.folder("boot.export"))
    #expect(try messages("follow: false, since: boot") == ["\"of this boot\""])
    #expect(try messages("follow: false").count == 2)
  }

  @Test func cutsLongFields() throws {
    let long = String(repeating: "x", count: 100_000)
    try journal.write([
      Entry(["MESSAGE": "short", "LONG": long, "LAST": "l"]),
      Entry(["MESSAGE": String(repeating: "é", count: 30_000)]),
    ])
    journal.close()
    let events = try messages(
      "follow: false, maxField: 1001B",
      chain: "{ map: '[event.?LONG.orValue(\"\").size(), event.MESSAGE.size(), event.?__TRUNCATED]' }")
    // A two-byte character is not split.
    #expect(events == [#"[1001,5,["LONG"]]"#, #"[0,500,["MESSAGE"]]"#])
    #expect(try messages("follow: false, maxField: 200KiB", chain: "{ map: event.?__TRUNCATED }") == ["null", "null"])
  }

  /// Later entries, in the same file and in the files after it; then old files are removed.
  @Test func followsThroughRotation() throws {
    try journal.write(messages: ["before"])
    let pipeline = try pipeline("since: beginning")
    #expect(pipeline.run { pipeline.events.count == 1 })
    try journal.write(messages: ["a", "b"])
    #expect(pipeline.run { pipeline.events.count == 3 })
    try journal.rotate()
    try journal.write(messages: ["c"])
    #expect(pipeline.run { pipeline.events.count == 4 })
    try journal.rotate()
    try journal.write(messages: ["d"])
    try journal.vacuum(keeping: 1)
    try journal.write(messages: ["e"])
    #expect(pipeline.run { pipeline.events.count == 6 })
    #expect(pipeline.events == ["before", "a", "b", "c", "d", "e"].map { "\"\($0)\"" })
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
    #expect(try journal.journalctl("-o", "cat").contains("before") == false)
  }

  @Test func startsAtTheEnd() throws {
    try journal.write(messages: ["old"])
    journal.close()
    let pipeline = try pipeline("since: end")
    pipeline.launch()
    try journal.write(messages: ["new"])
    #expect(pipeline.run { !pipeline.events.isEmpty })
    #expect(pipeline.events == ["\"new\""])
    // Entries from the time when it was down are not skipped, even if it had sent nothing before.
    let state = pipeline.suspend()
    try journal.write(messages: ["while it was down"])
    journal.close()
    let next = try self.pipeline("since: end", restoring: state)
    #expect(next.run { !next.events.isEmpty })
    #expect(next.events == ["\"while it was down\""])
  }

  @Test func remembersWhereItStartedAlthoughNothingCame() throws {
    try journal.write(messages: ["old"])
    journal.close()
    let pipeline = try pipeline("since: end")
    let state = pipeline.suspend()
    try journal.write(messages: ["while it was down"])
    journal.close()
    let next = try self.pipeline("since: end", restoring: state)
    #expect(next.run { !next.events.isEmpty })
    #expect(next.events == ["\"while it was down\""])
  }

  /// After a restart it continues after the last entry, although the file has been renamed.
  @Test func continuesAfterARestart() throws {
    try journal.write(messages: (0..<400).map { "\($0)" })
    journal.close()
    let pipeline = try pipeline("follow: true")
    #expect(pipeline.run { pipeline.events.count == 400 })
    let state = pipeline.suspend()
    try journal.rotate()
    try journal.write(messages: (400..<500).map { "\($0)" })
    journal.close()
    let next = try self.pipeline("follow: false", restoring: state)
    #expect(next.runToEnd() == .completed)
    #expect(next.events == (400..<500).map { "\"\($0)\"" })
    #expect(next.log.allSatisfy { !$0.contains("is gone") })
  }

  /// If the last entries do not pass the filter, no entries are read again, and no warning is given.
  @Test func continuesWithOtherConditions() throws {
    try journal.write([
      Entry(["MESSAGE": "1", "PRIORITY": "3"]), Entry(["MESSAGE": "2", "PRIORITY": "6"]),
      Entry(["MESSAGE": "3", "PRIORITY": "3"]),
    ])
    journal.close()
    let pipeline = try pipeline("match: { PRIORITY: '6' }")
    #expect(pipeline.run { pipeline.events.count == 1 })
    let state = pipeline.suspend()
    let next = try self.pipeline("match: { PRIORITY: '3' }", restoring: state)
    #expect(next.run { next.events.count == 1 })
    #expect(next.events == ["\"3\""])
    #expect(next.log.allSatisfy { !$0.contains("is gone") })
  }

  /// If entries were removed before they were read, a warning says so, and the remaining ones are read.
  @Test func reportsThatItsPlaceIsGone() throws {
    try journal.write(messages: ["a"])
    journal.close()
    let pipeline = try pipeline("follow: true")
    #expect(pipeline.run { pipeline.events.count == 1 })
    let state = pipeline.suspend()
    try journal.write(messages: ["b"])
    try journal.rotate()
    try journal.write(messages: ["c"])
    try journal.rotate()
    try journal.write(messages: ["d"])
    journal.close()
    try journal.vacuum(keeping: 2)
    let next = try self.pipeline("follow: false", restoring: state)
    #expect(next.runToEnd() == .completed)
    #expect(next.events == ["\"c\"", "\"d\""])
    #expect(next.log.contains { $0.contains("is gone: reading continues with the next one") })
  }

  @Test func waitsForTheFirstFile() throws {
    let pipeline = try pipeline("follow: true")
    #expect(pipeline.run { pipeline.log.contains { $0.contains("there is no journal file yet") } })
    try journal.write(messages: ["first"])
    #expect(pipeline.run { !pipeline.events.isEmpty })
    #expect(pipeline.events == ["\"first\""])
  }

  @Test func reportsWhyItCannotRead() throws {
    let missing = try RealPipeline(
      "sources: { in: { journald: { directory: '\(journal.path)/none' } } }\nsinks: { out: { from: in, discard: {} } }")
    missing.runToEnd()
    #expect(missing.failure?.message == "\(journal.path)/none cannot be opened: No such file or directory")
  }

  @Test(arguments: [
    ("units: ['ngin*']", "'ngin*' cannot be the name of a unit"),
    ("match: { systemd_unit: a }", "'systemd_unit' is not a field of the journal"),
    ("match: { __CURSOR: a }", "'__CURSOR' is not a field that can be matched"),
    ("since: yesterday", "'since' of 'journald' cannot be 'yesterday'"),
    ("priority: 8", "'priority' of 'journald' cannot be '8'"),
    ("since: end, follow: false", "'since: end' without 'follow' reads nothing"),
    ("maxField: 1GiB", "'maxField' of 'journald' must be between 1B and 16MiB"),
  ]) func refuses(_ parameters: String, _ message: String) {
    let complaints = PipelineText.complaints(
      "sources: { in: { journald: { \(parameters) } } }\nsinks: { out: { from: in, discard: {} } }")
    #expect(complaints.count == 1 && complaints.first?.contains(message) == true, "\(complaints)")
  }

  /// More entries than fit into a chunk, and a pipeline that accepts them slowly.
  @Test func readsManyEntriesInOrder() throws {
    let count = 5000
    try journal.write(messages: (0..<count).map { "\($0)" })
    journal.close()
    let pipeline = try pipeline(
      chain:
        "{ map: int(event.MESSAGE) }, { combinePrevious: { start: -1, next: event - previous } }, { filter: event != 1 }"
    )
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.counters.received == UInt64(count))
    #expect(pipeline.events == [])
  }
}

/// Against the test's own journald.
@Suite(.enabled(if: JournalDaemon.canRun, "needs root and systemd-journald"))
struct JournaldPeerTests {
  @Test func readsWhatJournaldWrites() throws {
    let daemon = try JournalDaemon()
    let directory = try #require(daemon.directory)
    let pipeline = try RealPipeline(
      """
      sources: { in: { journald: { directory: '\(directory)', match: { SYSLOG_IDENTIFIER: me } } } }
      sinks: { out: { from: in, chain: [ { map: '[event.MESSAGE, event.PRIORITY, event._PID]' } ], probe: {} } }
      """)
    let client = try #require(SocketClient(path: daemon.socket, isDatagram: true))
    for number in 0..<100 {
      client.send("MESSAGE=\(number)\nPRIORITY=5\nSYSLOG_IDENTIFIER=me\n")
      if number == 50 {
        #expect(pipeline.run { pipeline.events.count == 51 })
        daemon.rotate()
      }
    }
    #expect(pipeline.run { pipeline.events.count == 100 })
    #expect(pipeline.events == (0..<100).map { "[\"\($0)\",5,\(getpid())]" })
  }
}
