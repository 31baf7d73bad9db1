import PipelineCore
import PipelineHost
import Testing

/// A pipeline that fails and restarts continues with the state of its plugins' steps, under a new name, too (RX507).
@Suite struct PluginFailureTests {
  enum Way: CaseIterable { case native, program }

  /// The path of a plugin, and a step that adds up.
  private func plugin(_ way: Way) throws -> (path: String, keyword: String, step: String) {
    switch way {
    case .native:
      return (try PluginFixtures.example.get(), "exampleRunningSum", "exampleRunningSum: { field: a, as: sum }")
    case .program:
      let components = #"""
        [{"kind": "operator", "name": "addUp", "summary": "Adds up.", "state": {"version": 1}}]
        """#
      let path = try PluginFixtures.program(
        "addup", components: components,
        """
        elif 'event' in f:
            state = (state or 0) + f['event']['a']
            say({"id": f['id'], "events": [{"a": f['event']['a'], "sum": state}]})
        elif 'save' in f: say({"id": f['id'], "state": state})
        elif 'id' in f: say({"id": f['id']})
        """)
      return (path, "addUp", "addUp: {}")
    }
  }

  @Test(arguments: Way.allCases, [false, true]) func theStateIsKept(_ way: Way, _ isRenamed: Bool) throws {
    let (path, keyword, step) = try plugin(way)
    func pipeline(_ step: String, _ state: [UInt8]?) throws -> VirtualPipeline {
      let pipeline = try VirtualPipeline(
        """
        plugins: ['\(path)']
        sources:
          in: { values: { list: [{ a: 1 }, { a: 2 }, { a: 3 }, { a: 4 }, { a: 5 }, { a: 6 }], every: 1s } }
          divisors: { values: { list: [1, 0, 1, 0, 1, 1], every: 1500ms } }
        signals: { failing: { from: divisors, chain: [ { map: 1 / event, onError: fail } ] } }
        sinks:
          out: { from: in, chain: [ { \(step) } ], probe: {} }
          other: { from: failing, discard: {} }
        """, restoring: state, plugins: PluginFixtures.plugins)
      pipeline.execution.settings.keepsStateOnFailure = true
      return pipeline
    }
    var (state, sums) = ([UInt8]?.none, [String]())
    var ends: [String] = []
    for round in 0..<4 {
      let now =
        isRenamed && round > 0
        ? "name: sum\(round), movedFrom: \(round == 1 ? keyword : "sum\(round - 1)"), \(step)" : step
      let pipeline = try pipeline(now, state)
      pipeline.run(until: .seconds(20))
      #expect(pipeline.execution.refusals.map(\.message) == [], "round \(round)")
      sums += pipeline.probe().events
      ends.append("\(pipeline.out) \(pipeline.outcome.map { "\($0)" } ?? "goes on")")
      guard pipeline.failure != nil else { break }
      state = try #require(pipeline.execution.savedState)
    }
    var sum = 0
    #expect(
      sums
        == (1...6).map {
          sum += $0
          return #"{"a":\#($0),"sum":\#(sum)}"#
        })
  }
}
