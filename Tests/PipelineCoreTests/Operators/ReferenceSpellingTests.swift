import PipelineCore
import PipelineTestSupport
import Sources_
import Testing

/// The syntax of steps: short and long forms with the same meaning, and refused spellings.
@Suite struct ReferenceSpellingTests {
  /// The short form, the long form, and the output of both for `a`.
  static let spellings: [(short: String, long: String, input: String, output: String)] = [
    ("filter: event > 1", "filter: { where: event > 1 }", "-1-2|", "---2|"),
    ("ignoreValues", "ignoreValues: {}", "-1-|", "---|"),
    ("distinctUntilChanged: event % 2", "distinctUntilChanged: { by: event % 2 }", "-1-3-2|", "-1---2|"),
    ("distinctUntilChanged", "distinctUntilChanged: {}", "-1-1-2|", "-1---2|"),
    ("skip: 1", "skip: { count: 1 }", "-1-2|", "---2|"),
    ("skip: 0", "skip: { count: 0 }", "-1-2|", "-1-2|"),
    ("take: 1", "take: { count: 1 }", "-1-2|", "-(1|)"),
    ("take: 0", "take: { count: 0 }", "-1-2|", "|"),
    ("takeLast: 1", "takeLast: { count: 1 }", "-1-2|", "----(2|)"),
    ("skipWhile: event < 2", "skipWhile: { where: event < 2 }", "-1-2-1|", "---2-1|"),
    ("takeWhile: event < 2", "takeWhile: { where: event < 2 }", "-1-2-1|", "-1-|"),
    ("takeUntil: { marbles: '---x' }", "takeUntil: { signal: { marbles: '---x' } }", "-1-2-3|", "-1-|"),
    ("skipUntil: event > 1", "skipUntil: { where: event > 1 }", "-1-2-1|", "---2-1|"),
    (
      "bufferWithTime: 2ms }, { map: size(event)", "bufferWithTime: { every: 2ms } }, { map: size(event)", "-(12)--3|",
      "---2-(1|)"
    ),
    ("flattenMap: \"[event, event]\"", "flattenMap: { list: \"[event, event]\" }", "-1-2|", "-(11)-(22)|"),
    ("sample: 2ms", "sample: { every: 2ms }", "-1-2-|", "--1-2|"),
    ("throttle: 2ms", "throttle: { quiet: 2ms }", "-12---3|", "----2--(3|)"),
    ("delay: 2ms", "delay: { by: 2ms }", "-1|", "---1|"),
    ("timeout: 3ms", "timeout: { after: 3ms }", "-1-----2|", "-1-#"),
    ("timeoutBetween: 3ms", "timeoutBetween: { gap: 3ms }", "-1-2-------|", "-1-2--#"),
    ("retry: 1", "retry: { count: 1 }", "-1#", "-1-1#"),
    ("repeat: 2", "repeat: { count: 2 }", "-1|", "-1-1|"),
    ("catch: { values: [9] }", "catch: { with: { values: [9] } }", "-1#", "-1(9|)"),
    ("then: { values: [9] }", "then: { signal: { values: [9] } }", "-1|", "--(9|)"),
    ("try: event < 2", "try: { where: event < 2 }", "-1-2|", "-1-#"),
    ("any: event > 1", "any: { where: event > 1 }", "-1-2|", "---(t|)"),
    ("all: event > 1", "all: { where: event > 1 }", "-2-1|", "---(f|)"),
    ("log: info", "log: { level: info, when: [next, error, completed] }", "-1|", "-1|"),
    ("initially: { values: [1] }", "initially: { signal: { values: [1] } }", "-1|", "-1|"),
    ("finally: { values: [1] }", "finally: { signal: { values: [1] } }", "-1|", "-1|"),
    ("collect", "collect: {}", "-|", "-(l|)"),
    ("not", "not: {}", "-t|", "-f|"),
    ("materialize }, { map: event.kind == 'next'", "materialize: {} }, { map: event.kind == 'next'", "-1|", "-t(f|)"),
  ]

  @Test(arguments: spellings.map(\.short)) func spelling(_ short: String) throws {
    let row = try #require(Self.spellings.first { $0.short == short })
    let values = [("t", "true"), ("f", "false"), ("l", "[]")]
    for text in [row.short, row.long] {
      let signal = "{ from: a, chain: [ { \(text) } ] }"
      let bare = text.contains(" ") ? signal : "{ from: a, chain: [ \(text) ] }"
      let marbles = try MarbleCase(
        bare, isSignal: true, inputs: [("a", row.input)], output: row.output, values: values)
      if let difference = try marbles.verdict() { Issue.record("\(text): \(difference)") }
    }
  }

  /// Refused spellings, and the text of the message or its help.
  @Test(arguments: [
    ("flat_map: event.items", "flattenMap"),
    ("distinct_until_changed", "distinctUntilChanged"), ("take_until: b", "takeUntil"), ("Map: event", "map"),
    ("debounce: 5ms", "throttle"), ("throttle: 500", "unit"), ("delay: 0.5", "unit"), ("timeout: '30'", "unit"),
    ("retry: 0", "forever"), ("retry: { count: 0 }", "forever"), ("take: -1", "0"), ("take: 1.5", "whole number"),
    ("skip: [2]", "list"), ("flattenMap: { maxConcurrent: 0, signal: b }", "1"), ("interval: 5ms", "interval"),
    ("map: event, filter: event > 1", "one"), ("filter: event > 1, onError: skip", "drop"),
    ("map: event, onError: ignore", "drop"), ("reduce: x + y", "combineLatest"),
    ("scan: 0", "scan"), ("bind: event", "bind"), ("reduceApply", "reduceApply"),
  ])
  func mistakes(_ step: String, _ said: String) throws {
    let item = step.contains(" ") ? "{ \(step) }" : step
    do {
      _ = try PipelineRun.compile(
        """
        sources: { a: { scripted: {} }, b: { scripted: {} } }
        signals: { s: { from: a, chain: [ \(item) ] } }
        sinks: { out: { from: s, probe: {} }, other: { from: b, probe: {} } }
        """, catalogue: PipelineRow.catalogue)
      Issue.record("'\(step)' compiles")
    } catch let failure as PipelineRun.CompileFailure {
      let reported = failure.description.split(separator: "sinks:").last.map(String.init) ?? ""
      #expect(reported.contains(said), "\(reported)")
    }
  }
}
