import PipelineCore
import PipelineHost
import PipelineTesting
import Sources_
import Testing

/// Sources that send by time wait, like every other source, while a sink accepts no more events.
@Suite struct HeldSourcesTests {
  /// A sink that pauses the input with its first event, until a test resumes it.
  private struct FullSink: SinkComponent {
    static let spec = ComponentSpec<FullSink>("full", summary: "Is full.")
    final class Taken {
      var events = 0
      var node: RunningSink?
      var first: Instant?
    }
    nonisolated(unsafe) let taken = Taken()
    func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(taken, nodeContext) }

    final class Node: RunningSink {
      private let taken: Taken
      init(_ taken: Taken, _ nodeContext: NodeContext) {
        self.taken = taken
        super.init(nodeContext)
        taken.node = self
      }
      override func receive(_ event: Event) {
        if taken.events == 0 {
          taken.first = executor.now
          pauseInput()
        }
        taken.events += 1
        delivered()
      }
    }
  }

  /// A pipeline whose signal `s` feeds the sink `out`.
  struct Case: CustomTestStringConvertible {
    var name: String
    var signal: String
    var testDescription: String { name }
  }

  /// The sources whose events are sent by time, from the table of all sources.
  static let cases = SourceWorld.names.flatMap { name -> [Case] in
    guard case .byTime(let signals) = SourceWorld().entry(name)?.held else { return [] }
    return signals.map { Case(name: "\(name): \($0.name)", signal: $0.signal) }
  }

  @Test(arguments: cases)
  func everySourcePauses(_ one: Case) throws {
    let sink = FullSink()
    let pipeline = try VirtualPipeline("signals: { s: \(one.signal) }\nsinks: { out: { from: s, discard: {} } }")
    pipeline.execution.replacements.sinks = { _ in sink }
    pipeline.http.script = { _, _ in .success(HTTPResponse(status: 200, headers: [], body: Array("[1]".utf8))) }
    pipeline.run(until: .seconds(3600))
    #expect(pipeline.executor.isInputPaused)
    let taken = sink.taken.events
    // The rest of the turn in which the sink became full, and events already on their way.
    #expect(taken >= 1 && taken <= 1100, "\(taken)")
    pipeline.run(until: .seconds(3 * 3600))
    #expect(sink.taken.events <= taken + 1, "\(sink.taken.events) after \(taken)")
    // It continues when there is room.
    let after = sink.taken.events
    pipeline.inTurn { _ in sink.taken.node?.resumeInput() }
    pipeline.time.run(pipeline.executor, until: Instant(nanoseconds: 4 * 3_600_000_000_000), turnLimit: 3000)
    #expect(sink.taken.events > after)
    #expect(!pipeline.executor.isInputPaused)
  }

  /// While the source does not read, the server's silence does not count: its time limit starts when reading resumes.
  @Test func aFeedThatIsNotReadIsNotSilent() throws {
    let sink = FullSink()
    let pipeline = try VirtualPipeline(
      """
      sources:
        feed: { sse: { url: 'http://h.example/feed', decode: text, idleTimeout: 20s, reconnect: 3s } }
        ticks: { interval: 1s }
      sinks: { out: { from: feed, probe: {} }, full: { from: ticks, discard: {} } }
      """, random: .max)
    let probe = pipeline.execution.replacements.sinks
    pipeline.execution.replacements.sinks = { $0 == "full" ? sink : probe?($0) }
    pipeline.http.script = { _, _ in nil }
    pipeline.run(until: .seconds(3600))
    #expect(pipeline.executor.isInputPaused && pipeline.http.exchanges.count == 1)
    pipeline.inTurn { _ in sink.taken.node?.resumeInput() }
    pipeline.run(until: .seconds(3600 + 30))
    #expect(pipeline.http.times.map { $0.nanoseconds / 1_000_000_000 } == [0, 3600 + 23])
  }

  /// An interval sends one tick for all that it skipped, with their number.
  @Test func heldTicksAreMissed() throws {
    let sink = FullSink()
    let pipeline = try VirtualPipeline(
      """
      sources: { ticks: { interval: 1s } }
      sinks: { out: { from: ticks, chain: [ { map: "[event.tick, event.missed]" } ], probe: {} }, full: { from: ticks, discard: {} } }
      """)
    let probe = pipeline.execution.replacements.sinks
    pipeline.execution.replacements.sinks = { $0 == "full" ? sink : probe?($0) }
    pipeline.run(until: .milliseconds(10_500))
    #expect(pipeline.out.count == 1)
    pipeline.inTurn { _ in sink.taken.node?.resumeInput() }
    pipeline.run(until: .milliseconds(12_500))
    #expect(pipeline.out == ["1s [1,0]", "10s500ms [2,8]", "11s [3,0]", "12s [4,0]"])
  }

  /// A stop does not wait for a full sink before steps finish: the events that they hold reach the sinks.
  @Test func aStopReleasesWhatStepsHold() throws {
    let sink = FullSink()
    let pipeline = try VirtualPipeline(
      """
      sources: { in: { values: [1, 2, 3] } }
      sinks: { out: { from: in, chain: [ { delay: 1s } ], probe: {} }, full: { from: in, discard: {} } }
      """)
    let probe = pipeline.execution.replacements.sinks
    pipeline.execution.replacements.sinks = { $0 == "full" ? sink : probe?($0) }
    pipeline.run(until: .seconds(10))
    #expect(pipeline.probe().moments.isEmpty)
    pipeline.drain()
    pipeline.run(until: .seconds(20))
    #expect(pipeline.probe().moments.count == 4)
  }

  /// A full queue may wait for events that a named source sends to its inner signals: that source continues, and others
  /// wait.
  @Test func aFullQueueDoesNotHoldWhatEmptiesIt() throws {
    let pipeline = try VirtualPipeline(
      """
      sources: { fast: { interval: 1ms }, slow: { interval: 100ms } }
      signals:
        s: { from: fast, chain: [ { flattenMap: { policy: concat, queueLimit: 4, signal: { from: slow, chain: [ { take: 1 }, { map: outer.tick } ] } } } ] }
      sinks: { out: { from: s, probe: {} } }
      """)
    pipeline.run(until: .seconds(10))
    let count = pipeline.probe().moments.count
    #expect(count >= 95, "\(count)")
    // Of the fast source, only as many as are let through.
    #expect(pipeline.counters.received < 400, "\(pipeline.counters.received)")
  }
}
