import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// `rxd test --coverage`: what counts as reached.
@Suite struct TestCoverageTests {
  private func missing(_ text: String) throws -> [String] {
    let suite = try TestSuite(SourceText(name: "t.yaml", text: text))
    let coverage = TestCoverage(suite.plan)
    let runner = TestRunner(suite.plan)
    for test in suite.tests {
      let plain = runner.run(test)
      let counted = runner.run(test, coverage: coverage)
      #expect(plain.passed && counted.passed, "\(counted.failures.map(\.diagnostic.message))")
    }
    return coverage.points.filter { !$0.isReached && !$0.isImplied }.map { "\($0.location): \($0.message)" }
  }

  @Test func everythingIsNamedWithItsPlace() throws {
    let text = """
      sources: { a: { stdin: {} }, b: { stdin: {} } }
      signals:
        s:
          from: a
          chain:
            - map: event * 2
            - filter: event > 2
            - flattenMap:
                signal: { from: { http: { url: "http://127.0.0.1:1/" } }, chain: [ { map: event }, { retry: 1 }, { catch: { value: 0 } } ] }
        t: { if: { condition: b, then: { from: { values: [1] } }, else: { from: { values: [2] } } } }
        u: { switch: { by: b, cases: { 'true': { from: { values: [1] } }, 'x': { from: { values: [2] } } }, default: { from: { values: [3] } } } }
      sinks:
        out: { from: s, discard: {} }
        wrong: { from: s.errors, chain: [ { map: event.code } ], discard: {} }
        both: { from: { merge: [t, u] }, discard: {} }
      tests:
      """
    let nothing = try missing(text + "\n  - { name: nothing, inputs: { b: \"|\" }, expect: { out: [] } }")
    #expect(nothing.contains("t.yaml:6:9: no event reaches 'map'"), "\(nothing)")
    #expect(nothing.contains("t.yaml:7:9: no event reaches 'filter'"), "\(nothing)")
    #expect(nothing.contains("t.yaml:1:17: the source 'stdin' sends nothing"), "\(nothing)")
    #expect(!nothing.contains { $0.contains("'filter' drops nothing") })
    let some = try missing(
      text + """

          - name: one passes, the request succeeds
            inputs: { a: { marbles: "v", values: { v: 2 } }, b: { marbles: "t", values: { t: true } } }
            stubs: { http: [ { url: "*", reply: { json: 1 } } ] }
            expect: { out: [ { next: 1 } ] }
        """)
    #expect(some.contains("t.yaml:7:9: 'filter' drops nothing"), "\(some)")
    #expect(!some.contains { $0.contains("lets nothing pass") })
    #expect(some.contains { $0.contains("'if' never takes 'else'") })
    #expect(some.contains { $0.contains("'switch' never takes 'case 'x''") })
    #expect(some.contains { $0.contains("'switch' never takes 'default'") })
    #expect(!some.contains { $0.contains("case 'true'") })
    #expect(some.contains { $0.hasSuffix("'s.errors' sends nothing") })
    #expect(some.contains { $0.hasSuffix("the sink 'wrong' gets nothing") })
  }

  @Test func allCanBeReached() throws {
    #expect(
      try missing(
        """
        sources: { a: { stdin: {} } }
        signals:
          s:
            from: a
            chain:
              - map: 6 / event
              - filter: event > 2
              - flattenMap:
                  signal:
                    http: { url: "http://127.0.0.1:1/{{ event }}" }
                    chain: [ { map: event }, { retry: 1 }, { catch: { value: 0 } } ]
          t: { from: s, chain: [ { execute: work } ] }
        commands: { work: { run: { values: [1], chain: [ { delay: 1ms } ] } } }
        sinks:
          out: { from: t, discard: {} }
          wrong: { from: s.errors, discard: {} }
        tests:
          - name: all of it
            inputs: { a: "0 1 6 2|" }
            stubs: { http: [ { url: "*/3", reply: { json: 1 } }, { url: "*", fail: gone } ] }
            expect: { out: { events: [], more: true } }
        """.replacing("from:\n", with: "from:\n")) == [])
  }

  @Test func executionsAndGroupsAreSeen() throws {
    let text = """
      sources: { a: { stdin: {} } }
      signals:
        s: { from: a, chain: [ { groupBy: { key: event, chain: [ { filter: event > 1 }, { scan: { start: 0, next: running + event } } ] } } ] }
        t: { from: s, chain: [ { filter: event > 100 }, { execute: work } ] }
      commands: { work: { run: { values: [1] } } }
      sinks: { out: { from: t, discard: {} } }
      tests: [ { name: x, inputs: { a: "123|" }, expect: { s: "-23|" } } ]
      """
    #expect(
      try missing(text) == [
        "t.yaml:4:28: 'filter' lets nothing pass", "t.yaml:4:53: no event reaches 'execute'",
        "t.yaml:5:13: the command 'work' is not executed", "t.yaml:5:28: the source 'values' sends nothing",
        "t.yaml:6:10: the sink 'out' gets nothing",
      ])
  }

  /// Coverage does not change the graph: groups still share one run of their steps, and fixed values are sent without a
  /// subscription, so turns and counts are those of a run without coverage.
  @Test func theGraphIsThatOfProduction() throws {
    let text = """
      sources: { a: { stdin: {} } }
      signals:
        s:
          from: a
          chain:
            - groupBy: { key: event, chain: [ { filter: event > 1 }, { map: event + 1 } ] }
            - flattenMap: { signal: { from: { values: [1, 2] }, chain: [ { map: outer }, { filter: event > 0 } ] } }
      sinks: { out: { from: s, discard: {} } }
      tests: [ { name: x, inputs: { a: "123|" }, expect: { out: { events: [], more: true } } } ]
      """
    let suite = try TestSuite(SourceText(name: "t.yaml", text: text))
    let runner = TestRunner(suite.plan)
    let test = try #require(suite.tests.first)
    let coverage = TestCoverage(suite.plan)
    #expect(runner.run(test).turns == runner.run(test, coverage: coverage).turns)
    // The chain of the groups is one run without a subscriber, and yet its edges count.
    let chain = try #require(coverage.edges.first { suite.plan.id(of: $0.plan.from).hasSuffix("filter") })
    #expect(chain.plan.isBetweenFusedSteps && chain.events == 2 && chain.subscriptions == 0)
    let values = try #require(coverage.edges.first { suite.plan.id(of: $0.plan.from).hasSuffix("values") })
    #expect(values.events == 4)
    #expect(coverage.points.allSatisfy { $0.isReached || $0.message.contains("drops nothing") })
  }

  @Test func sharesAreOfAHundred() {
    #expect(TestCoverage.Share([]).percent == 100)
    #expect(TestCoverage.Share([]).description == "0/0")
  }
}
