import PipelineTestSupport
import Testing

@testable import PipelineCore

/// `take: 0` is an empty signal for the steps after it.
@Suite struct TakeNothingTests {
  /// The output of steps for an empty signal, in the chain of a signal, of a group, of an inner signal.
  @Test(arguments: [
    ("{ aggregate: { start: 5, next: running + 1 } }", ["5"]), ("count", ["0"]), ("collect", ["[]"]),
    ("{ map: event }, { aggregate: { start: 1, next: running } }, { map: event + 1 }", ["2"]),
    ("{ aggregate: { start: 5, next: running } }, { take: 0 }, { aggregate: { start: 6, next: running } }", ["6"]),
    ("{ aggregate: { start: 5, next: running } }, { take: 1 }, { scan: { start: 2, next: running + event } }", ["7"]),
    ("{ all: event == 1 }", ["true"]), ("materialize, { map: event.kind }", [#""completed""#]), ("{ take: 0 }", []),
  ])
  func whatFollowsSpeaksAtTheEnd(_ chain: String, _ expected: [String]) throws {
    for (place, chains) in [
      ("a signal", "{ filter: event > 0 }, { take: 0 }, \(chain)"),
      ("a group", "{ groupBy: { key: event, chain: [ { take: 0 }, \(chain) ] } }"),
      ("a group of its own nodes", "{ groupBy: { key: event, chain: [ { delay: 1ms }, { take: 0 }, \(chain) ] } }"),
      ("an inner signal", "{ flattenMap: { signal: { from: { values: [1, 2] }, chain: [ { take: 0 }, \(chain) ] } } }"),
    ] {
      let run = try PipelineRun(
        """
        sources: { a: { values: [1] } }
        sinks: { out: { from: a, chain: [ \(chains) ], probe: {} } }
        """, sources: [:])
      #expect(run.texts["out"] == expected, "\(place): \(chain)")
      #expect(run.outcome == .completed)
    }
  }

  @Test func aGroupsValueHasItsKey() throws {
    let run = try PipelineRun(
      """
      sources: { a: { values: [7, 8, 7] } }
      sinks: { out: { from: a, chain: [ { groupBy: { key: event, chain: [ { take: 0 }, count ] } }, { map: "[meta.key, event]" } ], probe: {} } }
      """, sources: [:])
    #expect(run.texts["out"] == ["[7,0]", "[8,0]"])
  }

  @Test func theLogHasTheEnd() throws {
    let run = try PipelineRun(
      """
      sources: { a: { values: [7] } }
      sinks: { out: { from: a, chain: [ { take: 0 }, { log: { when: [completed] } } ], probe: {} } }
      """, sources: [:])
    #expect(run.log.count == 1, "\(run.log)")
  }
}
