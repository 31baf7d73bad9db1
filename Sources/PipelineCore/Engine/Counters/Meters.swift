/// What one step has done with events, beside those that its edges count. Written by one thread.
struct StepCounters {
  /// Events of its own, in place of none that came: figures, windows, values at the end.
  var made: UInt64 = 0
  /// Kept, or used for what it makes.
  var kept: UInt64 = 0
  var dropped: UInt64 = 0
  var superseded: UInt64 = 0
  var undecided: UInt64 = 0
  var rejected: UInt64 = 0
  var failed: UInt64 = 0
  /// Held when its subscription ended: lost, or part of a saved state.
  var held: UInt64 = 0
  /// Of a sink: delivered.
  var delivered: UInt64 = 0
  /// Of a source or sink: read or written.
  var bytes: UInt64 = 0
  /// Of a source: where in its input the next event will be looked for; -1: unknown.
  var position: Int64 = -1
  /// Nanoseconds that so many events took in the step, without the steps behind it.
  var nanoseconds: Int64 = 0
  var timed: UInt64 = 0

  /// Events that came to the step and did not go on.
  var stopped: UInt64 { kept &+ dropped &+ superseded &+ given }
  /// Events that it could not deal with.
  var given: UInt64 { undecided &+ rejected &+ failed }
}

/// The counters of one execution: of each edge and each step of the plan.
///
/// They are always on. About every 50 ms the time of a few events is taken, step by step.
final class Meters {
  private let edges: UnsafeMutablePointer<EdgeCounters>
  private let edgeCount: Int
  let steps: UnsafeMutablePointer<StepCounters>
  private let stepCount: Int
  private unowned(unsafe) let executor: Executor
  private let plan: Plan
  /// The time of events is being taken.
  private(set) var isTiming = false
  /// An event has been timed in this sample.
  private var hasTimed = false
  /// Of what is being timed: what the steps behind it took.
  private var inner: Int64 = 0
  /// By step: the edges over which it sends, where these have counters of their own.
  private let outlets: [[Int]]

  /// How long from one sample to the next.
  private static let period = TimeSpan.milliseconds(50)

  init(_ plan: Plan, _ executor: Executor) {
    self.plan = plan
    self.executor = executor
    edgeCount = plan.edges.count
    edges = .allocate(capacity: edgeCount)
    stepCount = max(1, plan.steps.count)
    steps = .allocate(capacity: stepCount)
    steps.initialize(repeating: StepCounters(), count: stepCount)
    var outlets = [[Int]](repeating: [], count: plan.steps.count)
    for (number, edge) in plan.edges.enumerated() where edge.entry == nil {
      if case .step(let step) = edge.from { outlets[step.number].append(number) }
    }
    self.outlets = outlets
    for (number, edge) in plan.edges.enumerated() {
      let consumer = if case .step(let step) = edge.to { step.number } else { -1 }
      (edges + number).initialize(to: EdgeCounters(self, to: consumer))
    }
  }

  deinit {
    for number in 0..<edgeCount { (edges + number).free() }
    edges.deallocate()
    steps.deallocate()
  }

  func edge(_ id: EdgeID) -> UnsafeMutablePointer<EdgeCounters> { edges + id.number }
  func step(_ id: StepID) -> UnsafeMutablePointer<StepCounters> { steps + id.number }

  // MARK: Verdicts

  /// What a step has done so far, as far as it tells what becomes of one more event.
  struct Account {
    var counters: StepCounters
    var sent: UInt64
    /// What it does not give up goes on, though nothing that is counted shows it: into a sink, or to the next fused step.
    var passesSilently: Bool

    func verdict(since before: Account) -> Verdict {
      if counters.rejected != before.counters.rejected { return .rejected }
      if counters.failed != before.counters.failed { return .failed }
      if counters.undecided != before.counters.undecided { return .undecided }
      if counters.dropped != before.counters.dropped { return .dropped }
      if counters.kept != before.counters.kept { return .kept }
      return passesSilently || sent != before.sent ? .passed : .kept
    }
  }

  func account(of step: Int) -> Account {
    guard step >= 0 else { return Account(counters: StepCounters(), sent: 0, passesSilently: true) }
    return Account(
      counters: steps[step], sent: outlets[step].reduce(0) { $0 &+ edges[$1].passed },
      passesSilently: outlets[step].isEmpty)
  }

  // MARK: Time

  /// Does `body` and counts its time as the step's, but for what steps behind it took; -1: as that of whoever is timed around.
  func timed(_ step: Int, _ body: () -> Void) {
    guard isTiming, step >= 0 else {
      body()
      return
    }
    hasTimed = true
    let outer = inner
    inner = 0
    let start = executor.instant
    body()
    let time = (executor.instant - start).nanoseconds
    steps[step].nanoseconds &+= max(0, time &- inner)
    steps[step].timed &+= 1
    inner = outer &+ time
  }

  /// The clock was looked at: begins a sample, or ends one.
  func looked(at now: Instant) {
    if isTiming {
      stopTiming(now)
    } else if now >= executor.nextSample {
      isTiming = true
      executor.nextSample = now
      renew()
    }
  }

  func stopTiming(_ now: Instant) {
    guard isTiming else { return }
    isTiming = false
    // A sample without an event says nothing: the next turn takes another.
    executor.nextSample = hasTimed ? now + Self.period : now
    hasTimed = false
    renew()
  }

  private func renew() { for number in 0..<edgeCount { edges[number].renew() } }
}
