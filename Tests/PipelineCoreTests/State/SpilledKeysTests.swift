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

    /// - Parameters:
    ///   - memory: The bytes of keys in memory.
    ///   - isPowerCut: Whether what had not been synced is lost at the end.
    mutating func run(
      _ plan: Plan, _ history: SignalHistory, isDurable: Bool = true, memory: Int? = 0, isPowerCut: Bool = false,
      _ change: (inout DeliveryOptions) -> Void = { _ in }, _ body: (Run, MemorySpill) throws -> Void
    ) rethrows -> [String] {
      let spill = MemorySpill(keys)
      let run = Run(plan, ["a": history], isDurable: isDurable, on: disk, keys: spill) {
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
      if run.execution.outcome == nil { run.turn { $0.execution.cancel() } }
      return run.written["out"] ?? []
    }
  }

  /// Steps with keys send what they send when all is in memory, though the process or the machine is lost at any turn, after any
  /// commit, heard of or not.
  @Test(arguments: 0..<60 as Range<UInt64>) func crashesChangeNothing(_ seed: UInt64) throws {
    var generator = SplitMix(seed)
    // Whether a key comes again must depend on what is kept of it, and the value of an event on its key and more.
    let values = 4 + generator.next() % 60
    let steps = [
      "{ latest: { by: event % 40 } }",
      "{ latest: { by: event % 17, pairs: true, maxKeys: 12 } }",
      "{ map: \"{'id': event % 30, 'n': event, 'text': 'a longer text than fits into a word'}\" }, { latest: { by: event.id } }",
      "{ distinct: { memory: 12 } }", "{ distinct: { memory: 1000 } }", "{ distinct: { within: 40ms } }",
      "{ distinct: { memory: 15, within: 60ms } }",
      "{ distinct: { by: event % 9 } }, { scan: { start: 0, next: running + 1 } }, { distinct: { memory: 5 } }",
    ]
    let step = steps[Int(seed) % steps.count]
    let plan = try Self.plan(step)
    let history = Self.history(seed, 150, of: step.contains("latest") ? 400 : values)
    let whole = Run(plan, ["a": history], isDurable: nil)
    whole.advance(turns: 5000)
    let wanted = whole.written["out"] ?? []
    #expect(whole.execution.outcome == .completed && !wanted.isEmpty)
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
          plan, history, isDurable: isDurable, memory: memory, isPowerCut: isPowerCut, { $0.pagesOfTurn = pages }
        ) { run, _ in
          run.advance(turns: 1 + Int(generator.next() % 150)) { generator.next() % 3 == 0 }
          for _ in 0..<generator.next() % 3 { run.store.takeOne(isHeard: false) }
        })
    }
    // After the end the state is gone, and a new run would begin anew.
    if disks.disk.commits > 0, disks.disk.state == nil, disks.disk.rows.isEmpty { return }
    parts.append(
      disks.run(plan, history) { run, spill in
        run.advance(turns: 20_000)
        #expect(run.execution.outcome == .completed)
        #expect(spill.written == MemorySpill.Contents(), "the keys go with the state")
      })
    #expect(CommitTests.covers(wanted, parts), "seed \(seed), \(step): \(parts) of \(wanted)")
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

  /// A step that would have to forget keys keeps all in memory.
  @Test(arguments: [
    "{ latest: { by: event, idle: 1h } }", "{ latest: { by: event % 7, pairs: true } }, { latest: { by: event } }",
  ])
  func whatIsForgottenStays(_ chain: String) throws {
    let history = Self.history(3, 300, of: 1000)
    let plan = try Self.plan(chain)
    var disks = Disks()
    let whole = Run(plan, ["a": history], isDurable: nil)
    whole.advance(turns: 40_000)
    let written = disks.run(plan, history) { run, _ in run.advance(turns: 40_000) }
    #expect(written == whole.written["out"])
    #expect(chain.contains("idle") == (disks.writes == 0))
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
  @Test(arguments: [true, false], ["{ distinct: { memory: 1000 } }", "{ latest: { by: event } }"])
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
  ])
  func aReloadGoesOn(_ chain: String, _ other: String) throws {
    let history = SignalHistory((0..<200).map { .init(at: .milliseconds(Int64($0)), .next(.int(Int64($0)))) })
    let plan = try Self.plan(chain)
    var disks = Disks()
    var left: [UInt8]?
    _ = disks.run(plan, history) { run, spill in
      run.advance(turns: 2000)
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
        guard let next = executor.nextDeadline else { break }
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

  @Test(arguments: [
    ("state: { memory: 1MiB }", "RX"), ("state: { memory: much }", "RX"), ("state: { disk: 1GiB }", "RX"),
    ("state: 64MiB", "RX"), ("delivery: bestEffort\nstate: { memory: 64MiB }", "RX342"),
  ])
  func wrongLimitsAreRefused(_ top: String, _ code: String) throws {
    let text =
      "\(top)\nsources: { a: { values: [1] } }\nsinks: { out: { from: a, chain: [ distinct ], probe: {} } }"
    #expect(Self.codes(text).contains { $0.hasPrefix(code) }, "\(Self.codes(text))")
  }

  @Test(arguments: ["{ take: 1 }", "{ latest: { by: event, idle: 1h } }"]) func aLimitWithoutEffectIsRefused(
    _ step: String
  ) throws {
    let text =
      "state: { memory: 64MiB }\nsources: { a: { values: [1] } }\nsinks: { out: { from: a, chain: [ \(step) ], probe: {} } }"
    #expect(Self.codes(text).contains { $0.hasPrefix("RX342") })
  }
}
