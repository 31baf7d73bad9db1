import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// `movedFrom` beside a step.
@Suite struct MovedStepTests {
  private func yaml(_ chain: String, signal: String = "a", more: String = "") -> String {
    """
    name: p
    sources: { s: { scripted: {} } }
    signals: { \(signal): { from: s, chain: [ \(chain) ] }\(more) }
    sinks: { o: { from: \(signal), probe: {} } }
    """
  }

  private let before = "{ scan: { start: 0, next: running + 1 } }"

  @Test(arguments: ["scan", "a/scan", "'a/1 scan'"])
  func keepsTheState(_ name: String) throws {
    for later in [
      yaml("{ name: count, movedFrom: \(name), scan: { start: 0, next: running + 1 } }"),
      yaml("{ map: event }, { name: count, movedFrom: \(name), scan: { start: 0, next: running + 1 } }"),
    ] {
      var options = PipelineRun.Options()
      options.cutAfter = { $0 == 4 }
      options.laterPlan = try PipelineRun.compile(later)
      let source = ScriptedSource(SignalHistory(try Marbles("-1-2-3-4|")).script)
      let run = try PipelineRun(yaml(before), sources: ["s": source], options: options)
      #expect(run.texts["o"] == ["1", "2", "3", "4"], "\(later)")
      #expect(run.refusals.isEmpty)
    }
  }

  /// It may have been in another signal. A second change finds the state under the new name.
  @Test func findsTheStateInAnotherSignal() throws {
    var options = PipelineRun.Options()
    options.cutAfter = { $0 >= 3 }
    options.laterPlan = try PipelineRun.compile(
      yaml("{ movedFrom: a/scan, scan: { start: 0, next: running + 1 } }", signal: "b"))
    let source = ScriptedSource(SignalHistory(try Marbles("-1-2-3-4-5|")).script)
    let run = try PipelineRun(yaml(before), sources: ["s": source], options: options)
    #expect(run.texts["o"] == ["1", "2", "3", "4", "5"])
  }

  @Test(arguments: [
    (
      "{ scan: { start: 0, next: running + 1 } }, { movedFrom: scan, skip: 1 }",
      "a step that the file still has, 'a/scan'"
    ),
    ("{ movedFrom: scan, scan: { start: 0, next: running + 1 } }", "the step itself"),
    (
      "{ name: x, movedFrom: old, skip: 0 }, { name: y, movedFrom: old, skip: 0 }",
      "another step has 'movedFrom: old', too"
    ),
    ("{ name: x, movedFrom: [a], skip: 0 }", "'movedFrom' must be the former name of the step"),
  ])
  func refusesWhatCannotBe(_ chain: String, _ message: String) throws {
    let error = #expect(throws: PipelineRun.CompileFailure.self) { try PipelineRun.compile(yaml(chain)) }
    #expect(error?.description.contains(message) == true, "\(error?.description ?? "")")
  }
}
