import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// Windows in groups: the groups belong to one stream, which has one event time.
@Suite struct GroupedWindowTests {
  /// An event with a key and a time in seconds.
  private struct Item {
    var at: Int64
    var key: Int
    var time: Int
  }

  private static func source(_ items: [Item], end: Int64? = nil) -> ScriptedSource {
    var entries = items.map { item in
      SignalHistory.Entry(
        at: .milliseconds(item.at),
        .next((try? MarbleCase.value("{k: \(item.key), t: \(item.time)}")) ?? .null))
    }
    entries.append(.init(at: .milliseconds(end ?? (items.last?.at ?? 0) + 1), .complete))
    return ScriptedSource(SignalHistory(entries).script)
  }

  private static func pipeline(_ chain: String, _ more: String = "") -> String {
    """
    name: t
    sources: { a: { scripted: {} } }
    sinks:
      out: { from: a, chain: [ { groupBy: { key: event.k, \(more)chain: [ \(chain) ] } }, { map: '[meta.key, event]' } ], probe: {} }
    """
  }

  private static func window(_ form: String) -> String {
    "{ window: { \(form), time: timestamp(event.t), to: '{\"from\": int(start), \"to\": int(end), \"t\": events.map(e, e.t)}' } }"
  }

  private static func said(_ run: PipelineRun) -> [String] {
    run.out.entries.map { "\($0.at) \($0.moment)" } + run.deadLetters
  }

  private static func cutting(_ body: @escaping (Int) -> Bool) -> PipelineRun.Options {
    var options = PipelineRun.Options()
    options.cutAfter = body
    return options
  }

  /// Windows that are shorter than their interval: events between two windows are dropped, and are not late. They advance the
  /// watermark.
  @Test(arguments: ["", ", emit: { update: 1ms }"], [false, true])
  func betweenWindowsNothingIsLate(_ emit: String, _ isCut: Bool) throws {
    let items = [1, 5, 7, 11, 15, 18, 2, 21].enumerated().map {
      Item(at: Int64($0.offset * 10), key: 1, time: $0.element)
    }
    let run = try PipelineRun(
      Self.pipeline(
        "{ window: { every: 10s, length: 4s, time: timestamp(event.t), aggregate: { n: count(), at: int(start) }\(emit) } }"
      ),
      sources: ["a": Self.source(items)], options: Self.cutting { _ in isCut })
    #expect(
      run.texts["out"] == [#"[1,{"n":1,"at":0}]"#, #"[1,{"n":1,"at":10}]"#, #"[1,{"n":1,"at":20}]"#], "\(run.texts)")
    // Only the event of a window that has closed.
    #expect(run.deadLetters.count == 1 && run.deadLetters[0].contains("RX521"), "\(run.deadLetters)")
    // Counts are per execution.
    if !isCut {
      #expect(run.counters.rejected == 1)
      #expect(run.statistics.steps.contains { $0.dropped == 4 }, "\(run.statistics.steps.map(\.dropped))")
    }
  }

  /// One group falls silent: its window is closed by the events of another, not by the end of the signal.
  @Test func theWatermarkIsTheStreams() throws {
    let items = [(1, 1), (2, 5), (2, 65), (2, 125), (2, 185)].enumerated().map {
      Item(at: Int64($0.offset * 10), key: $0.element.0, time: $0.element.1)
    }
    for options in [PipelineRun.Options(), Self.cutting { _ in true }] {
      let run = try PipelineRun(
        Self.pipeline(Self.window("every: 10s")), sources: ["a": Self.source(items)], options: options)
      #expect(
        run.out.entries.prefix(2).map { "\($0.at) \($0.moment)" } == [
          #"20ms [1,{"from":0,"t":[1],"to":10}]"#, #"20ms [2,{"from":0,"t":[5],"to":10}]"#,
        ])
      #expect(run.refusals.isEmpty)
    }
  }

  /// Lateness is determined for the stream, also for a group that has not existed before.
  @Test(arguments: [1, 3]) func lateIsLateForTheStream(_ key: Int) throws {
    let items = [Item(at: 0, key: 1, time: 1), Item(at: 1, key: 2, time: 185), Item(at: 2, key: key, time: 2)]
    for options in [PipelineRun.Options(), Self.cutting { _ in true }] {
      let run = try PipelineRun(
        Self.pipeline(Self.window("every: 10s")), sources: ["a": Self.source(items)], options: options)
      #expect(run.deadLetters.count == 1)
      #expect(run.deadLetters.first?.contains("RX521") == true)
      #expect(run.out.entries.count == 3)
    }
  }

  /// The event time is part of the saved state even if no group is left that has it.
  @Test func theWatermarkOutlivesTheGroups() throws {
    let items = [Item(at: 0, key: 1, time: 1), Item(at: 1, key: 2, time: 50), Item(at: 9, key: 3, time: 2)]
    let run = try PipelineRun(
      Self.pipeline(Self.window("every: 10s, idle: 3ms")), sources: ["a": Self.source(items)],
      options: Self.cutting { _ in true })
    #expect(run.deadLetters.first?.contains("RX521") == true)
    #expect(run.refusals.isEmpty)
  }

  /// A group without open windows is removed: many keys, one after another, never make many groups.
  @Test(arguments: ["every: 10s", "every: 5s, length: 10s", "gap: 4s"])
  func groupsThatAreOverAreForgotten(_ form: String) throws {
    let items = (0..<200).map { Item(at: Int64($0), key: $0, time: $0 * 10) }
    let run = try PipelineRun(
      Self.pipeline("{ filter: event.k >= 0 }, " + Self.window(form) + ", { map: event }", "maxGroups: 3, "),
      sources: ["a": Self.source(items)])
    #expect(run.deadLetters.isEmpty)
    #expect(Set(run.out.entries.map { "\($0.moment)" }).count > 200)
    let counted = try PipelineRun(
      Self.pipeline("{ window: { count: 1 } }", "maxGroups: 1, "), sources: ["a": Self.source(items)])
    #expect(counted.deadLetters.isEmpty && counted.out.entries.count == 201)
    let timed = try PipelineRun(
      Self.pipeline("{ window: 2ms }", "maxGroups: 3, "), sources: ["a": Self.source(items)])
    #expect(timed.deadLetters.isEmpty && timed.out.entries.count == 201)
  }

  /// Groups with state other than windows are not removed.
  @Test func whatKeepsMoreStays() throws {
    let items = (0..<4).map { Item(at: Int64($0), key: $0 % 2, time: $0 * 100) }
    let run = try PipelineRun(
      Self.pipeline(Self.window("every: 10s") + ", { scan: { start: 0, next: running + 1 } }"),
      sources: ["a": Self.source(items)])
    #expect(run.out.entries.dropLast().map { "\($0.moment)" } == ["[0,1]", "[1,1]", "[0,2]", "[1,2]"])
  }

  /// Windows by processing time start together, whenever their groups start.
  @Test func windowsOfAllGroupsBeginTogether() throws {
    let items = [(1, 1), (3, 2), (6, 1), (8, 3)].map { Item(at: $0.0, key: $0.1, time: 0) }
    let run = try PipelineRun(
      Self.pipeline("{ window: { every: 5ms, to: size(events) } }"), sources: ["a": Self.source(items, end: 20)])
    #expect(
      run.out.entries.dropLast().map { "\($0.at) \($0.moment)" } == [
        "5ms [1,1]", "5ms [2,1]", "10ms [1,1]", "10ms [3,1]",
      ])
  }

  @Test func aGapCanIncludeItsBound() throws {
    let items = [Item(at: 0, key: 1, time: 0), Item(at: 3, key: 1, time: 10), Item(at: 6, key: 1, time: 20)]
    func sizes(_ form: String) throws -> [String] {
      try PipelineRun(
        Self.pipeline("{ window: { \(form), to: size(events) } }"), sources: ["a": Self.source(items)]
      ).out.entries.dropLast().map { "\($0.moment)" }
    }
    #expect(try sizes("gap: 3ms") == ["[1,1]", "[1,1]", "[1,1]"])
    #expect(try sizes("gap: 3ms, inclusive: true") == ["[1,3]"])
    #expect(try sizes("gap: 10s, time: timestamp(event.t)") == ["[1,1]", "[1,1]", "[1,1]"])
    #expect(try sizes("gap: 10s, inclusive: true, time: timestamp(event.t)") == ["[1,3]"])
  }

  // MARK: Against a model

  private struct Form {
    var text: String
    var every = 0
    var length = 0
    var gap = 0
    var lateness = 0

    static func random(_ random: inout GraphGenerator) -> Form {
      let lateness = random.pick([0, 0, 3, 12])
      let late = lateness > 0 ? ", lateness: \(lateness)s" : ""
      switch random.below(3) {
      case 0:
        let every = 1 + random.below(10)
        return Form(text: "every: \(every)s\(late)", every: every, length: every, lateness: lateness)
      case 1:
        let every = 1 + random.below(6)
        let length = every + random.below(9)
        return Form(
          text: "every: \(every)s, length: \(length)s\(late)", every: every, length: length, lateness: lateness)
      default:
        let gap = 1 + random.below(8)
        return Form(text: "gap: \(gap)s\(late)", gap: gap, lateness: lateness)
      }
    }

    /// The output as unordered lines, and the number of late events: by the definition, event by event.
    func model(_ items: [Item]) -> (lines: [String], late: Int) {
      var lines: [String] = []
      var late = 0
      var watermark = Int.min
      // Events by key, with the ends of the windows that they still belong to, or the number of the session.
      var open: [(key: Int, end: Int, times: [Int])] = []
      func line(_ at: Int64, _ window: (key: Int, end: Int, times: [Int])) -> String {
        let from = gap > 0 ? window.times[0] : window.end - length
        let to = gap > 0 ? window.times[window.times.count - 1] : window.end
        let times = window.times.map(String.init).joined(separator: ",")
        return "\(at)ms [\(window.key),{\"from\":\(from),\"t\":[\(times)],\"to\":\(to)}]"
      }
      for item in items {
        if gap > 0 {
          var times = [item.time]
          let near = open.filter { window in
            window.key == item.key && window.times.contains { abs($0 - item.time) < gap }
          }
          if near.isEmpty, item.time + gap <= watermark {
            late += 1
            continue
          }
          open.removeAll { window in near.contains { $0.key == window.key && $0.end == window.end } }
          // Of equal times the first to arrive is first; they look the same here.
          for window in near { times += window.times }
          times.sort()
          open.append((item.key, times[times.count - 1] + gap, times))
        } else {
          var ends: [Int] = []
          // Windows start at multiples of `every`.
          var start = Int((Double(item.time) / Double(every)).rounded(.down)) * every
          while start + length > item.time {
            if start + length > watermark { ends.append(start + length) }
            start -= every
          }
          if ends.isEmpty {
            late += 1
            continue
          }
          for end in ends {
            if let at = open.firstIndex(where: { $0.key == item.key && $0.end == end }) {
              open[at].times.append(item.time)
              open[at].times.sort()
            } else {
              open.append((item.key, end, [item.time]))
            }
          }
        }
        watermark = max(watermark, item.time - lateness)
        for window in open where window.end <= watermark { lines.append(line(item.at, window)) }
        open.removeAll { $0.end <= watermark }
      }
      for window in open { lines.append(line((items.last?.at ?? 0) + 1, window)) }
      return (lines, late)
    }
  }

  @Test(arguments: 0..<60) func groupsOfWindowsAreAsDefined(_ seed: Int) throws {
    var random = GraphGenerator(seed: UInt64(seed))
    let form = Form.random(&random)
    var now = 0
    var items: [Item] = []
    for index in 0..<(1 + random.below(40)) {
      now += random.below(4)
      // Starting above 0 leaves room for earlier times.
      items.append(Item(at: Int64(index / 2), key: random.below(4), time: 100 + max(0, now - random.below(9))))
    }
    let yaml = Self.pipeline(Self.window(form.text))
    let source = Self.source(items)
    let run = try PipelineRun(yaml, sources: ["a": source])
    let (lines, late) = form.model(items)
    let got = run.out.entries.dropLast().map { "\($0.at) \($0.moment)" }
    func shown(_ lines: [String]) -> [String] { lines.sorted() }
    #expect(shown(got) == shown(lines.map { $0.hasPrefix("0ms") ? "0s" + $0.dropFirst(3) : $0 }), "\(form.text)")
    #expect(run.deadLetters.count == late, "\(form.text)")
    // At one instant the earliest window is first, also at the end.
    for (one, next) in zip(got, got.dropFirst())
    where one.prefix(while: { $0 != " " }) == next.prefix(while: { $0 != " " }) {
      func end(_ line: String) -> Int { Int(line.split(separator: "\"to\":")[1].prefix { $0 != "}" }) ?? 0 }
      #expect(end(one) <= end(next), "\(form.text)")
    }
    let cut = try PipelineRun(yaml, sources: ["a": source], options: Self.cutting { _ in true })
    #expect(Self.said(cut) == Self.said(run), "cut after each turn: \(form.text)")
    #expect(cut.refusals.isEmpty)
    let together = try PipelineRun(
      yaml, sources: ["a": ScriptedSource(source.script, joined: Set(items.indices))])
    #expect(Self.said(together) == Self.said(run))
  }

  /// A window of which only the count is needed stores no events, and sends the same as one that does.
  @Test(
    arguments: [
      "every: 10s, time: timestamp(event.t)", "every: 10s, length: 30s, time: timestamp(event.t)",
      "gap: 12s, time: timestamp(event.t)", "count: 3", "count: 4, step: 2", "every: 15ms", "every: 10ms, length: 20ms",
      "gap: 7ms",
    ], [false, true])
  func countingKeepsNoEvents(_ form: String, _ restarts: Bool) throws {
    var dice = SplitMix(9)
    var time = 0
    let items = (0..<60).map { index in
      time += dice.below(6)
      return Item(at: Int64(index * 5 + dice.below(5)), key: dice.below(3), time: time)
    }
    func said(_ events: String) throws -> [String] {
      let run = try PipelineRun(
        Self.pipeline("{ window: { \(form), to: { n: \"size(\(events))\", from: int(start), to: int(end) } } }"),
        sources: ["a": Self.source(items)], options: Self.cutting { _ in restarts })
      #expect(run.refusals.isEmpty)
      return Self.said(run)
    }
    let counted = try said("events")
    #expect(counted == (try said("events.map(e, e)")))
    #expect(counted.count > 10)
  }
}
