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
    for name in ["a", "b"] {
      executor.postBatch {
        log.add("turn \(name)")
        #expect(executor.leave { log.add("errand \(name)") })
      }
    }
    let (isBusy, errands) = executor.runLent()
    #expect(!isBusy)
    #expect(log.all == ["turn a", "turn b"])
    for errand in errands { errand() }
    #expect(log.all == ["turn a", "turn b", "errand a", "errand b"])
    #expect(executor.runLent().errands.isEmpty)
  }

  @Test func nothingIsLeftToTheThreadThatRunsTurnsAnyway() {
    let executor = executor
    let log = Log()
    executor.postBatch { if !executor.leave({}) { log.add("refused") } }
    executor.run()
    #expect(log.all == ["refused"])
  }

  @Test func onlyWhoHasTimeRunsTurns() {
    let log = Log()
    let executor = executor
    executor.setNeedsTurn = { log.add("signal") }
    executor.postBatch(here: true) {}
    executor.runHere = {
      log.add("here")
      return true
    }
    executor.postBatch {}
    executor.postBatch(here: true) {}
    executor.runHere = { false }
    executor.postBatch(here: true) {}
    #expect(log.all == ["signal", "signal", "here", "signal"])
  }
}
