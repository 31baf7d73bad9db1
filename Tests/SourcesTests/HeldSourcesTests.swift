import PipelineCore
import PipelineHost
import PipelineTesting
import Sources_
import Testing

/// What sends by time waits, as every other source does, while a sink cannot take more.
@Suite struct HeldSourcesTests {
  /// A sink that pauses the input with its first event, until a test says otherwise.
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

  /// A pipeline whose signal `s` comes to the sink `out`.
  struct Case: CustomTestStringConvertible {
    var name: String
    var signal: String
    /// The sources of the catalogue that it uses.
    var sources: [String] = ["interval"]
    var testDescription: String { name }
  }

  static let cases = [
    Case(name: "interval", signal: "{ from: { interval: 1ms } }"),
    Case(name: "interval by a schedule", signal: "{ from: { interval: { cron: '* * * * *' } } }"),
    Case(
      name: "values", signal: "{ from: { values: { list: [1, 2, 3, 4, 5, 6, 7, 8], every: 1s } } }", sources: ["values"]
    ),
    Case(name: "http", signal: "{ from: { http: { url: 'http://h.example/', every: 1s } } }", sources: ["http"]),
    Case(
      name: "http, page after page",
      signal:
        "{ from: { http: { url: 'http://h.example/', every: 1h, immediate: true, pages: { page: offset, from: 0, step: 1, until: 'size(response.body) == 0' } } } }",
      sources: ["http"]),
    Case(
      name: "an inner interval",
      signal: "{ from: { values: [1] }, chain: [ { flattenMap: { signal: { from: { interval: 1ms } } } } ] }",
      sources: ["values", "interval"]),
    Case(
      name: "the newest inner interval",
      signal: "{ from: { values: [1] }, chain: [ { switchToLatest: { from: { interval: 1ms } } } ] }"),
    Case(
      name: "inner polls",
      signal:
        "{ from: { values: [1] }, chain: [ { flattenMap: { signal: { from: { http: { url: 'http://h.example/', every: 1s } } } } } ] }"
    ),
    Case(name: "repeat", signal: "{ from: { values: [1] }, chain: [ repeat ] }"),
    Case(name: "repeat after a pause", signal: "{ from: { values: [1] }, chain: [ { repeat: { delay: 1ms } } ] }"),
    Case(
      name: "retry",
      signal:
        "{ from: { values: [1, 0] }, chain: [ { map: 1 / int(event), onError: fail }, { retry: { count: 1000000 } } ] }"
    ),
    Case(name: "sample", signal: "{ from: { interval: 1s }, chain: [ { sample: 1ms } ] }"),
    Case(
      name: "absence", signal: "{ from: { never: {} }, chain: [ { absence: { after: 1s, repeat: true } } ] }",
      sources: ["never"]),
    Case(name: "empty windows", signal: "{ from: { never: {} }, chain: [ { window: { every: 1s, empty: true } } ] }"),
    Case(name: "delay", signal: "{ from: { interval: 1ms }, chain: [ { delay: 5s } ] }"),
    Case(name: "bufferWithTime", signal: "{ from: { interval: 1ms }, chain: [ { bufferWithTime: 10ms } ] }"),
    Case(
      name: "groups",
      signal:
        "{ from: { interval: 1ms }, chain: [ { groupBy: { key: event.tick % 3, chain: [ { window: 10ms }, { delay: 1ms } ] } } ] }"
    ),
  ]

  /// Sources that threads or peers feed: their batches wait in the executor (``InputQueue``).
  static let fed: Set<String> = [
    "directory", "docker", "exec", "file", "host", "httpServer", "journald", "sqlite", "sse", "statsd", "stdin",
    "syslog",
    "tcp", "udp", "unix", "webSocket",
  ]
  /// Sources that send nothing, or one end.
  static let silent: Set<String> = ["empty", "never", "error"]

  @Test func everySourceIsHere() {
    let here = Set(Self.cases.flatMap(\.sources)).union(Self.fed).union(Self.silent)
    let missing = Catalogue.sources.components.map(\.name).filter { !here.contains($0) }
    #expect(missing == [], "say how a full sink holds them")
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
    // The rest of the turn in which it became full, and of what was on its way.
    #expect(taken >= 1 && taken <= 1100, "\(taken)")
    pipeline.run(until: .seconds(3 * 3600))
    #expect(sink.taken.events <= taken + 1, "\(sink.taken.events) after \(taken)")
    // It goes on when there is room.
    let after = sink.taken.events
    pipeline.inTurn { _ in sink.taken.node?.resumeInput() }
    pipeline.time.run(pipeline.executor, until: Instant(nanoseconds: 4 * 3_600_000_000_000), turnLimit: 3000)
    #expect(sink.taken.events > after)
    #expect(!pipeline.executor.isInputPaused)
  }

  /// While nothing is read, a server cannot be heard: its time for the next word begins when reading goes on.
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

  /// An interval sends one tick for all that it has left out, and says how many these are.
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

  /// A stop does not wait for a full sink to let the steps finish: what they hold reaches the sinks.
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

  /// A queue that is full may wait for what a named source sends to its inner signals: that one goes on, and others wait.
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
    // Of the fast source, only as many as go on.
    #expect(pipeline.counters.received < 400, "\(pipeline.counters.received)")
  }
}
