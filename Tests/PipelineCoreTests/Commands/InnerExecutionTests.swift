import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// `execute` inside other steps: in inner signals, in the chains of groups, in other commands.
@Suite struct InnerExecutionTests {
  /// Runs `signals` with the commands and checks the output, with and without restarts. `T` and `F` are true and false.
  private func check(
    _ clicks: String, _ signals: String, commands: String, gives expected: KeyValuePairs<String, String>,
    values: [String: TestValue] = [:], rejected: UInt64 = 0, line: Int = #line
  ) throws {
    var yaml = """
      sources: { clicks: { scripted: {} } }
      signals: { \(signals) }
      commands: { \(commands) }
      sinks:
      """
    for (name, _) in expected {
      yaml += "\n  to-\(name.split(separator: ".").joined(separator: "-")): { from: \(name), probe: {} }"
    }
    let table = values.merging(["T": .bool(true), "F": .bool(false)]) { own, _ in own }
    func history(_ text: String) throws -> SignalHistory { SignalHistory(try Marbles(text), values: table) }
    let plan = try PipelineRun.compile(yaml)
    let source = ScriptedSource(try history(clicks).script)
    for restarts in [false, true] {
      var options = PipelineRun.Options()
      options.cutAfter = { _ in restarts }
      let result = PipelineRun(plan, sources: ["clicks": source], options: options)
      for (name, marbles) in expected {
        let got = result.sinks["to-" + name.split(separator: ".").joined(separator: "-")] ?? SignalHistory()
        #expect(got == (try history(marbles)), "\(name), line \(line)\(restarts ? ", with restarts" : "")")
      }
      #expect(result.outcome == .completed, "line \(line)")
      #expect(result.pendingTimers == 0, "line \(line)")
      #expect(result.refusals.isEmpty, "\(result.refusals.map(\.message))")
      if !restarts { #expect(result.counters.rejected == rejected, "line \(line)") }
    }
  }

  private static let two = "work: { run: { from: { marbles: '--x-y|' } } }"
  private static let each = "{ values: [go] }"

  /// The command does not end between two inner signals: its outputs report both executions.
  @Test func inFlattenMap() throws {
    try check(
      "-a------b------|",
      "results: { from: clicks, chain: [ { flattenMap: { signal: { from: \(Self.each), chain: [ { execute: work } ] } } } ] }",
      commands: Self.two,
      gives: [
        "results": "---x-y----x-y--|", "work.values": "---x-y----x-y--|", "work.executing": "FT----F-T----F-|",
        "work.errors": "---------------|",
      ])
  }

  /// While its inner signal is busy it refuses, and the errors output of the outer signal reports that.
  @Test func inFlattenMapWhileItIsBusy() throws {
    try check(
      "-a-b-----|",
      "results: { from: clicks, chain: [ { flattenMap: { signal: { from: \(Self.each), chain: [ { execute: work } ] } } } ] }, refused: { from: results.errors, chain: [ { map: event.code } ] }",
      commands: Self.two, gives: ["results": "---x-y---|", "refused": "---r-----|"],
      values: ["r": .text("RX508")], rejected: 1)
  }

  /// Each inner signal sends the results of the execution that its own event started.
  @Test func concurrentInnerSignals() throws {
    try check(
      "-1-2------|",
      "results: { from: clicks, chain: [ { flattenMap: { signal: { from: { values: [0] }, chain: [ { map: outer }, { execute: work }, { map: outer * 10 + event } ] } } } ] }",
      commands:
        "work: { allowsConcurrentExecution: true, run: { from: { marbles: '--x|' }, chain: [ { map: outer } ] } }",
      gives: ["results": "---A-B----|", "work.values": "---1-2----|"], values: ["A": .int(11), "B": .int(22)])
  }

  /// Leaving an inner signal does not cancel executions that it started.
  @Test func theRestContinues() throws {
    try check(
      "-a-b---------|",
      "results: { from: clicks, chain: [ { switchToLatest: { signal: { from: \(Self.each), chain: [ { execute: work } ] } } } ] }",
      commands: "work: { whenBusy: queue, run: { from: { marbles: '--x-y|' } } }",
      gives: [
        "results": "--------x-y--|", "work.values": "---x-y--x-y--|", "work.executing": "FT---------F-|",
      ])
  }

  /// Nor does the end of the outer signal: the execution completes, and the command ends after it.
  @Test func theWorkOutlivesTheSignalAround() throws {
    try check(
      "-a-------|",
      "results: { from: clicks, chain: [ { flattenMap: { signal: { from: \(Self.each), chain: [ { execute: work } ] } } }, { take: 1 } ] }",
      commands: Self.two, gives: ["results": "---(x|)", "work.values": "---x-y|", "work.executing": "FT----(F|)"])
  }

  @Test func inAGroup() throws {
    try check(
      "-1-2-3-------|",
      "results: { from: clicks, chain: [ { groupBy: { key: event % 2, chain: [ { execute: work } ] } } ] }",
      commands: "work: { whenBusy: queue, run: { from: { marbles: '---x|' }, chain: [ { map: outer } ] } }",
      gives: ["results": "----1---2---3|", "work.executing": "FT-----------(F|)"])
  }

  /// The command ends with its last execution, whoever started it.
  @Test func inAGroupBehindTheEnd() throws {
    try check(
      "-12|", "results: { from: clicks, chain: [ { groupBy: { key: event % 2, chain: [ { execute: work } ] } } ] }",
      commands: "work: { whenBusy: queue, run: { from: { marbles: '---x|' }, chain: [ { map: outer } ] } }",
      gives: ["results": "----1---2|", "work.values": "----1---2|"])
  }

  @Test func inThenConcatAndCatch() throws {
    try check(
      "-a-b|",
      "results: { from: clicks, chain: [ { then: { from: { values: [1] }, chain: [ { execute: work } ] } } ] }",
      commands: Self.two, gives: ["results": "------x-y|", "work.executing": "F---T----(F|)"])
    try check(
      "-a-#",
      "results: { from: clicks, chain: [ { catch: { with: { from: { values: [1] }, chain: [ { execute: work } ] } } } ] }",
      commands: Self.two, gives: ["results": "-a---x-y|", "work.executing": "F--T----(F|)"])
    try check(
      "-a|", "results: { concat: [ clicks, { from: { values: [1] }, chain: [ { execute: work } ] } ] }",
      commands: Self.two, gives: ["results": "-a--x-y|"])
  }

  /// A step that subscribes again may execute again, so the command does not end in between.
  @Test func aboveRetryAndRepeat() throws {
    try check(
      "-a------|",
      "results: { from: clicks, chain: [ { execute: work }, { repeat: { count: 2, delay: 3ms } } ] }",
      commands: Self.two,
      gives: ["results": "---x-y--------x-y--|", "work.executing": "FT----F-----T----F-|"])
  }

  /// Two levels deep, and next to an execution by the same signal itself.
  @Test func deeperAndTwice() throws {
    try check(
      "-a-------------|",
      "results: { from: clicks, chain: [ { execute: work }, { flattenMap: { signal: { from: \(Self.each), chain: [ { flattenMap: { signal: { from: \(Self.each), chain: [ { execute: work } ] } } } ] } } } ] }",
      commands: "work: { whenBusy: queue, run: { from: { marbles: '--x|' } } }",
      gives: ["work.values": "---x--x--------|", "results": "------x--------|"])
  }

  /// A command may execute another one, which then ends after it.
  @Test func inACommand() throws {
    try check(
      "-a----b----|", "results: { from: clicks, chain: [ { execute: outerWork } ] }",
      commands:
        "work: { run: { from: { marbles: '--x|' } } }, outerWork: { run: { from: { values: [1] }, chain: [ { execute: work } ] } }",
      gives: [
        "results": "---x----x--|", "outerWork.executing": "FT--F-T--F-|", "work.executing": "FT--F-T--F-|",
      ])
  }

  /// A signal that is a root subscriber only because of its inner signals runs even if nothing reads it.
  @Test func aSignalThatExecutesRuns() throws {
    try check(
      "-a-------|",
      "results: { from: clicks, chain: [ { flattenMap: { signal: { from: \(Self.each), chain: [ { execute: work } ] } } } ] }",
      commands: Self.two, gives: ["work.values": "---x-y---|"])
  }

  /// In a sink's own chain.
  @Test func inASink() throws {
    let yaml = """
      sources: { clicks: { scripted: {} } }
      commands: { \(Self.two) }
      sinks:
        out: { from: clicks, chain: [ { flattenMap: { signal: { from: \(Self.each), chain: [ { execute: work } ] } } } ], probe: {} }
        state: { from: work.executing, probe: {} }
      """
    let clicks = ScriptedSource(SignalHistory(try Marbles("-a------b|")).script)
    let result = try PipelineRun(yaml, sources: ["clicks": clicks])
    #expect(result.out == SignalHistory(try Marbles("---x-y----x-y|")))
    #expect(
      result.sinks["state"]
        == SignalHistory(try Marbles("FT----F-T----(F|)"), values: ["T": .bool(true), "F": .bool(false)]))
  }
}
