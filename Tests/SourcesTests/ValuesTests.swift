import PipelineCore
import PipelineHost
import Testing

@Suite struct ValuesTests {
  private func run(_ parameters: String) throws -> VirtualPipeline {
    let pipeline = try VirtualPipeline(
      """
      sources:
        numbers:
          values: \(parameters)
      sinks:
        out: { from: numbers, probe: {} }
      """)
    pipeline.run()
    return pipeline
  }

  @Test func sendsAListAtOnceAndCompletes() throws {
    let pipeline = try run("[1, two, { three: 3 }, [4], null]")
    #expect(pipeline.out == ["0s 1", #"0s "two""#, #"0s {"three":3}"#, "0s [4]", "0s null", "0s |"])
    #expect(pipeline.outcome == .completed)
    #expect(pipeline.counters.received == 5)
    #expect(pipeline.counters.sent == 5)
  }

  @Test func sendsOneValue() throws {
    #expect(try run("7").out == ["0s 7", "0s |"])
    #expect(try run("{ list: { a: 1 } }").out == [#"0s {"a":1}"#, "0s |"])
  }

  @Test func anEmptyListOnlyCompletes() throws {
    #expect(try run("[]").out == ["0s |"])
    #expect(try run("{ list: [], every: 1s }").out == ["0s |"])
  }

  @Test func pacesWithTheFirstAtOnceAndTheEndBehindTheLast() throws {
    let pipeline = try run("{ list: [a, b, c], every: 2s }")
    #expect(pipeline.out == [#"0s "a""#, #"2s "b""#, #"4s "c""#, "4s |"])
    #expect(pipeline.executor.pendingTimers == 0)
  }

  @Test func anEventKnowsItsNumber() throws {
    let pipeline = try VirtualPipeline(
      """
      sources:
        letters: { values: [a, b] }
      signals:
        places:
          from: letters
          chain: [ { map: "[meta.offset, meta.source]" } ]
      sinks:
        out: { from: places, probe: {} }
      """)
    pipeline.run()
    #expect(pipeline.probe().events == [#"[0,"letters"]"#, #"[1,"letters"]"#])
  }

  @Test func drainingEndsAPacedListEarly() throws {
    let pipeline = try VirtualPipeline(
      """
      sources:
        letters: { values: { list: [a, b, c], every: 1s } }
      sinks:
        out: { from: letters, probe: {} }
      """)
    pipeline.run(until: .milliseconds(1500))
    pipeline.drain()
    #expect(pipeline.out == [#"0s "a""#, #"1s "b""#, "1s500ms |"])
    #expect(pipeline.executor.pendingTimers == 0)
  }
}
