import Synchronization

/// Runs one pipeline, turn by turn: a *turn* is one thing taken from the mailbox or one due timer, processed until
/// nothing more happens synchronously. Turns never overlap.
///
/// A turn is bounded in time and memory (``TurnLimits``): after each event a source checks whether the turn is spent,
/// and then passes the rest of its batch to ``resume(inner:_:)``. One event with everything that it causes
/// synchronously is never divided.
///
/// Everything but ``post(_:)``, ``postBatch(_:)`` and ``setNeedsTurn`` belongs to the thread that currently runs the
/// turns. Time stands still during a turn.
public final class Executor: @unchecked Sendable {
  /// Work for a turn.
  public typealias Work = @Sendable () -> Void

  struct Mailbox {
    /// Control work and answers, which are taken first and never held back.
    var urgent: [Work] = []
    /// Input of sources, which is held back while the input is paused.
    var batches: [Work] = []
    /// Input of the sources of inner signals. It is held back only while an output pauses the input, because a full
    /// queue may wait for it.
    var innerBatches: [Work] = []
    /// Inspections of the pipeline, between two turns.
    var inspections: [Work] = []
  }

  /// The rest of a batch whose turn was spent.
  struct Remainder {
    var isInner: Bool
    /// The acknowledgement of the whole batch, held once for the rest; nil: only pieces are acknowledged.
    var ack: Ack?
    var work: () -> Void
  }

  let mailbox = Mutex(Mailbox())
  let clock: any Clock
  var control = ControlWork()
  var remainders: [Remainder] = []
  var lateTimers = TimerGrace()
  package static let grace = TimeSpan.milliseconds(250)
  package static let late = TimeSpan.seconds(1)
  /// The maximum number of turns of one kind in a row before the next kind gets a turn, so that no kind starves.
  static let rowLimit = 1024

  /// The number of events that may come before the clock is read. Shared with the arena, which sets it to zero when it
  /// takes more memory from the system.
  let credit: UnsafeMutablePointer<Int>
  var budget = TurnBudget()
  var timers = TimerQueue()

  /// The memory of the current turn.
  package let arena = Arena()
  /// The turn's instant on the monotonic clock.
  public private(set) var now: Instant
  /// The event time of the event that is being passed, in nanoseconds since 1970; unknown: the event has none, or none
  /// is passed.
  @exclusivity(unchecked) final var eventTime = EventTime.unknown

  /// Calls `body`, in which events have this event time.
  @inline(__always)
  final func withEventTime<R>(_ time: Int64, _ body: () -> R) -> R {
    let outer = eventTime
    eventTime = time
    defer { eventTime = outer }
    return body()
  }

  /// The turn's wall-clock time, in nanoseconds since 1970.
  public private(set) var wallTime: Int64 {
    get { time.pointee }
    set { time.pointee = newValue }
  }
  /// The storage of ``wallTime``: nodes read it for each event without touching the executor. Lives as long as the
  /// executor.
  let time: UnsafeMutablePointer<Int64>
  /// The number of turns so far.
  package private(set) var turns: UInt64 = 0

  /// Called on any thread when there is something to do; set once, before the first post.
  package var setNeedsTurn: @Sendable () -> Void = {}
  /// Offers to run this batch's turn on the calling thread, which may block and has nothing else to do; false: post the
  /// batch. An inline run saves waking another thread. After the turns the calling thread runs the work passed to
  /// ``afterTurn(_:)``. Set at most once, by the owner of the turns, before the first post.
  package var runInline: @Sendable (_ batch: @escaping Work, _ isInner: Bool) -> Bool = { _, _ in false }
  let acks = TurnAcks()
  /// The work that the thread of an inline run does after the turns; nil in other turns.
  var workAfterTurn: [Work]?
  /// Called during a turn, before the first event or between two events, when ``nextSample`` has come, and then at each
  /// reading of the clock until the turn ends.
  var lookedAtClock: (Instant) -> Void = { _ in }
  var nextSample = Instant(nanoseconds: .min)
  /// Called at the end of each turn, while its values are still valid.
  var turnEnded: () -> Void = {}
  /// Called in a turn when nothing is left to do in it. Returns whether it caused more work: then another turn follows
  /// that calls it again.
  var becameQuiet: () -> Bool = { false }
  /// Whether the last turn ended with work left, so that another turn follows.
  var asksForTurn = false
  /// Cancels that other turn, because the pipeline has ended.
  func needsNoTurn() { asksForTurn = false }

  var inputPause = InputPause()
  /// Whether timers and deferred steps that may send events wait while the input is paused. False once the pipeline
  /// stops: the number of events that its steps hold is limited then, and the sinks receive them before they end.
  var holdsBack = true { didSet { releaseTimers() } }
  /// Selects the timers that fire while tables are being loaded; nil: no table is being loaded, and all timers fire.
  var wakesWhileLoading: ((any TimerTarget) -> Bool)? {
    didSet {
      inputPause.ignore(wakesWhileLoading != nil, at: now)
      if wakesWhileLoading == nil { releaseTimers() }
    }
  }
  /// Whether a sink pauses the input, so that timers and deferred steps wait.
  var isHeldBack: Bool { holdsBack && inputPause.outputs > 0 }
  /// The steps that must not run on the stack of their caller, such as the next round of a `repeat`.
  var deferred = DeferredSteps()
  /// The sources that wait for a time of day.
  var clockWatchers = ClockWatchers()
  /// Keeps nodes that ended in this turn alive while control may be inside them.
  var deferredReleases: [AnyObject] = []
  /// The maximum number of consecutive deferred steps in one turn; an endless synchronous source yields here.
  static let deferredLimit = 1000
  /// This many deferred steps run even if the turn is spent: an event rarely defers more, so they stay together.
  static let deferredLeast = 4

  package init(clock: any Clock) {
    self.clock = clock
    now = clock.now
    time = .allocate(capacity: 1)
    time.initialize(to: clock.wallTime)
    credit = .allocate(capacity: 1)
    credit.initialize(to: 0)
    arena.attention = credit
  }

  deinit {
    arena.attention = nil
    time.deallocate()
    credit.deallocate()
  }

  /// The limits of a turn; tests may change them between two turns.
  package var limits: TurnLimits {
    get { budget.limits }
    set { budget.limits = newValue }
  }

  /// How long timers that are late by ``late`` or more wait, so that input is processed first. After the process was
  /// stopped or got no processor time, a timer must not report the absence of input that has arrived meanwhile. Nil in
  /// virtual time, where no timer is late.
  package var graceOfTimers: TimeSpan? {
    get { lateTimers.span }
    set { lateTimers.span = newValue }
  }

  /// Notes that the state was restored at this instant: timers that were due before it run first, however many they
  /// are.
  func restored(at instant: Instant) { lateTimers.restoredAt = instant }

  /// The number of deferrals so far, which shows activity that `turns` does not show.
  package var deferrals: UInt64 { deferred.deferrals }
  /// Changes when deferred steps start to run and when they have run. While deferred steps run and this is unchanged,
  /// no event comes from outside.
  var drain: UInt64 { deferred.drain }

  // MARK: From any thread

  /// Queues control work; it runs in its own turn.
  public func post(_ work: @escaping Work) {
    mailbox.withLock { $0.urgent.append(work) }
    setNeedsTurn()
  }

  /// Queues input, which waits while the input is paused. The source must limit the queue.
  package func postBatch(inner: Bool = false, _ work: @escaping Work) {
    mailbox.withLock { box in
      if inner { box.innerBatches.append(work) } else { box.batches.append(work) }
    }
    setNeedsTurn()
  }

  /// Calls `inspection` between two turns, on the thread that runs them. It must change nothing that a turn reads, and
  /// is released without a call if no turn can come any more.
  package func inspect(_ inspection: @escaping Work) {
    mailbox.withLock { $0.inspections.append(inspection) }
    setNeedsTurn()
  }

  /// Empties the mailbox after the last turn; queued closures may retain the executor.
  package func discard() {
    let waiting = mailbox.withLock { box in
      defer { box = Mailbox() }
      return box
    }
    let left = (control, remainders)
    control = ControlWork()
    remainders = []
    // The closures are released outside the lock.
    withExtendedLifetime((waiting, left)) {}
  }

  // MARK: Turns

  /// The deadline of the next timer, or nil.
  package var nextDeadline: Instant? {
    if hasDeferred && !isHeldBack || asksForTurn { return now }
    guard let end = lateTimers.end, let next = timers.next else { return timers.next }
    return max(next, end)
  }

  var hasDeferred: Bool { deferred.head < deferred.steps.count }

  /// Whether deferred work, a timer or a batch of input is left that may cause events.
  var mayGoOn: Bool { deferred.head < deferred.steps.count || timers.mayGoOn || hasBatches }

  /// The number of pending timers.
  package var pendingTimers: Int { timers.count }

  /// Whether a batch of input waits, even if the input is paused.
  var hasBatches: Bool {
    !remainders.isEmpty || mailbox.withLock { !$0.batches.isEmpty || !$0.innerBatches.isEmpty }
  }

  /// Whether another batch of input waits and nothing pauses it.
  package var hasBatchAtHand: Bool {
    !isInputPaused && (!remainders.isEmpty || mailbox.withLock { !$0.batches.isEmpty })
  }

  package var isInputPaused: Bool { inputPause.isOn }

  /// Runs turns until nothing is due, at most `limit`; returns whether something is left to do now.
  @discardableResult
  package func run(limit: Int = 64) -> Bool {
    var remaining = limit
    while remaining > 0 {
      guard runOne() else { return false }
      remaining -= 1
    }
    return true
  }

  /// Runs turns until nothing is due, `quantum` has passed or `deadline` has come, but at least one turn if one is due.
  /// Returns whether something is left to do now.
  package func run(for quantum: TimeSpan, until deadline: Instant? = nil) -> Bool {
    budget.bound = deadline ?? .distantFuture
    defer { budget.bound = .distantFuture }
    guard runOne() else { return false }
    let end = min(now + quantum, budget.bound)
    // The last reading of the clock in the last turn, which saves another reading.
    while budget.lastCheck < end {
      guard runOne() else { return false }
    }
    return true
  }

  /// The result of an inline run.
  package struct InlineRun {
    /// Whether the batch has had its turn; otherwise post it.
    package var isTaken = false
    /// Whether something is left to do now.
    package var isBusy = false
    /// Work that the calling thread must do as soon as other threads may run turns again.
    package var afterTurn: [Work] = []
  }

  /// Runs turns like `run`, on a thread that does not own them, and then a turn with `batch`, unless the input is
  /// paused.
  package func runOnCaller(
    inner: Bool = false, for quantum: TimeSpan = TurnLimits.quantum, until deadline: Instant? = nil, _ batch: Work
  ) -> InlineRun {
    var result = InlineRun()
    workAfterTurn = []
    result.isBusy = run(for: quantum, until: deadline)
    if !result.isBusy, inputPause.outputs == 0, inner || inputPause.queues == 0 {
      result.isTaken = true
      turn(batch)
      if isDue { result.isBusy = run(for: quantum, until: deadline) }
    }
    result.afterTurn = workAfterTurn.take() ?? []
    return result
  }

  /// Whether another turn may be due at the instant of the last one.
  var isDue: Bool {
    if let next = nextDeadline, next <= now { return true }
    return !remainders.isEmpty || control.head < control.work.count
      || mailbox.withLock { !$0.urgent.isEmpty || !$0.batches.isEmpty || !$0.innerBatches.isEmpty }
  }

  /// Leaves work that may block, such as writing, to the thread of this inline run; false if the thread must not block.
  /// Called in a turn; the work runs after the turn, while other threads may run turns.
  package func afterTurn(_ work: @escaping Work) -> Bool {
    guard workAfterTurn != nil else { return false }
    workAfterTurn?.append(work)
    return true
  }

  /// Runs one turn, or the turns of control work that came together; returns false if none was due.
  ///
  /// Control work comes first, then timers, then deferred steps, then the rest of a batch, then the next batch. Each
  /// turn also continues deferred steps. Neither endless control work nor endless timers starve the other kinds.
  package func runOne() -> Bool {
    now = max(now, clock.now)
    wallTime = clock.wallTime
    if control.row < Self.rowLimit, let work = takeUrgent() {
      control.row += 1
      turn(work)
      // Control work that came together runs at the same instant, unless that takes longer than a turn may last.
      while control.head < control.work.count, clock.now < now + budget.limits.time, let work = takeUrgent() {
        control.row += 1
        turn(work)
      }
      return true
    }
    control.row = 0
    if control.timerRow < Self.rowLimit || isCatchingUp, !timersMustWait, let due = popDue() {
      control.timerRow += 1
      turn { due.target.woke(due.token) }
      return true
    }
    control.timerRow = 0
    if hasDeferred && !isHeldBack || asksForTurn {
      turn {}
      return true
    }
    if inputPause.outputs == 0, runBatch() { return true }
    // Control work and timers that had to let the other kinds go first.
    if let work = takeUrgent() {
      turn(work)
      return true
    }
    if !timersMustWait, let due = popDue() {
      turn { due.target.woke(due.token) }
      return true
    }
    return false
  }

  /// Whether timers are so late that the input that has waited with them is processed first.
  var timersMustWait: Bool {
    if let end = lateTimers.end {
      if now < end { return true }
      lateTimers.end = nil
      lateTimers.given = now
      return false
    }
    guard let grace = lateTimers.span, let next = timers.next, next <= now, next >= lateTimers.restoredAt
    else { return false }
    if now - next >= Self.late, next >= lateTimers.given {
      lateTimers.end = now + grace
      return true
    }
    return next >= lateTimers.passed && inputComesFirst
  }

  /// Whether input that was queued when the next timer was found to be due has not had its turn yet: a timer must not
  /// report the absence of input that only waits for the processor.
  private var inputComesFirst: Bool {
    guard !isInputPaused else {
      lateTimers.queue = nil
      return false
    }
    let queue =
      lateTimers.queue
      ?? TimerGrace.InputAhead(since: now, batches: mailbox.withLock { $0.batches.count + $0.innerBatches.count })
    if queue.batches > 0 || !remainders.isEmpty, queue.turns > 0 {
      lateTimers.queue = queue
      return true
    }
    lateTimers.queue = nil
    lateTimers.passed = queue.since + TimeSpan(nanoseconds: 1)
    return false
  }

  /// The next timer that is due and need not wait.
  @inline(__always)
  func popDue() -> (target: any TimerTarget, token: Int)? {
    inputPause.isOn && holdsBack || wakesWhileLoading != nil ? popDueInPause() : timers.popDue(now)
  }

  @inline(never)
  func popDueInPause() -> (target: any TimerTarget, token: Int)? {
    let isPaused = inputPause.isOn && holdsBack
    let byOutput = inputPause.outputs > 0
    let wakes = wakesWhileLoading
    return timers.popDue(now) { target in
      if let wakes, !wakes(target) { return true }
      switch target.timerKind {
      case .input: return isPaused
      case .step: return isPaused && byOutput
      case .output: return false
      }
    }
  }

  /// Whether the next timer was due while the pipeline was down.
  var isCatchingUp: Bool { timers.next.map { $0 < lateTimers.restoredAt } ?? false }

  func takeUrgent() -> Work? {
    if control.head == control.work.count {
      control.work.removeAll(keepingCapacity: true)
      control.head = 0
      let inspections: [Work]? = mailbox.withLock { box in
        if !box.urgent.isEmpty { swap(&box.urgent, &control.work) }
        if box.inspections.isEmpty { return nil }
        defer { box.inspections = [] }
        return box.inspections
      }
      if let inspections { for inspect in inspections { inspect() } }
      if control.work.isEmpty { return nil }
    }
    defer {
      control.work[control.head] = Self.nothing
      control.head += 1
    }
    return control.work[control.head]
  }

  static let nothing: Work = {}

  /// Runs a turn with input; false if there is none, or the input is paused.
  func runBatch() -> Bool {
    let outer = inputPause.queues == 0
    // A source has one batch at a time, so its rest precedes queued batches. Inner batches come first, as in the
    // mailbox.
    if !remainders.isEmpty,
      let index = remainders.firstIndex(where: \.isInner) ?? (outer ? remainders.indices.first : nil),
      remainders[index].isInner || mailbox.withLock({ $0.innerBatches.isEmpty })
    {
      let rest = remainders.remove(at: index)
      lateTimers.queue?.turns -= 1
      turn {
        if let ack = rest.ack { track(ack) }
        rest.work()
      }
      return true
    }
    let batch: Work? = mailbox.withLock {
      if !$0.innerBatches.isEmpty { return $0.innerBatches.removeFirst() }
      return outer && !$0.batches.isEmpty ? $0.batches.removeFirst() : nil
    }
    guard let batch else { return false }
    lateTimers.queue?.batches -= 1
    lateTimers.queue?.turns -= 1
    turn(batch)
    return true
  }

  func turn(_ work: () -> Void) {
    turns &+= 1
    budget.isSpent = false
    deferred.isLonger = isHeldBack
    budget.end = min(now + budget.limits.time, max(budget.bound, now + TurnLimits.checkInterval))
    budget.lastCheck = now
    budget.eventsLeft = budget.limits.events
    grant()
    if now >= nextSample { lookedAtClock(now) }
    work()
    runDeferred(yielding: true)
    asksForTurn = false
    if !hasDeferred, becameQuiet() {
      asksForTurn = true
      runDeferred(yielding: true)
    }
    if deferred.head == deferred.steps.count {
      deferred.steps.removeAll(keepingCapacity: true)
      deferred.head = 0
    } else if deferred.head > 4096 {
      deferred.steps.removeFirst(deferred.head)
      deferred.head = 0
    }
    turnEnded()
    if !deferredReleases.isEmpty { deferredReleases.removeAll(keepingCapacity: true) }
    arena.reset()
    // Steps deferred to the next turn belong to the events of this one.
    if deferred.head == deferred.steps.count { acks.turnEnded() }
  }

  /// Ends the turn after the current event: the rest of its batch waits for another turn.
  func endTurn() {
    budget.isSpent = true
    credit.pointee = 0
  }

  /// Runs at most `deferredLimit` deferred steps. `yielding`: stops earlier once the turn is spent; the rest of the
  /// batch then waits for the remaining steps.
  func runDeferred(yielding: Bool) {
    if deferred.isLonger { return }
    deferred.depth += 1
    deferred.drain &+= 1
    var steps = 0
    while deferred.head < deferred.steps.count, steps < Self.deferredLimit {
      let step = deferred.steps[deferred.head]
      deferred.head += 1
      runStep(of: step.node, step.token)
      steps += 1
      if spend(), yielding, steps >= Self.deferredLeast { break }
    }
    deferred.drain &+= 1
    deferred.depth -= 1
    // The remaining steps run before the rest of the batch.
    if deferred.head < deferred.steps.count { credit.pointee = 0 }
  }

  // MARK: How long a turn lasts

  /// Counts an event; returns whether the turn is spent, so that the next event needs another turn.
  @inline(__always)
  func spend() -> Bool {
    credit.pointee &-= 1
    return credit.pointee <= 0 && checkLimits()
  }

  /// Counts an event of a source that cannot stop after the event.
  @inline(__always)
  func count() { credit.pointee &-= 1 }

  /// Checks the clock and the memory, and sets the number of events before the next check.
  @inline(never)
  func checkLimits() -> Bool {
    if budget.isSpent { return true }
    let time = clock.now
    let elapsed = time - budget.lastCheck
    budget.lastCheck = time
    if time >= nextSample { lookedAtClock(time) }
    budget.eventsLeft -= budget.granted
    // Assumes that the next events take as long as the last ones.
    budget.stride =
      elapsed > TurnLimits.checkInterval ? max(1, budget.stride / 4) : min(TurnLimits.longestStride, budget.stride * 2)
    let isCutShort = deferred.head < deferred.steps.count && deferred.depth == 0
    budget.isSpent =
      isCutShort || time >= budget.end || arena.allocated >= budget.limits.bytes || budget.eventsLeft <= 0
    grant()
    return budget.isSpent
  }

  func grant() {
    budget.granted = min(budget.stride, budget.eventsLeft)
    credit.pointee = budget.isSpent ? 0 : budget.granted
  }

  /// Runs the rest of a batch in its own turn, before any other batch of its kind; timers and control work may come
  /// between. The rest belongs to the acknowledgement of this turn (``ack``). Called in a spent turn, at most once for
  /// each source.
  ///
  /// - Parameter inner: Whether the source is part of an inner signal.
  package func resume(inner: Bool, _ work: @escaping () -> Void) {
    remainders.append(Remainder(isInner: inner, ack: acks.holdForRest(), work: work))
  }

  /// Drops the remainders of batches, because the pipeline has ended. `reason`: why their events failed, if they did.
  func dropRemainders(_ reason: String? = nil) {
    let left = remainders
    remainders = []
    for rest in left {
      if let reason { rest.ack?.fail(reason) }
      rest.ack?.release()
    }
  }
}
