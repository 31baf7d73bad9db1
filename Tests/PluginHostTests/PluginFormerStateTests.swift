import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import PluginHost

/// State that a plugin's sink saved before such sinks used the common delivery is not lost at the first start of the new
/// version.
@Suite struct PluginFormerStateTests {
  /// Holds all events, and saves them as sinks of plugins did: each with the values of its parameters.
  private struct FormerSink: SinkComponent {
    static let spec = ComponentSpec<FormerSink>("former", summary: "Keeps.", persistence: .position(version: 1))

    func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(nodeContext) }

    private final class Node: RunningSink {
      private var kept: [(event: OwnedEvent, receipt: Receipt)] = []

      override func receive(_ event: Event) {
        let event = OwnedEvent(event)
        kept.append((event, take(1, bytes: event.byteCount)))
      }

      // Behaves as if its plugin did not answer.
      override func finish() {}

      override func save(_ state: inout StateWriter) {
        state.write(each: kept) { state, one in
          state.write(one.event)
          state.write(each: [OwnedValue(.int(1)), OwnedValue(.int(2))])
        }
      }

      override func suspend() {
        for one in kept { one.receipt.acknowledge(1) }
        kept = []
      }
    }
  }

  @Test func waitingEventsAreDelivered() throws {
    let path = try PluginFixtures.program(
      "former", components: #"[{"kind": "sink", "name": "work", "summary": "Works.", "confirmation": "disk"}]"#,
      """
      elif 'event' in f:
          say({"log": "info", "message": "got %d" % f['event']})
          say({"id": f['id']})
      elif 'id' in f: say({"id": f['id']})
      """)
    func pipeline(_ state: [UInt8]?) throws -> VirtualPipeline {
      try VirtualPipeline(
        """
        plugins: ['\(path)']
        sources: { in: { values: { list: [1, 2, 3], every: 1s } } }
        sinks: { out: { from: in, work: {} } }
        """, restoring: state, plugins: PluginFixtures.plugins)
    }
    let first = try pipeline(nil)
    first.execution.replacements.sinks = { _ in FormerSink() }
    first.run(until: .milliseconds(2500))
    let state = try #require(first.suspend())
    let second = try pipeline(state)
    second.run()
    #expect(second.execution.refusals.map(\.message) == [])
    let got = second.log.filter { $0.contains("got ") }.compactMap(\.last)
    #expect(got == ["1", "2", "3"], "\(second.log)")
  }
}
