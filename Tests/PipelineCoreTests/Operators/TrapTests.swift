import PipelineCore
import PipelineRuntime
import PipelineTestSupport
import PipelineTesting
import Testing

/// A known misunderstanding about operators, as marbles of 10 ms a character.
struct Trap: Sendable, CustomTestStringConvertible {
  var number: Int
  var title: String
  var text: String
  var inputs: [(name: String, marbles: String)]
  var output: String
  var values: [(String, String)]
  var isHot: Bool
  var line: Int

  var testDescription: String { "\(number). \(title)" }

  init(
    _ number: Int, _ title: String, _ text: String, _ inputs: KeyValuePairs<String, String>,
    out: String, values: KeyValuePairs<String, String> = [:], hot: Bool = true, line: Int = #line
  ) {
    self.number = number
    self.title = title
    self.text = text
    self.inputs = inputs.map { ($0.key, $0.value) }
    output = out
    self.values = values.map { ($0.key, $0.value) }
    isHot = hot
    self.line = line
  }

  func verdict() throws -> String? {
    let isSignal =
      text.hasPrefix("{ from") || ReservedKeys.combining.contains { text.hasPrefix("\($0):") }
      || text.hasPrefix("{ combineLatest") || text.hasPrefix("{ zip")
    return try MarbleCase(
      text, isSignal: isSignal, inputs: inputs, output: output, values: values,
      tick: .milliseconds(10)
    ).verdict(hot: isHot)
  }
}

@Suite struct TrapTests {
  static let traps: [Trap] = [
    Trap(1, "throttle is a debounce", "throttle: 50ms", ["a": "-1-2-------3-|"], out: "--------2----(3|)"),
    Trap(2, "completion flushes a throttle", "throttle: 50ms", ["a": "-1-|"], out: "---(1|)"),
    Trap(2, "an error drops what a throttle holds", "throttle: 50ms", ["a": "-1-#"], out: "---#"),
    Trap(3, "a steady stream starves a throttle", "throttle: 50ms", ["a": "-1-2-3-4-5|"], out: "----------(5|)"),
    Trap(
      3, "unless maxWait sets a bound (ours)", "throttle: { quiet: 50ms, maxWait: 50ms }",
      ["a": "-1-2-3-4-5|"], out: "------3---(5|)"),
    Trap(4, "delay does not hold back an error", "delay: 50ms", ["a": "-1--#"], out: "----#"),
    Trap(5, "delay shifts the completion", "delay: 50ms", ["a": "-1|"], out: "------1|"),
    Trap(5, "delay shifts the completion of nothing", "delay: 50ms", ["a": "-|"], out: "------|"),
    Trap(6, "timeout counts to the completion", "timeout: 60ms", ["a": "-1-1-1-1-|"], out: "-1-1-1#"),
    Trap(
      7, "sample repeats and ends with either side", "{ from: a, chain: [ { sample: { at: b } } ] }",
      ["a": "-1---2-----|", "b": "--x-x-x-x|"], out: "--1-1-2-2|"),
    Trap(11, "take completes together with its last event", "take: 2", ["a": "-1-2-#"], out: "-1-(2|)"),
    Trap(11, "take 0 completes at once", "take: 0", ["a": "-1-2-#"], out: "|"),
    Trap(
      15, "reduce is per event, over the parts of one", "{ combineLatest: [x, y], reduce: x + y }",
      ["x": "-1-3-|", "y": "-2-4-|"], out: "-A-(CB)-|",
      values: ["A": "3", "B": "7", "C": "5"]),
    Trap(
      16, "aggregate answers also for nothing", "aggregate: { start: 0, next: running + event }",
      ["a": "--|"], out: "--(0|)"),
    Trap(
      16, "aggregate says nothing on an error", "aggregate: { start: 0, next: running + event }",
      ["a": "-1-#"], out: "---#"),
    Trap(
      17, "scan does not send its start", "scan: { start: 0, next: running + event }",
      ["a": "-1-2-|"], out: "-1-3-|"),
    Trap(
      18, "collect of nothing is an empty list", "collect", ["a": "--|"], out: "--(L|)",
      values: ["L": "[]"]),
    Trap(
      19, "combineLatest waits for all and ends with the last", "combineLatest: [a, b]",
      ["a": "-1|", "b": "---2-3-|"], out: "---A-B-|", values: ["A": "[1, 2]", "B": "[1, 3]"]),
    Trap(
      20, "combineLatest does not end early", "combineLatest: [a, b]",
      ["a": "-|", "b": "--2--|"], out: "-----|"),
    Trap(
      21, "a diamond fires once for each arrival", "combineLatest: { x: a, y: a }", ["a": "-1-2-|"],
      out: "-A-(BC)-|", values: ["A": "[1, 1]", "B": "[2, 1]", "C": "[2, 2]"]),
    Trap(
      22, "zip ends as soon as no pair is possible", "zip: [a, b]", ["a": "-1-|", "b": "--2----3"],
      out: "--A|", values: ["A": "[1, 2]"]),
    Trap(
      23, "zip pairs by position", "zip: [a, b]", ["a": "-123456", "b": "-------x"],
      out: "-------A", values: ["A": "[1, x]"]),
    Trap(
      23, "but not without a limit (ours)", "{ zip: { signals: [a, b], limit: 3 } }",
      ["a": "-123456", "b": "-------x"], out: "----#"),
    Trap(
      24, "concat loses what a hot input sent too early", "concat: [a, b]",
      ["a": "-1--|", "b": "--2---3-|"], out: "-1----3-|"),
    Trap(
      26, "flattenMap interleaves", "flattenMap: { signal: { marbles: { text: '-p-q|', tick: 10ms } } }",
      ["a": "-x--x--|"], out: "--p-qp-q|"),
    Trap(
      27, "one inner error ends everything",
      """
      flattenMap: { signal: { marbles: { text: "{{ event == 'x' ? '-p------|' : '--#' }}", tick: 10ms } } }
      """, ["a": "-x-z---|"], out: "--p--#"),
    Trap(
      28, "the newest inner ends with both (ours drops the old one before it subscribes the new)",
      """
      flattenMap: { policy: latest, signal: { marbles: { text: "{{ event == 'x' ? '---p-|' : '-q---r|' }}", tick: 10ms } } }
      """, ["a": "-x-y-|"], out: "----q---r|"),
    Trap(
      29, "a limit queues",
      """
      flattenMap: { maxConcurrent: 1, signal: { marbles: { text: '-p-|', tick: 10ms } } }
      """, ["a": "(xxx|)"], out: "-p--p--p-|"),
    Trap(30, "retry n means n further subscriptions", "retry: 1", ["a": "-1#"], out: "-1-1#"),
    Trap(31, "repeat never ends by itself", "repeat", ["a": "-1|"], out: "-1-1-1-"),
    Trap(
      32, "catch catches once", "catch: { with: { marbles: { text: '-2#', tick: 10ms } } }",
      ["a": "-1#"], out: "-1-2#"),
    Trap(
      36, "bufferWithTime begins with the first event", "bufferWithTime: 50ms",
      ["a": "-1-2-------3--|"], out: "------A-------(B|)",
      values: ["A": "[1, 2]", "B": "[3]"]),
    Trap(36, "bufferWithTime drops on an error", "bufferWithTime: 50ms", ["a": "-1-#"], out: "---#"),
    Trap(38, "startWith comes first", "startWith: 0", ["a": "--1-|"], out: "0-1-|"),
    Trap(
      40, "distinctUntilChanged looks at neighbours", "distinctUntilChanged", ["a": "-1-1-2-1-|"],
      out: "-1---2-1-|"),
    Trap(
      40, "by content: null equals null, 1 is not a text", "distinctUntilChanged",
      ["a": "-n-n-1-s-1|"], out: "-n---1-s-1|", values: ["n": "null", "s": "'1'"]),
    Trap(
      8, "the trigger's completion ends takeUntil", "{ from: a, chain: [ { takeUntil: b } ] }",
      ["a": "-1--2-3", "b": "---|"], out: "-1-|"),
    Trap(
      9, "the trigger's error is ignored", "{ from: a, chain: [ { takeUntil: b } ] }",
      ["a": "-1-2-|", "b": "--#"], out: "-1-2-|"),
    Trap(
      10, "the trigger is subscribed first", "{ from: a, chain: [ { takeUntil: b } ] }",
      ["a": "(12|)", "b": "(0|)"], out: "|", hot: false),
    Trap(12, "takeLast needs the completion", "takeLast: 2", ["a": "-1-2-3-|"], out: "-------(23|)"),
    Trap(12, "takeLast of an error", "takeLast: 2", ["a": "-1-2-#"], out: "-----#"),
    Trap(12, "takeLast 0 waits for the end", "takeLast: 0", ["a": "-1-|"], out: "---|"),
    Trap(
      13, "takeUntil a condition leaves the event out", "takeUntil: { where: event >= 3 }",
      ["a": "-1-3-1-|"], out: "-1-|"),
    Trap(13, "skipUntil a condition lets it in", "skipUntil: event >= 3", ["a": "-1-3-1-|"], out: "---3-1-|"),
    Trap(14, "skipWhile tests no more after the first", "skipWhile: event < 3", ["a": "-1-3-1-|"], out: "---3-1-|"),
    Trap(
      21, "unless it settles (ours)", "combineLatest: { x: a, y: a, settle: true }", ["a": "-1-2-|"],
      out: "-A-C-|", values: ["A": "[1, 1]", "C": "[2, 2]"]),
    Trap(
      25, "then drops events, not errors", "{ from: a, chain: [ { then: b } ] }",
      ["a": "-1-#", "b": "9|"], out: "---#", hot: false),
    Trap(
      28, "switchToLatest ends with both",
      """
      switchToLatest: { marbles: { text: "{{ event == 'x' ? '---p-|' : '-q---r|' }}", tick: 10ms } }
      """, ["a": "-x-y-|"], out: "----q---r|"),
    Trap(
      33, "any turns an error into false", "any: event > 9", ["a": "-1-#"], out: "---(F|)",
      values: ["F": "false"]),
    Trap(33, "all of nothing is true", "all: event > 9", ["a": "--|"], out: "--(T|)", values: ["T": "true"]),
    Trap(
      34, "and is for each event", "and", ["a": "-P-Q-|"], out: "-A-B-|",
      values: ["P": "[true, false]", "Q": "[true, true]", "A": "false", "B": "true"]),
    Trap(
      35, "materialize ends normally after an error", "materialize", ["a": "-1-#"], out: "-A-(B|)",
      values: ["A": "{kind: next, value: 1}", "B": "{kind: error, error: {kind: user, message: error}}"]),
    Trap(
      39, "takeUntilReplacement does not end with its receiver",
      "{ from: a, chain: [ { takeUntilReplacement: b } ] }", ["a": "-1|", "b": "---3|"], out: "-1-3|"),
    Trap(
      41, "if switches: what the other branch sends is lost", "if: { condition: a, then: b, else: c }",
      ["a": "-T--F-|", "b": "--1--2", "c": "---8--9|"], out: "--1---9|",
      values: ["T": "true", "F": "false"]),
    Trap(
      42, "groups end in the order of their making",
      """
      groupBy: { key: event % 2, chain: [ { aggregate: { start: 0, next: running + event } } ] }
      """, ["a": "-1-2-3-|"], out: "-------(42|)"),
    Trap(
      42, "what a group still holds when it has been idle for too long keeps its key",
      "{ from: a, chain: [ { groupBy: { key: event, idle: 20ms, chain: [ { delay: 50ms } ] } }, { map: meta.key } ] }",
      ["a": "-1-2-----|"], out: "------1-2-|"),
  ]

  @Test(arguments: traps) func marblesHold(_ trap: Trap) throws {
    if let verdict = try trap.verdict() {
      Issue.record(
        "\(verdict)",
        sourceLocation: Testing.SourceLocation(
          fileID: #fileID, filePath: #filePath, line: trap.line, column: 1))
    }
  }

  // MARK: Traps without a drawing

  /// The end of a signal reaches the later steps, although they run in the same pass.
  @Test(arguments: [
    ("{ take: 2 }", "1-2-3|"), ("{ takeWhile: event < 3 }", "1-2-3|"),
    ("{ takeWhile: { where: event < 2, inclusive: true } }", "1-2-3|"),
    ("{ take: 2 }, { map: event + 1 }, { take: 3 }", "1-2-3|"),
  ])
  func downstreamStepsReceiveTheEnd(_ ending: String, _ events: String) throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      sinks: { out: { from: a, chain: [ \(ending), { log: { when: [completed] } }, { aggregate: { start: 0, next: running + 1 } } ], probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles(events)).script)])
    #expect(run.log.count == 1 && run.log.allSatisfy { $0.hasSuffix("completed") })
    #expect(run.out.entries.map { "\($0.moment)" } == ["2", "the completion"])
    #expect(run.out.entries.first?.at == .milliseconds(ending.contains("< 3") ? 4 : 2))
  }

  /// 11: `take: 0` never subscribes.
  @Test func takeNothingDoesNotSubscribe() throws {
    let counts = CountedSource.Counts()
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { counted: {} } }
      sinks: { out: { from: a, chain: [ { take: 0 } ], probe: {} } }
      """, sources: ["a": CountedSource(counts, SignalHistory(try Marbles("-1|")).script)])
    #expect(counts.begun == 0)
    #expect(run.outcome == .completed)
  }

  /// 31: a source that completes immediately, repeated forever, lets other work run and does not deepen the stack.
  @Test func repeatOfNothingYields() throws {
    var options = PipelineRun.Options()
    options.turnLimit = 50
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { values: [] } }
      sinks: { out: { from: a, chain: [ repeat, { take: 1 } ], probe: {} } }
      """, sources: [:], options: options)
    #expect(!run.isQuiet)
    #expect(run.outcome == nil)
  }

  /// 45: `take` ends a source that sends without a pause.
  @Test func takeEndsAnEndlessSource() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { values: [1, 2] } }
      sinks: { out: { from: a, chain: [ repeat, { take: 5 } ], probe: {} } }
      """, sources: [:])
    #expect(run.out.entries.count == 6)
    #expect(run.outcome == .completed)
  }

  /// 46: a signal that ends releases its resources before the next one starts.
  @Test(arguments: [
    ("{ concat: [a, b] }", "-1|"), ("{ from: a, chain: [ { repeat: 2 } ] }", "-1|"),
    ("{ from: a, chain: [ { retry: 1 } ] }", "-1#"), ("{ from: a, chain: [ { catch: { with: b } } ] }", "-1#"),
  ])
  func teardownComesFirst(_ signal: String, _ marbles: String) throws {
    let counts = CountedSource.Counts()
    let source = CountedSource(counts, SignalHistory(try Marbles(marbles)).script)
    _ = try PipelineRun(
      """
      name: t
      sources: { a: { counted: {} }, b: { counted: {} } }
      signals: { s: \(signal) }
      sinks: { out: { from: s, probe: {} } }
      """, sources: ["a": source, "b": source])
    #expect(counts.log == "+-+-")
  }

  /// 28 (ours): `latest` cancels the old inner signal before it subscribes to the new one.
  @Test func latestDropsTheOldFirst() throws {
    let counts = CountedSource.Counts()
    let source = CountedSource(counts, SignalHistory(try Marbles("----1|")).script)
    _ = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} }, b: { counted: {}, cold: true } }
      signals: { s: { from: a, chain: [ { flattenMap: { policy: latest, signal: { from: b } } } ] } }
      sinks: { out: { from: s, probe: {} } }
      """,
      sources: ["a": ScriptedSource(SignalHistory(try Marbles("-x-y-z|")).script), "b": source])
    #expect(counts.log == "+-+-+-")
  }

  /// 53: a retry runs the side effects again. 54: so does the second use of a cold signal, but a shared one
  /// runs once.
  @Test func sharedRunsOnceColdTwice() throws {
    for (cold, expected) in [(false, 1), (true, 2)] {
      let counts = CountedSource.Counts()
      let source = CountedSource(counts, SignalHistory(try Marbles("-1|")).script)
      _ = try PipelineRun(
        """
        name: t
        sources: { a: { counted: {}, cold: \(cold) } }
        signals: { s: { zip: { x: a, y: a } } }
        sinks: { out: { from: s, probe: {} } }
        """, sources: ["a": source])
      #expect(counts.begun == expected)
    }
  }

  /// 50: an event for which a function fails is given up, and the signal continues; `onError: fail` is
  /// ReactiveCocoa's rule.
  @Test func oneBadEventEndsNothing() throws {
    let text = """
      name: t
      sources: { a: { scripted: {} } }
      sinks: { out: { from: a, chain: [ { map: 6 / event, onError: POLICY } ], probe: {} } }
      """
    let source = ScriptedSource(SignalHistory(try Marbles("-1-0-2|")).script)
    func run(_ policy: String) throws -> PipelineRun {
      try PipelineRun(text.replacing("POLICY", with: policy), sources: ["a": source])
    }
    let routed = try run("route")
    #expect(routed.out == SignalHistory(try Marbles("-6---3|")))
    #expect(routed.deadLetters.count == 1)
    #expect(routed.counters.rejected == 1)
    let dropped = try run("drop")
    #expect(dropped.out == SignalHistory(try Marbles("-6---3|")))
    #expect(dropped.deadLetters.isEmpty && dropped.counters.undecided == 1)
    #expect(try run("keep").out == SignalHistory(try Marbles("-6-0-3|")))
    let failed = try run("fail")
    #expect(failed.out.firstDifference(from: SignalHistory(try Marbles("-6-#"))) == nil)
    guard case .failed(let failure) = failed.outcome else {
      Issue.record("the pipeline did not fail")
      return
    }
    #expect(failure.kind == .expression)
  }

  /// 52: each subscription has its own state; so has each round of a repeat.
  @Test func stateBelongsToTheSubscription() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { values: [1, 1, 2, 3] } }
      signals:
        s: { from: a, chain: [ distinctUntilChanged, { take: 2 }, { scan: { start: 0, next: running + event } } ], cold: true }
        r: { from: s, chain: [ { repeat: 2 } ] }
      sinks: { out: { from: r, probe: {} } }
      """, sources: [:])
    #expect(run.out == SignalHistory(try Marbles("(1313|)")))
  }

  /// 55: events that wait in a queue pause the input, which is resumed later.
  @Test func fullQueuesHoldBackTheInput() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      sinks: { out: { from: a, chain: [ { delay: { by: 5ms, limit: 2 } } ], probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles("(12345)|")).script)])
    #expect(run.out == SignalHistory(try Marbles("-----(12345)|")))
    #expect(!run.isInputPaused)
  }

  /// 55: collect holds at most its limit.
  @Test func collectHasABound() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { values: [1, 2, 3] } }
      sinks: { out: { from: a, chain: [ { collect: 2 } ], probe: {} } }
      """, sources: [:])
    guard case .failed(let failure) = run.outcome else {
      Issue.record("the pipeline did not fail")
      return
    }
    #expect(failure.kind == .limit)
  }

  /// 37: a clock ticks first after one period, never immediately, and each subscription has its own clock.
  @Test func intervalTicksAfterOnePeriod() throws {
    var options = PipelineRun.Options()
    options.until = .milliseconds(95)
    let run = try PipelineRun(
      PipelineRun.compile(
        """
        name: t
        sources: { a: { interval: 30ms } }
        sinks: { out: { from: a, chain: [ { map: event.tick } ], discard: {} } }
        """, catalogue: .builtIn), sources: [:], options: options)
    #expect(run.out == SignalHistory(try Marbles("---1--2--3", tick: .milliseconds(10))))
  }

  /// 47: the effects of an event come before the same event reaches the next subscriber, depth first, as in
  /// ReactiveCocoa.
  @Test func deliveryIsDepthFirst() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        caused: { from: a, chain: [ { flattenMap: '[event * 2, event * 3]' } ] }
        both: { merge: [caused, a] }
      sinks: { out: { from: both, probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles("-1-2|")).script)])
    #expect(run.out == SignalHistory(try Marbles("-(231)-(462)|")))
  }

  /// 55: no event of a paused input is lost, whichever operator pauses it.
  @Test func zipRefusesToPairWrongly() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { values: [1, 2, 3] }, b: { scripted: {} } }
      signals: { s: { zip: { signals: [a, b], limit: 2 } } }
      sinks: { out: { from: s, probe: {} } }
      """, sources: ["b": ScriptedSource(SignalHistory(try Marbles("-1|")).script)])
    guard case .failed(let failure) = run.outcome else {
      Issue.record("the pipeline did not fail")
      return
    }
    #expect(failure.kind == .limit)
  }

  /// Batches make no difference, even if an inner signal repeats immediately.
  @Test(arguments: ["exhaust", "merge", "concat", "latest"])
  func roundsSettleBetweenEventsOfABatch(_ policy: String) throws {
    let text = """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        s: { from: a, chain: [ { flattenMap: { policy: \(policy), signal: { values: [8, 9], chain: [ { repeat: 2 } ] } } } ] }
      sinks: { out: { from: s, probe: {} } }
      """
    let script = SignalHistory(try Marbles("-(12)|")).script
    let apart = try PipelineRun(text, sources: ["a": ScriptedSource(script)])
    let together = try PipelineRun(text, sources: ["a": ScriptedSource(script, joined: [1])])
    #expect(apart.out == together.out)
    #expect(apart.out == SignalHistory(try Marbles("-(89898989)|")))
  }
}

extension TrapTests {
  /// 11: `take` completes together with its last event even if a later step drops that event.
  @Test func takeCompletesThoughItsLastEventIsGivenUp() throws {
    for chain in ["{ take: 1 }, { filter: event > 1 }", "{ take: 1 }, { map: 1 / event }"] {
      let run = try PipelineRun(
        """
        name: t
        sources: { a: { scripted: {} } }
        sinks: { out: { from: a, chain: [ \(chain) ], probe: {} } }
        """, sources: ["a": ScriptedSource(SignalHistory(try Marbles("-0-2|")).script)])
      #expect(run.out == SignalHistory(try Marbles("-|")))
    }
  }
}
