import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// `movedFrom` of a step, and of a named part of the file.
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

  /// The step may have been in another signal. A second change finds the state under the new name.
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

  /// The name of a signal or a sink, with all of their steps.
  @Test(arguments: [
    "signals: { b: { from: s, movedFrom: a, chain: [ { scan: { start: 0, next: running + 1 } } ] } }\nsinks: { o: { from: b, probe: {} } }",
    "signals: { b: { from: s, movedFrom: a, chain: [ { name: count, movedFrom: scan, scan: { start: 0, next: running + 1 } } ] } }\nsinks: { o: { from: b, probe: {} } }",
  ])
  func partsGoOnUnderAnotherName(_ later: String) throws {
    var options = PipelineRun.Options()
    // Later cuts find the state under the new name.
    options.cutAfter = { $0 >= 3 }
    options.laterPlan = try PipelineRun.compile("name: p\nsources: { s: { scripted: {} } }\n" + later)
    let source = ScriptedSource(SignalHistory(try Marbles("-1-2-3-4-5|")).script)
    let run = try PipelineRun(yaml(before), sources: ["s": source], options: options)
    #expect(run.texts["o"] == ["1", "2", "3", "4", "5"])
    #expect(run.refusals.isEmpty, "\(run.refusals)")
  }

  /// No state has the former name, or the new part is of another kind.
  @Test(arguments: [
    (
      "movedFrom: c, chain: [ { scan: { start: 0, next: running + 1 } } ]",
      "the saved state has no signal 'c', so 'b' starts empty"
    ),
    ("movedFrom: a, chain: [ { skip: 1 } ]", "'b' has no step like 'a/scan' of 'a'"),
  ])
  func saysWhatDoesNotFit(_ signal: String, _ message: String) throws {
    var options = PipelineRun.Options()
    options.cutAfter = { $0 == 3 }
    options.laterPlan = try PipelineRun.compile(
      "name: p\nsources: { s: { scripted: {} } }\nsignals: { b: { from: s, \(signal) } }\nsinks: { o: { from: b, probe: {} } }"
    )
    let source = ScriptedSource(SignalHistory(try Marbles("-1-2-3-4-5|")).script)
    let run = try PipelineRun(yaml(before), sources: ["s": source], options: options)
    let refusal = try #require(run.refusals.first { $0.message.contains(message) }, "\(run.refusals)")
    #expect(refusal.location != nil)
  }

  @Test(arguments: [
    ("sources: { s: { scripted: {}, movedFrom: t }, t: { scripted: {} } }", "a source that the file still has, 't'"),
    ("sources: { s: { scripted: {}, movedFrom: s } }", "the source itself"),
    ("sources: { s: { scripted: {}, movedFrom: o } }", "a sink that the file still has, 'o'"),
    ("sources: { s: { scripted: {}, movedFrom: [t] } }", "must be the former name of the source"),
    (
      "sources: { s: { scripted: {}, movedFrom: s/scripted } }",
      "must be the former name of the source, not 's/scripted'"
    ),
    (
      "sources: { s: { scripted: {}, movedFrom: r } }\nsignals: { a: { from: s, movedFrom: r } }",
      "the source 's' has 'movedFrom: r', too"
    ),
  ])
  func refusesFormerNamesThatCannotBe(_ parts: String, _ message: String) throws {
    let error = #expect(throws: PipelineRun.CompileFailure.self) {
      try PipelineRun.compile("name: p\n\(parts)\nsinks: { o: { from: s, probe: {} } }")
    }
    #expect(error?.description.contains(message) == true, "\(error?.description ?? "")")
  }
}
