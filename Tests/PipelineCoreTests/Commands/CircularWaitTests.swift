import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// A signal that may execute a command and waits for the command's output: the command ends when no further event can occur.
@Suite struct CircularWaitTests {
  private func run(
    _ signals: String, _ sinks: String, command: String = "run: { marbles: '-8|' }",
    _ options: PipelineRun.Options = .init()
  ) throws -> PipelineRun {
    let yaml = """
      sources: { a: { scripted: {} } }
      signals: { \(signals) }
      commands: { work: { \(command) } }
      sinks: { \(sinks) }
      """
    return try PipelineRun(
      yaml, sources: ["a": ScriptedSource(SignalHistory(try Marbles("1-2-|")).script)], options: options)
  }

  private static let executing = "e: { from: a, chain: [ { execute: work } ] }"

  /// The times at which sinks write do not matter: a throttled value arrives at the same time.
  @Test func whenSinksWriteHasNoPart() throws {
    func texts(writesLate: Bool) throws -> [String: [String]] {
      var options = PipelineRun.Options()
      options.writesLate = writesLate
      let run = try run(
        "\(Self.executing), n: { concat: { e: e, values: work.values, enabled: work.enabled }, chain: [ { rateLimit: { per: 2ms } } ] }",
        "out: { from: n, probe: {} }, other: { from: work.executing, probe: {} }", command: "run: { marbles: '8-8|' }",
        options)
      #expect(run.outcome == .completed)
      #expect(run.pendingTimers == 0)
      return run.texts
    }
    let (now, later) = (try texts(writesLate: false), try texts(writesLate: true))
    #expect(now["out"] == ["8", "8", "8"])
    #expect(later == now)
  }

  /// The consequences of an end may wait in the same way: for the errors output, then for another run of the command.
  @Test(arguments: [false, true]) func oneWaitMayFollowAnother(_ restarts: Bool) throws {
    var options = PipelineRun.Options()
    options.cutAfter = { _ in restarts }
    let run = try run(
      "\(Self.executing), n: { concat: { enabled: work.enabled, errors: work.errors, values: work.values, again: work.errors, last: e } }",
      "out: { from: n, probe: {} }", options)
    #expect(run.outcome == .completed)
    #expect(run.pendingTimers == 0)
    #expect(run.isQuiet)
    #expect(run.out.entries.last?.moment == .complete)
    #expect(run.texts["out"]?.prefix(3) == ["true", "false", "true"])
  }

  /// A tick without output does not count as a possible event; a periodic one does not delay a stop.
  @Test(arguments: [
    "{ sample: { every: 5ms, onlyNew: true } }", "{ sample: 5ms }", "{ absence: { after: 4ms, repeat: true } }",
  ])
  func ticksHoldUpNoStop(_ tick: String) throws {
    let signals = "\(Self.executing), n: { merge: { e: e, enabled: work.enabled }, chain: [ \(tick), { retry: {} } ] }"
    var options = PipelineRun.Options()
    options.turnLimit = 1000
    if tick.contains("onlyNew") {
      let whole = try run(signals, "out: { from: n, probe: {} }", options)
      #expect(whole.outcome == .completed)
    }
    for at in 0..<5 {
      options.drainAt = .milliseconds(Int64(at))
      let run = try run(signals, "out: { from: n, probe: {} }", options)
      #expect(run.outcome == .completed, "drained at \(at) ms")
      #expect(run.pendingTimers == 0)
    }
  }

  /// Unrelated activity does not delay an end: neither a source, nor a timer, nor anything downstream.
  @Test(arguments: [
    ("n: { concat: { e: e, values: work.values } }", 2), ("n: { concat: { values: work.values, last: e } }", 2),
    (
      "n: { merge: { a: a, e: n.errors }, chain: [ { filter: type(dyn(event)) == int }, { map: 6 / (dyn(event) - 1) } ] }",
      1
    ),
  ]) func anEndlessSourceElsewhereHoldsUpNothing(_ signal: String, _ events: Int) throws {
    let yaml = """
      sources: { a: { scripted: {} }, ticks: { scripted: {} } }
      signals:
        e: { from: a, chain: [ { execute: work } ] }
        \(signal)
        other: { from: ticks, chain: [ { throttle: 100ms } ] }
      commands: { work: { run: { marbles: '-8|' } } }
      sinks:
        out: { from: n, probe: {} }
        also: { from: { merge: [ticks, other] }, probe: {} }
        both: { from: { merge: { n: n, ticks: ticks } }, probe: {} }
      """
    let ticks = ScriptedSource((1...9).map { (at: .seconds($0), moment: .next(OwnedValue(.int($0)))) })
    for cut in [false, true] {
      var options = PipelineRun.Options()
      options.until = .seconds(5)
      options.cutAfter = { _ in cut }
      let run = try PipelineRun(
        yaml, sources: ["a": ScriptedSource(SignalHistory(try Marbles("1-2-|")).script), "ticks": ticks],
        options: options)
      #expect(run.outcome == nil)
      #expect(run.out.entries.last?.moment == .complete, "\(run.out)")
      #expect(run.texts["out"]?.count == events)
    }
  }

  /// While anything upstream may still act, nothing ends: a timer, an endless source.
  @Test(arguments: ["{ delay: 3s }", "{ throttle: 3s }"])
  func whatMayActUpstreamIsWaitedFor(_ step: String) throws {
    let yaml = """
      sources: { a: { scripted: {} }, ticks: { scripted: {} } }
      signals: { n: { merge: { a: a, e: n.errors }, chain: [ \(step), { filter: type(dyn(event)) == int }, { map: 6 / (dyn(event) - 1) } ] } }
      sinks: { out: { from: n, probe: {} }, also: { from: ticks, probe: {} } }
      """
    var options = PipelineRun.Options()
    options.until = .milliseconds(2500)
    let ticks = ScriptedSource((1...9).map { (at: .seconds($0), moment: .next(OwnedValue(.int($0)))) })
    let run = try PipelineRun(
      yaml, sources: ["a": ScriptedSource(SignalHistory(try Marbles("1-|")).script), "ticks": ticks], options: options)
    #expect(run.outcome == nil)
    #expect(run.out.entries.last?.moment != .complete)
  }

  /// The end of the waiting signal may be the end of the pipeline: no turn is left to run, and later turns find no work.
  @Test func thePipelineMayBeGoneAfterIt() throws {
    let plan = try PipelineRun.compile(
      """
      sources: { a: { values: [1, 2] } }
      signals: { n: { merge: { a: a, e: n.errors }, chain: [ { filter: type(dyn(event)) == int }, { map: 6 / (dyn(event) - 1) } ] } }
      sinks: { out: { from: n, probe: {} } }
      """)
    let executor = Executor(clock: VirtualTime())
    weak var gone: Execution?
    do {
      let execution = Execution(
        plan: plan, executor: executor,
        services: Services(http: NoHTTPClient(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 0 }))
      gone = execution
      nonisolated(unsafe) let running = execution
      executor.post { running.launch { _ in } }
      while execution.outcome == nil, executor.runOne() {}
      #expect(execution.outcome == .completed)
    }
    #expect(gone == nil)
    #expect(executor.nextDeadline == nil)
    executor.post {}
    #expect(executor.runOne())
  }
}
