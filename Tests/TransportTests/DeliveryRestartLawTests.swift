import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Transport

/// The laws of sinks that deliver in batches over stops, kills, reloads and changed files. On virtual time.
@Suite struct DeliveryRestartLawTests {
  private func durable(_ store: MemoryStore) -> DeliveryOptions { DeliveryOptions(store: store, isDurable: true) }

  /// Two lanes, whose batches are answered after a while.
  private func slow() -> ScriptedDestination {
    let destination = ScriptedDestination {
      $0.count = 2
      $0.concurrency = 2
    }
    destination.target = { Int($0 % 2) }
    destination.script = { _ in .after(.milliseconds(15), .answered()) }
    return destination
  }

  /// Runs until a source that sends every millisecond has sent so many events, without ending.
  private func run(_ trial: DeliveryTrial, ticks: Int64) {
    trial.pipeline.run(until: TimeSpan(nanoseconds: ticks * 1_000_000 + 500_000))
  }

  private func isInOrder(_ destination: ScriptedDestination) -> Bool {
    (0..<2).allSatisfy { lane in
      let own = destination.delivered.filter { $0 % 2 == lane }
      return own == own.sorted()
    }
  }

  // MARK: Kills

  /// Runs until so many commits are on disk, loses the process there, and continues from the disk. Returns the number of commits on disk.
  private func kill(after most: Int, isHeard: Bool) throws -> Int {
    let store = MemoryStore()
    let first = slow()
    let trial = try DeliveryTrial(first, delivery: durable(store))
    func commit() {
      while store.waiting > 0, store.disk.commits < most {
        store.takeOne(isHeard: isHeard || store.disk.commits + 1 < most)
        trial.pipeline.settle()
      }
    }
    for step in 0..<20 {
      if step < 8 { trial.send([Int64(2 * step), Int64(2 * step + 1)], as: step) }
      commit()
      trial.pipeline.run(until: .milliseconds(Int64(step + 1) * 60))
      commit()
    }
    let disk = store.disk
    let accepted = trial.source.feed.outcomes.filter { $0.value == .acknowledged }.keys
    let left = disk.rows.values.reduce(0) { $0 + $1.events }
    let second = slow()
    let store2 = MemoryStore(disk, isImmediate: true)
    let next = try DeliveryTrial(second, name: trial.name, restoring: disk.state, delivery: durable(store2))
    next.pipeline.run(until: .seconds(100))
    let delivered = Set(first.delivered).union(second.delivered)
    for number in accepted {
      #expect(delivered.isSuperset(of: [Int64(2 * number), Int64(2 * number + 1)]), "\(most): batch \(number) is lost")
    }
    #expect(second.delivered.count == left, "\(most)")
    #expect(Set(second.delivered).count == second.delivered.count && isInOrder(second), "\(most)")
    #expect(next.waiting == 0 && store2.disk.rows.isEmpty, "\(most)")
    #expect(first.faults == [] && second.faults == [])
    return disk.commits
  }

  /// Lost at any commit, before or after the process is notified of it: every event whose sender was acknowledged is delivered, repeated events are
  /// those still on disk, and lanes keep their order.
  @Test(arguments: [true, false]) func aKillAtEveryCommit(_ isHeard: Bool) throws {
    var kills = 1
    while try kill(after: kills, isHeard: isHeard) == kills { kills += 1 }
    #expect(kills > 8)
  }

  // MARK: Dead letters

  /// A refused event is a dead letter on disk before its row is removed, and its neighbours are delivered once.
  @Test func aDeadLetterIsStoredBeforeItsEventIsForgotten() throws {
    let store = MemoryStore()
    let destination = ScriptedDestination { $0.count = 3 }
    destination.script = { call in
      .now(.answered(refused: call.values.firstIndex(of: 2).map { [.init($0, "it is ugly")] } ?? []))
    }
    let trial = try DeliveryTrial(destination, readsErrors: false, delivery: durable(store), keepsDeadLetters: true)
    trial.send([1, 2, 3])
    for step in 0..<20 {
      store.takeOne()
      trial.pipeline.run(until: .milliseconds(Int64(step + 1) * 50))
      let disk = store.disk
      guard trial.source.feed.outcomes[0] != nil else { continue }
      #expect(!disk.rows.isEmpty || disk.deadLetters.count == 1, "after \(disk.commits) commits")
    }
    let letter = try #require(store.disk.deadLetters.first)
    #expect(String(decoding: letter.document, as: UTF8.self).contains("it is ugly"))
    #expect(store.disk.rows.isEmpty && store.disk.deadLetters.count == 1)
    #expect(destination.delivered == [1, 3] && destination.calls.count == 1)
    #expect(trial.source.feed.outcomes == [0: .acknowledged])
  }

  // MARK: Stops

  enum Dead: CaseIterable { case hangs, isDown, fails, cannotBeOpened }

  private func dead(_ way: Dead) -> ScriptedDestination {
    let destination = slow()
    destination.script = { _ in
      switch way {
      case .hangs: .nothing
      case .isDown: .now(.down("it is down", after: .seconds(1000)))
      case .fails, .cannotBeOpened: .now(.again("it fails", after: .seconds(1000)))
      }
    }
    if way == .cannotBeOpened { destination.openings = Array(repeating: .down("nobody is there"), count: 1000) }
    return destination
  }

  /// A stop with a dead destination ends soon, and the next start delivers everything in order.
  @Test(arguments: Dead.allCases, [true, false]) func aStopBeforeADeadDestinationEnds(_ way: Dead, _ isDurable: Bool)
    throws
  {
    let store = MemoryStore(isImmediate: true)
    let delivery = isDurable ? durable(store) : nil
    let trial = try DeliveryTrial(dead(way), input: "interval: 1ms", delivery: delivery)
    run(trial, ticks: 5)
    trial.pipeline.inTurn { $0.execution.suspend() }
    trial.pipeline.run(until: .seconds(20))
    #expect(trial.pipeline.outcome == .completed)
    let state = isDurable ? store.disk.state : trial.pipeline.execution.savedState
    let other = slow()
    let next = try DeliveryTrial(
      other, name: trial.name, input: "never: {}", restoring: state, delivery: isDurable ? durable(store) : nil)
    next.pipeline.run(until: .seconds(10))
    // Until the outstanding batches are given up, the source may send more.
    let taken = Int64(trial.pipeline.counters.received)
    #expect(taken >= 5 && other.delivered.sorted() == Array(1...taken) && isInOrder(other))
    #expect(next.waiting == 0 && store.disk.rows.isEmpty, "\(next.pipeline.log)")
  }

  // MARK: Reloads

  /// A reload while one sink fails is immediate, hands over the same queue, and another sink receives each event once.
  @Test(arguments: Dead.allCases) func aReloadWhileASinkFails(_ way: Dead) throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      let (failing, working) = (dead(way), slow())
      let first = try DeliveryTrial(failing, beside: working)
      first.send([1, 2, 3, 4, 5])
      first.pipeline.run(until: .seconds(1))
      #expect(working.delivered.sorted() == [1, 2, 3, 4, 5])
      let plan = first.pipeline.execution.plan
      first.pipeline.inTurn { $0.execution.suspend(for: plan) }
      first.pipeline.run(until: .seconds(4))
      #expect(first.pipeline.outcome == .completed)
      #expect(failing.underWay.isEmpty && failing.closed == failing.opened)
      let mended = slow()
      let second = try DeliveryTrial(
        mended, name: first.name, beside: working, isSecond: true,
        restoring: first.pipeline.execution.savedState, estates: first.pipeline.execution.saved.estates)
      second.send([6], as: 1)
      // A pause requested by the destination may continue.
      second.pipeline.run(until: .seconds(2000))
      #expect(mended.delivered.sorted() == [1, 2, 3, 4, 5, 6] && isInOrder(mended))
      #expect(working.delivered.sorted() == [1, 2, 3, 4, 5, 6])
      #expect(second.waiting == 0 && working.faults == [])
    }
  }

  // MARK: Changed files

  /// Other batches, lanes, concurrency and order, another position in the file, another sink next to it: the queue belongs to the name of the
  /// sink.
  @Test(arguments: [true, false], 0..<20) func changedSettingsOrphanNoQueue(_ isDurable: Bool, _ seed: UInt64) throws {
    var random = SplitMix(seed)
    let store = MemoryStore(isImmediate: true)
    func destination() -> ScriptedDestination {
      let lanes = Int64(1 + random.below(5))
      let destination = ScriptedDestination {
        $0.count = 1 + random.below(6)
        $0.concurrency = 1 + random.below(4)
        $0.order = random.below(2) == 0 ? .lane : .none
        $0.namesBatches = random.below(2) == 0
      }
      destination.target = { lanes == 1 ? nil : Int($0 % lanes) }
      return destination
    }
    let down = destination()
    down.script = { _ in .now(.down("not now")) }
    let first = try DeliveryTrial(
      down, input: "interval: 1ms", beside: random.below(2) == 0 ? slow() : nil,
      delivery: isDurable ? durable(store) : nil)
    run(first, ticks: 30)
    first.pipeline.inTurn { $0.execution.suspend() }
    first.pipeline.run(until: .seconds(20))
    let state = isDurable ? store.disk.state : first.pipeline.execution.savedState
    let up = destination()
    let second = try DeliveryTrial(
      up, name: first.name, input: "never: {}", beside: random.below(2) == 0 ? slow() : nil,
      isSecond: random.below(2) == 0, restoring: state, delivery: isDurable ? durable(store) : nil)
    second.pipeline.run(until: .seconds(60))
    let taken = Int64(first.pipeline.counters.received)
    #expect(taken >= 30 && up.delivered.sorted() == Array(1...taken), "seed \(seed): \(second.pipeline.log)")
    #expect(up.faults == [] && second.waiting == 0, "seed \(seed)")
    #expect(!store.disk.rows.values.contains { $0.sink == "out" }, "seed \(seed)")
  }

  // MARK: Opened and closed

  /// Whatever ends it, a sink closes its connector once, after the last delivery, and leaves nothing behind.
  @Test func openedAndClosedManyTimes() throws {
    for round in 0..<100 {
      let memory = MemoryBudget()
      let destination = slow()
      if round % 3 == 0 { destination.script = { _ in .nothing } }
      weak var execution: Execution?
      do {
        let trial = try DeliveryTrial(destination, memory: memory)
        execution = trial.pipeline.execution
        trial.send([1, 2, 3])
        trial.pipeline.inTurn { pipeline in
          switch round % 4 {
          case 0: pipeline.execution.cancel()
          case 1: pipeline.execution.drain()
          case 2: pipeline.execution.suspend()
          default: break
          }
        }
        trial.pipeline.run(until: .seconds(30))
        if trial.pipeline.outcome == nil {
          trial.pipeline.inTurn { $0.execution.cancel() }
          trial.pipeline.settle()
        }
      }
      #expect(destination.opened == 1 && destination.closed == 1, "round \(round)")
      #expect(destination.faults == [], "round \(round)")
      #expect(memory.held == 0, "round \(round)")
      #expect(execution == nil, "round \(round)")
    }
  }
}
