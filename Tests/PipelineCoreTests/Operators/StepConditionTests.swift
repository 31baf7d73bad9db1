import PipelineCore
import PipelineTestSupport
import Testing

/// The conditions of all steps have one meaning: true, false, or failed, to which the error policy applies.
@Suite struct StepConditionTests {
  /// A step whose condition is the event, and what it makes of true, 7, false, true and the end.
  private struct Case: CustomTestStringConvertible {
    var step: String
    /// What the step sends of an event whose condition failed.
    var kept: String
    /// What the step sends without that event.
    var routed: String
    var testDescription: String { step }
  }

  private static let yes = "{\"t\": true}"

  private func run(_ step: String, _ policy: String) throws -> PipelineRun {
    let values: [String: TestValue] = ["t": try MarbleCase.value("true"), "f": try MarbleCase.value("false")]
    return try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      sinks: { out: { from: a, chain: [ { \(step), onError: \(policy) } ], probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles("t-7-f-t-|"), values: values).script)])
  }

  private static let cases = [
    Case(step: "filter: event", kept: "true 7 true", routed: "true true"),
    Case(step: "try: event", kept: "true 7", routed: "true true"),
    Case(step: "takeWhile: event", kept: "true 7", routed: "true"),
    Case(step: "skipWhile: event", kept: "7 false true", routed: "false true"),
    Case(step: "takeUntil: { where: not(event) }", kept: "", routed: ""),
    Case(step: "skipUntil: event", kept: "true 7 false true", routed: "true false true"),
    Case(step: "count: event", kept: "2", routed: "2"),
    Case(step: "any: event", kept: "true", routed: "true"),
    Case(step: "all: event", kept: "false", routed: "false"),
    Case(step: "throttle: { quiet: 50ms, when: event }", kept: "7 false true", routed: "false true"),
    Case(step: "aggregate: count(event)", kept: "2", routed: "2"),
  ]

  @Test func printed() throws {
    for one in Self.cases {
      for policy in ["keep", "route", "drop", "fail"] {
        do {
          let run = try run(one.step, policy)
          print("XX", one.step, policy, run.texts, run.deadLetters, run.outcome as Any)
        } catch { print("XX", one.step, policy, error) }
      }
    }
  }
}
