import PipelineTestSupport
import Testing

@testable import PipelineCore

/// The order in which a signal starts: first the nodes' own events, then its sources, each in the order in which they
/// were subscribed to; at the launch, in an inner signal, in a later round.
@Suite struct SubscriptionOrderTests {
  /// `signal`, in braces, in every position in which a signal may start; the text of a signal without braces.
  static func places(_ signal: String) -> [(name: String, text: String)] {
    [
      ("launch", String(signal.dropFirst().dropLast())),
      ("flattenMap", "from: { values: [0] }, chain: [ { flattenMap: { signal: \(signal) } } ]"),
      ("flattenMap, later", "from: { marbles: '--(0|)' }, chain: [ { flattenMap: { signal: \(signal) } } ]"),
      (
        "flattenMap, twice deep",
        """
        from: { values: [0] }, chain: [ { flattenMap: { signal: { from: { values: [0] }, \
        chain: [ { flattenMap: { signal: \(signal) } } ] } } } ]
        """
      ),
      ("then", "from: { values: [] }, chain: [ { then: \(signal) } ]"),
      ("catch", "from: { values: [1] }, chain: [ { try: event == 0, onError: fail }, { catch: { with: \(signal) } } ]"),
      ("switchToLatest", "from: { values: [0] }, chain: [ { switchToLatest: { signal: \(signal) } } ]"),
      ("a second round", "merge: [ \(signal) ], chain: [ { repeat: 2 } ]"),
      ("a later round", "merge: [ \(signal) ], chain: [ { repeat: { count: 2, delay: 1ms } } ]"),
    ]
  }

  @Test(arguments: [
    // The trigger's source starts first, so no event of the other sources passes; the value of `startWith` does.
    ("{ from: { values: [7] }, chain: [ { startWith: 5 }, { takeUntil: { values: [1] } } ] }", ["5"]),
    ("{ from: { values: [7] }, chain: [ { takeUntil: { values: [1] } } ] }", []),
    ("{ from: { values: [7] }, chain: [ { takeUntil: { values: [1] } }, { startWith: 5 } ] }", ["5"]),
    (
      "{ from: { values: [7] }, chain: [ { startWith: 5 }, { takeUntil: { from: { values: [1] }, chain: [ { startWith: 2 } ] } } ] }",
      []
    ),
    ("{ from: { values: [7] }, chain: [ { startWith: 5 }, { takeUntilReplacement: { values: [1] } } ] }", ["5", "1"]),
    ("{ from: { values: [7] }, chain: [ { takeUntilReplacement: { values: [1] } } ] }", ["1"]),
    (
      "{ from: { values: [7] }, chain: [ { startWith: 5 }, { takeUntilReplacement: { from: { values: [1] }, chain: [ { startWith: 2 } ] } } ] }",
      ["2", "1"]
    ),
    (
      "{ combineLatest: [ { values: [1, 2] }, { from: { values: [3] }, chain: [ { startWith: 5 } ] } ] }",
      ["[1,5]", "[2,5]", "[2,3]"]
    ),
    (
      "{ merge: [ { values: [1, 2] }, { from: { values: [3] }, chain: [ { startWith: 5 } ] } ] }", ["5", "1", "2", "3"]
    ),
    ("{ from: { values: [1] }, chain: [ { startWith: 2 }, { startWith: 3 } ] }", ["3", "2", "1"]),
    (
      "{ from: { values: [1, 2] }, chain: [ { withLatestFrom: { from: { values: [] }, chain: [ { startWith: 9 } ] } } ] }",
      ["[1,9]", "[2,9]"]
    ),
    ("{ from: { values: [1, 2] }, chain: [ { skipUntil: { signal: { values: [9] } } } ] }", ["1", "2"]),
    (
      "{ concat: [ { from: { values: [1] }, chain: [ { startWith: 5 } ] }, { from: { values: [2] }, chain: [ { startWith: 6 } ] } ] }",
      ["5", "1", "6", "2"]
    ),
    // A name that is used twice runs once.
    ("{ merge: [ shared, { from: shared, chain: [ { map: event + 10 } ] } ] }", ["1", "11", "2", "12"]),
    ("{ combineLatest: { x: shared, y: shared } }", ["[1,1]", "[2,1]", "[2,2]"]),
    ("{ zip: [ shared, { from: shared, chain: [ { startWith: 0 } ] } ] }", ["[1,0]", "[2,1]"]),
  ])
  func theSameEverywhere(_ signal: String, _ expected: [String]) throws {
    for (place, text) in Self.places(signal) {
      let run = try PipelineRun(
        """
        sources: { shared: { values: [1, 2] } }
        signals: { signal: { \(text) } }
        sinks: { out: { from: signal, probe: {} } }
        """, sources: [:])
      #expect(run.texts["out"] == (place.hasSuffix("round") ? expected + expected : expected), "\(place): \(signal)")
      #expect(run.outcome == .completed, "\(place): \(signal)")
    }
  }
}
