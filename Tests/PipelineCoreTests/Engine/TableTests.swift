import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// Tables: rows that expressions read by key.
@Suite struct TableTests {
  private static func history(_ marbles: String, _ values: [String: TestValue]) throws -> SignalHistory {
    SignalHistory(
      try Marbles(marbles).entries.map { entry in
        if case .next(let name) = entry.moment { return .init(at: entry.at, .next(values[name] ?? .text(name))) }
        return .init(at: entry.at, .complete)
      })
  }

  private static func scripted(_ marbles: String) throws -> ScriptedSource {
    ScriptedSource(SignalHistory(try Marbles(marbles)).script)
  }

  /// A table whose rows arrive late: the text of each event is its key.
  private static let late = "t: { marbles: '--a-b|', key: event, row: { name: \"event + '!'\" } }"

  private static func reading(_ chain: String, tables: String = late) -> String {
    """
    sources: { in: { values: [a, x, b] } }
    tables: { \(tables) }
    sinks: { out: { from: in, chain: [ \(chain) ], probe: {} } }
    """
  }

  // MARK: Loaded

  @Test func rowsAreThereBeforeTheFirstEvent() throws {
    let run = try PipelineRun(Self.reading("{ map: { k: event, name: 't[event].name' } }"), sources: [:])
    #expect(run.texts["out"] == [#"{"k":"a","name":"a!"}"#, #"{"k":"x"}"#, #"{"k":"b","name":"b!"}"#])
    #expect(run.outcome == .completed)
    // No event passed before the source of the table had ended.
    #expect(run.out.entries.allSatisfy { $0.at == .milliseconds(5) })
  }

  @Test func aRowIsAnOptional() throws {
    for (expression, result) in [
      ("t[event].name.orValue('none')", ["a!", "none", "b!"]),
      ("event in t", ["true", "false", "true"]),
      ("t[event].hasValue()", ["true", "false", "true"]),
      ("t[event].optMap(row, row.name + '?').orValue('')", ["a!?", "", "b!?"]),
      ("t[optional.of(event)].hasValue()", ["true", "false", "true"]),
      ("t[optional.none()].hasValue()", ["false", "false", "false"]),
      ("t['a'].name.value() + event", ["a!a", "a!x", "a!b"]),
    ] {
      let run = try PipelineRun(Self.reading("{ map: \"\(expression)\" }"), sources: [:])
      #expect(run.texts["out"]?.map { $0.replacing("\"", with: "") } == result, "\(expression)")
    }
  }

  /// A value that a step sends at its start is an event, too.
  @Test func valuesOfStepsWaitForTables() throws {
    let run = try PipelineRun(
      Self.reading("{ startWith: b }, { map: 't[event].name.orValue(event)' }"), sources: [:])
    #expect(run.texts["out"] == [#""b!""#, #""a!""#, #""x""#, #""b!""#])
  }

  /// Rows in the file cost no turn and no time.
  @Test func rowsInTheFileAreThereAtOnce() throws {
    let run = try PipelineRun(
      Self.reading(
        "{ map: 't[event].n.orValue(0)' }", tables: "t: { values: [ { id: a, n: 1 }, { id: b, n: 2 } ], key: event.id }"
      ),
      sources: [:])
    #expect(run.texts["out"] == ["1", "0", "2"])
    #expect(run.out.entries.allSatisfy { $0.at == .zero })
  }

  /// The last row with a key wins, and keys are compared as expressions compare values of one kind.
  @Test func theLastRowOfAKeyCounts() throws {
    let yaml = """
      sources: { in: { values: [ [1, x], [2, x], [1, y] ] } }
      tables: { t: { values: [ { k: [1, x], n: 1 }, { k: [1, y], n: 2 }, { k: [1, x], n: 3 } ], key: event.k } }
      sinks: { out: { from: in, chain: [ { map: 't[event].n.orValue(0)' } ], probe: {} } }
      """
    #expect(try PipelineRun(yaml, sources: [:]).texts["out"] == ["3", "0", "2"])
  }

  @Test func severalTablesAndTheirErrors() throws {
    let yaml = """
      sources: { in: { values: [1] } }
      tables:
        a: { marbles: '-----1|', key: int(event) }
        b: { marbles: '-1x2|', key: int(event), row: "int(event) * 10", maxRows: 1 }
      sinks:
        out: { from: in, chain: [ { map: "[a[event].orValue(''), string(b[event].orValue(0)), string(b[2].orValue(0))]" } ], probe: {} }
        bad: { from: b.errors, chain: [ { map: event.code } ], probe: {} }
      """
    let run = try PipelineRun(yaml, sources: [:])
    #expect(run.texts["out"] == [#"[1,"10","0"]"#])
    #expect(run.out.entries.first?.at == .milliseconds(6))
    // `x` is not a key, and there is no room for a second one; again a second later.
    #expect(run.texts["bad"]?.prefix(2) == [#""RX503""#, #""RX506""#])
  }

  /// If the rows cannot be read at the start, the pipeline fails before any event has passed.
  @Test func aSourceThatFailsAtTheStart() throws {
    let run = try PipelineRun(
      Self.reading("{ map: 't[event].name' }", tables: "t: { marbles: '-a#', key: event, row: { name: event } }"),
      sources: [:])
    guard case .failed = run.outcome else { return #expect(Bool(false), "\(run.outcome as Any)") }
    #expect(run.texts["out"] == [])
  }

  /// A sink that accepts nothing because its events wait for the tables does not delay their loading.
  @Test func aPausedInputLoadsTables() throws {
    for pressure in [Executor.Pressure.output, .queue] {
      var options = PipelineRun.Options()
      options.prepare = { $0.executor.pauseInput(pressure) }
      let run = try PipelineRun(Self.reading("{ map: event in t }"), sources: [:], options: options)
      #expect(run.texts["out"] == ["true", "false", "true"])
      #expect(run.isInputPaused)
    }
  }

  // MARK: Read again

  private static func again(_ source: any SourceComponent) throws -> PipelineRun {
    var options = PipelineRun.Options()
    options.until = .milliseconds(60)
    let yaml = """
      sources: { in: { scripted: {} } }
      tables: { t: { marbles: 'a|', key: event, row: size(event), every: 10ms } }
      sinks: { out: { from: in, chain: [ { map: "string('a' in t) + string('b' in t)" } ], probe: {} } }
      """
    let input = try Self.scripted("----1----2---------3-------------4|")
    return try PipelineRun(yaml, sources: ["in": input, "t": source], options: options)
  }

  /// All rows change at once when the source has ended, not one by one.
  @Test func allRowsChangeTogether() throws {
    // Started at 0, ended at 2; restarted at 12, ended at 18; at 28 it fails.
    let run = try Self.again(ChangingSource([("-a|"), ("--b---|"), ("-c#"), ("|")]))
    #expect(run.texts["out"] == [#""truefalse""#, #""truefalse""#, #""falsetrue""#, #""falsetrue""#])
    #expect(run.log.filter { $0.contains("the table keeps its rows") }.count == 1, "\(run.log)")
    #expect(run.outcome == .completed)
  }

  // MARK: Restarts

  /// Restored timers wait for the tables, however late they are.
  @Test func restoredTimersWaitForTables() throws {
    for delay in ["{ delay: 7ms }", "{ bufferWithTime: 7ms }, { map: 'event[0]' }", "{ throttle: 7ms }"] {
      let yaml = """
        sources: { in: { scripted: {} } }
        tables: { \(Self.late) }
        sinks: { out: { from: in, chain: [ \(delay), { map: 't[event].name.orValue(event)' } ], probe: {} } }
        """
      var options = PipelineRun.Options()
      options.cutAfter = { $0 % 5 == 4 }
      options.pause = .milliseconds(30)
      let run = try PipelineRun(
        yaml, sources: ["in": Self.scripted("----------a---------b----------x|")], options: options)
      #expect(run.texts["out"] == [#""a!""#, #""b!""#, #""x""#], "\(delay) \(run.texts)")
      #expect(!run.savedStates.isEmpty)
    }
  }

  /// While tables are being loaded no state is saved: a successor continues from the earlier state.
  @Test func aReloadWhileTablesAreLoaded() throws {
    let yaml = """
      sources: { in: { scripted: {} } }
      tables: { t: { marbles: '-----a|', key: event } }
      sinks: { out: { from: in, chain: [ { scan: { start: 0, next: "running + int(event) + (('a' in t) ? 0 : 100)" } } ], probe: {} } }
      """
    for suspends in [true, false] {
      for first in 1...14 {
        var options = PipelineRun.Options()
        // Again as soon as the next execution has begun to load.
        options.cutAfter = { $0 >= first && $0 < first + 6 }
        options.suspends = suspends
        let run = try PipelineRun(yaml, sources: ["in": Self.scripted("-------1-2-3-4-5|")], options: options)
        #expect(run.texts["out"] == ["1", "3", "6", "10", "15"], "\(suspends) \(first)")
      }
    }
  }

  // MARK: Rows of a signal

  private static let changing = """
    sources: { rows: { scripted: {} }, in: { scripted: {} } }
    tables: { t: { from: rows, key: event.id, row: event.n, delete: event.n == 0 } }
    sinks: { out: { from: in, chain: [ { map: 't[int(event)].orValue(0)' } ], probe: {} } }
    """

  private static func row(_ id: Double, _ n: Double) -> TestValue {
    .object(unsorted: [.init(Array("id".utf8), .number(id)), .init(Array("n".utf8), .number(n))])
  }

  /// The rows of a signal's table equal a fold over its events, wherever the pipeline stops and continues.
  @Test(arguments: [0, 1, 2, 3]) func rowsOfASignalChangeAsEventsCome(_ manner: Int) throws {
    let plan = try PipelineRun.compile(Self.changing)
    for seed in 0..<20 {
      var generator = SplitMix(UInt64(seed * 4 + manner))
      var rows: [SignalHistory.Entry] = []
      var events: [SignalHistory.Entry] = []
      var known: [Int: Int] = [:]
      var expected: [String] = []
      // The rows outlive the signal.
      let end = seed % 2 == 0 ? 41 : 20
      for step in 1...40 {
        let at = TimeSpan.milliseconds(Int64(step))
        let id = Int.random(in: 1...6, using: &generator)
        if step < end, Bool.random(using: &generator) {
          let n = Int.random(in: 0...3, using: &generator)
          rows.append(.init(at: at, .next(Self.row(Double(id), Double(n)))))
          known[id] = n == 0 ? nil : n
        } else {
          events.append(.init(at: at, .next(.text("\(id)"))))
          expected.append("\(known[id] ?? 0)")
        }
      }
      if end < 40 { rows.append(.init(at: .milliseconds(Int64(end)), .complete)) }
      events.append(.init(at: .milliseconds(50), .complete))
      var options = PipelineRun.Options()
      let often = Int.random(in: 2...9, using: &generator)
      if manner > 0 { options.cutAfter = { $0 % often == 0 } }
      options.suspends = manner == 2
      options.keepsPages = manner == 3
      let run = PipelineRun(
        plan,
        sources: [
          "rows": ScriptedSource(SignalHistory(rows).script), "in": ScriptedSource(SignalHistory(events).script),
        ], options: options)
      #expect(run.texts["out"] == expected, "seed \(seed)")
      #expect(run.refusals.isEmpty, "\(run.refusals.map(\.message))")
      #expect(run.outcome == .completed)
    }
  }

  /// The event that changes a row sees the new row in every other branch.
  @Test func aTableChangesBeforeOthersSeeTheEvent() throws {
    let yaml = """
      sources: { rows: { scripted: {} } }
      sinks: { out: { from: rows, chain: [ { map: "t[event].orValue('none')" } ], probe: {} } }
      tables: { t: { from: rows, key: event } }
      """
    let run = try PipelineRun(yaml, sources: ["rows": Self.scripted("-a-b-a|")])
    #expect(run.texts["out"] == [#""a""#, #""b""#, #""a""#])
  }

  /// A changed key or row makes it another table, so the old rows are not used.
  @Test func aChangedTableStartsEmpty() throws {
    var options = PipelineRun.Options()
    options.cutAfter = { $0 == 3 }
    options.laterPlan = try PipelineRun.compile(Self.changing.replacing("row: event.n", with: "row: event.n + 1"))
    let rows = SignalHistory([.init(at: .milliseconds(1), .next(Self.row(1, 5)))])
    let run = try PipelineRun(
      Self.changing,
      sources: ["rows": ScriptedSource(rows.script), "in": Self.scripted("--1-------1|")], options: options)
    #expect(run.savedStates.count == 1)
    #expect(run.texts["out"] == ["5", "0"])
    #expect(run.refusals.map(\.code) == [.stateRefused])
  }

  // MARK: Figures

  @Test func rowsAreCounted() throws {
    let run = try PipelineRun(
      Self.changing,
      sources: [
        "rows": ScriptedSource(
          SignalHistory([
            .init(at: .milliseconds(1), .next(Self.row(1, 5))), .init(at: .milliseconds(2), .next(Self.row(2, 5))),
            .init(at: .milliseconds(3), .next(Self.row(1, 0))),
          ]).script), "in": try Self.scripted("-------1"),
      ])
    #expect(run.step("table")?.keys == 1)
    #expect((run.step("table")?.keptBytes ?? 0) > 0)
  }

  // MARK: Errors

  private static func errors(_ yaml: String) -> [String] {
    FrontEnd(PipelineRun.catalogue).compile(yaml, name: "test.yaml").diagnostics
      .map { "\($0.code.name) \($0.location?.line ?? 0):\($0.location?.column ?? 0) \($0.message)" }
  }

  @Test func whatIsWrongIsSaid() {
    func file(_ tables: String, _ map: String = "t[event].hasValue()") -> String {
      "sources: { in: { values: [a] } }\ntables:\n  \(tables)\nsinks: { out: { from: in, chain: [ { map: \"\(map)\" } ], probe: {} } }\n"
    }
    let rows = "t: { values: [a], key: event }"
    for (yaml, expected) in [
      (file("t: { values: [a] }"), "RX202 3:6 the table has no 'key', by which expressions find its rows"),
      (file("t: { key: event }"), "RX207 3:6 the table has no rows: its source is missing"),
      (file("t: { values: [a], kye: event }"), "RX201 3:21 a table has no key 'kye'"),
      (
        file("t: { from: in, key: event, every: 1s }"),
        "RX225 3:37 'every' reads the source of a table again, but this table changes as events arrive"
      ),
      (
        file("event: { values: [a], key: event }", "event"),
        "RX206 3:3 'event' cannot be the name of a table: it is a word of the expression language"
      ),
      (
        file("out: { values: [a], key: event }", "event"), "RX205 4:10 the name 'out' is used twice"
      ),
      (file(rows, "t"), "RX413 4:44 't' is a table, which is read by key"),
      (file(rows, "size(t)"), "RX413 4:49 't' is a table, which is read by key"),
      (file(rows, "t.a"), "RX413 4:44 't' is a table, which is read by key"),
      (file(rows, "tt[event].hasValue()"), "RX411 4:44 there is nothing called 'tt' here"),
      (
        file("t: { values: [a], key: size(event) }", "t['a'].hasValue()"),
        "RX413 4:46 the keys of 't' have the type int, and this is a string"
      ),
      (
        file("t: { values: [a], key: event, chain: [ { flattenMap: { signal: in } } ] }"),
        "RX303 3:3 the table 't' is loaded before signals begin, so its chain cannot read one"
      ),
      (
        file("t: { values: [a], key: \"t[event].orValue('')\" }"),
        "RX303 3:27 the rows of the table 't' cannot depend on the table 't'"
      ),
      (file("t: { values: [a], key: event, time: event }"), "RX201 3:33 a table has no key 'time'"),
      (file("t: { values: [a], key: event, share: { replay: 1 } }"), "RX201 3:33 a table has no key 'share'"),
    ] {
      let found = Self.errors(yaml)
      #expect(found.count == 1 && found[0].hasPrefix(expected), "\(yaml)\n\(found)")
    }
    #expect(
      Self.errors(
        "sources: { in: { values: [a] } }\ntables: { t: { values: [a], key: event } }\nsinks: { out: { from: t, probe: {} } }"
      ).contains { $0.hasPrefix("RX302 3:23 't' is a table, which sends no events") })
    #expect(
      Self.errors(
        "sources: { in: { values: [a] } }\ntables: { t: { values: [a], key: event } }\nsinks: { out: { from: in, probe: {} } }"
      ).contains { $0.hasSuffix("no expression reads the table 't'") })
  }

  /// A step that reads a table runs in turns, where tables change.
  @Test func decodingThreadsReadNoTable() throws {
    let plan = try PipelineRun.compile(Self.reading("{ filter: event in t }"))
    let signal = try #require(plan.sinks.first?.input)
    #expect(signal.work?.isFused == true)
    #expect(signal.work?.isPure == false)
  }
}

/// Sends other marbles on each start.
private struct ChangingSource: SourceComponent {
  final class Rounds: @unchecked Sendable {
    var left: [String]
    init(_ all: [String]) { left = all }
  }
  let rounds: Rounds

  init() { self.init([]) }
  init(_ all: [String]) { rounds = Rounds(all) }

  static let spec = ComponentSpec<ChangingSource>("changing", summary: "Sends other marbles each time.")

  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    let text = rounds.left.isEmpty ? "" : rounds.left.removeFirst()
    let script = (try? Marbles(text)).map { SignalHistory($0).script } ?? []
    return ScriptedSource(script).makeSource(nodeContext, downstream: downstream)
  }
}
