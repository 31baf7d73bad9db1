import Synchronization
import Testing

@testable import PipelineCore

@Suite struct LentTurnTests {
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
        #expect(executor.leave { log.add("errand \(name)") })
      }
    }
    executor.postBatch(turn("a"))
    let lent = executor.runLent {
      turn("b")()
      executor.postBatch(turn("c"))
    }
    #expect(lent.isTaken && !lent.isBusy)
    #expect(log.all == ["turn a", "turn b", "turn c"])
    for errand in lent.errands { errand() }
    #expect(log.all == ["turn a", "turn b", "turn c", "errand a", "errand b", "errand c"])
    #expect(executor.runLent {}.errands.isEmpty)
  }

  @Test func aBatchThatMustWaitIsNotTaken() {
    let log = Log()
    for pressure in [Executor.Pressure.output, .queue] {
      executor.congest(pressure)
      #expect(!executor.runLent { log.add("input") }.isTaken)
      #expect(executor.runLent(inner: true) { log.add("inner") }.isTaken == (pressure == .queue))
      executor.decongest(pressure)
    }
    executor.post { log.add("urgent") }
    executor.post { log.add("urgent too") }
    let lent = executor.runLent(for: .zero) { log.add("input") }
    #expect(!lent.isTaken && lent.isBusy)
    #expect(log.all == ["inner", "urgent", "urgent too"])
  }

  @Test func nothingIsLeftToTheThreadThatRunsTurnsAnyway() {
    let executor = executor
    let log = Log()
    executor.postBatch { if !executor.leave({}) { log.add("refused") } }
    executor.run()
    #expect(log.all == ["refused"])
  }

  @Test func theBatchComesBehindWhatIsDue() {
    let log = Log()
    let executor = executor
    executor.postBatch { log.add("earlier") }
    executor.post { log.add("urgent") }
    let lent = executor.runLent {
      log.add("batch")
      executor.post { log.add("answer") }
    }
    #expect(lent.isTaken && !lent.isBusy)
    #expect(log.all == ["urgent", "earlier", "batch", "answer"])
    #expect(executor.turns == 4)
  }

  @Test func whatIsDiscardedHoldsNothing() {
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
