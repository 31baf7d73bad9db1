import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// In which order a pipeline begins.
@Suite struct LaunchTests {
  private func run(_ yaml: String, _ sources: [String: String]) throws -> PipelineRun {
    try PipelineRun(
      yaml,
      sources: try sources.mapValues { ScriptedSource(SignalHistory(try Marbles($0)).script) as any SourceComponent })
  }

  /// What a source sends at once reaches all who listen, whatever of their own comes first, in whichever order the
  /// file names them.
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
    // The order in which sources start is that in which they are subscribed.
    #expect(lists.first == "0s [1,5]")
    #expect(lists.last(where: { $0.contains("[") }) == "2ms [3,8]")
    #expect(run.outcome == .completed)
  }

  /// What `startWith` begins may use sources that have not started yet.
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

  /// What an inner event causes comes before the next one, also where the turn is spent and the source cannot stop.
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

  /// What stands in the chain of a group lies below what feeds the group.
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

  /// A subscriber that leaves because another one heard of the end hears of it no more, and begins nothing for it.
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
