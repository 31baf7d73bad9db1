/// The steps of one chain of a fused run, as seen by a step that also sends later.
///
/// A run has its own chain; the run that the groups of `groupBy` share has one chain for each group.
class FusedChain {
  /// The retained steps; nil: the chain is the run's own, or no longer has steps.
  final var steps: FusedRun.OwnSteps?
  /// Whether the chain has ended, so that nothing may be sent through it.
  final var hasEnded = false

  /// The `meta.key` of events that the chain sends.
  var key: Value { .absent }
  /// Called when a step has completed the chain, and the steps downstream have completed.
  func ended() {}
  /// Called when a step has sent everything and is in its initial state.
  func becameFresh() {}
  /// Called before a step acts, which may change the saved state of its chain.
  func acts() {}
  /// The runs that contain steps of the chain, if each chain has its own subscription.
  final var runs: [Unmanaged<FusedRun>] = []

  /// The other nodes of the chain that, at its end, send their timed outputs at once.
  final var holders: [any OutputHolder] = []
  /// The time of the first output that these nodes would send at the end; nil: they hold nothing.
  final var nextOutput: Due? { holders.compactMap(\.nextOutput).min() }

  final func remove(_ holder: any OutputHolder) { holders.removeAll { $0 === holder } }
  final func remove(_ run: FusedRun) { runs.removeAll { $0.toOpaque() == Unmanaged.passUnretained(run).toOpaque() } }
}

extension SignalPlan {
  /// Whether a group's chain may be discarded while its steps are fresh, because a new chain would behave the same:
  /// every step with state reports when it is fresh, and no step acts at the end.
  var isForgettable: Bool {
    var signal = self
    var mayKeep = false
    while let run = signal.run {
      for step in run.parts.flatMap(\.steps) {
        if step.component.sendsLater { mayKeep = true } else if !step.component.isForgettable { return false }
      }
      signal = signal.inputs[0]
    }
    return mayKeep && signal.origin == .input
  }
}

/// A fused step that also sends at other times than with an event: at a timer, as event time advances, or several
/// events at once.
///
/// Its operator sets ``FusableOperator/changesValue``: the steps downstream never see the value that it received.
class LateStep: FusedStep, TimerTarget {
  /// The chain of the step; set before any other call.
  private var link: Unmanaged<FusedChain>?
  private var runLink: Unmanaged<FusedRun>?
  fileprivate final var index = 0
  /// The step's index in the run.
  final var position: Int { index }
  /// Whether the chain has ended or was cancelled: nothing more is sent, and no timer may be set.
  private(set) final var isStopped = false
  /// Whether the step's state was restored.
  final var isRestored = false

  // MARK: To override

  /// Called when the step is part of a chain and may set timers; called again when the step serves another chain.
  func attached() {}
  /// Called when the chain starts, but not for restored steps.
  func started() {}
  /// Called when a timer is due, or event time has reached the requested time.
  func timeCame(_ token: Int) {}
  /// Called instead of `timeCame` for a restored timer that came due while the pipeline was down, if its output must be
  /// left out.
  func timeSkipped(_ token: Int, _ late: Lateness) { timeCame(token) }
  /// Frees timers and state. Called once.
  func stopped() {}
  /// The stream's event time has advanced, for a step that uses it. The steps of the groups of a stream share a clock,
  /// so one of them is notified.
  func advance(to time: Int64) {}
  /// The time of the first output that only waits for its time; nil: there is none. When the inputs of several groups
  /// end together, the outputs of their steps are sent in this order.
  var nextOutput: Due? { nil }
  /// Sends the output of ``nextOutput`` at once. The step may have a later output after that.
  func sendNextOutput() {}
  /// Whether the step is in its initial state, so that a new one could replace it.
  var isFresh: Bool { false }

  // MARK: Services for the step

  final var run: FusedRun {
    guard let runLink else { preconditionFailure("a step was not attached") }
    return runLink._withUnsafeGuaranteedRef { $0 }
  }

  final var chain: FusedChain {
    guard let link else { preconditionFailure("a step was not attached") }
    return link._withUnsafeGuaranteedRef { $0 }
  }

  final var now: Instant { run.now }

  /// The ID of the step in the plan.
  final var id: StepID { run.id(at: index) }

  /// The frame of the step's expressions. They see the last loaded event, which may not be the current one.
  final var frame: EventFrame { run.frame(at: index) }

  /// Sets a timer, unless the step is stopped.
  final func wake(at deadline: Instant, _ token: Int = 0) -> Wake {
    isStopped ? .none : run.executor.wake(at: deadline, self, token)
  }

  /// Cancels a timer and resets `wake`.
  final func cancelWake(_ wake: inout Wake) {
    if wake.isSet {
      run.executor.cancel(wake)
      wake = .none
    }
  }

  /// The time at which a timer of ``wake(at:_:)`` is due.
  final func due(_ wake: Wake) -> Due? {
    run.executor.pending(wake).map(Due.init)
  }

  /// Sends an event without a source through the steps downstream. State must be consistent before the call, which may
  /// stop the step.
  final func send(_ value: Value) {
    if !isStopped { run.send(value, from: self, at: index, chain) }
  }

  /// Counts an event that the step has made and given up.
  final func countMade() { run.countMade(at: index) }

  /// Counts an event that the step would have made, but skips because of its `whenLate`.
  final func countSkipped() { run.countSkipped(at: index) }

  /// The event time of the stream at this step.
  final func makeClock() -> EventClock { run.clock(at: index) }

  /// Writes the current event time, unless the stream that contains this chain does (``StreamTime``).
  final func saveClock(_ clock: EventClock?, _ state: inout StateWriter) {
    let own = run.nodeContext.scope.time == nil ? clock : nil
    (own ?? EventClock()).save(&state)
  }

  // MARK: Life

  final func attach(to chain: FusedChain, of run: FusedRun, at index: Int) {
    link = .passUnretained(chain)
    runLink = .passUnretained(run)
    self.index = index
    isRestored = false
    attached()
  }

  final func woke(_ token: Int) {
    guard !isStopped, let link, let runLink else { return }
    // A chain and a run that end during the call stay alive until the end of the turn, so they need not be retained.
    link._withUnsafeGuaranteedRef { $0.acts() }
    runLink._withUnsafeGuaranteedRef { $0.acting(at: index) { timeCame(token) } }
    if isFresh { link._withUnsafeGuaranteedRef { $0.becameFresh() } }
  }

  /// Sends the next output before it is due.
  final func sendNow() {
    guard !isStopped else { return }
    chain.acts()
    run.acting(at: index) { sendNextOutput() }
  }

  final func skipped(_ token: Int, _ late: Lateness) {
    guard !isStopped else { return }
    chain.acts()
    run.acting(at: index) { timeSkipped(token, late) }
    if isFresh { chain.becameFresh() }
  }

  final func stop() {
    guard !isStopped else { return }
    isStopped = true
    stopped()
  }
}

/// The event time of a stream at one step, and the steps that wait for it to advance.
///
/// The groups of `groupBy` are parts of one stream, so the same step of all their chains shares one clock.
final class EventClock {
  /// The watermark, in nanoseconds since 1970: no earlier event is expected.
  @exclusivity(unchecked) private(set) var watermark = Int64.min
  @exclusivity(unchecked) private var waiting = TimerQueue()
  private var isAdvancing = false
  /// Numbers the waiting steps in order of arrival.
  private var serial: UInt64 = 0

  func nextSerial() -> UInt64 {
    serial &+= 1
    return serial
  }

  /// Wakes `target` when the watermark reaches `time`; at equal times the lowest serial comes first.
  func wake(at time: Int64, _ serial: UInt64, _ target: any TimerTarget, _ token: Int) -> Wake {
    waiting.schedule(at: Instant(nanoseconds: time), serial, target, token)
  }

  func cancel(_ wake: inout Wake) {
    if wake.isSet {
      waiting.cancel(wake)
      wake = .none
    }
  }

  /// Advances the watermark, never backwards, and wakes the steps that waited for it.
  @inline(__always)
  func advance(to time: Int64) {
    guard time > watermark else { return }
    if time >= EventTime.idle { return wakeThrough() }
    watermark = time
    if let next = waiting.next, next.nanoseconds <= time { wakeAll() }
  }

  @inline(never)
  private func wakeAll() {
    // A woken step may advance the watermark again, which the running loop handles.
    if isAdvancing { return }
    isAdvancing = true
    while let due = waiting.popDue(Instant(nanoseconds: watermark)) { due.target.woke(due.token) }
    isAdvancing = false
  }

  /// The token of a step that waits for the watermark itself: an idle stream does not wake it.
  static let patientToken = -1

  /// Wakes all steps in order, because no event can advance the watermark for now. The watermark stays at the last time
  /// for which a step waited, because more events may arrive.
  @inline(never)
  private func wakeThrough() {
    if isAdvancing { return }
    isAdvancing = true
    var patient: [any TimerTarget] = []
    while let next = waiting.next, let due = waiting.popDue(next) {
      if due.token == Self.patientToken, next.nanoseconds > watermark {
        patient.append(due.target)
        continue
      }
      watermark = max(watermark, next.nanoseconds)
      due.target.woke(due.token)
    }
    isAdvancing = false
    // These steps set their timers again.
    for target in patient { target.woke(Self.patientToken) }
  }

  /// Restores the watermark. Wakes no step.
  func restore(watermark saved: Int64, serial last: UInt64) {
    watermark = max(watermark, saved)
    serial = max(serial, last)
  }

  func save(_ state: inout StateWriter) {
    state.write(watermark)
    state.write(serial)
  }
}

/// The time that the groups of one stream share: event time by step, and the start of the stream.
final class StreamTime {
  /// The time at which windows in pipeline time start.
  var origin: Instant
  private var clocks: [StepID: EventClock] = [:]

  init(origin: Instant) { self.origin = origin }

  func clock(of step: StepID) -> EventClock {
    if let known = clocks[step] { return known }
    let new = EventClock()
    clocks[step] = new
    return new
  }

  func save(_ state: inout StateWriter, _ plan: Plan) {
    state.write(origin)
    state.write(each: clocks.sorted { $0.key.number < $1.key.number }) { state, entry in
      state.write(plan.steps[entry.key.number].key)
      entry.value.save(&state)
    }
  }

  func restore(_ state: inout StateReader, _ plan: Plan) throws(StateFault) {
    origin = try state.read()
    for _ in 0..<(try state.count()) {
      let key: String = try state.read()
      let (watermark, serial): (Int64, UInt64) = (try state.read(), try state.read())
      guard let number = plan.steps.firstIndex(where: { $0.key == key || $0.formerKeys.contains(key) }),
        serial < 1 << 62
      else {
        throw StateFault("the event time is of an unknown step")
      }
      clock(of: StepID(number)).restore(watermark: watermark, serial: serial)
    }
  }
}
