import PipelineTestSupport
import Testing

@testable import PipelineCore

/// A step that is entered again while it sends: what it sends fails below and comes back by the errors output.
@Suite struct ReentryTests {
  /// Inner signals that are over as soon as they have begun are run without being subscribed. One that keeps
  /// something is not, and must mean the same.
  @Test(arguments: [
    ("merge", "-A(BCDE)-|"), ("concat", "-A(EBCD)-|"), ("latest", "-A(BCD)-|"), ("exhaust", "-A(E)-|"),
  ])
  func flattenMapOfImmediateSignals(_ policy: String, _ expected: String) throws {
    let values: [String: TestValue] = ["A": .int(41), "B": .int(421), "C": .int(422), "D": .int(423), "E": .int(43)]
    let wanted = SignalHistory(try Marbles(expected.replacing("A(", with: "(A")), values: values)
    for keeping in ["", ", { skip: 0 }"] {
      let yaml = """
        sources: { a: { scripted: {} } }
        signals:
          s:
            merge: [ a, { from: s.errors, chain: [ { map: event.event } ] } ]
            chain:
              - flattenMap:
                  policy: \(policy)
                  signal: { from: { values: [1, 2, 3] }, chain: [ { map: outer * 10 + event }\(keeping) ] }
              - map: "event == 42 ? 1 / (event - 42) : event"
        sinks: { out: { from: s, probe: {} } }
        """
      let plan = try PipelineRun.compile(yaml)
      let source = ScriptedSource(SignalHistory(try Marbles("-4-|")).script)
      for restarts in [false, true] {
        var options = PipelineRun.Options()
        options.cutAfter = { _ in restarts }
        let result = PipelineRun(plan, sources: ["a": source], options: options)
        #expect(result.out == wanted, "\(policy)\(keeping): \(result.out)")
        #expect(result.outcome == .completed)
        #expect(!result.isCongested)
      }
    }
  }

  /// Entered again on more than one level.
  @Test func severalLevels() throws {
    for keeping in ["", ", { skip: 0 }"] {
      let yaml = """
        sources: { a: { scripted: {} } }
        signals:
          s:
            merge: [ a, { from: s.errors, chain: [ { map: event.event } ] } ]
            chain:
              - flattenMap: { signal: { from: { values: [1, 2] }, chain: [ { map: outer * 10 + event }\(keeping) ] } }
              - map: "event < 1000 && event % 10 == 2 ? event / (event - event) : event"
        sinks: { out: { from: s, probe: {} } }
        """
      let source = ScriptedSource(SignalHistory(try Marbles("4|")).script)
      let result = try PipelineRun(yaml, sources: ["a": source])
      let events = result.out.entries.map { "\($0.moment)" }
      #expect(events == ["41", "421", "4221", "4222", "the completion"], "\(keeping)")
    }
  }
}
