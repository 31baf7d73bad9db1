import Synchronization
import Testing

@testable import PipelineCore

@Suite struct InlineRunTests {
  private final class Log: Sendable {
    let entries = Mutex<[String]>([])
    func add(_ entry: String) { entries.withLock { $0.append(entry) } }
    var all: [String] { entries.withLock { $0 } }
  }

  private let executor = Executor(clock: VirtualTime())

  @Test func whatATurnLeavesIsDoneBehindAllTurns() {
    let log = Log()
    let executor = executor
    let turn: @Sendable (String) -> Executor.Work = { name in
      {
        log.add("turn \(name)")
        #expect(executor.afterTurn { log.add("work \(name)") })
      }
    }
    executor.postBatch(turn("a"))
    let run = executor.runOnCaller {
      turn("b")()
      executor.postBatch(turn("c"))
    }
    #expect(run.isTaken && !run.isBusy)
    #expect(log.all == ["turn a", "turn b", "turn c"])
    for work in run.afterTurn { work() }
    #expect(log.all == ["turn a", "turn b", "turn c", "work a", "work b", "work c"])
    #expect(executor.runOnCaller {}.afterTurn.isEmpty)
  }

  @Test func aBatchThatMustWaitIsNotTaken() {
    let log = Log()
    for pressure in [Executor.Pressure.output, .queue] {
      executor.pauseInput(pressure)
      #expect(!executor.runOnCaller { log.add("input") }.isTaken)
      #expect(executor.runOnCaller(inner: true) { log.add("inner") }.isTaken == (pressure == .queue))
      executor.resumeInput(pressure)
    }
    executor.post { log.add("urgent") }
    executor.post { log.add("urgent too") }
    let run = executor.runOnCaller(for: .zero) { log.add("input") }
    #expect(!run.isTaken && run.isBusy)
    #expect(log.all == ["inner", "urgent", "urgent too"])
  }

  @Test func nothingIsLeftToTheThreadThatRunsTurnsAnyway() {
    let executor = executor
    let log = Log()
    executor.postBatch { if !executor.afterTurn({}) { log.add("refused") } }
    executor.run()
    #expect(log.all == ["refused"])
  }

  @Test func theBatchComesBehindWhatIsDue() {
    let log = Log()
    let executor = executor
    executor.postBatch { log.add("earlier") }
    executor.post { log.add("urgent") }
    let run = executor.runOnCaller {
      log.add("batch")
      executor.post { log.add("answer") }
    }
    #expect(run.isTaken && !run.isBusy)
    #expect(log.all == ["urgent", "earlier", "batch", "answer"])
    #expect(executor.turns == 4)
  }

  @Test func discardedEventsHoldNothing() {
    var executor: Executor? = Executor(clock: VirtualTime())
    weak let seen = executor
    for isInner in [false, true] { executor?.postBatch(inner: isInner) { [executor] in _ = executor } }
    executor?.post { [executor] in _ = executor }
    executor?.discard()
    #expect(executor?.run() == false)
    executor = nil
    #expect(seen == nil)
  }
}
