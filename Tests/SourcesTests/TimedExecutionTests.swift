import PipelineCore
import PipelineHost
import Testing

/// Commands that a timer executes.
@Suite struct TimedExecutionTests {
  private func pipeline(_ command: String, every span: String = "10ms") throws -> VirtualPipeline {
    try VirtualPipeline(
      """
      sources: { ticks: { interval: \(span) } }
      signals: { results: { from: ticks, chain: [ { execute: work } ] } }
      commands: { work: { run: { from: { values: [done] }, chain: [ { delay: 15ms } ] }\(command) } }
      sinks:
        out: { from: results, probe: {} }
        state: { from: work.executing, probe: {} }
        refused: { from: results.errors, chain: [ { map: event.code } ], probe: {} }
      """)
  }

  @Test func aTimerExecutesIt() throws {
    let pipeline = try pipeline("")
    pipeline.run(until: .milliseconds(65))
    #expect(pipeline.out == ["25ms \"done\"", "45ms \"done\"", "65ms \"done\""])
    #expect(
      pipeline.probe("state").timeline == [
        "0s false", "10ms true", "25ms false", "30ms true", "45ms false", "50ms true", "65ms false",
      ])
    #expect(
      pipeline.probe("refused").timeline == ["20ms \"RX508\"", "40ms \"RX508\"", "60ms \"RX508\""])
    pipeline.drain()
    #expect(pipeline.outcome == .completed)
  }

  @Test func ticksWaitForTheirTurn() throws {
    let pipeline = try pipeline(", whenBusy: queue")
    pipeline.run(until: .milliseconds(56))
    #expect(pipeline.out == ["25ms \"done\"", "40ms \"done\"", "55ms \"done\""])
    #expect(pipeline.probe("refused").events == [])
    // Started and waiting executions complete before the end: five ticks in all.
    pipeline.drain()
    pipeline.run(until: .seconds(1))
    #expect(pipeline.out.suffix(3) == ["70ms \"done\"", "85ms \"done\"", "85ms |"])
    #expect(pipeline.probe("state").timeline == ["0s false", "10ms true", "85ms false", "85ms |"])
    #expect(pipeline.outcome == .completed)
  }

  @Test func anExecutionOfATickIsReplacedByTheNext() throws {
    let pipeline = try pipeline(", whenBusy: latest")
    pipeline.run(until: .milliseconds(50))
    pipeline.drain()
    pipeline.run(until: .seconds(1))
    #expect(pipeline.out == ["65ms \"done\"", "65ms |"])
  }
}
