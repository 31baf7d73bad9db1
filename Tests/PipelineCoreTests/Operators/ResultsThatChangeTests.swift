import Foundation
import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// Results that are sent before they are final, and later corrected: `emit`, `allowedLateness`, `latest`, `topN`.
@Suite struct ResultsThatChangeTests {
  private struct Item {
    var at: Int64
    var key: Int
    var time: Int
    var n: Int
  }

  private static func source(_ items: [Item], end: Int64? = nil) -> ScriptedSource {
    var entries = items.map { item in
      SignalHistory.Entry(
        at: .milliseconds(item.at),
        .next((try? MarbleCase.value("{k: \(item.key), t: \(item.time), n: \(item.n)}")) ?? .null))
    }
    entries.append(.init(at: .milliseconds(end ?? (items.last?.at ?? 0) + 1), .complete))
    return ScriptedSource(SignalHistory(entries).script)
  }

  private static func random(_ seed: Int, _ count: Int = 40, _ disorder: Int = 9) -> [Item] {
    var random = SplitMix(UInt64(seed))
    var now = 100
    return (0..<count).map { index in
      now += random.below(5)
      return Item(
        at: Int64(index / 2), key: random.below(3), time: max(0, now - random.below(disorder)), n: random.below(20))
    }
  }

  private static func cutting(_ isCut: Bool = true) -> PipelineRun.Options {
    var options = PipelineRun.Options()
    options.cutAfter = { _ in isCut }
    return options
  }

  private static func pipeline(_ chain: String, _ source: String = "") -> String {
    """
    name: t
    sources: { a: { scripted: {}\(source) } }
    sinks:
      out:
        from: a
        chain: [ \(chain), { map: "[meta.pane, meta.retracts ? '-' : meta.replaces ? '=' : '+', event]" } ]
        probe: {}
    """
  }

  private static func said(_ run: PipelineRun) -> [String] {
    run.out.entries.map { "\($0.at) \($0.moment)" } + run.deadLetters.map { String($0.prefix { $0 != "," }) }
  }

  /// A row with its metadata.
  private struct Row {
    var pane: String
    var sign: String
    var fields: [String: Int]
    var text: String
  }

  private static func rows(_ run: PipelineRun) throws -> [Row] {
    try run.out.entries.dropLast().map { entry in
      let parts = try #require(
        try JSONSerialization.jsonObject(with: Data("\(entry.moment)".utf8)) as? [Any], "\(entry.moment)")
      let fields = (parts[2] as? [String: Any])?.compactMapValues { $0 as? Int } ?? [:]
      return Row(
        pane: parts[0] as? String ?? "", sign: parts[1] as? String ?? "", fields: fields,
        text: fields.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: " "))
    }
  }

  /// The content of a table with this key after all rows. Fails if a row retracts or replaces one that does not exist.
  private static func table(
    _ rows: [Row], by key: [String], _ note: String, sourceLocation: Testing.SourceLocation = #_sourceLocation
  ) -> Set<String> {
    var table: [String: String] = [:]
    for row in rows {
      let name = key.map { "\(row.fields[$0] ?? -1)" }.joined(separator: " ")
      switch row.sign {
      case "-":
        #expect(table[name] == row.text, "taken back without being there: \(note)", sourceLocation: sourceLocation)
        table[name] = nil
      case "=":
        #expect(table[name] != nil, "replaces nothing: \(note)", sourceLocation: sourceLocation)
        table[name] = row.text
      default:
        #expect(table[name] == nil, "there twice: \(row.text), \(note)", sourceLocation: sourceLocation)
        table[name] = row.text
      }
    }
    return Set(table.values)
  }

  // MARK: Windows

  /// If nothing is sent early or late, windows with `emit` equal those without.
  @Test(
    arguments: [
      "every: 10s", "every: 4s, length: 10s", "gap: 6s", "gap: 6s, inclusive: true",
      "every: 7s, aggregate: { n: count(), t: min(event.t) }", "gap: 5s, aggregate: { n: count(), to: int(end) }",
      "every: 4s, length: 9s, aggregate: { n: count(), at: int(start) }", "every: 3ms, clock: true",
      "gap: 2ms, clock: true", "every: 3ms, clock: true, aggregate: { n: count(), t: sum(event.t) }",
    ], [false, true])
  func closedWindowsAreTheSame(_ form: String, _ isGrouped: Bool) throws {
    let more =
      form.contains("aggregate") ? "" : ", to: '{\"from\": int(start), \"to\": int(end), \"t\": events.map(e, e.t)}'"
    func yaml(_ emit: String) -> String {
      let window = "{ window: { \(form)\(more)\(emit) } }"
      let chain = isGrouped ? "{ groupBy: { key: event.k, chain: [ { filter: event.t > 0 }, \(window) ] } }" : window
      return Self.pipeline(chain, ", time: timestamp(event.t), lateness: 4s")
        .replacing("[meta.pane, meta.retracts ? '-' : meta.replaces ? '=' : '+', event]", with: "event")
    }
    for seed in 0..<8 {
      let source = Self.source(Self.random(seed))
      let wanted = try PipelineRun(yaml(""), sources: ["a": source])
      let got = try PipelineRun(yaml(", emit: close"), sources: ["a": source])
      // Sessions of several groups that end at the same clock instant have no defined order.
      if form.contains("gap"), form.contains("clock") {
        #expect(Self.said(got).sorted() == Self.said(wanted).sorted(), "seed \(seed)")
      } else {
        #expect(Self.said(got) == Self.said(wanted), "seed \(seed)")
      }
      let cut = try PipelineRun(yaml(", emit: close"), sources: ["a": source], options: Self.cutting())
      #expect(Self.said(cut) == Self.said(got), "restored, seed \(seed)")
      #expect(cut.refusals.isEmpty)
    }
  }

  /// However results are sent, a table that follows them finally has the result of all events in time.
  @Test(
    arguments: [
      "close", "update", "{ update: 2ms }", "{ early: 3ms }", "{ update: 0s, pairs: true }",
      "{ early: 2ms, pairs: true }",
    ],
    ["every: 10s", "every: 4s, length: 8s", "gap: 3s"])
  func aTableHasTheResult(_ emit: String, _ form: String) throws {
    for late in [0, 5, 30] {
      let allowed = late == 0 ? "" : ", allowedLateness: \(late)s"
      let window =
        "{ window: { \(form)\(allowed), emit: \(emit), aggregate: { k: meta.key, at: int(start), n: count(), s: sum(event.n) } } }"
      let yaml = Self.pipeline(
        "{ groupBy: { key: event.k, chain: [ \(window) ] } }", ", time: timestamp(event.t), lateness: 1s")
      for seed in 0..<2 {
        let note = "\(form), \(emit), late \(late), seed \(seed)"
        let items = Self.random(seed, 50, 25)
        let run = try PipelineRun(yaml, sources: ["a": Self.source(items)])
        let rows = try Self.rows(run)
        let got = Self.table(rows, by: ["k", "at"], note)
        #expect(got == Self.model(items, form, late: late, rejected: run.deadLetters.count, note), "\(note)")
        if late == 0 { #expect(!rows.contains { $0.pane == "late" }) }
        if emit == "close" { #expect(!rows.contains { $0.pane == "early" }) }
        let cut = try PipelineRun(yaml, sources: ["a": Self.source(items)], options: Self.cutting())
        #expect(Self.said(cut) == Self.said(run), "restored: \(note)")
        #expect(cut.refusals.isEmpty)
      }
    }
  }

  /// The windows of all events that are not too late, computed by a walk over the events.
  private static func model(_ items: [Item], _ form: String, late: Int, rejected: Int, _ note: String) -> Set<String> {
    var watermark = Int.min
    var lost = 0
    var tables: [String: (n: Int, s: Int)] = [:]
    var sessions: [Int: [(from: Int, to: Int, n: Int, s: Int)]] = [:]
    for item in items {
      if form.hasPrefix("gap") {
        let near = (sessions[item.key] ?? []).filter {
          $0.from - item.time < 3 && item.time - $0.to < 3 && $0.to + 3 + late > watermark
        }
        if near.isEmpty, watermark > .min, item.time + 3 + late <= watermark {
          lost += 1
          continue
        }
        var new = (from: item.time, to: item.time, n: 1, s: item.n)
        for old in near {
          new = (min(new.from, old.from), max(new.to, old.to), new.n + old.n, new.s + old.s)
          sessions[item.key]?.removeAll { $0.from == old.from }
        }
        sessions[item.key, default: []].append(new)
      } else {
        let (every, length) = form.hasPrefix("every: 10s") ? (10, 10) : (4, 8)
        let starts = stride(from: item.time / every * every, to: item.time - length, by: -every)
          .filter { watermark == .min || $0 + length + late > watermark }
        if starts.isEmpty { lost += 1 }
        for start in starts {
          let name = "at=\(start) k=\(item.key)"
          tables[name] = ((tables[name]?.n ?? 0) + 1, (tables[name]?.s ?? 0) + item.n)
        }
        if starts.isEmpty { continue }
      }
      watermark = max(watermark, item.time - 1)
    }
    #expect(lost == rejected, "rejected: \(note)")
    for (key, list) in sessions {
      for session in list { tables["at=\(session.from) k=\(key)"] = (session.n, session.s) }
    }
    return Set(tables.map { "\($0.key) n=\($0.value.n) s=\($0.value.s)" })
  }

  @Test(arguments: [false, true]) func aWindowSaysWhichResultItIs(_ isCut: Bool) throws {
    func run(_ emit: String) throws -> [String] {
      let items = [(0, 1), (1, 2), (8, 3), (9, 12), (10, 4), (12, 5), (13, 90)].map {
        Item(at: Int64($0.0), key: 0, time: $0.1, n: 1)
      }
      return try Self.said(
        PipelineRun(
          Self.pipeline(
            "{ window: { every: 10s, allowedLateness: 1m, aggregate: count(), \(emit) } }",
            ", time: timestamp(event.t)"),
          sources: ["a": Self.source(items, end: 20)], options: Self.cutting(isCut)))
    }
    #expect(
      try run("emit: close") == [
        #"9ms ["on-time","+",3]"#, #"10ms ["late","=",4]"#, #"12ms ["late","=",5]"#, #"13ms ["on-time","+",1]"#,
        #"20ms ["on-time","+",1]"#, "20ms the completion",
      ])
    #expect(
      try run("emit: { early: 5ms }") == [
        #"5ms ["early","+",2]"#, #"9ms ["on-time","=",3]"#, #"10ms ["late","=",4]"#, #"12ms ["late","=",5]"#,
        #"13ms ["on-time","+",1]"#, #"18ms ["early","+",1]"#, #"20ms ["on-time","=",1]"#, "20ms the completion",
      ])
    #expect(
      try run("emit: { update: 5ms, pairs: true }") == [
        #"0s ["early","+",1]"#, #"5ms ["early","-",1]"#, #"5ms ["early","+",2]"#,
        // The third event arrived 3 ms after the last sent result, so its window closes before it is sent.
        #"9ms ["early","+",1]"#, #"9ms ["on-time","-",2]"#, #"9ms ["on-time","+",3]"#,
        #"13ms ["early","+",1]"#,
        // The last correction of the first window: the watermark is a minute past its end.
        #"13ms ["late","-",3]"#, #"13ms ["late","+",5]"#, "20ms the completion",
      ])
  }

  /// Without `to` or aggregates, a row is the list of the events, in the order of their times.
  @Test(arguments: [false, true]) func listsAreCorrected(_ isCut: Bool) throws {
    let items = [(0, 3), (1, 1), (2, 15), (3, 2)].map { Item(at: Int64($0.0), key: 0, time: $0.1, n: 1) }
    let run = try PipelineRun(
      Self.pipeline(
        "{ window: { every: 10s, allowedLateness: 1m, emit: { update: 0s, pairs: true }, to: 'events.map(e, e.t)' } }",
        ", time: timestamp(event.t), lateness: 2s"),
      sources: ["a": Self.source(items)], options: Self.cutting(isCut))
    #expect(
      Self.said(run) == [
        #"0s ["early","+",[3]]"#, #"1ms ["early","-",[3]]"#, #"1ms ["early","+",[1,3]]"#, #"2ms ["early","+",[15]]"#,
        #"3ms ["late","-",[1,3]]"#, #"3ms ["late","+",[1,2,3]]"#, "4ms the completion",
      ])
  }

  /// A pause of the stream closes windows, but late events can still correct them.
  @Test(arguments: [false, true]) func aPauseEndsNoLateness(_ isCut: Bool) throws {
    let items = [(0, 1), (50, 2), (51, 11), (52, 3)].map { Item(at: Int64($0.0), key: 0, time: $0.1, n: 1) }
    let run = try PipelineRun(
      Self.pipeline(
        "{ groupBy: { key: event.k, chain: [ { window: { every: 10s, allowedLateness: 1h, aggregate: count() } } ] } }",
        ", time: timestamp(event.t), idle: 5ms"),
      sources: ["a": Self.source(items)], options: Self.cutting(isCut))
    #expect(
      Self.said(run) == [
        #"5ms ["on-time","+",1]"#, #"50ms ["late","=",2]"#, #"52ms ["late","=",3]"#, #"53ms ["on-time","+",1]"#,
        "53ms the completion",
      ])
  }

  // MARK: Figures

  @Test(arguments: ["update", "{ update: 3ms }", "{ early: 3ms }", "{ update: 2ms, pairs: true }"])
  func figuresFollowEveryChange(_ emit: String) throws {
    let yaml = Self.pipeline(
      "{ groupBy: { key: event.k, chain: [ { aggregate: { figures: { k: meta.key, n: count(), s: sum(event.n) }, emit: \(emit) } } ] } }"
    )
    for seed in 0..<8 {
      let items = Self.random(seed)
      let run = try PipelineRun(yaml, sources: ["a": Self.source(items)])
      var sums: [Int: (Int, Int)] = [:]
      for item in items { sums[item.key] = ((sums[item.key]?.0 ?? 0) + 1, (sums[item.key]?.1 ?? 0) + item.n) }
      #expect(
        Self.table(try Self.rows(run), by: ["k"], "seed \(seed)")
          == Set(sums.map { "k=\($0.key) n=\($0.value.0) s=\($0.value.1)" }))
      if emit == "update" { #expect(run.out.entries.count == items.count + 1) }
      let cut = try PipelineRun(yaml, sources: ["a": Self.source(items)], options: Self.cutting())
      #expect(Self.said(cut) == Self.said(run), "restored, seed \(seed)")
      #expect(cut.refusals.isEmpty)
    }
  }

  /// Sums of changing aggregates: retracted rows are subtracted, and a group without rows has no sum.
  @Test func sumsTakeRowsBack() throws {
    let yaml = Self.pipeline(
      """
      { groupBy: { key: event.k, chain: [ { aggregate: { figures: { k: meta.key, top: max(event.n) }, emit: { update: 0s, pairs: true } } } ] } },
      { groupBy: { key: event.top % 4, chain: [ { aggregate: { figures: { g: meta.key, n: count(), s: sum(event.top), m: avg(event.top) }, emit: update } } ] } },
      { set: { m: int(event.m * 12.0) } }
      """)
    for seed in 0..<12 {
      let items = Self.random(seed).map { Item(at: $0.at, key: $0.key, time: $0.time, n: $0.n) }
      let run = try PipelineRun(yaml, sources: ["a": Self.source(items)])
      var tops: [Int: Int] = [:]
      for item in items { tops[item.key] = max(tops[item.key] ?? 0, item.n) }
      var groups: [Int: [Int]] = [:]
      for top in tops.values { groups[top % 4, default: []].append(top) }
      let wanted = groups.map { group, tops in
        let sum = tops.reduce(0, +)
        return "g=\(group) m=\(Int(Double(sum) / Double(tops.count) * 12)) n=\(tops.count) s=\(sum)"
      }
      #expect(Self.table(try Self.rows(run), by: ["g"], "seed \(seed)") == Set(wanted), "seed \(seed)")
      let cut = try PipelineRun(yaml, sources: ["a": Self.source(items)], options: Self.cutting())
      #expect(Self.said(cut) == Self.said(run), "restored, seed \(seed)")
      #expect(cut.refusals.isEmpty)
    }
  }

  /// Minutes that are corrected, in hours that retract the old counts.
  @Test func windowsTakeRowsBack() throws {
    let yaml = Self.pipeline(
      """
      { window: { every: 5s, allowedLateness: 30s, emit: { update: 0s, pairs: true }, aggregate: { at: int(start), n: count() } } },
      { window: { every: 20s, allowedLateness: 40s, emit: update, aggregate: { at: int(start), n: sum(event.n), parts: count() } } }
      """, ", time: timestamp(event.t)")
    for seed in 0..<8 {
      let items = Self.random(seed, 60, 25)
      for options in [PipelineRun.Options(), Self.cutting()] {
        let run = try PipelineRun(yaml, sources: ["a": Self.source(items)], options: options)
        #expect(run.deadLetters.isEmpty)
        var parts: [Int: [Int: Int]] = [:]
        for item in items { parts[item.time / 20 * 20, default: [:]][item.time / 5, default: 0] += 1 }
        #expect(
          Self.table(try Self.rows(run), by: ["at"], "seed \(seed)")
            == Set(parts.map { "at=\($0.key) n=\($0.value.values.reduce(0, +)) parts=\($0.value.count)" }))
      }
    }
  }

  // MARK: latest and topN

  @Test(arguments: [false, true]) func theLatestOfEachKey(_ pairs: Bool) throws {
    for timed in [false, true] {
      let yaml = Self.pipeline(
        "{ latest: { by: event.k, pairs: \(pairs) } }", timed ? ", time: timestamp(event.t), lateness: 1h" : "")
      for seed in 0..<8 {
        let items = Self.random(seed)
        let run = try PipelineRun(yaml, sources: ["a": Self.source(items)])
        var newest: [Int: Item] = [:]
        for item in items where !timed || item.time >= (newest[item.key]?.time ?? 0) { newest[item.key] = item }
        #expect(
          Self.table(try Self.rows(run), by: ["k"], "seed \(seed)")
            == Set(newest.values.map { "k=\($0.key) n=\($0.n) t=\($0.time)" }))
        let cut = try PipelineRun(yaml, sources: ["a": Self.source(items)], options: Self.cutting())
        #expect(Self.said(cut) == Self.said(run), "restored, seed \(seed)")
        #expect(cut.refusals.isEmpty)
      }
    }
  }

  @Test(arguments: ["descending", "ascending"]) func theFirstOfEachKey(_ order: String) throws {
    let yaml = Self.pipeline("{ topN: { by: event.n, count: 3, per: event.k, order: \(order) } }")
    for seed in 0..<8 {
      var items = Self.random(seed)
      for index in items.indices { items[index].time = index }
      let run = try PipelineRun(yaml, sources: ["a": Self.source(items)])
      var wanted: Set<String> = []
      for key in 0..<3 {
        let ranked = items.filter { $0.key == key }.sorted {
          $0.n != $1.n ? ($0.n > $1.n) == (order == "descending") : $0.time < $1.time
        }
        for item in ranked.prefix(3) { wanted.insert("k=\(key) n=\(item.n) t=\(item.time)") }
      }
      let rows = try Self.rows(run)
      #expect(Self.table(rows, by: ["k", "t"], "seed \(seed)") == wanted)
      // The table never exceeds its maximum number of rows.
      var count = 0
      for row in rows where row.fields["k"] == 0 {
        count += row.sign == "-" ? -1 : 1
        #expect(count <= 3)
      }
      let cut = try PipelineRun(yaml, sources: ["a": Self.source(items)], options: Self.cutting())
      #expect(Self.said(cut) == Self.said(run), "restored, seed \(seed)")
      #expect(cut.refusals.isEmpty)
    }
  }

  /// The top of changing sums: one that falls is replaced by the next.
  @Test func theFirstOfSumsThatChange() throws {
    let yaml = Self.pipeline(
      """
      { groupBy: { key: event.t % 7, chain: [ { aggregate: { figures: { g: meta.key, s: 'sum(event.k == 0 ? -event.n : event.n)' }, emit: { update: 0s, pairs: true } } } ] } },
      { topN: { by: event.s, count: 2 } }
      """)
    for seed in 0..<12 {
      let items = Self.random(seed, 60)
      let run = try PipelineRun(yaml, sources: ["a": Self.source(items)])
      var sums: [Int: Int] = [:]
      for item in items { sums[item.time % 7, default: 0] += item.key == 0 ? -item.n : item.n }
      let table = Self.table(try Self.rows(run), by: ["g"], "seed \(seed)")
      #expect(table.count == 2)
      let least = sums.values.sorted(by: >)[1]
      for row in table {
        #expect((Int(row.split(separator: "s=").last ?? "") ?? .min) >= least, "seed \(seed): \(table)")
      }
      #expect(table.isSubset(of: Set(sums.map { "g=\($0.key) s=\($0.value)" })))
      let cut = try PipelineRun(yaml, sources: ["a": Self.source(items)], options: Self.cutting())
      #expect(Self.said(cut) == Self.said(run), "restored, seed \(seed)")
    }
  }

  /// An idle key is removed, and a key beyond `maxKeys` is rejected.
  @Test(arguments: ["latest: { by: event.k, ", "topN: { by: event.n, count: 1, per: event.k, "], [false, true])
  func keysAreBounded(_ step: String, _ isCut: Bool) throws {
    let items = [(0, 1), (1, 2), (2, 3), (20, 3)].map { Item(at: Int64($0.0), key: $0.1, time: 0, n: 1) }
    let run = try PipelineRun(
      Self.pipeline("{ \(step)maxKeys: 2, idle: 10ms } }").replacing("event]\"", with: "event.k]\""),
      sources: ["a": Self.source(items)], options: Self.cutting(isCut))
    #expect(
      run.out.entries.map { "\($0.at) \($0.moment)" } == [
        #"0s ["early","+",1]"#, #"1ms ["early","+",2]"#, #"20ms ["early","+",3]"#, "21ms the completion",
      ])
    #expect(run.deadLetters.count == 1)
    #expect(run.deadLetters.first?.contains("maxKeys") == true)
  }

  // MARK: Mistakes

  private static func complaints(_ chain: String) -> [String] {
    let result = FrontEnd(PipelineRun.catalogue).compile(pipeline(chain), name: "t.yaml")
    return result.diagnostics.map { "\($0.code.name) \($0.message)" }
  }

  @Test func stepsThatWouldMistakeChangesAreFound() {
    let update = "{ aggregate: { figures: { n: count() }, emit: update } }"
    let pairs = "{ aggregate: { figures: { n: count() }, emit: { update: 1s, pairs: true } } }"
    func codes(_ chain: String) -> [String] { Self.complaints(chain).map { String($0.prefix(5)) } }
    #expect(codes("\(update), { filter: event.n > 1 }") == ["RX646"])
    #expect(codes("\(pairs), { filter: event.n > 1 }").isEmpty)
    #expect(codes("\(update), { set: { m: 1 } }").isEmpty)
    #expect(codes("\(update), { aggregate: sum(event.n) }") == ["RX646"])
    #expect(codes("\(pairs), { aggregate: sum(event.n) }").isEmpty)
    #expect(codes("\(pairs), { aggregate: max(event.n) }") == ["RX647"])
    #expect(codes("\(pairs), { scan: { start: 0, next: running + event.n } }") == ["RX646"])
    #expect(codes("\(pairs), { window: { every: 1m, aggregate: first(event.n) } }") == ["RX647"])
    #expect(codes("\(pairs), { window: { count: 3 } }") == ["RX646"])
    #expect(codes("{ aggregate: { figures: count(), emit: close } }, { filter: event > 1 }").isEmpty)
    #expect(codes("{ latest: event.k }, { topN: { by: event.n, count: 2 } }") == ["RX646"])
    #expect(codes("{ latest: { by: event.k, pairs: true } }, { topN: { by: event.n, count: 2 } }").isEmpty)
    #expect(
      codes("{ groupBy: { key: event.k, chain: [ \(update) ] } }, { aggregate: sum(event.n) }") == ["RX646"])
  }

  @Test func settingsThatContradictEachOther() {
    for chain in [
      "{ aggregate: { figures: count(), emit: { early: 1s, update: 1s } } }",
      "{ window: { every: 1m, allowedLateness: 1m } }", "{ window: { count: 3, emit: { update: 1s, pairs: true } } }",
      "{ window: { count: 3, emit: update, allowedLateness: 1m } }",
      "{ window: { every: 1m, length: 5m, emit: update, allowedLateness: 1m } }",
      "{ window: { every: 1m, time: event.t, empty: true, emit: update } }",
    ] {
      #expect(Self.complaints(chain).count == 1, "\(chain): \(Self.complaints(chain))")
    }
  }
}
