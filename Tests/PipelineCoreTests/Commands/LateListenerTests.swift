import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// A late subscriber of a command receives its last `replay` values.
@Suite struct LateListenerTests {
  /// The values that `late` receives from `work.values`, to which each event of `comings` subscribes it, with and
  /// without restarts.
  private func check(
    _ clicks: String, _ comings: String, command: String, gives expected: String, output: String = "values",
    values: [String: TestValue] = [:], line: Int = #line
  ) throws {
    let plan = try PipelineRun.compile(
      """
      sources: { clicks: { scripted: {} }, comings: { scripted: {} } }
      signals:
        results: { from: clicks, chain: [ { execute: work } ] }
        late: { from: comings, chain: [ { flattenMap: { signal: { from: work.\(output) } } } ] }
      commands: { work: { \(command) } }
      sinks: { out: { from: late, probe: {} } }
      """)
    let table = values.merging(["T": .bool(true), "F": .bool(false)]) { own, _ in own }
    let sources = try ["clicks": clicks, "comings": comings].mapValues {
      ScriptedSource(SignalHistory(try Marbles($0)).script) as any SourceComponent
    }
    for restarts in [false, true] {
      var options = PipelineRun.Options()
      options.cutAfter = { _ in restarts }
      let result = PipelineRun(plan, sources: sources, options: options)
      #expect(
        result.out == SignalHistory(try Marbles(expected), values: table),
        "line \(line)\(restarts ? ", with restarts" : "")")
      #expect(result.refusals.isEmpty)
    }
  }

  private static let three = "run: { from: { marbles: '-x-y-z|' } }"

  @Test func whileItIsExecuted() throws {
    try check("-a-----------|", "-----c-------|", command: Self.three, gives: "-----(xy)z------|")
  }

  @Test func behindItsEnd() throws {
    try check("-a----------------|", "----------c-------|", command: Self.three, gives: "----------(xyz)-------|")
  }

  /// The values of an execution that completes immediately.
  @Test func ofOneThatIsOverAtOnce() throws {
    try check("-a------|", "----c---|", command: "run: { from: { values: [1, 2] } }", gives: "----(12)---|")
  }

  /// The next execution discards the values of the previous one.
  @Test func theNewestOnly() throws {
    try check(
      "-1----2----|", "--------c--|", command: "run: { from: { marbles: '-x|' }, chain: [ { map: outer } ] }",
      gives: "--------2--|")
  }

  /// Values of concurrent executions count as well.
  @Test func concurrentOnes() throws {
    try check(
      "-12-------|", "-----c----|",
      command: "allowsConcurrentExecution: true, run: { from: { marbles: '--x---y|' }, chain: [ { map: outer } ] }",
      gives: "-----(12)-12-|")
  }

  @Test func upToTheBound() throws {
    try check(
      "-a----------|", "--------c---|", command: "replay: 2, \(Self.three)", gives: "--------(yz)---|")
    try check("-a----------|", "--------c---|", command: "replay: 0, \(Self.three)", gives: "------------|")
    try check("-a----------|", "-----c------|", command: "replay: 0, \(Self.three)", gives: "------z-----|")
  }

  /// A signal that subscribes twice receives the values twice, each subscription once.
  @Test func eachListenerForItself() throws {
    try check("-a------------|", "---c-----c----|", command: Self.three, gives: "---xy-z--(xyz)----|")
  }

  /// The current state is sent first, as always.
  @Test func ofItsState() throws {
    try check("-a-----------|", "---c---------|", command: Self.three, gives: "---T---F-----|", output: "executing")
  }

  /// Errors without a reader are dead letters and are not replayed.
  @Test func ofItsErrors() throws {
    let yaml = """
      sources: { clicks: { scripted: {} }, comings: { scripted: {} } }
      signals:
        results: { from: clicks, chain: [ { execute: work } ] }
        late: { from: comings, chain: [ { flattenMap: { signal: { from: work.errors, chain: [ { map: event.event } ] } } } ] }
      commands: { work: { run: { from: { marbles: '-#' } } } }
      sinks: { out: { from: late, probe: {} } }
      """
    let sources = try ["clicks": "-1-----2--|", "comings": "----c-----|"].mapValues {
      ScriptedSource(SignalHistory(try Marbles($0)).script) as any SourceComponent
    }
    let result = try PipelineRun(yaml, sources: sources)
    #expect(result.out == SignalHistory(try Marbles("--------2-|")))
    #expect(result.deadLetters.count == 1)
  }
}
