import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

@Suite struct JoinTests {
  private func run(
    _ a: String, _ b: String, _ parameters: String, sink: String = "", options: PipelineRun.Options = .init()
  ) throws -> PipelineRun {
    try PipelineRun(
      """
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      signals: { pairs: { from: a, chain: [ { join: { signal: b, \(parameters) } } ] } }
      sinks: { out: { from: pairs, probe: {} }\(sink) }
      """,
      sources: [
        "a": ScriptedSource(SignalHistory(try Marbles(a)).script),
        "b": ScriptedSource(SignalHistory(try Marbles(b)).script),
      ], options: options)
  }

  // MARK: The end by a stop

  /// A partner could still have come: nothing is sent as unmatched, and the log tells how many are lost.
  @Test func aStopMakesNoUnmatchedPairs() throws {
    var options = PipelineRun.Options()
    options.drainAt = .milliseconds(4)
    let run = try run(
      "123---------|", "--2---------|", "within: 1s, key: event, otherKey: other, unmatched: send", options: options)
    #expect(run.texts["out"] == ["[2,2]"])
    #expect(run.log.count == 1)
    #expect(run.log.first?.contains("2 events") == true, "\(run.log)")
    #expect(run.outcome == .completed)
  }

  /// The other signal was over: no partner can come, stopped or not.
  @Test func aStopBehindTheEndOfTheOtherSignal() throws {
    var options = PipelineRun.Options()
    options.drainAt = .milliseconds(4)
    let run = try run(
      "123---------|", "--2|", "within: 1s, key: event, otherKey: other, unmatched: send", options: options)
    #expect(run.texts["out"] == ["[2,2]", "[1,null]", "[3,null]"])
    #expect(run.log.isEmpty)
  }

  /// The natural end sends them, and so does time.
  @Test func theNaturalEndSendsWhatIsUnmatched() throws {
    #expect(
      try run("12|", "1|", "within: 1s, key: event, otherKey: other, unmatched: send").texts["out"] == [
        "[1,1]", "[2,null]",
      ])
    #expect(
      try run("12-------|", "--------1|", "within: 2ms, key: event, otherKey: other, unmatched: send").texts["out"]
        == ["[1,null]", "[2,null]"])
  }

  // MARK: The limit

  /// One warning and a number, not a line for each event.
  @Test func theLimitIsReportedOnce() throws {
    let run = try run("12345|", "-----4|", "within: 1s, limit: 2, key: event, otherKey: other")
    #expect(run.texts["out"] == ["[4,4]"])
    #expect(run.deadLetters.isEmpty)
    #expect(run.counters.rejected == 3)
    #expect(run.log.count == 2, "\(run.log)")
    #expect(run.log.first?.contains("join keeps 2 events of the first signal") == true)
    #expect(run.log.last?.contains("dropped 3 events of the first signal") == true)
  }

  /// Whoever reads the errors output gets each of them.
  @Test func aReaderOfErrorsGetsEach() throws {
    let run = try run(
      "12345|", "-----4|", "within: 1s, limit: 2, key: event, otherKey: other",
      sink: ", lost: { from: pairs.errors, chain: [ { map: event.event } ], probe: {} }")
    #expect(run.texts["lost"] == ["1", "2", "3"])
    #expect(run.log.isEmpty)
  }

  @Test(arguments: [
    ("{ values: { list: [1], every: 1ms } }", "within: 10s", false),
    ("{ values: { list: [1], every: 1ms } }", "within: 1h", true),
    ("{ interval: 1ms }", "within: 10s, limit: 9999", true), ("{ interval: 1ms }", "within: 10s, limit: 10000", false),
    ("{ values: [1] }", "within: 1h, limit: 10", false),
    ("{ file: { path: x, decode: json } }", "within: 1h", false),
    ("{ file: { path: x, decode: json } }", "within: 1h, limit: 10000", true),
    ("{ file: { path: x, follow: true, decode: json } }", "within: 1h, limit: 10000", false),
  ])
  func aLimitThatWillBiteIsAWarning(_ source: String, _ parameters: String, _ isReported: Bool) throws {
    let result = FrontEnd(.builtIn).compile(
      """
      sources: { a: \(source), b: \(source) }
      signals: { pairs: { from: a, chain: [ { join: { signal: b, \(parameters) } } ] } }
      sinks: { out: { from: pairs, discard: {} } }
      """)
    #expect(!result.hasErrors)
    #expect(
      result.diagnostics.contains { $0.code == .limitTooSmall } == isReported, "\(result.diagnostics.map(\.message))")
  }

  // MARK: Keyed state

  /// Any order, any number of partners, any age: as a list of all pairs says.
  @Test(arguments: 0..<40) func everyPairComesOnce(_ seed: UInt64) throws {
    var dice = SplitMix(seed &* 77 &+ 5)
    typealias Arrival = (at: Int64, isOther: Bool, value: Int64)
    var arrivals: [Arrival] = []
    var now: Int64 = 0
    for number in 0..<(20 + dice.below(60)) {
      now += Int64(dice.below(3))
      arrivals.append((now, dice.below(2) == 0, Int64(number)))
    }
    let keys = 1 + dice.below(5)
    let within = Int64(1 + dice.below(9))
    func script(_ isOther: Bool) -> [(at: TimeSpan, moment: ScriptedSource.Moment)] {
      arrivals.filter { $0.isOther == isOther }.map {
        (at: .milliseconds($0.at), moment: .next(OwnedValue(.int($0.value))))
      } + [(at: .milliseconds(now), moment: .complete)]
    }
    var expected: [String] = []
    for (index, one) in arrivals.enumerated() {
      for other in arrivals[..<index]
      where other.isOther != one.isOther && one.at - other.at < within
        && one.value % Int64(keys) == other.value % Int64(keys)
      {
        expected.append(one.isOther ? "[\(other.value),\(one.value)]" : "[\(one.value),\(other.value)]")
      }
    }
    let plan = try PipelineRun.compile(
      """
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      sinks:
        out:
          from: a
          chain: [ { join: { signal: b, within: \(within)ms, key: 'string(event % \(keys))', otherKey: 'string(other % \(keys))' } } ]
          probe: {}
      """)
    for restarts in [false, true] {
      var options = PipelineRun.Options()
      options.cutAfter = { _ in restarts }
      let run = PipelineRun(
        plan, sources: ["a": ScriptedSource(script(false)), "b": ScriptedSource(script(true))], options: options)
      #expect(run.texts["out"]?.sorted() == expected.sorted(), "seed \(seed), restarts: \(restarts)")
      #expect(run.refusals.isEmpty, "\(run.refusals.map(\.message))")
      #expect(run.pendingTimers == 0)
    }
  }

  // MARK: What is read of kept events

  private func raw(_ texts: [String], from first: Int64) -> ScriptedSource {
    ScriptedSource(
      texts.enumerated().map { index, text in
        var text = text
        let value = text.withUTF8 { OwnedValue(Value(kind: .jsonMap, pointer: $0.baseAddress, length: $0.count)) }
        return (at: .milliseconds(first + Int64(index)), moment: .next(value))
      } + [(at: .milliseconds(20), moment: .complete)])
  }

  /// `reduce` sees of an event what a step behind the join would see of it, whichever of the two was kept.
  @Test(arguments: [false, true], [false, true])
  func reduceSeesTheFieldsOfKeptEvents(_ isOtherFirst: Bool, _ restarts: Bool) throws {
    let first = [
      #"{"id":7,"skip":[1,{"id":8}],"name":"a\u00e9\"b","price":1.50,"deep":{"c":[1,2],"d":{"e":"f"}},"none":null}"#,
      #"{"name":"x","id":8,"id":9,"long":123456789012345678901234567890}"#,
      #"{"id":"7","name":"not this one"}"#,
    ]
    let other = [
      #"{"pad":"xxxx","of":8,"sum":1e3}"#, #"{"of":7,"sum":30,"tags":["p",{"q":"r"}],"text":"","sum":31}"#,
      #"{"of":5}"#,
    ]
    func texts(_ chain: String) throws -> [String]? {
      let plan = try PipelineRun.compile(
        """
        sources: { a: { scripted: {} }, b: { scripted: {} } }
        sinks: { out: { from: a, chain: [ \(chain) ], probe: {} } }
        """)
      var options = PipelineRun.Options()
      options.cutAfter = { _ in restarts }
      let run = PipelineRun(
        plan,
        sources: ["a": raw(first, from: isOtherFirst ? 9 : 1), "b": raw(other, from: isOtherFirst ? 1 : 9)],
        options: options)
      #expect(run.deadLetters.isEmpty, "\(run.deadLetters)")
      return run.texts["out"]
    }
    func mapping(_ event: String, _ other: String) -> String {
      """
      { n: "\(event).name", p: "\(event).?price", d: "\(event).?deep.?c", e: "\(event).?deep.?d.?e", z: "has(\(event).none)",
        l: "\(event).?long", s: "\(other).sum", t: "\(other).?tags", u: "\(other).?text" }
      """
    }
    let join = "signal: b, within: 1s, key: event.id, otherKey: other.of"
    let reduced = try texts("{ join: { \(join), reduce: \(mapping("event", "other")) } }")
    #expect(reduced == (try texts("{ join: { \(join) } }, { map: \(mapping("event[0]", "event[1]")) }")))
    #expect(reduced?.count == 2)
    #expect(reduced?.contains { $0.contains("1.50") && $0.contains("\"f\"") } == true, "\(reduced ?? [])")
  }

  /// A pair that cannot be made gives up the whole event, not only what `reduce` reads of it.
  @Test(arguments: [false, true]) func aFailingPairGivesUpTheWholeEvent(_ isOtherFirst: Bool) throws {
    let plan = try PipelineRun.compile(
      """
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      sinks:
        out:
          from: a
          chain: [ { join: { signal: b, within: 1s, key: event.id, otherKey: other.id, reduce: event.n + other.n } } ]
          probe: {}
      """)
    let run = PipelineRun(
      plan,
      sources: [
        "a": raw([#"{"id":1,"n":1,"more":"all of it"}"#], from: isOtherFirst ? 2 : 1),
        "b": raw([#"{"id":1,"n":"x"}"#], from: isOtherFirst ? 1 : 2),
      ])
    #expect(run.texts["out"] == [])
    #expect(run.deadLetters.count == 1)
    #expect(
      run.deadLetters.first?.contains(#""event":{"id":1,"n":1,"more":"all of it"}"#) == true, "\(run.deadLetters)")
  }

  /// What a pair causes may come back to the join, and displace what is being matched.
  @Test func pairsMayComeBack() throws {
    let run = try PipelineRun(
      """
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      signals:
        pairs: { from: fed, chain: [ { join: { signal: b, within: 1s, limit: 2 } } ] }
        fed: { merge: [a, { from: work.values }] }
      commands: { work: { run: { from: { values: [9] } }, whenBusy: drop } }
      sinks:
        out: { from: pairs, probe: {} }
        back: { from: pairs, chain: [ { take: 3 }, { execute: work } ], probe: {} }
      """,
      sources: [
        "a": ScriptedSource(SignalHistory(try Marbles("12|")).script),
        "b": ScriptedSource(SignalHistory(try Marbles("-7|")).script),
      ])
    #expect(run.outcome == .completed)
    #expect(run.texts["out"]?.prefix(1) == ["[1,7]"])
    #expect(run.texts["out"]?.contains("[2,7]") == true)
    #expect(run.texts["out"]?.contains("[9,7]") == true)
  }
}
