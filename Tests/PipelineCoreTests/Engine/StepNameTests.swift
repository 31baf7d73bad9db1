import Foundation
import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// A step has the same name wherever it is shown: in an event of an errors output, a dead letter, the log, metrics and
/// views.
@Suite struct StepNameTests {
  private let yaml = """
    name: t
    sources: { a: { scripted: {} } }
    signals:
      books:
        from: a
        chain:
          - map: { n: event }
          - filter: event.n > 0
          - groupBy:
              key: event.n % 2
              chain: [ { map: event.n }, { filter: event > 0 }, { groupBy: { key: event, chain: [ { map: 6 / (event - 1) } ] } } ]
          - flattenMap: { signal: { values: [1], chain: [ { filter: outer > 0 }, { map: 6 / (outer + 3) } ] } }
    sinks:
      out: { from: books, chain: [ { map: 10 / (event - 2) } ], probe: {} }
      READ
    """

  private func run(_ sink: String) throws -> PipelineRun {
    try PipelineRun(
      yaml.replacing("READ", with: sink),
      sources: ["a": ScriptedSource(SignalHistory(try Marbles("1-2-3|")).script)])
  }

  @Test func namesAreThoseOfViewsAndDifferent() throws {
    let plan = try PipelineRun.compile(yaml.replacing("READ", with: ""))
    let names = plan.steps.indices.map { plan.steps[$0].label }
    #expect(names == plan.steps.indices.map { plan.id(of: StepID($0)) })
    #expect(Set(names).count == names.count, "\(names)")
    for name in ["books/filter", "books/groupBy/filter", "books/groupBy/groupBy/map", "out/map", "out/probe"] {
      #expect(names.contains(name), "\(names)")
    }
  }

  @Test func anErrorsOutputNamesTheInnerStep() throws {
    let run = try run("lost: { from: books.errors, probe: {} }")
    let letter = try #require(run.texts["lost"]?.first)
    #expect(letter.contains(#""step":"books/groupBy/groupBy/map""#), "\(letter)")
    #expect(letter.contains(#""at":"test.yaml:11:"#), "\(letter)")
    #expect(run.deadLetters.isEmpty)
  }

  @Test func aDeadLetterNamesIt() throws {
    let run = try run("")
    let letter = try #require(run.deadLetters.first)
    #expect("\(letter)".contains("books/groupBy/groupBy/map"), "\(letter)")
  }
}
