import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Transport

/// A connection that continues over a reload with outstanding batches, such as an instance of a plugin: each event is delivered once and in order,
/// and no version waits for another.
@Suite struct LastingConnectorTests {
  /// The events that the connections of all versions receive, in order.
  final class Place: @unchecked Sendable {
    struct Given {
      var value: Int64
      var connection: Int
      var answer: DeliveryAnswer
      var index: Int
    }
    var open: [Given] = []
    var delivered: [Int64] = []
    var connections = 0
    var ends: [Int] = []
    /// Connections that have ended on their own: events sent to them are lost.
    var dead: Set<Int> = []
    var hearsOfEnd: [Int: DeliveryAnswer] = [:]

    /// The destination accepts the next events of a connection.
    func take(_ count: Int) {
      for _ in 0..<count where !open.isEmpty {
        let next = open.removeFirst()
        delivered.append(next.value)
        next.answer.put(.partly(done: [next.index]))
      }
    }
  }

  final class Connector: LastingConnector {
    let place: Place
    private var number: Int?
    init(_ place: Place) { self.place = place }

    var traits: DeliveryTraits {
      var traits = DeliveryTraits(DeliveryWords("the place"))
      (traits.count, traits.concurrency, traits.order, traits.handsOver) = (4, 4, .stream, true)
      return traits
    }
    var room: Int { number == nil ? 0 : 6 - place.open.count { $0.connection == number } }

    func open(_ answer: DeliveryAnswer) -> Bool {
      place.connections += 1
      number = place.connections
      place.hearsOfEnd[place.connections] = answer
      return true
    }
    func encode(_ event: Event) throws(DeliveryRefusal) -> DeliveryPiece {
      DeliveryPiece(.bytes([]), bytes: 8)
    }
    func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) {
      guard let number, !place.dead.contains(number) else { return }
      for (index, item) in batch.items.enumerated() {
        place.open.append(
          .init(value: item.event.event.value.asInt, connection: number, answer: answer, index: index))
      }
    }
    func close(handsOver: Bool) { if !handsOver { retire() } }

    func goOn(with former: any LastingConnector) -> Bool {
      guard let former = former as? Connector, let number = former.number else { return false }
      (self.number, former.number) = (number, nil)
      return true
    }
    func retire() {
      if let number { place.ends.append(number) }
      number = nil
    }
    func end() -> (accepted: Int, wait: @Sendable () -> Void) {
      place.open.removeAll { $0.connection == number }
      retire()
      return (0, {})
    }
  }

  struct Sink: SinkComponent {
    static let spec = ComponentSpec<Sink>("place", summary: "Keeps.", persistence: .position(version: 1))
    var place = Place()
    init() {}
    init(_ place: Place) { self.place = place }
    func makeSink(_ nodeContext: NodeContext) -> RunningSink {
      DeliverySink(Connector(place), nodeContext)
    }
  }

  private func trial(
    _ place: Place, name: String? = nil, after first: DeliveryTrial? = nil, values: Int = 0, host: String = "h.example"
  ) throws -> DeliveryTrial {
    let left = first?.pipeline.execution.leftState
    return try DeliveryTrial(
      ScriptedDestination(), name: name ?? first?.name, sink: Sink(place), host: host, restoring: left?.bytes,
      estates: left?.estates ?? [:], values: values)
  }

  private func suspend(_ trial: DeliveryTrial) {
    trial.pipeline.inTurn { $0.execution.suspend(for: $0.execution.plan) }
    trial.pipeline.settle()
  }

  private func duringReload(_ body: () throws -> Void) throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      try body()
    }
  }

  /// The connection continues, also if some events of a batch were answered earlier.
  @Test(arguments: 0...6) func theConnectionGoesOn(_ before: Int) throws {
    try duringReload {
      let place = Place()
      let first = try trial(place)
      first.send(Array(1...20))
      place.take(before)
      first.pipeline.settle()
      suspend(first)
      #expect(first.pipeline.outcome == .completed, "nobody waits for answers")
      // Answered while there is neither version.
      place.take(1)
      let second = try trial(place, after: first)
      second.send([21], as: 1)
      for _ in 0..<30 {
        place.take(1)
        second.pipeline.settle()
      }
      #expect(place.delivered == Array(1...21))
      #expect(place.connections == 1 && place.ends.isEmpty)
      #expect(second.waiting == 0 && second.memory.held == 0)
      #expect(second.source.feed.outcomes == [1: .acknowledged])
      #expect(first.source.feed.outcomes == [0: .acknowledged])
    }
  }

  /// With other settings the old connection finishes its events in parallel to the new version, which opens its own connection
  /// afterwards.
  @Test(arguments: [0, 3, 6]) func otherSettingsMakeAnotherConnection(_ passes: Int) throws {
    try duringReload {
      let place = Place()
      let first = try trial(place)
      first.send(Array(1...20))
      #expect(place.open.map(\.value) == Array(1...6))
      suspend(first)
      #expect(first.pipeline.outcome == .completed)
      let second = try trial(place, after: first, values: 1)
      second.send([21], as: 1)
      place.take(passes)
      second.pipeline.settle()
      if passes < 6 {
        #expect(place.connections == 1 && place.ends.isEmpty)
        second.pipeline.run(until: .seconds(3))
      }
      #expect(place.connections == 2 && place.ends == [1])
      #expect(place.open.first?.value == Int64(passes + 1) && place.open.first?.connection == 2)
      for _ in 0..<30 {
        place.take(1)
        second.pipeline.settle()
      }
      #expect(place.delivered == Array(1...21))
      #expect(second.waiting == 0 && second.memory.held == 0)
    }
  }

  /// The connection ends after the reload: its outstanding events are sent again over another one.
  @Test(arguments: [true, false]) func theConnectionEndsBehindTheReload(_ isBetween: Bool) throws {
    try duringReload {
      let place = Place()
      let first = try trial(place)
      first.send(Array(1...20))
      place.take(2)
      first.pipeline.settle()
      suspend(first)
      func end() {
        place.open = []
        place.dead = [1]
        place.hearsOfEnd[1]?.put(.lost(after: .milliseconds(10)))
      }
      if isBetween { end() }
      let second = try trial(place, after: first)
      if !isBetween { end() }
      second.pipeline.run(until: .seconds(30))
      #expect(place.connections == 2)
      for _ in 0..<30 {
        place.take(1)
        second.pipeline.settle()
      }
      #expect(place.delivered == Array(1...20))
      #expect(second.waiting == 0)
    }
  }

  /// A further reload while the old connection finishes waits for it, for a while: its outstanding events cannot be taken back.
  @Test func aFurtherReloadWaitsForTheOldConnection() throws {
    try duringReload {
      let place = Place()
      let first = try trial(place)
      first.send(Array(1...20))
      suspend(first)
      let second = try trial(place, after: first, values: 1)
      suspend(second)
      #expect(second.pipeline.outcome == nil)
      place.take(6)
      second.pipeline.settle()
      #expect(second.pipeline.outcome == .completed && place.ends == [1])
      let third = try trial(place, after: second, values: 2)
      for _ in 0..<30 {
        place.take(1)
        third.pipeline.settle()
      }
      #expect(place.delivered == Array(1...20))
      #expect(place.connections == 2)
    }
  }

  /// If no version takes the connection over, it ends, and senders that wait for an acknowledgement get a failure.
  @Test func whatNoVersionTakesEnds() throws {
    try keepingListeners.withLock { _ in
      KeptListeners.begin()
      let place = Place()
      let first = try trial(place)
      first.send([1, 2])
      suspend(first)
      #expect(place.ends.isEmpty)
      KeptListeners.end()
      #expect(place.ends == [1])
      #expect(first.source.feed.outcomes == [0: .failed(LeftReceipt.untaken)])
    }
  }
}
