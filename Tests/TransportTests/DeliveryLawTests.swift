import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Transport

/// The laws of sinks that deliver in batches, for any answers of the connector. On virtual time.
@Suite struct DeliveryLawTests {
  private func values(_ range: ClosedRange<Int64>) -> [Int64] { Array(range) }

  private func end(_ trial: DeliveryTrial) {
    trial.pipeline.drain()
    trial.pipeline.run(until: .seconds(100_000))
  }

  /// One event for each outcome: delivered, repeated alone, or refused, each once.
  @Test func aVerdictForEachEvent() throws {
    let destination = ScriptedDestination { $0.count = 4 }
    destination.script = { call in
      call.number == 0
        ? .now(.answered(again: [1], refused: [.init(2, "it is ugly")], reason: "one must wait", after: .seconds(3)))
        : .now(.answered())
    }
    let trial = try DeliveryTrial(destination)
    trial.send([0, 1, 2, 3])
    #expect(destination.delivered == [0, 3])
    #expect(trial.rejected == [#"[2,"it is ugly"]"#])
    #expect(trial.source.feed.outcomes.isEmpty)
    trial.pipeline.run(until: .seconds(4))
    #expect(destination.calls.map(\.values) == [[0, 1, 2, 3], [1]])
    #expect(destination.calls.last?.at == Instant(nanoseconds: 3_000_000_000))
    #expect(trial.source.feed.outcomes == [0: .acknowledged])
    #expect(trial.pipeline.counters.sent == 3 && trial.pipeline.counters.rejected == 1)
    #expect(
      trial.logged("one must wait; trying again") && trial.logged("the destination works again, after 1 failure in 3s"))
  }

  /// Delivered events, even after repetitions, leave nothing in memory.
  @Test(arguments: [false, true]) func nothingIsLeftOfABatch(_ isLate: Bool) throws {
    let destination = ScriptedDestination { $0.count = 2 }
    destination.script = { call in
      let outcome = call.attempts == 0 && call.values.contains(3) ? DeliveryOutcome.answered(again: [0]) : .answered()
      return isLate ? .after(.milliseconds(1), outcome) : .now(outcome)
    }
    let trial = try DeliveryTrial(destination)
    trial.send(values(1...12))
    trial.pipeline.run(until: .seconds(100))
    #expect(destination.delivered.sorted() == values(1...12))
    #expect(destination.calls.count > 6)
    #expect(destination.keptAnswers() == 0)
  }

  /// An outcome that does not fit the batch has no effect.
  @Test(arguments: [
    DeliveryOutcome.answered(again: [0, 0]), .answered(again: [3]), .answered(again: [-1]),
    .answered(refused: [.init(3, "")]), .answered(refused: [.init(1, ""), .init(1, "")]),
    .answered(again: [2], refused: [.init(2, "")]),
  ])
  func aWrongOutcomeDecidesNothing(_ outcome: DeliveryOutcome) throws {
    let destination = ScriptedDestination { $0.count = 3 }
    destination.script = { $0.number == 0 ? .now(outcome) : .now(.answered()) }
    let trial = try DeliveryTrial(destination)
    trial.send([1, 2, 3])
    #expect(trial.pipeline.counters.sent == 0 && trial.pipeline.counters.rejected == 0)
    trial.pipeline.run(until: .seconds(10))
    #expect(destination.calls.map(\.values) == [[1, 2, 3], [1, 2, 3]])
    #expect(trial.pipeline.counters.sent == 3)
    #expect(trial.logged("names an event twice, or one that is not in the batch of 3"))
  }

  /// An event that causes the refusal of its batch is found in few steps, and only it goes to the errors output; also if the
  /// destination was not even contacted.
  @Test(arguments: [false, true]) func aBadEventIsFound(_ isAsked: Bool) throws {
    let destination = ScriptedDestination { $0.count = 64 }
    destination.script = { call in
      guard call.values.contains(41) else { return .now(.answered()) }
      return .now(isAsked ? .refused("41 is bad") : .unsendable("41 is bad"))
    }
    let trial = try DeliveryTrial(destination)
    trial.send(values(0...63))
    #expect(destination.delivered == values(0...63).filter { $0 != 41 })
    #expect(trial.rejected == [#"[41,"41 is bad"]"#])
    #expect(destination.calls.count <= 2 * 6 + 1)
    #expect(trial.source.feed.outcomes == [0: .acknowledged])
    #expect(destination.faults == [])
  }

  /// A batch that is too large makes later batches smaller.
  @Test func batchesShrink() throws {
    let destination = ScriptedDestination { $0.count = 16 }
    destination.script = { $0.values.count > 5 ? .now(.refused("too large", isTooLarge: true)) : .now(.answered()) }
    let trial = try DeliveryTrial(destination)
    trial.send(values(0...15))
    let before = destination.calls.count
    trial.send(values(16...31), as: 1)
    #expect(destination.delivered == values(0...31))
    #expect(destination.calls.dropFirst(before).allSatisfy { $0.values.count <= 5 })
  }

  /// An unavailable destination uses up no attempts, is probed with one batch after growing pauses, and loses nothing.
  @Test func downTakesNoAttempts() throws {
    let destination = ScriptedDestination {
      $0.count = 2
      $0.concurrency = 3
      $0.order = .none
      $0.mostAttempts = 2
      $0.retry = Attempts(.seconds(1), most: .seconds(4))
    }
    var isDown = true
    destination.script = { _ in isDown ? .now(.down("it is down")) : .after(.milliseconds(1), .answered()) }
    let trial = try DeliveryTrial(destination)
    trial.send(values(1...12))
    trial.pipeline.run(until: .seconds(14))
    // The three that had begun, and one alone after 1, 2, 4 and 4 s.
    #expect(destination.calls.map { ($0.at.nanoseconds + 500_000_000) / 1_000_000_000 } == [0, 0, 0, 1, 3, 7, 11])
    #expect(destination.calls.allSatisfy { $0.attempts == 0 })
    #expect(destination.calls.dropFirst(3).allSatisfy { $0.values == [1, 2] })
    isDown = false
    trial.pipeline.run(until: .seconds(30))
    #expect(destination.delivered.sorted() == values(1...12))
    #expect(trial.pipeline.counters.rejected == 0)
    #expect(destination.faults == [])
  }

  @Test func theDestinationSaysHowLong() throws {
    let destination = ScriptedDestination()
    destination.script = { $0.number == 0 ? .now(.down("busy", after: .seconds(70))) : .now(.answered()) }
    let trial = try DeliveryTrial(destination)
    trial.send([1])
    trial.pipeline.run(until: .seconds(200))
    #expect(destination.calls.map(\.at.nanoseconds) == [0, 70_000_000_000])
  }

  /// After the last attempt an event is a dead letter, or the pipeline ends.
  @Test(arguments: [true, false]) func attemptsEnd(_ readsErrors: Bool) throws {
    let destination = ScriptedDestination {
      $0.mostAttempts = 3
      $0.concurrency = 2
    }
    destination.target = { Int($0 % 2) }
    destination.script = { $0.target == 1 ? .now(.again("it fails")) : .now(.answered()) }
    let trial = try DeliveryTrial(destination, readsErrors: readsErrors)
    trial.send([1, 2])
    trial.pipeline.run(until: .seconds(60))
    #expect(destination.calls.count { $0.target == 1 } == 3)
    #expect(destination.delivered == [2])
    if readsErrors {
      #expect(trial.rejected == [#"[1,"it fails; gave up after 3 attempts"]"#])
      #expect(trial.source.feed.outcomes == [0: .acknowledged])
      #expect(trial.pipeline.outcome == nil)
    } else {
      #expect(trial.pipeline.failure?.message == "it fails; gave up after 3 attempts")
      #expect(trial.source.feed.outcomes == [0: .failed("it fails; gave up after 3 attempts")])
    }
  }

  /// In a partly answered batch, the accepted events count even if the rest ends the pipeline.
  @Test func aPartOfTheLastAttemptCounts() throws {
    let destination = ScriptedDestination {
      $0.count = 3
      $0.mostAttempts = 1
    }
    destination.script = { _ in .now(.answered(again: [2], reason: "one is left")) }
    let trial = try DeliveryTrial(destination, readsErrors: false)
    trial.send([1, 2, 3])
    #expect(trial.pipeline.failure?.message == "one is left; gave up after 1 attempt")
    #expect(trial.pipeline.counters.sent == 2)
    #expect(trial.waiting == 0)
  }

  /// A destination that is misconfigured refuses everything: nothing is lost, and the first accepted event ends that
  /// state.
  @Test func brokenIsTold() throws {
    let destination = ScriptedDestination()
    destination.script = {
      $0.number < 3 ? .now(.broken(SignalFailure(.sink, "wrong password", at: nil))) : .now(.answered())
    }
    let trial = try DeliveryTrial(destination)
    for value in 1...4 { trial.send([Int64(value)], as: value) }
    #expect(trial.rejected.count == 3)
    #expect(destination.delivered == [4])
    #expect(trial.pipeline.log.count { $0.contains("wrong password; events go to the errors output") } == 1)
    let other = try DeliveryTrial(destination, readsErrors: false)
    destination.script = { _ in .now(.broken(SignalFailure(.sink, "wrong password", at: nil))) }
    other.send([5])
    #expect(other.pipeline.failure?.message == "wrong password")
    #expect(other.source.feed.outcomes == [0: .failed("wrong password")])
  }

  /// A delivery without an outcome is withdrawn at its time limit, and a late outcome is ignored.
  @Test func aHangingDeliveryComesAgain() throws {
    let destination = ScriptedDestination {
      $0.timeout = .seconds(5)
      $0.concurrency = 2
    }
    destination.target = { Int($0 % 2) }
    destination.script = { $0.number == 0 ? .nothing : .now(.answered()) }
    let trial = try DeliveryTrial(destination)
    trial.send([1, 2, 4])
    // The other lane continues.
    #expect(destination.delivered == [2, 4])
    trial.pipeline.run(until: .seconds(5))
    #expect(destination.calls.first?.isWithdrawn == true)
    #expect(trial.logged("the destination has not answered within 5s; trying again"))
    destination.answer(0, .answered())
    trial.pipeline.settle()
    #expect(trial.pipeline.counters.sent == 2)
    trial.pipeline.run(until: .seconds(20))
    #expect(destination.calls.last?.values == [1])
    #expect(trial.pipeline.counters.sent == 3)
    #expect(destination.faults == [])
  }

  /// An event that cannot be encoded is refused alone, without contacting the destination.
  @Test func anEventThatCannotBeEncoded() throws {
    let destination = ScriptedDestination { $0.count = 3 }
    destination.refusal = { $0 == 2 ? "it has 9 bytes, and a message may have 8" : nil }
    let trial = try DeliveryTrial(destination)
    trial.send([1, 2, 3])
    #expect(destination.delivered == [1, 3])
    #expect(trial.rejected == [#"[2,"it has 9 bytes, and a message may have 8"]"#])
    #expect(trial.source.feed.outcomes == [0: .acknowledged])
  }

  /// A lane that always fails delays neither other lanes nor changes its own order.
  @Test func aFailingLaneStandsAlone() throws {
    let destination = ScriptedDestination {
      $0.concurrency = 1
      $0.count = 2
    }
    destination.target = { Int($0 % 4) }
    var fails = true
    destination.script = { call in
      call.target == 3 && fails ? .now(.again("not now")) : .after(.milliseconds(1), .answered())
    }
    let trial = try DeliveryTrial(destination)
    for number in 0..<10 { trial.send(values(Int64(number * 8)...Int64(number * 8 + 7)), as: number) }
    trial.pipeline.run(until: .seconds(60))
    #expect(destination.delivered.count == 60)
    #expect(trial.pipeline.execution.troubles.all["out"]?.reason == "not now")
    fails = false
    trial.pipeline.run(until: .seconds(120))
    for lane in 0..<4 {
      let own = destination.delivered.filter { $0 % 4 == lane }
      #expect(own == own.sorted() && own.count == 20)
    }
    #expect(trial.pipeline.execution.troubles.all["out"] == nil)
    #expect(destination.faults == [])
  }

  /// Batches are complete, or have reached their maximum age; a batch that can no longer be completed does not wait.
  @Test func batchesWaitForEvents() throws {
    let destination = ScriptedDestination {
      $0.count = 3
      $0.bytes = 100
      $0.age = .seconds(10)
      $0.openBatches = 2
    }
    destination.target = { Int($0 / 100) }
    destination.size = { $0 == 9 ? 500 : 30 }
    let trial = try DeliveryTrial(destination)
    trial.send([1, 2])
    #expect(destination.calls.isEmpty)
    trial.send([3, 4], as: 1)
    #expect(destination.calls.map(\.values) == [[1, 2, 3]])
    // Larger than any batch, alone.
    trial.send([9], as: 2)
    #expect(destination.calls.map(\.values) == [[1, 2, 3], [4], [9]])
    // A third lane: the oldest batch is sent.
    trial.send([100, 200, 300], as: 3)
    #expect(destination.calls.last?.values == [100])
    trial.pipeline.run(until: .seconds(11))
    #expect(destination.calls.suffix(2).map(\.values) == [[200], [300]])
    trial.send([10], as: 4)
    end(trial)
    #expect(destination.delivered.last == 10)
    #expect(trial.pipeline.outcome == .completed)
    #expect(destination.opened == 1 && destination.closed == 1)
  }

  /// Opening is retried, and nothing is delivered before.
  @Test func opening() throws {
    let destination = ScriptedDestination()
    destination.openings = [.down("nobody is there"), .down("nobody is there"), .answered()]
    let trial = try DeliveryTrial(destination)
    trial.send([1])
    #expect(destination.calls.isEmpty)
    #expect(trial.logged("nobody is there; trying again"))
    trial.pipeline.run(until: .seconds(5))
    #expect(destination.delivered == [1])
    // Nothing waits for it if there is nothing to deliver.
    destination.openings = Array(repeating: .down("nobody is there"), count: 1000)
    let empty = try DeliveryTrial(destination)
    empty.pipeline.drain()
    #expect(empty.pipeline.outcome == .completed)
    destination.openings = [.impossible(SignalFailure(.sink, "no such thing", at: nil))]
    let wrong = try DeliveryTrial(destination)
    #expect(wrong.pipeline.failure?.message == "no such thing")
  }

  // MARK: Limits

  /// The events that wait for a dead destination are limited in number and bytes, and every sender respects that: timers and steps too.
  @Test(arguments: [true, false]) func whatWaitsIsBounded(_ isByCount: Bool) throws {
    let memory = MemoryBudget(isByCount ? 1 << 30 : 1 << 20)
    let destination = ScriptedDestination {
      $0.count = 10
      $0.queue = isByCount ? 100 : 1_000_000
    }
    destination.size = { _ in 20_000 }
    destination.script = { _ in .now(.down("nobody is there", after: .seconds(1000))) }
    let trial = try DeliveryTrial(destination, input: "interval: 10ms", memory: memory)
    trial.pipeline.run(until: .seconds(20))
    #expect(trial.pipeline.executor.isInputPaused)
    #expect(isByCount ? trial.waiting <= 120 : memory.held < (1 << 20), "\(trial.waiting), \(memory.held)")
    destination.script = { _ in .now(.answered()) }
    trial.pipeline.run(until: .seconds(1040))
    #expect(!trial.pipeline.executor.isInputPaused)
    #expect(destination.delivered.count > 1000)
    #expect(destination.delivered == destination.delivered.sorted())
    trial.pipeline.inTurn { $0.execution.cancel() }
    trial.pipeline.settle()
    #expect(memory.held == 0)
  }

  /// A batch larger than the limit on waiting events does not wait for more than can arrive.
  @Test(arguments: [true, false]) func aBatchThatCannotBeCompletedGoes(_ isByCount: Bool) throws {
    let destination = ScriptedDestination {
      $0.count = 1000
      $0.age = .seconds(3600)
      if isByCount { $0.queue = 20 }
    }
    destination.size = { _ in 20_000 }
    let trial = try DeliveryTrial(
      destination, input: "interval: 10ms", memory: MemoryBudget(isByCount ? 1 << 30 : 1 << 20))
    trial.pipeline.run(until: .seconds(60))
    #expect(destination.delivered.count > 5000, "\(destination.delivered.count)")
    #expect(destination.delivered == destination.delivered.sorted() && destination.faults == [])
  }

  /// A sink with a dead destination takes nothing from another one: without a disk until its queue is full and the input pauses for both; with a
  /// disk as long as its policy finds room.
  @Test(arguments: [true, false]) func aDeadDestinationHoldsNoOther(_ isDurable: Bool) throws {
    let (dead, working) = (ScriptedDestination { $0.queue = 100 }, ScriptedDestination())
    dead.script = { _ in .now(.down("nobody is there", after: .seconds(100))) }
    let delivery = isDurable ? DeliveryOptions(store: MemoryStore(isImmediate: true), isDurable: true) : nil
    let trial = try DeliveryTrial(dead, input: "interval: 100ms", beside: working, delivery: delivery)
    trial.pipeline.run(until: .milliseconds(9_950))
    #expect(working.delivered.count >= 98)
    trial.pipeline.run(until: .seconds(60))
    #expect(trial.pipeline.executor.isInputPaused == !isDurable)
    #expect(isDurable ? working.delivered.count > 590 : working.delivered.count < 110, "\(working.delivered.count)")
    dead.script = { _ in .now(.answered()) }
    trial.pipeline.run(until: .seconds(400))
    // The sinks have the same events.
    #expect(!trial.pipeline.executor.isInputPaused)
    #expect(dead.delivered == working.delivered && dead.delivered == dead.delivered.sorted())
    #expect(isDurable ? dead.delivered.count > 3980 : dead.delivered.count > 2900, "\(dead.delivered.count)")
  }

  // MARK: The end

  /// Stopped while the destination is dead: everything is saved, outstanding events too, and the next run delivers it in
  /// order.
  @Test func aStopSavesWhatWaits() throws {
    let destination = ScriptedDestination {
      $0.count = 2
      $0.namesBatches = true
      $0.mostAttempts = 9
    }
    destination.script = { _ in .now(.again("not now", after: .seconds(2))) }
    let trial = try DeliveryTrial(destination, input: "interval: 1s")
    trial.pipeline.run(until: .milliseconds(5500))
    let taken = trial.waiting
    #expect(taken > 3 && destination.delivered.isEmpty)
    let (first, attempts) = (try #require(destination.calls.first), destination.calls.count)
    let state = try #require(trial.pipeline.suspend())
    #expect(trial.pipeline.outcome == .completed)
    #expect(destination.closed == 1)
    let other = ScriptedDestination {
      $0.count = 3
      $0.namesBatches = true
    }
    let next = try DeliveryTrial(other, input: "interval: 1s", restoring: state)
    next.pipeline.run(until: .milliseconds(100))
    #expect(next.pipeline.execution.refusals.isEmpty)
    #expect(other.delivered == (1...Int64(taken)).map { $0 })
    // A batch stays unchanged, so that a destination that has already received it recognizes it.
    let again = try #require(other.calls.first)
    #expect(again.values == first.values && again.key == first.key && again.attempts == attempts)
    #expect(first.key.count == 32)
  }

  /// Without a state, remaining events are counted, and their senders are told.
  @Test func whatIsLeftIsCounted() throws {
    let destination = ScriptedDestination { $0.count = 2 }
    destination.script = { _ in .nothing }
    let trial = try DeliveryTrial(destination, readsErrors: false)
    trial.send(values(1...5))
    trial.pipeline.inTurn { $0.execution.cancel() }
    trial.pipeline.settle()
    #expect(trial.source.feed.outcomes == [0: .failed("the destination had not taken it when the pipeline ended")])
    #expect(trial.logged("the destination had not taken 5 events when the pipeline ended"))
    #expect(destination.calls.allSatisfy(\.isWithdrawn) && destination.closed == 1)
    destination.answer(0, .answered())
    trial.pipeline.settle()
    #expect(trial.pipeline.counters.sent == 0)
  }

  /// In a reload the next version has the same queue: outstanding events are answered to it, and nothing is delivered twice, waited for
  /// or overtaken.
  @Test(arguments: [true, false], [true, false]) func theQueueGoesToTheNextVersion(_ handsOver: Bool, _ isDurable: Bool)
    throws
  {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      let destination = ScriptedDestination {
        $0.count = 2
        $0.concurrency = 2
        $0.handsOver = handsOver
      }
      destination.target = { Int($0 % 2) }
      destination.script = { _ in .nothing }
      let store = MemoryStore(isImmediate: true)
      func options() -> DeliveryOptions? { isDurable ? DeliveryOptions(store: store, isDurable: true) : nil }
      let first = try DeliveryTrial(destination, delivery: options())
      first.send(values(1...8))
      #expect(destination.underWay.map(\.values).sorted { $0[0] < $1[0] } == [[1, 3], [2, 4]])
      let plan = first.pipeline.execution.plan
      first.pipeline.inTurn { $0.execution.suspend(for: plan) }
      first.pipeline.settle()
      if !handsOver {
        // The outstanding deliveries are waited for, for a while.
        #expect(first.pipeline.outcome == nil)
        first.pipeline.run(until: .seconds(3))
      }
      #expect(first.pipeline.outcome == .completed)
      let state = isDurable ? store.disk.state : first.pipeline.execution.savedState
      #expect(destination.underWay.count == (handsOver ? 2 : 0))
      destination.script = { _ in .now(.answered()) }
      let open = destination.underWay
      if handsOver {
        // One outcome arrives when there is neither version.
        destination.answer(try #require(open.first).number, .answered())
        first.pipeline.settle()
      }
      let second = try DeliveryTrial(
        destination, name: first.name, restoring: state, estates: first.pipeline.execution.saved.estates,
        delivery: options())
      #expect(second.pipeline.execution.refusals.isEmpty)
      second.send(values(9...10), as: 1)
      if handsOver {
        let late = try #require(open.last)
        #expect(destination.calls.count { $0.target == late.target } == 1)
        destination.answer(late.number, .answered())
      }
      second.pipeline.run(until: .seconds(10))
      #expect(destination.delivered.sorted() == values(1...10))
      for lane in 0..<2 {
        let own = destination.delivered.filter { $0 % 2 == lane }
        #expect(own == own.sorted())
      }
      #expect(destination.faults == [])
      #expect(second.waiting == 0)
      if isDurable {
        second.pipeline.run(until: .seconds(20))
        #expect(store.disk.rows.isEmpty)
      }
    }
  }

  /// In durable delivery the next version reads the outbox while outstanding rows are answered: rows acknowledged between the read and its result
  /// are in that result, and must neither be delivered nor removed again.
  @Test func whatIsAcknowledgedDuringAReadIsNotDeliveredAgain() throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      let destination = ScriptedDestination {
        $0.concurrency = 3
        $0.handsOver = true
      }
      destination.target = { Int($0) }
      destination.script = { _ in .nothing }
      let store = MemoryStore(isImmediate: true)
      let first = try DeliveryTrial(destination, delivery: DeliveryOptions(store: store, isDurable: true))
      for value in values(1...3) { first.send([value], as: Int(value)) }
      #expect(destination.underWay.map(\.values) == [[1], [2], [3]])
      let plan = first.pipeline.execution.plan
      first.pipeline.inTurn { $0.execution.suspend(for: plan) }
      first.pipeline.settle()
      #expect(first.pipeline.outcome == .completed)
      store.holdsReads = true
      let second = try DeliveryTrial(
        destination, name: first.name, restoring: store.disk.state, estates: first.pipeline.execution.saved.estates,
        delivery: DeliveryOptions(store: store, isDurable: true))
      let open = destination.underWay
      #expect(open.count == 3)
      for call in open.prefix(2) { destination.answer(call.number, .answered()) }
      second.pipeline.settle()
      store.holdsReads = false
      store.answerReads()
      second.pipeline.settle()
      #expect(destination.underWay.map(\.values) == [[3]])
      destination.answer(try #require(open.last).number, .answered())
      second.send([4], as: 4)
      destination.answer(try #require(destination.underWay.first).number, .answered())
      second.pipeline.run(until: .seconds(20))
      #expect(destination.delivered.sorted() == values(1...4))
      #expect(store.disk.rows.isEmpty && store.backlogs.values.allSatisfy { $0.events == 0 })
    }
  }

  /// A sink of another kind cannot read outstanding events: they are withdrawn, and every event is encoded again.
  @Test func theQueueOfAnotherKindIsEncodedAnew() throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      let destination = ScriptedDestination {
        $0.count = 2
        $0.handsOver = true
      }
      destination.script = { _ in .nothing }
      let first = try DeliveryTrial(destination)
      first.send(values(1...5))
      #expect(destination.underWay.map(\.values) == [[1, 2]])
      let plan = first.pipeline.execution.plan
      first.pipeline.inTurn { $0.execution.suspend(for: plan) }
      first.pipeline.settle()
      let texts = TextSink()
      let second = try DeliveryTrial(
        destination, name: first.name, sink: texts, restoring: first.pipeline.execution.savedState,
        estates: first.pipeline.execution.saved.estates)
      second.pipeline.run(until: .seconds(10))
      #expect(destination.underWay.isEmpty && destination.calls.count == 1)
      #expect(texts.delivered == values(1...5))
      #expect(second.waiting == 0 && destination.faults == [])
    }
  }
}
