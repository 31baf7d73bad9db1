import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Events that did not pass, and the information kept about them.
@Suite struct StoppedEventsTests {
  /// Runs a pipeline on virtual time and returns its stopped events.
  private func stopped(_ yaml: String, limit: Int = StoppedEvents.limit, until: TimeSpan? = nil) throws
    -> [StoppedEvent]
  {
    let kept = StoppedEvents(limit: limit)
    _ = try run(yaml, kept, until: until)
    return kept.all
  }

  @discardableResult
  private func run(_ yaml: String, _ kept: StoppedEvents, until: TimeSpan? = nil) throws -> VirtualPipeline {
    let pipeline = try VirtualPipeline(yaml)
    pipeline.execution.keep(in: kept)
    pipeline.run(until: until)
    return pipeline
  }

  private func pipeline(_ events: String, _ chain: String, every: String = "1s", more: String = "") -> String {
    """
    sources: { numbers: { values: { list: \(events), every: \(every) } } }
    signals: { some: { from: numbers, chain: [ \(chain) ] } }
    sinks: { out: { from: some, discard: {} } }
    \(more)
    """
  }

  private func texts(_ events: [StoppedEvent]) -> [String] {
    events.map { "\($0.verdict) \($0.text(limit: 100).text)" }
  }

  @Test func aConditionSaysWhatItSaw() throws {
    let events = try stopped(
      pipeline(
        "[{ status: 200, m: GET }, { status: 503, m: GET }, { status: 404 }]",
        "{ map: event }, { filter: \"event.status >= 500 && event.m == 'GET'\" }"))
    #expect(texts(events) == [#"dropped {"status":200,"m":"GET"}"#, #"dropped {"status":404}"#])
    let first = try #require(events.first)
    #expect(first.plan.id(of: first.step) == "some/filter" && first.number == 1 && first.source == "numbers")
    #expect(first.way.map(first.plan.id(of:)) == ["numbers/values", "some/map", "some/filter"])
    let seen = try #require(first.expressions.first)
    #expect(seen.text == "event.status >= 500 && event.m == 'GET'" && seen.result == "false" && seen.failure == nil)
    #expect(seen.location.line == 2)
    #expect(
      seen.reads == [
        SeenExpression.Read(path: "event.status", value: "200"), SeenExpression.Read(path: "event.m", value: "'GET'"),
      ])
    #expect(try events.item(1).expressions.first?.reads?.last == SeenExpression.Read(path: "event.m", value: "missing"))
    #expect(
      try events.item(0).instant < events.item(1).instant && events.item(1).time - events.item(0).time == 2_000_000_000)
  }

  @Test func failuresHaveAReason() throws {
    let undecided = try stopped(pipeline("[{ a: 1 }, {}]", "{ filter: event.a > 0 }"))
    #expect(texts(undecided) == ["undecided {}"])
    #expect(undecided[0].problem?.message.contains("no such key") == true && undecided[0].problem?.code == "RX503")
    let rejected = try stopped(
      pipeline("[{ a: 1, b: 2 }, { a: x, b: 2 }]", "{ map: { b: event.b * 2, a: event.a + 1 } }"))
    #expect(texts(rejected) == [#"rejected {"a":"x","b":2}"#])
    // The one of several expressions that failed.
    #expect(try rejected.item(0).expressions.map(\.text) == ["event.a + 1"])
    #expect(
      try rejected.item(0).expressions.item(0).failure != nil
        && rejected.item(0).expressions.item(0).reads?.first?.value == "'x'")
    let failed = try stopped(pipeline("[1, x]", "{ map: event + 1, onError: fail }"))
    #expect(texts(failed) == [#"failed "x""#])
  }

  @Test func timeAndLimitsStopEvents() throws {
    #expect(
      try texts(stopped(pipeline("[1, 2, 3]", "{ throttle: 1500ms }"))) == ["superseded 1", "superseded 2"])
    #expect(
      try texts(stopped(pipeline("[1, 2, 3, 4]", "{ rateLimit: { count: 1, per: 2500ms } }"))).count == 2)
    #expect(try texts(stopped(pipeline("[1, 1, 2]", "distinctUntilChanged"))) == ["dropped 1"])
    #expect(try texts(stopped(pipeline("[1, 2, 3]", "{ skip: 2 }"))) == ["dropped 1", "dropped 2"])
    #expect(try texts(stopped(pipeline("[1, 2, 3]", "{ takeLast: 1 }"))) == ["superseded 1", "superseded 2"])
    let late = try stopped(
      pipeline(
        "[{ t: 100 }, { t: 5 }]", "{ window: { every: 10s, time: 'timestamp(event.t)', aggregate: { n: count() } } }"))
    #expect(texts(late) == [#"rejected {"t":5}"#] && late.first?.problem?.message.contains("after its window") == true)
  }

  /// Also in groups and inner signals, where the outer event is known.
  @Test func innerSignalsSayTheirOuterEvent() throws {
    let events = try stopped(
      pipeline(
        "[{ a: 1 }, { a: 2 }]",
        "{ flattenMap: { signal: { values: [5], chain: [ { filter: 'event > 5 || outer.a == 2' } ] } } }"))
    #expect(texts(events) == ["dropped 5"])
    #expect(
      events.first?.expressions.first?.reads == [
        SeenExpression.Read(path: "event", value: "5"), SeenExpression.Read(path: "outer.a", value: "1"),
      ])
    let grouped = try stopped(
      pipeline("[{ k: a, n: 1 }, { k: b, n: 2 }]", "{ groupBy: { key: event.k, chain: [ { filter: event.n > 1 } ] } }"))
    #expect(texts(grouped) == [#"dropped {"k":"a","n":1}"#] && grouped.first?.key == "\"a\"")
  }

  /// A million ordinary drops cost no more than a few, and do not displace a rare one.
  @Test func dullDropsDoNotPushOutRareOnes() throws {
    let yaml = """
      sources: { ticks: { interval: 1ms } }
      signals:
        some:
          from: ticks
          chain:
            - map: "event.tick == 20 ? {'x': 'rare'} : {'n': event.tick}"
            - filter: has(event.n)
            - filter: event.n < 0
      sinks: { out: { from: some, discard: {} } }
      """
    let kept = StoppedEvents(limit: 32 << 10)
    let pipeline = try run(yaml, kept, until: .seconds(60))
    let statistics = pipeline.execution.statistics
    let dropped = statistics.steps.filter { pipeline.execution.plan.steps[$0.step.number].keyword == "filter" }
    #expect(try dropped.map(\.dropped) == [1, dropped.item(1).dropped] && dropped.item(1).dropped > 59_000)
    let all = kept.all
    #expect(all.contains { $0.text(limit: 100).text == #"{"x":"rare"}"# })
    // The newest and a sample of older ones, within the limit in bytes.
    #expect(kept.bytes <= 32 << 10 && all.count > 30)
    defer {
      kept.setLimit(4 << 10)
      #expect(kept.bytes <= 4 << 10 && kept.all.contains { $0.text(limit: 100).text == #"{"x":"rare"}"# })
      kept.setLimit(0)
      #expect(kept.bytes == 0 && kept.all.isEmpty)
    }
    let numbers = all.map(\.number)
    #expect(try numbers.last.map { try $0 + 200 > dropped.item(1).dropped } == true, "\(numbers)")
    #expect(all.contains { $0.time < all[all.count - 1].time - 2_000_000_000 })
    #expect(zip(all, all.dropFirst()).allSatisfy { $0.time <= $1.time })
  }

  /// Few events are all kept.
  @Test func ofFewEventsAllAreKept() throws {
    let events = try stopped(
      pipeline("[\((0..<200).map(String.init).joined(separator: ", "))]", "{ filter: event < 0 }", every: "100ms"))
    #expect(events.map(\.number) == (1...200).map { UInt64($0) })
  }

  /// They outlive the run; for large events the values are kept, and the text is truncated.
  @Test func runsAndLargeEvents() throws {
    let kept = StoppedEvents()
    try run(pipeline("[1]", "{ filter: event > 1 }"), kept)
    let long = String(repeating: "x", count: 40_000)
    try run(pipeline("[{ a: 7, b: '\(long)' }]", "{ filter: event.a > 7 }"), kept)
    let all = kept.all
    #expect(all.count == 2 && all[0].plan !== all[1].plan)
    let large = try #require(all.first { $0.cut != nil })
    #expect((large.cut?.bytes ?? 0) > 40_000 && large.text(limit: 20).text.utf8.count == 20)
    #expect(large.expressions.first?.reads == [SeenExpression.Read(path: "event.a", value: "7")])
    #expect(kept.bytes < 8000)
  }

  @Test func secretsAreNeverShown() throws {
    SecretMask.process.note(Array("hunter22-why".utf8))
    let events = try stopped(pipeline("[{ a: hunter22-why }]", "{ filter: event.a == 'b' }"))
    #expect(events.first?.text(limit: 100).text == #"{"a":"(secret)"}"#)
    #expect(events.first?.expressions.first?.reads?.first?.value == "'(secret)'")
  }
}
