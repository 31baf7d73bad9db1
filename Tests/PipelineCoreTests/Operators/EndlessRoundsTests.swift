import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// `repeat` and `retry` of signals that complete immediately: they cost next to nothing, stop nothing else, and end
/// when stopped.
@Suite struct EndlessRoundsTests {
  /// How often the source `counted` was started within `until`.
  private func rounds(
    _ script: String, _ chain: String, until: TimeSpan, drainAt: TimeSpan? = nil, turnLimit: Int = 10_000
  ) throws -> (counts: CountedSource.Counts, run: PipelineRun) {
    let counts = CountedSource.Counts()
    let source = CountedSource(counts, SignalHistory(try Marbles(script)).script)
    var options = PipelineRun.Options()
    options.until = until
    options.drainAt = drainAt
    options.turnLimit = turnLimit
    let run = try PipelineRun(
      """
      sources: { counted: { counted: {} }, ticks: { scripted: {} } }
      sinks:
        out: { from: counted, chain: [ \(chain) ], probe: {} }
        beside: { from: ticks, probe: {} }
      """,
      sources: [
        "counted": source, "ticks": ScriptedSource(SignalHistory(try Marbles("1-2-3-4|")).script),
      ], options: options)
    return (counts, run)
  }

  @Test(arguments: [
    "repeat", "{ repeat: { delay: 0s } }", "{ repeat: forever }", "{ repeat: 2 }, repeat", "repeat, repeat",
  ])
  func anEmptySourceIsAskedAtIntervals(_ chain: String) throws {
    let (counts, run) = try rounds("|", chain, until: .seconds(1))
    #expect(run.isQuiet)
    #expect(counts.begun >= Pace.limit && counts.begun <= 2 * (Pace.limit + 101), "\(counts.begun)")
    #expect(run.texts["beside"] == ["1", "2", "3", "4"])
  }

  /// Rounds that last some milliseconds but send nothing behave the same.
  @Test func aShortRoundIsFollowedByAPause() throws {
    let (counts, _) = try rounds("-|", "repeat", until: .seconds(12))
    #expect(counts.begun == Pace.limit + 1000, "\(counts.begun)")
  }

  @Test func aRoundThatSendsIsFollowedAtOnce() throws {
    let (counts, run) = try rounds("(1|)", "repeat, { take: 5000 }", until: .seconds(1))
    #expect(counts.begun == 5000)
    #expect(run.out.entries.last?.at == .zero)
  }

  @Test(arguments: ["#", "(1#)"]) func anAttemptThatFailsAtOnceIsFollowedByAPause(_ script: String) throws {
    let (counts, run) = try rounds(script, "retry", until: .seconds(1))
    #expect(run.isQuiet)
    #expect(counts.begun >= Pace.limit && counts.begun <= Pace.limit + 101, "\(counts.begun)")
  }

  /// A finite count is not slowed down within the limit, and pauses after it.
  @Test func finiteCountsEnd() throws {
    let (few, run) = try rounds("|", "{ repeat: 1000 }", until: .seconds(1))
    #expect(few.begun == 1000)
    #expect(run.out.entries.last?.at == .zero)
    let (more, later) = try rounds("#", "{ retry: 1001 }, { catch: { value: '7' } }", until: .seconds(1))
    #expect(more.begun == 1002)
    #expect(later.out.entries.last?.at == .milliseconds(20))
  }

  /// Stopped in the middle of rounds, whatever they send.
  @Test(arguments: ["|", "(1|)", "#"]) func aStopIsNoticed(_ script: String) throws {
    let (_, run) = try rounds(
      script, script == "#" ? "retry" : "repeat, { filter: event == 0 }", until: .milliseconds(50), drainAt: .zero,
      turnLimit: 20)
    // A `retry` whose source was ended receives its completion.
    #expect(run.outcome == .completed)
    #expect(run.turns < 50)
  }

  /// A stop does not wait for a pause that is followed by nothing.
  @Test(
    arguments: [("1|", "{ repeat: { delay: 1h } }"), ("1#", "{ retry: { delay: 1h, maxDelay: 2h } }")], [false, true])
  func aStopEndsAPause(_ round: (String, String), _ restarts: Bool) throws {
    var options = PipelineRun.Options()
    options.drainAt = .milliseconds(10)
    options.until = .milliseconds(11)
    options.cutAfter = { _ in restarts }
    let run = try PipelineRun(
      "sources: { a: { scripted: {} } }\nsinks: { out: { from: a, chain: [ \(round.1) ], probe: {} } }",
      sources: ["a": ScriptedSource(SignalHistory(try Marbles(round.0)).script)], options: options)
    #expect(run.outcome == .completed)
    #expect(run.texts["out"] == ["1"])
    #expect(run.out.entries.last?.at == .milliseconds(10))
    #expect(run.pendingTimers == 0)
  }

  @Test func theSavedPaceContinues() throws {
    var options = PipelineRun.Options()
    options.until = .milliseconds(100)
    options.cutAfter = { _ in true }
    let run = try PipelineRun(
      """
      sources: { none: { values: [] }, one: { values: [1] } }
      signals: { both: { merge: [one, { from: none, chain: [ repeat ] }] } }
      sinks: { out: { from: both, probe: {} } }
      """,
      sources: [:], options: options)
    #expect(run.texts["out"] == ["1"])
    #expect(run.refusals.isEmpty)
  }

  /// While a sink accepts no more events, no round starts, nor does the input that waits for room.
  @Test func roundsWaitForRoom() throws {
    let plan = try PipelineRun.compile(
      """
      sources: { one: { values: [1] } }
      sinks: { out: { from: one, chain: [ repeat ], probe: {} } }
      """)
    let time = VirtualTime()
    let executor = Executor(clock: time)
    let execution = Execution(
      plan: plan, executor: executor,
      services: Services(http: NoHTTPClient(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 0 }))
    let recording = ProbeSink.Recording()
    execution.replacements.sinks = { _ in ProbeSink(recording) }
    nonisolated(unsafe) let running = execution
    executor.post { running.launch { _ in } }
    _ = executor.runOne()
    let first = recording.moments.count
    #expect(first > 100)
    executor.post { executor.pauseInput(.output) }
    for _ in 0..<10 { _ = executor.runOne() }
    let full = recording.moments.count
    #expect(full <= first + 1001)
    #expect(!executor.runOne())
    #expect(running.outcome == nil)
    executor.post { executor.resumeInput(.output) }
    for _ in 0..<3 { _ = executor.runOne() }
    #expect(recording.moments.count > full)
    executor.post { running.drain() }
    for _ in 0..<3 { _ = executor.runOne() }
    #expect(running.outcome == .completed)
  }
}
