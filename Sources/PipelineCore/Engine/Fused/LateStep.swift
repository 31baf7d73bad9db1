/// The steps of one chain of a fused run, seen from a step that sends later than the event that it was given.
///
/// A run has one chain of its own; the run that the groups of `groupBy` share has one for each group.
class FusedChain {
  /// Nil: the steps of the run itself, or none any more.
  final var steps: FusedRun.OwnSteps?
  /// Nothing may be sent through the chain any more.
  final var hasEnded = false

  /// `meta.key` of what the chain sends.
  var key: Value { .absent }
  /// A step has completed the chain, and the steps behind it have been told.
  func ended() {}
  /// A step has done its work and keeps nothing.
  func becameFresh() {}
  /// Runs of its own that steps of the chain are in, where each chain is subscribed by itself.
  final var runs: [Unmanaged<FusedRun>] = []

  final func remove(_ run: FusedRun) { runs.removeAll { $0.toOpaque() == Unmanaged.passUnretained(run).toOpaque() } }
}

extension SignalPlan {
  /// Whether a chain of a group may be given up when its steps keep nothing, because a new one would do the same as it:
  /// nothing keeps anything but steps that say when they do not, and nothing is said or done at the end.
  var isForgettable: Bool {
    var signal = self
    var mayKeep = false
    while true {
      switch signal.kind {
      case .input: return mayKeep
      case .run(let run, let input):
        for step in run.parts.flatMap(\.steps) {
          if step.component.sendsLater { mayKeep = true } else if !step.component.isForgettable { return false }
        }
        signal = input
      default: return false
      }
    }
  }
}

/// A fused step that also sends at other times than when an event comes: at a timer, as the event time of the stream
/// goes on, or several events at once.
///
/// Its operator says ``FusableOperator/changesValue``: the steps behind it never see the value that it was given.
open class LateStep: FusedStep, TimerTarget {
  /// Set before anything else is called.
  private var link: Unmanaged<FusedChain>?
  private var runLink: Unmanaged<FusedRun>?
  fileprivate final var index = 0
  /// The chain has ended or was cancelled: nothing more is sent, no timer may be set.
  public private(set) final var isStopped = false
  /// It took back what another process had saved.
  final var isRestored = false

  // MARK: To override

  /// It has its place in a chain: time can be asked for. Called again when the step serves another chain.
  open func attached() {}
  /// The chain begins. Not called for what is restored.
  open func started() {}
  /// A timer is due, or event time has come as far as the step had asked for.
  open func timeCame(_ token: Int) {}
  /// Frees timers and what is kept. Called once.
  open func stopped() {}
  /// Whether it is as it was when it began, so that another step of its kind could take its place.
  open var isFresh: Bool { false }

  // MARK: What it may ask for

  public final var run: FusedRun {
    guard let runLink else { preconditionFailure("a step was not attached") }
    return runLink._withUnsafeGuaranteedRef { $0 }
  }

  final var chain: FusedChain {
    guard let link else { preconditionFailure("a step was not attached") }
    return link._withUnsafeGuaranteedRef { $0 }
  }

  public final var now: Instant { run.now }

  /// What its expressions evaluate in. They see the event that was loaded last, which may be another one by now.
  public final var frame: EventFrame { run.frame(at: index) }

  /// A step that has been stopped gets no timer.
  public final func wake(at deadline: Instant, _ token: Int = 0) -> Wake {
    isStopped ? .none : run.executor.wake(at: deadline, self, token)
  }

  /// Cancels a timer and forgets it.
  public final func cancelWake(_ wake: inout Wake) {
    if wake.isSet {
      run.executor.cancel(wake)
      wake = .none
    }
  }

  /// Sends an event of no source through the steps behind this one. State must be in order before; afterwards the step
  /// may have been stopped.
  public final func send(_ value: Value) {
    if !isStopped { run.send(value, from: self, at: index, chain) }
  }

  /// The event time of the stream at this step.
  final func makeClock() -> EventClock { run.clock(at: index) }

  // MARK: Life

  final func attach(to chain: FusedChain, of run: FusedRun, at index: Int) {
    link = .passUnretained(chain)
    runLink = .passUnretained(run)
    self.index = index
    isRestored = false
    attached()
  }

  public final func woke(_ token: Int) {
    guard !isStopped else { return }
    run.acting(at: index) { timeCame(token) }
    if isFresh { chain.becameFresh() }
  }

  final func stop() {
    guard !isStopped else { return }
    isStopped = true
    stopped()
  }
}

/// The event time of a stream at one step: how far it has come, and who waits for it to come further.
///
/// The groups of `groupBy` are parts of one stream, so the same step of all their chains has one clock.
final class EventClock {
  /// No event before this time, in nanoseconds since 1970, is waited for any more.
  @exclusivity(unchecked) private(set) var watermark = Int64.min
  @exclusivity(unchecked) private var waiting = TimerQueue()
  private var isAdvancing = false
  /// Numbers those who wait, in the order in which they began.
  private var serial: UInt64 = 0

  func nextSerial() -> UInt64 {
    serial &+= 1
    return serial
  }

  /// Has `target` woken when the watermark reaches `time`; of one time the lowest serial first.
  func wake(at time: Int64, _ serial: UInt64, _ target: any TimerTarget, _ token: Int) -> Wake {
    waiting.schedule(at: Instant(nanoseconds: time), serial, target, token)
  }

  func cancel(_ wake: inout Wake) {
    if wake.isSet {
      waiting.cancel(wake)
      wake = .none
    }
  }

  /// Moves the watermark on, never back, and wakes the steps that waited for it.
  @inline(__always)
  func advance(to time: Int64) {
    guard time > watermark else { return }
    watermark = time
    if let next = waiting.next, next.nanoseconds <= time { wakeAll() }
  }

  @inline(never)
  private func wakeAll() {
    // Who is woken may send what moves the watermark further: that is for the loop that runs already.
    if isAdvancing { return }
    isAdvancing = true
    while let due = waiting.popDue(Instant(nanoseconds: watermark)) { due.target.woke(due.token) }
    isAdvancing = false
  }

  /// Takes back what was saved. Wakes nobody.
  func restore(watermark saved: Int64, serial last: UInt64) {
    watermark = max(watermark, saved)
    serial = max(serial, last)
  }

  func save(_ state: inout StateWriter) {
    state.write(watermark)
    state.write(serial)
  }
}

/// What the groups of one stream share of time: event time, step by step, and when the stream began.
final class StreamTime {
  /// Windows by the pipeline's time count from here.
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
      guard let number = plan.steps.firstIndex(where: { $0.key == key }), serial < 1 << 62 else {
        throw StateFault("the event time is of an unknown step")
      }
      clock(of: StepID(number)).restore(watermark: watermark, serial: serial)
    }
  }
}
