import PipelineCore
import PipelineHost
import Testing

/// Sources of a saved state.
@Suite struct RestoredSourcesTests {
  private let yaml = """
    name: t
    sources: { words: { values: { list: [a, b], every: 10ms } } }
    signals:
      answers:
        from: words
        chain:
          - flattenMap: { signal: { from: { http: { url: "http://127.0.0.1:1/?q={{ event }}", decode: text } } } }
    sinks: { out: { from: answers, probe: {} } }
    """

  /// The answer to a request is lost with the process that made it, so the request is repeated; the list continues.
  @Test func aRequestUnderWayIsMadeAgain() throws {
    let first = try VirtualPipeline(yaml)
    first.run(until: .milliseconds(4))
    #expect(first.http.open.map(\.request.url) == ["http://127.0.0.1:1/?q=a"])
    let state = try #require(first.execution.saveState())

    let second = try VirtualPipeline(yaml, restoring: state)
    second.settle()
    #expect(second.execution.refusals.isEmpty)
    #expect(second.http.open.map(\.request.url) == ["http://127.0.0.1:1/?q=a"])
    second.http.open.first?.answer(200, "A")
    second.run(until: .milliseconds(11))
    #expect(second.http.open.map(\.request.url) == ["http://127.0.0.1:1/?q=b"])
    second.http.open.first?.answer(200, "B")
    second.settle()
    #expect(second.probe().moments.count == 3)
    #expect(second.outcome == .completed)
  }

  /// Also for a request of the first period; the schedule continues as if nothing had happened.
  @Test(arguments: [true, false]) func aPollUnderWayIsMadeAgain(_ immediate: Bool) throws {
    let yaml = """
      name: t
      sources: { answers: { http: { url: 'http://127.0.0.1:1/', every: 10s, immediate: \(immediate), decode: text } } }
      sinks: { out: { from: answers, probe: {} } }
      """
    let first = try VirtualPipeline(yaml)
    first.run(until: .seconds(12))
    let asked = first.http.exchanges.count
    #expect(first.http.open.count == 1)
    // The state is saved as of the last turn.
    first.inTurn { _ in }
    first.settle()
    let state = try #require(first.execution.saveState())

    let second = try VirtualPipeline(yaml, restoring: state)
    second.settle()
    #expect(second.execution.refusals.isEmpty)
    #expect(second.http.open.count == 1, "of \(asked)")
    second.http.open.first?.answer(200, "A")
    second.http.script = { _, _ in ScriptedHTTP.status(200, "B") }
    second.run(until: .seconds(20))
    #expect(second.out == [#"0s "A""#, #"8s "B""#, #"18s "B""#])
  }

  /// Between two polls no request is made early.
  @Test func theTimeBetweenPollsContinues() throws {
    let yaml = """
      name: t
      sources: { answers: { http: { url: 'http://127.0.0.1:1/', every: 10s, decode: text } } }
      sinks: { out: { from: answers, probe: {} } }
      """
    let first = try VirtualPipeline(yaml)
    first.http.script = { _, _ in ScriptedHTTP.status(200, "A") }
    first.run(until: .seconds(4))
    first.inTurn { _ in }
    first.settle()
    let state: [UInt8] = try #require(first.execution.saveState())
    let second = try VirtualPipeline(yaml, restoring: state)
    second.http.script = { _, _ in ScriptedHTTP.status(200, "B") }
    second.run(until: .seconds(7))
    #expect(second.out == [#"6s "B""#])
  }
}
