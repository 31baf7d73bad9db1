import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// The state of many keys is committed in pages, of which a commit writes the changed ones. In debug builds, such as this one, a commit fails if a
/// page has changed without being marked.
@Suite struct PagedStateTests {
  private typealias Run = CommitTests.Run

  private static func pipeline(_ chain: String) throws -> Plan {
    try PipelineRun.compile(
      "sources: { a: { scripted: {} } }\nsinks: { out: { from: a, chain: [ \(chain) ], probe: {} } }")
  }

  private static func script(_ values: some Sequence<Int64>, every tick: TimeSpan = .milliseconds(1)) -> SignalHistory {
    let entries = values.enumerated().map { index, value in
      SignalHistory.Entry(
        at: TimeSpan(nanoseconds: tick.nanoseconds * Int64(index + 1)), .next(.int(value)))
    }
    return SignalHistory(entries)
  }

  /// Commits whenever possible.
  private static func run(
    _ plan: Plan, _ history: SignalHistory, on disk: MemoryStore.Disk = .init(),
    _ change: (inout DeliveryOptions) -> Void = { _ in }
  ) -> Run {
    Run(plan, ["a": history], isDurable: true, on: disk) {
      $0.interval = .zero
      change(&$0)
    }
  }

  /// Everything up to that time happens and is committed.
  private static func advance(_ run: Run, to end: TimeSpan) {
    let end = Instant(nanoseconds: end.nanoseconds)
    while true {
      if run.store.waiting > 0 { run.store.takeOne() }
      if run.executor.runOne() || run.store.waiting > 0 { continue }
      guard let next = run.executor.nextDeadline, next <= end else { return }
      run.time.advance(to: max(next, run.time.now))
    }
  }

  private static func pages(of keys: Int) -> Int { (keys + StatePages.keysOfPage - 1) / StatePages.keysOfPage }

  private static let counting =
    "{ groupBy: { key: event, maxGroups: 5000, chain: [ { scan: { start: 0, next: running + 1 } } ] } }"

  /// The cost of a commit is proportional to the changes, however large the state.
  @Test(arguments: [counting, "{ distinct: { memory: 5000 } }"]) func whatHasChangedIsWritten(_ chain: String) throws {
    let count: Int64 = 3000
    var entries = (0..<count).map { SignalHistory.Entry(at: .milliseconds(1), .next(.int($0))) }
    // Keys in different pages, one after another.
    let later: [Int64] = chain == Self.counting ? [7, 1500, 2999, 7] : [3000, 3001, 3002, 3003]
    for (index, value) in later.enumerated() {
      entries.append(.init(at: .milliseconds(10 + 10 * Int64(index)), .next(.int(value))))
    }
    for (index, value) in [7, 2999, 3003, 5].enumerated() {
      entries.append(.init(at: .milliseconds(100 + Int64(index)), .next(.int(Int64(value)))))
    }
    let run = Self.run(try Self.pipeline(chain), SignalHistory(entries))
    Self.advance(run, to: .milliseconds(9))
    let first = run.store.disk.changedPages
    for number in 1...later.count {
      Self.advance(run, to: .milliseconds(10 * Int64(number) + 5))
      #expect(run.store.disk.changedPages == first + number)
    }
    // The next run continues from there.
    let next = Self.run(try Self.pipeline(chain), SignalHistory(entries), on: run.store.disk)
    Self.advance(next, to: .seconds(1))
    #expect(next.execution.refusals.isEmpty)
    // Events that the first run had not delivered come first.
    #expect((next.written["out"] ?? []).suffix(4) == (chain == Self.counting ? ["4", "3", "1", "2"] : []))
  }

  /// A start continues from the pages in the store, and so does the start after it: each commit writes the changes since the last.
  @Test(arguments: [
    (
      "{ groupBy: { key: event, idle: 1h, chain: [ { scan: { start: 0, next: running + 1 } } ] } }",
      ["3", "2", "4", "1"]
    ),
    ("{ groupBy: { key: event, chain: [ { window: { every: 1h, aggregate: { n: count() } } } ] } }", []),
    ("{ latest: { by: 'event % 1000', idle: 1h } }", ["1007"]),
    ("{ topN: { by: event, per: 'event % 1000', count: 2, idle: 1h } }", ["8", "7", "1007"]),
    ("{ distinct: { within: 1h } }", ["1007"]),
  ])
  func aStartWritesNothingAnew(_ chain: String, _ sent: [String]) throws {
    var entries = (0..<200).map { SignalHistory.Entry(at: .milliseconds(1), .next(.int($0))) }
    for (index, value) in [7, 7, 8, 7, 1007].enumerated() {
      entries.append(.init(at: .milliseconds(10 + 10 * Int64(index)), .next(.int(Int64(value)))))
    }
    let plan = try Self.pipeline(chain)
    var run = Self.run(plan, SignalHistory(entries))
    Self.advance(run, to: .milliseconds(15))
    var changed = run.store.disk.changedPages
    #expect(changed >= Self.pages(of: 200))
    var written: [String] = []
    for _ in 0..<4 {
      var disk = run.store.disk
      disk.rows = [:]
      run = Self.run(plan, SignalHistory(entries), on: disk)
      // The next event is as far from the start as it was from the last commit.
      Self.advance(run, to: .milliseconds(15))
      #expect(run.execution.refusals.isEmpty)
      #expect(run.store.disk.changedPages <= changed + 2 && run.store.disk.pages.count == 1)
      changed = run.store.disk.changedPages
      written += run.written["out"] ?? []
    }
    #expect(written == sent)
  }

  /// A stop also writes the changes since the last commit, and the next start finds all of them.
  @Test func aStopWritesWhatHasChanged() throws {
    var entries = (0..<200).map { SignalHistory.Entry(at: .milliseconds(1), .next(.int($0))) }
    for value in 0..<4 as Range<Int64> { entries.append(.init(at: .milliseconds(10 + value), .next(.int(value)))) }
    entries.append(.init(at: .milliseconds(30), .next(.int(3))))
    let plan = try Self.pipeline(Self.counting)
    var run = Self.run(plan, SignalHistory(entries))
    Self.advance(run, to: .milliseconds(5))
    let changed = run.store.disk.changedPages
    // The events of the next milliseconds are in no commit before the last.
    run.time.advance(to: Instant(nanoseconds: 20_000_000))
    while run.executor.runOne() {}
    run.turn { $0.execution.suspend(isFinal: true) }
    Self.advance(run, to: .milliseconds(21))
    #expect(run.execution.leftState?.isInStore == true && run.store.disk.pages.count == 1)
    #expect((1...4).contains(run.store.disk.changedPages - changed))
    run = Self.run(plan, SignalHistory(entries), on: run.store.disk)
    Self.advance(run, to: .milliseconds(40))
    #expect(run.execution.refusals.isEmpty && run.written["out"]?.suffix(1) == ["3"])
  }

  /// A step that resumes its clock reads times differently from its neighbours: after a pause all pages are written again. The output is the same
  /// as from states that are written whole.
  @Test(arguments: ["fire", "skip", "resume"], [TimeSpan.zero, .milliseconds(7), .seconds(10)])
  func timesInPagesStandStill(_ rule: String, _ pause: TimeSpan) throws {
    let chain =
      "{ groupBy: { key: 'event % 9', idle: 40ms, chain: [ { window: { every: 10ms, aggregate: { n: count() } } } ] } }, { distinct: { within: 25ms } }, { latest: { by: event.n, idle: 30ms } }"
    let plan = try PipelineRun.compile(
      "whenLate: \(rule)\nsources: { a: { scripted: {} } }\nsinks: { out: { from: a, chain: [ \(chain) ], probe: {} } }"
    )
    let entries = (0..<60).map { SignalHistory.Entry(at: .milliseconds(3 * ($0 + 1)), .next(.int($0 * $0))) }
    func result(keepsPages: Bool) -> [String] {
      var options = PipelineRun.Options()
      options.cutAfter = { $0 % 4 == 0 }
      options.pause = pause
      options.keepsPages = keepsPages
      let run = PipelineRun(plan, sources: ["a": ScriptedSource(SignalHistory(entries).script)], options: options)
      #expect(run.refusals.map(\.message) == [])
      return run.texts["out"] ?? []
    }
    let paged = result(keepsPages: true)
    #expect(paged == result(keepsPages: false) && !paged.isEmpty)
  }

  /// A large state is written in several turns: events pass between them, and the commit contains the state at its end.
  @Test func manyPagesTakeTurns() throws {
    let plan = try Self.pipeline(Self.counting)
    let first = (0..<640).map { SignalHistory.Entry(at: .milliseconds(1), .next(.int(Int64($0)))) }
    let rest = (0..<640).map { SignalHistory.Entry(at: .milliseconds(2), .next(.int(Int64($0 * 33 % 640)))) }
    let whole = SignalHistory(first + rest + [.init(at: .milliseconds(900), .next(.int(5)))])
    let before = Self.run(plan, whole) { $0.pagedKeys = 1000 }
    // The second half arrives a millisecond later.
    Self.advance(before, to: TimeSpan(nanoseconds: 1_500_000))
    #expect(before.store.disk.changedPages == 0)
    let all = Self.pages(of: 640)
    // The first commit with pages writes all of them, a tenth per turn, while each event changes one.
    let run = Run(plan, ["a": whole], isDurable: true, on: before.store.disk) {
      $0.interval = .milliseconds(1)
      $0.pagesOfTurn = all / 10
    }
    var written: [Int] = []
    while run.executor.nextDeadline != nil || run.store.waiting > 0 {
      run.advance(turns: 1)
      let count = run.store.disk.changedPages - before.store.disk.changedPages
      if count != written.last ?? 0 { written.append(count) }
      guard written.count < 3 else { break }
    }
    #expect(written.first.map { $0 == all } == true, "nothing is on the disk before all pages are: \(written)")
    #expect(Set(run.store.disk.pages.values.map(\.count)) == [all])
    let next = Self.run(plan, whole, on: run.store.disk)
    Self.advance(next, to: .seconds(2))
    let parts = [before, run, next].map { $0.written["out"] ?? [] }
    let wanted = first.map { _ in "1" } + rest.map { _ in "2" } + ["3"]
    #expect(CommitTests.covers(wanted, parts))
  }

  /// While a step has state that cannot be saved, its state is left out of each commit, also of those after which only other pages have changed.
  @Test func whatCannotBeSavedIsNeverTakenForUnchanged() throws {
    let plan = try Self.pipeline("{ latest: { by: event.k, maxKeys: 5000 } }")
    func event(_ key: Int64, _ value: TestValue) -> TestValue {
      .object([.init(Array("k".utf8), .int(key)), .init(Array("v".utf8), value)])
    }
    let deep = (0..<200).reduce(TestValue.int(1)) { inner, _ in .list([inner]) }
    var entries = (0..<40).map { key in
      SignalHistory.Entry(at: .milliseconds(1), .next(event(key, key == 5 ? deep : .int(0))))
    }
    entries.append(.init(at: .milliseconds(10), .next(event(39, .int(1)))))
    // The step's current value, which would be dropped if the step had continued.
    entries.append(.init(at: .milliseconds(20), .next(event(39, .int(1)))))
    entries.append(.init(at: .milliseconds(30), .next(event(5, .int(2)))))
    entries.append(.init(at: .milliseconds(40), .next(event(39, .int(1)))))
    let history = SignalHistory(entries)
    let run = Self.run(plan, history)
    func written(after time: TimeSpan, through end: TimeSpan) -> [String] {
      Self.advance(run, to: time)
      var disk = run.store.disk
      disk.rows = [:]
      let next = Self.run(plan, history, on: disk)
      Self.advance(next, to: end)
      #expect(next.execution.refusals.isEmpty)
      return next.written["out"] ?? []
    }
    // The next event is as far from the start of the continued run as it was from the last commit: 10 ms.
    #expect(written(after: .milliseconds(15), through: .milliseconds(15)) == [#"{"k":39,"v":1}"#])
    #expect(run.execution.saved.faults.count == 1)
    // Without that value, the whole state is saved again.
    #expect(written(after: .milliseconds(35), through: .milliseconds(15)) == [])
    #expect(run.execution.saved.faults.isEmpty)
  }

  /// Pages of removed groups are removed, and all pages with the state.
  @Test func groupsThatGoTakeTheirPages() throws {
    let plan = try Self.pipeline(
      "{ groupBy: { key: event, idle: 20ms, chain: [ { scan: { start: 0, next: running + 1 } } ] } }")
    var history = Self.script(0..<100, every: .milliseconds(0))
    history.entries.append(.init(at: .milliseconds(30), .next(.int(5))))
    history.entries.append(.init(at: .milliseconds(90), .complete))
    let run = Self.run(plan, history)
    Self.advance(run, to: .milliseconds(10))
    func pages() -> Int { run.store.disk.pages.values.reduce(0) { $0 + $1.count } }
    #expect(pages() == Self.pages(of: 100))
    Self.advance(run, to: .milliseconds(40))
    #expect(pages() == 1)
    Self.advance(run, to: .seconds(1))
    #expect(run.execution.outcome == .completed && run.store.disk.state == nil && pages() == 0)
  }

  /// A state below the limit is written whole, as before; above it, it is written in pages from then on.
  @Test func fewKeysNeedNoPages() throws {
    let run = Self.run(try Self.pipeline(Self.counting), Self.script(0..<12)) { $0.pagedKeys = 10 }
    Self.advance(run, to: .milliseconds(9))
    #expect(run.store.disk.pages.isEmpty && run.store.disk.state != nil)
    Self.advance(run, to: .milliseconds(11))
    #expect(run.store.disk.pages.values.map(\.count) == [Self.pages(of: 11)])
  }

  /// Corrupted bytes are detected, in the pages and elsewhere.
  @Test func damageIsRefused() throws {
    let plan = try Self.pipeline(Self.counting)
    var history = Self.script(0..<100, every: .zero)
    history.entries.append(.init(at: .milliseconds(5), .next(.int(3))))
    let run = Self.run(plan, history)
    Self.advance(run, to: .milliseconds(1))
    let state = try #require(run.store.disk.state)
    #expect(run.store.disk.pages.values.map(\.count) == [Self.pages(of: 100)])
    func expectRefusal(_ damaged: [UInt8], _ what: String) {
      var disk = run.store.disk
      disk.state = damaged
      disk.rows = [:]
      let next = Self.run(plan, history, on: disk)
      Self.advance(next, to: .seconds(1))
      // The groups start empty, and the source from the start, or from its position if that can be read.
      let written = next.written["out"] ?? []
      #expect(
        written == ["1"] || written.count == 101 && written.last == "2",
        "\(what) of \(state.count): \(written.count), \(written.last ?? "none")")
      #expect(!next.execution.refusals.isEmpty, "\(what) of \(state.count)")
    }
    for at in stride(from: 4, to: state.count, by: 3) {
      var damaged = state
      damaged[at] ^= 0x11
      expectRefusal(damaged, "byte \(at)")
    }
    for count in stride(from: 0, to: state.count, by: 11) { expectRefusal(Array(state[..<count]), "\(count) bytes") }
    for at in stride(from: 4, to: state.count, by: 12) where state[at] != 0 {
      // A state without any part of the pages, not even their start.
      expectRefusal(Array(state[..<at] + state[(at + 1)...]), "all but byte \(at)")
    }
  }

  // MARK: Every step in a group

  /// The steps of examples, each in groups.
  static let grouped: [CatalogueExample] = CatalogueExample.marbles.filter { example in
    guard case .marble(_, let inputs, _, _) = example.example.body, inputs.count == 1,
      let marbles = try? MarbleCase(example.example), !marbles.isSignal, !marbles.isEndless
    else { return false }
    return (try? plan(marbles)) != nil
  }

  private static func plan(_ marbles: MarbleCase) throws -> Plan {
    try PipelineRun.compile(
      """
      sources: { a: { scripted: {} } }
      signals:
        result:
          from: a
          chain:
            - groupBy:
                key: '1'
                chain:
                  - \(marbles.text)
      sinks: { out: { from: result, probe: {} } }
      """)
  }

  @Test func examplesFitIntoGroups() {
    // Most examples, so that the law means something. The others fail in a group, or wait for events that only their own
    // signal would send.
    let completing = Self.grouped.filter { example in
      guard let marbles = try? MarbleCase(example.example), let plan = try? Self.plan(marbles) else { return false }
      let run = Run(plan, ["a": marbles.inputs[0].history], isDurable: nil)
      run.advance(turns: 5000)
      return run.execution.outcome == .completed
    }
    #expect(completing.count >= 120 && Set(completing.map(\.component)).count >= 45)
  }

  /// A step in a group whose process is lost continues from the last commit, whatever its state and however it changes: at events, at timers, as
  /// event time advances, at the end.
  @Test(arguments: grouped) func stepsInGroupsAreMarked(_ example: CatalogueExample) throws {
    let marbles = try MarbleCase(example.example)
    let plan = try Self.plan(marbles)
    let name = marbles.inputs[0].name
    try #require(name == "a")
    let history = marbles.inputs[0].history
    let whole = Run(plan, ["a": history], isDurable: nil)
    whole.advance(turns: 5000)
    guard whole.execution.outcome == .completed, let wanted = whole.written["out"] else {
      // `examplesFitIntoGroups` limits the number of these.
      return
    }
    for turns in 1...25 {
      let first = Self.run(plan, history)
      first.advance(turns: turns)
      let disk = first.store.disk
      if first.execution.outcome != nil { break }
      first.turn { $0.execution.cancel() }
      let last = Self.run(plan, history, on: disk)
      #expect(last.execution.refusals.map(\.message) == [])
      last.advance(turns: 20_000)
      #expect(last.execution.outcome == .completed)
      let parts = [first.written["out"] ?? [], last.written["out"] ?? []]
      #expect(
        CommitTests.covers(wanted, parts), "after \(turns) turns: \(parts) of \(wanted)",
        sourceLocation: example.location)
    }
  }
}
