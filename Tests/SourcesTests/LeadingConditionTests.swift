import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// A leading `filter` may decide before its step is called (``LeadingCondition``); one after another step never does. Both give the same
/// result.
@Suite struct LeadingConditionTests {
  private static let lines = [
    #"{"n":1,"s":"GET","l":7}"#, #"{"n":7,"s":"POST"}"#, #"{"n":7.0,"s":"GE\u0054"}"#, #"{"n":9223372036854775807}"#,
    #"{"n":-9223372036854775808,"s":""}"#, #"{"n":"7","s":7}"#, #"{"n":null,"s":null}"#, #"{"s":"abcdefghij"}"#, "{}",
    "7",
    #"{"n":{"a":1},"s":[1]}"#, #"{"n":1"#, #"{"n":8,"n":7}"#, #"{"n":18446744073709551615}"#, "[]",
    #"{"n":500,"s":"a b"}"#,
  ]
  private static let conditions = [
    "event.n >= 7", "event.n == 7", "event.n < 7", "event.n != 7", "event.n > 7 && event.n <= 500", "event.s == 'GET'",
    "event.s == 'POST' || event.n == 1", "event.s != 'abcdefghij'", "has(event.n) && event.n > 1", "!(event.n >= 7)",
    "event.n >= 9223372036854775807", "event.n < -9223372036854775807 - 1", "event.n in [1, 7]", "event.n > 1.5",
    "event.s.startsWith('G')", "event.?n.orValue(7) == 7",
  ]

  private struct Written: Equatable {
    var files: [String]
    var deadLetters: [String]
    /// Dropped, failed and rejected events, summed over all steps.
    var counts: [UInt64]
    var outcome: Execution.Outcome?
  }

  private func run(_ first: String, _ chains: [String], _ policy: String, threads: Int) throws -> Written {
    let folder = Scratch()
    // More events than are timed in a block.
    folder.append(String(repeating: Self.lines.map { $0 + "\n" }.joined(), count: 3), to: "in")
    var text = "sources: { input: { file: { path: \(folder("in")), decode: ndjson } } }\nsinks:"
    for (index, condition) in chains.enumerated() {
      text +=
        "\n  out\(index): { from: input, chain: [ \(first) { filter: \"\(condition)\", onError: \(policy) } ], "
        + "file: { path: \(folder("\(index)")), encode: ndjson } }"
    }
    let pipeline = try RealPipeline("threads: \(threads)\n" + text, onLoop: threads == 1)
    let outcome = pipeline.runToEnd(within: .seconds(60))
    return Written(
      files: chains.indices.map { folder.read("\($0)") },
      deadLetters: pipeline.deadLetters.map { $0.replacing(folder("in"), with: "in") }.sorted(),
      counts: [\.dropped, \.failed, \.rejected].map { (count: KeyPath<PipelineStatistics.Step, UInt64>) in
        pipeline.execution.statistics.steps.reduce(0) { $0 + $1[keyPath: count] }
      },
      outcome: outcome)
  }

  @Test(arguments: ["drop", "keep", "route"]) func decideAsOtherFilters(_ policy: String) throws {
    for (index, condition) in Self.conditions.enumerated() {
      let other = Self.conditions[(index * 5 + 3) % Self.conditions.count]
      for chains in [[condition], [condition, other], [other, condition, "event.n >= 7"]] {
        for threads in [1, 2] {
          let leading = try run("", chains, policy, threads: threads)
          let behind = try run("{ filter: true },", chains, policy, threads: threads)
          #expect(leading.files == behind.files, "\(chains)")
          #expect(leading.deadLetters.count == behind.deadLetters.count, "\(chains)")
          #expect(leading.outcome == behind.outcome)
          #expect(leading.counts == behind.counts, "\(chains)")
        }
      }
    }
  }
}
