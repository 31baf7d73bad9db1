import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// `join` by event time: pairs within bounds, and versions of a table.
@Suite struct EventTimeJoinTests {
  /// An event of one of two signals: `at` is its arrival, `time` its event time, in seconds.
  private struct Item {
    var at: Int64
    var number: Int
    var key: Int
    var time: Int
  }

  /// One of the two signals, until its end.
  private struct Input {
    var items: [Item]
    var end: Int64
    var lateness: Int

    var source: ScriptedSource {
      var entries = items.map { item in
        SignalHistory.Entry(
          at: .milliseconds(item.at),
          .next((try? MarbleCase.value("{n: \(item.number), k: \(item.key), t: \(item.time)}")) ?? .null))
      }
      entries.append(.init(at: .milliseconds(end), .complete))
      return ScriptedSource(SignalHistory(entries).script)
    }

    /// The first instant at which the watermark is later than `time`.
    func certain(after time: Int) -> Int64 {
      items.first { $0.time - lateness > time }?.at ?? end
    }
  }

  private static func items(_ list: [(at: Int64, time: Int)], key: Int = 0, from number: Int = 1) -> [Item] {
    list.enumerated().map { Item(at: $0.element.at, number: number + $0.offset, key: key, time: $0.element.time) }
  }

  /// Two signals that are read at different speeds, each out of order by at most its lateness.
  private static func random(_ seed: Int, lateness: (Int, Int)? = nil) -> (Input, Input) {
    var random = SplitMix(UInt64(seed) &* 97 &+ 3)
    let lateness = lateness ?? (random.below(9), random.below(9))
    let speeds = (1 + random.below(4), 1 + random.below(4))
    let keys = 1 + random.below(3)
    var clocks = (20 + random.below(10), 20 + random.below(10))
    var (one, other): ([Item], [Item]) = ([], [])
    var at: Int64 = 0
    for number in 1...(20 + random.below(60)) {
      at += 1
      let key = random.below(keys)
      if random.below(2) == 0 {
        clocks.0 += random.below(speeds.0 + 1)
        one.append(Item(at: at, number: number, key: key, time: clocks.0 - random.below(lateness.0 + 1)))
      } else {
        clocks.1 += random.below(speeds.1 + 1)
        other.append(Item(at: at, number: number, key: key, time: clocks.1 - random.below(lateness.1 + 1)))
      }
    }
    let ends = random.below(2) == 0 ? (at + 5, at + 9) : (at + 9, at + 5)
    return (
      Input(items: one, end: ends.0, lateness: lateness.0), Input(items: other, end: ends.1, lateness: lateness.1)
    )
  }

  private static let numbers = #"reduce: "[event == null ? 0 : event.n, other == null ? 0 : other.n]""#

  private static func yaml(_ join: String, _ a: String, _ b: String, behind: String = "") -> String {
    """
    name: t
    sources:
      a: { scripted: {}, time: timestamp(event.t)\(a) }
      b: { scripted: {}, time: timestamp(event.t)\(b) }
    signals:
      joined: { from: a, chain: [ { join: { signal: b, \(join) } } ] }
    sinks:
      out: { from: joined, probe: {} }
    \(behind)
    """
  }

  private static func yaml(_ join: String, _ one: Input, _ other: Input, behind: String = "") -> String {
    yaml(join, ", lateness: \(one.lateness)s", ", lateness: \(other.lateness)s", behind: behind)
  }

  private static func run(
    _ yaml: String, _ one: Input, _ other: Input, cutAfter: ((Int) -> Bool)? = nil,
    until: TimeSpan? = nil
  ) throws -> PipelineRun {
    var options = PipelineRun.Options()
    if let cutAfter { options.cutAfter = cutAfter }
    // A cut continues from the state saved after each turn.
    options.keepsPages = cutAfter != nil
    options.until = until
    return try PipelineRun(yaml, sources: ["a": one.source, "b": other.source], options: options)
  }

  private static func said(_ run: PipelineRun) -> [String] { run.out.entries.map { "\($0.at) \($0.moment)" } }

  // MARK: Pairs within bounds

  /// A row of the whole input: when it is certain, the later of its times, and the numbers of its events.
  private struct Row: Comparable {
    var at: Int64
    var time: Int
    var one: Int
    var other: Int
    var text: String { "\(TimeSpan.milliseconds(at)) [\(one),\(other)]" }
    static func < (a: Row, b: Row) -> Bool { a.text < b.text }
  }

  /// Flink's interval join over the whole input: each event of one with each event of the other within the bounds, and unmatched events.
  private static func interval(
    _ one: Input, _ other: Input, _ before: Int, _ after: Int, _ unmatched: String
  ) -> [Row] {
    var rows: [Row] = []
    func pair(_ a: Item, _ b: Item) -> Bool {
      a.key == b.key && b.time >= a.time - before && b.time <= a.time + after
    }
    for a in one.items {
      let partners = other.items.filter { pair(a, $0) }
      rows += partners.map { Row(at: max(a.at, $0.at), time: max(a.time, $0.time), one: a.number, other: $0.number) }
      if partners.isEmpty, unmatched == "left" || unmatched == "full" {
        rows.append(Row(at: max(a.at, other.certain(after: a.time + after)), time: a.time, one: a.number, other: 0))
      }
    }
    for b in other.items where unmatched == "right" || unmatched == "full" {
      if !one.items.contains(where: { pair($0, b) }) {
        rows.append(Row(at: max(b.at, one.certain(after: b.time + before)), time: b.time, one: 0, other: b.number))
      }
    }
    return rows
  }

  @Test(arguments: ["drop", "left", "right", "full"], 0..<25)
  func theRowsAreThoseOfTheWholeInput(_ unmatched: String, _ seed: Int) throws {
    let (one, other) = Self.random(seed)
    let (before, after) = [(3, 3), (0, 6), (7, 2), (5, 0), (0, 1), (20, 30)][seed % 6]
    let within = before == after ? "\(before)s" : "{ before: \(before)s, after: \(after)s }"
    let behind = """
        windows: { from: joined, chain: [ { window: { every: 1s, to: "[int(start), events]" } } ], probe: {} }
      """
    let yaml = Self.yaml(
      "within: \(within), key: event.k, otherKey: other.k, unmatched: \(unmatched), \(Self.numbers)", one, other,
      behind: behind)
    let wanted = Self.interval(one, other, before, after, unmatched)
    let run = try Self.run(yaml, one, other)
    let place: Comment = "\(unmatched), seed \(seed)"
    // Each row is sent as soon as it is certain.
    #expect(Self.said(run).dropLast().sorted() == wanted.map(\.text).sorted(), place)
    #expect(run.out.entries.last.map { "\($0.moment)" } == "the completion", place)
    // Unmatched events are sent in the order of their times.
    for side in [one, other] {
      let items = Dictionary(uniqueKeysWithValues: side.items.map { ($0.number, $0) })
      let alone = run.out.entries.compactMap { entry -> Int? in
        let numbers = "\(entry.moment)".dropFirst().dropLast().split(separator: ",").compactMap { Int($0) }
        guard numbers.count == 2, numbers.contains(0), let item = items[numbers[0] + numbers[1]],
          entry.at > .milliseconds(item.at)
        else { return nil }
        return item.time
      }
      #expect(alone == alone.sorted(), place)
    }
    // A row has the later of its two times, and none is late for a window.
    var windows: [Int: [String]] = [:]
    for row in wanted { windows[row.time, default: []].append("[\(row.one),\(row.other)]") }
    let got = (run.texts["windows"] ?? []).map { text in
      // [START,[[1,2],[3,4]]]
      let parts = text.dropFirst().dropLast(2).split(separator: ",[", maxSplits: 1)
      let rows = parts[1].dropFirst().dropLast().split(separator: "],[").map { "[\($0)]" }
      return "\(parts[0]) \(rows.sorted())"
    }
    #expect(got == windows.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value.sorted())" }, place)
    #expect(run.deadLetters.isEmpty, place)
    #expect(run.pendingTimers == 0)
    // The same after each restart.
    for cut in [{ (_: Int) in true }, { $0 == 1 + seed }, { $0 % 3 == 0 }] {
      let cut = try Self.run(yaml, one, other, cutAfter: cut)
      #expect(Self.said(cut) == Self.said(run), place)
      #expect(cut.texts["windows"] == run.texts["windows"], place)
      #expect(cut.refusals.isEmpty, "\(cut.refusals.map(\.message))")
    }
  }

  /// However far one signal is read ahead of the other.
  @Test func theRowsDoNotDependOnTheSpeedOfReading() throws {
    let join = "within: { before: 2s, after: 6s }, key: event.k, otherKey: other.k, unmatched: full, \(Self.numbers)"
    for seed in 0..<10 {
      let (one, other) = Self.random(seed)
      func moved(_ input: Input, _ scale: Int64, _ offset: Int64) -> Input {
        var input = input
        for index in input.items.indices { input.items[index].at = input.items[index].at * scale + offset }
        input.end = input.end * scale + offset
        return input
      }
      let wanted = Self.interval(one, other, 2, 6, "full").map { "[\($0.one),\($0.other)]" }.sorted()
      for (a, b) in [(moved(one, 1, 0), moved(other, 1, 500)), (moved(one, 7, 300), other), (moved(one, 3, 0), other)] {
        let run = try Self.run(Self.yaml(join, one, other), a, b)
        #expect(run.texts["out"]?.sorted() == wanted, "seed \(seed)")
        #expect(run.deadLetters.isEmpty)
      }
    }
  }

  @Test func bothBoundsBelongToIt() throws {
    let one = Input(items: Self.items([(1, 100)]), end: 90, lateness: 0)
    let other = Input(items: Self.items([(2, 94), (3, 95), (4, 110), (5, 111)]), end: 90, lateness: 50)
    let run = try Self.run(Self.yaml("within: { before: 5s, after: 10s }, \(Self.numbers)", one, other), one, other)
    #expect(run.texts["out"] == ["[1,2]", "[1,3]"])
  }

  /// The instant at which "no partner" is certain: when the watermark of the other signal has passed the bound.
  @Test(arguments: [false, true]) func unmatchedEventsComeWhenThatIsCertain(_ isCut: Bool) throws {
    let one = Input(items: Self.items([(1, 100), (2, 103), (9, 200)]), end: 50, lateness: 0)
    let other = Input(items: Self.items([(3, 110), (4, 111), (5, 113), (6, 114)], from: 10), end: 60, lateness: 0)
    let run = try Self.run(
      Self.yaml(
        "within: { before: 20s, after: 10s }, key: 'event.n % 5', otherKey: '4', unmatched: full, \(Self.numbers)", one,
        other),
      one, other, cutAfter: { _ in isCut })
    #expect(
      Self.said(run) == [
        // 110 s could still follow 110 s; the next watermark is 111 s.
        "4ms [1,0]", "6ms [2,0]",
        // The first signal reaches 200 s: nothing within 20 s of 110 to 114 s can follow.
        "9ms [0,10]", "9ms [0,11]", "9ms [0,12]", "9ms [0,13]", "60ms [3,0]", "60ms the completion",
      ])
  }

  /// An event earlier than the watermark of its own signal: its partners may be gone.
  @Test(arguments: [false, true]) func whatIsLateGoesToTheErrorsOutput(_ isCut: Bool) throws {
    let one = Input(items: Self.items([(1, 100), (2, 94), (3, 95)]), end: 9, lateness: 5)
    let other = Input(items: Self.items([(4, 95), (5, 94)], from: 10), end: 9, lateness: 0)
    let run = try Self.run(
      Self.yaml("within: 1s, unmatched: full, \(Self.numbers)", one, other), one, other, cutAfter: { _ in isCut })
    #expect(run.texts["out"]?.sorted() == ["[1,0]", "[3,10]"])
    #expect(run.deadLetters.count == 2)
    #expect(run.deadLetters.allSatisfy { $0.contains("RX521") })
    #expect(run.deadLetters.first?.contains("the watermark of the first signal") == true, "\(run.deadLetters)")
    #expect(run.deadLetters.last?.contains("the watermark of the other signal") == true)
  }

  /// Watermarks free the state, whether it was matched or not.
  @Test(arguments: ["drop", "full"], [false, true])
  func theWatermarkFreesTheState(_ unmatched: String, _ isCut: Bool) throws {
    var (one, other) = Self.random(5, lateness: (4, 4))
    one.items.append(Item(at: 200, number: 0, key: 7, time: 5000))
    other.items.append(Item(at: 201, number: 0, key: 8, time: 9000))
    (one.end, other.end) = (900, 900)
    let yaml = Self.yaml(
      "within: 1h, key: event.k, otherKey: other.k, unmatched: \(unmatched), \(Self.numbers)", one, other)
    let before = try Self.run(yaml, one, other, cutAfter: { _ in isCut }, until: .milliseconds(199))
    let full = try #require(before.step("join"))
    #expect((full.keptEvents ?? 0) == one.items.count + other.items.count - 2)
    #expect((full.keptBytes ?? 0) > 64 * (one.items.count + other.items.count - 2))
    let after = try Self.run(yaml, one, other, cutAfter: { _ in isCut }, until: .milliseconds(300))
    let empty = try #require(after.step("join"))
    // The event of 5000 s has no partner up to 8600 s; that of 9000 s may still find one.
    #expect(empty.keptEvents == 1)
    #expect(empty.keys == 1)
    #expect((empty.keptBytes ?? 0) < 400)
  }

  @Test func theLimitIsReported() throws {
    let one = Input(items: Self.items([(1, 100), (2, 90), (3, 110)]), end: 9, lateness: 60)
    let other = Input(items: Self.items([(5, 100), (6, 90), (7, 110)], from: 10), end: 9, lateness: 60)
    let run = try Self.run(Self.yaml("within: 1s, limit: 2, unmatched: left, \(Self.numbers)", one, other), one, other)
    // At the limit the event with the earliest event time is dropped, whenever it arrived.
    #expect(run.texts["out"] == ["[1,10]", "[3,12]"])
    #expect(run.counters.rejected == 2)
    #expect(run.log.first?.contains("join keeps 2 events of the first signal") == true, "\(run.log)")
  }

  // MARK: Idle signals, ends and stops

  /// While one signal is idle, the other one's watermark decides; while both are idle, unmatched events are sent.
  @Test(arguments: [false, true]) func idleSignalsHoldNothingUp(_ isCut: Bool) throws {
    let one = Input(items: Self.items([(1, 100), (50, 104), (60, 106), (400, 108)]), end: 900, lateness: 0)
    let other = Input(items: Self.items([(2, 100), (500, 108), (501, 107)], from: 10), end: 950, lateness: 2)
    let run = try Self.run(
      Self.yaml(
        "within: 3s, key: '0', otherKey: 'other.n == 10 ? 1 : 0', unmatched: left, \(Self.numbers)",
        ", idle: 150ms", ", lateness: 2s, idle: 20ms"), one, other, cutAfter: { _ in isCut })
    #expect(
      Self.said(run) == [
        // The other signal is idle from 22 ms on, and the first one reaches 104 s: 100 + 3 s has passed.
        "50ms [1,0]",
        // Both are idle: the first one 150 ms after 60 ms.
        "210ms [2,0]", "210ms [3,0]",
        // An event arrives while the other signal is idle, and its partner when that signal resumes.
        "500ms [4,11]", "950ms the completion",
      ])
    // The idle signal's watermark has followed the other one to 108 s.
    #expect(run.deadLetters.count == 1)
    #expect(run.deadLetters.first?.contains("RX521") == true)
  }

  /// A stop does not settle whether an event is unmatched.
  @Test func aStopMakesNoUnmatchedPairs() throws {
    let one = Input(items: Self.items([(1, 100), (2, 110), (3, 150)]), end: 900, lateness: 0)
    let other = Input(items: Self.items([(1, 110)], from: 10), end: 900, lateness: 0)
    var options = PipelineRun.Options()
    options.drainAt = .milliseconds(4)
    let run = try PipelineRun(
      Self.yaml("within: 3s, unmatched: full, \(Self.numbers)", one, other),
      sources: ["a": one.source, "b": other.source], options: options)
    #expect(run.texts["out"] == ["[1,0]", "[2,10]"])
    #expect(run.log.contains { $0.contains("stopped before 1 event of the first signal") }, "\(run.log)")
    #expect(run.outcome == .completed)
  }

  /// The join ends as soon as no further pair is possible.
  @Test func itEndsWhenNoPairIsPossible() throws {
    let one = Input(items: Self.items([(1, 100), (2, 120)]), end: 5, lateness: 0)
    let other = Input(items: Self.items([(7, 101), (8, 125), (9, 130)], from: 10), end: 900, lateness: 0)
    let inner = try Self.run(Self.yaml("within: 3s, \(Self.numbers)", one, other), one, other)
    #expect(Self.said(inner) == ["7ms [1,10]", "8ms the completion"])
    let right = try Self.run(Self.yaml("within: 3s, unmatched: right, \(Self.numbers)", one, other), one, other)
    #expect(Self.said(right) == ["7ms [1,10]", "8ms [0,11]", "9ms [0,12]", "900ms the completion"])
  }

  // MARK: Three signals

  /// Two joins in a row: the third signal is paired by the later of the two times.
  @Test(arguments: 0..<12) func aThirdSignalIsJoinedBehind(_ seed: Int) throws {
    let (one, other) = Self.random(seed)
    let (third, _) = Self.random(seed + 100)
    let yaml = """
      name: t
      sources:
        a: { scripted: {}, time: timestamp(event.t), lateness: \(one.lateness)s }
        b: { scripted: {}, time: timestamp(event.t), lateness: \(other.lateness)s }
        c: { scripted: {}, time: timestamp(event.t), lateness: \(third.lateness)s }
      sinks:
        out:
          from: a
          chain:
            - join: { signal: b, within: 4s, unmatched: left, key: event.k, otherKey: other.k, reduce: { k: event.k, a: event.n, b: "other == null ? 0 : other.n" } }
            - join: { signal: c, within: { after: 5s }, unmatched: full, key: event.k, otherKey: other.k, reduce: "[dyn(event) == null ? [0, 0] : [event.a, event.b], other == null ? 0 : other.n]" }
          probe: {}
      """
    let keys = Dictionary(uniqueKeysWithValues: one.items.map { ($0.number, $0.key) })
    let pairs = Self.interval(one, other, 4, 4, "left")
    var wanted: [String] = []
    var matched: Set<Int> = []
    for pair in pairs {
      let partners = third.items.filter {
        $0.key == keys[pair.one] && $0.time >= pair.time && $0.time <= pair.time + 5
      }
      for partner in partners {
        wanted.append("[[\(pair.one),\(pair.other)],\(partner.number)]")
        matched.insert(partner.number)
      }
      if partners.isEmpty { wanted.append("[[\(pair.one),\(pair.other)],0]") }
    }
    for item in third.items where !matched.contains(item.number) { wanted.append("[[0,0],\(item.number)]") }
    for isCut in [false, true] {
      var options = PipelineRun.Options()
      options.cutAfter = { _ in isCut }
      let run = try PipelineRun(
        yaml, sources: ["a": one.source, "b": other.source, "c": third.source], options: options)
      #expect(run.texts["out"]?.sorted() == wanted.sorted(), "seed \(seed)")
      #expect(run.deadLetters.isEmpty)
    }
  }

  // MARK: Versions of a table

  /// Flink's temporal join over the whole input: each event with the last version that is not later.
  private static func temporal(_ one: Input, _ table: Input, _ unmatched: String) -> [Row] {
    one.items.compactMap { a in
      var version: Item?
      for item in table.items where item.key == a.key && item.time <= a.time && item.time >= version?.time ?? 0 {
        version = item
      }
      if version == nil, unmatched == "drop" { return nil }
      let at = max(a.at, table.certain(after: a.time))
      return Row(at: at, time: a.time, one: a.number, other: version?.number ?? 0)
    }
  }

  @Test(arguments: ["drop", "left"], 0..<25)
  func eachEventMeetsTheVersionOfItsTime(_ unmatched: String, _ seed: Int) throws {
    let (one, table) = Self.random(seed)
    let yaml = Self.yaml(
      "asOf: true, key: event.k, otherKey: other.k, unmatched: \(unmatched), \(Self.numbers)", one, table,
      behind:
        "  windows: { from: joined, chain: [ { window: { every: 1s, to: \"[int(start), events]\" } } ], probe: {} }")
    let wanted = Self.temporal(one, table, unmatched)
    let run = try Self.run(yaml, one, table)
    let place: Comment = "\(unmatched), seed \(seed)"
    #expect(Self.said(run).dropLast().sorted() == wanted.map(\.text).sorted(), place)
    #expect(run.deadLetters.isEmpty, place)
    // Waiting events are sent in the order of their times.
    let times = Dictionary(uniqueKeysWithValues: one.items.map { ($0.number, ($0.at, $0.time)) })
    var waited: [Int64: [Int]] = [:]
    for entry in run.out.entries {
      guard let number = "\(entry.moment)".dropFirst().split(separator: ",").first.flatMap({ Int($0) }),
        let (at, time) = times[number], entry.at > .milliseconds(at)
      else { continue }
      waited[entry.at.nanoseconds, default: []].append(time)
    }
    #expect(waited.values.allSatisfy { $0 == $0.sorted() }, place)
    let starts = (run.texts["windows"] ?? []).compactMap { Int($0.dropFirst().prefix { $0 != "," }) }
    #expect(starts == Set(wanted.map(\.time)).sorted(), place)
    for cut in [{ (_: Int) in true }, { $0 == 1 + seed }, { $0 % 3 == 0 }] {
      let cut = try Self.run(yaml, one, table, cutAfter: cut)
      #expect(Self.said(cut) == Self.said(run), place)
      #expect(cut.texts["windows"] == run.texts["windows"], place)
      #expect(cut.refusals.isEmpty, "\(cut.refusals.map(\.message))")
    }
  }

  @Test(arguments: [false, true]) func aRateIsThatOfTheTime(_ isCut: Bool) throws {
    let one = Input(items: Self.items([(1, 100), (2, 115), (6, 130)]), end: 50, lateness: 20)
    let table = Input(items: Self.items([(3, 90), (4, 110), (5, 120), (7, 140)], from: 10), end: 60, lateness: 0)
    let run = try Self.run(
      Self.yaml("asOf: true, unmatched: left, \(Self.numbers)", one, table), one, table, cutAfter: { _ in isCut })
    #expect(Self.said(run) == ["4ms [1,10]", "5ms [2,11]", "7ms [3,12]", "50ms the completion"])
  }

  /// For each key the newest version is kept, and those that events may still need.
  @Test(arguments: [false, true]) func theWatermarkFreesVersions(_ isCut: Bool) throws {
    let one = Input(items: Self.items([(30, 105), (40, 1000)]), end: 900, lateness: 0)
    let table = Input(
      items: Self.items((1...20).map { (at: Int64($0), time: 90 + $0) }) + [
        Item(at: 50, number: 50, key: 1, time: 500), Item(at: 51, number: 51, key: 1, time: 501),
        Item(at: 60, number: 60, key: 1, time: 2000),
      ], end: 900, lateness: 0)
    let yaml = Self.yaml("asOf: true, key: event.k, otherKey: other.k, \(Self.numbers)", one, table)
    func kept(_ until: Int64) throws -> [Int?] {
      let run = try Self.run(yaml, one, table, cutAfter: { _ in isCut }, until: .milliseconds(until))
      let step = try #require(run.step("join"))
      return [step.keptEvents, step.keys]
    }
    // All 20 versions, because the first signal has sent nothing.
    #expect(try kept(25) == [20, 1])
    // Versions before that of 105 s are no longer needed.
    #expect(try kept(35) == [6, 1])
    // The event of 1000 s waits for the watermark, and needs the last version that is not later.
    #expect(try kept(45) == [2, 1])
    #expect(try kept(55) == [3, 2])
    // The event is sent: for each key the last version not later than 1000 s stays, and later ones.
    #expect(try kept(65) == [3, 2])
  }

  /// An idle table delays nothing.
  @Test(arguments: [false, true]) func anIdleTableHoldsNothingUp(_ isCut: Bool) throws {
    let one = Input(items: Self.items([(1, 100), (2, 90), (50, 101), (60, 130)]), end: 900, lateness: 10)
    let table = Input(items: Self.items([(0, 80), (55, 120)], from: 10), end: 900, lateness: 0)
    let run = try Self.run(
      Self.yaml("asOf: true, \(Self.numbers)", ", lateness: 10s", ", idle: 20ms"), one, table,
      cutAfter: { _ in isCut })
    #expect(
      Self.said(run) == ["20ms [2,10]", "20ms [1,10]", "50ms [3,10]", "75ms [4,11]", "900ms the completion"])
  }

  /// A version of the same time replaces the earlier one.
  @Test func aCorrectedVersionCounts() throws {
    let one = Input(items: Self.items([(1, 100)]), end: 9, lateness: 0)
    let table = Input(items: Self.items([(2, 90), (3, 90), (4, 100), (5, 101)], from: 10), end: 9, lateness: 0)
    let run = try Self.run(Self.yaml("asOf: true, \(Self.numbers)", one, table), one, table)
    #expect(run.texts["out"] == ["[1,12]"])
    var late = one
    late.items[0].time = 99
    #expect(try Self.run(Self.yaml("asOf: true, \(Self.numbers)", one, table), late, table).texts["out"] == ["[1,11]"])
  }

  // MARK: The plan

  private func problems(_ a: String, _ b: String, _ join: String, around: String = "@") -> [String] {
    FrontEnd(PipelineRun.catalogue).compile(
      """
      name: t
      sources: { a: { scripted: {}\(a) }, b: { scripted: {}\(b) } }
      sinks: { out: { from: a, chain: [ \(around.replacing("@", with: "{ join: { signal: b, \(join) } }")) ], probe: {} } }
      """, name: "t.yaml"
    ).diagnostics.map { "\($0.code.name) \($0.message)" }
  }

  @Test func thePlanKnowsByWhichTimeItGoes() {
    let time = ", time: timestamp(event.t)"
    #expect(problems(time, time, "within: 1m") == [])
    #expect(problems("", "", "within: 1m") == [])
    #expect(problems(time, "", "within: 1m, clock: true") == [])
    #expect(
      problems(time, "", "within: 1m") == [
        "RX645 this 'join' goes by the clock: only one of its signals has event time"
      ])
    #expect(problems("", time, "within: 1m").map { $0.prefix(5) } == ["RX645"])
    #expect(
      problems(time, time, "within: 1m", around: "{ takeLast: 3 }, @") == [
        "RX643 this 'join' goes by the clock: the events of 'takeLast' have no event time"
      ])
    #expect(
      problems(time, time, "within: 1m", around: "{ groupBy: { key: event.k, chain: [ @ ] } }") == [
        "RX645 this 'join' goes by the clock, because it is in a chain of 'groupBy'"
      ])
    // A window after the join uses the join's event time.
    #expect(problems(time, time, "within: 1m", around: "@, { window: 1m }") == [])
    #expect(problems(time, time, "asOf: true", around: "@, { window: 1m }") == [])
    #expect(
      problems(time, time, "within: 1m, clock: true", around: "@, { window: 1m }") == [
        "RX643 this 'window' goes by the clock: the events of 'join' have no event time"
      ])
  }

  @Test func parametersThatMakeNoSenseAreErrors() {
    let time = ", time: timestamp(event.t)"
    func codes(_ join: String, _ a: String = ", time: timestamp(event.t)") -> [String] {
      problems(a, time, join).map { String($0.prefix(5)) }
    }
    #expect(codes("asOf: true", "") == ["RX644"])
    #expect(problems("", "", "asOf: true") == ["RX644 'asOf' of 'join' needs the event time of both signals"])
    #expect(problems(time, time, "limit: 3") == ["RX222 'join' needs 'within' or 'asOf'"])
    #expect(codes("asOf: true, within: 1m") == ["RX225"])
    #expect(codes("asOf: true, clock: true") == ["RX225"])
    #expect(codes("asOf: true, unmatched: full") == ["RX225"])
    #expect(codes("asOf: true, unmatched: left") == [])
    #expect(codes("within: 0s").count == 1)
    #expect(codes("within: { before: 0s }").count == 1)
    #expect(codes("within: { before: 0s, after: 1s }") == [])
    #expect(codes("within: { earlier: 1s }").count >= 1)
    #expect(
      problems(time, time, "within: 1m, unmatched: send").first?.contains("is called 'left' now") == true)
  }

  @Test func itCanGoByTheClock() throws {
    let one = Input(items: Self.items([(1, 100), (20, 500)]), end: 90, lateness: 0)
    let other = Input(items: Self.items([(3, 900), (28, 100)], from: 10), end: 90, lateness: 0)
    let run = try Self.run(
      Self.yaml("within: 5ms, clock: true, unmatched: full, \(Self.numbers)", one, other), one, other)
    #expect(Self.said(run).dropLast() == ["3ms [1,10]", "25ms [2,0]", "33ms [0,11]"])
  }
}
