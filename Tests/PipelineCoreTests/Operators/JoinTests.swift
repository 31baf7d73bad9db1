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

  /// A partner could still have arrived: no event is sent as unmatched, and the log reports how many are lost.
  @Test func aStopMakesNoUnmatchedPairs() throws {
    var options = PipelineRun.Options()
    options.drainAt = .milliseconds(4)
    let run = try run(
      "123---------|", "--2---------|", "within: 1s, key: event, otherKey: other, unmatched: left", options: options)
    #expect(run.texts["out"] == ["[2,2]"])
    #expect(run.log.count == 1)
    #expect(run.log.first?.contains("2 events") == true, "\(run.log)")
    #expect(run.outcome == .completed)
  }

  /// The other signal had ended, so no partner can arrive, whether stopped or not.
  @Test func aStopBehindTheEndOfTheOtherSignal() throws {
    var options = PipelineRun.Options()
    options.drainAt = .milliseconds(4)
    let run = try run(
      "123---------|", "--2|", "within: 1s, key: event, otherKey: other, unmatched: left", options: options)
    #expect(run.texts["out"] == ["[2,2]", "[1,null]", "[3,null]"])
    #expect(run.log.isEmpty)
  }

  /// A natural end sends the unmatched events, and so does the passing of time.
  @Test func theNaturalEndSendsWhatIsUnmatched() throws {
    #expect(
      try run("12|", "1|", "within: 1s, key: event, otherKey: other, unmatched: left").texts["out"] == [
        "[1,1]", "[2,null]",
      ])
    #expect(
      try run("12-------|", "--------1|", "within: 2ms, key: event, otherKey: other, unmatched: left").texts["out"]
        == ["[1,null]", "[2,null]"])
  }

  // MARK: The limit

  /// One warning with a number, not a line for each event.
  @Test func theLimitIsReportedOnce() throws {
    let run = try run("12345|", "-----4|", "within: 1s, limit: 2, key: event, otherKey: other")
    #expect(run.texts["out"] == ["[4,4]"])
    #expect(run.deadLetters.isEmpty)
    #expect(run.counters.rejected == 3)
    #expect(run.log.count == 2, "\(run.log)")
    #expect(run.log.first?.contains("join keeps 2 events of the first signal") == true)
    #expect(run.log.last?.contains("dropped 3 events of the first signal") == true)
  }

  /// A reader of the errors output receives each of them.
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

  /// Any order, any number of partners, any age: compared with a list of all pairs.
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

  // MARK: Both directions, and what has no partner

  /// The other event may be 2 ms earlier, and 5 ms later.
  @Test(arguments: ["drop", "left", "right", "full"], [false, true])
  func boundsOfBothDirections(_ unmatched: String, _ restarts: Bool) throws {
    var options = PipelineRun.Options()
    options.cutAfter = { _ in restarts }
    let run = try run(
      "--1---------2------3-------|", "-x---y-w------z------------|",
      "within: { before: 2ms, after: 5ms }, unmatched: \(unmatched)", options: options)
    let right = ["right", "full"].contains(unmatched) ? [#"[null,"w"]"#] : []
    let left = ["left", "full"].contains(unmatched) ? ["[3,null]"] : []
    #expect(run.texts["out"] == [#"[1,"x"]"#, #"[1,"y"]"#] + right + [#"[2,"z"]"#] + left)
    #expect(run.pendingTimers == 0)
    #expect(run.refusals.isEmpty)
  }

  /// An event that waits for nothing is sent immediately, and does not count as undecided at a stop.
  @Test func anEventThatWaitsForNothingIsSentAtOnce() throws {
    var options = PipelineRun.Options()
    options.drainAt = .milliseconds(4)
    let run = try run(
      "-1---|", "--x--|", "within: { after: 1s }, unmatched: right, key: '0', otherKey: '1'", options: options)
    #expect(run.out.entries.first.map { "\($0.at) \($0.moment)" } == "2ms [null,\"x\"]")
    #expect(run.log.isEmpty)
  }

  /// A state in version 2 of the format, with 1 event of the first signal and 2 of the other.
  @Test func theFormerStateIsTakenOver() throws {
    var options = PipelineRun.Options()
    options.cutAfter = { $0 == 2 }
    options.damage = { _ in Self.formerState }
    let plan = try PipelineRun.compile(
      """
      name: t
      sources: { a: { values: { list: [1, 2, 1], every: 10m } }, b: { values: { list: [2, 2], every: 10m } } }
      signals: { pairs: { from: a, chain: [ { join: { signal: b, within: 1h, unmatched: send, key: event, otherKey: other } } ] } }
      sinks: { out: { from: pairs, probe: {} } }
      """, catalogue: .builtIn.adding(Catalogue([CatalogueEntry(sink: ProbeSink.self)])))
    let run = PipelineRun(plan, sources: [:], options: options)
    #expect(run.refusals.isEmpty, "\(run.refusals.map(\.message))")
    #expect(run.texts["out"] == ["[2,2]", "[2,2]", "[1,null]", "[1,null]"])
  }

  private static let formerState: [UInt8] = {
    let text = """
      7278647304c4c0efe0ae82a1ec31030508000973696e6b732e6f757400000000000000000000000f73696e6b732e6f75742e706c616365
      00000000000000000000001073696e6b732e6f75742f407061697273000000000000000000000108612f76616c75657302b73d11b918a7
      1e6f000108622f76616c7565730206bee34167b8c84c00010a70616972732f6a6f696e04891c27f23d55aad800000d70616972732f6a6f
      696e2f406200000000000000000000000870616972732f4061000000000000000000000301616228c0fe6515f90d0162f6a8ee8b287a86
      0405706169727325c5d1e3ff7159e50201610000010162000001990000000001000000000103000000020000020100000001030c000000
      05020101e2cac28ed9220300040c00000003020101e2cac28ed92202000558000000010000010001000000000000060000000601000000
      020103020001000903010000000000000001e28abceda8d1010000000103040002000903020000000000000001e28abceda8d101000000
      000101e28abceda8d1010100070100000004328e3215bfc43372
      """.filter { !$0.isWhitespace }
    return stride(from: 0, to: text.count, by: 2).map { offset in
      let start = text.index(text.startIndex, offsetBy: offset)
      return UInt8(text[start..<text.index(start, offsetBy: 2)], radix: 16) ?? 0
    }
  }()

  // MARK: What is read of kept events

  private func raw(_ texts: [String], from first: Int64) -> ScriptedSource {
    ScriptedSource(
      texts.enumerated().map { index, text in
        var text = text
        let value = text.withUTF8 { OwnedValue(Value(kind: .jsonMap, pointer: $0.baseAddress, length: $0.count)) }
        return (at: .milliseconds(first + Int64(index)), moment: .next(value))
      } + [(at: .milliseconds(20), moment: .complete)])
  }

  /// `reduce` sees the same fields of an event as a step after the join, whichever of the two was held.
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

  /// A pair that fails gives up the whole event, not only the part that `reduce` reads.
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

  /// The effects of a pair may come back to the join, and displace the events being matched.
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
