import Foundation
import PipelineCore
import PipelineHost
import Testing
import Transport

@testable import Sinks

/// Every sink takes part in `--queue-memory`: events that it has accepted and not delivered count, and pause its input.
@Suite struct SinkMemoryTests {
  private let scratch = Scratch()
  private static let limit = 1 << 20

  private let world = SinkWorld()

  @Test(arguments: SinkWorld.names) func everySinkCounts(_ name: String) throws {
    for sink in try world.required(name).dead {
      let memory = MemoryBudget(Self.limit)
      let source = TrackedSource()
      let http = ScriptedHTTP()
      http.script = { _, _ in ScriptedHTTP.status(503) }
      let text = String(repeating: "x", count: 10_000)
      let (chain, rest) =
        sink.hasPrefix("chain: [ ") ? ("", String(sink.dropFirst("chain: [ ".count))) : ("", " ], \(sink)")
      let separator = sink.hasPrefix("chain: [ ") ? ", " : ""
      let pipeline = try RealPipeline(
        "sources: { in: { never: {} } }\nsinks: { out: { from: in, chain: [ { map: \"string(event) + ':\(text)'\" }\(separator)\(chain)\(rest) } }",
        http: http, memory: memory
      ) { execution in
        execution.replacements.sources = { $0 == "in" ? source : nil }
        let executor = execution.executor
        http.later = { work in executor.post(work) }
      }
      pipeline.run { source.feed.node != nil }
      for number in 0..<400 { source.feed.send(number, [Int64(number)]) }
      #expect(pipeline.run(within: .seconds(60)) { pipeline.executor.isInputPaused }, "\(sink): \(pipeline.log)")
      // Half of the budget, plus the events of one turn.
      #expect(memory.held > Self.limit / 4 && memory.held < Self.limit / 2 + (128 << 10), "\(sink): \(memory.held)")
      pipeline.inTurn { $0.execution.cancel() }
      pipeline.run(within: .seconds(60)) { memory.held == 0 && pipeline.execution.hasClosed }
      #expect(memory.held == 0, "\(sink)")
      #expect(!pipeline.executor.isInputPaused, "\(sink)")
    }
  }

  /// Events that wait for many files count, after the first of these files that accepts nothing.
  @Test func everyFileOfATemplateCounts() throws {
    try #require(scratch.makeFull("0"))
    let memory = MemoryBudget(Self.limit)
    let source = TrackedSource()
    let pipeline = try RealPipeline(
      """
      sources: { in: { never: {} } }
      sinks:
        out:
          from: in
          chain: [ { map: "{'file': event % 50, 'text': '\(String(repeating: "x", count: 10_000))'}" } ]
          file: "\(scratch.path)/{{ event.file }}"
      """, memory: memory
    ) { execution in execution.replacements.sources = { $0 == "in" ? source : nil } }
    pipeline.run { source.feed.node != nil }
    for number in 0..<400 { source.feed.send(number, [Int64(number)]) }
    #expect(pipeline.run(within: .seconds(60)) { pipeline.executor.isInputPaused }, "\(pipeline.log)")
    // Half of the budget, plus the events of one turn.
    #expect(memory.held > Self.limit / 4 && memory.held < Self.limit / 2 + (128 << 10), "\(memory.held)")
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run(within: .seconds(60)) { memory.held == 0 && pipeline.execution.outcome != nil }
    #expect(memory.held == 0)
    #expect(!pipeline.executor.isInputPaused)
  }

  /// However many pipelines there are, their queues stay within the budget together, and each can continue in turn.
  @Test func manyPipelinesShareTheBudget() throws {
    let memory = MemoryBudget(8 << 20)
    let text = String(repeating: "x", count: 2000)
    var pipelines: [(pipeline: VirtualPipeline, source: TrackedSource)] = []
    for number in 0..<40 {
      let source = TrackedSource()
      let pipeline = try VirtualPipeline(
        """
        name: p\(number)
        sources: { in: { never: {} } }
        sinks: { out: { from: in, chain: [ { map: "string(event) + ':\(text)'" } ], http: { url: 'http://h.example/', queue: 1000000, retry: { delay: 1h, maxDelay: 1h } } } }
        """, memory: memory)
      pipeline.http.script = { _, _ in ScriptedHTTP.status(503) }
      pipeline.execution.replacements.sources = { $0 == "in" ? source : nil }
      pipeline.settle()
      pipelines.append((pipeline, source))
    }
    // One fills its share before the others begin.
    for (pipeline, source) in pipelines {
      for number in 0..<3000 { source.feed.send(number, [Int64(number)]) }
      pipeline.settle()
      #expect(pipeline.executor.isInputPaused)
      #expect(pipeline.counters.received > 0)
    }
    #expect(memory.held <= 10 << 20, "\(memory.held)")
    for (pipeline, _) in pipelines {
      pipeline.inTurn { $0.execution.cancel() }
      pipeline.settle()
    }
    #expect(memory.held == 0)
  }

  /// A pause caused by others ends with them, although none of its own events leave.
  @Test func aPauseForOthersEnds() throws {
    let memory = MemoryBudget(8 << 20)
    var others = MemoryShare(of: memory)
    others.set(8 << 20)
    let source = TrackedSource()
    let pipeline = try VirtualPipeline(
      """
      sources: { in: { never: {} } }
      sinks: { out: { from: in, chain: [ { map: "string(event) + ':\(String(repeating: "x", count: 2000))'" } ], http: { url: 'http://h.example/', queue: 1000000, retry: { delay: 1h, maxDelay: 1h } } } }
      """, memory: memory)
    pipeline.http.script = { _, _ in ScriptedHTTP.status(503) }
    pipeline.execution.replacements.sources = { $0 == "in" ? source : nil }
    pipeline.settle()
    for number in 0..<1500 { source.feed.send(number, [Int64(number)]) }
    pipeline.settle()
    #expect(pipeline.executor.isInputPaused)
    #expect(pipeline.counters.received < 1500)
    others.set(0)
    pipeline.run(until: .seconds(5))
    #expect(pipeline.counters.received > 500)
  }
}
