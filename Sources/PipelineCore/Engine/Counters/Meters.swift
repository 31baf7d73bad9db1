import Synchronization

/// How long the threads of one source have waited for room in its ``InputQueue``. Used on any thread.
final class SourceWaits: Sendable {
  private struct State {
    var waited: Int64 = 0
    var threads = 0
    var since = Instant(nanoseconds: 0)
  }
  private let state = Mutex(State())

  func began(at now: Instant) {
    state.withLock {
      if $0.threads == 0 { $0.since = now }
      $0.threads += 1
    }
  }

  func ended(at now: Instant) {
    state.withLock {
      $0.threads -= 1
      if $0.threads == 0 { $0.waited &+= max(0, (now - $0.since).nanoseconds) }
    }
  }

  /// The time during which at least one thread waited, in nanoseconds, and whether one waits.
  func waited(until now: Instant) -> (nanoseconds: Int64, isWaiting: Bool) {
    state.withLock { ($0.waited &+ ($0.threads > 0 ? max(0, (now - $0.since).nanoseconds) : 0), $0.threads > 0) }
  }
}

/// The counters of one execution: of each edge and each step of the plan.
///
/// The counters are always on. About every 50 ms a sample measures the time of a few events, step by step, and their
/// size, edge by edge.
final class Meters {
  private let edges: UnsafeMutablePointer<EdgeCounters>
  private let edgeCount: Int
  let steps: UnsafeMutablePointer<StepCounters>
  private let stepCount: Int
  unowned(unsafe) let executor: Executor
  let plan: Plan
  /// The latencies of components that wait for other systems, by step number.
  private(set) var latencies: [Int: LatencyMeter] = [:]
  /// The samples of events that do not pass; nil: none are kept.
  var stoppedEvents: StoppedEvents?
  /// Whether the time of events is being measured.
  private(set) var isTiming = false
  /// Whether an event has been timed in this sample.
  private var hasTimed = false
  /// Whether the last sample had an event, so that the next sample may be deferred to a later turn.
  private var mayPutOff = false
  /// When the next period of ``StoppedEvents`` begins.
  private var nextCredits = Instant(nanoseconds: .min)
  private var dice: UInt64 = 1
  /// The time of the steps downstream of the step that is being timed.
  private var inner: Int64 = 0
  /// Measures the sizes of sampled events.
  let sizes = JSONSize()
  /// For each step, its outgoing edges that have their own counters.
  private let outlets: [[Int]]
  /// For each step, the edges that lead into it.
  private let inlets: [[Int]]

  /// The waits of each source, by the number of its step.
  let waits: [Int: SourceWaits]
  /// The counts of the plugin behind each plugin step, and the counts of earlier executions there.
  private(set) var plugins: [Int: (meter: PluginMeter, before: PipelineStatistics.Plugin)]

  /// The time between samples.
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
    var inlets = [[Int]](repeating: [], count: plan.steps.count)
    for (number, edge) in plan.edges.enumerated() {
      if case .step(let step) = edge.to { inlets[step.number].append(number) }
    }
    self.inlets = inlets
    waits = plan.components.compactMapValues { $0 is any SourceComponent ? SourceWaits() : nil }
    plugins = plan.components.compactMapValues { component in
      guard let component = component as? any PluginComponent else { return nil }
      let meter = component.sharedMeter ?? PluginMeter()
      return (meter, meter.now)
    }
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

  /// From now on, adds the counts of a plugin that an earlier execution started to this execution. Called in turns.
  func goOn(with meter: PluginMeter, at step: StepID) { plugins[step.number] = (meter, meter.now) }

  /// The latencies of a step. Called in turns.
  func latency(_ id: StepID) -> LatencyMeter {
    if let known = latencies[id.number] { return known }
    let new = LatencyMeter(executor.clock)
    latencies[id.number] = new
    return new
  }

  /// Whether the observers of an edge, and those of the edges between the fused steps downstream of it, are sated.
  func isSated(_ edge: UnsafeMutablePointer<EdgeCounters>) -> Bool {
    guard edge.isSated else { return false }
    let number = edge - edges
    guard (0..<edgeCount).contains(number) else { return true }
    return plan.edges.indices.allSatisfy { plan.edges[$0].entry?.number != number || (edges + $0).isSated }
  }

  /// Whether a block may pass an edge unseen: each observer of the edge, and of the edges between the fused steps
  /// downstream of it, is sated or wants none of the block's events. Edges behind filters carry only events of the
  /// block; behind other steps the events may be new, so every observer there must be sated.
  func passesUnseen(_ batch: Batch, _ edge: UnsafeMutablePointer<EdgeCounters>) -> Bool {
    var looking: [EdgeObserver] = []
    edge.withObservers { looking = $0.list.filter { !$0.isSated } }
    let number = edge - edges
    var keepsEvents = true
    if (0..<edgeCount).contains(number) {
      for (inner, planned) in plan.edges.enumerated() where planned.entry?.number == number {
        if case .step(let from) = planned.from, !self.keepsEvents(from) { keepsEvents = false }
        var more: [EdgeObserver] = []
        (edges + inner).withObservers { more = $0.list.filter { !$0.isSated } }
        if !more.isEmpty, !keepsEvents { return false }
        looking += more
      }
    }
    if looking.isEmpty { return true }
    guard let rows = batch.rows else { return false }
    return rows.haveNone { event in looking.contains { $0.wants(event) } }
  }

  /// Whether the step only forwards events that it received, unchanged.
  func keepsEvents(_ step: StepID) -> Bool { plan.steps[step.number].keyword == "filter" }

  /// Calls `body` with the observers of an edge and of each edge between the fused steps downstream of it, and with the
  /// number of events that have passed there.
  func observed(from edge: UnsafeMutablePointer<EdgeCounters>, _ body: (EdgeObservers, UInt64) -> Void) {
    var count = edge.pointee.passed
    edge.withObservers { body($0, count) }
    let number = edge - edges
    guard (0..<edgeCount).contains(number) else { return }
    // The edges are in the order of the steps, and each step counts the events that it stops and makes.
    for (inner, planned) in plan.edges.enumerated() where planned.entry?.number == number {
      guard case .step(let from) = planned.from else { continue }
      let counters = steps[from.number]
      count = count &+ counters.made &- counters.stopped
      (edges + inner).withObservers { body($0, count) }
    }
  }

  // MARK: Verdicts

  /// The counts of a step before an event; the difference to those after it gives the event's verdict.
  struct Account {
    var counters: StepCounters
    var sent: UInt64
    /// Whether no edge counts what the step passes on: it is a sink, or a fused step follows.
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

  /// Updates the number of observers of an edge; a negative number: detached.
  func watched(_ edge: EdgeID, _ more: Int) {
    if case .step(let step) = plan.edges[edge.number].to { steps[step.number].watchers += more }
  }

  /// Notifies the observers of the edges into the step that an event that it kept has been replaced.
  @inline(never)
  func superseded(_ event: Event, at step: StepID) {
    for inlet in inlets[step.number] { (edges + inlet).withObservers { $0.notify { $0.superseded(event) } } }
  }

  // MARK: Time

  /// Runs `body` and adds its time, without that of the steps downstream, to the step; with -1 the time belongs to the
  /// enclosing step.
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
    steps[step].time.add(UInt64(max(0, time &- inner)))
    inner = outer &+ time
  }

  /// Marks the sample as used although it timed no step, so that the next sample is not due at once.
  func hasSampled() { hasTimed = true }

  /// Measures the size of an event that passes an edge, without attributing time to a step.
  func measure(_ event: Event, at edge: UnsafeMutablePointer<EdgeCounters>) {
    let start = executor.instant
    edge.pointee.bytes.add(UInt64(sizes.size(of: event.value)))
    inner &+= (executor.instant - start).nanoseconds
  }

  /// Begins or ends a sample; called when the clock has been read.
  func clockWasRead(at now: Instant) {
    if isTiming {
      stopTiming(now)
    } else if now >= executor.nextSample {
      if now >= nextCredits {
        for number in 0..<stepCount { (steps + number).renewCredits() }
        nextCredits = now + Self.period
      }
      // Without randomness, turns at regular intervals would be sampled always or never.
      if mayPutOff, putsOff() { return }
      isTiming = true
      executor.nextSample = now
      renew()
    }
  }

  /// True for half of the calls, at random.
  private func putsOff() -> Bool {
    dice = dice &* 0x5851_F42D_4C95_7F2D &+ 0x1405_7B7E_F767_814F
    return dice >> 63 != 0
  }

  func stopTiming(_ now: Instant) {
    guard isTiming else { return }
    isTiming = false
    // If the sample had no event, the next turn takes another sample.
    executor.nextSample = hasTimed ? now + Self.period : now
    mayPutOff = hasTimed
    hasTimed = false
    renew()
  }

  private func renew() { for number in 0..<edgeCount { (edges + number).renew() } }
}
