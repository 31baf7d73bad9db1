import PipelineHost
import Testing

@testable import PipelineCore

/// A dropped overlong line is counted, and `rxd why` can report it.
@Suite struct LongLineTests {
  @Test(arguments: ["drop", "reject", "cut"])
  func isCounted(_ policy: String) throws {
    let scratch = Scratch()
    scratch.append("{\"a\":1}\n{\"b\":\"\(String(repeating: "x", count: 300))\"}\n{\"a\":2}\n", to: "in")
    let stopped = StoppedEvents()
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: { path: '\(scratch("in"))', decode: json, maxLine: 200B, whenTooLong: \(policy) } } }
      sinks: { out: { from: in, discard: {} } }
      """, before: { $0.keep(in: stopped) })
    pipeline.runToEnd()
    let statistics = pipeline.execution.statistics
    let step = try #require(statistics.steps.first { pipeline.execution.plan.isSource($0.step) })
    #expect(step.received == 3)
    #expect(step.dropped == (policy == "drop" ? 1 : 0))
    #expect(step.received == step.sent + step.dropped + step.givenUp)
    #expect(pipeline.counters.received == 3)
    if policy == "drop" {
      let one = try #require(stopped.all.first)
      #expect(one.verdict == .dropped)
      #expect(one.problem?.message == "the line has 308 bytes, more than the 200 that 'maxLine' allows")
    }
  }
}
