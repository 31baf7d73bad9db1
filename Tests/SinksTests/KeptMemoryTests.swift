import Foundation
import PipelineCore
import PipelineHost
import Testing

/// Events that wait in steps and in the queues of sinks stay within the process's memory budget.
@Suite struct KeptMemoryTests {
  private static let size = 40_000
  private static let budget = 4 << 20

  /// 1,000 events of 40 KB, one in each turn, while the input is not paused.
  private func pipeline(_ signals: String, _ memory: MemoryBudget) throws -> (VirtualPipeline, TrackedSource) {
    let text = String(repeating: "x", count: Self.size)
    let pipeline = try VirtualPipeline(
      """
      sources: { in: { never: {} } }
      signals:
        big: { from: in, chain: [ { map: "string(event) + ':\(text)'" } ] }
        \(signals)
      sinks: { out: { from: kept, discard: {} } }
      """, memory: memory)
    let source = TrackedSource()
    pipeline.execution.replacements.sources = { $0 == "in" ? source : nil }
    pipeline.settle()
    for number in 0..<1000 { source.feed.send(number, [Int64(number)]) }
    return (pipeline, source)
  }

  private static let steps = [
    "kept: { from: big, chain: [ { delay: 1h } ] }",
    "kept: { from: big, chain: [ { rateLimit: { per: 1h, mode: bucket, excess: wait } } ] }",
    "kept: { from: big, chain: [ { flattenMap: { policy: concat, signal: { values: { list: [1, 2], every: 1h } } } } ] }",
    "kept: { from: big, chain: [ { do: { maxConcurrent: 1, signal: { values: { list: [1, 2], every: 1h } } } } ] }",
    """
    kept:
          from: big
          chain: [ { groupBy: { key: "event.split(':')[0]", chain: [ { delay: 1h } ] } } ]
    """,
  ]

  @Test(arguments: steps) func stepsKeepWithinTheBudget(_ step: String) throws {
    let memory = MemoryBudget(Self.budget)
    let (pipeline, source) = try pipeline(step, memory)
    pipeline.settle()
    let most = memory.held
    #expect(pipeline.executor.isInputPaused)
    // Half of the budget, plus the events of one turn.
    #expect(most >= Self.budget / 4 && most <= Self.budget / 2 + 2 * Self.size + 65_536, "\(most)")
    // Waiting events leave on their own; then the input continues, to the last event.
    pipeline.run(until: .seconds(3600 * 1100))
    #expect(!pipeline.executor.isInputPaused)
    #expect(memory.held <= 65_536)
    #expect(source.feed.outcomes.count == 1000)
  }

  /// An event that is not held is not counted, and a small one counts less.
  @Test func whatPassesIsNotCounted() throws {
    let memory = MemoryBudget(Self.budget)
    let (pipeline, _) = try pipeline("kept: { from: big, chain: [ { filter: size(event) > 1 } ] }", memory)
    pipeline.settle()
    #expect(memory.held == 0)
    #expect(!pipeline.executor.isInputPaused)
    #expect(pipeline.counters.sent == 1000)
  }

  /// A cancelled step releases its memory.
  @Test func theEndGivesBack() throws {
    let memory = MemoryBudget(Self.budget)
    let (pipeline, _) = try pipeline(Self.steps[0], memory)
    pipeline.settle()
    #expect(memory.held > 0)
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.settle()
    #expect(memory.held == 0)
    #expect(!pipeline.executor.isInputPaused)
  }

  /// While others hold more than the budget, the input is paused at hardly any memory; it resumes when they hold less, although none of its own
  /// events leave.
  @Test func aPauseForOthersEndsWithThem() throws {
    let memory = MemoryBudget(16 << 20)
    var others = MemoryShare(of: memory)
    others.set(20 << 20)
    let (pipeline, _) = try pipeline(Self.steps[0], memory)
    pipeline.settle()
    #expect(pipeline.executor.isInputPaused)
    #expect(memory.held - (20 << 20) <= (1 << 20) + 2 * Self.size + 65_536)
    pipeline.run(until: .seconds(10))
    #expect(pipeline.executor.isInputPaused)
    others.set(0)
    pipeline.run(until: .seconds(12))
    // Now its own half of the budget is full.
    #expect(memory.held > 7 << 20)
  }

  /// A restored state is counted.
  @Test func whatIsRestoredCounts() throws {
    let memory = MemoryBudget(Self.budget)
    let yaml = """
      sources: { in: { values: [1, 2, 3] } }
      signals: { kept: { from: in, chain: [ { map: "string(event) + '\(String(repeating: "x", count: 60_000))'" }, { delay: 1h } ] } }
      sinks: { out: { from: kept, discard: {} } }
      """
    let first = try VirtualPipeline(yaml, memory: memory)
    first.settle()
    let held = memory.held
    #expect(held > 180_000)
    let state = try #require(first.suspend())
    #expect(memory.held == 0)
    let second = try VirtualPipeline(yaml, restoring: state, isMoved: true, memory: memory)
    second.settle()
    #expect(memory.held == held)
    second.run(until: .seconds(3601))
    #expect(memory.held == 0)
    #expect(second.counters.sent == 3)
  }

  // MARK: Sinks

  /// The receiver is dead: the sink uses half of the budget, plus what was read with the last event that fitted.
  @Test func aSocketSinkKeepsWithinTheBudget() throws {
    let (receiver, port) = try #require(SocketClient.listening())
    receiver.end()
    let scratch = Scratch()
    scratch.append(String(repeating: String(repeating: "x", count: 999) + "\n", count: 12_000), to: "in.log")
    let memory = MemoryBudget(1 << 20)
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: '\(scratch("in.log"))' } }
      sinks: { out: { from: in, tcp: { address: '127.0.0.1:\(port)', reconnect: 5ms } } }
      """, memory: memory)
    pipeline.run { pipeline.executor.isInputPaused }
    #expect(pipeline.executor.isInputPaused)
    #expect(memory.held > 256 << 10 && memory.held < 1 << 20, "\(memory.held)")
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run { memory.held == 0 }
    #expect(memory.held == 0)
  }
}
