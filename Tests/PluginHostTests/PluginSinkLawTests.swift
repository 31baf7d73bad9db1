import Foundation
import PipelineHost
import PipelineTestSupport
import PluginHost
import Testing

@testable import PipelineCore
@testable import Transport

/// Sinks of plugins, in a program and in a library, obey the laws of the kit: they have no queue of their own. The pipeline is on virtual
/// time.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PluginSinkLawTests {
  enum Kind: CaseIterable { case program, library }

  /// A plugin with a sink; `isWorking`: it accepts events, otherwise it requests a pause each time.
  private func plugin(_ kind: Kind, isWorking: Bool) throws -> (path: String, sink: String) {
    if kind == .library { return (try PluginFixtures.probe(), "probeSink: \(isWorking ? "pass" : "never")") }
    let body =
      isWorking
      ? "elif 'event' in f or 'complete' in f: say({\"id\": f['id']})"
      : """
      elif 'event' in f:
          if f.get('again') or not globals().get('waiting'): say({"id": f['id'], "retry": "not now"})
          waiting = True
      elif 'complete' in f: say({"id": f['id']})
      """
    let path = try PluginFixtures.program(
      isWorking ? "law-takes" : "law-waits",
      components: #"[{"kind": "sink", "name": "work", "summary": "Works.", "confirmation": "disk"}]"#, body)
    return (path, "work: {}")
  }

  private func pipeline(
    _ kind: Kind, isWorking: Bool, input: String, restoring state: [UInt8]? = nil, store: MemoryStore? = nil
  ) throws -> VirtualPipeline {
    let (path, sink) = try plugin(kind, isWorking: isWorking)
    return try VirtualPipeline(
      """
      name: t
      plugins: { p: '\(path)' }
      sources: { in: { \(input) } }
      sinks: { out: { from: in, \(sink) } }
      """, restoring: state, delivery: store.map { DeliveryOptions(store: $0, isDurable: true) },
      plugins: PluginFixtures.plugins)
  }

  private static let five = "values: { list: [1, 2, 3, 4, 5], every: 1ms }"

  @Test(arguments: Kind.allCases) func standsOnTheKit(_ kind: Kind) throws {
    let pipeline = try pipeline(kind, isWorking: true, input: "never: {}")
    pipeline.settle()
    #expect(pipeline.execution.sinks.first?.node is DeliverySink)
  }

  /// Aborted while the plugin accepts nothing, all events that the sink has taken count as lost.
  @Test(arguments: Kind.allCases) func whatIsLeftIsCounted(_ kind: Kind) throws {
    let pipeline = try pipeline(kind, isWorking: false, input: Self.five)
    pipeline.run(until: .milliseconds(100))
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.settle()
    let counters = pipeline.counters
    #expect(counters.received == 5 && counters.sent == 0)
    #expect(counters.rejected + counters.undelivered == 5, "\(counters) \(pipeline.log)")
  }

  /// With a queue on disk, a plugin that accepts nothing does not delay a stop, and the next start delivers everything.
  @Test(arguments: Kind.allCases) func aDiskQueueOutlivesAStop(_ kind: Kind) throws {
    let store = MemoryStore(isImmediate: true)
    let first = try pipeline(kind, isWorking: false, input: "interval: 1ms", store: store)
    // Five events, and more would follow.
    first.run(until: TimeSpan(nanoseconds: 5_500_000))
    first.inTurn { $0.execution.suspend() }
    first.run(until: .seconds(20))
    #expect(first.outcome == .completed, "\(first.log)")
    #expect(store.disk.rows.values.reduce(0) { $0 + $1.events } == 5)
    let second = try pipeline(
      kind, isWorking: true, input: "never: {}", restoring: store.disk.state, store: store)
    second.run(until: .seconds(30))
    #expect(store.disk.rows.isEmpty && second.counters.sent == 5, "\(second.counters) \(second.log)")
  }
}
