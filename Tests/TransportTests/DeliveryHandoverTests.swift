import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Transport

/// Events that a sink leaves to its next version in a reload pass unchanged: they are not written, read or encoded again, and not lost.
@Suite struct DeliveryHandoverTests {
  /// Hands the pipeline over to its next version; returns the handed-over state.
  private func leave(_ trial: DeliveryTrial, for plan: Plan? = nil) throws -> LeftState {
    let plan = plan ?? trial.pipeline.execution.plan
    trial.pipeline.inTurn { $0.execution.suspend(for: plan) }
    trial.pipeline.settle()
    #expect(trial.pipeline.outcome == .completed)
    return try #require(trial.pipeline.execution.leftState)
  }

  private func duringReload(_ body: () throws -> Void) throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      try body()
    }
  }

  private func deadDestination(_ change: (inout DeliveryTraits) -> Void = { _ in }) -> ScriptedDestination {
    let destination = ScriptedDestination {
      $0.count = 3
      $0.handsOver = true
      change(&$0)
    }
    destination.script = { _ in .nothing }
    return destination
  }

  /// With the same settings each event is encoded once, over any number of versions; with other settings once for each version that uses another
  /// encoding. The state does not grow with the queue.
  @Test(arguments: [true, false], [nil, 3]) func eventsAreEncodedOnce(_ isSame: Bool, _ lanes: Int64?) throws {
    try duringReload {
      let destination = deadDestination()
      if let lanes { destination.target = { Int($0 % lanes) } }
      let values = Array(Int64(1)...40)
      let first = try DeliveryTrial(destination, input: nil)
      let size = try #require(first.pipeline.execution.saveState()).count
      first.send(values)
      var left = try leave(first)
      #expect(left.bytes.count <= size + 8)
      for round in 1...3 {
        let next = try DeliveryTrial(
          destination, name: first.name, restoring: left.bytes, estates: left.estates, values: isSame ? 0 : round)
        #expect(next.waiting == values.count)
        #expect(next.pipeline.execution.refusals.isEmpty)
        left = try leave(next)
      }
      let underWay = destination.underWay.flatMap(\.values)
      #expect(destination.encoded.count == values.count + (isSame ? 0 : 3 * (values.count - underWay.count)))
      destination.script = { _ in .now(.answered()) }
      let last = try DeliveryTrial(destination, name: first.name, restoring: left.bytes, estates: left.estates)
      for call in destination.underWay { destination.answer(call.number, .answered()) }
      last.pipeline.run(until: .seconds(10))
      #expect(destination.delivered.sorted() == values)
      for lane in 0..<(lanes ?? 1) {
        let own = destination.delivered.filter { $0 % (lanes ?? 1) == lane }
        #expect(own == own.sorted())
      }
      #expect(destination.faults == [] && last.waiting == 0 && last.memory.held == 0)
    }
  }

  /// A version that fails to start takes nothing: the previous one continues with everything, even after several attempts.
  @Test(arguments: [true, false]) func aVersionThatDoesNotStartTakesNothing(_ hasSenders: Bool) throws {
    try duringReload {
      let destination = deadDestination()
      let input = hasSenders ? nil : "interval: 1s"
      let first = try DeliveryTrial(destination, input: input)
      if hasSenders { first.send(Array(1...10)) } else { first.pipeline.run(until: .milliseconds(9500)) }
      let waiting = first.waiting
      #expect(waiting >= 9)
      let left = try leave(first)
      #expect(left.unsaved == (hasSenders ? 0 : waiting))
      for _ in 0..<2 {
        let failing = try VirtualPipeline(
          """
          name: \(first.name)
          sources: { in: { error: 'it cannot start' } }
          sinks: { out: { from: in, http: { url: 'http://h.example/' } } }
          """, restoring: left.bytes, estates: left.estates)
        failing.settle()
        guard case .failed? = failing.outcome else { return #expect(Bool(false), "it has started") }
      }
      #expect(destination.underWay.count == 1)
      destination.script = { _ in .now(.answered()) }
      let again = try DeliveryTrial(
        destination, name: first.name, input: input, restoring: left.bytes, estates: left.estates)
      destination.answer(0, .answered())
      // Its clock starts at 0, and an incomplete batch is as old as its first event.
      again.pipeline.run(until: .seconds(20))
      #expect(Array(destination.delivered.prefix(waiting)) == Array(1...Int64(waiting)))
      #expect(destination.encoded.count { $0 <= waiting } == waiting)
    }
  }

  /// The reload ends without a started version: senders are told to send again, outstanding events are given up, and events that are not sent again
  /// wait for the version that starts.
  @Test(arguments: [true, false]) func whatNobodySendsAgainWaits(_ hasSenders: Bool) throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      let destination = deadDestination()
      let input = hasSenders ? nil : "interval: 1s"
      let first = try DeliveryTrial(destination, input: input)
      if hasSenders { first.send(Array(1...7)) } else { first.pipeline.run(until: .milliseconds(7500)) }
      let waiting = first.waiting
      #expect(waiting >= 7)
      let left = try leave(first)
      KeptListeners.end()
      #expect(destination.calls.filter(\.isWithdrawn).count == 1)
      if hasSenders { #expect(first.source.feed.outcomes == [0: .failed(LeftReceipt.untaken)]) }
      destination.script = { _ in .now(.answered()) }
      let late = try DeliveryTrial(
        destination, name: first.name, input: input, restoring: left.bytes, estates: left.estates)
      late.pipeline.run(until: .milliseconds(100))
      #expect(destination.delivered == (hasSenders ? [] : Array(1...Int64(waiting))))
      #expect(late.waiting == 0)
    }
  }

  /// In light delivery the disk keeps the commit before the queue: after a kill the source sends all of it again. The next version's first commit
  /// that covers these events is made when they are delivered.
  @Test(arguments: [true, false]) func aKillAfterAHandoverLosesNothing(_ isKilled: Bool) throws {
    try duringReload {
      let destination = deadDestination()
      let input = "values: [1, 2, 3, 4, 5, 6, 7]"
      let store = MemoryStore(isImmediate: true)
      func options() -> DeliveryOptions { DeliveryOptions(store: store, isDurable: false) }
      let first = try DeliveryTrial(destination, input: input, map: "event", delivery: options())
      first.pipeline.run(until: .seconds(1))
      #expect(first.waiting == 7)
      let left = try leave(first)
      #expect(left.unsaved == 7)
      destination.script = { _ in .now(.answered()) }
      let second = try DeliveryTrial(
        destination, name: first.name, input: input, map: "event",
        restoring: isKilled ? store.disk.state : left.bytes, estates: isKilled ? [:] : left.estates,
        delivery: options())
      if !isKilled { destination.answer(0, .answered()) }
      second.pipeline.run(until: .seconds(2))
      #expect(Set(destination.delivered) == Set(1...7))
      if !isKilled { #expect(destination.delivered == Array(1...7)) }
    }
  }
}
