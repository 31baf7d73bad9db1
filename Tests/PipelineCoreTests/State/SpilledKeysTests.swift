import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// Keys that have no room in memory are on the disk, and nobody who reads the events can tell.
@Suite struct SpilledKeysTests {
  private typealias Run = CommitTests.Run

  private static func plan(_ chain: String, _ top: String = "") throws -> Plan {
    try PipelineRun.compile(
      "\(top)\nsources: { a: { scripted: {} } }\nsinks: { out: { from: a, chain: [ \(chain) ], probe: {} } }")
  }

  private static func history(_ seed: UInt64, _ count: Int, of values: UInt64) -> SignalHistory {
    var generator = SplitMix(seed)
    var time: Int64 = 0
    var entries = (0..<count).map { _ in
      time += Int64(generator.next() % 4)
      return SignalHistory.Entry(at: .milliseconds(time), .next(.int(Int64(generator.next() % values))))
    }
    entries.append(.init(at: .milliseconds(time + 5), .complete))
    return SignalHistory(entries)
  }

  /// Runs of the pipeline on one disk.
  private struct Disks {
    var disk = MemoryStore.Disk()
    var keys = MemorySpill.Contents()
    var writes = 0
    var finds = 0
    var removals = 0

    mutating func run(
      _ plan: Plan, _ history: SignalHistory, isDurable: Bool = true, memory: Int? = 0, isPowerCut: Bool = false,
      _ change: (inout DeliveryOptions) -> Void = { _ in }, _ body: (Run, MemorySpill) throws -> Void
    ) rethrows -> [String] {
      try run(
        plan, ["a": history], isDurable: isDurable, memory: memory, isPowerCut: isPowerCut, change, body)
    }

    /// - Parameters:
    ///   - memory: The bytes of keys in memory.
    ///   - isPowerCut: Whether what had not been synced is lost at the end.
    mutating func run(
      _ plan: Plan, _ histories: [String: SignalHistory], isDurable: Bool = true, memory: Int? = 0,
      isPowerCut: Bool = false, _ change: (inout DeliveryOptions) -> Void = { _ in },
      _ body: (Run, MemorySpill) throws -> Void
    ) rethrows -> [String] {
      let spill = MemorySpill(keys)
      let run = Run(plan, histories, isDurable: isDurable, on: disk, keys: spill) {
        $0.interval = .milliseconds(1)
        $0.stateMemory = memory
        change(&$0)
      }
      #expect(run.execution.refusals.map(\.message) == [])
      try body(run, spill)
      disk = run.store.disk
      keys = isPowerCut ? spill.synced : spill.written
      writes += spill.writes
      finds += spill.finds
      removals += spill.removals
      if run.execution.outcome == nil { run.turn { $0.execution.cancel() } }
      return run.written["out"] ?? []
    }
  }

  /// Runs the pipeline with all keys in memory, and with keys on the disk: there the process or the machine is lost at any turn, after any commit,
  /// heard of or not. Both must send the same.
  private static func crash(_ seed: UInt64, _ plan: Plan, _ histories: [String: SignalHistory], _ name: String) {
    var generator = SplitMix(seed)
    let whole = Run(plan, histories, isDurable: nil)
    whole.advance(turns: 20_000)
    let wanted = whole.written["out"] ?? []
    #expect(whole.execution.outcome == .completed && !wanted.isEmpty, "\(name)")
    var disks = Disks()
    var parts: [[String]] = []
    for _ in 0...generator.next() % 5 {
      let isOver = disks.disk.commits > 0 && disks.disk.state == nil && disks.disk.rows.isEmpty
      if isOver { break }
      let isDurable = seed % 3 > 0
      let isPowerCut = generator.next() % 2 == 0
      // The file may ask for less memory than before, or for no limit.
      let memory = [0, 0, 500, nil][Int(generator.next() % 4)]
      let pages = generator.next() % 4 == 0 ? 1 + Int(generator.next() % 3) : 1000
      parts.append(
        disks.run(
          plan, histories, isDurable: isDurable, memory: memory, isPowerCut: isPowerCut, { $0.pagesOfTurn = pages }
        ) { run, _ in
          run.advance(turns: 1 + Int(generator.next() % 150)) { generator.next() % 3 == 0 }
          for _ in 0..<generator.next() % 3 { run.store.takeOne(isHeard: false) }
        })
    }
    // After the end the state is gone, and a new run would begin anew.
    if disks.disk.commits > 0, disks.disk.state == nil, disks.disk.rows.isEmpty { return }
    parts.append(
      disks.run(plan, histories) { run, spill in
        run.advance(turns: 40_000)
        #expect(run.execution.outcome == .completed)
        #expect(spill.written == MemorySpill.Contents(), "the keys go with the state")
      })
    #expect(CommitTests.covers(wanted, parts), "seed \(seed), \(name): \(parts) of \(wanted)")
  }

  /// Times of `idle` are no whole milliseconds, so that no event comes at the moment at which its key is forgotten.
  private static let steps = [
    "{ latest: { by: event % 40 } }",
    "{ latest: { by: event % 17, pairs: true, maxKeys: 12 } }",
    "{ map: \"{'id': event % 30, 'n': event, 'text': 'a longer text than fits into a word'}\" }, { latest: { by: event.id } }",
    "{ distinct: { memory: 12 } }", "{ distinct: { memory: 1000 } }", "{ distinct: { within: 40ms } }",
    "{ distinct: { memory: 15, within: 60ms } }",
    "{ distinct: { by: event % 9 } }, { scan: { start: 0, next: running + 1 } }, { distinct: { memory: 5 } }",
    "{ latest: { by: event % 23, idle: 25500us } }",
    "{ latest: { by: event % 31, idle: 40500us, maxKeys: 14, pairs: true } }",
    "{ latest: { by: event % 60, pairs: true } }, { latest: { by: event % 11 } }",
    "{ topN: { by: event, count: 2, per: event % 13 } }",
    "{ topN: { by: event, count: 1, per: event % 29, order: ascending, maxKeys: 20 } }",
    "{ topN: { by: event, count: 2, per: event % 19, idle: 30500us } }",
    "{ latest: { by: event % 50, pairs: true } }, { topN: { by: event, count: 2, per: event % 13 } }",
    "{ latest: { by: event % 50, pairs: true } }, { topN: { by: event, count: 1, per: event % 13, idle: 20500us, maxRows: 30 } }",
    "{ topN: { by: event, count: 3, per: event % 5 } }, { topN: { by: event, count: 2, per: event % 7 } }",
  ]

  /// Steps with keys send what they send when all is in memory, though the process or the machine is lost at any turn.
  @Test(arguments: 0..<136 as Range<UInt64>) func crashesChangeNothing(_ seed: UInt64) throws {
    var generator = SplitMix(seed &+ 1000)
    // Whether a key comes again must depend on what is kept of it, and the value of an event on its key and more.
    let values = 4 + generator.next() % 60
    let step = Self.steps[Int(seed) % Self.steps.count]
    let history = Self.history(seed, 150, of: step.contains("distinct") ? values : 400)
    Self.crash(seed, try Self.plan(step), ["a": history], step)
  }

  // MARK: Groups

  private static let groups = [
    "{ groupBy: { key: event % 13, chain: [ { scan: { start: 0, next: running + event } } ] } }",
    "{ groupBy: { key: string(event % 29), maxGroups: 20, chain: [ { filter: event % 3 != 0 }, { distinctUntilChanged: event % 4 }, { take: 3 } ] } }",
    "{ groupBy: { key: event % 11, idle: 20500us, chain: [ { scan: { start: 0, next: running + event } } ] } }",
    "{ groupBy: { key: event % 23, idle: 30500us, chain: [ { aggregate: { n: count(), all: sum(event), last: last(event) } } ] } }",
    "{ groupBy: { key: event % 17, chain: [ { aggregate: { n: count(), kinds: countDistinct(event % 5) } } ] } }",
    "{ groupBy: { key: event % 19, chain: [ { distinct: { by: event % 3, within: 30500us } }, { skip: 1 }, { combinePrevious: '[previous, event]' } ] } }",
    "{ groupBy: { key: event % 40, idle: 15500us, maxGroups: 15, chain: [ { skipWhile: event % 2 == 0 }, { aggregate: { n: count() } } ] } }",
  ]

  /// Groups on the disk come back for their keys, when they are idle for too long, and at the end in the order of their creation.
  @Test(arguments: 0..<105 as Range<UInt64>) func crashesChangeNoGroup(_ seed: UInt64) throws {
    let step = Self.groups[Int(seed) % Self.groups.count]
    Self.crash(seed, try Self.plan(step), ["a": Self.history(seed, 150, of: 400)], step)
  }

  @Test(arguments: groups) func groupsComeBack(_ step: String) throws {
    let plan = try Self.plan(step)
    let history = Self.history(5, 800, of: 10_000)
    let whole = Run(plan, ["a": history], isDurable: nil)
    whole.advance(turns: 40_000)
    var disks = Disks()
    let written = disks.run(plan, history) { run, _ in run.advance(turns: 40_000) }
    #expect(written == whole.written["out"])
    #expect(disks.writes > 100 && disks.finds > 100, "\(disks.writes), \(disks.finds)")
    #expect(step.contains("idle") == (disks.removals > 0))
  }

  /// Of many groups few are in memory, also while they complete.
  @Test func groupsFitIntoTheirMemory() throws {
    let count: Int64 = 1500
    var entries = (0..<count).map { SignalHistory.Entry(at: .milliseconds($0), .next(.int($0))) }
    entries.append(.init(at: .milliseconds(count + 10), .complete))
    let plan = try Self.plan("{ groupBy: { key: event, chain: [ { aggregate: { n: count(), all: sum(event) } } ] } }")
    var disks = Disks()
    let written = disks.run(plan, SignalHistory(entries), memory: 60_000) { run, spill in
      while run.time.now < Instant(nanoseconds: 1_505_000_000) { run.advance(turns: 1) }
      let moved = spill.written.keys.values.reduce(0) { $0 + $1.count }
      #expect(moved > 1200, "\(moved)")
      run.advance(turns: 40_000)
      #expect(run.execution.outcome == .completed)
    }
    #expect(written == (0..<count).map { "{\"n\":1,\"all\":\($0)}" })
  }

  /// Each of fifty keys comes eight times.
  private static let eightTimes = SignalHistory(
    (0..<400).map { .init(at: .milliseconds(Int64($0)), .next(.int(Int64($0)))) })

  private static func advance(_ run: Run, to end: TimeSpan) {
    while run.execution.outcome == nil, run.time.now < Instant(nanoseconds: end.nanoseconds) { run.advance(turns: 1) }
  }

  /// Groups on the disk go on under another name of their signal, also when the file no longer says which one they had.
  @Test(arguments: [nil, 0] as [Int?]) func groupsGoOnUnderAnotherName(_ memory: Int?) throws {
    func plan(_ name: String, _ former: String = "") throws -> Plan {
      try PipelineRun.compile(
        """
        sources: { a: { scripted: {} } }
        signals:
          \(name):
            \(former)
            from: a
            chain: [ { groupBy: { key: event % 50, chain: [ { filter: event >= 0 }, { scan: { start: 0, next: running + 1 } } ] } } ]
        sinks: { out: { from: \(name), probe: {} } }
        """)
    }
    var disks = Disks()
    for (plan, end) in [(try plan("counted"), 150), (try plan("seen", "movedFrom: counted"), 100)] {
      _ = disks.run(plan, Self.eightTimes, memory: memory) { run, _ in
        Self.advance(run, to: .milliseconds(Int64(end)))
      }
    }
    let written = disks.run(try plan("seen"), Self.eightTimes, memory: memory) { run, _ in run.advance(turns: 40_000) }
    #expect((memory == nil) == (disks.writes == 0))
    #expect(written.suffix(50) == [String](repeating: "8", count: 50)[...])
  }

  /// A `groupBy` whose chain has changed starts empty, wherever its groups are, and what the disk has of them goes.
  @Test(arguments: [nil, 0] as [Int?]) func groupsOfAChangedChainGo(_ memory: Int?) throws {
    func plan(_ chain: String) throws -> Plan {
      try Self.plan("{ groupBy: { key: event % 50, chain: [ \(chain) ] } }")
    }
    let counting = "{ scan: { start: 0, next: running + 1 } }"
    var disks = Disks()
    _ = disks.run(try plan(counting), Self.eightTimes, memory: memory) { run, _ in
      Self.advance(run, to: .milliseconds(200))
    }
    #expect((memory == nil) == (disks.writes == 0))
    let spill = MemorySpill(disks.keys)
    let changed = try plan("{ filter: event >= 0 }, \(counting)")
    let next = Run(changed, ["a": Self.eightTimes], isDurable: true, on: disks.disk, keys: spill)
    #expect(next.execution.refusals.map(\.message).filter { $0.contains("the step has changed since") }.count == 1)
    next.advance(turns: 40_000)
    #expect(["4", "5"].contains(next.written["out"]?.last))
    #expect(spill.written == MemorySpill.Contents())
  }

  // MARK: Joins

  /// Joins of events `100 * t + n` at `t` seconds, by the remainder of `n`.
  private static let joins = [
    "within: 8s", "within: 8s, unmatched: left", "within: { before: 3s, after: 12s }, unmatched: full",
    "within: 5s, unmatched: full, emit: update", "within: { after: 9s }, unmatched: right, emit: { early: 15500us }",
    "within: 30s, limit: 12", "within: 30s, unmatched: full, limit: 9, emit: update",
  ]

  private static func joinPlan(_ join: String, keys: Int) throws -> Plan {
    try PipelineRun.compile(
      """
      sources: { a: { scripted: {}, time: "timestamp(event / 100)", lateness: 3s }, b: { scripted: {}, time: "timestamp(event / 100)", lateness: 2s } }
      sinks:
        out:
          from: a
          chain: [ { join: { signal: b, key: "event % \(keys)", otherKey: "other % \(keys)", \(join) } } ]
          probe: {}
      """)
  }

  /// Events whose time goes on, though not always, and sometimes so far that much is over at once.
  private static func timedHistory(_ seed: UInt64, _ count: Int) -> SignalHistory {
    var generator = SplitMix(seed)
    var (at, time): (Int64, Int64) = (0, 100)
    var entries = (0..<count).map { _ in
      at += Int64(generator.next() % 4)
      time += Int64(generator.next() % 100 == 0 ? 40 : generator.next() % 2)
      let own = time - Int64(generator.next() % 4)
      return SignalHistory.Entry(at: .milliseconds(at), .next(.int(own * 100 + Int64(generator.next() % 100))))
    }
    entries.append(.init(at: .milliseconds(at + 5), .complete))
    return SignalHistory(entries)
  }

  /// What is sent, and in which order, depends on times of events, not on where their keys are.
  @Test(arguments: 0..<98 as Range<UInt64>) func crashesChangeNoJoin(_ seed: UInt64) throws {
    let join = Self.joins[Int(seed) % Self.joins.count]
    let keys = [5, 17, 60][Int(seed / 7) % 3]
    Self.crash(
      seed, try Self.joinPlan(join, keys: keys),
      ["a": Self.timedHistory(seed, 110), "b": Self.timedHistory(seed &+ 500, 110)], "\(join) \(keys)")
  }

  /// Keys of a join go to the disk, and come back for their events, for the next event of their key, and at the end.
  @Test(arguments: joins) func keysOfAJoinComeBack(_ join: String) throws {
    let plan = try Self.joinPlan(join, keys: 60)
    let histories = ["a": Self.timedHistory(1, 600), "b": Self.timedHistory(2, 600)]
    let whole = Run(plan, histories, isDurable: nil)
    whole.advance(turns: 40_000)
    var disks = Disks()
    let written = disks.run(plan, histories) { run, _ in run.advance(turns: 40_000) }
    #expect(written == whole.written["out"])
    #expect(disks.writes > 200 && disks.removals > 50, "\(disks.writes), \(disks.removals)")
  }

  /// Events of one key that are spread over a long time, of a join that keeps all of it: few are in memory.
  @Test func aJoinFitsIntoItsMemory() throws {
    let count: Int64 = 2000
    func history(_ shift: Int64) -> SignalHistory {
      SignalHistory((0..<count).map { .init(at: .milliseconds($0), .next(.int($0 / 10 * 100 * 10_000 + $0 + shift))) })
    }
    let plan = try PipelineRun.compile(
      """
      sources: { a: { scripted: {}, time: "timestamp(event / 1000000)" }, b: { scripted: {}, time: "timestamp(event / 1000000)" } }
      sinks:
        out: { from: a, chain: [ { join: { signal: b, key: "event % 10000", otherKey: "other % 10000", within: 1h, unmatched: full } } ], probe: {} }
      """)
    var disks = Disks()
    _ = disks.run(plan, ["a": history(0), "b": history(5000)], memory: 100_000) { run, spill in
      run.advance(turns: 40_000)
      #expect(spill.written.keys.values.reduce(0) { $0 + $1.count } > 3 * Int(count) / 2)
    }
    let inPages = disks.disk.pages.values.reduce(0) { $0 + $1.count } * StatePages.keysOfPage
    #expect(inPages < 1500, "\(inPages)")
  }

  /// The test above has keys on the disk, and looks for some.
  @Test func keysAreMoved() throws {
    var disks = Disks()
    let history = Self.history(1, 300, of: 1000)
    _ = disks.run(try Self.plan("{ distinct: { memory: 1000 } }"), history) { run, _ in run.advance(turns: 20_000) }
    #expect(disks.writes > 150 && disks.finds > 150)
  }

  /// Keys of `latest` go to the disk, come back when they are needed, and go again as they are then.
  @Test func keysComeBack() throws {
    var disks = Disks()
    let plan = try Self.plan("{ latest: { by: event % 50, maxKeys: 50 } }")
    let history = Self.history(1, 600, of: 10_000)
    let whole = Run(plan, ["a": history], isDurable: nil)
    whole.advance(turns: 20_000)
    let written = disks.run(plan, history) { run, spill in
      run.advance(turns: 20_000)
      #expect(spill.writes > 300 && spill.finds > 300)
    }
    #expect(written == whole.written["out"])
    let few = try Self.plan("{ latest: { by: event % 50, maxKeys: 30 } }")
    let (all, moved) = (Run(few, ["a": history], isDurable: nil), Disks())
    all.advance(turns: 20_000)
    disks = moved
    #expect(
      disks.run(few, history) { run, _ in run.advance(turns: 20_000) } == all.written["out"], "the limit counts all")
  }

  /// Keys that have come lately stay in memory, and as many as there is room for.
  @Test func whatComesStays() throws {
    var entries: [SignalHistory.Entry] = []
    for index in 0..<2000 {
      // Every other event is of one of ten keys, the others are of new ones.
      let key = index % 2 == 0 ? index / 2 % 10 : 100 + index
      entries.append(.init(at: .milliseconds(Int64(index)), .next(.int(Int64(index * 100_000 + key)))))
    }
    var disks = Disks()
    let plan = try Self.plan("{ latest: { by: event % 100000, maxKeys: 100000 } }")
    _ = disks.run(plan, SignalHistory(entries), memory: 20_000) { run, spill in
      run.advance(turns: 40_000)
      #expect(spill.writes > 700 && spill.writes < 1100, "\(spill.writes)")
      #expect(spill.written.keys.values.reduce(0) { $0 + $1.count } > 700)
    }
    // Hot keys are not looked for on the disk: new ones are.
    #expect(disks.finds < 1100, "\(disks.finds)")
  }

  /// A key that is forgotten, by its time or because its rows are taken back, is forgotten on the disk, too.
  @Test(arguments: [
    "{ latest: { by: event % 200, idle: 60500us } }",
    "{ topN: { by: event, count: 1, per: event % 200, idle: 60500us } }",
    "{ latest: { by: event % 300, pairs: true } }, { latest: { by: event } }",
    "{ latest: { by: event % 300, pairs: true } }, { topN: { by: event, count: 2, per: event } }",
  ])
  func whatIsForgottenGoes(_ chain: String) throws {
    let history = Self.history(3, 900, of: 1000)
    let plan = try Self.plan(chain)
    var disks = Disks()
    let whole = Run(plan, ["a": history], isDurable: nil)
    whole.advance(turns: 40_000)
    let written = disks.run(plan, history) { run, spill in run.advance(turns: 40_000) }
    #expect(written == whole.written["out"])
    #expect(disks.writes > 300 && disks.removals > 100, "\(disks.writes), \(disks.removals)")
  }

  /// After the last event all keys are forgotten at their times, those on the disk as well, though none of them comes again.
  @Test func idleKeysOnTheDiskAreForgottenInTime() throws {
    let history = SignalHistory((0..<400).map { .init(at: .milliseconds(Int64($0)), .next(.int(Int64($0)))) })
    var disks = Disks()
    _ = disks.run(try Self.plan("{ topN: { by: event, count: 1, per: event, idle: 300500us } }"), history) {
      run, spill in
      run.advance(turns: 40_000)
      #expect(spill.writes > 300)
      // Those that the last commits have forgotten are removed by the commits after them.
      let left = spill.written.keys.values.reduce(0) { $0 + $1.count }
      let marks = spill.written.marks.values.reduce(0) { $0 + $1.values.reduce(0) { $0 + $1.count } }
      #expect(left < 20 && marks == left, "\(left), \(marks)")
    }
  }

  /// As many keys as there is room for stay in memory; the oldest are moved.
  @Test func theOldestAreMoved() throws {
    let history = SignalHistory((0..<1000).map { .init(at: .milliseconds(Int64($0)), .next(.int(Int64($0)))) })
    let room = 100 * KeyTable.bytes(of: 9)
    var disks = Disks()
    _ = try disks.run(try Self.plan("{ distinct: { memory: 100000 } }"), history, memory: room) { run, spill in
      run.advance(turns: 20_000)
      let moved = try #require(spill.written.keys.values.first)
      #expect(spill.written.keys.count == 1)
      #expect((1000 - 100...1000 - 100 + SpilledKeys.atOnce).contains(moved.count))
      #expect(Set(moved.values.map(\.rank)) == Set(1...moved.count))
    }
    let inMemory = disks.disk.pages.values.reduce(0) { $0 + $1.count } * StatePages.keysOfPage
    #expect(inMemory < 220, "the pages have what is in memory")
  }

  /// A key that only a lost commit had is not remembered.
  @Test func whatIsNotCommittedIsNotMoved() throws {
    let history = SignalHistory((0..<200).map { .init(at: .milliseconds(Int64($0)), .next(.int(Int64($0)))) })
    var disks = Disks()
    _ = disks.run(try Self.plan("{ distinct: { memory: 1000 } }"), history) { run, spill in
      // The disk takes no commit.
      while run.time.now < Instant(nanoseconds: 150_000_000) {
        if run.executor.runOne() { continue }
        guard let next = run.executor.nextDeadline else { break }
        run.time.advance(to: max(next, run.time.now))
      }
      #expect(spill.writes == 0)
    }
  }

  /// What is forgotten is removed from the disk in the end.
  @Test(arguments: ["memory: 40", "within: 30ms"]) func forgottenKeysGo(_ limit: String) throws {
    let history = SignalHistory((0..<500).map { .init(at: .milliseconds(Int64($0)), .next(.int(Int64($0)))) })
    var disks = Disks()
    _ = disks.run(try Self.plan("{ distinct: { \(limit) } }"), history) { run, spill in
      run.advance(turns: 20_000)
      #expect(spill.writes > 300)
      #expect(spill.written.keys.values.reduce(0) { $0 + $1.count } <= 45)
    }
  }

  /// A disk that fails holds nothing up: keys stay in memory until it works again, and events whose keys cannot be looked for are
  /// rejected.
  @Test func aFailingDiskIsReported() throws {
    var entries = (0..<200).map { SignalHistory.Entry(at: .milliseconds(Int64($0)), .next(.int(Int64($0)))) }
    entries += [5, 300].map { .init(at: .milliseconds(250 + Int64($0)), .next(.int(Int64($0)))) }
    entries += [5, 301].map { .init(at: .seconds(5) + .milliseconds(Int64($0)), .next(.int(Int64($0)))) }
    let history = SignalHistory(entries)
    let plan = try PipelineRun.compile(
      """
      sources: { a: { scripted: {} } }
      signals: { known: { from: a, chain: [ { distinct: { memory: 1000 } } ] } }
      sinks: { out: { from: known, probe: {} }, bad: { from: known.errors, chain: [ { map: event.code } ], probe: {} } }
      """)
    let spill = MemorySpill()
    let run = Run(plan, ["a": history], isDurable: true, keys: spill) {
      $0.interval = .milliseconds(1)
      $0.stateMemory = 0
    }
    func advance(to end: TimeSpan) {
      while run.time.now < Instant(nanoseconds: end.nanoseconds) {
        run.store.takeOne()
        if run.executor.runOne() { continue }
        guard let next = run.executor.nextDeadline else { break }
        run.time.advance(to: max(next, run.time.now))
      }
    }
    advance(to: .milliseconds(230))
    #expect(spill.writes > 100)
    spill.failure = "the disk is gone"
    advance(to: .milliseconds(600))
    #expect(run.written["bad"] == ["\"RX552\"", "\"RX552\""])
    #expect(run.log.filter { $0.contains("the disk is gone") }.count <= 1)
    spill.failure = nil
    advance(to: .seconds(6))
    #expect(run.written["out"] == (0..<200).map { "\($0)" } + ["301"])
  }

  /// Keys that are missing, or newer than the rest, are no reason to send what has been sent: the step says so and starts empty.
  @Test(
    arguments: [true, false],
    ["{ distinct: { memory: 1000 } }", "{ latest: { by: event } }", "{ topN: { by: event, count: 1, per: event } }"])
  func keysThatDoNotFitAreRefused(_ areMissing: Bool, _ chain: String) throws {
    let history = SignalHistory((0..<200).map { .init(at: .milliseconds(Int64($0)), .next(.int(Int64($0)))) })
    let plan = try Self.plan(chain)
    var disks = Disks()
    _ = disks.run(plan, history) { run, _ in run.advance(turns: 2000) }
    let spill = MemorySpill(disks.keys)
    if areMissing {
      disks.keys = .init()
    } else {
      for owner in disks.keys.tops.keys { disks.keys.tops[owner] = 5000 }
    }
    let next = Run(plan, ["a": history], isDurable: true, on: disks.disk, keys: MemorySpill(disks.keys))
    #expect(next.execution.refusals.count == 1)
    #expect(next.execution.refusals.first?.message.contains(areMissing ? "missing" : "newer") == true)
    let without = Run(plan, ["a": history], isDurable: true, on: disks.disk)
    #expect(without.execution.refusals.count == 1)
    withExtendedLifetime(spill) {}
  }

  /// Each instance of a step has its own keys, which end with it.
  @Test func instancesHaveTheirOwn() throws {
    let plan = try PipelineRun.compile(
      """
      sources: { a: { scripted: {} } }
      signals: { odd: { from: a, chain: [ { filter: event % 2 == 1 }, { distinct: { memory: 1000 } } ] } }
      sinks: { out: { from: a, chain: [ { distinct: { memory: 1000 } } ], probe: {} }, odds: { from: odd, probe: {} } }
      """)
    let history = SignalHistory(
      (0..<400).map { .init(at: .milliseconds(Int64($0)), .next(.int(Int64($0 % 200)))) })
    let spill = MemorySpill()
    let run = Run(plan, ["a": history], isDurable: true, keys: spill) {
      $0.interval = .milliseconds(1)
      $0.stateMemory = 0
    }
    run.advance(turns: 20_000)
    #expect(run.written["out"] == (0..<200).map { "\($0)" })
    #expect(run.written["odds"] == (0..<200).filter { $0 % 2 == 1 }.map { "\($0)" })
    #expect(spill.written.keys.count == 2)
  }

  /// The next version of a pipeline in this process goes on with the keys on the disk, whether it has a limit or not; if the step has
  /// changed, its keys go.
  @Test(arguments: [
    ("{ distinct: { memory: 1000 } }", "{ distinct: { by: event + 1, memory: 1000 } }"),
    ("{ latest: { by: event } }", "{ latest: { by: event + 1 } }"),
    ("{ topN: { by: event, count: 1, per: event } }", "{ topN: { by: event, count: 2, per: event } }"),
    ("{ latest: { by: event, idle: 1h } }", "{ latest: { by: event, idle: 2h } }"),
  ])
  func aReloadGoesOn(_ chain: String, _ other: String) throws {
    var entries = (0..<200).map { SignalHistory.Entry(at: .milliseconds(Int64($0)), .next(.int(Int64($0)))) }
    entries.append(.init(at: .seconds(10), .next(.int(0))))
    let history = SignalHistory(entries)
    let plan = try Self.plan(chain)
    var disks = Disks()
    var left: [UInt8]?
    _ = disks.run(plan, history) { run, spill in
      // The last event comes before any key has been idle for an hour.
      while run.time.now < Instant(nanoseconds: 250_000_000) { run.advance(turns: 1) }
      run.advance(turns: 20)
      run.turn { $0.execution.suspend() }
      run.advance(turns: 100)
      left = run.execution.savedState
      #expect(spill.written.keys.values.first?.isEmpty == false, "the last commit keeps them")
    }
    let state = try #require(left)
    for (next, isKept) in [(plan, true), (try Self.plan(other), false)] {
      let time = VirtualTime()
      let executor = Executor(clock: time)
      let services = Services(
        http: NoHTTPClient(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 1 })
      let execution = Execution(plan: next, executor: executor, services: services)
      let spill = MemorySpill(disks.keys)
      let store = MemoryStore(disks.disk, isImmediate: true, keys: spill)
      execution.commit(with: DeliveryOptions(store: store, isDurable: true))
      let recording = ProbeSink.Recording()
      execution.replacements.sinks = { _ in ProbeSink(recording) }
      let again = SignalHistory([3, 199, 500].map { .init(at: .milliseconds(1), .next(.int($0))) })
      execution.replacements.sources = { _ in ScriptedSource(again.script) }
      nonisolated(unsafe) let running = execution
      executor.post { running.launch(restoring: state, isMoved: true) { _ in } }
      for _ in 0..<200 where !executor.runOne() {
        guard let next = executor.nextDeadline, next < Instant(nanoseconds: 60_000_000_000) else { break }
        time.advance(to: max(next, time.now))
      }
      #expect(execution.refusals.isEmpty == isKept)
      #expect(spill.written.keys.isEmpty == !isKept)
    }
  }

  // MARK: The file

  private static func codes(_ text: String) -> [String] {
    FrontEnd(PipelineRun.catalogue).compile(text, name: "test.yaml").diagnostics.map(\.code.name)
  }

  @Test func theFileHasALimit() throws {
    let plan = try Self.plan("distinct", "state: { memory: 64MiB }")
    #expect(plan.stateMemory == 64 << 20)
    #expect(try Self.plan("distinct").stateMemory == nil)
  }

  @Test func itIsExplained() throws {
    let plan = try PipelineRun.compile(
      """
      state: { memory: 64MiB }
      sources: { a: { scripted: {} } }
      signals:
        counted:
          from: a
          chain: [ { groupBy: { key: event, chain: [ { scan: { start: 0, next: running + 1 } } ] } } ]
        slowed: { from: a, chain: [ { groupBy: { key: event, chain: [ distinct, { throttle: 1s } ] } } ] }
      sinks:
        top: { from: counted, chain: [ { topN: { by: event, count: 1 } }, distinct ], probe: {} }
        newest: { from: slowed, chain: [ { latest: event } ], probe: {} }
      """)
    let lines = PlanExplanation.text(plan).split(separator: "\n").suffix(2)
    #expect(
      lines == [
        "state: beyond 64MiB of memory, keys are kept on the disk: groupBy (line 6), topN (line 9), distinct (line 9), latest (line 10)",
        "  all keys stay in memory: groupBy (line 7)",
      ])
  }

  @Test(arguments: [
    ("state: { memory: 1MiB }", "RX"), ("state: { memory: much }", "RX"), ("state: { disk: 1GiB }", "RX"),
    ("state: 64MiB", "RX"), ("delivery: bestEffort\nstate: { memory: 64MiB }", "RX342"),
  ])
  func wrongLimitsAreRefused(_ top: String, _ code: String) throws {
    let text =
      "\(top)\nsources: { a: { values: [1] } }\nsinks: { out: { from: a, chain: [ distinct ], probe: {} } }"
    #expect(Self.codes(text).contains { $0.hasPrefix(code) }, "\(Self.codes(text))")
  }

  @Test(arguments: [
    "{ take: 1 }", "{ groupBy: { key: event, chain: [ { window: { every: 1s } } ] } }",
    "{ groupBy: { key: event, chain: [ { distinct: { memory: 100 } }, { throttle: 1s } ] } }",
    "{ join: { signal: { from: a }, within: 1h, key: event, otherKey: other } }",
  ]) func aLimitWithoutEffectIsRefused(_ step: String) throws {
    let text =
      "state: { memory: 64MiB }\nsources: { a: { values: [1] } }\nsinks: { out: { from: a, chain: [ \(step) ], probe: {} } }"
    #expect(Self.codes(text).contains { $0.hasPrefix("RX342") })
  }
}
