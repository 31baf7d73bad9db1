import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// The rules by which a user's test passes.
@Suite struct TestRunnerTests {
  /// The failures of the tests in `text`, one sentence each.
  private func failures(_ text: String, turnLimit: Int? = nil) throws -> [String] {
    let suite = try TestSuite(SourceText(name: "t.yaml", text: text))
    return suite.run(turnLimit: turnLimit).flatMap { $0.failures.map(\.diagnostic.message) }
  }

  private static let pipeline = """
    name: t
    sources: { a: { stdin: {} }, b: { stdin: {} } }
    signals:
      doubled: { from: a, chain: [ { map: event * 2 } ] }
      second: { from: b, chain: [ { map: event } ] }
      both: { concat: [doubled, second] }
    sinks: { out: { from: both, stdout: { encode: json } } }
    tests:
    """

  private func test(_ body: String) throws -> [String] {
    try failures(Self.pipeline + "\n  - name: x\n    " + body.replacing("\n", with: "\n    "))
  }

  @Test func numbersAreEqualWhateverTheirKind() throws {
    #expect(
      try test("inputs: { a: { marbles: a, values: { a: 1.5 } } }\nexpect: { doubled: [ { next: 3 } ] }") == [])
    #expect(
      try test(
        """
        inputs: { a: '|', b: { marbles: 'a|', values: { a: { x: 1.0, y: [2] } } } }
        expect: { second: [ { next: { y: [2.0], x: 1 } }, { complete: true } ] }
        """) == [])
    #expect(try !test("inputs: { a: '1' }\nexpect: { doubled: [ { next: '2' } ] }").isEmpty)
  }

  @Test func aTestedSignalIsOnlyWatched() throws {
    // `second` runs only once `a` has ended, as without the test: its times start there.
    #expect(
      try test("inputs: { a: '1--|', b: '-3|' }\nexpect: { second: '----3|', out: '2---3|' }") == [])
  }

  @Test func errorsOutputsCanBeExpected() throws {
    #expect(
      try test(
        """
        inputs: { a: { marbles: 'x1', values: { x: no number } } }
        expect:
          doubled: '-2'
          doubled.errors: { events: [], more: true }
        """) == [])
    #expect(
      try !test("inputs: { a: { marbles: 'x1', values: { x: no number } } }\nexpect: { doubled.errors: [] }")
        .isEmpty)
  }

  @Test func anErrorIsMatchedByAPartOfItsMessage() throws {
    let input = "inputs: { a: { marbles: '#', error: the cable was pulled } }\n"
    #expect(try test(input + "expect: { out: [ { error: cable } ] }") == [])
    #expect(try test(input + "expect: { out: [ { error: true } ] }") == [])
    #expect(try test(input + "expect: { out: '#' }") == [])
    #expect(try !test(input + "expect: { out: [ { error: plug } ] }").isEmpty)
    #expect(try !test(input + "expect: { second: [] }").isEmpty)
  }

  @Test func moreMayComeBetween() throws {
    let input = "inputs: { a: '1234' }\n"
    #expect(try test(input + "expect: { out: { events: [ { next: 4 }, { next: 8 } ], more: true } }") == [])
    #expect(try test(input + "expect: { out: [ { next: 4 }, { next: 8 }, { more: true } ] }") == [])
    #expect(try !test(input + "expect: { out: { events: [ { next: 8 }, { next: 4 } ], more: true } }").isEmpty)
    #expect(try !test(input + "expect: { out: [ { next: 2 }, { next: 4 } ] }").isEmpty)
  }

  @Test func ticksScaleMarbles() throws {
    #expect(
      try test(
        "tick: 10ms\ninputs: { a: '-1|' }\nexpect: { doubled: [ { at: 10ms, next: 2 }, { at: 20ms, complete: true } ] }"
      ) == [])
    #expect(
      try test("inputs: { a: { marbles: '-1|', tick: 1h } }\nexpect: { doubled: { marbles: '-2|', tick: 1h } }") == [])
  }

  /// A pipeline that never ends, although its sources do, is given up, even if no time passes.
  @Test(
    arguments: [
      "from: none, chain: [ repeat ]", "from: one, chain: [ repeat, { filter: event == 0 } ]",
      "from: one, chain: [ { repeat: 2 }, repeat, { filter: event == 0 } ]", "from: replayed, chain: [ retry ]",
    ], ["", "tick: 1s"])
  func whatSpinsIsGivenUp(_ signal: String, _ tick: String) throws {
    let failures = try failures(
      """
      name: t
      sources: { a: { stdin: {} }, one: { values: [1] }, none: { values: [] } }
      signals:
        replayed: { from: one, chain: [ { try: event == 0 } ], share: { replay: 1, again: false } }
        spinning: { \(signal) }
      sinks: { out: { from: spinning, stdout: { encode: json } }, also: { from: a, stdout: { encode: json } } }
      tests:
        - name: x
          inputs: { a: '--------1|' }
          expect: { also: '--------1|' }
          \(tick)
      """, turnLimit: 100_000)
    #expect(failures.contains { $0.contains("still busy") }, "\(failures)")
  }

  @Test func testsShareNothing() throws {
    let suite = try TestSuite(
      SourceText(
        name: "t.yaml",
        text: """
          name: t
          sources: { a: { stdin: {} } }
          sinks: { out: { from: a, chain: [ { scan: { start: 0, next: running + event } } ], discard: {} } }
          tests:
            - { name: one, inputs: { a: "12|" }, expect: { out: "13|" } }
            - { name: two, inputs: { a: "12|" }, expect: { out: "13|" } }
          """))
    for _ in 0..<3 {
      for result in suite.run() { #expect(result.passed) }
    }
  }

  @Test func endlessPipelinesAreGivenUp() throws {
    let suite = try TestSuite(
      SourceText(
        name: "t.yaml",
        text: """
          name: t
          sources: { a: { stdin: {} } }
          signals: { s: { from: a, chain: [ { repeat: { delay: 1ms } }, { ignore: 1 } ] } }
          sinks: { out: { from: s, discard: {} } }
          tests:
            - { name: x, inputs: { a: "|" }, expect: { out: [] } }
            - { name: y, until: 5s, inputs: { a: "|" }, expect: { out: [] } }
          """))
    let results = suite.run()
    #expect(try results.item(0).failures.map(\.diagnostic.code.name) == ["RX606"])
    #expect(try results.item(1).passed)
    #expect(try results.item(1).virtualTime == .seconds(5))
  }

  /// Virtual time costs only what happens in it: thirty days with a tick a minute take a turn for each tick, and little more.
  @Test func thirtyDaysAreTheirTurns() throws {
    let suite = try TestSuite(
      SourceText(
        name: "t.yaml",
        text: """
          name: t
          sources: { clock: { interval: 1m } }
          signals: { s: { from: clock, chain: [ { map: event.tick }, { filter: event % 1440 == 0 } ] } }
          sinks: { out: { from: s, discard: {} } }
          tests:
            - { name: x, until: 720h, expect: { out: { events: [ { at: 24h, next: 1440 }, { at: 720h, next: 43200 } ], more: true } } }
          """))
    #expect(suite.run(turnLimit: 43_300).map(\.passed) == [true])
    #expect(suite.run(turnLimit: 43_000).map(\.passed) == [false])
  }

  @Test func filtersAreTextsOrPatterns() {
    #expect(TestReport.matches("once", "asks once, for all"))
    #expect(TestReport.matches("asks*all", "asks once, for all"))
    #expect(!TestReport.matches("asks*once", "asks once, for all"))
  }
}
