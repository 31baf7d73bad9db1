import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// The order in which a pipeline starts.
@Suite struct LaunchTests {
  private func run(_ yaml: String, _ sources: [String: String]) throws -> PipelineRun {
    try PipelineRun(
      yaml,
      sources: try sources.mapValues { ScriptedSource(SignalHistory(try Marbles($0)).script) as any SourceComponent })
  }

  /// An event that a source sends immediately reaches all subscribers, whatever they start with, in any order in the
  /// file.
  @Test(arguments: [["plain", "first", "latest"], ["first", "latest", "plain"], ["latest", "plain", "first"]])
  func theOrderOfSinksMakesNoDifference(_ order: [String]) throws {
    let yaml =
      """
      name: t
      sources: { a: { scripted: {} }, b: { values: [7, 8] } }
      signals:
        plain: { from: a }
        first: { from: a, chain: [ { startWith: 0 }, { startWith: 9 } ] }
        latest: { combineLatest: [a, { from: b, chain: [ { startWith: 5 } ] }], chain: [ { map: "[event[0], event[1]]" } ] }
      sinks:

      """ + order.map { "  \($0)-sink: { from: \($0), probe: {} }\n" }.joined()
    let run = try run(yaml, ["a": "(12)-3|"])
    #expect(run.sinks["plain-sink"] == SignalHistory(try Marbles("(12)-3|")))
    #expect(run.sinks["first-sink"] == SignalHistory(try Marbles("(9012)-3|")))
    let lists = run.sinks["latest-sink"]?.entries.map { "\($0.at) \($0.moment)" } ?? []
    // Sources start in the order in which they are subscribed to.
    #expect(lists.first == "0s [1,5]")
    #expect(lists.last(where: { $0.contains("[") }) == "2ms [3,8]")
    #expect(run.outcome == .completed)
  }

  /// The consequences of `startWith` may use sources that have not started yet.
  @Test func whatAStartBeginsMissesNothing() throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        s: { from: a, chain: [ { startWith: 0 }, { flattenMap: { signal: { from: a, chain: [ { take: 1 } ] } } } ] }
        t: { from: a, chain: [ { startWith: 5 } ] }
      sinks: { out: { from: s, probe: {} }, other: { from: t, probe: {} } }
      """, ["a": "12|"])
    #expect(run.sinks["other"] == SignalHistory(try Marbles("(51)2|")))
    #expect(run.sinks["out"]?.entries.first?.moment == .next(.int(1)))
  }

  /// The effects of an inner event come before the next one, even if the turn is used up and the source cannot pause.
  @Test func eachInnerEventIsFinished() throws {
    var options = PipelineRun.Options()
    options.prepare = { $0.executor.limits.events = 1 }
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        s:
          from: a
          chain:
            - flattenMap:
                signal:
                  values: [1, 2, 3]
                  chain:
                    - log: { when: next, message: "in{{ event }}" }
                    - deliverOn: p
                    - deliverOn: q
                    - log: { when: next, message: "to{{ event }}" }
      sinks: { out: { from: s, probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles("-x|")).script)], options: options)
    #expect(run.log.map { String($0.suffix(3)) } == ["in1", "to1", "in2", "to2", "in3", "to3"])
  }

  // MARK: Settling

  /// Steps in the chain of a group are downstream of the group's input.
  @Test func aGroupsChainKnowsWhatIsUpstream() throws {
    let plan = try PipelineRun.compile(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        pairs: { combineLatest: { x: a, y: a, settle: true } }
        s: { from: pairs, chain: [ { groupBy: { key: event, chain: [ { map: event }, { delay: 1ms } ] } } ] }
      sinks: { out: { from: s, probe: {} } }
      """)
    let signal = try #require(plan.named.first { $0.name == "s" }).body
    #expect(signal.inputs.map(\.settling) == [1])
    #expect(signal.inner.map(\.settling) == [1])
  }

  /// A subscriber that leaves because another one was notified of the end is not notified of it, and starts nothing
  /// for it.
  @Test func aSubscriberThatLeftGetsNoEnd() throws {
    let yaml = """
      sources: { a: { scripted: {} } }
      signals:
        effect: { from: a, chain: [ { do: { when: [error, completed], signal: { from: { values: [1] }, chain: [ { delay: 5ms } ] } } } ] }
        both: { combineLatest: [a, effect] }
      sinks: { out: { from: both, probe: {} } }
      """
    let failed = try run(yaml, ["a": "-#"])
    #expect(failed.out == SignalHistory(try Marbles("-#")))
    #expect(failed.pendingTimers == 0)
    let completed = try run(yaml, ["a": "-1|"])
    #expect(completed.out.entries.last?.at == .milliseconds(7))
    #expect(completed.pendingTimers == 0)
  }
}
