import PipelineHost
import Testing

@testable import PipelineCore
@testable import Transport

/// Every source takes part in `--queue-memory`: read but unprocessed input counts, and is bounded however much arrives.
@Suite(.serialized) struct SourceMemoryTests {
  private let world = SourceWorld()

  @Test(arguments: SourceWorld.names) func everySourceCounts(_ name: String) throws {
    let entry = try world.required(name)
    guard entry.lacks == nil else { return }
    for way in try entry.floods() {
      let memory = MemoryBudget(SourceFlood.limit)
      let pipeline = try RealPipeline(
        way.yaml, http: CurlClient(memory: memory), memory: memory,
        before: { execution in
          let executor = execution.executor
          if !way.asks { executor.post { executor.pauseInput(.queue) } }
        }, plugins: way.plugins)
      if way.asks {
        var most = 0
        pipeline.run(within: .seconds(60)) {
          most = max(most, memory.held)
          return pipeline.outcome != nil
        }
        #expect(most > 16 << 10 && most <= way.most, "\(way.source): \(most), \(pipeline.log)")
      } else {
        try way.feed(pipeline)
        #expect(
          pipeline.run(within: .seconds(60)) { memory.held >= 4096 }, "\(way.source): \(memory.held) \(pipeline.log)")
        // No more input is read.
        var (most, looks) = (0, 0)
        #expect(
          pipeline.run(within: .seconds(60)) {
            looks = memory.held > most ? 0 : looks + 1
            most = max(most, memory.held)
            return looks > 20
          })
        #expect(most <= way.most, "\(way.source): \(most), \(pipeline.log)")
        // Waiting input is processed then.
        pipeline.inTurn { $0.executor.resumeInput(.queue) }
        #expect(pipeline.run(within: .seconds(60)) { pipeline.counters.received > 0 || pipeline.counters.rejected > 0 })
      }
      pipeline.inTurn { $0.execution.cancel() }
      pipeline.run(within: .seconds(60)) { memory.held == 0 && pipeline.execution.hasClosed }
      #expect(memory.held == 0, "\(way.source)")
      withExtendedLifetime(way) {}
    }
  }
}
