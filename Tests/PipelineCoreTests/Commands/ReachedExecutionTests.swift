import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// Commands that a signal executes through another signal that it names: they last as long as the latter may still be
/// subscribed to.
@Suite struct ReachedExecutionTests {
  private func run(_ signals: String, _ sinks: String, restarts: Bool) throws -> PipelineRun {
    let yaml = """
      sources: { one: { values: [1] }, late: { scripted: {} } }
      signals: { \(signals) }
      commands: { log: { run: { from: { values: [x] } } } }
      sinks: { \(sinks), values: { from: log.values, probe: {} }, executing: { from: log.executing, probe: {} } }
      """
    var options = PipelineRun.Options()
    options.cutAfter = { _ in restarts }
    let source = ScriptedSource(SignalHistory(try Marbles("-a--|")).script)
    let run = try PipelineRun(yaml, sources: ["late": source], options: options)
    #expect(run.outcome == .completed)
    #expect(run.refusals.isEmpty, "\(run.refusals.map(\.message))")
    #expect(run.pendingTimers == 0)
    return run
  }

  private static let cold = "s: { cold: true, from: { values: [1] }, chain: [ { execute: log } ] }"

  /// The steps whose chain may name a signal that they subscribe to later.
  static let ways = [
    "{ flattenMap: { signal: s } }", "{ then: s }", "{ switchToLatest: { signal: s } }", "{ do: { signal: s } }",
    "{ finally: s }", "{ try: 'event == 0', onError: fail }, { catch: { with: s } }", "{ takeUntilReplacement: s }",
    "{ groupBy: { key: event, chain: [ { flattenMap: { signal: s } } ] } }",
    "{ flattenMap: { signal: { from: { values: [7] }, chain: [ { delay: 5ms }, { then: s } ] } } }",
  ]

  @Test(arguments: ways, [false, true]) func aColdSignalThatASinkNames(_ way: String, _ restarts: Bool) throws {
    let run = try run(
      Self.cold, "out: { from: one, chain: [ { delay: 50ms }, \(way) ], probe: {} }", restarts: restarts)
    #expect(run.texts["values"] == [#""x""#], "\(way)")
    #expect(run.texts["executing"] == ["false", "true", "false"], "\(way)")
    // A replacement exists from the beginning.
    let end = run.sinks["values"]?.entries.last
    #expect(end?.moment == .complete)
    if !way.contains("Replacement") { #expect(end.map { $0.at >= .milliseconds(50) } == true, "\(way)") }
  }

  @Test(arguments: ways) func byWayOfAnotherSignal(_ way: String) throws {
    for signals in [
      // A shared signal that is subscribed to later, and that itself names the cold one.
      "mid: { from: one, chain: [ { delay: 1ms }, \(way) ] }", "mid: { cold: true, from: one, chain: [ \(way) ] }",
      "deep: { from: one, chain: [ { delay: 1ms }, \(way) ] }, mid: { from: deep, chain: [ { map: event } ] }",
    ] {
      let run = try run(
        "\(Self.cold), \(signals)", "out: { from: one, chain: [ { delay: 50ms }, { then: mid } ], probe: {} }",
        restarts: false)
      #expect(run.texts["values"]?.isEmpty == false, "\(signals)")
      #expect(run.sinks["values"]?.entries.last.map { $0.at >= .milliseconds(50) } == true, "\(signals)")
    }
  }

  /// A completed signal runs again for a later subscriber.
  @Test func aSharedSignalThatRunsAgain() throws {
    let run = try run(
      "s: { from: { values: [1] }, chain: [ { execute: log } ] }",
      "out: { from: one, chain: [ { delay: 50ms }, { flattenMap: { signal: s } } ], probe: {} }", restarts: false)
    #expect(run.texts["values"] == [#""x""#, #""x""#])
    #expect(run.texts["out"] == [#""x""#])
  }

  /// `concat`, `retry` and `repeat` subscribe to the signals they name after their start.
  @Test func whatSubscribesLater() throws {
    for (signals, count) in [
      ("later: { concat: [late, s] }", 1), ("later: { from: s, chain: [ { repeat: { count: 2, delay: 50ms } } ] }", 2),
      ("later: { from: late, chain: [ { initially: { values: [] } }, { then: s } ] }", 1),
    ] {
      let run = try run("\(Self.cold), \(signals)", "out: { from: later, probe: {} }", restarts: false)
      #expect(run.texts["values"]?.count == count, "\(signals)")
      #expect(run.texts["out"]?.filter { $0 == #""x""# }.count == count, "\(signals)")
    }
  }

  /// A signal that executes only through a cold signal runs even if nothing reads it, as if it contained the text of
  /// the cold one.
  @Test func aColdSignalThatExecutesRuns() throws {
    let run = try run(
      "\(Self.cold), driver: { from: late, chain: [ { flattenMap: { signal: s } } ] }",
      "out: { from: late, probe: {} }", restarts: false)
    #expect(run.texts["values"] == [#""x""#])
  }

  /// A signal that is referenced from the start keeps its command alive itself, so the command ends with it, not later.
  @Test func theCommandEndsWithWhoMayExecuteIt() throws {
    let run = try run(
      "s: { from: one, chain: [ { execute: log } ] }", "out: { from: s, probe: {} }, rest: { from: late, probe: {} }",
      restarts: false)
    #expect(run.sinks["values"]?.entries.last?.at == .zero)
  }
}
