import PipelineCore
import PipelineHost
import Testing

/// What an `http` sink has not delivered is part of a saved state.
@Suite struct HTTPSinkStateTests {
  private func yaml(_ url: String, _ parameters: String = "batch: 2") -> String {
    """
    sources: { events: { values: [1, 2, 3, 4, 5] }, later: { values: { list: [6], every: 1h } } }
    signals: { all: { merge: [events, later] } }
    sinks: { shop: { from: all, http: { url: '\(url)', \(parameters) } } }
    """
  }

  /// The server is dead: nothing is waited for, and the next execution sends everything, to where the file says now.
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
    // A request stays what it was, so that a server that has seen it knows it again.
    #expect(second.http.bodies == ["1\n2\n", "3\n", "4\n", "5\n", "6\n"])
    #expect(second.http.exchanges.first?.header("Idempotency-Key") == key)
    #expect(second.http.exchanges.allSatisfy { $0.request.url == "http://new.example/" })
    #expect(second.counters.sent == 6)
  }

  /// A sink that the next execution does not have finishes what it holds.
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

  /// A request under way is answered, and not repeated; no other begins.
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
    let second = try VirtualPipeline(yaml("http://h.example/"), restoring: try #require(first.execution.savedState))
    second.http.script = { _, _ in ScriptedHTTP.status(200) }
    second.run(until: .milliseconds(10))
    #expect(second.http.bodies == ["3\n4\n", "5\n6\n"])
  }

  /// A dead server is not waited for longer than two seconds; a failed request waits for the next execution.
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
    let second = try VirtualPipeline(yaml("http://h.example/"), restoring: try #require(first.execution.savedState))
    second.http.script = { _, _ in ScriptedHTTP.status(200) }
    second.run(until: .milliseconds(10))
    #expect(second.http.bodies == ["1\n2\n", "3\n4\n", "5\n6\n"])
  }

  /// A failure of the pipeline leaves the queue to the next run, too.
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
    first.execution.keepsStateOnFailure = true
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
