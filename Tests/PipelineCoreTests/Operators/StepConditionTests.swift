import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// The condition of a step is true, false or failed, for every step; a value that is not a boolean has failed, and `onError`
/// decides.
@Suite struct StepConditionTests {
  /// A step whose condition is the event itself, and its output for 7, false, true and the end.
  struct Case: CustomTestStringConvertible, Sendable {
    var step: String
    var kept: String
    /// The output without the event whose condition failed.
    var other: String
    var testDescription: String { step }
  }

  static let cases = [
    Case(step: "filter: event", kept: "7 true", other: "true"),
    Case(step: "takeWhile: event", kept: "7", other: ""),
    Case(step: "skipWhile: event", kept: "7 false true", other: "false true"),
    Case(step: "takeUntil: { where: event }", kept: "7 false", other: "false"),
    Case(step: "skipUntil: event", kept: "7 true", other: "true"),
    Case(step: "count: event", kept: "1", other: "1"),
    Case(step: "any: event", kept: "true", other: "true"),
    Case(step: "all: event", kept: "false", other: "false"),
    Case(step: "throttle: { quiet: 50ms, when: event }", kept: "7 false true", other: "false true"),
    Case(step: "aggregate: count(event)", kept: "7 1", other: "1"),
  ]

  private func run(_ step: String, _ policy: String, _ marbles: String = "7-f-t-|") throws -> PipelineRun {
    let values = ["t": try MarbleCase.value("true"), "f": try MarbleCase.value("false")]
    return try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      sinks: { out: { from: a, chain: [ { \(step), onError: \(policy) } ], probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles(marbles), values: values).script)])
  }

  private func text(_ run: PipelineRun) -> String { run.texts["out", default: []].joined(separator: " ") }

  private static let reason = "a value of type int is used where a bool is needed"

  @Test(arguments: cases) func aConditionThatIsNoBooleanHasFailed(_ one: Case) throws {
    let kept = try run(one.step, "keep")
    #expect(text(kept) == one.kept)
    #expect(kept.deadLetters.isEmpty)
    let dropped = try run(one.step, "drop")
    #expect(text(dropped) == one.other)
    #expect(dropped.deadLetters.isEmpty)
    let routed = try run(one.step, "route")
    #expect(text(routed) == one.other)
    #expect(routed.deadLetters.count == 1)
    #expect(routed.deadLetters.allSatisfy { $0.contains("RX503") && $0.contains(Self.reason) }, "\(routed.deadLetters)")
    guard case .failed(let failure) = try run(one.step, "fail").outcome else {
      Issue.record("'onError: fail' has not failed the signal")
      return
    }
    #expect(failure.message.contains(Self.reason))
  }

  /// Every step with a condition is in the list.
  @Test func everyStepWithAConditionIsTried() {
    let names = Catalogue.builtIn.components
      .filter { $0.kind == .operator && $0.parameters.contains { $0.name == "where" || $0.name == "when" } }
      .map(\.name)
    let tried = Set(Self.cases.map { String($0.step.prefix { $0 != ":" }) })
    // `try` also refuses events, and has its own tests; `log` and `do` take names of instants.
    #expect(Set(names).subtracting(tried).subtracting(["try", "log", "do"]).isEmpty, "\(names)")
  }

  /// An event whose condition failed does not replace the held one, unless it is sent.
  @Test func aHeldEventOutlivesAFailedCondition() throws {
    #expect(text(try run("throttle: { quiet: 50ms, when: event }", "route", "t-7-|")) == "true")
    #expect(text(try run("throttle: { quiet: 50ms, when: event }", "keep", "t-7-|")) == "7")
  }
}
