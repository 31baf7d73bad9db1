import PipelineCore
import PipelineTestSupport
import Testing

/// ReactiveCocoa 2.5's operators, row by row: values, error, completion, and release of subscriptions. Operators with
/// their own trap are in ``TrapTests``, those that need several subscribers in `SharingTests` and pipelines/.
struct ReferenceRow: Sendable, CustomTestStringConvertible {
  /// ReactiveCocoa's name.
  var name: String
  var text: String
  var inputs: [(name: String, marbles: String)]
  var output: String
  var values: [(String, String)]
  var isHot: Bool

  var testDescription: String { "\(name): \(text), \(inputs.map(\.marbles).joined(separator: " "))" }

  init(
    _ name: String, _ text: String, _ inputs: KeyValuePairs<String, String>, _ output: String,
    _ values: KeyValuePairs<String, String> = [:], hot: Bool = true
  ) {
    self.name = name
    self.text = text
    self.inputs = inputs.map { ($0.key, $0.value) }
    self.output = output
    self.values = values.map { ($0.key, $0.value) }
    isHot = hot
  }

  var marbles: MarbleCase {
    get throws {
      try MarbleCase(
        text, isSignal: MarbleCase.isWholeSignal(text), inputs: inputs, output: output, values: values)
    }
  }
}

@Suite struct ReferenceTableTests {
  /// A step after `a`.
  private static func step(
    _ name: String, _ text: String, _ input: String, _ output: String, _ values: KeyValuePairs<String, String> = [:]
  ) -> ReferenceRow {
    ReferenceRow(name, text, ["a": input], output, values)
  }

  /// A step after `a` that also subscribes to `b`.
  private static func two(
    _ name: String, _ text: String, _ a: String, _ b: String, _ output: String,
    _ values: KeyValuePairs<String, String> = [:], hot: Bool = true
  ) -> ReferenceRow {
    ReferenceRow(name, "{ from: a, chain: [ { \(text) } ] }", ["a": a, "b": b], output, values, hot: hot)
  }

  private static func all(
    _ name: String, _ text: String, _ a: String, _ b: String, _ output: String,
    _ values: KeyValuePairs<String, String> = [:], hot: Bool = true
  ) -> ReferenceRow {
    ReferenceRow(name, text, ["a": a, "b": b], output, values, hot: hot)
  }

  static let eachValue: [ReferenceRow] = [
    step("map:", "map: event * 2", "-1-2-|", "-2-4-|"),
    step("map:", "map: event * 2", "-1-#", "-2-#"),
    step("map:", "map: event * 2", "|", "|"),
    step("mapReplace:", "mapReplace: null", "-1-2-|", "-n-n-|", ["n": "null"]),
    step("mapReplace:", "mapReplace: 7", "-#", "-#"),
    step("flattenMap:", "flattenMap: { signal: { marbles: '-p-q|' } }", "-x--x-#", "--p-qp#"),
    step("flattenMap:", "flattenMap: { signal: { marbles: '--p|' } }", "-x|", "---p|"),
    step("flattenMap:", "flattenMap: { signal: { marbles: '--p|' } }", "|", "|"),
    // A nil result is the empty signal.
    step("flattenMap:", "flattenMap: event", "-x-y-|", "---(12)-|", ["x": "[]", "y": "[1, 2]"]),
    step("bind:, stop", "takeWhile: { where: event < 3, inclusive: true }", "-1-3-1-|", "-1-(3|)"),
    step("not", "not", "-t-f-0-1-|", "-f-t-t-f-|", ["t": "true", "f": "false"]),
    step("not", "not", "-t-#", "-f-#", ["t": "true", "f": "false"]),
    step(
      "and", "and", "-P-Q-#", "-t-f-#", ["P": "[true, true, true]", "Q": "[true, false]", "t": "true", "f": "false"]),
    step("or", "or", "-P-Q-|", "-t-f-|", ["P": "[false, true]", "Q": "[false, false]", "t": "true", "f": "false"]),
    step("try:", "try: event < 3", "-1-3-1-|", "-1-#"),
    step("try:", "try: event < 3", "-1-|", "-1-|"),
    step("tryMap:", "tryMap: 6 / event", "-1-0-1-|", "-6-#"),
    step("tryMap:", "tryMap: 6 / event", "-1-#", "-6-#"),
    step(
      "materialize", "materialize", "-1-|", "-A-(B|)", ["A": "{kind: next, value: 1}", "B": "{kind: completed}"]),
    step(
      "dematerialize", "dematerialize", "-A-B-A-|", "-1-|", ["A": "{kind: next, value: 1}", "B": "{kind: completed}"]),
    step(
      "dematerialize", "dematerialize", "-A-B-A-|", "-1-#",
      ["A": "{kind: next, value: 1}", "B": "{kind: error, error: {message: x}}"]),
    step("dematerialize", "dematerialize", "-A-|", "-1-|", ["A": "{kind: next, value: 1}"]),
    step("dematerialize", "dematerialize", "-A-#", "-1-#", ["A": "{kind: next, value: 1}"]),
  ]

  static let choosing: [ReferenceRow] = [
    step("filter:", "filter: event > 1", "-1-2-1-3-|", "---2---3-|"),
    step("filter:", "filter: event > 1", "-1-#", "---#"),
    step("ignore:", "ignore: null", "-n-1-n-|", "---1---|", ["n": "null"]),
    step("ignore:", "ignore: 1", "-1-s-2-#", "---s-2-#", ["s": "'1'"]),
    step("ignore:", "ignore: { a: [1] }", "-x-y-|", "---y-|", ["x": "{a: [1]}", "y": "{a: [2]}"]),
    step("ignoreValues", "ignoreValues", "-1-2-|", "-----|"),
    step("ignoreValues", "ignoreValues", "-1-2-#", "-----#"),
    step(
      "distinctUntilChanged", "distinctUntilChanged", "-x-y-x-|", "-x-----|",
      ["x": "{a: 1, b: 2}", "y": "{b: 2, a: 1}"]),
    step("distinctUntilChanged", "distinctUntilChanged", "-1-1-#", "-1---#"),
    step("skip:", "skip: 2", "-1-2-3-|", "-----3-|"),
    step("skip:", "skip: 0", "-1-2-|", "-1-2-|"),
    step("skip:", "skip: 9", "-1-2-|", "-----|"),
    step("skip:", "skip: 9", "-1-2-#", "-----#"),
    step("take:", "take: 2", "-1-#", "-1-#"),
    step("take:", "take: 2", "-1-|", "-1-|"),
    step("takeLast:", "takeLast: 2", "-1-|", "---(1|)"),
    two("takeUntil:", "takeUntil: b", "-1-2-3", "----x--", "-1-2|"),
    two("takeUntil:", "takeUntil: b", "-1-#", "-----x", "-1-#"),
    two("takeUntil:", "takeUntil: b", "-1-|", "-----x", "-1-|"),
    two("takeUntilReplacement:", "takeUntilReplacement: b", "-1-2-3-|", "----x-y-|", "-1-2x-y-|"),
    two("takeUntilReplacement:", "takeUntilReplacement: b", "-1-#", "----x", "-1-#"),
    two("takeUntilReplacement:", "takeUntilReplacement: b", "-1--2-", "---#", "-1-#"),
    two("takeUntilReplacement:", "takeUntilReplacement: b", "-1--2-", "---|", "-1-|"),
    // Later events of the receiver are not seen.
    two("takeUntilReplacement:", "takeUntilReplacement: b", "-1----#", "---x----|", "-1-x----|"),
    step("takeUntilBlock:", "takeUntil: { where: event > 1 }", "-1-#", "-1-#"),
    step("takeWhileBlock:", "takeWhile: event < 2", "-1-2-1-#", "-1-|"),
    step("takeWhileBlock:", "takeWhile: event < 2", "-1-#", "-1-#"),
    step("skipUntilBlock:", "skipUntil: event > 1", "-1-#", "---#"),
    step("skipWhileBlock:", "skipWhile: event < 2", "-1-2-1-#", "---2-1-#"),
    step("skipWhileBlock:", "skipWhile: event < 2", "-1-|", "---|"),
    two("sample:", "sample: { at: b }", "---1---", "-x---x|", "-----1|"),
    two("sample:", "sample: { at: b }", "-1-|", "------x", "---|"),
    two("sample:", "sample: { at: b }", "-1-#", "------x", "---#"),
    two("sample:", "sample: { at: b }", "-1-----", "---x-#", "---1-#"),
    step("throttle:", "throttle: 0s", "-(123)-4-|", "-3-4-|"),
    step("throttle:valuesPassingTest:", "throttle: { quiet: 3ms, when: event < 5 }", "-1-9----2|", "---9-----(2|)"),
    step("throttle:valuesPassingTest:", "throttle: { quiet: 3ms, when: event < 5 }", "-1-9-#", "---9-#"),
  ]

  static let accumulating: [ReferenceRow] = [
    step("scanWithStart:reduce:", "scan: { start: 1, next: running * event }", "-2-3-#", "-2-6-#"),
    step("scanWithStart:reduce:", "scan: { start: 1, next: running * event }", "|", "|"),
    step("scanWithStart:reduceWithIndex:", "scan: { start: 0, next: running + index }", "-9-9-9-|", "-0-1-3-|"),
    step("aggregateWithStart:reduce:", "aggregate: { start: 1, next: running * event }", "-2-3-|", "-----(6|)"),
    step(
      "aggregateWithStart:reduceWithIndex:", "aggregate: { start: 0, next: running + index }", "-9-9-9-|", "-------(3|)"
    ),
    step(
      "combinePreviousWithStart:reduce:", "combinePrevious: { start: 1, next: event - previous }", "-3-4-#", "-2-1-#"),
    step("combinePreviousWithStart:reduce:", "combinePrevious: { start: 1, next: event - previous }", "-|", "-|"),
    step("collect", "collect", "-1-n-|", "-----(L|)", ["n": "null", "L": "[1, null]"]),
    step("collect", "collect", "-1-#", "---#"),
    step("startWith:", "startWith: 0", "#", "(0#)"),
    step("startWith:", "startWith: null", "-|", "n|", ["n": "null"]),
    step("bufferWithTime:", "bufferWithTime: 3ms", "-12---3-|", "----A---(B|)", ["A": "[1, 2]", "B": "[3]"]),
    step("bufferWithTime:", "bufferWithTime: 3ms", "-------|", "-------|"),
    step("bufferWithTime:", "bufferWithTime: 3ms", "-1-#", "---#"),
  ]

  static let several: [ReferenceRow] = [
    all("concat:", "concat: [a, b]", "-1-|", "2-3|", "-1-2-3|", hot: false),
    all("concat:", "concat: [a, b]", "-1-#", "2|", "-1-#", hot: false),
    all("concat:", "concat: [a, b]", "-1-|", "-2#", "-1--2#", hot: false),
    two("then:", "then: b", "-1-|", "2-|", "---2-|", hot: false),
    two("then:", "then: b", "-1-|", "2#", "---2#", hot: false),
    all("merge:", "merge: [a, b]", "-1-3|", "--2---|", "-123--|"),
    all("merge:", "merge: [a, b]", "-1-3-#", "--2---4", "-123-#"),
    all("merge:", "merge: [a, b]", "(1#)", "(2|)", "(1#)"),
    all("zip:", "zip: [a, b]", "-1-2-#", "--x----y", "--A--#", ["A": "[1, x]"]),
    all("zip:", "zip: [a, b]", "-1-|", "-----x-y", "-----(A|)", ["A": "[1, x]"]),
    all("zip:reduce:", "{ zip: { x: a, y: b }, chain: [ { reduce: x + y } ] }", "-1-2|", "--3-4|", "--4-(6|)"),
    step("zip: one", "{ zip: [a] }", "-1-|", "-A-|", ["A": "[1]"]),
    all("combineLatest:", "combineLatest: [a, b]", "-1-2-|", "---x-----|", "---B-----|", ["B": "[2, x]"]),
    all("combineLatest:", "combineLatest: [a, b]", "-1-#", "--------|", "---#"),
    all("combineLatest:", "combineLatest: [a, b]", "-1--|", "|", "----|"),
    step("combineLatest: one", "{ combineLatest: [a] }", "-1-2-|", "-A-B-|", ["A": "[1]", "B": "[2]"]),
    // The first input has sent everything before the second is subscribed to, so its last value counts.
    all("combineLatest:", "combineLatest: [a, b]", "(12|)", "(xy|)", "(AB|)", ["A": "[2, x]", "B": "[2, y]"]),
    all(
      "combineLatest:reduce:", "{ combineLatest: { x: a, y: b }, chain: [ { reduce: x + y } ] }", "-1-2|", "-3-4|",
      "-4-(56)|"),
  ]

  static let inner: [ReferenceRow] = [
    step("flatten: 2", "flattenMap: { maxConcurrent: 2, signal: { marbles: '--p|' } }", "(xyz)|", "--(pp)--p|"),
    step("flatten:", "flattenMap: { maxConcurrent: 1, signal: { marbles: '--#' } }", "(xy)-------", "--#"),
    step("concat (signals)", "flattenMap: { policy: concat, signal: { marbles: '-p-q|' } }", "-xy|", "--p-q-p-q|"),
    step("switchToLatest", "switchToLatest: { marbles: '--p-|' }", "-x-#", "---#"),
    step("switchToLatest", "switchToLatest: { marbles: '--#' }", "-x-y---", "-----#"),
    // The error of a signal that was left is not seen.
    step(
      "switchToLatest", "switchToLatest: { from: { marbles: '{{ event }}' } }", "-x-y------|", "----p-----|",
      ["x": "'----#'", "y": "'-p-----|'"]),
    ReferenceRow(
      "switch:cases:default:", "{ switch: { by: a, cases: { x: b }, default: c } }",
      ["a": "-x--y--|", "b": "--1--1-|", "c": "--2--2--|"], "--1--2--|"),
    ReferenceRow(
      "switch:cases:", "{ switch: { by: a, cases: { x: b } } }", ["a": "-x--y--|", "b": "--1--1-|"], "--1-#"),
    ReferenceRow(
      "if:then:else:", "{ if: { condition: a, then: b, else: c } }",
      ["a": "-t--f-#", "b": "--1--1-|", "c": "--2--2--|"], "--1--2#", ["t": "true", "f": "false"]),
    step(
      "groupBy:", "groupBy: { key: event % 2, chain: [ collect ] }", "-1-2-3-|", "-------(AB|)",
      ["A": "[1, 3]", "B": "[2]"]),
    step("groupBy:", "groupBy: { key: event % 2, chain: [ collect ] }", "-1-2-#", "-----#"),
    step(
      "groupBy:transform:", "groupBy: { key: event % 2, chain: [ { map: event * 10 } ] }", "-1-2-|", "-A-B-|",
      ["A": "10", "B": "20"]),
  ]

  static let time: [ReferenceRow] = [
    step("delay:", "delay: 3ms", "-12-|", "----12-|"),
    step("delay:", "delay: 3ms", "-1---2#", "----1-#"),
    step("timeout:", "timeout: 5ms", "-1-|", "-1-|"),
    step("timeout:", "timeout: 5ms", "-1-#", "-1-#"),
    step("timeout:", "timeout: 5ms", "-1-2------3", "-1-2-#"),
    step("deliverOn:", "deliverOn: other", "-(12#)", "-(12#)"),
    step("deliverOn:", "deliverOn: other", "-1-|", "-1-|"),
    step("subscribeOn:", "subscribeOn: other", "-1-#", "-1-#"),
  ]

  static let errors: [ReferenceRow] = [
    two("catch:", "catch: { with: b }", "-1#", "2|", "-12|", hot: false),
    two("catch:", "catch: { with: b }", "-1|", "2|", "-1|", hot: false),
    two("catch:", "catch: { with: b }", "-1#", "2#", "-12#", hot: false),
    two("catchTo:", "catch: b", "-1#", "(23|)", "-1(23|)", hot: false),
    step("retry:", "retry: 2", "-1#", "-1-1-1#"),
    step("retry:", "retry: 2", "-1|", "-1|"),
    step("repeat", "repeat: 2", "-1|", "-1-1|"),
    step("repeat", "repeat", "-1#", "-1#"),
    step("any", "any", "--1-2", "--(t|)", ["t": "true"]),
    step("any:", "any: event > 1", "-1-1|", "----(f|)", ["f": "false"]),
    step("all:", "all: event > 1", "-2-1-2", "---(f|)", ["f": "false"]),
    step("all:", "all: event > 1", "-2-3-|", "-----(t|)", ["t": "true"]),
    step("all:", "all: event > 1", "-2-3-#", "-----(f|)", ["f": "false"]),
  ]

  static let effects: [ReferenceRow] = [
    step("doNext:", "do: { signal: { marbles: '|' } }", "-1-2-|", "-1-2-|"),
    step("doNext:", "do: { signal: { marbles: '|' } }", "-1-#", "-1-#"),
    step("doError:", "do: { signal: { marbles: '|' }, when: [error] }", "-1-#", "-1-#"),
    step("doCompleted:", "do: { signal: { marbles: '|' }, when: [completed] }", "-1-|", "-1-|"),
    step("initially:", "initially: { marbles: '|' }", "-1-|", "-1-|"),
    step("finally:", "finally: { marbles: '|' }", "-1-#", "-1-#"),
    step("finally:", "finally: { marbles: '|' }", "-1-|", "-1-|"),
    step("logAll", "log: info", "-1-2-#", "-1-2-#"),
  ]

  static let rows = eachValue + choosing + accumulating + several + inner + time + errors + effects

  @Test(arguments: rows) func row(_ row: ReferenceRow) throws {
    if let difference = try row.marbles.verdict(hot: row.isHot) { Issue.record("\(row.name): \(difference)") }
  }

  /// Disposal stops everything immediately and leaves no timer; so does saving, dropping and restoring.
  @Test(arguments: rows) func rowCutShort(_ row: ReferenceRow) throws {
    let whole = try row.marbles
    let complete = try whole.run(hot: row.isHot)
    for time in stride(from: Int64(0), through: whole.length.nanoseconds, by: 2_000_000) {
      var options = PipelineRun.Options()
      options.cancelAt = TimeSpan(nanoseconds: time)
      let run = try whole.run(hot: row.isHot, options: options)
      #expect(run.pendingTimers == 0)
      #expect(run.out.entries == complete.out.entries.filter { $0.at.nanoseconds <= time })
    }
    var options = PipelineRun.Options()
    options.cutAfter = { _ in true }
    #expect(try whole.run(hot: row.isHot, options: options).out == complete.out)
  }
}
