import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore

/// Which sources have a ``ParallelStage``, and its content.
@Suite struct PlanStageTests {
  private func stages(_ yaml: String) throws -> [String] {
    let checked = CheckingTests.check(Array(yaml.utf8))
    let plan = try #require(checked.plan, "\(checked.diagnostics)")
    return plan.stages.map { source, stage in
      let branches = stage.branches.map { branch in
        let name = plan.sinks.first { $0.step == branch.sink }?.name ?? "?"
        let steps = branch.run.parts.flatMap(\.steps).map { plan.steps[$0.id.number].keyword }
        return ([name] + steps).joined(separator: " < ")
      }
      return "\(plan.steps[source.number].owner): \(branches.sorted().joined(separator: "; "))"
    }.sorted()
  }

  @Test func waysThroughPureSteps() throws {
    #expect(
      try stages(
        """
        sources: { a: { file: { path: x, decode: json } } }
        signals: { some: { from: a, chain: [ { filter: event.n > 1 } ] } }
        sinks:
          one: { from: some, chain: [ { map: event.n } ], file: y }
          two: { from: a, stdout: text }
          three: { from: some, file: z }
          errors: { from: a.errors, file: e }
        """) == ["a: one < filter < map; three < filter; two"])
    #expect(
      try stages("sinks: { out: { from: { file: x }, chain: [ { filter: \"event != ''\" } ], file: y } }")
        == ["out: out < filter"])
  }

  /// As soon as anything must see the events one by one, there is no stage.
  @Test(arguments: [
    "{ from: a, chain: [ { take: 5 } ], file: y }", "{ from: a, chain: [ { map: now } ], file: y }",
    "{ from: a, chain: [ { map: meta.offset } ], file: y }", "{ from: a, discard: {} }",
    "{ from: a, file: { path: y, mode: replace } }", "{ from: a, file: { path: y, encode: csv } }",
    "{ from: { merge: [a, b] }, file: y }", "{ from: b, chain: [ { flattenMap: { signal: a } } ], file: y }",
    "{ from: late, file: y }",
  ]) func oneOtherReader(_ sink: String) throws {
    let found = try stages(
      """
      sources: { a: { file: { path: x, decode: json } }, b: { values: [1] } }
      signals: { late: { from: a, share: { replay: 1 } } }
      sinks:
        good: { from: a, file: good }
        other: \(sink)
      """)
    #expect(found == [])
  }

  /// The plan names the first condition if it is decided by comparing slots; others are left to their step.
  @Test func leadingConditions() throws {
    func leading(_ chain: String) throws -> Bool {
      let text = """
        sources: { a: { file: { path: x, decode: json } } }
        sinks: { out: { from: a, chain: [ \(chain) ], file: y } }
        """
      let plan = try #require(CheckingTests.check(Array(text.utf8)).plan)
      let run = try #require(plan.stages.first?.value.branches.first?.run)
      // A standalone fused run has the same.
      #expect((plan.sinks[0].input.run?.leadingCondition != nil) == (run.leadingCondition != nil))
      return run.leadingCondition != nil
    }
    for chain in [
      "{ filter: event.n > 1 }", "{ filter: \"event.s == 'GET' && !(event.n < 5)\" }",
      "{ filter: event.n > 1 }, { map: event.n }",
    ] {
      #expect(try leading(chain), "\(chain)")
    }
    for chain in [
      "{ filter: \"event.s.startsWith('a')\" }", "{ filter: \"event.n > 1 || event.s.startsWith('a')\" }",
      "{ filter: true }", "{ map: event.n }", "{ map: event.n }, { filter: event > 1 }",
    ] {
      #expect(try !leading(chain), "\(chain)")
    }
  }

  @Test func explanationsSayIt() throws {
    func explained(_ sinks: String) throws -> String {
      let checked = CheckingTests.check(
        Array("sources: { a: { file: { path: x, decode: json } } }\nsinks: { \(sinks) }".utf8))
      return PlanExplanation.text(try #require(checked.plan))
    }
    let ahead = "the same threads do everything up to the encoding for"
    let passing = "blocks of JSON objects and arrays, one a line, pass unchanged"
    let two = try explained("y: { from: a, file: y }, z: { from: a, chain: [ { filter: event.n > 1 } ], file: z }")
    #expect(two.contains("\(ahead) y and z, if that is faster\n") && !two.contains(passing))
    let one = try explained("y: { from: a, file: y }")
    #expect(one.contains("\(ahead) y, if that is faster\n") && one.contains(passing))
    #expect(try !explained("y: { from: a, chain: [ { take: 1 } ], file: y }").contains(ahead))
  }
}
