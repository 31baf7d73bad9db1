import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// Limits, order and sharing, which examples cannot show.
@Suite struct GuardingTests {
  private func run(
    _ yaml: String, _ sources: KeyValuePairs<String, String> = [:], options: PipelineRun.Options = .init()
  ) throws -> PipelineRun {
    var scripts: [String: any SourceComponent] = [:]
    for (name, marbles) in sources { scripts[name] = ScriptedSource(SignalHistory(try Marbles(marbles)).script) }
    return try PipelineRun(yaml, sources: scripts, options: options)
  }

  private func expect(
    _ run: PipelineRun, _ marbles: String, _ values: [String: String] = [:], sink: String = "out",
    location: Testing.SourceLocation = #_sourceLocation
  ) throws {
    let wanted = SignalHistory(
      try Marbles(marbles), values: try values.mapValues { try MarbleCase.value($0) })
    let got = run.sinks[sink] ?? SignalHistory()
    if let difference = SignalHistory.difference(expected: wanted, actual: got) {
      Issue.record("\(sink):\n\(difference)\n\(run.deadLetters)\n\(run.log)", sourceLocation: location)
    }
  }

  private func step(_ step: String, _ marbles: String) throws -> PipelineRun {
    try run(
      """
      name: t
      sources: { a: { scripted: {} } }
      sinks: { out: { from: a, chain: [ \(step) ], probe: {} } }
      """, ["a": marbles])
  }

  // MARK: Messages

  /// `message` replaces the expression's own reason, whatever happens to the event.
  @Test(arguments: [
    ("{ tryMap: 6 / event, message: 'no {{ event }}' }", "-2-0-3-|", "-3---2-|"),
    (
      "{ tryMap: \"event > 0 ? optional.of(6 / event) : optional.none()\", message: 'no {{ event }}' }", "-2-0-3-|",
      "-3---2-|"
    ),
    ("{ try: { where: event > 0, message: 'no {{ event }}' } }", "-2-0-3-|", "-2---3-|"),
    ("{ try: { where: 1 / event > 0, message: 'no {{ event }}' }, onError: keep }", "-2-0-1-|", "-2-0-1-|"),
  ])
  func messagesOfOnesOwn(_ text: String, _ input: String, _ output: String) throws {
    if text.contains("keep") {
      try expect(try step(text, input), output)
      return
    }
    let ended = try step(text, input)
    guard case .failed(let failure) = ended.outcome else {
      Issue.record("\(String(describing: ended.outcome))")
      return
    }
    #expect(failure.message == "no 0")
    let routed = try step(String(text.dropLast(2)) + ", onError: route }", input)
    try expect(routed, output)
    #expect(routed.deadLetters.count == 1)
    #expect(routed.deadLetters.first?.contains(#""error":"no 0","code":"RX520""#) == true, "\(routed.deadLetters)")
    try expect(try step(String(text.dropLast(2)) + ", onError: drop }", input), output)
  }

  // MARK: Bounds

  @Test func aLateEventIsGivenUp() throws {
    let run = try step("{ window: { every: 10s, time: timestamp(event) } }", "-3-9-7|")
    try expect(run, "------(p|)", ["p": "[3, 7, 9]"])
    let late = try step("{ map: event * 10 }, { window: { every: 10s, time: timestamp(event) } }", "-1-3-1|")
    try expect(late, "---p--(q|)", ["p": "[10]", "q": "[30]"])
    #expect(late.deadLetters.count == 1)
    #expect(late.deadLetters.first?.contains("RX521") == true)
  }

  @Test func aFullWindowGivesUpWhatComes() throws {
    let run = try step("{ window: { every: 9ms, max: 2 } }", "-123|")
    try expect(run, "----(p|)", ["p": "[1, 2]"])
    #expect(run.deadLetters.count == 1)
  }

  @Test func windowsByEventTimeCloseWhenIdle() throws {
    let run = try step("{ window: { every: 10s, time: timestamp(event), idle: 3ms } }", "-1--------2|")
    try expect(run, "----p------|", ["p": "[1]"])
    // The second event arrived after its window had closed.
    #expect(run.deadLetters.count == 1)
  }

  @Test func aWindowKnowsItsTimes() throws {
    let run = try step(
      "{ window: { every: 4ms, to: { n: size(events), ms: (end - start).getMilliseconds() } } }", "-1-2-----|")
    try expect(run, "----p----|", ["p": "{n: 2, ms: 4}"])
  }

  @Test func timesThatOverflowAreRefused() throws {
    let run = try step("{ window: { every: 10s, time: timestamp(9000000000 * event) } }", "-1-0|")
    try expect(run, "----(p|)", ["p": "[0]"])
    #expect(run.deadLetters.count == 1)
  }

  @Test func aGateHoldsNoMoreThanItsLimit() throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      sinks: { out: { from: a, chain: [ { gate: { signal: b, whileClosed: hold, limit: 2 } }, { take: 2 } ], probe: {} } }
      """, ["a": "-123-|", "b": "------1"])
    try expect(run, "------(23|)")
    #expect(run.deadLetters.count == 1)
  }

  @Test func aBucketHoldsBackTheInput() throws {
    let run = try step("{ rateLimit: { per: 2ms, mode: bucket, excess: wait, limit: 1 } }", "(1234)|")
    try expect(run, "1-2-3-(4|)")
    #expect(!run.isInputPaused)
  }

  @Test func excessCanBeRouted() throws {
    let run = try step("{ rateLimit: { per: 9ms, mode: bucket, excess: route } }", "(12)|")
    try expect(run, "1|")
    #expect(run.deadLetters.count == 1)
  }

  @Test func aJoinKeepsNoMoreThanItsLimit() throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      sinks: { out: { from: a, chain: [ { join: { signal: b, within: 9ms, limit: 1, reduce: event } } ], probe: {} } }
      """, ["a": "-12-|", "b": "---x|"])
    try expect(run, "---2|")
    #expect(run.counters.rejected == 1)
    #expect(run.log.first?.contains("join keeps 1 event of the first signal, its limit `limit`") == true, "\(run.log)")
  }

  @Test func aFailingInnerSignalIsNamed() throws {
    let run = try step(
      "{ circuitBreaker: { failures: 1, pause: 9ms, signal: { values: [1], chain: [ { try: outer > 0 } ] } } }",
      "-0-1-|")
    try expect(run, "-----|")
    #expect(run.deadLetters.count == 2)
    #expect(run.deadLetters.first?.contains("RX522") == true)
    #expect(run.deadLetters.last?.contains("RX523") == true)
  }

  @Test func aFailureOnTheSideIsGivenUp() throws {
    let run = try step("{ do: { values: [8], chain: [ { try: outer > 1 } ] } }", "-1-2|")
    #expect(run.deadLetters.count == 1)
  }

  @Test(arguments: [
    ("not", "-x|"), ("and", "-1|"), ("dematerialize", "-1|"), ("{ any: dyn(event) }", "-1|"),
    ("{ window: { gap: 1s, time: dyn(event) } }", "-1|"),
  ])
  func unusableConnectionsAreGivenUp(_ text: String, _ marbles: String) throws {
    let run = try step(text, marbles)
    #expect(run.deadLetters.count == 1, "\(run.deadLetters)")
    #expect(run.outcome == .completed)
  }

  /// When the process ends, as when the signal ends: an inner signal for held events still runs.
  @Test func whatIsHeldIsDealtWithWhenThePipelineIsToStop() throws {
    var options = PipelineRun.Options()
    options.drainAt = .milliseconds(4)
    let inner = "{ signal: { values: [8], chain: [ { map: outer } ] } }"
    for (chain, out) in [
      ("{ throttle: 9ms }, { flattenMap: \(inner) }", "----(2|)"),
      ("{ takeLast: 2 }, { flattenMap: \(inner) }", "----(12|)"),
      ("{ then: { values: [8] } }, { finally: { values: [9] } }", "----|"),
    ] {
      let run = try run(
        """
        name: t
        sources: { a: { scripted: {} } }
        sinks: { out: { from: a, chain: [ \(chain) ], probe: {} } }
        """, ["a": "-1-2---------3|"], options: options)
      try expect(run, out)
    }
  }

  // MARK: Order

  @Test func nodesThatSettleDoSoFromAboveToBelow() throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        inner: { combineLatest: { x: a, y: a, settle: true }, reduce: x + y }
        whole: { combineLatest: { x: a, y: inner, z: a, settle: true }, reduce: '[x, y, z]' }
      sinks: { out: { from: whole, probe: {} } }
      """, ["a": "-1-2|"])
    try expect(run, "-p-q|", ["p": "[1, 2, 1]", "q": "[2, 4, 2]"])
  }

  @Test func schedulersHaveTheOrderOfTheFile() throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        early: { from: a, chain: [ { deliverOn: first }, { map: event * 10 } ] }
        late: { from: a, chain: [ { deliverOn: second }, { map: event * 100 } ] }
        all: { merge: [late, a, early] }
      sinks: { out: { from: all, chain: [ { take: 6 } ], probe: {} } }
      """, ["a": "-1-2|"])
    try expect(
      run, "-(apx)-(bqy|)", ["a": "1", "p": "10", "x": "100", "b": "2", "q": "20", "y": "200"])
  }

  @Test func subscribeOnComesAfterTheStart() throws {
    let run = try run(
      """
      name: t
      sources: { a: { values: [1, 2] } }
      signals: { s: { from: a, chain: [ { subscribeOn: later } ] } }
      sinks: { hot: { from: a, probe: {} }, out: { from: s, probe: {} } }
      """)
    try expect(run, "(12|)", sink: "hot")
    // The shared source has sent its first event by then.
    try expect(run, "(2|)")
  }

  // MARK: Sharing

  private func late(_ share: String, _ marbles: String, when: String) throws -> PipelineRun {
    try run(
      """
      name: t
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      signals:
        s: { from: a, share: \(share) }
        l: { from: b, chain: [ { flattenMap: { signal: { from: s } } } ] }
      sinks: { out: { from: l, probe: {} }, other: { from: s, chain: [ { take: 9 } ], probe: {} } }
      """, ["a": marbles, "b": when])
  }

  @Test func aLateListenerLearnsOfEarlierEvents() throws {
    try expect(try late("{ replay: 2 }", "-1-2-3-4-|", when: "------x|"), "------(23)4-|")
    try expect(try late("{ replay: 2, within: 2ms }", "-1-2-3-4-|", when: "------x|"), "------34-|")
    try expect(try late("{}", "-1-2-3-4-|", when: "------x|"), "-------4-|")
  }

  @Test func aListenerAfterTheEnd() throws {
    try expect(try late("{ replay: 2 }", "-1-2|", when: "------x|"), "-------1-2|")
    try expect(try late("{ replay: 2, again: false }", "-1-2|", when: "------x|"), "------(12)|")
    try expect(try late("{ replay: 0, again: false }", "-1-2|", when: "------x|"), "-------|")
  }

  @Test func eagerAndNeverStopped() throws {
    let counts = CountedSource.Counts()
    let source = CountedSource(counts, SignalHistory(try Marbles("-1-2-3-|")).script)
    func run(_ share: String, when: String) throws -> PipelineRun {
      try PipelineRun(
        """
        name: t
        sources: { a: { counted: {} }, b: { scripted: {} } }
        signals:
          s: { from: a, share: \(share) }
          l: { from: b, chain: [ { flattenMap: { policy: latest, signal: { from: s, chain: [ { take: 1 } ] } } } ] }
        sinks: { out: { from: l, probe: {} } }
        """, sources: ["a": source, "b": ScriptedSource(SignalHistory(try Marbles(when)).script)])
    }
    try expect(try run("{ start: eager, stop: never, replay: 1 }", when: "----x|"), "----2|")
    #expect(counts.log == "+-")
    counts.log = ""
    try expect(try run("{ stop: never, replay: 1 }", when: "-x---x|"), "--1--2|")
    #expect(counts.log == "+-")
    counts.log = ""
    try expect(try run("{ replay: 1 }", when: "-x---x|"), "--1---(1|)")
    #expect(counts.log == "+-+-")
  }

  @Test func whatIsKeptForLateListenersOutlivesTheProcess() throws {
    var options = PipelineRun.Options()
    options.cutAfter = { _ in true }
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      signals:
        s: { from: a, share: { replay: 2, start: eager, stop: never } }
        l: { from: b, chain: [ { flattenMap: { signal: { from: s } } } ] }
      sinks: { out: { from: l, probe: {} } }
      """, ["a": "-1-2-3-4-|", "b": "------x|"], options: options)
    try expect(run, "------(23)4-|")
  }
}
