import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

/// `rxd state` and `rxd deadletters`, on the stores of a run.
@Suite(.timeLimit(.minutes(10)))
struct StateVerbTests {
  private let folder: Scratch
  private let state: String

  init() throws {
    folder = try Scratch()
    state = folder.path + "/state"
  }

  private func rxd(_ arguments: String..., input: String = "") throws -> Rxd.Outcome {
    try Rxd.run(arguments: arguments, state: state, input: input)
  }

  private func json(_ text: String) throws -> Any { try JSONSerialization.jsonObject(with: Data(text.utf8)) }

  /// Replaces times and other varying texts by one word each.
  private func shown(_ text: String) -> String {
    text.replacing(#/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/#, with: "TIME")
      .replacing("//", with: "/").replacing(folder.path.replacing("//", with: "/"), with: "FOLDER")
      .replacing(#/process \d+/#, with: "process PID")
  }

  /// Follows a file and counts its events; ends with SIGTERM after the last line.
  private func follow(_ lines: [String], expecting last: String) throws {
    let file = try folder.write(
      "tail.yaml",
      """
      name: tail
      sources: { n: { file: { path: \(folder.path)/in.ndjson, follow: true, decode: json } } }
      signals: { counted: { from: n, chain: [ { scan: { start: 0, next: running + 1 } } ] } }
      sinks: { out: { from: counted, stdout: json } }

      """)
    let input = folder.path + "/in.ndjson"
    if !FileManager.default.fileExists(atPath: input) { try folder.write("in.ndjson", "") }
    let handle = try #require(FileHandle(forWritingAtPath: input))
    try handle.seekToEnd()
    try handle.write(contentsOf: Data((lines.joined(separator: "\n") + "\n").utf8))
    try handle.close()
    let process = try RunningRxd([file, "--state-dir", state])
    while let line = try process.line() { if line == last { break } }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// Stores three events that no server accepts.
  private func fillOutbox() throws {
    let file = try folder.write(
      "send.yaml",
      """
      name: send
      sources: { n: { stdin: { decode: json } } }
      sinks: { web: { from: n, http: { url: 'http://127.0.0.1:1/', encode: ndjson } } }

      """)
    let process = try RunningRxd(
      [file, "--state-dir", state, "--log-format", "text", "--graceful-shutdown-limit-secs", "0"])
    process.write("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n")
    try process.errorLine(with: "trying again")
    process.send(SIGTERM)
    _ = try process.wait()
  }

  // MARK: Looking

  @Test func showsPositionsAndSteps() throws {
    try follow(["1", "2", "3"], expecting: "3")
    let list = try rxd("state", "ls")
    #expect(list.status == 0)
    #expect(
      shown(list.output).contains(
        #/PIPELINE  COMMITTED                 STATE BYTES  TO DELIVER  DEAD LETTERS\ntail      TIME\s+\d+  -\s+0\n\nNo process uses the directory.\n/#
      ), "\(list.output)")
    let show = try rxd("state", "show", "tail")
    #expect(show.status == 0)
    let text = shown(show.output)
    #expect(
      text.contains("pipeline: tail\nstore: FOLDER/state/pipelines/tail.db\ncommitted: TIME\nin use by: no process\n"))
    #expect(text.contains("SOURCE  HAS READ\nn/file  FOLDER/in.ndjson: 6 of 6 bytes\n"), "\(text)")
    #expect(text.contains(#/\ncounted/scan +\d+ +1\b/#), "\(text)")
    let steps = try #require(
      (try json(rxd("state", "show", "tail", "--format", "json").output) as? [String: Any])?["steps"])
    let source = try #require((steps as? [[String: Any]])?.first { $0["step"] as? String == "n/file" })
    let position = try #require((source["positions"] as? [[String: Any]])?.first)
    #expect(position["bytes"] as? Int == 6 && (position["path"] as? String)?.hasSuffix("/in.ndjson") == true)
  }

  @Test func showsWhatIsToBeDelivered() throws {
    try fillOutbox()
    let list = try #require(try json(rxd("state", "ls", "--format", "json").output) as? [[String: Any]])
    #expect(list.count == 1 && list[0]["pipeline"] as? String == "send" && list[0]["in_use_by"] is NSNull)
    let outbox = try #require((list.item(0)["outbox"] as? [[String: Any]])?.first)
    #expect(outbox["sink"] as? String == "web" && outbox["events"] as? Int == 3)
    #expect(try rxd("state", "ls").output.contains("3 to web"))
    #expect(try rxd("state", "show", "send").output.contains(#/\nweb +3 +\d+ +\d+/#))
  }

  @Test func readsBesideTheDaemonAndChangesNothingThere() throws {
    let file = try folder.write(
      "a.yaml", "name: a\nsources: { n: { stdin: { decode: json } } }\nsinks: { out: { from: n, stdout: json } }\n")
    let daemon = try RunningRxd([file, "--state-dir", state])
    daemon.write("1\n")
    #expect(try daemon.line() == "1")
    let list = try rxd("state", "ls")
    #expect(
      list.status == 0 && list.output.contains("In use by process \(daemon.pid)."), "\(list.output)\(list.errors)")
    #expect(try rxd("state", "show", "a").output.contains("in use by: process \(daemon.pid)\n"))
    let document = try folder.write("a.json", try rxd("state", "export", "a").output)
    for arguments in [
      ["state", "import", "a", document, "--yes"], ["state", "reset", "a", "--yes"],
      ["deadletters", "replay", "a"], ["deadletters", "drop", "a", "--all", "--yes"],
    ] {
      let outcome = try Rxd.run(arguments: arguments + ["--state-dir", state])
      #expect(outcome.status == 75)
      #expect(outcome.errors.contains("is in use by process \(daemon.pid): stop it first"), "\(outcome.errors)")
    }
    daemon.write("2\n")
    #expect(try daemon.line() == "2")
    daemon.closeInput()
    #expect(try daemon.wait() == 0)
  }

  @Test func reportsWhatIsMissing() throws {
    let nowhere = try rxd("state", "ls")
    #expect(nowhere.status == 66 && nowhere.errors == "rxd: there is no state directory \(state)\n")
    #expect(!FileManager.default.fileExists(atPath: state))
    let unnamed = try Rxd.run(
      arguments: ["state", "ls"], environment: ["RXD_STATE_DIR": "", "STATE_DIRECTORY": ""])
    #expect(unnamed.status == 64 && unnamed.errors.contains("--state-dir"))
    try follow(["1"], expecting: "1")
    let other = try rxd("state", "show", "tial")
    #expect(other.status == 66)
    #expect(other.errors == "rxd: the state directory \(state) has no pipeline 'tial'; it has tail\n")
    try Data("no store".utf8).write(to: URL(fileURLWithPath: state + "/pipelines/tail.db"))
    let foreign = try rxd("state", "show", "tail")
    #expect(foreign.status == 74 && foreign.errors.contains("it is not a store of rxd"), "\(foreign.errors)")
  }

  // MARK: Changing

  @Test func aStateMovesToAnotherDirectory() throws {
    try follow(["1", "2"], expecting: "2")
    let exported = try rxd("state", "export", "tail")
    #expect(exported.status == 0)
    let document = try #require(try json(exported.output) as? [String: Any])
    #expect(document["rxd_state"] as? Int == 1 && document["pipeline"] as? String == "tail")
    let file = try folder.write("tail.json", exported.output)
    try FileManager.default.removeItem(atPath: state)
    let imported = try rxd("state", "import", "tail", file)
    #expect(imported.status == 0, "\(imported.errors)")
    #expect(imported.output.hasPrefix("'tail' now has a state of "))
    #expect(imported.output.hasSuffix(" bytes, 0 events to deliver and 0 dead letters\n"))
    #expect(try rxd("state", "export", "tail").output == exported.output)
    // It continues after the second line, with a count of two.
    try follow(["3"], expecting: "3")
    // Existing state is not replaced without a confirmation.
    let refused = try rxd("state", "import", "tail", file)
    #expect(refused.status == 64 && refused.errors.contains("Add --yes"), "\(refused.errors)")
    #expect(try rxd("state", "import", "tail", file, "--yes").status == 0)
    #expect(try rxd("state", "export", "tail").output == exported.output)
  }

  @Test(arguments: [
    ("{}", "'rxd_state' is missing"), ("{ \"rxd_state\": 9 }", "its format is 9"),
    ("{ \"rxd_state\": 1", "expected ',' or '}' at byte"),
    (
      #"{ "rxd_state": 1, "identity": "a", "pipeline": "p", "last_row": 0, "state": "AAAA" }"#,
      "its state cannot be used"
    ),
    (
      #"{ "rxd_state": 1, "identity": "a", "pipeline": "p", "last_row": 0, "state": null, "outbox": [{ "number": 3, "sink": "o", "events": 1, "body": "AA" }], "dead_letters": [] }"#,
      "'last_row' is below a row"
    ),
  ])
  func whatIsNoExportIsRefused(_ text: String, _ reason: String) throws {
    let outcome = try rxd("state", "import", "p", try folder.write("p.json", text))
    #expect(outcome.status == 65 && outcome.errors.contains("is not an exported state"), "\(outcome.errors)")
    #expect(outcome.errors.contains(reason), "\(outcome.errors)")
    #expect(!FileManager.default.fileExists(atPath: state))
  }

  @Test func aStepBeginsAnewAlone() throws {
    try follow(["1", "2"], expecting: "2")
    let unknown = try rxd("state", "reset", "tail", "--step", "counted/map", "--yes")
    #expect(unknown.status == 66 && unknown.errors.contains("it has state of: "), "\(unknown.errors)")
    let unasked = try rxd("state", "reset", "tail", "--step", "counted/scan")
    #expect(unasked.status == 64 && unasked.errors.contains("Add --yes"))
    let reset = try rxd("state", "reset", "tail", "--step", "counted/scan", "--yes")
    #expect(
      reset.status == 0 && reset.output.contains(#/^removed from 'tail': what 'counted\/scan' kept, \d+ bytes\n$/#))
    #expect(!(try rxd("state", "show", "tail").output.contains("counted/scan")))
    // The count starts again; the file continues at its position.
    try follow(["3"], expecting: "1")
  }

  @Test func theWholeStateGoes() throws {
    try follow(["1", "2"], expecting: "2")
    let reset = try rxd("state", "reset", "tail", "--yes")
    #expect(reset.output.contains(#/^removed from 'tail': the state, \d+ bytes\n$/#), "\(reset.output)")
    #expect(try rxd("state", "show", "tail").output.contains("state: none"))
    #expect(try rxd("state", "reset", "tail", "--yes").output == "'tail' has no state to reset\n")
    try follow(["3"], expecting: "3")
  }

  @Test func allMovesToAnotherName() throws {
    try follow(["1", "2"], expecting: "2")
    try fillOutbox()
    let taken = try rxd("state", "rename", "send", "tail")
    #expect(taken.status == 1 && taken.errors.contains("has stored data already"))
    let moved = try rxd("state", "rename", "send", "mail")
    #expect(moved.status == 0)
    #expect(moved.output.contains("3 events to deliver"), "\(moved.output)\(moved.errors)")
    let list = try rxd("state", "ls")
    #expect(list.output.contains("mail") && list.output.contains("3 to web") && !list.output.contains("send  "))
    #expect(try rxd("state", "rename", "send", "other").status == 66)
  }

  /// Stored data of a pipeline whose file is gone is shown as such, and stays until it is deleted.
  @Test func whatNoFileHasIsDeleted() throws {
    try follow(["1", "2"], expecting: "2")
    #expect(!(try rxd("state", "ls")).output.contains("Not in the files"))
    try fillOutbox()
    let list = try rxd("state", "ls")
    #expect(list.output.contains("Not in the files of the last start: tail."), "\(list.output)")
    let stores = try #require(try json(try rxd("state", "ls", "--format", "json").output) as? [[String: Any]])
    #expect(stores.map { $0["has_file"] as? Bool } == [true, false])
    #expect(try rxd("state", "delete", "tail").status == 64)
    let removed = try rxd("state", "delete", "tail", "--yes")
    #expect(removed.status == 0 && removed.output.hasPrefix("removed all that 'tail' kept: a state of"))
    let left = try FileManager.default.contentsOfDirectory(atPath: state + "/pipelines")
    #expect(!left.contains { $0.hasPrefix("tail") }, "\(left)")
  }

  @Test func theEventsOfASinkGo() throws {
    try fillOutbox()
    let unknown = try rxd("state", "reset", "send", "--outbox", "other", "--yes")
    #expect(unknown.status == 66 && unknown.errors.contains("events wait for: web"))
    let reset = try rxd("state", "reset", "send", "--outbox", "web", "--yes")
    #expect(reset.output == "removed from 'send': 3 events that 'web' has to deliver\n")
    #expect(try rxd("state", "ls").output.contains(#/send .* -  +0\n/#))
  }

  // MARK: Dead letters

  private func table(encode: String) -> String {
    """
    name: table
    sources: { n: { stdin: { decode: json } } }
    sinks:
      out: { from: n, chain: [ { filter: event != 7, onError: route }, { map: "event == 8 ? event.x : event" } ], stdout: \(encode) }

    """
  }

  /// Two events that the sink cannot encode, and one that a step rejects.
  private func rejectSome() throws -> String {
    let file = try folder.write("table.yaml", table(encode: "csv"))
    let outcome = try rxd("run", file, input: "{\"a\":1}\n\"x\"\n8\n\"y\"\n")
    #expect(outcome.status == 0, "\(outcome.errors)")
    return file
  }

  @Test func deadLettersAreCountedAndShown() throws {
    _ = try rejectSome()
    let list = try rxd("deadletters", "list")
    #expect(
      shown(list.output)
        == """
        PIPELINE  STEP        CODE   COUNT  FIRST                     LAST                      KEPT IN
        table     out/map     RX503      1  TIME  TIME  store
        table     out/stdout  RX504      2  TIME  TIME  store

        """, "\(list.output)")
    #expect(try rxd("deadletters", "list", "table").output == list.output)
    let all = try rxd("deadletters", "show", "table").lines
    #expect(all.count == 3)
    #expect(
      shown(try #require(all.first)).hasPrefix(
        #"{"time":"TIME","pipeline":"table","id":1,"error":"#), "\(all)")
    #expect(try rxd("deadletters", "show", "table", "--limit", "1").lines == [all[2]])
    #expect(try rxd("deadletters", "show", "table", "--code", "RX503").lines == [all[0]])
    #expect(try rxd("deadletters", "show", "table", "--step", "out/stdout").lines == [all[1], all[2]])
    let counted = try #require(try json(rxd("deadletters", "list", "--format", "json").output) as? [[String: Any]])
    #expect(counted.map { $0["count"] as? Int } == [1, 2] && counted[0]["kept_in"] as? String == "store")
  }

  @Test func aSinkGetsItsEventsOnceMore() throws {
    let file = try rejectSome()
    let missing = try rxd("deadletters", "replay", "table", "--id", "1", "99")
    #expect(missing.status == 66 && missing.errors == "rxd: 'table' has no dead letter 99\n")
    let replayed = try rxd("deadletters", "replay", "table")
    #expect(replayed.status == 0 && replayed.output.isEmpty)
    #expect(
      replayed.errors == """
        2 events go to 'out' when 'table' starts
        1 dead letter stays: no sink had the event, and no other step can be given one; --print prints the events, to be \
        fed to a source

        """, "\(replayed.errors)")
    #expect(try rxd("deadletters", "show", "table").lines.count == 1)
    #expect(try rxd("state", "ls").output.contains("2 to out"))
    // The obstacle is removed.
    _ = try folder.write("table.yaml", table(encode: "json"))
    let outcome = try rxd("run", file, input: "{\"a\":2}\n")
    #expect(outcome.lines.sorted() == ["\"x\"", "\"y\"", "{\"a\":2}"].sorted(), "\(outcome.output)")
    let (first, second) = (outcome.lines.firstIndex(of: "\"x\""), outcome.lines.firstIndex(of: "\"y\""))
    #expect(try #require(first) < #require(second))
    #expect(!(try rxd("state", "ls").output.contains("to out")))
  }

  /// A pipeline whose sources can all be read again has no outbox.
  @Test func aLightPipelineDeliversThemToo() throws {
    func file(_ encode: String) throws -> String {
      try folder.write(
        "light.yaml",
        "name: light\nsources: { n: { file: { path: \(folder.path)/in.ndjson, decode: json } } }\n"
          + "sinks: { out: { from: n, stdout: \(encode) } }\n")
    }
    _ = try folder.write("in.ndjson", "\"x\"\n")
    #expect(try rxd("run", try file("csv")).status == 0)
    #expect(try rxd("deadletters", "replay", "light").errors == "1 event goes to 'out' when 'light' starts\n")
    _ = try folder.write("in.ndjson", "")
    #expect(try rxd("run", try file("json")).lines == ["\"x\""])
    #expect(!(try rxd("state", "ls").output.contains("to out")))
  }

  @Test func whatNoSinkHadIsPrinted() throws {
    _ = try rejectSome()
    let printed = try rxd("deadletters", "replay", "table", "--id", "1", "--print")
    #expect(printed.output == "8\n")
    #expect(printed.errors == "1 event printed: feed them to a source, since no step can be given one\n")
    #expect(try rxd("deadletters", "show", "table").lines.count == 2)
  }

  @Test func whatIsCutStays() throws {
    let file = try folder.write(
      "long.yaml",
      "name: long\nsources: { n: { stdin: { decode: { json: { validate: true } } } } }\nsinks: { out: { from: n, stdout: json } }\n"
    )
    _ = try rxd("run", file, input: "{" + String(repeating: "x", count: 5000) + "\n{oh\n")
    let outcome = try rxd("deadletters", "replay", "long", "--print")
    #expect(outcome.output == "\"{oh\"\n", "\(outcome.errors)")
    #expect(
      outcome.errors.contains(
        "dead letter 1 stays: it has only the beginning of the input; all of it is at its origin: "),
      "\(outcome.errors)")
    #expect(try rxd("deadletters", "show", "long").lines.count == 1)
  }

  @Test func deadLettersAreDropped() throws {
    _ = try rejectSome()
    #expect(try rxd("deadletters", "drop", "table").status == 64)
    #expect(try rxd("deadletters", "drop", "table", "--all").status == 64)
    #expect(try rxd("deadletters", "drop", "table", "--id", "99").status == 66)
    #expect(try rxd("deadletters", "drop", "table", "--id", "1").output == "removed from 'table': 1 dead letter\n")
    #expect(try rxd("deadletters", "show", "table").lines.count == 2)
    let all = try rxd("deadletters", "drop", "table", "--all", "--yes")
    #expect(all.output == "removed from 'table': 2 dead letters\n")
    #expect(try rxd("deadletters", "list").output == "no dead letters\n")
  }

  /// Earlier versions had only files; pipelines without a store still use them.
  @Test func filesOfDeadLettersAreShownToo() throws {
    _ = try rejectSome()
    func line(_ number: Int) -> String {
      #"{"time":"2026-01-0\#(number)T00:00:00.000Z","pipeline":"table","error":"no","code":"RX501","step":"n stdin","at":"a:1:1","event":"\#(number)"}"#
    }
    try folder.write("state/dead-letters/table.ndjson.1", line(1) + "\n")
    try folder.write("state/dead-letters/table.ndjson", line(2) + "\n")
    try folder.write("state/dead-letters/old.ndjson", line(3) + "\n")
    let shown = try rxd("deadletters", "show", "table").lines
    #expect(shown.count == 5 && shown.prefix(2) == [line(1), line(2)])
    #expect(try rxd("deadletters", "show", "old").lines == [line(3)])
    let list = try rxd("deadletters", "list").lines
    #expect(
      list.contains {
        $0.contains(#/^table +n stdin +RX501 +2  2026-01-01T00:00:00.000Z  2026-01-02T00:00:00.000Z  file$/#)
      }, "\(list)")
    #expect(list.contains { $0.hasPrefix("old ") })
    #expect(try rxd("deadletters", "drop", "old", "--all", "--yes").output == "removed from 'old': 1 dead letter\n")
    #expect(!FileManager.default.fileExists(atPath: state + "/dead-letters/old.ndjson"))
  }

  /// State of `distinct` and `groupBy` in the format before pages is still read.
  @Test func stateBeforePagesIsRead() throws {
    let file = try folder.write(
      "old.yaml",
      """
      name: old
      sources: { a: { stdin: {} } }
      signals:
        s:
          from: a
          chain:
            - distinct: { memory: 3 }
            - { groupBy: { key: int(event) % 2, chain: [ { scan: { start: 0, next: running + int(event) } } ] } }
      sinks: { out: { from: s, stdout: {} } }

      """)
    // From a run that had read the numbers 1 to 5.
    let kept = [
      "cnhkcwSezKO5lpuu7DEAAwgACXNpbmtzLm91dAAAAAAAAAAAAAAAD3NpbmtzLm91dC5wbGFjZQAAAAAAAAAAAAAADHNpbmtzLm91dC9AcwAAAAAAAAAAAAAB",
      "B2Evc3RkaW4CHXcr5VNcYx0BAQlzL2dyb3VwQnkG18OUr2GD/18AAQ5zL2dyb3VwQnkvc2NhbgKoFRmw/+nRywABCnMvZGlzdGluY3QEMKQeSvlFYdEAAARz",
      "L0BhAAAAAAAAAAAAAAIBYVcLMs5gacF9AXM8UAsKq70UYwCDAAAAAAEAAAAAAQMAAAACAAACAQAAAAEDBAAAAAMUAAAEMQAAAAEAAAAEAAEB/dnPZwABAgID",
      "AgABCAAAAAUDAAAAAxIGBAMAAAEIAAAABQMAAAADDAQGJQAAAAMGBgEAAAAzAbn6hWYGBgEAAAA0Abn6hWYGBgEAAAA1Abn6hWYHAQAAAAI40/lJU8im0Q==",
    ]
    let document = try folder.write(
      "old.json",
      """
      { "rxd_state": 1, "pipeline": "old", "identity": "97e595106cea12ea", "last_row": 1,
      "state": "\(kept.joined())",
      "outbox": [], "dead_letters": [] }
      """)
    #expect(try rxd("state", "import", "old", document, "--yes").status == 0)
    let outcome = try rxd(file, input: "3\n4\n5\n6\n7\n1\n")
    #expect(outcome.output == "12\n16\n17\n", "\(outcome)")
    #expect(!outcome.errors.contains("cannot be used"))
  }
}
