import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Transport

/// Sinks that deliver in batches, with random settings and a destination that answers randomly, on virtual time.
@Suite struct DeliveryPropertyTests {
  private struct Trial {
    var random: SplitMix
    let destination: ScriptedDestination
    let trial: DeliveryTrial
    let lanes: Int
    /// Values for which the destination refuses any batch.
    let poison: Set<Int64>
    let foreign: Set<Int64>
    var last: Int64 = 0
    var sent: [Int: [Int64]] = [:]

    init(_ seed: UInt64) throws {
      var random = SplitMix(seed)
      let lanes = 1 + random.below(4)
      destination = ScriptedDestination {
        $0.count = 1 + random.below(6)
        if random.below(2) == 0 { $0.bytes = 20 + random.below(60) }
        $0.age = .milliseconds(Int64(random.below(3) * 700))
        $0.openBatches = 1 + random.below(4)
        $0.queue = 5 + random.below(40)
        $0.concurrency = 1 + random.below(4)
        $0.order = random.below(2) == 0 ? .lane : .none
        $0.retry = Attempts(.milliseconds(Int64(1 + random.below(500))), most: .seconds(2))
        $0.mostAttempts = random.below(3) == 0 ? 2 + random.below(4) : nil
        $0.timeout = random.below(2) == 0 ? .seconds(3) : nil
        $0.namesBatches = random.below(2) == 0
      }
      poison = Set((0..<6).map { _ in Int64(random.below(120)) })
      foreign = Set((0..<4).map { _ in Int64(random.below(120)) })
      self.lanes = lanes
      let (poison, foreign) = (poison, foreign)
      destination.target = { lanes == 1 ? nil : Int($0) % lanes }
      destination.size = { 1 + Int($0 % 37) }
      destination.refusal = { foreign.contains($0) ? "it cannot be encoded" : nil }
      if random.below(3) == 0 { destination.openings = [.down("it is not there"), .answered()] }
      trial = try DeliveryTrial(destination, random: random.next())
      let hangs = destination.traits.timeout != nil
      let answers = SplitMixBox(random.next())
      destination.script = { call in
        let outcome: DeliveryOutcome
        switch answers.random.below(12) {
        case _ where call.values.contains(where: poison.contains) && answers.random.below(4) > 0:
          outcome =
            answers.random.below(2) == 0
            ? .refused("it is bad", isTooLarge: answers.random.below(4) == 0) : .unsendable("it is bad")
        case 0: outcome = .down("down", after: answers.random.below(2) == 0 ? .seconds(1) : nil)
        case 1: outcome = .again("again")
        case 2: outcome = .answered(again: [call.values.count])
        case 3, 4:
          var again: [Int] = []
          var refused: [DeliveryOutcome.Refused] = []
          for index in call.values.indices {
            switch answers.random.below(4) {
            case 0: again.append(index)
            case 1: refused.append(.init(index, "refused"))
            default: break
            }
          }
          outcome = .answered(again: again, refused: refused, reason: "some")
        case 5 where hangs: return .nothing
        default: outcome = .answered()
        }
        // Slow answers may arrive after the time limit.
        return answers.random.below(3) == 0
          ? .now(outcome) : .after(.milliseconds(Int64(answers.random.below(4000))), outcome)
      }
      self.random = random
    }

    /// The next events to send.
    mutating func choose() -> [Int64] {
      let new = (0..<(1 + random.below(9))).map { last + Int64($0) }
      last += Int64(new.count)
      sent[sent.count] = new
      return new
    }

    func send(_ number: Int) { trial.send(sent[number] ?? [], as: number) }
  }

  /// A generator that closures share.
  private final class SplitMixBox {
    var random: SplitMix
    init(_ seed: UInt64) { random = SplitMix(seed) }
  }

  private final class Watch {
    var sent: [Int: [Int64]] = [:]
    /// Batches whose sender was told before all of their events were decided.
    var tooEarly: [Int] = []
  }

  private func value(_ rejection: String) -> Int64? { Int64(rejection.dropFirst().prefix { $0 != "," }) }

  /// At any moment an accepted event is delivered, rejected, waiting or given up; batches respect their limits; lanes keep their order; a
  /// sender is told of success when all of its events are decided, after dead letters are on their way; nothing is left at the end.
  @Test(arguments: 0..<400) func everyEventIsDecidedOnce(_ seed: UInt64) throws {
    var one = try Trial(seed)
    let (destination, trial) = (one.destination, one.trial)
    let pipeline = trial.pipeline
    nonisolated(unsafe) let heard = trial
    nonisolated(unsafe) let watch = Watch()
    trial.source.feed.hears = { number in
      let rejected = Set(heard.rejected.compactMap { Int64($0.dropFirst().prefix { $0 != "," }) })
      let decided = Set(heard.destination.delivered).union(rejected)
      if !(watch.sent[number] ?? []).allSatisfy(decided.contains) { watch.tooEarly.append(number) }
    }
    for number in 0..<20 {
      watch.sent[number] = one.choose()
      one.send(number)
      pipeline.run(
        until: TimeSpan(nanoseconds: pipeline.time.now.nanoseconds + Int64(one.random.below(900)) * 1_000_000))
      let counters = pipeline.counters
      #expect(counters.received == counters.sent + counters.rejected + UInt64(trial.waiting), "seed \(seed)")
    }
    destination.script = { call in
      .now(call.values.contains(where: one.poison.contains) ? .refused("it is bad") : .answered())
    }
    pipeline.run(until: .seconds(1000))
    end(pipeline)
    #expect(watch.tooEarly.isEmpty, "seed \(seed): acknowledged too early: \(watch.tooEarly)")
    #expect(destination.faults.isEmpty, "seed \(seed): \(destination.faults)")
    #expect(pipeline.outcome == .completed, "seed \(seed): \(trial.waiting) wait")
    let counters = pipeline.counters
    #expect(counters.received == counters.sent + counters.rejected, "seed \(seed)")
    #expect(trial.rejected.count == Int(counters.rejected), "seed \(seed)")
    // Each is decided once. Events delivered twice had timed out.
    let rejected = trial.rejected.compactMap(value)
    #expect(Set(rejected).count == rejected.count, "seed \(seed)")
    #expect(Set(rejected).isSuperset(of: one.foreign.filter { $0 < one.last }), "seed \(seed)")
    #expect(Set(destination.delivered).union(rejected) == Set(0..<one.last), "seed \(seed)")
    for value in Set(destination.delivered) where destination.times(value) > 1 || rejected.contains(value) {
      #expect(destination.calls.contains { $0.isWithdrawn && $0.values.contains(value) }, "seed \(seed): \(value)")
    }
    #expect(
      trial.source.feed.outcomes.count == 20 && trial.source.feed.outcomes.values.allSatisfy { $0 == .acknowledged })
    #expect(destination.opened == 1 && destination.closed == 1, "seed \(seed)")
    #expect(trial.memory.held == 0 && !pipeline.executor.isInputPaused, "seed \(seed)")
    #expect(pipeline.execution.troubles.all.isEmpty || destination.traits.mostAttempts != nil, "seed \(seed)")
  }

  /// A destination that accepts a stream of batches and answers event by event, in order, requests events again, and loses the connection: its
  /// events arrive in order, each once.
  @Test(arguments: 0..<200) func aStreamKeepsItsOrder(_ seed: UInt64) throws {
    var random = SplitMix(seed)
    let destination = ScriptedDestination {
      $0.order = .stream
      $0.count = 1 + random.below(4)
      $0.concurrency = 1 + random.below(6)
      $0.mostAttempts = 2
    }
    destination.script = { _ in .nothing }
    let trial = try DeliveryTrial(destination)
    var last: Int64 = 0
    func answer(_ verdict: Int) {
      guard let call = destination.underWay.first else { return }
      switch verdict {
      case 0: destination.answer(call.number, .down("not now"))
      case 1: destination.connection?.put(.lost(after: .milliseconds(100)))
      case 2: destination.answer(call.number, .partly(refused: [.init(call.answered, "no")]))
      default: destination.answer(call.number, .partly(done: [call.answered]))
      }
      trial.pipeline.settle()
    }
    for number in 0..<60 {
      if random.below(3) == 0 {
        let new = (0..<(1 + random.below(5))).map { last + Int64($0) }
        last += Int64(new.count)
        trial.send(new, as: number)
      }
      answer(random.below(10))
      if random.below(4) == 0 {
        trial.pipeline.run(until: TimeSpan(nanoseconds: trial.pipeline.time.now.nanoseconds + 700_000_000))
      }
      let counters = trial.pipeline.counters
      #expect(counters.received == counters.sent + counters.rejected + UInt64(trial.waiting), "seed \(seed)")
    }
    for _ in 0..<2000 where trial.waiting > 0 {
      answer(9)
      trial.pipeline.run(until: TimeSpan(nanoseconds: trial.pipeline.time.now.nanoseconds + 100_000_000))
    }
    let rejected = trial.rejected.compactMap(value)
    #expect(destination.delivered == (0..<last).filter { !rejected.contains($0) }, "seed \(seed)")
    #expect(rejected == rejected.sorted(), "seed \(seed)")
    #expect(destination.faults.isEmpty, "seed \(seed): \(destination.faults)")
    end(trial.pipeline)
    #expect(trial.pipeline.outcome == .completed && destination.closed == 1, "seed \(seed)")
  }

  private func end(_ pipeline: VirtualPipeline) {
    pipeline.drain()
    pipeline.run(until: .seconds(10_000))
  }

  /// Ended at any moment: the remaining events are in the state, and the next run delivers them; or they are counted.
  @Test(arguments: 0..<200) func endedAtAnyMoment(_ seed: UInt64) throws {
    var one = try Trial(seed &+ 10_000)
    let pipeline = one.trial.pipeline
    for number in 0..<8 {
      _ = one.choose()
      one.send(number)
      pipeline.run(
        until: TimeSpan(nanoseconds: pipeline.time.now.nanoseconds + Int64(one.random.below(900)) * 1_000_000))
    }
    let isSaved = one.random.below(2) == 0
    let received = Int64(pipeline.counters.received)
    // A sender that is told of a failure sends its events again, so they are in no state.
    let state = isSaved ? pipeline.suspend() : nil
    if !isSaved {
      pipeline.inTurn { $0.execution.cancel() }
      pipeline.settle()
    }
    let counters = pipeline.counters
    let open = one.sent.filter { one.trial.source.feed.outcomes[$0.key] == nil }
    #expect(open.isEmpty, "seed \(seed): \(open)")
    #expect(one.destination.closed == 1 && one.trial.memory.held == 0, "seed \(seed)")
    #expect(counters.received >= counters.sent + counters.rejected + counters.undelivered, "seed \(seed)")
    let failed = one.sent.filter { one.trial.source.feed.outcomes[$0.key] != .acknowledged }.values.joined()
    let rejected = Set(one.trial.rejected.compactMap(value))
    let decided = Set(one.destination.delivered).union(rejected)
    #expect(Set(0..<received).subtracting(decided).isSubset(of: failed), "seed \(seed)")
    #expect(isSaved == (state != nil))
  }
}
