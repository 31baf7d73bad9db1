import CCounting
import PipelineCore

/// A pipeline over integers that are generated in memory, so that only the graph costs anything.
///
/// Its sources are `numbers`, which sends consecutive integers, and `one`, which sends a single one and completes;
/// its sink is `counting`.
package struct OperatorRun {
  private let plan: Plan

  /// `signals` is the YAML of `sources`, `signals` and so on; the sink `out` takes the signal `result`. Nil if it is
  /// wrong.
  package init?(_ signals: String) {
    let yaml = "name: measured\n\(signals)\nsinks: { out: { from: result, counting: {} } }\n"
    let catalogue = Catalogue.operators.adding(
      Catalogue([
        CatalogueEntry(source: Numbers.self), CatalogueEntry(source: One.self), CatalogueEntry(sink: Counting.self),
      ]))
    guard let plan = FrontEnd(catalogue).compile(yaml, name: "measured.yaml").plan else { return nil }
    self.plan = plan
  }

  /// A chain after one source.
  package init?(chain: String) {
    self.init(
      "sources: { events: { numbers: {} } }\nsignals: { result: { from: events, chain: \(chain) } }")
  }

  /// The results of a run.
  package struct Figures {
    /// Per event of all sources, without the first tenth of the turns.
    package var nanoseconds: Double
    /// The counts of the last turn.
    package var counts: Counts
    /// Allocations per event, in the last turn.
    package var allocations: Double
    /// Events that reached the sink.
    package var received: Int
  }

  /// Runs `turns` turns, in each of which each source sends `count` integers.
  package func run(count: Int = 1000, turns: Int = 200) -> Figures {
    let time = VirtualTime()
    let executor = Executor(clock: time)
    let execution = Execution(
      plan: plan, executor: executor,
      services: Services(http: NoHTTP(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 4 }))
    let task = Numbers.Task(count, turns)
    execution.replacements.sources = { _ in task.source() }
    nonisolated(unsafe) let running = execution
    executor.post { running.launch { _ in } }
    time.run(executor, turnLimit: 100_000_000, isDone: { running.outcome != nil })
    let sent = Double(task.sources * count)
    return Figures(
      nanoseconds: task.nanoseconds / sent, counts: task.counts, allocations: Double(task.counts.allocations) / sent,
      received: Int(execution.counters.sent))
  }

  /// The allocations and references caused by `count` events of each source: the difference between turns of two sizes.
  package func countsPerTurn(_ count: Int = 64) -> Counts {
    run(count: 2 * count, turns: 32).counts - run(count: count, turns: 32).counts
  }

  /// Nanoseconds per event in several runs, sorted.
  package func samples(_ samples: Int = 7, count: Int = 1000, turns: Int = 200) -> [Double] {
    (0..<samples).map { _ in run(count: count, turns: turns).nanoseconds }.sorted()
  }
}

/// Sends consecutive integers, a given number in each turn.
struct Numbers: SourceComponent {
  final class Task: @unchecked Sendable {
    let count: Int
    let turns: Int
    var sources = 0
    var finished = 0
    var began = 0.0
    /// The time of one turn of all sources.
    var nanoseconds = 0.0
    var counts = Counts(allocations: 0, references: 0)

    init(_ count: Int, _ turns: Int) {
      self.count = count
      self.turns = turns
    }

    /// One more source of the top level.
    func source() -> Numbers {
      sources += 1
      return Numbers(self)
    }
  }

  private let task: Task?

  init() { task = nil }
  init(_ task: Task) { self.task = task }

  static let spec = ComponentSpec<Numbers>("numbers", summary: "Sends consecutive integers.")

  var outputType: EventType { EventType(.int) }

  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(task ?? Task(0, 0), nodeContext, downstream)
  }

  final class Node: RunningSource {
    private let task: Task
    private let isFirst: Bool
    private var turn = 0

    init(_ task: Task, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.task = task
      isFirst = task.sources == 1
      super.init(nodeContext, downstream: downstream)
    }

    override func begin() { _ = wake(after: .milliseconds(1)) }

    override func woke(_ token: Int) {
      turn += 1
      let isLast = turn >= task.turns
      if isFirst, turn == task.turns / 10 + 1 { task.began = Stopwatch.now }
      if isFirst, isLast {
        let measured = Double(task.turns - task.turns / 10 - 1)
        if measured > 0 { task.nanoseconds = (Stopwatch.now - task.began) / measured }
        rx_counting_start()
      }
      let start = Int64(turn) * Int64(task.count)
      for number in start..<start + Int64(task.count) { produce(.int(number)) }
      guard isLast else {
        _ = wake(after: .milliseconds(1))
        return
      }
      task.finished += 1
      if task.finished == task.sources { task.counts = Counts(rx_counting_stop()) }
      finish()
    }
  }
}

/// One integer.
struct One: SourceComponent {
  static let spec = ComponentSpec<One>("one", summary: "Sends one integer.")

  var immediateValues: OwnedValue? { OwnedValue(.int(1)) }

  var outputType: EventType { EventType(.int) }

  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(nodeContext, downstream: downstream)
  }

  final class Node: RunningSource {
    override func begin() {
      produce(.int(1))
      finish()
    }
  }
}

/// Timers of one executor, without a pipeline.
package final class TimerRun: TimerTarget {
  private let time = VirtualTime()
  private var fired = 0

  package init() {}

  package func woke(_ token: Int) { fired += 1 }

  /// Nanoseconds per timer for setting, cancelling and firing `count` timers with scattered deadlines, all pending at
  /// the same time; half of them are cancelled.
  package func run(_ count: Int) -> (set: Double, cancel: Double, fire: Double) {
    let executor = Executor(clock: time)
    var state: UInt64 = 1
    func scattered() -> Int64 {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int64(state >> 24)
    }
    var wakes: [Wake] = []
    wakes.reserveCapacity(count)
    let deadlines = (0..<count).map { _ in time.now + TimeSpan(nanoseconds: scattered() + 1) }
    let start = Stopwatch.now
    for deadline in deadlines { wakes.append(executor.schedule(at: deadline, self, 0)) }
    let set = Stopwatch.now
    for index in stride(from: 0, to: count, by: 2) { executor.unschedule(wakes[index]) }
    let cancelled = Stopwatch.now
    fired = 0
    time.run(executor, turnLimit: .max)
    let over = Stopwatch.now
    precondition(fired == count - (count + 1) / 2 && executor.pendingTimers == 0)
    let half = Double(count) / 2
    return ((set - start) / Double(count), (cancelled - set) / half, (over - cancelled) / half)
  }
}
