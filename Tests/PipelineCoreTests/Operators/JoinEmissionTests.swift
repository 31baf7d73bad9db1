import Foundation
import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// `emit` of `join`: events without a partner are sent before that is certain, and taken back.
@Suite struct JoinEmissionTests {
  /// An event of one of two signals: `at` is its arrival, `time` its event time, in seconds.
  private struct Item {
    var at: Int64
    var number: Int
    var key: Int
    var time: Int
  }

  private struct Input {
    var items: [Item] = []
    var end: Int64 = 0

    var source: ScriptedSource {
      var entries = items.map { item in
        SignalHistory.Entry(
          at: .milliseconds(item.at),
          .next((try? MarbleCase.value("{n: \(item.number), k: \(item.key), t: \(item.time)}")) ?? .null))
      }
      entries.append(.init(at: .milliseconds(end), .complete))
      return ScriptedSource(SignalHistory(entries).script)
    }
  }

  /// Two signals that are read at different speeds, out of order by at most `lateness`.
  private static func random(_ seed: Int, lateness: Int) -> (Input, Input) {
    var random = SplitMix(UInt64(seed) &* 131 &+ 7)
    let speeds = (1 + random.below(4), 1 + random.below(4))
    let keys = 2 + random.below(6)
    var clocks = (20 + random.below(10), 20 + random.below(10))
    var (one, other) = (Input(), Input())
    var at: Int64 = 0
    for number in 1...(30 + random.below(50)) {
      at += Int64(random.below(3))
      let key = random.below(keys)
      if random.below(2) == 0 {
        clocks.0 += random.below(speeds.0 + 1)
        one.items.append(Item(at: at, number: number, key: key, time: clocks.0 - random.below(lateness + 1)))
      } else {
        clocks.1 += random.below(speeds.1 + 1)
        other.items.append(Item(at: at, number: number, key: key, time: clocks.1 - random.below(lateness + 1)))
      }
    }
    (one.end, other.end) = random.below(2) == 0 ? (at + 5, at + 9) : (at + 9, at + 5)
    return (one, other)
  }

  private static let numbers = #"reduce: "[event == null ? 0 : event.n, other == null ? 0 : other.n]""#
  private static let keys = "key: event.k, otherKey: other.k"

  private static func yaml(_ join: String, _ source: String = "", behind: String = "") -> String {
    let which = join.contains("emit:") ? "meta.pane, meta.retracts ? '-' : '+'" : "'on-time', '+'"
    return """
      name: t
      sources: { a: { scripted: {}\(source) }, b: { scripted: {}\(source) } }
      signals: { joined: { from: a, chain: [ { join: { signal: b, \(join) } } ] } }
      sinks:
        out:
          from: joined
          chain: [ { map: "[\(which), event]" } ]
          probe: {}
      \(behind)
      """
  }

  private static func run(_ yaml: String, _ one: Input, _ other: Input, isCut: Bool = false) throws -> PipelineRun {
    var options = PipelineRun.Options()
    if isCut {
      options.cutAfter = { _ in true }
      options.keepsPages = true
    }
    return try PipelineRun(yaml, sources: ["a": one.source, "b": other.source], options: options)
  }

  private static func said(_ run: PipelineRun) -> [String] { run.out.entries.map { "\($0.at) \($0.moment)" } }

  private struct Row {
    var at: TimeSpan
    var pane: String
    var sign: String
    var one: Int
    var other: Int
    var text: String { "\(one) \(other)" }
    var isAlone: Bool { one == 0 || other == 0 }
  }

  private static func rows(_ run: PipelineRun) throws -> [Row] {
    try run.out.entries.filter { "\($0.moment)" != "the completion" }.map { entry in
      let parts = try #require(
        try JSONSerialization.jsonObject(with: Data("\(entry.moment)".utf8)) as? [Any], "\(entry.moment)")
      let pair = try #require(parts[2] as? [Int])
      return Row(
        at: entry.at, pane: parts[0] as? String ?? "", sign: parts[1] as? String ?? "", one: pair[0], other: pair[1])
    }
  }

  /// The rows that are left after the retractions. Fails if a row is retracted that is not there, or there twice.
  private static func table(_ rows: [Row], _ note: Comment) -> [String: Row] {
    var table: [String: Row] = [:]
    for row in rows {
      if row.sign == "-" {
        #expect(table.removeValue(forKey: row.text) != nil, "\(row.text) is not there, \(note)")
        #expect(row.isAlone && row.pane == "early", note)
      } else {
        #expect(table.updateValue(row, forKey: row.text) == nil, "\(row.text) is there twice, \(note)")
        #expect(row.isAlone || row.pane == "on-time", note)
      }
    }
    return table
  }

  /// However unmatched events are sent, the rows that remain are those of `emit: close`, and each unmatched event is sent as early as it should be.
  @Test(arguments: ["left", "right", "full"], ["clock", "in order", "out of order"])
  func whatRemainsIsWhatCloseSends(_ unmatched: String, _ order: String) throws {
    let lateness = order == "out of order" ? 6 : 0
    let source = order == "clock" ? "" : ", time: timestamp(event.t), lateness: \(lateness)s"
    let unit = order == "clock" ? "ms" : "s"
    let behind =
      order == "clock"
      ? ""
      : #"  windows: { from: joined, chain: [ { window: { every: 2s, aggregate: { from: int(start), n: count() } } } ], probe: {} }"#
    for seed in 0..<12 {
      let (one, other) = Self.random(seed, lateness: lateness)
      let (before, after) = [(3, 3), (0, 6), (7, 2), (5, 0), (20, 30)][seed % 5]
      let join =
        "within: { before: \(before)\(unit), after: \(after)\(unit) }, \(Self.keys), unmatched: \(unmatched), \(Self.numbers)"
      let close = try Self.run(Self.yaml(join, source, behind: behind), one, other)
      let wanted = Self.table(
        try Self.rows(close).map { Row(at: $0.at, pane: "on-time", sign: $0.sign, one: $0.one, other: $0.other) },
        "close")
      let arrivals = Dictionary(uniqueKeysWithValues: (one.items + other.items).map { ($0.number, $0.at) })
      for (emit, early) in [
        ("close", nil), ("update", TimeSpan.zero), ("{ early: 2ms }", .milliseconds(2)),
        ("{ early: 1s }", .milliseconds(1000)),
      ] {
        let note: Comment = "\(unmatched), \(order), \(emit), seed \(seed)"
        let yaml = Self.yaml("\(join), emit: \(emit)", source, behind: behind)
        let run = try Self.run(yaml, one, other)
        let rows = try Self.rows(run)
        let table = Self.table(rows, note)
        #expect(Set(table.keys) == Set(wanted.keys), note)
        if emit == "close" || emit == "{ early: 1s }" { #expect(!rows.contains { $0.pane != "on-time" }, note) }
        for row in table.values {
          let certain = try #require(wanted[row.text]).at
          guard row.isAlone, let early, let arrival = arrivals[row.one + row.other] else {
            #expect(row.at == certain, "\(row.text), \(note)")
            continue
          }
          #expect(row.at == min(certain, .milliseconds(arrival) + early), "\(row.text), \(note)")
        }
        // A window downstream counts each row that remains, and none is late.
        #expect(run.texts["windows"] == close.texts["windows"], note)
        #expect(run.deadLetters.isEmpty, note)
        #expect(run.pendingTimers == 0, note)
        let cut = try Self.run(yaml, one, other, isCut: true)
        #expect(Self.said(cut) == Self.said(run), "restored: \(note)")
        #expect(cut.texts["windows"] == run.texts["windows"], "restored: \(note)")
        #expect(cut.refusals.isEmpty, note)
      }
    }
  }

  private static func one(_ at: Int64, _ time: Int, key: Int = 0, number: Int = 1, end: Int64 = 50) -> Input {
    Input(items: [Item(at: at, number: number, key: key, time: time)], end: end)
  }

  @Test(arguments: ["", ", time: timestamp(event.t)"], [false, true])
  func aPartnerTakesTheRowBack(_ source: String, _ isCut: Bool) throws {
    let unit = source.isEmpty ? "ms" : "s"
    let first = Self.one(1, 10)
    let others = Input(
      items: [Item(at: 5, number: 8, key: 0, time: 12), Item(at: 6, number: 9, key: 0, time: 13)], end: 60)
    func said(_ emit: String) throws -> [String] {
      try Self.said(
        Self.run(
          Self.yaml("within: 20\(unit), \(Self.keys), unmatched: full, \(Self.numbers), emit: \(emit)", source), first,
          others, isCut: isCut))
    }
    let pairs = [#"5ms ["on-time","+",[1,8]]"#, #"6ms ["on-time","+",[1,9]]"#, "60ms the completion"]
    #expect(try said("update") == [#"1ms ["early","+",[1,0]]"#, #"5ms ["early","-",[1,0]]"#] + pairs)
    #expect(
      try said("{ early: 3ms }") == [#"4ms ["early","+",[1,0]]"#, #"5ms ["early","-",[1,0]]"#] + pairs)
    #expect(try said("{ early: 5ms }") == pairs)
  }

  /// What was sent is retracted, although `reduce` would have another result now.
  @Test(arguments: ["", ", time: timestamp(event.t)"], [false, true])
  func theRetractionIsTheRowThatWasSent(_ source: String, _ isCut: Bool) throws {
    let unit = source.isEmpty ? "ms" : "s"
    let run = try Self.run(
      Self.yaml(
        "within: 20\(unit), unmatched: left, emit: update, reduce: '[other == null, now.getMilliseconds()]'", source),
      Self.one(1, 10), Self.one(5, 12), isCut: isCut)
    #expect(
      Self.said(run).dropLast() == [
        #"1ms ["early","+",[true,1]]"#, #"5ms ["early","-",[true,1]]"#, #"5ms ["on-time","+",[false,5]]"#,
      ])
  }

  /// Without `reduce` the list is made again.
  @Test(arguments: ["", ", time: timestamp(event.t)"], [false, true])
  func listsAreTakenBack(_ source: String, _ isCut: Bool) throws {
    let unit = source.isEmpty ? "ms" : "s"
    let run = try Self.run(
      Self.yaml("within: 20\(unit), unmatched: right, emit: update", source), Self.one(5, 10),
      Self.one(1, 12, number: 2),
      isCut: isCut)
    #expect(
      Self.said(run).dropLast() == [
        #"1ms ["early","+",[null,{"k":0,"n":2,"t":12}]]"#, #"5ms ["early","-",[null,{"k":0,"n":2,"t":12}]]"#,
        #"5ms ["on-time","+",[{"k":0,"n":1,"t":10},{"k":0,"n":2,"t":12}]]"#,
      ])
  }

  /// An event that is rejected at the limit has no row, as with `emit: close`.
  @Test(arguments: ["", ", time: timestamp(event.t)"], [false, true])
  func theLimitTakesRowsBack(_ source: String, _ isCut: Bool) throws {
    let unit = source.isEmpty ? "ms" : "s"
    let first = Input(items: (1...3).map { Item(at: Int64($0), number: $0, key: $0, time: 9 + $0) }, end: 50)
    func run(_ emit: String) throws -> PipelineRun {
      try Self.run(
        Self.yaml("within: 90\(unit), \(Self.keys), unmatched: left, limit: 2, \(Self.numbers), emit: \(emit)", source),
        first, Self.one(20, 11, key: 3, number: 9), isCut: isCut)
    }
    let note: Comment = "\(source)"
    let (close, update) = (try run("close"), try run("update"))
    #expect(try Self.rows(update).filter { $0.sign == "-" }.map(\.text) == ["1 0", "3 0"], note)
    #expect(Set(Self.table(try Self.rows(update), note).keys) == Set(Self.table(try Self.rows(close), note).keys))
    if !isCut { #expect(update.counters.rejected == 1) }
  }

  /// A stop sends nothing as unmatched, and leaves what was sent.
  @Test(arguments: ["", ", time: timestamp(event.t)"]) func aStopLeavesWhatWasSent(_ source: String) throws {
    var options = PipelineRun.Options()
    options.drainAt = .milliseconds(4)
    let first = Input(
      items: [Item(at: 1, number: 1, key: 0, time: 10), Item(at: 3, number: 2, key: 0, time: 11)], end: 90)
    let run = try PipelineRun(
      Self.yaml("within: 90s, unmatched: left, emit: { early: 2ms }, \(Self.numbers)", source),
      sources: ["a": first.source, "b": Input(items: [], end: 90).source], options: options)
    #expect(Self.said(run).dropLast() == [#"3ms ["early","+",[1,0]]"#])
    #expect(run.log.contains { $0.contains("stopped before 1 event of the first signal") }, "\(run.log)")
  }

  /// Rows that can be retracted are counted as memory, and freed with their events.
  @Test(arguments: ["", ", time: timestamp(event.t)"]) func theRowsAreFreed(_ source: String) throws {
    func bytes(_ emit: String, until: Int64) throws -> (events: Int, bytes: Int) {
      let first = Input(
        items: (0..<50).map { Item(at: 1, number: $0, key: $0, time: 10) } + [
          Item(at: 200, number: 99, key: 99, time: 900)
        ], end: 500)
      let other = Input(items: [Item(at: 201, number: 98, key: 98, time: 901)], end: 500)
      var options = PipelineRun.Options()
      options.until = .milliseconds(until)
      let unit = source.isEmpty ? "ms" : "s"
      let run = try PipelineRun(
        Self.yaml(
          "within: 100\(unit), \(Self.keys), unmatched: left, reduce: { text: \"'a text of some length, ' + string(event.n)\" }, emit: \(emit)",
          source), sources: ["a": first.source, "b": other.source], options: options)
      let step = try #require(run.step("join"))
      return (step.keptEvents ?? 0, step.keptBytes ?? 0)
    }
    let (plain, early) = (try bytes("close", until: 50), try bytes("update", until: 50))
    #expect(plain.events == 50 && early.events == 50)
    #expect(early.bytes > plain.bytes + 50 * 24)
    let (after, before) = (try bytes("update", until: 250), try bytes("close", until: 250))
    #expect(after.events == before.events)
    #expect(after.bytes < before.bytes + 400)
  }

  // MARK: The file

  private static func messages(_ join: String, behind: String = "", time: Bool = true) -> [String] {
    let time = time ? ", time: timestamp(event.t)" : ""
    return FrontEnd(.builtIn).compile(
      """
      sources: { a: { stdin: { decode: json }\(time) }, b: { file: { path: x, decode: json }\(time) } }
      sinks: { out: { from: a, chain: [ { join: { signal: b, \(join) } }\(behind) ], stdout: { encode: json } } }
      """
    ).diagnostics.map(\.message)
  }

  @Test func whatMeansNothingIsAnError() {
    #expect(
      Self.messages("within: 1s, emit: update") == [
        "'emit' of 'join' needs 'unmatched': a pair is sent at once and never changes"
      ])
    #expect(
      Self.messages("within: 1s, emit: { early: 1s }") == [
        "'emit' of 'join' needs 'unmatched': a pair is sent at once and never changes"
      ])
    #expect(
      Self.messages("within: 1s, unmatched: left, emit: { update: 2s }") == [
        "'update' of 'join' takes no time: a pair is sent at once, with the row that it retracts"
      ])
    #expect(
      Self.messages("within: 1s, unmatched: left, emit: { early: 1s, pairs: true }") == [
        "'pairs' of 'join' has no effect: a row without a partner is always retracted before the pair"
      ])
    #expect(
      Self.messages("asOf: true, unmatched: left, emit: update") == [
        "'emit' of 'join' cannot go with 'asOf': an event is sent once, when its version is certain"
      ])
    #expect(Self.messages("within: 1s, emit: close").isEmpty)
    for emit in ["close", "update", "{ update: 0s }", "{ early: 1m }"] {
      #expect(Self.messages("within: 1s, unmatched: full, emit: \(emit)").isEmpty)
      #expect(Self.messages("within: 1s, unmatched: full, emit: \(emit)", time: false).isEmpty)
    }
  }

  /// Steps downstream know that rows are taken back.
  @Test func stepsDownstreamKnowOfRetractions() {
    #expect(
      Self.messages("within: 1s, unmatched: left, emit: update", behind: ", { count: {} }") == [
        "'count' treats retracted rows as further events"
      ])
    #expect(Self.messages("within: 1s, unmatched: left, emit: close", behind: ", { count: {} }").isEmpty)
    #expect(Self.messages("within: 1s, unmatched: left, emit: update", behind: ", { aggregate: count() }").isEmpty)
  }
}
