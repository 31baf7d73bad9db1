import Foundation
import PipelineCore
import PipelineRuntime
import Testing

/// The loop that runs the turns of the program.
@Suite struct LoopTests {
  private final class Owner {}

  /// Calls of a test, by the thread of the loop and by others.
  private final class Calls: @unchecked Sendable {
    private let lock = NSLock()
    private var names: [String] = []
    func add(_ name: String) { lock.withLock { names.append(name) } }
    var all: [String] { lock.withLock { names } }
  }

  private func later(_ span: TimeSpan) -> Instant { SystemClock.shared.now + span }

  @Test func runsWhatIsPostedInOrder() {
    let (loop, calls) = (Loop(), Calls())
    let executor = Executor(clock: SystemClock.shared)
    loop.add(executor, owner: Owner())
    for name in ["a", "b", "c"] { executor.post { calls.add(name) } }
    loop.run(until: later(.seconds(60))) { calls.all.count == 3 }
    #expect(calls.all == ["a", "b", "c"])
    #expect(loop.load == 1)
  }

  /// A closure posted by another thread wakes a sleeping loop.
  @Test func isWokenByOtherThreads() {
    let (loop, calls) = (Loop(), Calls())
    let executor = Executor(clock: SystemClock.shared)
    loop.add(executor, owner: Owner())
    Thread.detachNewThread { executor.post { calls.add("other") } }
    loop.run(until: later(.seconds(60))) { !calls.all.isEmpty }
    #expect(calls.all == ["other"])
    Thread.detachNewThread { loop.stop() }
    loop.run()
  }

  @Test func returnsAtItsLimit() {
    let loop = Loop()
    let limit = later(.milliseconds(5))
    loop.run(until: limit) { false }
    #expect(SystemClock.shared.now >= limit)
  }

  /// No turn of an executor runs after `remove` has reported.
  @Test func whatIsRemovedRunsNoMore() {
    let (loop, calls) = (Loop(), Calls())
    let executor = Executor(clock: SystemClock.shared)
    loop.add(executor, owner: Owner())
    loop.remove(executor) { calls.add("removed") }
    loop.run(until: later(.seconds(60))) { !calls.all.isEmpty }
    executor.post { calls.add("turn") }
    loop.run(until: later(.milliseconds(2))) { false }
    #expect(calls.all == ["removed"])
    #expect(loop.load == 0)
  }

  /// A thread may run a turn in place of the loop's only while the loop sleeps.
  @Test func runsInlineOnlyWhileItSleeps() {
    let (loop, calls) = (Loop(), Calls())
    let executor = Executor(clock: SystemClock.shared)
    loop.add(executor, owner: Owner())
    // The loop does not sleep: `run` has not been called.
    let isTaken = executor.runInline({ calls.add("early") }, false)
    #expect(!isTaken)
    let inline = executor.runInline
    Thread.detachNewThread {
      while !inline({ calls.add("inline") }, false) { sched_yield() }
      loop.wake()
    }
    loop.run(until: later(.seconds(60))) { !calls.all.isEmpty }
    #expect(calls.all == ["inline"])
    #expect(loop.inlineRuns == 1)
  }

  // MARK: Shares of the time, on a clock that only the turns move

  /// Two executors that are always busy get equal shares, within a few quanta.
  @Test func busyExecutorsShareTheTime() {
    let clock = VirtualTime()
    let loop = Loop(clock: clock)
    nonisolated(unsafe) var used = [TimeSpan.zero, .zero]
    let executors = [0, 1].map { _ in Executor(clock: clock) }
    // One has turns ten times as long as the other's.
    @Sendable func work(_ index: Int) {
      let span = TimeSpan(nanoseconds: index == 0 ? 20_000 : 200_000)
      clock.advance(to: clock.now + span)
      used[index] = used[index] + span
      executors[index].post { work(index) }
    }
    for index in [0, 1] {
      loop.add(executors[index], owner: Owner())
      executors[index].post { work(index) }
    }
    loop.run(until: clock.now + .milliseconds(300)) { false }
    #expect(abs(used[0].nanoseconds - used[1].nanoseconds) <= 8_000_000, "\(used)")
  }

  /// Two executors that never run out of work delay the timer of a third by no more than the turn that runs when it is due and the one after it,
  /// for which the clock is not read again.
  @Test func aDueTimerIsServedNext() {
    final class Ticker: TimerTarget {
      let executor: Executor
      var due = Instant.distantFuture
      /// The turns of other executors that started since the timer was due, at each tick.
      var heldUp: [Int] = []
      var begun = 0
      var mayGoOn: Bool { true }
      var timerKind: TimerKind { .input }

      init(_ clock: VirtualTime) { executor = Executor(clock: clock) }

      func begin() {
        due = executor.now + .milliseconds(1)
        _ = executor.schedule(at: due, self, 0)
      }

      func woke(_ token: Int) {
        heldUp.append(begun)
        begun = 0
        begin()
      }
    }
    let clock = VirtualTime()
    let loop = Loop(clock: clock)
    nonisolated(unsafe) let ticker = Ticker(clock)
    let executors = [0, 1].map { _ in Executor(clock: clock) }
    @Sendable func work(_ index: Int) {
      if clock.now >= ticker.due { ticker.begun += 1 }
      clock.advance(to: clock.now + TimeSpan(nanoseconds: 20_000))
      executors[index].post { work(index) }
    }
    loop.add(ticker.executor, owner: Owner())
    ticker.executor.post { ticker.begin() }
    for index in [0, 1] {
      loop.add(executors[index], owner: Owner())
      executors[index].post { work(index) }
    }
    loop.run(until: clock.now + .seconds(1)) { ticker.heldUp.count >= 200 }
    #expect(ticker.heldUp.count == 200)
    // Before its first tick, none has used more than the others, so each may go first for a quantum of 2 ms.
    #expect(ticker.heldUp.first.map { $0 <= 202 } == true, "\(ticker.heldUp)")
    #expect(ticker.heldUp.dropFirst().allSatisfy { $0 <= 1 }, "\(ticker.heldUp)")
  }
}
