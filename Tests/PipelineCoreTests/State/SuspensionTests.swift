import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// A pipeline that is suspended, or fails and keeps its state.
@Suite struct SuspensionTests {
  /// One execution on virtual time that records its sinks.
  private final class Run {
    let time = VirtualTime()
    let executor: Executor
    let execution: Execution
    var outcome: Execution.Outcome?
    let recordings: [String: ProbeSink.Recording]

    init(_ plan: Plan, _ scripts: [String: SignalHistory], restoring state: [UInt8]? = nil) {
      let executor = Executor(clock: time)
      self.executor = executor
      execution = Execution(
        plan: plan, executor: executor,
        services: Services(http: NoHTTPClient(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 1 }))
      recordings = Dictionary(uniqueKeysWithValues: plan.sinks.map { ($0.name, ProbeSink.Recording()) })
      execution.settings.keepsStateOnFailure = true
      let recordings = recordings
      execution.replacements.sinks = { name in recordings[name].map { ProbeSink($0) } }
      execution.replacements.sources = { name in scripts[name].map { ScriptedSource($0.script) } }
      turn { $0.execution.launch(restoring: state) { [unowned self] in self.outcome = $0 } }
    }

    func turn(_ work: @escaping (Run) -> Void) {
      nonisolated(unsafe) let work = work
      nonisolated(unsafe) unowned let run = self
      executor.post { work(run) }
      _ = executor.runOne()
    }

    /// Runs at most so many turns.
    func advance(turns: Int) {
      var left = turns
      while left > 0, outcome == nil {
        left -= 1
        if executor.runOne() { continue }
        guard let next = executor.nextDeadline else { return }
        time.advance(to: max(next, time.now))
      }
    }

    /// The events of each sink, as JSON.
    var events: [String: [String]] {
      recordings.mapValues { recording in
        recording.moments.compactMap { entry in
          guard case .next(let value) = entry.moment else { return nil }
          let text = OutputBuffer()
          JSONWriter.append(value.value, to: text)
          return String(decoding: text.bytes, as: UTF8.self)
        }
      }
    }
  }

  /// A suspension saves the same as saving between two turns, and flushes nothing.
  @Test(arguments: 0..<200 as Range<UInt64>)
  func nothingIsFlushed(_ seed: UInt64) throws {
    var generator = GraphGenerator(seed: seed)
    generator.hasCommands = seed % 2 == 0
    let graph = generator.graph()
    let run = Run(try PipelineRun.compile(graph.yaml), graph.scripts)
    run.advance(turns: generator.below(20))
    // So that both are saved at the same instant.
    run.turn { _ in }
    guard run.outcome == nil, let state = run.execution.saveState() else { return }
    let before = run.events
    run.turn { $0.execution.suspend() }
    #expect(run.outcome == .completed)
    #expect(run.execution.savedState == state)
    #expect(run.events == before)
    #expect(run.executor.nextDeadline == nil)
  }

  /// `n` waits for the end of the command that it would itself execute, so the command ends when `m` can no longer execute it. It must
  /// not end because the graph is torn down: then the list would be sent although it is in the state.
  @Test func aSuspensionEndsNoCommand() throws {
    let execute = "{ do: { signal: { marbles: '-1|', chain: [ { execute: work } ] } } }"
    let plan = try PipelineRun.compile(
      """
      sources: { s: { scripted: {}, cold: true } }
      signals:
        again: { from: s, chain: [ \(execute) ], cold: true }
        m: { from: s, chain: [ \(execute) ] }
        n: { concat: [work.enabled, again], chain: [ collect, { map: dyn(event).x } ] }
      commands: { work: { run: { marbles: '-8#' }, whenBusy: reject } }
      sinks: { out: { from: n, probe: {} } }
      """)
    let script = SignalHistory([
      .init(at: .milliseconds(3), .next(.int(2))), .init(at: .milliseconds(10), .complete),
    ])
    var options = PipelineRun.Options()
    options.writesLate = true
    func run() -> PipelineRun { PipelineRun(plan, sources: ["s": ScriptedSource(script.script)], options: options) }
    let whole = run()
    options.suspends = true
    for turn in 0...whole.turns {
      options.cutAfter = { $0 == turn }
      #expect(run().deadLetters == whole.deadLetters, "after turn \(turn)")
    }
  }

  /// The state left by a failure fits the pipeline that it comes from.
  @Test(arguments: 0..<300 as Range<UInt64>)
  func aFailureLeavesASoundState(_ seed: UInt64) throws {
    var generator = GraphGenerator(seed: seed)
    generator.hasCommands = seed % 2 == 0
    let graph = generator.graph()
    let plan = try PipelineRun.compile(graph.yaml)
    let first = Run(plan, graph.scripts)
    first.advance(turns: 2000)
    guard case .failed = first.outcome, let state = first.execution.savedState else { return }
    let second = Run(plan, graph.scripts, restoring: state)
    #expect(second.execution.refusals.map(\.message) == [])
    second.advance(turns: 2000)
  }

  /// Values of a completed source whose text has changed are sent; those of other sources are not sent again.
  @Test func whatHadEndedAndHasChangedStartsAgain() throws {
    func plan(_ a: Int) throws -> Plan {
      try PipelineRun.compile(
        """
        sources: { a: { values: [\(a)] }, b: { values: [5] }, c: { scripted: {} } }
        signals: { all: { merge: [a, b, c] } }
        sinks: { out: { from: all, probe: {} }, only: { from: a, probe: {} }, other: { from: b, probe: {} } }
        """)
    }
    let scripts = [
      "c": SignalHistory([
        .init(at: .zero, .next(.int(7))), .init(at: .seconds(1), .next(.int(8))), .init(at: .seconds(1), .complete),
      ])
    ]
    let first = Run(try plan(1), scripts)
    first.time.advance(to: Instant(nanoseconds: 1))
    while first.executor.runOne() {}
    #expect(first.events == ["out": ["1", "5", "7"], "only": ["1"], "other": ["5"]])
    let state = try #require(first.execution.saveState())
    let same = Run(try plan(1), scripts, restoring: state)
    same.advance(turns: 20)
    #expect(same.events == ["out": ["8"], "only": [], "other": []])
    let changed = Run(try plan(2), scripts, restoring: state)
    changed.advance(turns: 20)
    #expect(changed.events["only"] == ["2"])
    #expect(changed.events["other"] == [])
    #expect(changed.events["out"]?.contains("2") == true)
    #expect(changed.events["out"]?.contains("1") == false)
  }
}
