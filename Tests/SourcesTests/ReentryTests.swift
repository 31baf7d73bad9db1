import PipelineCore
import PipelineHost
import Testing

/// A step that is re-entered while it sends: an event that it sends fails downstream and comes back through the
/// errors output.
@Suite struct ReentryTests {
  /// Inner signals of fixed values are run without a subscription (`ImmediateSignal`). With a stateful step they are
  /// subscribed to, with the same meaning.
  @Test(arguments: [
    ("merge", ["41", "421", "422", "423", "43", "|"]), ("concat", ["41", "43", "421", "422", "423", "|"]),
    ("latest", ["41", "421", "422", "423", "|"]), ("exhaust", ["41", "43", "|"]),
  ])
  func flattenMapOfImmediateSignals(_ policy: String, _ expected: [String]) throws {
    for keeping in ["", ", { skip: 0 }"] {
      let pipeline = try VirtualPipeline(
        """
        sources: { a: { values: [4] } }
        signals:
          s:
            merge: [ a, { from: s.errors, chain: [ { map: event.event } ] } ]
            chain:
              - flattenMap:
                  policy: \(policy)
                  signal: { from: { values: [1, 2, 3] }, chain: [ { map: outer * 10 + event }\(keeping) ] }
              - map: "event == 42 ? 1 / (event - 42) : event"
        sinks: { out: { from: s, probe: {} } }
        """)
      pipeline.run(until: .seconds(1))
      #expect(pipeline.out == expected.map { "0s \($0)" }, "\(policy)\(keeping)")
      #expect(pipeline.outcome == .completed)
    }
  }

  /// Re-entered on more than one level.
  @Test func severalLevels() throws {
    for keeping in ["", ", { skip: 0 }"] {
      let pipeline = try VirtualPipeline(
        """
        sources: { a: { values: [4] } }
        signals:
          s:
            merge: [ a, { from: s.errors, chain: [ { map: event.event } ] } ]
            chain:
              - flattenMap: { signal: { from: { values: [1, 2] }, chain: [ { map: outer * 10 + event }\(keeping) ] } }
              - map: "event < 1000 && event % 10 == 2 ? event / (event - event) : event"
        sinks: { out: { from: s, probe: {} } }
        """)
      pipeline.run(until: .seconds(1))
      #expect(pipeline.out == ["41", "421", "4221", "4222", "|"].map { "0s \($0)" }, "\(keeping)")
    }
  }
}
