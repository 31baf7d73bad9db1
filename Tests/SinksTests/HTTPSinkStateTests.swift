import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// The undelivered events of an `http` sink are part of a saved state.
@Suite struct HTTPSinkStateTests {
  private func yaml(_ url: String, _ parameters: String = "batch: 2") -> String {
    """
    sources: { events: { values: [1, 2, 3, 4, 5] }, later: { values: { list: [6], every: 1h } } }
    signals: { all: { merge: [events, later] } }
    sinks: { shop: { from: all, http: { url: '\(url)', \(parameters) } } }
    """
  }

  /// The server is dead: nothing waits for it, and the next execution sends everything to the current address in the
  /// file.
  @Test func theQueueMoves() throws {
    let first = try VirtualPipeline(yaml("http://old.example/"))
    first.run(until: .zero)
    #expect(first.http.bodies == ["1\n2\n"])
    let key = first.http.open.first?.header("Idempotency-Key")
    let state = try #require(first.suspend())
    #expect(first.outcome == .completed)
    #expect(first.deadLetters.isEmpty)
    #expect(first.http.open.isEmpty)

    let second = try VirtualPipeline(yaml("http://new.example/", "batch: 1"), restoring: state)
    second.http.script = { _, _ in ScriptedHTTP.status(200) }
    second.run(until: .milliseconds(10))
    #expect(second.execution.refusals.isEmpty)
    // A request is repeated unchanged, so that a server that has seen it recognizes it.
    #expect(second.http.bodies == ["1\n2\n", "3\n", "4\n", "5\n", "6\n"])
    #expect(second.http.exchanges.first?.header("Idempotency-Key") == key)
    #expect(second.http.exchanges.allSatisfy { $0.request.url == "http://new.example/" })
    #expect(second.counters.sent == 6)
  }

  /// A sink that is missing in the next execution finishes its events.
  @Test func aSinkThatGoesFinishes() throws {
    let first = try VirtualPipeline(yaml("http://old.example/"))
    first.run(until: .zero)
    first.inTurn { $0.execution.suspend { _ in false } }
    first.settle()
    #expect(first.outcome == nil)
    first.http.script = { _, _ in ScriptedHTTP.status(200) }
    first.http.open.first?.answer(200)
    first.settle()
    #expect(first.outcome == .completed)
    #expect(first.http.bodies == ["1\n2\n", "3\n4\n", "5\n6\n"])
  }

  /// ... as long as it delivers something: the server takes 1.5 s for each request.
  @Test func aSinkThatGoesMayBeSlow() throws {
    let first = try VirtualPipeline(yaml("http://old.example/"))
    first.run(until: .zero)
    first.inTurn { $0.execution.suspend { _ in false } }
    for number in 1...3 {
      first.run(until: .milliseconds(Int64(number) * 1500))
      #expect(first.outcome == nil)
      first.http.open.first?.answer(200)
      first.settle()
    }
    #expect(first.outcome == .completed)
    #expect(first.http.bodies == ["1\n2\n", "3\n4\n", "5\n6\n"])
    #expect(first.counters.undelivered == 0)
  }

  /// A removed sink is given up after two seconds without a delivery: the server is silent, or refuses.
  @Test(arguments: [nil, 503]) func aSinkThatGoesAndIsDead(_ status: Int?) throws {
    for keepsDeadLetters in [false, true] {
      let first = try VirtualPipeline(yaml("http://old.example/"), random: .max, keepsDeadLetters: keepsDeadLetters)
      if let status { first.http.script = { _, _ in ScriptedHTTP.status(status) } }
      first.run(until: .zero)
      first.inTurn { $0.execution.suspend { _ in false } }
      first.run(until: .milliseconds(1999))
      #expect(first.outcome == nil)
      first.run(until: .seconds(2))
      #expect(first.outcome == .completed)
      #expect(first.http.open.isEmpty)
      // Nothing is lost silently.
      #expect(first.counters.undelivered == (keepsDeadLetters ? 0 : 6), "\(first.log)")
      #expect(first.deadLetters.count == (keepsDeadLetters ? 6 : 0))
      #expect(first.log.contains { $0.contains("given up: it delivered nothing for 2s") })
      #expect(first.execution.savedState != nil)
    }
  }

  /// In `light` the dead letters of a sink that is given up are committed with the state; events that would be lost stay in the last
  /// commit.
  @Test(arguments: [true, false]) func aCommitBesideASinkThatIsGivenUp(_ keepsDeadLetters: Bool) throws {
    let store = MemoryStore(isImmediate: true)
    let text = """
      sources: { ticks: { interval: { every: 10ms, immediate: true } } }
      sinks: { shop: { from: ticks, http: { url: 'http://h.example/', batch: 1 } }, out: { from: ticks, probe: {} } }
      """
    let first = try VirtualPipeline(
      text, delivery: DeliveryOptions(store: store, isDurable: false), keepsDeadLetters: keepsDeadLetters)
    first.http.script = { _, _ in ScriptedHTTP.status(200) }
    first.run(until: .milliseconds(205))
    let before = try #require(store.disk.state)
    first.http.script = { _, _ in nil }
    first.run(until: .milliseconds(235))
    first.inTurn { $0.execution.suspend { $0.name != "shop" } }
    first.run(until: .seconds(3))
    #expect(first.outcome == .completed)
    first.inTurn { $0.execution.finishCommits {} }
    first.settle()
    #expect(store.disk.deadLetters.count == (keepsDeadLetters ? 3 : 0))
    #expect(first.execution.hasLostEvents == !keepsDeadLetters)
    #expect((store.disk.state == before) == !keepsDeadLetters)
  }

  /// An outstanding request is answered, and not repeated; no other starts.
  @Test func anAnswerIsAwaited() throws {
    let first = try VirtualPipeline(yaml("http://h.example/"))
    first.run(until: .zero)
    first.inTurn { $0.execution.suspend() }
    first.run(until: .seconds(1))
    #expect(first.outcome == nil)
    first.http.open.first?.answer(200)
    first.settle()
    #expect(first.outcome == .completed)
    #expect(first.http.bodies == ["1\n2\n"])
    let state: [UInt8] = try #require(first.execution.savedState)
    let second = try VirtualPipeline(yaml("http://h.example/"), restoring: state)
    second.http.script = { _, _ in ScriptedHTTP.status(200) }
    second.run(until: .milliseconds(10))
    #expect(second.http.bodies == ["3\n4\n", "5\n6\n"])
  }

  /// A dead server is waited for at most two seconds; a failed request waits for the next execution.
  @Test(arguments: [nil, 503]) func anAnswerThatDoesNotCome(_ status: Int?) throws {
    let first = try VirtualPipeline(yaml("http://h.example/"))
    first.run(until: .zero)
    first.inTurn { $0.execution.suspend() }
    first.settle()
    if let status { first.http.open.first?.answer(status) } else { first.run(until: .milliseconds(1999)) }
    first.settle()
    #expect((first.outcome == nil) == (status == nil))
    first.run(until: .seconds(2))
    #expect(first.outcome == .completed)
    let state: [UInt8] = try #require(first.execution.savedState)
    let second = try VirtualPipeline(yaml("http://h.example/"), restoring: state)
    second.http.script = { _, _ in ScriptedHTTP.status(200) }
    second.run(until: .milliseconds(10))
    #expect(second.http.bodies == ["1\n2\n", "3\n4\n", "5\n6\n"])
  }

  /// A failure of the pipeline also leaves the queue to the next run.
  @Test func aFailureKeepsTheQueue() throws {
    func text(_ divisor: Int) -> String {
      """
      sources: { events: { values: [1, 2, 3] }, divisors: { values: { list: [1, \(divisor)], every: 10ms } } }
      signals: { broken: { from: divisors, chain: [ { map: 1 / event, onError: fail } ] } }
      sinks:
        shop: { from: events, http: { url: 'http://h.example/', batch: 1 } }
        out: { from: broken, probe: {} }
      """
    }
    let first = try VirtualPipeline(text(0))
    first.execution.settings.keepsStateOnFailure = true
    first.run(until: .milliseconds(20))
    #expect(first.failure != nil)
    #expect(first.deadLetters.isEmpty)
    let state = try #require(first.execution.savedState)
    let second = try VirtualPipeline(text(1), restoring: state)
    second.http.script = { _, _ in ScriptedHTTP.status(200) }
    second.settle()
    #expect(second.http.bodies == ["1\n", "2\n", "3\n"])
  }
}
