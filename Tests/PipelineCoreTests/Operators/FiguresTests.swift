import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// Several aggregates at once: over a signal, groups, windows.
@Suite struct FiguresTests {
  private static func source(_ events: [(at: Int64, yaml: String)]) throws -> ScriptedSource {
    var entries = try events.map {
      SignalHistory.Entry(at: .milliseconds($0.at), .next(try MarbleCase.value($0.yaml)))
    }
    entries.append(.init(at: .milliseconds((events.last?.at ?? 0) + 1), .complete))
    return ScriptedSource(SignalHistory(entries).script)
  }

  private static func pipeline(_ chain: String) -> String {
    """
    name: t
    sources: { a: { scripted: {} } }
    sinks: { out: { from: a, chain: [ \(chain) ], probe: {} } }
    """
  }

  private static func run(_ chain: String, _ events: [String], cut: Bool = false) throws -> PipelineRun {
    var options = PipelineRun.Options()
    if cut { options.cutAfter = { _ in true } }
    return try PipelineRun(
      pipeline(chain), sources: ["a": try source(events.enumerated().map { (Int64($0), $1) })], options: options)
  }

  private static func said(_ run: PipelineRun) -> [String] {
    run.out.entries.dropLast().map { "\($0.moment)" } + run.deadLetters
  }

  private static func result(_ figures: String, _ events: [String]) throws -> String {
    let run = try run("{ aggregate: \(figures) }", events)
    #expect(run.deadLetters.isEmpty, "\(run.deadLetters)")
    return run.out.entries.first.map { "\($0.moment)" } ?? "nothing"
  }

  // MARK: Each figure

  @Test(arguments: [
    ("count", "4"), ("count()", "4"), ("count(event.n > 2)", "2"), ("countDistinct(event.n)", "2"),
    ("countDistinct(event.s)", "2"), ("'countDistinct(event.n, event.s == \"x\")'", "2"), ("sum(event.n)", "8"),
    ("'sum(event.n, event.n > 2)'", "6"), ("sum(event.d)", "2.5"), ("avg(event.n)", "2"), ("avg(event.d)", "0.625"),
    ("min(event.n)", "1"), ("max(event.s)", "y"), ("first(event.s)", "x"), ("last(event.n)", "3"),
    ("'last(event.n, event.n < 2)'", "1"), ("sum(event.n) / count()", "2"), ("'max(event.n) - min(event.n)'", "2"),
    ("sum(event.?none)", "0"), ("avg(event.?none)", "null"), ("min(event.?none)", "null"),
    ("countDistinct(event.?none)", "0"), ("count(event.?none.hasValue())", "0"), ("sum(event.m)", "5"),
    ("sum(duration(event.t))", "4s"), ("avg(duration(event.t))", "1s"),
    ("{ a: count(), b: { c: max(event.n) } }", #"{"a":4,"b":{"c":3}}"#),
    ("'[count(), sum(event.n)]'", "[4,8]"), ("'max(event.n) > 2 ? \"high\" : \"low\"'", "high"),
  ])
  func aFigureIsAsItSays(_ figures: String, _ wanted: String) throws {
    let events = [
      "{n: 1, s: x, d: 0.5, m: 2, t: 1s}", "{n: 1, s: y, d: 0.5, m: null, t: 1s}",
      "{n: 3, s: x, d: 0.25, m: 2.0, t: 1s}",
      "{n: 3, s: y, d: 1.25, m: 1, t: 1s}",
    ]
    let got = try Self.result(figures, events)
    #expect(got == wanted || got == "\"\(wanted)\"" || got == wanted + ".0", "\(figures): \(got)")
  }

  /// Values are distinct as for `distinct`: different kinds are, forms of one number are not, and a text is not the
  /// number.
  @Test func distinctIsExact() throws {
    let events = [
      "{x: 1}", "{x: '1'}", "{x: 1.5}", "{x: 1.50}", "{x: true}", "{x: [1, 2]}", "{x: [1, 2]}", "{x: null}",
    ]
    #expect(try Self.result("countDistinct(event.x)", events) == "5")
    let many = (0..<5000).map { "{x: \($0 * 7919 % 3000), y: t\($0 % 1700)}" }
    #expect(
      try Self.result(
        "{ a: countDistinct(event.x), b: countDistinct(event.y), c: 'countDistinct(event.x, event.x < 100)' }", many)
        == #"{"a":3000,"b":1700,"c":100}"#)
  }

  // MARK: What does not count

  /// An event counts in all aggregates or in none.
  @Test func aFailingEventCountsInNone() throws {
    let chain = "{ aggregate: { n: count(), sum: sum(event.x), top: max(event.y) } }"
    let run = try Self.run(
      chain,
      [
        "{x: 1, y: 1}", "{x: 2}", "{x: text, y: 3}", "{x: 9223372036854775807, y: 4}", "{x: 3, y: text}",
        "{x: 4, y: 2}",
      ])
    #expect(run.out.entries.first.map { "\($0.moment)" } == #"{"n":2,"sum":5,"top":2}"#)
    #expect(run.deadLetters.count == 4)
  }

  @Test func aConditionSparesTheValue() throws {
    let run = try Self.run(
      "{ aggregate: { n: count(), sum: 'sum(event.x, has(event.x))' } }", ["{x: 1}", "{y: 2}", "{x: 4}"])
    #expect(Self.said(run) == [#"{"n":3,"sum":5}"#])
  }

  @Test func distinctValuesHaveABound() throws {
    let run = try Self.run(
      "{ aggregate: { figures: { n: count(), kinds: countDistinct(event.x) }, maxDistinct: 2 } }",
      ["{x: 1}", "{x: 2}", "{x: 3}", "{x: 1}"])
    #expect(run.out.entries.first.map { "\($0.moment)" } == #"{"kinds":2,"n":3}"#)
    #expect(run.deadLetters.count == 1)
  }

  // MARK: Checks

  @Test(arguments: [
    ("aggregate: { n: event.x }", "inside of an aggregate"),
    ("aggregate: { n: sum(max(event.x)) }", "contain another aggregate"),
    ("aggregate: { n: 1 }", "has no aggregate"), ("aggregate: { n: sum() }", "takes a value"),
    ("aggregate: { n: 'count(event.x > 1, 2)' }", "at most a condition"), ("aggregate: {}", "needs figures"),
    ("aggregate: { n: 'sum(string(event.x))' }", "takes numbers or durations"),
    ("aggregate: { n: 'sum(event.x, 1)' }", "a bool is needed here"),
    ("aggregate: { figures: count(), next: running }", "not both"), ("aggregate: { start: 0 }", "needs figures"),
    ("window: { every: 1s, aggregate: count(), to: size(events) }", "exclude each other"),
    ("aggregate: { n: count(, }", "expected a value"),
  ])
  func mistakesAreReported(_ step: String, _ wanted: String) throws {
    do {
      _ = try PipelineRun.compile(Self.pipeline("{ \(step) }"))
      Issue.record("'\(step)' was taken")
    } catch {
      #expect("\(error)".contains(wanted), "\(error)")
    }
  }

  /// A fold is unchanged; a mapping without `next` defines aggregates, whatever their names.
  @Test func namesOfFiguresAreFree() throws {
    #expect(
      try Self.result("{ start: min(event), text: count(), max: max(event), index: last(event) }", ["2", "1"])
        == #"{"index":1,"max":2,"start":1,"text":2}"#)
    #expect(try Self.result("{ next: running + event, start: 1 }", ["2", "3"]) == "6")
  }

  // MARK: Groups, windows, state

  private static let figures =
    "{ n: count(), kinds: countDistinct(event.x), even: 'countDistinct(event.x, event.x % 2 == 0)', sum: sum(event.x), mean: avg(event.x), least: min(event.x), top: 'max(event.x, event.x < 6)', first: first(event.x), last: last(event.x) }"

  /// The expected aggregates of a window, computed from lists.
  private static let lists =
    "{ n: size(events), kinds: 'events.map(e, e.x).distinct().size()', even: 'events.map(e, e.x).filter(x, x % 2 == 0).distinct().size()', sum: 'events.map(e, e.x).sum()', mean: 'events.map(e, e.x).avg()', least: 'events.map(e, e.x).min()', top: 'size(events.filter(e, e.x < 6)) == 0 ? null : dyn(events.filter(e, e.x < 6).map(e, e.x).max())', first: 'events[0].x', last: 'events[size(events) - 1].x' }"

  private static let windows = [
    "every: 4ms", "every: 4ms, length: 6ms", "every: 3ms, length: 7ms", "gap: 3ms", "gap: 3ms, maxLength: 5ms",
    "count: 3",
    "count: 4, step: 2", "count: 3, step: 2", "count: 2, step: 3", "every: 5s, time: timestamp(event.t)",
    "every: 5s, time: timestamp(event.t), lateness: 4s",
    "every: 2s, length: 6s, time: timestamp(event.t), lateness: 4s",
    "every: 3s, length: 5s, time: timestamp(event.t)", "gap: 3s, time: timestamp(event.t), lateness: 6s",
    "gap: 3s, inclusive: true, time: timestamp(event.t)", "every: 5s, time: timestamp(event.t), idle: 3ms",
  ]

  /// A window with aggregates sends the same as a window with a list and list functions.
  @Test(arguments: windows) func figuresOfWindowsAreThoseOfTheirLists(_ form: String) throws {
    for seed in 0..<3 {
      var random = GraphGenerator(seed: UInt64(seed))
      var (at, time) = (Int64(0), 50)
      let events = (0..<30).map { _ -> (at: Int64, yaml: String) in
        at += Int64(random.below(3))
        time += random.below(3)
        return (at, "{k: \(random.below(2)), x: \(random.below(9)), t: \(time - random.below(6))}")
      }
      let source = try Self.source(events)
      func run(_ what: String, grouped: Bool, cut: Bool = false) throws -> PipelineRun {
        let window = "{ window: { \(form), \(what) } }"
        var options = PipelineRun.Options()
        if cut { options.cutAfter = { _ in true } }
        return try PipelineRun(
          Self.pipeline(
            grouped ? "{ groupBy: { key: event.k, chain: [ \(window) ] } }, { map: '[meta.key, event]' }" : window),
          sources: ["a": source], options: options)
      }
      for grouped in [false, true] {
        let lists = try run("to: \(Self.lists)", grouped: grouped)
        let figures = try run("aggregate: \(Self.figures)", grouped: grouped)
        #expect(lists.out == figures.out, "seed \(seed)")
        #expect(lists.deadLetters.count == figures.deadLetters.count, "seed \(seed)")
        let cut = try run("aggregate: \(Self.figures)", grouped: grouped, cut: true)
        #expect(cut.out == figures.out && cut.refusals.isEmpty, "seed \(seed), cut after each turn")
      }
    }
  }

  @Test func windowsKnowTheirTimes() throws {
    let run = try Self.run(
      "{ window: { every: 10s, time: timestamp(event.t), aggregate: { at: int(start), s: '(end - start).getSeconds()', n: count } } }",
      ["{t: 3}", "{t: 7}", "{t: 14}"])
    #expect(Self.said(run) == [#"{"at":0,"n":2,"s":10}"#, #"{"at":10,"n":1,"s":10}"#])
  }

  @Test func figuresOfGroupsAreSaved() throws {
    let events = (0..<20).map { "{k: \($0 % 3), x: \($0 * 5 % 7), s: t\($0 % 4)}" }
    let chain =
      "{ groupBy: { key: event.k, chain: [ { aggregate: { k: meta.key, f: \(Self.figures), s: countDistinct(event.s) } } ] } }"
    let whole = try Self.run(chain, events)
    let cut = try Self.run(chain, events, cut: true)
    #expect(Self.said(cut) == Self.said(whole))
    #expect(whole.out.entries.count == 4)
    #expect(cut.refusals.isEmpty)
  }
}
