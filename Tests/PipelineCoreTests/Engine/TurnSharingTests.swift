import Synchronization
import Testing

@testable import PipelineCore

/// Which executor gets the next turn, and for how long.
@Suite struct TurnSharingTests {
  private final class Log: Sendable {
    let entries = Mutex<[String]>([])
    func add(_ entry: String) { entries.withLock { $0.append(entry) } }
    var all: [String] { entries.withLock { $0 } }
    func count(_ entry: String) -> Int { all.count { $0 == entry } }
  }

  private final class Timer: TimerTarget {
    let body: (Int) -> Void
    init(_ body: @escaping (Int) -> Void) { self.body = body }
    func woke(_ token: Int) { body(token) }
  }

  private let time = VirtualTime()
  private let executor: Executor
  private let log = Log()

  init() { executor = Executor(clock: time) }

  @Test func turnsEndWithTheQuantum() {
    let time = time
    let log = log
    for _ in 0..<10 {
      executor.postBatch {
        log.add("turn")
        time.advance(to: time.now + .milliseconds(1))
      }
    }
    #expect(executor.run(for: .milliseconds(4)))
    // The instant of a turn is that of its start: one starts just after the fourth millisecond.
    #expect(log.all.count == 5)
    #expect(executor.run(for: .milliseconds(4), until: time.now))
    #expect(log.all.count == 6)
    #expect(!executor.run(for: .seconds(1)))
    #expect(log.all.count == 10)
  }

  /// A pipeline that is always busy ends its turn when another one of its thread is due.
  @Test func aTurnEndsForTheTimerOfAnotherPipeline() {
    let (executor, time, log) = (executor, time, log)
    @Sendable func work() {
      repeat {
        log.add("event")
        time.advance(to: time.now + TimeSpan(nanoseconds: 100_000))
      } while !executor.spend()
      executor.resume(inner: false) { work() }
    }
    executor.postBatch { work() }
    // Several events are counted before the clock is read for the first time.
    #expect(executor.run(for: .milliseconds(4)))
    for _ in 0..<20 {
      let begin = time.now
      #expect(executor.run(for: .milliseconds(4), until: begin + .milliseconds(1)))
      #expect((time.now - begin).nanoseconds <= 1_400_000)
    }
  }

  /// Control work that arrives as fast as it is done delays neither timers nor input forever.
  @Test func controlWorkWithoutEndStarvesNobody() {
    let executor = executor
    let log = log
    @Sendable func again() {
      log.add("control")
      if log.all.count < 10_000 { executor.post { again() } }
    }
    executor.post { again() }
    executor.postBatch { log.add("batch") }
    let timer = Timer { _ in log.add("timer") }
    _ = executor.schedule(at: executor.now, timer, 0)
    executor.run(limit: 5000)
    #expect(log.count("timer") == 1)
    #expect(log.count("batch") == 1)
    #expect(log.count("control") > 4000)
  }

  @Test func timersThatAreAlwaysDueStarveNobody() {
    let executor = executor
    let log = log
    var timer: Timer?
    timer = Timer { _ in
      log.add("timer")
      if log.count("timer") < 10_000, let timer { _ = executor.schedule(at: executor.now, timer, 0) }
    }
    if let timer { _ = executor.schedule(at: executor.now, timer, 0) }
    executor.postBatch { log.add("batch") }
    executor.run(limit: 5000)
    #expect(log.count("batch") == 1)
    withExtendedLifetime(timer) {}
  }

  /// Control work that arrived together has turns of the same instant, as long as they are short.
  @Test func controlWorkHasATurnForEach() {
    let time = time
    let log = log
    for number in 0..<5 {
      executor.post {
        log.add("\(number)")
        if number > 1 { time.advance(to: time.now + .milliseconds(3)) }
      }
    }
    _ = executor.runOne()
    #expect(log.all == ["0", "1", "2"])
    #expect(executor.turns == 3)
    _ = executor.runOne()
    #expect(log.all == ["0", "1", "2", "3"])
    executor.run()
    #expect(log.all == ["0", "1", "2", "3", "4"])
  }

  // MARK: The rest of a batch

  @Test func theRestOfABatchComesBeforeTheNextAndBehindTimers() {
    let executor = executor
    let log = log
    nonisolated(unsafe) let timer = Timer { _ in log.add("timer") }
    executor.postBatch {
      log.add("first")
      executor.resume(inner: false) {
        log.add("rest")
        executor.resume(inner: false) { log.add("end") }
      }
      _ = executor.schedule(at: executor.now, timer, 0)
      executor.post { log.add("control") }
    }
    executor.postBatch { log.add("second") }
    executor.postBatch(inner: true) { log.add("inner") }
    executor.run()
    #expect(log.all == ["inner", "first", "control", "timer", "rest", "end", "second"])
  }

  @Test(arguments: [Executor.Pressure.output, .queue])
  func theRestWaitsWhereTheBatchWould(_ pressure: Executor.Pressure) {
    let executor = executor
    let log = log
    executor.postBatch {
      log.add("batch")
      executor.resume(inner: false) { log.add("rest") }
      executor.pauseInput(pressure)
    }
    executor.postBatch(inner: true) { executor.resume(inner: true) { log.add("inner") } }
    executor.run()
    #expect(log.all == ["inner", "batch"])
    #expect(!executor.hasBatchAtHand)
    executor.resumeInput(pressure)
    #expect(executor.hasBatchAtHand)
    executor.run()
    #expect(log.all == ["inner", "batch", "rest"])
  }

  /// The events of a batch are acknowledged together, in the last of its turns.
  @Test func theRestBelongsToTheSameEvents() {
    let executor = executor
    let log = log
    executor.postBatch {
      executor.track(Ack { log.add("\($0)") })
      executor.resume(inner: false) {
        log.add("rest")
        executor.resume(inner: false) { log.add("end") }
      }
    }
    _ = executor.runOne()
    _ = executor.runOne()
    #expect(log.all == ["rest"])
    _ = executor.runOne()
    #expect(log.all == ["rest", "end", "acknowledged"])
  }

  @Test(arguments: [nil, "the disk is full"] as [String?])
  func theRestOfAPipelineThatIsOverIsDropped(_ reason: String?) {
    let executor = executor
    let log = log
    executor.postBatch {
      executor.track(Ack { log.add("\($0)") })
      executor.resume(inner: false) { log.add("rest") }
    }
    _ = executor.runOne()
    executor.dropRemainders(reason)
    executor.run()
    let outcome = reason.map { Ack.Outcome.failed($0) } ?? .acknowledged
    #expect(log.all == ["\(outcome)"])
  }

  /// A value that was detached from an arena is valid after the arena's reset.
  @Test func anArenaLetsGoOfWhatIsDetached() {
    let arena = Arena()
    let small = arena.string("small")
    let large = [UInt8](repeating: 7, count: 40_000).withUnsafeBytes { arena.copy($0) }
    final class Kept {}
    weak var seen: Kept?
    do {
      let kept = Kept()
      arena.keep(kept)
      seen = kept
    }
    do {
      let detached = arena.detach()
      #expect(arena.allocated == 0)
      _ = arena.string("other")
      arena.reset()
      #expect(small.rawBytes.elementsEqual("small".utf8))
      #expect(large.allSatisfy { $0 == 7 })
      #expect(seen != nil)
      withExtendedLifetime(detached) {}
    }
    #expect(seen == nil)
  }
}
