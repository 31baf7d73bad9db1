import Foundation
import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// `emit` of windows by number, of windows that slide by the clock or may be empty, and of sessions with a bound.
@Suite struct WindowEmissionTests {
  private struct Item {
    var at: Int64
    var key: Int
    var n: Int
  }

  private static func source(_ items: [Item], end: Int64) -> ScriptedSource {
    var entries = items.map { item in
      SignalHistory.Entry(
        at: .milliseconds(item.at),
        .next((try? MarbleCase.value("{k: \(item.key), n: \(item.n)}")) ?? .null))
    }
    entries.append(.init(at: .milliseconds(end), .complete))
    return ScriptedSource(SignalHistory(entries).script)
  }

  /// Windows that overlap share the events that they have in common.
  @Test(arguments: ["every: 1ms, length: 50ms", "every: 1s, length: 50s, time: timestamp(event.n)"])
  func overlappingWindowsKeepAnEventOnce(_ window: String) throws {
    let event = try MarbleCase.value("{n: 100, text: \(String(repeating: "x", count: 10_000))}")
    let source = ScriptedSource(
      SignalHistory([.init(at: .zero, .next(event)), .init(at: .milliseconds(100), .complete)]).script)
    var options = PipelineRun.Options()
    options.until = .milliseconds(1)
    let run = try PipelineRun(Self.yaml(window, ", emit: update"), sources: ["a": source], options: options)
    let step = try #require(run.step("window"))
    #expect((step.keptEvents ?? 0) >= 49)
    #expect((10_000..<40_000).contains(step.keptBytes ?? 0), "\(step.keptBytes ?? 0)")
  }

  private static func random(_ seed: Int) -> ScriptedSource {
    var random = SplitMix(UInt64(seed) &+ 11)
    var at: Int64 = 0
    let items = (0..<(20 + random.below(40))).map { index in
      at += Int64(random.below(random.below(4) == 0 ? 9 : 3))
      return Item(at: at, key: random.below(2), n: index)
    }
    return source(items, end: at + Int64(random.below(9)))
  }

  private static func yaml(_ window: String, _ emit: String, isGrouped: Bool = false) -> String {
    let list =
      window.contains("aggregate")
      ? "" : ", to: '{\"from\": start.getMilliseconds(), \"n\": events.map(e, e.n)}'"
    let step = "{ window: { \(window)\(list)\(emit) } }"
    let chain =
      isGrouped
      ? "{ groupBy: { key: event.k, chain: [ { filter: event.n >= 0 }, \(step) ] } }" : step
    let which =
      emit.isEmpty ? "'on-time', '+'" : "meta.pane, meta.retracts ? '-' : meta.replaces ? '=' : '+'"
    return """
      name: t
      sources: { a: { scripted: {} } }
      sinks:
        out:
          from: a
          chain: [ \(chain), { map: "[\(which), event\(isGrouped ? ", meta.key" : "")]" } ]
          probe: {}
      """
  }

  private static func run(_ yaml: String, _ source: ScriptedSource, isCut: Bool = false) throws
    -> PipelineRun
  {
    var options = PipelineRun.Options()
    options.cutAfter = { _ in isCut }
    return try PipelineRun(yaml, sources: ["a": source], options: options)
  }

  private static func said(_ run: PipelineRun) -> [String] {
    run.out.entries.map { "\($0.at) \($0.moment)" }
  }

  private struct Row {
    var at: TimeSpan
    var pane: String
    var sign: String
    /// The row, and the key by which it replaces another.
    var text: String
    var key: String
  }

  private static func rows(_ run: PipelineRun) throws -> [Row] {
    try run.out.entries.filter { "\($0.moment)" != "the completion" }.map { entry in
      let parts = try #require(
        try JSONSerialization.jsonObject(with: Data("\(entry.moment)".utf8)) as? [Any],
        "\(entry.moment)")
      let fields = try #require(parts[2] as? [String: Any])
      let group = parts.count > 3 ? "\(parts[3])" : ""
      let text = fields.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(
        separator: " ")
      return Row(
        at: entry.at, pane: parts[0] as? String ?? "", sign: parts[1] as? String ?? "",
        text: "\(group) \(text)",
        key: "\(group) \(fields["from"] ?? "")")
    }
  }

  /// The rows that are left, by their key; `isByRow`: by the whole row, because nothing replaces one.
  private static func table(_ rows: [Row], isByRow: Bool, _ note: Comment) -> [String] {
    var table: [String: [String]] = [:]
    for row in rows {
      let key = isByRow ? row.text : row.key
      switch row.sign {
      case "-":
        #expect(table[key]?.popLast() == row.text, "taken back without being there, \(note)")
      case "=":
        #expect(!isByRow && table[key]?.count == 1, "replaces nothing, \(note)")
        table[key] = [row.text]
      default:
        #expect(isByRow || (table[key] ?? []).isEmpty, "there twice: \(row.text), \(note)")
        table[key, default: []].append(row.text)
      }
    }
    return table.values.flatMap { $0 }.sorted()
  }

  private static let figures =
    "aggregate: { from: start.getMilliseconds(), n: count(), sum: sum(event.n), last: last(event.n) }"

  /// The rows that remain are those of windows without `emit`, however results are sent.
  @Test(
    arguments: [
      "count: 3", "count: 4, step: 1", "count: 6, step: 4", "count: 2, step: 5", "count: 1",
      "every: 3ms, empty: true",
      "every: 2ms, length: 5ms", "every: 3ms, length: 6ms, empty: true", "every: 5ms, length: 2ms",
      "gap: 3ms, maxLength: 7ms", "gap: 2ms, maxLength: 1ms",
    ], [false, true])
  func aTableHasTheResult(_ form: String, _ isGrouped: Bool) throws {
    let isByRow = form.hasPrefix("count")
    for window in [form, "\(form), \(Self.figures)"] {
      for seed in 0..<6 {
        let source = Self.random(seed)
        let plain = try Self.run(Self.yaml(window, "", isGrouped: isGrouped), source)
        let close = try Self.run(Self.yaml(window, ", emit: close", isGrouped: isGrouped), source)
        let note: Comment = "\(window), seed \(seed)"
        let (plainRows, closeRows) = (try Self.rows(plain), try Self.rows(close))
        let end = try #require(close.out.entries.last).at
        // Sessions and groups that close in the same instant have no defined order.
        func texts(_ rows: [Row]) -> [String] {
          rows.filter { !form.contains("length") || $0.at < end }.map { "\($0.at) \($0.text)" }.sorted()
        }
        #expect(texts(closeRows) == texts(plainRows), note)
        #expect(closeRows.allSatisfy { $0.pane == "on-time" && $0.sign == "+" }, note)
        let wanted = Self.table(closeRows, isByRow: isByRow, note)
        for emit in ["update", "{ update: 2ms }", "{ early: 2ms }", "{ update: 0s, pairs: true }"] {
          if isByRow, emit.contains("pairs") { continue }
          let note: Comment = "\(window), \(emit), seed \(seed)"
          let yaml = Self.yaml(window, ", emit: \(emit)", isGrouped: isGrouped)
          let run = try Self.run(yaml, source)
          let rows = try Self.rows(run)
          #expect(Self.table(rows, isByRow: isByRow, note) == wanted, note)
          if isByRow || emit.contains("pairs") { #expect(!rows.contains { $0.sign == "=" }, note) }
          #expect(run.pendingTimers == 0, note)
          #expect(run.deadLetters.isEmpty, note)
          let cut = try Self.run(yaml, source, isCut: true)
          #expect(Self.said(cut).sorted() == Self.said(run).sorted(), "restored: \(note)")
          #expect(cut.refusals.isEmpty, note)
        }
      }
    }
  }

  private static func numbers(
    _ emit: String, _ window: String, _ at: [Int64], end: Int64, _ isCut: Bool
  ) throws
    -> [String]
  {
    let items = at.enumerated().map { Item(at: $0.element, key: 0, n: $0.offset + 1) }
    return try said(
      run(
        """
        name: t
        sources: { a: { scripted: {} } }
        sinks:
          out:
            from: a
            chain:
              - window: { \(window), emit: \(emit) }
              - map: "[meta.pane, meta.retracts ? '-' : meta.replaces ? '=' : '+', event]"
            probe: {}
        """, source(items, end: end), isCut: isCut))
  }

  @Test(arguments: [false, true]) func aWindowByNumberTakesEachRowBack(_ isCut: Bool) throws {
    let list = "to: 'events.map(e, e.n)'"
    #expect(
      try Self.numbers("update", "count: 2, \(list)", [0, 1, 2], end: 9, isCut) == [
        #"0s ["early","+",[1]]"#, #"1ms ["on-time","-",[1]]"#, #"1ms ["on-time","+",[1,2]]"#,
        #"2ms ["early","+",[3]]"#, "9ms the completion",
      ])
    #expect(
      try Self.numbers(
        "{ early: 3ms }", "count: 3, step: 2, \(list)", [0, 1, 5, 6], end: 20, isCut) == [
          #"3ms ["early","+",[1,2]]"#, #"5ms ["on-time","-",[1,2]]"#,
          #"5ms ["on-time","+",[1,2,3]]"#,
          #"8ms ["early","+",[3,4]]"#, #"20ms ["on-time","-",[3,4]]"#,
          #"20ms ["on-time","+",[3,4]]"#,
          "20ms the completion",
        ])
    #expect(
      try Self.numbers(
        "{ update: 4ms }", "count: 9, aggregate: sum(event.n)", [0, 1, 2, 8], end: 20, isCut) == [
          #"0s ["early","+",1]"#, #"4ms ["early","-",1]"#, #"4ms ["early","+",6]"#,
          #"8ms ["early","-",6]"#,
          #"8ms ["early","+",10]"#, "20ms the completion",
        ])
  }

  @Test(arguments: [false, true]) func anEmptyWindowIsSentOnceItCloses(_ isCut: Bool) throws {
    #expect(
      try Self.numbers(
        "update", "every: 4ms, empty: true, aggregate: count()", [1, 2, 9], end: 14, isCut) == [
          #"1ms ["early","+",1]"#, #"2ms ["early","=",2]"#, #"8ms ["on-time","+",0]"#,
          #"9ms ["early","+",1]"#,
          "14ms the completion",
        ])
  }

  @Test(arguments: [false, true]) func aSlidingWindowSaysWhichResultItIs(_ isCut: Bool) throws {
    #expect(
      try Self.numbers("{ early: 1ms }", "every: 2ms, length: 4ms, to: 'events.map(e, e.n)'", [1], end: 9, isCut) == [
        #"2ms ["early","+",[1]]"#, #"2ms ["early","+",[1]]"#, #"2ms ["on-time","=",[1]]"#,
        #"4ms ["on-time","=",[1]]"#, "9ms the completion",
      ])
  }

  @Test func whatMeansNothingIsAnError() {
    func messages(_ window: String, _ time: String = "") -> [String] {
      FrontEnd(.builtIn).compile(
        """
        sources: { a: { stdin: { decode: json }\(time) } }
        sinks: { out: { from: a, chain: [ { window: { \(window) } } ], stdout: { encode: json } } }
        """
      ).diagnostics.map(\.message)
    }
    #expect(
      messages("count: 3, emit: { update: 1s, pairs: true }") == [
        "'pairs' of 'window' has no effect with 'count': a row always retracts the earlier one, because windows by number have no key"
      ])
    #expect(
      messages("count: 3, emit: update, allowedLateness: 1s")
        == ["'allowedLateness' of 'window' cannot go with 'count'"])
    #expect(
      messages("every: 1s, empty: true, emit: update", ", time: event.at")
        == ["'empty' of 'window' cannot go with the event time of the stream"])
    for (window, other) in [("gap: 1m, maxLength: 1h", "maxLength"), ("every: 1m, empty: true", "empty")] {
      #expect(
        messages("\(window), emit: update, allowedLateness: 1m")
          == ["'allowedLateness' of 'window' cannot go with '\(other)'"])
    }
    for window in [
      "count: 3", "every: 1m, empty: true", "every: 1m, length: 5m", "gap: 1m, maxLength: 1h",
    ] {
      #expect(messages("\(window), emit: update").isEmpty)
    }
  }
}
