import PipelineCore
import PipelineHost
import Testing

/// Timers that are late because the process did not run, and the input that arrived meanwhile.
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
    // The input may not have reached the queue yet.
    #expect(executor.nextDeadline == time.now + Executor.grace)
    input("b")
    executor.run()
    time.run(executor)
    #expect(order.seen == ["a", "b", "timer 1", "timer 2"])
    #expect(time.now == Instant(nanoseconds: 61_250_000_000))
  }

  /// A timer that the input resets does not fire.
  @Test func whatTheInputResetsIsReset() {
    time.advance(to: Instant(nanoseconds: 61_000_000_000))
    let wake = executor.wake(at: Instant(nanoseconds: 30_000_000_000), bell, 3)
    executor.postBatch { [executor] in executor.cancel(wake) }
    time.run(executor)
    #expect(order.seen == ["timer 1", "timer 2"])
  }

  /// A long turn or a busy machine is not a stop: timers do not wait for input that has not arrived yet. But input that has arrived comes
  /// first.
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

  /// A batch that has used up its turn is input that has arrived, but does not delay timers forever.
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

  /// Paused input may be waiting for the timer itself.
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

  /// Timers that a full sink has held back fire as soon as it has room.
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
    // No event arrived after the stop either.
    guard case .failed(let failure)? = pipeline.outcome else {
      Issue.record("it has not failed")
      return
    }
    #expect(failure.kind == .timeout)
  }
}
