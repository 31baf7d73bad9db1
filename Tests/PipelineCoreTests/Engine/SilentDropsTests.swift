import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// No event disappears without being counted: a step sends, combines, drops or still holds each event.
@Suite struct SilentDropsTests {
  /// A pipeline whose sink `out` shows the numbers that passed. No two events have the same number.
  struct Case: CustomTestStringConvertible {
    var name: String
    var yaml: String
    var inputs: [String: String]
    /// The number of events that are in no output after the completion.
    var left: UInt64
    var testDescription: String { name }

    init(_ name: String, _ step: String, _ a: String, _ b: String = "|", left: UInt64) {
      self.name = name
      yaml = "signals: { s: { from: a, chain: [ \(step) ] } }\nsinks: { out: { from: s, probe: {} } }\n"
      inputs = ["a": a, "b": b]
      self.left = left
    }

    init(_ name: String, yaml: String, _ a: String, _ b: String = "|", left: UInt64) {
      (self.name, self.yaml, self.left) = (name, yaml, left)
      inputs = ["a": a, "b": b]
    }
  }

  private static let inner = "signal: { from: { values: [0] }, chain: [ { map: outer }, { delay: 5ms } ] }"
  private static func command(_ whenBusy: String) -> String {
    """
    commands: { job: { run: { from: { values: [0] }, chain: [ { map: outer }, { delay: 5ms } ] }, whenBusy: \(whenBusy) } }
    signals: { s: { from: a, chain: [ { execute: job } ] } }
    sinks: { out: { from: s, probe: {} } }

    """
  }

  static let cases = [
    Case("exhaust", "{ flattenMap: { policy: exhaust, \(inner) } }", "-1-2-----3--4|", left: 2),
    Case("latest", "{ flattenMap: { policy: latest, \(inner) } }", "-1-2-----3--4|", left: 2),
    Case("switchToLatest", "{ switchToLatest: { \(inner) } }", "-1-2-----3--4|", left: 2),
    Case("concat", "{ flattenMap: { policy: concat, \(inner) } }", "-1-2-3|", left: 0),
    Case("sample", "{ sample: 4ms }", "-1-2-3--4-|", left: 2),
    Case("sample at", "{ sample: { at: b } }", "-1-2-3|", "----x---|", left: 2),
    Case("withLatestFrom", "{ withLatestFrom: b }", "-1-2-3|", "--x|", left: 1),
    Case("join", "{ join: { signal: b, within: 3ms } }", "-1------2--|", "--7--8---|", left: 2),
    Case(
      "zip", yaml: "signals: { s: { zip: [a, b] } }\nsinks: { out: { from: s, probe: {} } }\n", "-1-2-3----|",
      "------7|", left: 2),
    Case("drop when busy", yaml: command("drop"), "-1-2-----3--4|", left: 2),
    Case("latest when busy", yaml: command("latest"), "-1-2-----3--4|", left: 2),
    Case("then", "{ then: b }", "-1-2-|", "-----7|", left: 2),
    Case("gate", "{ gate: { signal: b, open: false } }", "-1-2-3|", "----t|", left: 2),
    Case("throttle", "{ throttle: 3ms }", "-1-2----3|", left: 1),
    Case("rateLimit", "{ rateLimit: 4ms }", "-1-2--3|", left: 1),
    Case("takeLast", "{ takeLast: 1 }", "-1-2-3|", left: 2),
    Case("lists of two", "{ bufferWithCount: 2 }", "-1-2-3|", left: 0),
    Case("lists by time", "{ bufferWithTime: 10ms }", "-1-2-3|", left: 0),
    Case("collect", "collect", "-1-2-3|", left: 0),
    Case("a group that has ended", "{ groupBy: { key: \"'k'\", chain: [ { take: 1 } ] } }", "-1-2-3|", left: 2),
    Case(
      "a group of nodes that has ended", "{ groupBy: { key: \"'k'\", chain: [ { delay: 1ms }, { take: 1 } ] } }",
      "-1-2-3|", left: 2),
  ]

  private func numbers(in texts: [String]) -> Set<Character> { Set(texts.joined().filter { ("1"..."9").contains($0) }) }

  private func run(_ one: Case, _ change: (inout PipelineRun.Options, inout [String: String]) -> Void = { _, _ in })
    throws
    -> (run: PipelineRun, plan: Plan, stopped: [StoppedEvent])
  {
    var options = PipelineRun.Options()
    var inputs = one.inputs
    change(&options, &inputs)
    let stopped = StoppedEvents()
    let prepare = options.prepare
    options.prepare = {
      $0.keep(in: stopped)
      prepare($0)
    }
    let values = ["t": TestValue.bool(true)]
    let sources = try inputs.mapValues {
      ScriptedSource(SignalHistory(try Marbles($0), values: values).script) as any SourceComponent
    }
    let plan = try PipelineRun.compile("name: t\nsources: { a: { scripted: {} }, b: { scripted: {} } }\n" + one.yaml)
    return (PipelineRun(plan, sources: sources, options: options), plan, stopped.all)
  }

  @Test(arguments: cases)
  func whatIsInNoOutputIsCounted(_ one: Case) throws {
    let (run, plan, stopped) = try run(one)
    #expect(run.outcome == .completed)
    let steps = run.statistics.steps.filter { plan.isInFile($0.step) && !plan.isSource($0.step) }
    let counted = steps.reduce(0) { $0 + $1.dropped + $1.superseded }
    let seen = numbers(in: run.texts["out"] ?? [])
    let all = numbers(in: Array(one.inputs.values))
    #expect(UInt64(all.count - seen.count) == one.left, "\(run.texts)")
    #expect(counted == one.left, "\(run.statistics.counts.joined(separator: "\n"))")
    #expect(run.statistics.faults(plan, received: run.counters.received) == [])
    // Each stopped event can be queried.
    #expect(stopped.count { $0.verdict == .dropped || $0.verdict == .superseded } == Int(one.left))
  }

  /// Ended at any moment, by a failure or a cancellation: every event that was not sent, combined or dropped is held.
  @Test(arguments: cases)
  func whatIsBrokenOffIsCounted(_ one: Case) throws {
    let keepsInner = one.yaml.contains("outer")
    for time in 1...14 {
      for fails in [false, true] {
        let (run, plan, _) = try run(one) { options, inputs in
          if fails {
            inputs["a"] = String((inputs["a"] ?? "").prefix(time).filter { $0 != "|" }) + "#"
            inputs["b"] = "-" + String((inputs["b"] ?? "").dropFirst().filter { $0 != "|" }) + "--------------|"
          } else {
            options.cancelAt = .milliseconds(Int64(time))
          }
        }
        #expect(run.statistics.faults(plan, received: run.counters.received) == [], "\(time) \(fails)")
        let steps = run.statistics.steps.filter { plan.isInFile($0.step) && !plan.isSource($0.step) }
        for step in steps where !step.isExact {
          let gone = step.dropped + step.superseded + step.givenUp + step.held + step.holding
          #expect(gone + step.kept == step.received + step.restored, "\(time) \(fails): \(step)")
        }
        // An event whose inner signal runs is held, and not yet in the output.
        if keepsInner || fails { continue }
        let counted = steps.reduce(0) { $0 + $1.dropped + $1.superseded + $1.held }
        let came = run.statistics.steps.filter { plan.isSource($0.step) }.reduce(0) { $0 + $1.received }
        let controls =
          one.inputs["b"]?.filter { $0 == "x" || $0 == "t" }.isEmpty == false
          ? run.statistics.edges.filter { $0.plan.from == .named(1) }.reduce(0) { $0 + $1.events } : 0
        let seen = UInt64(numbers(in: run.texts["out"] ?? []).count)
        #expect(came - controls == seen + counted, "\(time): \(run.statistics.counts.joined(separator: "\n"))")
      }
    }
  }

  /// The laws on sums hold for the examples of all operators, at every kind of end.
  @Test(arguments: CatalogueExample.marbles)
  func sumsHoldAtEveryEnd(_ example: CatalogueExample) throws {
    let whole = try MarbleCase(example.example)
    let plan = try PipelineRun.compile(whole.yaml)
    func check(_ run: PipelineRun, _ what: String) {
      var faults = run.statistics.faults(plan, received: run.counters.received)
      for step in run.statistics.steps where !step.isExact && plan.isInFile(step.step) {
        let gone = step.dropped &+ step.superseded &+ step.held &+ step.holding
        // A join holds and drops the events of both its inputs.
        let other = plan.steps[step.step.number].keyword == "join" ? step.receivedInner : 0
        if gone > step.received &+ other &+ step.restored { faults.append("more went than came: \(step)") }
      }
      if !faults.isEmpty {
        Issue.record("\(what): \(faults.joined(separator: "\n"))", sourceLocation: example.location)
      }
    }
    check(try whole.run(), "to the end")
    for time in stride(from: Int64(0), through: whole.length.nanoseconds, by: 1_000_000) {
      let instant = TimeSpan(nanoseconds: time)
      var options = PipelineRun.Options()
      options.cancelAt = instant
      check(try whole.run(options: options), "cancelled at \(instant)")
      for input in whole.inputs.indices {
        var cut = whole
        var entries = cut.inputs[input].history.entries.filter { $0.at <= instant }
        if let last = entries.last, case .next = last.moment {} else if !entries.isEmpty { continue }
        entries.append(.init(at: instant, .error("broken")))
        cut.inputs[input].history = SignalHistory(entries)
        check(try cut.run(), "failed at \(instant)")
      }
    }
  }
}
