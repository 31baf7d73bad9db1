import PipelineCore
import PipelineHost
import Testing

/// Timers that are late because the process did not run, and the input that has waited with them.
@Suite struct LateTimerTests: @unchecked Sendable {
  private final class Bell: TimerTarget, @unchecked Sendable {
    private let order: Order
    init(_ order: Order) { self.order = order }
    var mayGoOn: Bool { false }
    func woke(_ token: Int) { order.seen.append("timer \(token)") }
  }

  private final class Order: @unchecked Sendable {
    var seen: [String] = []
  }

  private let time = VirtualTime()
  private let executor: Executor
  private let order = Order()
  private let bell: Bell

  init() {
    executor = Executor(clock: time)
    executor.graceOfTimers = Executor.grace
    bell = Bell(order)
    for token in 1...2 { _ = executor.wake(at: time.now + .seconds(Int64(30 * token)), bell, token) }
  }

  private func input(_ name: String) { executor.postBatch { [order] in order.seen.append(name) } }

  @Test func inputThatWaitedComesFirst() {
    time.advance(to: Instant(nanoseconds: 61_000_000_000))
    input("a")
    executor.run()
    #expect(order.seen == ["a"])
    // It may still be on its way to the queue.
    #expect(executor.nextDeadline == time.now + Executor.grace)
    input("b")
    executor.run()
    time.run(executor)
    #expect(order.seen == ["a", "b", "timer 1", "timer 2"])
    #expect(time.now == Instant(nanoseconds: 61_250_000_000))
  }

  /// What the input resets does not fire.
  @Test func whatTheInputResetsIsReset() {
    time.advance(to: Instant(nanoseconds: 61_000_000_000))
    let wake = executor.wake(at: Instant(nanoseconds: 30_000_000_000), bell, 3)
    executor.postBatch { [executor] in executor.cancel(wake) }
    time.run(executor)
    #expect(order.seen == ["timer 1", "timer 2"])
  }

  /// A turn that took long, or a busy machine, is no stop: timers wait for no input that is still on its way. But what was there comes first.
  @Test func aLittleLateIsNotLate() {
    time.advance(to: Instant(nanoseconds: 30_900_000_000))
    input("a")
    input("b")
    _ = executor.runOne()
    input("c")
    executor.run()
    #expect(order.seen == ["a", "b", "timer 1", "c"])
    executor.run()
    #expect(executor.nextDeadline == Instant(nanoseconds: 60_000_000_000))
  }

  /// A batch whose turn was spent is input that is there, but not for ever.
  @Test func theRestOfABatchComesFirst() {
    time.advance(to: Instant(nanoseconds: 30_000_000_000))
    executor.postBatch { [self] in handleRest() }
    executor.run(limit: 2000)
    #expect(order.seen.firstIndex(of: "timer 1") == 1024)
  }

  @Sendable private func handleRest() {
    order.seen.append("rest")
    executor.resume(inner: false) { [self] in handleRest() }
  }

  /// Input that is paused may wait for the very timer.
  @Test func pausedInputKeepsNoTimer() {
    time.advance(to: Instant(nanoseconds: 30_000_000_000))
    input("a")
    executor.pauseInput(.queue)
    executor.run()
    #expect(order.seen == ["timer 1"])
    executor.resumeInput(.queue)
    executor.run()
    #expect(order.seen == ["timer 1", "a"])
  }

  /// Timers that a full sink has held back are due as soon as it has room.
  @Test func heldTimersWaitForNoInput() {
    executor.pauseInput(.output)
    for second: Int64 in [30, 60, 61] {
      time.advance(to: Instant(nanoseconds: second * 1_000_000_000))
      executor.run()
    }
    #expect(order.seen.isEmpty)
    executor.resumeInput(.output)
    executor.run()
    #expect(order.seen == ["timer 1", "timer 2"])
    #expect(time.now == Instant(nanoseconds: 61_000_000_000))
  }

  /// Input that never ends does not keep timers from firing.
  @Test func endlessInputDoesNotStarveTimers() {
    time.advance(to: Instant(nanoseconds: 61_000_000_000))
    for turn in 0..<1000 where order.seen.last?.hasPrefix("timer") != true {
      input("\(turn)")
      _ = executor.runOne()
      time.advance(to: time.now + .milliseconds(1))
    }
    #expect(order.seen.count == 251, "\(order.seen.count)")
  }

  @Test func aSilentStreamIsNotFailedByAStop() throws {
    let pipeline = try VirtualPipeline(
      """
      sources: { in: { never: {} } }
      signals: { all: { from: in, chain: [ { timeoutBetween: 30s } ] } }
      sinks: { out: { from: all, discard: {} } }
      """)
    pipeline.executor.graceOfTimers = Executor.grace
    pipeline.settle()
    pipeline.time.advance(to: Instant(nanoseconds: 90_000_000_000))
    pipeline.executor.run()
    #expect(pipeline.outcome == nil)
    pipeline.run(until: .seconds(91))
    // Nothing came after the stop either.
    guard case .failed(let failure)? = pipeline.outcome else {
      Issue.record("it has not failed")
      return
    }
    #expect(failure.kind == .timeout)
  }
}
