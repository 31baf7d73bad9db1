import PipelineHost
import Synchronization
import Testing

@testable import PipelineCore

/// The path of batches from a source's own thread into the pipeline.
@Suite struct InputQueueTests {
  /// Runs code where a thread would wait.
  private final class Gate: InputQueue.Gate {
    let count = Mutex(0)
    let waits: Mutex<@Sendable () -> Void> = Mutex { Issue.record("nobody may wait") }
    var signals: Int { count.withLock { $0 } }
    func wait() { waits.withLock { $0 }() }
    func signal() { count.withLock { $0 += 1 } }
  }

  private final class Log: Sendable {
    let entries = Mutex<[String]>([])
    func add(_ entry: String) { entries.withLock { $0.append(entry) } }
    var all: [String] { entries.withLock { $0 } }
  }

  private let pipeline: VirtualPipeline
  private let inputQueue: InputQueue
  private let gate = Gate()
  private let log = Log()

  init() throws {
    let pipeline = try VirtualPipeline("sources: { in: { never: {} } }\nsinks: { out: { from: in, discard: {} } }")
    let source = TrackedSource()
    pipeline.execution.replacements.sources = { _ in source }
    pipeline.settle()
    self.pipeline = pipeline
    let node = try #require(source.feed.node)
    inputQueue = InputQueue(node.nodeContext, limit: 2, gate: gate)
  }

  private func deliver(_ name: String, here: Bool = false) -> Bool {
    let log = log
    return inputQueue.deliver(here: here) { log.add(name) }
  }

  @Test func onlyWhoWaitsIsSignalled() {
    #expect(deliver("a") && deliver("b"))
    pipeline.settle()
    #expect(deliver("c") && deliver("d"))
    nonisolated(unsafe) let pipeline = pipeline
    gate.waits.withLock { $0 = { pipeline.settle() } }
    #expect(gate.signals == 0)
    #expect(deliver("e"))
    #expect(gate.signals == 1)
    pipeline.settle()
    #expect(log.all == ["a", "b", "c", "d", "e"])
    #expect(gate.signals == 1)
  }

  @Test func theTimeThatASourceWaitsIsCounted() {
    #expect(deliver("a") && deliver("b"))
    nonisolated(unsafe) let pipeline = pipeline
    nonisolated(unsafe) var whileWaiting: PipelineStatistics.Step?
    nonisolated(unsafe) let source: () -> PipelineStatistics.Step? = {
      pipeline.execution.statistics.steps.first { pipeline.execution.plan.isSource($0.step) }
    }
    #expect(source()?.waited == .zero)
    gate.waits.withLock {
      $0 = {
        pipeline.time.advance(to: pipeline.time.now + .milliseconds(30))
        whileWaiting = source()
        pipeline.settle()
      }
    }
    #expect(deliver("c"))
    #expect(whileWaiting?.isWaiting == true && whileWaiting?.waited == .milliseconds(30))
    #expect(source()?.isWaiting == false && source()?.waited == .milliseconds(30))
  }

  /// An inspection of the pipeline is not a turn, and needs none.
  @Test func inspectionsComeBetweenTurns() {
    let log = log
    let executor = pipeline.execution.executor
    let turns = executor.turns
    executor.inspect { log.add("seen") }
    pipeline.settle()
    #expect(log.all == ["seen"] && executor.turns == turns)
    #expect(deliver("a"))
    executor.inspect { log.add("seen") }
    pipeline.settle()
    #expect(log.all.count == 3 && executor.turns == turns + 1)
  }

  @Test func waitersAreReleasedAtTheEnd() {
    let inputQueue = inputQueue
    gate.waits.withLock { $0 = { inputQueue.stop() } }
    #expect(deliver("a") && deliver("b"))
    #expect(!deliver("c"))
    #expect(gate.signals == 1)
    #expect(!deliver("d") && !deliver("e", here: true))
    pipeline.settle()
    #expect(log.all == ["a", "b"])
  }

  @Test func anIdleThreadRunsItsTurnInlineUnlessInputWaits() {
    let log = log
    let executor = pipeline.execution.executor
    executor.runInline = { batch, _ in
      log.add("here")
      return executor.runOnCaller(batch).isTaken
    }
    #expect(deliver("a", here: true))
    #expect(deliver("b"))
    #expect(deliver("c", here: true))
    #expect(log.all == ["here", "a"])
    pipeline.settle()
    #expect(log.all == ["here", "a", "b", "c"])
    executor.pauseInput(.output)
    #expect(deliver("d", here: true))
    #expect(log.all.last == "here", "the batch waits like any other")
    executor.resumeInput(.output)
    pipeline.settle()
    #expect(log.all.suffix(2) == ["here", "d"])
  }
}
