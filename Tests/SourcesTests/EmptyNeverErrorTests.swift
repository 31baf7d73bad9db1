import PipelineCore
import PipelineHost
import Testing

@Suite struct EmptyNeverErrorTests {
  private func run(_ signal: String) throws -> VirtualPipeline {
    let pipeline = try VirtualPipeline(
      """
      sources: { nothing: { empty: {} }, silence: { never: {} }, broken: { error: it is broken } }
      signals: { s: \(signal) }
      sinks: { out: { from: s, probe: {} } }
      """)
    pipeline.run(until: .seconds(60))
    return pipeline
  }

  @Test func emptyCompletesAtOnce() throws {
    let pipeline = try run("{ from: nothing }")
    #expect(pipeline.out == ["0s |"])
    #expect(pipeline.outcome == .completed)
  }

  @Test func neverDoesNothing() throws {
    let pipeline = try run("{ from: silence }")
    #expect(pipeline.out == [])
    #expect(pipeline.outcome == nil)
    #expect(pipeline.executor.pendingTimers == 0)
    pipeline.drain()
    #expect(pipeline.out == ["1m |"])
    #expect(pipeline.outcome == .completed)
  }

  @Test func errorFailsAtOnce() throws {
    let pipeline = try run("{ from: broken }")
    #expect(pipeline.out == ["0s #it is broken"])
    #expect(pipeline.failure?.kind == .user)
    #expect(pipeline.failure?.message == "it is broken")
  }

  @Test func theyCombine() throws {
    #expect(try run("{ concat: [nothing, { values: [1] }, nothing] }").out == ["0s 1", "0s |"])
    #expect(try run("{ race: [silence, { values: [1] }] }").out == ["0s 1", "0s |"])
    #expect(try run("{ merge: [nothing, nothing] }").out == ["0s |"])
    #expect(
      try run("{ from: broken, chain: [ { catch: { value: error.message } } ] }").out == [
        "0s \"it is broken\"", "0s |",
      ])
    #expect(try run("{ from: broken, chain: [ { retry: 3 } ] }").out == ["0s #it is broken"])
    #expect(
      try run("{ from: silence, chain: [ { timeout: 2s }, { catch: { values: [late] } } ] }").out == [
        "2s \"late\"", "2s |",
      ])
    #expect(try run("{ from: nothing, chain: [ collect ] }").out == ["0s []", "0s |"])
  }

  /// In an inner signal the message can use the event.
  @Test func theMessageIsATemplate() throws {
    let inner = try run(
      "{ from: { values: [{ id: 7 }] }, chain: [ { flattenMap: { signal: { error: 'no user {{ outer.id }}' } } } ] }")
    #expect(inner.out == ["0s #no user 7"])
    let failing = try run(
      "{ from: { values: [{ id: seven }] }, chain: [ { flattenMap: { signal: { error: 'no user {{ int(outer.id) }}' } } } ] }"
    )
    #expect(failing.failure?.kind == .expression)
  }

  @Test func errorsAreReported() {
    #expect(
      PipelineText.complaints("sources: { a: { error: {} } }\nsinks: { out: { from: a, discard: {} } }").count == 1)
    #expect(
      PipelineText.complaints("sources: { a: { empty: 3 } }\nsinks: { out: { from: a, discard: {} } }").count == 1)
  }
}
