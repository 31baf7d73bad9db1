import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// A step that reads the newest value of another signal reads that of the same event, whatever else reads its inputs.
@Suite struct MeetingSignalsTests {
  private static let steps = [
    ("withLatestFrom: a", ["[10,1]", "[20,2]", "[30,3]"]),
    ("withLatestFrom: { signal: ten, reduce: \"[event, latest]\" }", ["[10,10]", "[20,20]", "[30,30]"]),
    ("gate: { signal: odd, open: true }", ["10", "30"]),
    ("sample: { at: a }", ["10", "20", "30"]),
  ]
  private static let readers = [
    "", "unrelated: { from: ten, probe: {} }, ", "unrelated: { from: a, probe: {} }, ",
    "unrelated: { from: odd, probe: {} }, x: { from: ten, probe: {} }, ",
  ]

  private func yaml(_ step: String, _ before: String, _ after: String, grouped: Bool) -> String {
    let chain = grouped ? "[ { groupBy: { key: \"'k'\", chain: [ { \(step) } ] } } ]" : "[ { \(step) } ]"
    return """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        ten: { from: a, chain: [ { map: event * 10 } ] }
        odd: { from: a, chain: [ { map: event % 2 == 1 } ] }
        s: { from: ten, chain: \(chain) }
      sinks: { \(before)o: { from: s, probe: {} }\(after.isEmpty ? "" : ", \(after.dropLast(2))") }
      """
  }

  @Test(arguments: steps.indices) func otherReadersMakeNoDifference(_ index: Int) throws {
    let (step, expected) = Self.steps[index]
    for grouped in [false, true] {
      for before in Self.readers {
        for after in [""] + (before.isEmpty ? Self.readers.dropFirst() : []) {
          let text = yaml(step, before, after, grouped: grouped)
          for cut in [0, 1, 2, 3] {
            var options = PipelineRun.Options()
            if cut > 0 { options.cutAfter = { $0 % cut == 0 } }
            let source = ScriptedSource(SignalHistory(try Marbles("-1-2-3|")).script)
            let run = try PipelineRun(text, sources: ["a": source], options: options)
            // A group subscribes to the other signal at its first event, and therefore does not receive that event's
            // value.
            let wanted = grouped && !step.hasPrefix("gate") ? Array(expected.dropFirst()) : expected
            #expect(run.texts["o"] == wanted, "\(text)\ncut \(cut)")
            #expect(run.outcome == .completed)
          }
        }
      }
    }
  }

  /// Signals from different sources do not wait for each other.
  @Test func othersComeAtOnce() throws {
    let plan = try PipelineRun.compile(
      """
      name: t
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      signals: { s: { from: a, chain: [ { withLatestFrom: b } ] } }
      sinks: { o: { from: s, probe: {} } }
      """)
    let run = PipelineRun(
      plan,
      sources: [
        "a": ScriptedSource(SignalHistory(try Marbles("-1-2-3|")).script),
        "b": ScriptedSource(SignalHistory(try Marbles("7---8|")).script),
      ])
    #expect(run.texts["o"] == ["[1,7]", "[2,7]", "[3,8]"])
    #expect(run.sinks["o"]?.entries.prefix(3).map(\.at) == [.milliseconds(1), .milliseconds(3), .milliseconds(5)])
  }
}
