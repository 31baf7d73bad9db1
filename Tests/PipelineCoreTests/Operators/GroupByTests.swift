import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// Groups of row-wise chains share one run, others are subscribed to one by one, with the same result.
@Suite struct GroupByTests {
  private static let steps = [
    "{ scan: { start: 0, next: running + event } }", "{ map: event + 1 }", "{ filter: event != 2 }",
    "distinctUntilChanged", "{ distinct: { memory: 2 } }", "{ take: 0 }", "{ take: 2 }", "{ skip: 1 }",
    "{ takeWhile: event < 4 }", "{ takeWhile: { where: event < 3, inclusive: true } }", "{ skipWhile: event < 2 }",
    "{ aggregate: { start: 0, next: running + event } }", "{ aggregate: { start: 7, next: 10 / event } }",
    "{ combinePrevious: { start: 0, next: previous - event } }", "{ try: event < 4 }", "{ map: 6 / event }",
    "{ map: 6 / event, onError: fail }", "{ ignore: 3 }", "ignoreValues",
    "{ log: { message: \"{{ event }}\", when: [next, completed] } }",
    "{ aggregate: sum(event) + countDistinct(event) }", "{ aggregate: 'max(event, event > 1)' }",
    "{ window: { every: 3ms, aggregate: sum(event) } }", "{ window: { every: 3ms, to: size(events) } }",
    "{ window: { every: 2ms, length: 5ms, to: size(events) } }",
    "{ window: { every: 2ms, empty: true, to: size(events) } }", "{ window: { gap: 2ms, to: size(events) } }",
    "{ window: { gap: 3ms, maxLength: 4ms, to: size(events) } }", "{ window: { count: 2, step: 3, to: size(events) } }",
    "{ window: { every: 2s, time: timestamp(event), idle: 3ms, to: size(events) } }",
    "{ window: { gap: 2s, time: timestamp(event), lateness: 2s, to: size(events) } }",
  ]
  /// A step that is not row-wise, and passes everything.
  private static let neutral = "{ timeout: 1000h }"

  private static func pipeline(_ chain: [String], _ idle: String) -> String {
    """
    name: t
    sources: { a: { scripted: {} } }
    sinks:
      out: { from: a, chain: [ { groupBy: { key: event % 3, \(idle)maxGroups: 3, chain: [ \(chain.joined(separator: ", ")) ] } }, { map: '[meta.key, event]' } ], probe: {} }
    """
  }

  private static func script(_ random: inout GraphGenerator) -> SignalHistory {
    var entries: [SignalHistory.Entry] = []
    var now: Int64 = 0
    for _ in 0..<random.below(12) {
      now += Int64(random.below(4))
      entries.append(.init(at: .milliseconds(now), .next(.int(Int64(random.below(7))))))
    }
    entries.append(
      .init(at: .milliseconds(now + Int64(random.below(4))), random.below(6) == 0 ? .error("broken") : .complete))
    return SignalHistory(entries)
  }

  /// Groups that are removed early complete in another order than those kept by a step with more state.
  private static func inOrderOfKeys(_ lines: [String]) -> [String] { lines.sorted() }

  /// The outcome of a run, without the differences between two files: locations and names of steps.
  private static func said(_ run: PipelineRun) -> [String] {
    var lines = run.out.entries.map { "\($0.at) \($0.moment)" }
    lines += run.deadLetters.map { $0.replacing(#/"(step|at)":"[^"]*",?/#, with: "") }
    lines += run.log
    return lines
  }

  @Test(arguments: 0..<60) func aSharedRunIsLikeManyChains(_ seed: Int) throws {
    var random = GraphGenerator(seed: UInt64(seed))
    for _ in 0..<4 {
      let chain = (0...random.below(3)).map { _ in random.pick(Self.steps) }
      let idle = random.pick(["", "idle: 3ms, "])
      let source = ScriptedSource(Self.script(&random).script)
      let runs = try [chain, chain + [Self.neutral]].map {
        try PipelineRun(Self.pipeline($0, idle), sources: ["a": source])
      }
      let forgets = chain.contains { $0.contains("window") }
      let (one, other) = (Self.said(runs[0]), Self.said(runs[1]))
      #expect(
        forgets ? Self.inOrderOfKeys(one) == Self.inOrderOfKeys(other) : one == other, "\(chain) \(idle)")
      #expect(runs[0].counters.rejected == runs[1].counters.rejected)
      var options = PipelineRun.Options()
      options.cutAfter = { _ in true }
      let cut = try PipelineRun(Self.pipeline(chain, idle), sources: ["a": source], options: options)
      #expect(Self.said(cut) == Self.said(runs[0]), "cut after each turn: \(chain) \(idle)")
      #expect(cut.refusals.isEmpty)
    }
  }

  /// A group whose chain has completed receives no further events; one that was idle starts again.
  @Test func aGroupEndsForItself() throws {
    let source = ScriptedSource(SignalHistory(try Marbles("3-3-3-4-----4-3|")).script)
    let run = try PipelineRun(
      Self.pipeline(["{ take: 2 }", "{ aggregate: { start: 0, next: running + 1 } }"], "idle: 5ms, "),
      sources: ["a": source])
    #expect(
      run.out.entries.map { "\($0.at) \($0.moment)" } == [
        "2ms [0,2]", "11ms [1,1]", "15ms [1,1]", "15ms [0,1]", "15ms the completion",
      ])
  }
}
