import PipelineCore
import PipelineHost
import Testing

/// The output of a command when the pipeline is stopped.
@Suite struct StoppedExecutionTests {
  private let stuck = """
    sources: { clicks: { values: [go] } }
    signals: { results: { from: clicks, chain: [ { execute: work } ] } }
    commands: { work: { run: RUN } }
    sinks:
      state: { from: work.executing, probe: {} }
      free: { from: work.enabled, probe: {} }
      out: { from: results, probe: {} }
      wrong: { from: work.errors, chain: [ { map: event.error } ], probe: {} }
    """

  /// A stuck command does not report success because the pipeline is stopped.
  @Test(arguments: [
    "{ never: {} }", "{ interval: 1h }", "{ from: { interval: 1h }, chain: [ { delay: 1s } ] }",
    "{ from: { values: [1] }, chain: [ { flattenMap: { signal: { never: {} } } } ] }",
  ])
  func stoppingAnExecutionIsNoSuccess(_ work: String) throws {
    let pipeline = try VirtualPipeline(stuck.replacing("RUN", with: work))
    pipeline.run(until: .seconds(10))
    #expect(pipeline.probe("state").events == ["false", "true"])
    pipeline.drain()
    pipeline.run(until: .seconds(20))
    #expect(pipeline.probe("state").events == ["false", "true"])
    #expect(pipeline.probe("free").events == ["true", "false"])
    #expect(
      pipeline.probe("wrong").events == [
        "\"the execution was cut off: the pipeline stopped before it ended\""
      ])
    #expect(pipeline.outcome == .completed)
  }

  /// A command that is waited for and ends on its own reports success.
  @Test func anExecutionThatEndsIsDone() throws {
    let pipeline = try VirtualPipeline(
      stuck.replacing("RUN", with: "{ from: { values: [1] }, chain: [ { delay: 3s } ] }"))
    pipeline.run(until: .seconds(1))
    pipeline.drain()
    pipeline.run(until: .seconds(20))
    #expect(pipeline.probe("state").timeline == ["0s false", "0s true", "3s false", "3s |"])
    #expect(pipeline.probe("wrong").events == [])
    #expect(pipeline.out == ["3s 1", "3s |"])
    #expect(pipeline.outcome == .completed)
  }

  /// An outstanding request is waited for as long as its own timeout; then it is aborted, which is not a success.
  @Test(arguments: [("stopTimeout: 3s", "13s"), ("timeout: 60s", "20s"), ("stopTimeout: 0s", "10s")])
  func aRequestIsWaitedForNotForEver(_ parameter: String, _ end: String) throws {
    let pipeline = try VirtualPipeline(
      stuck.replacing("RUN", with: "{ from: { http: { url: 'http://127.0.0.1:1/', \(parameter) } } }"))
    pipeline.run(until: .seconds(10))
    pipeline.drain()
    pipeline.run(until: .seconds(30))
    #expect(pipeline.probe("state").events == ["false", "true"])
    #expect(
      pipeline.probe("wrong").timeline.first
        == "\(end) \"the execution was cut off: the pipeline stopped before it ended\"")
    #expect(pipeline.http.exchanges.first?.isCancelled == true)
    #expect(pipeline.log.contains { $0.contains("a request was cancelled") })
    #expect(pipeline.outcome == .completed)
  }

  /// An answer within that time counts.
  @Test func anAnswerInTimeCounts() throws {
    let pipeline = try VirtualPipeline(
      stuck.replacing("RUN", with: "{ from: { http: { url: 'http://127.0.0.1:1/', stopTimeout: 3s } } }"))
    pipeline.run(until: .seconds(10))
    pipeline.drain()
    pipeline.run(until: .seconds(12))
    pipeline.http.open.first?.answer(200, "7")
    pipeline.run(until: .seconds(30))
    #expect(pipeline.probe("state").timeline == ["0s false", "0s true", "12s false", "12s |"])
    #expect(pipeline.probe("wrong").events == [])
    #expect(pipeline.out == ["12s 7", "12s |"])
  }
}
