import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// An input has time values where its source does; a file writes them as texts.
@Suite struct TypedInputTests {
  private func text(
    _ tests: String, filter: String = "timestamp(event.__REALTIME_TIMESTAMP) > timestamp('2026-01-01T00:00:00Z')"
  )
    -> String
  {
    """
    name: t
    sources: { journal: { journald: { since: end } } }
    signals: { late: { from: journal, chain: [ { filter: "\(filter)" } ] } }
    sinks: { out: { from: late, discard: {} } }
    tests:
      - name: one
    \(tests)
    """
  }

  private func results(_ text: String) throws -> [TestResult] {
    try TestSuite(SourceText(name: "t.yaml", text: text)).run()
  }

  private func complaints(_ text: String) -> [String] {
    var diagnostics = Diagnostics()
    _ = TestSuite.read(SourceText(name: "t.yaml", text: text), &diagnostics)
    return diagnostics.all.map(\.line)
  }

  @Test(arguments: [
    "inputs: { journal: [ { next: { MESSAGE: a, __REALTIME_TIMESTAMP: 2026-11-27T11:00:00Z } } ] }",
    "inputs: { journal: { marbles: a, values: { a: { MESSAGE: a, __REALTIME_TIMESTAMP: 2026-11-27T11:00:00Z } } } }",
  ]) func aTextIsATimestamp(_ inputs: String) throws {
    let results = try results(
      text(
        "    \(inputs)\n    expect: { late: { events: [ { next: { MESSAGE: a, __REALTIME_TIMESTAMP: 2026-11-27T11:00:00Z } } ], more: true } }"
      ))
    #expect(results.count == 1)
    for result in results { #expect(result.passed, "\(result.failures.map(\.diagnostic.line))") }
  }

  @Test func whatIsNoTimestampIsAnErrorAtItsPlace() {
    let found = complaints(
      text(
        "    inputs:\n      journal:\n      - next: { MESSAGE: a, __REALTIME_TIMESTAMP: { timestamp: 2026-11-27T11:00:00Z } }\n    expect: { late: [] }"
      ))
    #expect(
      found == [
        "t.yaml:9:9: error[RX604]: '__REALTIME_TIMESTAMP' of 'journal' is a timestamp, not {\"timestamp\":\"2026-11-27T11:00:00Z\"}; write its text, such as 2026-01-31T12:00:00Z"
      ])
  }

  @Test func aConditionThatFailsIsSaid() throws {
    let results = try results(
      text(
        "    inputs: { journal: [ { next: { MESSAGE: a } } ] }\n    expect: { late: [ { next: { MESSAGE: a } } ] }",
        filter: "int(event.MESSAGE) > 0"))
    let failure = try #require(results.first?.failures.last)
    #expect(
      failure.diagnostic.notes.contains { $0.message.contains("could not be decided") }, "\(failure.diagnostic.notes)")
  }

  @Test func typesOfOneNameAreToldApart() {
    let found = FrontEnd(.builtIn).compile(
      "sources: { s: { stdin: { decode: json } } }\nsinks: { o: { from: s, chain: [ { filter: \"{'a': 1} == {'a': 'x'}\" } ], stdout: {} } }"
    ).diagnostics
    #expect(
      !found.contains { $0.message.contains("a map(string, dyn) never equals a map(string, dyn)") },
      "\(found.map(\.line))")
  }
}
