import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// Event time of streams: the parameter `time` of a source or signal.
@Suite struct EventTimeTests {
  private struct Item {
    var at: Int64
    var key: Int
    var time: Int
  }

  private static func source(_ items: [Item], end: Int64? = nil) -> ScriptedSource {
    var entries = items.map { item in
      SignalHistory.Entry(
        at: .milliseconds(item.at), .next((try? MarbleCase.value("{k: \(item.key), t: \(item.time)}")) ?? .null))
    }
    entries.append(.init(at: .milliseconds(end ?? (items.last?.at ?? 0) + 1), .complete))
    return ScriptedSource(SignalHistory(entries).script)
  }

  private static func said(_ run: PipelineRun) -> [String] {
    run.out.entries.map { "\($0.at) \($0.moment)" } + run.deadLetters.map { String($0.prefix { $0 != "," }) }
  }

  private static func texts(_ run: PipelineRun) -> [String] { run.out.entries.map { "\($0.moment)" } }

  private static func cutting(_ body: @escaping (Int) -> Bool = { _ in true }) -> PipelineRun.Options {
    var options = PipelineRun.Options()
    options.cutAfter = body
    return options
  }

  private static func random(_ seed: Int, _ count: Int = 40) -> [Item] {
    var random = SplitMix(UInt64(seed))
    var now = 100
    return (0..<count).map { index in
      now += random.below(5)
      return Item(at: Int64(index / 2), key: random.below(4), time: max(0, now - random.below(9)))
    }
  }

  // MARK: One source

  /// A window that uses its source's time sends the same as a window with its own `time`, at the same instants.
  @Test(
    arguments: [
      "every: 10s", "every: 4s, length: 10s", "gap: 6s", "gap: 6s, inclusive: true",
      "every: 7s, aggregate: { n: count(), t: min(event.t) }", "gap: 5s, aggregate: { n: count(), to: end }",
      "every: 4s, length: 9s, aggregate: { n: count(), at: start }",
    ], ["", "lateness: 4s", "lateness: 20s"])
  func aWindowGoesByTheTimeOfItsSource(_ form: String, _ late: String) throws {
    let more =
      form.contains("aggregate") ? "" : ", to: '{\"from\": int(start), \"to\": int(end), \"t\": events.map(e, e.t)}'"
    for isGrouped in [false, true] {
      func chain(_ window: String) -> String {
        isGrouped
          ? "[ { groupBy: { key: event.k, chain: [ { filter: event.t > 0 }, \(window) ] } }, { map: '[meta.key, event]' } ]"
          : "[ \(window) ]"
      }
      func yaml(_ source: String, _ window: String) -> String {
        """
        name: t
        sources: { a: { scripted: {}\(source) } }
        sinks: { out: { from: a, chain: \(chain(window)), probe: {} } }
        """
      }
      let comma = late.isEmpty ? "" : ", "
      let own = yaml("", "{ window: { \(form), time: timestamp(event.t)\(comma)\(late)\(more) } }")
      let streams = yaml(", time: timestamp(event.t)\(comma)\(late)", "{ window: { \(form)\(more) } }")
      for seed in 0..<8 {
        let source = Self.source(Self.random(seed))
        let wanted = try PipelineRun(own, sources: ["a": source])
        let got = try PipelineRun(streams, sources: ["a": source])
        #expect(Self.said(got) == Self.said(wanted), "\(streams), seed \(seed)")
        let cut = try PipelineRun(streams, sources: ["a": source], options: Self.cutting())
        #expect(Self.said(cut) == Self.said(got), "restored: \(streams), seed \(seed)")
        #expect(cut.refusals.isEmpty)
      }
    }
  }

  /// The results of a window have event time: a second window needs no `time`, and treats none of them as late.
  @Test func windowsFollowEachOther() throws {
    let yaml = """
      name: t
      sources: { a: { scripted: {}, time: timestamp(event.t), lateness: 3s } }
      sinks:
        out:
          from: a
          chain:
            - groupBy: { key: event.k, chain: [ { window: { every: 10s, aggregate: { k: meta.key, n: count() } } } ] }
            - filter: event.n > 0
            - window: { every: 30s, to: "{'at': int(start), 'n': events.map(e, e.n).sum()}" }
          probe: {}
      """
    for seed in 0..<10 {
      let items = Self.random(seed, 80).map { Item(at: $0.at, key: $0.key, time: $0.time) }
      for options in [PipelineRun.Options(), Self.cutting()] {
        let run = try PipelineRun(yaml, sources: ["a": Self.source(items)], options: options)
        #expect(run.deadLetters.allSatisfy { $0.contains("\"step\":\"out/groupBy/window\"") })
        var sums: [Int: Int] = [:]
        for item in items { sums[item.time / 30 * 30, default: 0] += 1 }
        if run.deadLetters.isEmpty {
          #expect(
            Self.texts(run) == sums.sorted { $0.key < $1.key }.map { "{\"at\":\($0.key),\"n\":\($0.value)}" } + [
              "the completion"
            ])
        }
      }
    }
  }

  @Test func textsAreTimes() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {}, time: event } }
      sinks: { out: { from: a, chain: [ { window: { every: 1m, to: size(events) } } ], probe: {} } }
      """,
      sources: [
        "a": ScriptedSource(
          SignalHistory([
            .init(at: .zero, .next(try MarbleCase.value("2025-01-01T00:00:10Z"))),
            .init(at: .milliseconds(1), .next(try MarbleCase.value("2025-01-01T00:00:59.5Z"))),
            .init(at: .milliseconds(2), .next(try MarbleCase.value("nothing"))),
            .init(at: .milliseconds(3), .next(try MarbleCase.value("2025-01-01T00:01:00Z"))),
            .init(at: .milliseconds(4), .complete),
          ]).script)
      ])
    #expect(run.out.entries.map { "\($0.at) \($0.moment)" } == ["3ms 2", "4ms 1", "4ms the completion"])
    #expect(run.deadLetters.count == 1)
    #expect(run.deadLetters.first?.contains("RFC 3339") == true)
  }

  @Test(arguments: [false, true]) func aWrongClockPutsNothingAhead(_ isCut: Bool) throws {
    // The clock of tests begins in 2026.
    let begin = 1_767_225_600
    let items = [0, 10, 40_000_000, 12, 24, 39_000_000, 31].enumerated().map {
      Item(at: Int64($0.offset), key: 0, time: begin + $0.element)
    }
    func run(_ more: String) throws -> PipelineRun {
      try PipelineRun(
        """
        name: t
        sources: { a: { scripted: {}, time: timestamp(event.t)\(more) } }
        sinks: { out: { from: a, chain: [ { window: { every: 10s, to: size(events) } } ], probe: {} } }
        """, sources: ["a": Self.source(items)], options: Self.cutting { _ in isCut })
    }
    for more in ["", ", maxAhead: 1h"] {
      let bounded = try run(more)
      #expect(Self.texts(bounded) == ["1", "2", "1", "1", "the completion"])
      #expect(bounded.deadLetters.count == 2)
      #expect(bounded.deadLetters.allSatisfy { $0.contains("ahead of the clock") })
      #expect(bounded.log.filter { $0.contains("ahead of the clock") }.count == 1)
    }
    // Without that bound, one event makes all later ones late.
    let unbounded = try run(", maxAhead: 20000h")
    #expect(unbounded.deadLetters.count == 4)
    #expect(unbounded.deadLetters.allSatisfy { $0.contains("RX521") })
  }

  // MARK: Several sources

  private static func merged(_ a: String = "", _ b: String = "") -> String {
    """
    name: t
    sources:
      a: { scripted: {}, time: timestamp(event.t)\(a) }
      b: { scripted: {}, time: timestamp(event.t)\(b) }
    signals: { all: { merge: [a, b] } }
    sinks:
      out:
        from: all
        chain: [ { window: { every: 10s, to: "{'at': int(start), 'n': size(events)}" } } ]
        probe: {}
    """
  }

  /// Two files read one after the other lose nothing: the watermark of the merge is the smaller one.
  @Test func aMergeWaitsForTheSlowest() throws {
    let first = (0..<50).map { Item(at: Int64($0), key: 0, time: $0 * 2) }
    let second = (0..<50).map { Item(at: Int64(60 + $0), key: 1, time: $0 * 2) }
    let wanted = (0..<10).map { "{\"at\":\($0 * 10),\"n\":10}" } + ["the completion"]
    for options in [PipelineRun.Options(), Self.cutting()] {
      let run = try PipelineRun(
        Self.merged(), sources: ["a": Self.source(first, end: 200), "b": Self.source(second, end: 200)],
        options: options)
      #expect(run.deadLetters.isEmpty)
      #expect(Self.texts(run) == wanted)
      // The window of 0 to 10 s closes with the second source's event at 10 s.
      #expect(run.out.entries.first?.at == .milliseconds(65))
      // A source that has ended delays nothing.
      let ended = try PipelineRun(
        Self.merged(), sources: ["a": Self.source(first, end: 55), "b": Self.source(second, end: 200)], options: options
      )
      #expect(Self.said(ended) == Self.said(run))
    }
    let own = Self.merged().replacing(", time: timestamp(event.t) }", with: " }")
      .replacing("every: 10s,", with: "every: 10s, time: timestamp(event.t),")
    let late = try PipelineRun(own, sources: ["a": Self.source(first, end: 200), "b": Self.source(second, end: 200)])
    #expect(late.deadLetters.count == 45)
  }

  @Test(arguments: [false, true]) func anIdleSourceHoldsNothingUp(_ isCut: Bool) throws {
    let first = (0..<30).map { Item(at: Int64($0 * 10), key: 0, time: $0) }
    let second = [Item(at: 105, key: 1, time: 10), Item(at: 185, key: 1, time: 12)]
    let run = try PipelineRun(
      Self.merged("", ", idle: 20ms"),
      sources: ["a": Self.source(first, end: 900), "b": Self.source(second, end: 900)],
      options: Self.cutting { _ in isCut })
    #expect(run.deadLetters.isEmpty)
    #expect(
      run.out.entries.map { "\($0.at) \($0.moment)" } == [
        // `b` has sent nothing: it is idle when `a` reaches 10 s.
        "100ms {\"at\":0,\"n\":10}",
        // `b` is at 10 s and then at 12 s, and idle again from 205 ms on, when `a` is at 20 s.
        "205ms {\"at\":10,\"n\":12}", "900ms {\"at\":20,\"n\":10}", "900ms the completion",
      ])
    // If all are idle, every open window closes.
    let both = try PipelineRun(
      Self.merged(", idle: 50ms", ", idle: 20ms"),
      sources: ["a": Self.source(first, end: 900), "b": Self.source(second, end: 900)],
      options: Self.cutting { _ in isCut })
    #expect(both.out.entries.dropFirst(2).first.map { "\($0.at) \($0.moment)" } == "340ms {\"at\":20,\"n\":10}")
  }

  /// The watermark passes through a shared signal, and reaches late subscribers.
  @Test func inputsOfOtherKindsWaitToo() throws {
    let first = (0..<20).map { Item(at: Int64($0), key: 0, time: $0) }
    let second = (0..<20).map { Item(at: Int64(30 + $0), key: 1, time: $0) }
    for (form, count) in [
      ("combineLatest: [a, b]", 20), ("zip: [a, b]", 20), ("concat: [a, b]", 40), ("merge: [b, a]", 40),
    ] {
      let run = try PipelineRun(
        Self.merged().replacing("merge: [a, b]", with: form),
        sources: ["a": Self.source(first, end: form.hasPrefix("concat") ? 30 : 99), "b": Self.source(second, end: 99)])
      let sizes = Self.texts(run).compactMap { text in
        text.split(separator: "\"n\":").last.flatMap { Int($0.prefix { $0 != "}" }) }
      }
      if !form.hasPrefix("concat") { #expect(run.deadLetters.isEmpty, "\(form)") }
      #expect(sizes.reduce(0, +) + run.deadLetters.count == count, "\(form): \(Self.said(run))")
    }
  }

  // MARK: Inner signals

  /// Answers that arrive late by the clock are not late in event time: an open inner signal holds the watermark back.
  @Test(
    arguments: ["flattenMap: { ", "flattenMap: { maxConcurrent: 2, ", "flattenMap: { policy: concat, "], [false, true])
  func answersAreNotLate(_ step: String, _ isCut: Bool) throws {
    let yaml = """
      name: t
      sources: { a: { scripted: {}, time: timestamp(event.t) } }
      sinks:
        out:
          from: a
          chain:
            - \(step)signal: { from: { values: [1] }, chain: [ { delay: 7ms }, { map: outer.t } ] } }
            - window: { every: 10s, to: "{'at': int(start), 't': events}" }
          probe: {}
      """
    let items = (0..<25).map { Item(at: Int64($0), key: 0, time: $0 * 2) }
    let run = try PipelineRun(yaml, sources: ["a": Self.source(items)], options: Self.cutting { _ in isCut })
    #expect(run.deadLetters.isEmpty)
    #expect(
      Self.texts(run) == (0..<5).map { window in
        "{\"at\":\(window * 10),\"t\":[\((0..<5).map { "\(window * 10 + $0 * 2)" }.joined(separator: ","))]}"
      } + ["the completion"])
    #expect(run.refusals.isEmpty)
    if step == "flattenMap: { " { #expect(run.out.entries.first?.at == .milliseconds(11)) }
  }

  /// Steps that delay events, or only observe them, keep their event time.
  @Test(
    arguments: ["delay: 7ms", "timeoutBetween: 1h", "timeout: 1h", "retry: forever", "finally: { values: [1] }"],
    [false, true])
  func stepsThatPassEventsOnKeepTheirTime(_ step: String, _ isCut: Bool) throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {}, time: timestamp(event.t) } }
      sinks:
        out: { from: a, chain: [ { \(step) }, { window: { every: 10s, to: "events.map(e, e.t)" } } ], probe: {} }
      """, sources: ["a": Self.source((0..<25).map { Item(at: Int64($0), key: 0, time: $0 * 2) })],
      options: Self.cutting { _ in isCut })
    #expect(run.deadLetters.isEmpty)
    #expect(
      Self.texts(run) == (0..<5).map { window in
        "[\((0..<5).map { "\(window * 10 + $0 * 2)" }.joined(separator: ","))]"
      } + ["the completion"])
    let first = TimeSpan.milliseconds(step.hasPrefix("delay") ? 12 : 5)
    #expect(run.out.entries.first?.at == first)
  }

  /// One signal after another: the watermark continues with the next one.
  @Test(arguments: [false, true]) func oneSignalFollowsTheOther(_ isCut: Bool) throws {
    let first = (0..<20).map { Item(at: Int64($0), key: 0, time: $0) }
    let second = (0..<20).map { Item(at: Int64(30 + $0), key: 1, time: 20 + $0) }
    let run = try PipelineRun(
      Self.merged().replacing("merge: [a, b]", with: "concat: [a, b]"),
      sources: ["a": Self.source(first, end: 25), "b": Self.source(second, end: 99)],
      options: Self.cutting { _ in isCut })
    #expect(run.deadLetters.isEmpty)
    #expect(
      run.out.entries.map { "\($0.at) \($0.moment)" } == [
        // `b` starts when `a` has ended, and its script with it.
        "10ms {\"at\":0,\"n\":10}", "55ms {\"at\":10,\"n\":10}", "65ms {\"at\":20,\"n\":10}",
        "124ms {\"at\":30,\"n\":10}", "124ms the completion",
      ])
  }

  /// A step that waits until its other input has settled also holds the watermark back.
  @Test func enrichedEventsAreNotLate() throws {
    let yaml = """
      name: t
      sources: { a: { scripted: {}, time: timestamp(event.t) } }
      sinks:
        out:
          from: a
          chain:
            - withLatestFrom: a
            - window: { every: 10s, to: size(events) }
          probe: {}
      """
    let items = (0..<25).map { Item(at: Int64($0), key: 0, time: $0 * 2) }
    for options in [PipelineRun.Options(), Self.cutting()] {
      let run = try PipelineRun(yaml, sources: ["a": Self.source(items)], options: options)
      #expect(run.deadLetters.isEmpty)
      #expect(Self.texts(run) == ["5", "5", "5", "5", "5", "the completion"])
      #expect(run.out.entries.first?.at == .milliseconds(5))
    }
  }

  // MARK: The plan

  private func problems(_ source: String, _ chain: String) -> [String] {
    FrontEnd(PipelineRun.catalogue).compile(
      """
      name: t
      sources: { a: { scripted: {}\(source) } }
      sinks: { out: { from: a, chain: [ \(chain) ], probe: {} } }
      """, name: "t.yaml"
    ).diagnostics.map { "\($0.code.name) \($0.message)" }
  }

  @Test func thePlanKnowsWhereEventTimeIs() {
    let time = ", time: timestamp(event.t)"
    #expect(problems(time, "{ window: 1m }") == [])
    #expect(problems("", "{ window: 1m }") == [])
    #expect(problems(time, "{ takeLast: 3 }, { window: { every: 1m, clock: true } }") == [])
    #expect(
      problems(time, "{ takeLast: 3 }, { map: event.t }, { window: 1m }") == [
        "RX643 this 'window' goes by the clock: the events of 'takeLast' have no event time"
      ])
    #expect(problems(time, "{ takeLast: 3 }, { eventTime: timestamp(event.t) }, { window: 1m }") == [])
    #expect(problems(", lateness: 1s", "{ window: 1m }").map { $0.prefix(5) } == ["RX222"])
    #expect(
      problems(time, "{ window: { every: 1m, empty: true } }") == [
        "RX225 'empty' of 'window' cannot go with the event time of the stream"
      ])
    #expect(problems(time, "{ window: { every: 1m, empty: true, clock: true } }") == [])
  }

  /// A window by the clock stays one, whatever the event time.
  @Test func aWindowCanGoByTheClock() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {}, time: timestamp(event.t) } }
      sinks: { out: { from: a, chain: [ { window: { every: 10ms, clock: true, to: size(events) } } ], probe: {} } }
      """, sources: ["a": Self.source((0..<25).map { Item(at: Int64($0), key: 0, time: 100 - $0) })])
    #expect(Self.texts(run) == ["10", "10", "5", "the completion"])
  }
}
