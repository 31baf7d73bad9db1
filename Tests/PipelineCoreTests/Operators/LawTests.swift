import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// The laws of every operator, checked on its examples.
@Suite struct LawTests {
  /// Operators that handle an error instead of passing it on.
  static let answersErrors: Set<String> = ["catch", "retry", "any", "all", "materialize", "finally"]
  /// Operators that are not subscribed to all of their inputs all the time; the latter not even to the first.
  static let listensLate: Set<String> = ["concat", "if", "skipUntil", "switch", "takeUntil"]
  static let listensToOne: Set<String> = ["initially", "race", "takeUntilReplacement"]

  private func cases(_ example: CatalogueExample) throws -> MarbleCase {
    try MarbleCase(example.example)
  }

  private func fail(_ example: CatalogueExample, _ message: String) {
    Issue.record("\(message)", sourceLocation: example.location)
  }

  static func isWellFormed(_ history: SignalHistory) -> Bool {
    let ends = history.entries.indices.filter {
      if case .next = history.entries[$0].moment { false } else { true }
    }
    return ends.isEmpty || ends == [history.entries.count - 1]
  }

  @Test(arguments: CatalogueExample.marbles)
  func nothingComesAfterTheEnd(_ example: CatalogueExample) throws {
    let run = try cases(example).run()
    if !Self.isWellFormed(run.out) { fail(example, "\(run.out)") }
    if run.outcome != nil, run.pendingTimers != 0 { fail(example, "\(run.pendingTimers) timers are left") }
    if run.outcome != nil, run.isInputPaused { fail(example, "the input is still held back") }
  }

  /// An error of any input reaches the output at the same instant, whatever is held back.
  @Test(arguments: CatalogueExample.marbles.filter { !answersErrors.union(listensToOne).contains($0.component) })
  func failurePassesAtOnce(_ example: CatalogueExample) throws {
    let whole = try cases(example)
    for input in whole.inputs.indices {
      if Self.listensLate.contains(example.component), input > 0 { continue }
      for time in stride(from: Int64(0), through: whole.length.nanoseconds, by: 1_000_000) {
        let instant = TimeSpan(nanoseconds: time)
        var cut = whole
        var entries = cut.inputs[input].history.entries.filter { $0.at <= instant }
        if let last = entries.last, case .next = last.moment {} else if !entries.isEmpty { break }
        entries.append(.init(at: instant, .error("broken")))
        cut.inputs[input].history = SignalHistory(entries)
        try check(example, whole, cut, instant)
      }
    }
  }

  private func check(
    _ example: CatalogueExample, _ whole: MarbleCase, _ cut: MarbleCase, _ instant: TimeSpan
  ) throws {
    let run = try cut.run()
    switch run.out.entries.last.map({ ($0.moment, $0.at) }) {
    // The signal had already ended by its own rule.
    case (.complete, let end)? where end <= instant: break
    case (.error, let end)? where end < instant && end == whole.expected.entries.last?.at: break
    case (.error, let end)?:
      if end != instant { fail(example, "the error of \(instant) came at \(end)") }
    default: fail(example, "no error came after one at \(instant): \(run.out)")
    }
    if run.pendingTimers != 0 { fail(example, "\(run.pendingTimers) timers are left") }
    if run.isInputPaused { fail(example, "the input is still held back") }
  }

  @Test(arguments: CatalogueExample.marbles)
  func cancellingFreesEverything(_ example: CatalogueExample) throws {
    let whole = try cases(example)
    let complete = try whole.run()
    for time in stride(from: Int64(0), through: whole.length.nanoseconds, by: 1_000_000) {
      var options = PipelineRun.Options()
      options.cancelAt = TimeSpan(nanoseconds: time)
      let run = try whole.run(options: options)
      if run.pendingTimers != 0 { fail(example, "\(run.pendingTimers) timers after \(time) ns") }
      if run.isInputPaused { fail(example, "the input is still held back after \(time) ns") }
      let before = complete.out.entries.filter { $0.at.nanoseconds <= time }
      if run.out.entries != before { fail(example, "not the same until \(time) ns: \(run.out)") }
    }
  }

  @Test(arguments: CatalogueExample.marbles)
  func subscriptionsShareNoState(_ example: CatalogueExample) throws {
    let whole = try cases(example)
    var text = whole.yaml.replacing(
      "sinks:\n", with: "sinks:\n  other: { from: result, probe: {} }\n")
    // A whole signal is in flow style, a step in block style.
    text =
      whole.isSignal
      ? text.replacing("result: {", with: "result: { cold: true,")
      : text.replacing("  result:\n", with: "  result:\n    cold: true\n")
    // Otherwise the rounds of two subscriptions would share the source.
    if !whole.isSignal { text = text.replacing("{ scripted: {} }", with: "{ scripted: {}, cold: true }") }
    var options = PipelineRun.Options()
    if whole.isSignal { options.hot = whole.inputs.map(\.name) }
    if whole.isEndless { options.until = TimeSpan(nanoseconds: whole.length.nanoseconds - 1) }
    let run = try PipelineRun(
      text,
      sources: Dictionary(
        uniqueKeysWithValues: whole.inputs.map {
          ($0.name, ScriptedSource($0.history.script) as any SourceComponent)
        }), options: options)
    // The pipeline ends with the first error, before the second sink receives it.
    func shown(_ history: SignalHistory) -> [SignalHistory.Entry] {
      history.entries.filter { if case .error = $0.moment { false } else { true } }
    }
    let wanted = shown(whole.expected)
    for (name, history) in run.sinks where shown(history) != wanted {
      fail(example, "\(name) got \(history)")
    }
  }

  @Test(arguments: CatalogueExample.marbles)
  func theSameTwice(_ example: CatalogueExample) throws {
    let first = try cases(example).run()
    let second = try cases(example).run()
    if first.out != second.out { fail(example, "\(first.out) and then \(second.out)") }
    if first.turns != second.turns { fail(example, "\(first.turns) turns and then \(second.turns)") }
  }

  /// Independent of how the events of an instant are divided into turns. Squeezing makes many events share an instant.
  @Test(arguments: CatalogueExample.marbles)
  func cuttingMakesNoDifference(_ example: CatalogueExample) throws {
    for squeeze in [1, 2, 4, 100] as [Int64] {
      var squeezed = try cases(example)
      for index in squeezed.inputs.indices {
        squeezed.inputs[index].history.entries = squeezed.inputs[index].history.entries.map {
          .init(
            at: TimeSpan(nanoseconds: ($0.at.nanoseconds / 1_000_000 + squeeze) / squeeze * 1_000_000),
            $0.moment)
        }
      }
      let apart = try squeezed.run()
      let together = try squeezed.run(joined: { Set($0.entries.indices) })
      let mixed = try squeezed.run(joined: { Set($0.entries.indices.filter { $0 % 3 != 1 }) })
      for other in [together, mixed] where other.out != apart.out {
        let difference = SignalHistory.difference(expected: apart.out, actual: other.out)
        fail(example, "one event a turn, and several:\n\(difference ?? "")")
      }
    }
  }

  /// Saves the state, drops everything and continues from the saved state: after each turn, and after any one turn.
  @Test(arguments: CatalogueExample.marbles)
  func cuttingOffMakesNoDifference(_ example: CatalogueExample) throws {
    let whole = try cases(example)
    let expected = try whole.run()
    func compare(_ what: String, _ cutAfter: @escaping (Int) -> Bool) throws {
      var options = PipelineRun.Options()
      options.cutAfter = cutAfter
      let cut = try whole.run(options: options)
      if let difference = SignalHistory.difference(expected: expected.out, actual: cut.out) {
        fail(example, "cut off after \(what):\n\(difference)")
      }
      if cut.deadLetters != expected.deadLetters { fail(example, "other dead letters, cut off after \(what)") }
      if !cut.refusals.isEmpty { fail(example, "refused after \(what): \(cut.refusals.map(\.message))") }
      if cut.outcome != expected.outcome { fail(example, "another end, cut off after \(what)") }
      if cut.outcome != nil, cut.pendingTimers != 0 { fail(example, "\(cut.pendingTimers) timers are left") }
      if cut.isInputPaused != expected.isInputPaused { fail(example, "congested, cut off after \(what)") }
    }
    try compare("each turn") { _ in true }
    for turn in 1...max(1, Int(expected.turns)) { try compare("turn \(turn)") { $0 == turn } }
  }

  /// An operator releases all its subscriptions when it ends and when it is cancelled, and nothing keeps the nodes
  /// alive.
  @Test(arguments: [
    "{ from: a, chain: [ { flattenMap: { signal: { from: b } } } ] }",
    "{ from: a, chain: [ { flattenMap: { policy: concat, signal: { from: b } } } ] }",
    "{ from: a, chain: [ { flattenMap: { policy: latest, signal: { from: b } } } ] }",
    "{ from: a, chain: [ { flattenMap: { policy: exhaust, signal: { from: b } } } ] }",
    "{ from: a, chain: [ { sample: { at: b } } ] }", "{ from: a, chain: [ { catch: { with: b } } ] }",
    "{ from: b, chain: [ { repeat: 3 } ] }", "{ from: b, chain: [ { repeat: { count: 3, delay: 2ms } } ] }",
    "{ from: e, chain: [ { retry: 3 } ] }", "{ from: e, chain: [ { retry: { count: 3, delay: 2ms } } ] }",
    "{ from: e, chain: [ { catch: { with: b } } ] }", "{ from: b, chain: [ { timeout: 2ms } ] }",
    "{ from: b, chain: [ { take: 1 } ] }", "{ from: b, chain: [ { startWith: 1 } ] }", "{ merge: [a, b, e] }",
    "{ zip: [a, b] }", "{ concat: [a, b, e] }", "{ combineLatest: [a, b] }", "{ race: [a, b, e] }",
    "{ if: { condition: a, then: b, else: e } }", "{ switch: { by: a, cases: { '1': b, '2': e }, default: b } }",
    "{ from: a, chain: [ { takeUntil: b } ] }", "{ from: b, chain: [ { takeUntil: e } ] }",
    "{ from: a, chain: [ { takeUntilReplacement: b } ] }", "{ from: a, chain: [ { skipUntil: { signal: b } } ] }",
    "{ from: a, chain: [ { withLatestFrom: b } ] }", "{ from: a, chain: [ { then: b } ] }",
    "{ from: a, chain: [ { switchToLatest: { from: b } } ] }",
    "{ from: a, chain: [ { gate: { signal: b, whileClosed: hold } } ] }",
    "{ from: a, chain: [ { join: { signal: b, within: 9ms, unmatched: left } } ] }",
    "{ from: a, chain: [ { eventTime: timestamp(event) }, { join: { signal: { from: b, chain: [ { eventTime: timestamp(event) } ] }, within: 2s, unmatched: full } } ] }",
    "{ from: a, chain: [ { eventTime: timestamp(event) }, { join: { signal: { from: b, chain: [ { eventTime: timestamp(event) } ] }, asOf: true, unmatched: left } } ] }",
    "{ from: a, chain: [ { circuitBreaker: { signal: { from: e }, failures: 1, fallback: { from: b } } } ] }",
    "{ from: a, chain: [ { do: { signal: { from: b }, when: [next, completed] } } ] }",
    "{ from: e, chain: [ { do: { signal: { from: b }, when: [error] } } ] }",
    "{ from: a, chain: [ { initially: { from: b } } ] }", "{ from: e, chain: [ { finally: { from: b } } ] }",
    "{ from: b, chain: [ { rateLimit: { per: 9ms, mode: both } } ] }",
    "{ from: b, chain: [ { rateLimit: { per: 9ms, mode: bucket, excess: wait } } ] }",
    "{ from: b, chain: [ { window: { every: 2ms, length: 9ms } } ] }",
    "{ from: b, chain: [ { window: { gap: 9ms, maxLength: 9ms } } ] }",
    "{ from: b, chain: [ { absence: { after: 1ms, repeat: true } } ] }",
    "{ from: b, chain: [ { timeoutBetween: 9ms } ] }",
    "{ from: b, chain: [ { groupBy: { key: event, chain: [ { delay: 3ms } ] } } ] }",
    "{ from: b, chain: [ { delay: 9ms } ] }", "{ from: b, chain: [ { bufferWithTime: 9ms } ] }",
    "{ from: b, chain: [ { throttle: 9ms } ] }", "{ from: b, chain: [ { map: event / 0, onError: fail } ] }",
  ])
  func everythingIsReleased(_ signal: String) throws {
    let text = """
      name: t
      sources: { a: { counted: {}, cold: true }, b: { counted: {}, cold: true }, e: { counted: {}, cold: true } }
      signals: { s: \(signal) }
      sinks: { out: { from: s, probe: {} } }
      """
    let plan = try PipelineRun.compile(text)
    for time in [nil] + (0...16).map({ TimeSpan.milliseconds($0) }) {
      let counts = CountedSource.Counts()
      func source(_ marbles: String) throws -> any SourceComponent {
        CountedSource(counts, SignalHistory(try Marbles(marbles)).script)
      }
      var options = PipelineRun.Options()
      options.cancelAt = time
      let run = PipelineRun(
        plan, sources: ["a": try source("-1-2-3|"), "b": try source("-4-5--|"), "e": try source("-6-#")],
        options: options)
      let moment = time.map { "cancelled at \($0)" } ?? "at the end"
      #expect(counts.begun == counts.stopped, "\(moment): \(counts.log)")
      #expect(counts.alive == 0, "\(moment): nodes are kept alive")
      #expect(run.pendingTimers == 0, "\(moment): timers are left")
      #expect(!run.isInputPaused, "\(moment): the input is held back")
    }
  }
}
