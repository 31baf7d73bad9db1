import CCounting
import PipelineCore

/// A chain of steps in a real graph, fed with the same JSON events repeatedly.
package struct ChainRun {
  private let plan: Plan

  /// `chain` is the YAML of the steps on one line: `[ { filter: event.a > 1 } ]`. Nil if it is wrong.
  package init?(_ chain: String) {
    let yaml = """
      name: measured
      sources: { events: { repeated: {} } }
      sinks: { out: { from: events, chain: \(chain), counting: {} } }
      """
    let catalogue = Catalogue.operators.adding(
      Catalogue([CatalogueEntry(source: Repeated.self), CatalogueEntry(sink: Counting.self)]))
    guard let plan = FrontEnd(catalogue).compile(yaml, name: "measured.yaml").plan else { return nil }
    self.plan = plan
  }

  /// Sends `turns` batches of `count` events, cycling through `events`. Returns the counts of the last batch, and the
  /// nanoseconds per event without the first tenth. `received`: how many events came out in all.
  package func run(_ events: [String], count: Int, turns: Int) -> (counts: Counts, nanoseconds: Double, received: Int) {
    let time = VirtualTime()
    let executor = Executor(clock: time)
    let execution = Execution(
      plan: plan, executor: executor,
      services: Services(
        http: NoHTTP(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 4 }))
    let task = Repeated.Task(events, count, turns)
    execution.replacements.sources = { _ in Repeated(task) }
    nonisolated(unsafe) let running = execution
    executor.post { running.launch { _ in } }
    time.run(executor, turnLimit: 10_000_000, isDone: { running.outcome != nil })
    return (task.last, task.nanoseconds, Int(execution.counters.sent))
  }

  /// The allocations and references caused by `count` events: the difference between batches of two sizes, which may be
  /// zero.
  package func countsPerBatch(_ events: [String], count: Int = 64) -> Counts {
    run(events, count: 2 * count, turns: 32).counts - run(events, count: count, turns: 32).counts
  }
}

/// A source of copies of a few events, decoded from NDJSON in every turn.
struct Repeated: SourceComponent {
  final class Task: @unchecked Sendable {
    let slab: Slab
    let turns: Int
    let count: Int
    var last = Counts(allocations: 0, references: 0)
    var nanoseconds = 0.0

    init(_ events: [String], _ count: Int, _ turns: Int) {
      var bytes: [UInt8] = []
      for index in 0..<count { bytes += Array(events[index % events.count].utf8) + [0x0A] }
      slab = Slab(bytes)
      self.count = count
      self.turns = turns
    }
  }

  private let task: Task

  init() { task = Task(["{}"], 1, 1) }
  init(_ task: Task) { self.task = task }

  static let spec = ComponentSpec<Repeated>("repeated", summary: "Sends the same events again and again.")

  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(task, nodeContext, downstream)
  }

  final class Node: DecodingSource {
    private let task: Task
    private let decoder = try? DecoderOptions(.ndjson).decoder()
    private var turn = 0
    private var began = 0.0

    init(_ task: Task, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.task = task
      super.init(nodeContext, downstream: downstream)
    }

    override func begin() { _ = wake(after: .milliseconds(1)) }

    override func woke(_ token: Int) {
      guard let decoder else { return finish() }
      turn += 1
      if turn == task.turns / 10 + 1 { began = Stopwatch.now }
      let isLast = turn >= task.turns
      if isLast {
        let measured = Double(task.turns - task.turns / 10 - 1)
        if measured > 0 { task.nanoseconds = (Stopwatch.now - began) / measured / Double(task.count) }
        rx_counting_start()
      }
      take(task.slab, offset: 0, isLast: true, by: decoder, origin: origin)
      if isLast {
        task.last = Counts(rx_counting_stop())
        finish()
      } else {
        _ = wake(after: .milliseconds(1))
      }
    }
  }
}

/// A sink that counts.
struct Counting: SinkComponent {
  static let spec = ComponentSpec<Counting>("counting", summary: "Counts events.")
  func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(nodeContext) }
  final class Node: RunningSink {
    private var count = 0
    override func receive(_ event: Event) { count &+= 1 }
    override func turnEnded() { reportCount() }
    override func finish() {
      reportCount()
      super.finish()
    }
    private func reportCount() {
      delivered(count)
      count = 0
    }
  }
}

final class NoHTTP: HTTPClient {
  func send(
    _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    preconditionFailure("no request was expected")
  }
}
