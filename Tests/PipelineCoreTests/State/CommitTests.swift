import PipelineTestSupport
import Synchronization
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// A commit is enough to continue from after a crash, in light and in durable delivery.
@Suite struct CommitTests {
  /// One execution on virtual time that saves its state in a store, and whose sinks write late.
  final class Run {
    let time = VirtualTime()
    let executor: Executor
    let execution: Execution
    let store: MemoryStore
    private let notes = Notes()
    var log: [String] { notes.lines.withLock { $0 } }

    private final class Notes: Sendable {
      let lines = Mutex<[String]>([])
    }
    let recordings: [String: (recording: ProbeSink.Recording, turns: LateSink.Turns)]

    /// - Parameter isDurable: Nil: nothing is saved.
    init(
      _ plan: Plan, _ scripts: [String: SignalHistory], isDurable: Bool?, on disk: MemoryStore.Disk = .init(),
      keys: MemorySpill? = nil, memory: MemoryBudget = MemoryBudget(), sink: (any SinkComponent)? = nil,
      _ change: (inout DeliveryOptions) -> Void = { _ in }
    ) {
      executor = Executor(clock: time)
      let notes = notes
      var services = Services(
        http: NoHTTPClient(), log: { _, _, message in notes.lines.withLock { $0.append(message) } },
        deadLetter: { _ in },
        random: { 1 })
      services.memory = memory
      execution = Execution(plan: plan, executor: executor, services: services)
      store = MemoryStore(disk, keys: keys)
      if let isDurable {
        var options = DeliveryOptions(store: store, isDurable: isDurable)
        change(&options)
        execution.commit(with: options)
      }
      recordings = Dictionary(
        uniqueKeysWithValues: plan.sinks.map { ($0.name, (ProbeSink.Recording(), LateSink.Turns())) })
      let recordings = recordings
      execution.replacements.sinks = { name in
        sink ?? recordings[name].map { LateSink($0.recording, turns: $0.turns, losesRest: true) }
      }
      execution.replacements.sources = { name in scripts[name].map { ScriptedSource($0.script) } }
      turn { [state = disk.state] run in
        run.execution.launch(restoring: state) { [unowned run] _ in run.execution.finishCommits {} }
      }
    }

    func turn(_ work: @escaping (Run) -> Void) {
      nonisolated(unsafe) let work = work
      nonisolated(unsafe) unowned let run = self
      executor.post { work(run) }
      _ = executor.runOne()
    }

    /// Runs turns until the pipeline has ended and its last commit is on disk. `takes`: whether the disk accepts a commit now.
    func advance(turns: Int, _ takes: () -> Bool = { true }) {
      for _ in 0..<turns {
        if takes() { store.takeOne() }
        if executor.runOne() { continue }
        if store.waiting > 0 {
          store.takeOne()
          continue
        }
        guard execution.outcome == nil, let next = executor.nextDeadline else { return }
        time.advance(to: max(next, time.now))
      }
    }

    /// Runs everything that can happen while the sink `out` accepts nothing.
    func advanceWithoutSink() {
      turn { $0.execution.outbox(of: "out")?.hold() }
      for _ in 0..<2000 {
        store.takeOne()
        if executor.runOne() { continue }
        guard let next = executor.nextDeadline else { return }
        time.advance(to: max(next, time.now))
      }
    }

    var written: [String: [String]] {
      recordings.mapValues { recording, _ in
        recording.moments.compactMap { entry -> String? in
          guard case .next(let value) = entry.moment else { return nil }
          let text = OutputBuffer()
          JSONWriter.append(value.value, to: text)
          return String(decoding: text.bytes, as: UTF8.self)
        }
      }
    }
  }

  /// Runs a random graph, loses the process at up to three random turns, and continues from the disk. The output before each crash is a
  /// prefix of an undisturbed run's, the output after the last is a suffix of it, and nothing in between is missing.
  private func crash(_ seed: UInt64, isDurable: Bool) throws {
    var generator = GraphGenerator(seed: seed)
    generator.hasCommands = seed % 2 == 0
    let graph = generator.graph()
    let plan = try PipelineRun.compile(graph.yaml)
    let whole = Run(plan, graph.scripts, isDurable: nil)
    whole.advance(turns: 5000)
    guard whole.execution.outcome == .completed else { return }
    let wanted = whole.written

    var disk = MemoryStore.Disk()
    var parts: [[String: [String]]] = []
    for _ in 0...Int(generator.below(3)) {
      let run = Run(plan, graph.scripts, isDurable: isDurable, on: disk) {
        $0.interval = .milliseconds(1)
        // Pages are written in as many turns as needed.
        if seed % 3 == 0 { $0.pagesOfTurn = 1 + Int(seed % 2) }
      }
      #expect(run.execution.refusals.map(\.message) == [])
      run.advance(turns: 1 + Int(generator.below(60))) { generator.below(3) == 0 }
      // The disk may have accepted commits of which the process has not been notified.
      for _ in 0..<Int(generator.below(3)) { run.store.takeOne(isHeard: false) }
      parts.append(run.written)
      disk = run.store.disk
      if run.execution.outcome != nil { break }
      run.turn { $0.execution.cancel() }
    }
    // After the end of the pipeline the state is gone, and a new run would start from the beginning.
    if disk.commits > 0, disk.state == nil, disk.rows.isEmpty { return }
    let last = Run(plan, graph.scripts, isDurable: isDurable, on: disk)
    last.advance(turns: 20_000)
    parts.append(last.written)
    #expect(last.execution.outcome == .completed, "seed \(seed)\n\(graph.yaml)")
    #expect(last.store.disk.rows.isEmpty && last.store.disk.state == nil, "seed \(seed)\n\(graph.yaml)")
    for (sink, values) in wanted {
      #expect(
        Self.covers(values, parts.map { $0[sink] ?? [] }),
        "seed \(seed), \(sink): \(parts.map { $0[sink] ?? [] }) of \(values)\n\(graph.yaml)")
    }
  }

  /// Whether the parts, each a section of `whole` that begins at or before the end of the previous one, cover all of
  /// it.
  static func covers(_ whole: [String], _ parts: [[String]]) -> Bool {
    // The possible lengths of the prefix of `whole` that the parts so far cover.
    var reached: Set<Int> = [0]
    for part in parts {
      var next: Set<Int> = part.isEmpty ? reached : []
      for start in 0...whole.count where !part.isEmpty && start + part.count <= whole.count {
        guard Array(whole[start..<start + part.count]) == part else { continue }
        if reached.contains(where: { $0 >= start }) {
          next.insert(start + part.count)
          // A repeat that ends earlier than the covered prefix loses nothing of it.
          if let most = reached.max(), most > start + part.count { next.insert(most) }
        }
      }
      reached = next
    }
    return reached.contains(whole.count)
  }

  @Test(arguments: 0..<300 as Range<UInt64>)
  func nothingIsLostFromCheckpoints(_ seed: UInt64) throws { try crash(seed, isDurable: false) }

  @Test(arguments: 0..<300 as Range<UInt64>)
  func nothingIsLostFromTheOutbox(_ seed: UInt64) throws { try crash(seed, isDurable: true) }

  private static let plain = "sources: { a: { scripted: {} } }\nsinks: { out: { from: a, probe: {} } }"
  private static let nine = SignalHistory(
    (0..<9).map { .init(at: .milliseconds(10 * $0), .next(.int($0))) } + [.init(at: .milliseconds(90), .complete)])

  /// A sink receives an event only when it is on disk.
  @Test func nothingIsDeliveredBeforeItsCommit() throws {
    let run = Run(try PipelineRun.compile(Self.plain), ["a": Self.nine], isDurable: true)
    for _ in 0..<200 {
      if run.executor.runOne() { continue }
      guard let next = run.executor.nextDeadline else { break }
      run.time.advance(to: max(next, run.time.now))
    }
    #expect(run.written["out"] == [] && run.store.disk.rows.isEmpty)
    #expect(run.store.waiting == 1, "one commit is under way, and the rest waits for it")
    run.advance(turns: 500)
    #expect(run.written["out"] == (0..<9).map(String.init))
    #expect(run.store.disk.commits <= 6, "events that come during a commit share the next")
    #expect(run.execution.outcome == .completed && run.store.disk.state == nil && run.store.disk.rows.isEmpty)
  }

  /// Rows that do not fit in memory are read from disk, in order.
  @Test func longOutboxesStayOnTheDisk() throws {
    let script = SignalHistory(
      (0..<500).map { .init(at: .milliseconds(1 + $0), .next(.int($0))) } + [.init(at: .seconds(1), .complete)])
    let plan = try PipelineRun.compile(Self.plain)
    let run = Run(plan, ["a": script], isDurable: true) {
      $0.memoryBytes = 100
      $0.readBytes = 300
    }
    run.advance(turns: 50_000)
    #expect(run.written["out"] == (0..<500).map(String.init))
    #expect(run.execution.outcome == .completed && run.store.disk.rows.isEmpty)
  }

  /// Rows that the disk has lost do not change the count of rows that are being written, and of those that arrive during the read.
  @Test(arguments: [false, true]) func lostRowsHoldNoOthers(_ arrives: Bool) throws {
    let script = SignalHistory(
      (0..<6).map { .init(at: .milliseconds(10 * (1 + $0)), .next(.int($0))) } + [.init(at: .seconds(1), .complete)])
    let run = Run(try PipelineRun.compile(Self.plain), ["a": script], isDurable: true) { $0.memoryBytes = 0 }
    run.turn { $0.execution.outbox(of: "out")?.hold() }
    while run.store.disk.rows.count < 3 { run.advance(turns: 1) }
    run.store.loseRows()
    run.store.holdsReads = true
    run.turn { $0.execution.outbox(of: "out")?.resume() }
    // One more event arrives during the read; its row is on disk, or waits for a commit.
    run.advance(turns: 10) { false }
    #expect(run.store.waiting == 1)
    if arrives {
      run.store.takeOne()
      while run.executor.runOne() {}
    }
    run.store.holdsReads = false
    run.store.answerReads()
    run.advance(turns: 2000)
    #expect(run.written["out"] == ["3", "4", "5"])
    #expect(run.execution.outcome == .completed && run.store.disk.rows.isEmpty && run.store.faults.isEmpty)
  }

  /// A file was changed while its sink had lines to deliver: the sink of that name gets the events in the lines.
  @Test func linesForAnotherSink() throws {
    let script = SignalHistory([.init(at: .seconds(1), .complete)])
    func written(_ rows: [(kind: UInt8, events: Int, lines: String)]) throws -> (events: [String], lost: UInt64) {
      var disk = MemoryStore.Disk()
      for (index, row) in rows.enumerated() {
        let number = Int64(index + 1)
        disk.rows[number] = OutboxRow(
          number: number, sink: "out", events: row.events, bytes: [row.kind] + Array(row.lines.utf8))
        disk.lastRow = number
      }
      let run = Run(try PipelineRun.compile(Self.plain), ["a": script], isDurable: true, on: disk)
      run.advance(turns: 500)
      #expect(run.execution.outcome == .completed && run.store.disk.rows.isEmpty)
      return (run.written["out"] ?? [], run.execution.counters.undelivered)
    }
    let both = try written([(16, 3, "{\"a\":1}\n[2,3]\n4.5\n"), (17, 2, "x y\n\"\n")])
    #expect(both.events == [#"{"a":1}"#, "[2,3]", "4.5", #""x y""#, #""\"""#])
    #expect(both.lost == 0)
    // A row of an unknown kind is reported, and what comes behind it is delivered.
    let rest = try written([(9, 2, "1\n2\n"), (16, 1, "3\n")])
    #expect(rest.events == ["3"])
  }

  /// Forty events of 100,000 bytes, each with its number before it.
  private static let large: SignalHistory = {
    let text = String(repeating: "x", count: 100_000)
    var entries: [SignalHistory.Entry] = []
    for number in 0..<40 {
      let event = TestValue.text("\(number) " + text)
      entries.append(SignalHistory.Entry(at: .milliseconds(10 + 10 * Int64(number)), .next(event)))
    }
    entries.append(SignalHistory.Entry(at: .seconds(1), .complete))
    return SignalHistory(entries)
  }()

  /// The file allows less than the disk has: what the policy says of a full outbox holds from the start, and what is dropped is counted.
  @Test(arguments: OutboxLimit.Policy.allCases) func aSmallerLimitHoldsFromTheStart(_ policy: OutboxLimit.Policy) throws
  {
    func plan(_ settings: String) throws -> Plan {
      try PipelineRun.compile(
        "sources: { a: { scripted: {} } }\nsinks: { out: { from: a, probe: {}, \(settings) } }")
    }
    let first = Run(try plan("buffer: 16MiB"), ["a": Self.large], isDurable: true)
    first.advanceWithoutSink()
    func events(_ store: MemoryStore) -> Int { store.disk.rows.values.reduce(0) { $0 + $1.events } }
    #expect(events(first.store) == 40)
    let smaller = try plan("buffer: 1MiB, whenFull: \(policy.rawValue)")
    let script = SignalHistory([.init(at: .seconds(9), .complete)])
    let next = Run(smaller, ["a": script], isDurable: true, on: first.store.disk)
    next.advanceWithoutSink()
    let step = try #require(next.execution.statistics.steps.first { $0.step == smaller.sinks[0].step })
    #expect(events(next.store) + Int(step.dropped) == 40)
    #expect(policy == .dropOldest ? events(next.store) <= 11 : step.dropped == 0, "\(events(next.store))")
    #expect(next.executor.isInputPaused == (policy == .block))
  }

  /// A sink that takes nothing has at most `buffer` waiting, in memory or on the disk. What is dropped is counted.
  @Test(arguments: OutboxLimit.Policy.allCases, [64 << 10, 8 << 20])
  func fullOutboxes(_ policy: OutboxLimit.Policy, _ memory: Int) throws {
    let script = Self.large
    let plan = try PipelineRun.compile(
      "sources: { a: { scripted: {} } }\nsinks: { out: { from: a, probe: {}, buffer: 1MiB, whenFull: \(policy.rawValue) } }"
    )
    #expect(plan.delivery(hasStateDirectory: true) == .durable)
    let run = Run(plan, ["a": script], isDurable: true) {
      $0.memoryBytes = memory
      $0.readBytes = memory
    }
    run.advanceWithoutSink()
    #expect(run.written["out"] == [])
    let kept = run.store.disk.rows.values.reduce(0) { $0 + $1.events }
    func sink() throws -> PipelineStatistics.Step {
      try #require(run.execution.statistics.steps.first { $0.step == plan.sinks[0].step })
    }
    let full = try sink()
    #expect(full.outbox?.events == kept && full.holding == UInt64(kept))
    #expect(full.outbox?.oldest.map { $0 >= .zero && $0 <= .seconds(2) } == true)
    #expect(full.isPausing == (policy == .block))
    switch policy {
    case .block:
      #expect(run.executor.isInputPaused)
      #expect(kept == 11, "the row that is over the limit is the last that comes")
    case .dropOldest, .dropNewest:
      #expect(!run.executor.isInputPaused)
      #expect(kept == (policy == .dropOldest ? 10 : 11), "the row that is over the limit is the last that comes")
    }
    run.turn { $0.execution.outbox(of: "out")?.resume() }
    run.advance(turns: 5000)
    #expect(run.execution.outcome == .completed && run.store.disk.rows.isEmpty)
    let empty = try sink()
    #expect(empty.outbox == PipelineStatistics.Queue() && empty.holding == 0 && !empty.isPausing)
    let numbers = (run.written["out"] ?? []).compactMap { text in Int(text.dropFirst().prefix { $0 != " " }) }
    switch policy {
    case .block: #expect(numbers == Array(0..<40))
    case .dropOldest: #expect(numbers == Array(30..<40))
    case .dropNewest: #expect(numbers == Array(0..<11))
    }
    let dropped = run.execution.statistics.steps.reduce(0) { $0 + $1.dropped }
    #expect(dropped == UInt64(40 - numbers.count))
    // Nothing is lost in silence, and one full outbox is not one message for each row.
    // Only an input that waited may fill it again.
    let often = policy == .block ? 1...4 : 1...1
    #expect(often.contains(run.log.count { $0.contains("the outbox is full") }), "\(run.log)")
    let reports = run.log.filter { $0.contains("dropped \(dropped) events") }
    #expect(reports.count == (policy == .block ? 0 : 1), "\(run.log)")
  }

  /// Where the queues of all pipelines hold more than their budget, what waits is on the disk only.
  @Test func queuesShareABudget() throws {
    let plan = try PipelineRun.compile(Self.plain)
    func held(_ budget: MemoryBudget) throws -> [Int] {
      let runs = (0..<2).map { _ in
        let run = Run(plan, ["a": Self.large], isDurable: true, memory: budget) { $0.memoryBytes = 8 << 20 }
        run.advanceWithoutSink()
        return run
      }
      let held = budget.held
      for run in runs {
        run.turn { $0.execution.outbox(of: "out")?.resume() }
        run.advance(turns: 5000)
        #expect(run.execution.outcome == .completed && run.written["out"]?.count == 40)
      }
      return [held, budget.held]
    }
    #expect(try held(MemoryBudget(100 << 20))[0] > 8_000_000)
    let small = try held(MemoryBudget(1 << 20))
    #expect(small[0] < (1 << 20) + 2 * (1 << 20) + 300_000, "its part of the budget for each, and a row")
    #expect(small[1] < 300_000)
  }

  /// Passes events on. Its state has `bytes` bytes, and taking it lasts 100 ms.
  private struct Heavy: OperatorComponent {
    var bytes = 0

    static let spec = ComponentSpec<Heavy>(
      "heavy", summary: "Has a large state.",
      parameters: [.init("bytes", \.bytes, primary: true, required: true, "The size of the state.")],
      memory: "So many bytes.", persistence: .state(version: 1))

    func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
      Node(bytes, nodeContext, downstream)
    }

    final class Node: OperatorNode {
      private let bytes: Int
      init(_ bytes: Int, _ nodeContext: NodeContext, _ downstream: Downstream) {
        self.bytes = bytes
        super.init(nodeContext, downstream: downstream)
      }

      override func save(_ state: inout StateWriter) {
        state.write(String(repeating: "x", count: bytes))
        guard let time = executor.clock as? VirtualTime else { return }
        time.advance(to: time.now + .milliseconds(100))
      }
    }
  }

  /// Where the input waits for commits, a state that takes long to take is not waited for in vain, and is taken for as many bytes of events
  /// as it has itself.
  @Test func largeStates() throws {
    func run(_ bytes: Int, memory: Int = 256 << 20) throws -> (commits: Int, seconds: Double) {
      let plan = try PipelineRun.compile(
        "sources: { a: { scripted: {} } }\nsinks: { out: { from: a, chain: [{ heavy: \(bytes) }], probe: {} } }",
        catalogue: PipelineRun.catalogue.adding(Catalogue([CatalogueEntry(operator: Heavy.self)])))
      let run = Run(plan, ["a": Self.large], isDurable: true, memory: MemoryBudget(memory)) {
        $0.uncommittedBytes = 50_000
      }
      run.advance(turns: 5000)
      #expect(run.execution.outcome == .completed && run.written["out"]?.count == 40)
      return (run.store.disk.commits, Double(run.time.now.nanoseconds) / 1e9)
    }
    // Each event is more than may wait, so there is a commit for each, and a further one removes what was delivered.
    let small = try run(10)
    #expect(small.commits >= 40)
    #expect(small.seconds < 0.1 * Double(small.commits) + 3, "\(small)")
    let large = try run(1_000_000)
    #expect(large.commits <= 20, "\(large)")
    // A quarter of the memory that all queues have is the most.
    let bounded = try run(1_000_000, memory: 1_200_000)
    #expect(bounded.commits > large.commits && bounded.commits < small.commits, "\(bounded)")
  }

  // MARK: Dead letters

  private static let refusing =
    "sources: { a: { scripted: {} } }\nsinks: { out: { from: a, chain: [{ map: event + 1 }], probe: {} } }"

  /// Dead letters that are in no finished commit are bounded as rows are: the input waits.
  @Test(arguments: [false, true])
  func deadLettersInMemoryAreBounded(_ isDurable: Bool) throws {
    let run = Run(try PipelineRun.compile(Self.refusing), ["a": Self.large], isDurable: isDurable) {
      $0.uncommittedBytes = 500_000
    }
    for _ in 0..<200 where !run.executor.isInputPaused {
      if run.executor.runOne() { continue }
      guard let next = run.executor.nextDeadline else { break }
      run.time.advance(to: max(next, run.time.now))
    }
    #expect(run.executor.isInputPaused && run.execution.outcome == nil)
    run.advance(turns: 5000)
    #expect(!run.executor.isInputPaused && run.execution.outcome == .completed)
    #expect(run.store.disk.deadLetters.count == 40)
  }

  /// A sink that cannot deliver.
  private struct Failing: SinkComponent {
    static let spec = ComponentSpec<Failing>("failing", summary: "Delivers nothing.")
    func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(nodeContext) }
    final class Node: RunningSink {
      override func receive(_ event: Event) { take(1, bytes: 0).acknowledgeAll(.failed("no room")) }
      override func finish() { drained() }
    }
  }

  /// After an event that was not delivered no state is committed any more; dead letters are.
  @Test func deadLettersAfterAFailedCheckpoint() throws {
    var entries = Self.large.entries
    entries.insert(SignalHistory.Entry(at: .milliseconds(1), .next(.int(1))), at: 0)
    let run = Run(
      try PipelineRun.compile(Self.refusing), ["a": SignalHistory(entries)], isDurable: false, sink: Failing()
    ) { $0.uncommittedBytes = 500_000 }
    while run.execution.outcome == nil, run.time.now < Instant(nanoseconds: 800_000_000) {
      run.store.takeOne()
      if run.executor.runOne() { continue }
      guard let next = run.executor.nextDeadline else { break }
      run.time.advance(to: max(next, run.time.now))
    }
    #expect(run.log.contains { $0.contains("no room") }, "\(run.log)")
    #expect(run.store.disk.deadLetters.count == 40 && !run.executor.isInputPaused)
  }

  /// A pipeline that does nothing commits nothing.
  @Test func silenceIsNotCommitted() throws {
    let script = SignalHistory([.init(at: .milliseconds(1), .next(.int(1))), .init(at: .seconds(60), .complete)])
    for isDurable in [false, true] {
      let run = Run(try PipelineRun.compile(Self.plain), ["a": script], isDurable: isDurable)
      var turns = 0
      while run.time.now < Instant(nanoseconds: 50_000_000_000), turns < 1000 {
        turns += 1
        run.store.takeOne()
        if run.executor.runOne() { continue }
        guard let next = run.executor.nextDeadline else { break }
        run.time.advance(to: max(next, run.time.now))
      }
      #expect(run.store.disk.commits <= 3, "\(isDurable)")
      #expect(turns < 40)
    }
  }

  /// While the store has no room, the input waits; clients whose events it cannot take are answered at once, others keep waiting, and all goes on when there
  /// is room.
  @Test func aStoreWithoutRoom() throws {
    let script = SignalHistory([.init(at: .seconds(60), .complete)])
    let run = Run(try PipelineRun.compile(Self.plain), ["a": script], isDurable: true)
    let outcomes = Mutex<[String: Ack.Outcome]>([:])
    func send(_ name: String, isClient: Bool = true) {
      let note: @Sendable (Ack.Outcome) -> Void = { outcome in outcomes.withLock { $0[name] = outcome } }
      let answer: @Sendable (Ack.Outcome) -> ServerAnswer = { outcome in
        note(outcome)
        return .after(outcome)
      }
      run.turn { $0.executor.track(isClient ? Ack.ofClient(Client(), answer) : Ack(note)) }
    }
    func settle() {
      for _ in 0..<100 where !run.executor.runOne() {
        guard let next = run.executor.nextDeadline, next < Instant(nanoseconds: 30_000_000_000) else { return }
        run.time.advance(to: max(next, run.time.now))
      }
    }
    func settleAll() {
      for _ in 0..<20 {
        settle()
        run.store.takeOne()
      }
      settle()
    }
    settleAll()
    send("under way")
    send("next")
    send("other", isClient: false)
    settle()
    run.store.has(.reserve)
    settle()
    #expect(run.executor.isInputPaused && run.execution.storage.isFull)
    #expect(outcomes.withLock { $0.isEmpty }, "what is kept may do for them")
    run.store.has(.none)
    settle()
    #expect(Set(outcomes.withLock { Array($0.keys) }) == ["under way", "next"])
    #expect(outcomes.withLock { $0.values.allSatisfy { $0 != .acknowledged } })
    settleAll()
    #expect(outcomes.withLock { $0["other"] } == .acknowledged)
    run.store.has(.reserve)
    settle()
    #expect(run.executor.isInputPaused)
    run.store.has(.enough)
    settle()
    #expect(!run.executor.isInputPaused && !run.execution.storage.isFull)
    send("later")
    settleAll()
    #expect(outcomes.withLock { $0["later"] } == .acknowledged)
  }
}

/// A client that waits for an answer.
private final class Client: ReplyTarget {
  func reply(status: Int, headers: [(name: String, value: String)], body: [UInt8]) -> Bool { true }
}
