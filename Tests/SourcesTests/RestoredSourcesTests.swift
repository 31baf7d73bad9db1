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

  /// The answer to a request is lost with the process that asked, so it is asked again; the list goes on.
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
}
