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

  private struct Mailbox {
    /// Control work and answers: taken first, never held back.
    var urgent: [Work] = []
    /// Input of sources: held back while the input is paused.
    var batches: [Work] = []
    /// Input of the sources of inner signals: held back only while an output pauses the input, because a full queue may
    /// wait for it.
    var innerBatches: [Work] = []
    /// Inspections of the pipeline, between two turns.
    var inspections: [Work] = []
  }

  /// The rest of a batch whose turn was spent.
  private struct Remainder {
    var isInner: Bool
    /// The acknowledgement of the whole batch, held once for the rest; nil: only pieces are acknowledged.
    var ack: Ack?
    var work: () -> Void
  }

  private let mailbox = Mutex(Mailbox())
  let clock: any Clock
  /// Control work that was taken from the mailbox and has had no turn yet.
  private var urgent: [Work] = []
  private var urgentHead = 0
  private var remainders: [Remainder] = []
  /// How many turns in a row were control work, or timers, while input may have waited.
  private var urgentRow = 0
  private var timerRow = 0
  /// Timers that were due before this instant come first, however many they are: those of a restored state.
  var restoredAt = Instant(nanoseconds: .min)
  /// How long timers that are late by ``late`` or more wait, so that input comes first: after the process was stopped or got no processor, a timer
  /// must not report the absence of input that has arrived meanwhile. Nil in virtual time, where no timer is late.
  package var graceOfTimers: TimeSpan?
  package static let grace = TimeSpan.milliseconds(250)
  package static let late = TimeSpan.seconds(1)
  /// Timers wait until this instant.
  private var graceEnd: Instant?
  /// Timers that were due before this instant have waited already.
  private var graceGiven = Instant(nanoseconds: .min)
  /// The most turns of one kind in a row before the next kind gets one: no kind starves.
  private static let rowLimit = 1024

  /// The limits of a turn; tests may change them between two turns.
  package var limits = TurnLimits()
  /// How many more events may come before the clock is read. Shared with the arena, which sets it to zero when it takes
  /// more memory from the system.
  private let credit: UnsafeMutablePointer<Int>
  /// The value of `credit` after the last read of the clock: about as many events as take ``TurnLimits/checkInterval``.
  private var stride = 8
  private var lastCheck = Instant(nanoseconds: 0)
  private var turnEnd = Instant(nanoseconds: 0)
  /// When another pipeline needs the thread: turns end soon after this instant.
  private var bound = Instant.distantFuture
  private var eventsLeft = 0
  /// The value that `credit` started from.
  private var granted = 0
  private var isSpent = false
  private var timers = TimerQueue()

  /// The memory of the current turn.
  package let arena = Arena()
  /// The turn's instant on the monotonic clock.
  public private(set) var now: Instant
  /// The event time of the event on its way, in nanoseconds since 1970; unknown: it has none. Between events it is unknown.
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
  private var workAfterTurn: [Work]?
  /// Called during a turn, between two events or before the first, when ``nextSample`` has come; and at each read of the clock
  /// from then on, until the turn ends.
  var lookedAtClock: (Instant) -> Void = { _ in }
  var nextSample = Instant(nanoseconds: .min)
  /// Called at the end of each turn, while its values are still valid.
  var turnEnded: () -> Void = {}
  /// Called in a turn when nothing is left to do in it; returns whether it caused more work, in which case another turn follows that calls
  /// it again.
  var becameQuiet: () -> Bool = { false }
  /// The last turn was not quiet to its end, so there is another one.
  private var asksForTurn = false
  /// The pipeline has ended: another turn would find nothing to do.
  func needsNoTurn() { asksForTurn = false }

  private var inputPause = InputPause()
  /// Whether timers and deferred steps that may send events wait while the input is paused. False once the pipeline stops: the events that
  /// its steps hold are bounded then, and the sinks receive them before they end.
  var holdsBack = true { didSet { releaseTimers() } }
  /// A sink pauses the input.
  private var isHeldBack: Bool { holdsBack && inputPause.outputs > 0 }
  /// A sink had paused the input before this turn: deferred steps wait.
  private var defersLonger = false
  /// Steps that must not run on the stack of their caller: the next round of a repeat.
  private var deferred: [(node: OperatorNode, token: Int)] = []
  private var deferredHead = 0
  /// Where the steps begin in `deferred` that the innermost start of sources has deferred and may run; those before wait for outer events.
  private var nestedHead = Int.max
  /// The nodes whose deferred steps are on the stack, the innermost last.
  private var resuming: [OperatorNode] = []
  /// How many steps have ever been deferred: shows the activity of a pipeline that `turns` does not show.
  package private(set) var deferrals: UInt64 = 0
  /// How many of these were by a step that ran too early: a step upstream of it has yet to run.
  private var waits: UInt64 = 0
  /// Changes when deferred steps start to run and when they have run. While it is unchanged and deferred steps run,
  /// nothing comes from outside.
  private(set) var drain: UInt64 = 0
  /// How many deferred steps and starts of sources are on the stack.
  private var depth = 0
  /// The sources that wait for a time of day.
  private var clockWatchers: [Weak<RunningSource>] = []
  /// When `clockWatchers` has more elements, the freed ones are removed.
  private var watchersToSweep = 16
  /// Keeps nodes that ended in this turn alive while control may be inside them.
  private var deferredReleases: [AnyObject] = []
  /// The most deferred steps in a row in one turn; an endless synchronous source yields here.
  private static let deferredLimit = 1000
  /// This many deferred steps run even if the turn is spent: an event rarely defers more, so they stay together.
  private static let deferredLeast = 4

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

  // MARK: From any thread

  /// Queues control work; it runs in its own turn.
  public func post(_ work: @escaping Work) {
    mailbox.withLock { $0.urgent.append(work) }
    setNeedsTurn()
  }

  /// Queues input; it waits while the input is paused. The source must bound the queue.
  package func postBatch(inner: Bool = false, _ work: @escaping Work) {
    mailbox.withLock { box in
      if inner { box.innerBatches.append(work) } else { box.batches.append(work) }
    }
    setNeedsTurn()
  }

  /// Calls `inspection` between two turns, on the thread that runs them. It must change nothing that a turn sees, and is released without
  /// a call if no turn can come any more.
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
    let left = (urgent, remainders)
    urgent = []
    urgentHead = 0
    remainders = []
    // The closures are released outside the lock.
    withExtendedLifetime((waiting, left)) {}
  }

  // MARK: Turns

  /// The deadline of the next timer, or nil.
  package var nextDeadline: Instant? {
    if hasDeferred && !isHeldBack || asksForTurn { return now }
    guard let graceEnd, let next = timers.next else { return timers.next }
    return max(next, graceEnd)
  }

  private var hasDeferred: Bool { deferredHead < deferred.count }

  /// Whether deferred work, a timer or a batch of input is left that may cause events.
  var mayGoOn: Bool { deferredHead < deferred.count || timers.mayGoOn || hasBatches }

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
    bound = deadline ?? .distantFuture
    defer { bound = .distantFuture }
    guard runOne() else { return false }
    let end = min(now + quantum, bound)
    // The last reading of the clock in the last turn, which saves another one.
    while lastCheck < end {
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

  /// Runs turns as `run` does, on a thread that does not own them, and then a turn with `batch`, unless the input is
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
  private var isDue: Bool {
    if let next = nextDeadline, next <= now { return true }
    return !remainders.isEmpty || urgentHead < urgent.count
      || mailbox.withLock { !$0.urgent.isEmpty || !$0.batches.isEmpty || !$0.innerBatches.isEmpty }
  }

  /// Leaves work that may block, such as writing, to the thread of this inline run; false if the thread must not block.
  /// Called in a turn; the work runs after it, while other threads may run turns.
  package func afterTurn(_ work: @escaping Work) -> Bool {
    guard workAfterTurn != nil else { return false }
    workAfterTurn?.append(work)
    return true
  }

  /// Runs one turn, or the turns of control work that came together; returns false if none was due.
  ///
  /// Control work comes first, then timers, then deferred steps, then the rest of a batch, then the next batch. Each
  /// turn also continues deferred steps. Endless control work and timers do not starve the others.
  package func runOne() -> Bool {
    now = max(now, clock.now)
    wallTime = clock.wallTime
    if urgentRow < Self.rowLimit, let work = takeUrgent() {
      urgentRow += 1
      turn(work)
      // Control work that came together runs at the same instant, unless that takes longer than a turn may.
      while urgentHead < urgent.count, clock.now < now + limits.time, let work = takeUrgent() {
        urgentRow += 1
        turn(work)
      }
      return true
    }
    urgentRow = 0
    if timerRow < Self.rowLimit || isCatchingUp, !timersMustWait, let due = popDue() {
      timerRow += 1
      turn { due.target.woke(due.token) }
      return true
    }
    timerRow = 0
    if hasDeferred && !isHeldBack || asksForTurn {
      turn {}
      return true
    }
    if inputPause.outputs == 0, runBatch() { return true }
    // Work that had to let the other kinds go first.
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

  /// Whether timers are so late that the input that has waited with them comes first.
  private var timersMustWait: Bool {
    if let graceEnd {
      if now < graceEnd { return true }
      self.graceEnd = nil
      graceGiven = now
      return false
    }
    guard let grace = graceOfTimers, let next = timers.next, now - next >= Self.late, next >= graceGiven,
      next >= restoredAt
    else { return false }
    graceEnd = now + grace
    return true
  }

  /// The next timer that is due and need not wait.
  @inline(__always)
  private func popDue() -> (target: any TimerTarget, token: Int)? {
    inputPause.isOn && holdsBack ? popDueInPause() : timers.popDue(now)
  }

  @inline(never)
  private func popDueInPause() -> (target: any TimerTarget, token: Int)? {
    let byOutput = inputPause.outputs > 0
    return timers.popDue(now) { kind in
      switch kind {
      case .input: true
      case .step: byOutput
      case .output: false
      }
    }
  }

  /// Whether a timer was due while the pipeline was down.
  private var isCatchingUp: Bool { timers.next.map { $0 < restoredAt } ?? false }

  private func takeUrgent() -> Work? {
    if urgentHead == urgent.count {
      urgent.removeAll(keepingCapacity: true)
      urgentHead = 0
      let inspections: [Work]? = mailbox.withLock { box in
        if !box.urgent.isEmpty { swap(&box.urgent, &urgent) }
        if box.inspections.isEmpty { return nil }
        defer { box.inspections = [] }
        return box.inspections
      }
      if let inspections { for inspect in inspections { inspect() } }
      if urgent.isEmpty { return nil }
    }
    defer {
      urgent[urgentHead] = Self.nothing
      urgentHead += 1
    }
    return urgent[urgentHead]
  }

  private static let nothing: Work = {}

  /// Runs a turn with input; false if there is none, or the input is paused.
  private func runBatch() -> Bool {
    let outer = inputPause.queues == 0
    // A source has one batch at a time, so its rest comes before queued batches; inner ones first, as below.
    if !remainders.isEmpty,
      let index = remainders.firstIndex(where: \.isInner) ?? (outer ? remainders.indices.first : nil),
      remainders[index].isInner || mailbox.withLock({ $0.innerBatches.isEmpty })
    {
      let rest = remainders.remove(at: index)
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
    turn(batch)
    return true
  }

  private func turn(_ work: () -> Void) {
    turns &+= 1
    isSpent = false
    defersLonger = isHeldBack
    turnEnd = min(now + limits.time, max(bound, now + TurnLimits.checkInterval))
    lastCheck = now
    eventsLeft = limits.events
    grant()
    if now >= nextSample { lookedAtClock(now) }
    work()
    runDeferred(yielding: true)
    asksForTurn = false
    if !hasDeferred, becameQuiet() {
      asksForTurn = true
      runDeferred(yielding: true)
    }
    if deferredHead == deferred.count {
      deferred.removeAll(keepingCapacity: true)
      deferredHead = 0
    } else if deferredHead > 4096 {
      deferred.removeFirst(deferredHead)
      deferredHead = 0
    }
    turnEnded()
    if !deferredReleases.isEmpty { deferredReleases.removeAll(keepingCapacity: true) }
    arena.reset()
    // Steps deferred to the next turn belong to the events of this one.
    if deferredHead == deferred.count { acks.turnEnded() }
  }

  /// Ends the turn after the current event: the rest of its batch is for another turn.
  func endTurn() {
    isSpent = true
    credit.pointee = 0
  }

  /// Runs at most `deferredLimit` deferred steps. `yielding`: stops earlier once the turn is spent; the rest of the
  /// batch then waits for the remaining steps.
  private func runDeferred(yielding: Bool) {
    if defersLonger { return }
    depth += 1
    drain &+= 1
    var steps = 0
    while deferredHead < deferred.count, steps < Self.deferredLimit {
      let step = deferred[deferredHead]
      deferredHead += 1
      runStep(of: step.node, step.token)
      steps += 1
      if spend(), yielding, steps >= Self.deferredLeast { break }
    }
    drain &+= 1
    depth -= 1
    // The remaining steps come before the rest of the batch.
    if deferredHead < deferred.count { credit.pointee = 0 }
  }

  // MARK: How long a turn lasts

  /// Counts an event; returns whether the turn is spent, so that no further event may begin in it.
  @inline(__always)
  func spend() -> Bool {
    credit.pointee &-= 1
    return credit.pointee <= 0 && checkLimits()
  }

  /// Counts an event of a source that cannot stop after it.
  @inline(__always)
  func count() { credit.pointee &-= 1 }

  /// Checks the clock and the memory, and sets the number of events before the next check.
  @inline(never)
  private func checkLimits() -> Bool {
    if isSpent { return true }
    let time = clock.now
    let elapsed = time - lastCheck
    lastCheck = time
    if time >= nextSample { lookedAtClock(time) }
    eventsLeft -= granted
    // The next events probably take as long as the last ones.
    stride = elapsed > TurnLimits.checkInterval ? max(1, stride / 4) : min(TurnLimits.longestStride, stride * 2)
    let isCutShort = deferredHead < deferred.count && depth == 0
    isSpent = isCutShort || time >= turnEnd || arena.allocated >= limits.bytes || eventsLeft <= 0
    grant()
    return isSpent
  }

  private func grant() {
    granted = min(stride, eventsLeft)
    credit.pointee = isSpent ? 0 : granted
  }

  /// Runs the rest of a batch in a turn of its own, before any other batch of its kind; timers and control work may
  /// come between. The rest belongs to the acknowledgement of this turn (``ack``). Called in a spent turn, at most once
  /// for each source.
  ///
  /// - Parameter inner: The source is part of an inner signal.
  package func resume(inner: Bool, _ work: @escaping () -> Void) {
    remainders.append(Remainder(isInner: inner, ack: acks.holdForRest(), work: work))
  }

  /// The pipeline has ended: drops the rests of batches. `reason`: why their events have failed, if they have.
  func dropRemainders(_ reason: String? = nil) {
    let left = remainders
    remainders = []
    for rest in left {
      if let reason { rest.ack?.fail(reason) }
      rest.ack?.release()
    }
  }

  // MARK: During a turn

  /// Runs what an event of a batch has deferred before the next event of the batch comes, so that it makes no
  /// difference whether events share a turn.
  ///
  /// `yielding`: the next event may wait for another turn (``spend()``).
  @inline(__always)
  func finishEvent(yielding: Bool = false) {
    guard deferredHead < deferred.count else { return }
    if depth == 0 {
      runDeferred(yielding: yielding)
    } else if nestedHead < deferred.count {
      runNested(yielding: yielding)
    }
  }

  private func runStep(of node: OperatorNode, _ token: Int) {
    if node.isClosed { return }
    resuming.append(node)
    node.resumed(token)
    resuming.removeLast()
  }

  /// Runs the steps that the innermost start of sources has deferred, after an event of one of these, so that it makes no difference whether
  /// sources start at the launch or within an outer event. Two kinds wait for the outer event: steps of a node that is on the stack, so that
  /// a `repeat` does not nest its rounds, and those that wait for a step upstream that the outer event has deferred.
  ///
  /// `yielding`: as in ``runDeferred(yielding:)``. The next event of a source that cannot stop comes in this turn, however long that is.
  @inline(never)
  private func runNested(yielding: Bool) {
    if defersLonger { return }
    var next = max(nestedHead, deferredHead)
    var (steps, idle) = (0, 0)
    while next < deferred.count, steps < Self.deferredLimit {
      let (node, token) = deferred[next]
      if resuming.contains(where: { $0 === node }) {
        next += 1
        continue
      }
      deferred.remove(at: next)
      let before = (deferrals, waits)
      runStep(of: node, token)
      steps += 1
      idle = waits != before.1 && deferrals == before.0 &+ 1 ? idle + 1 : 0
      let mustYield = spend() && yielding && steps >= Self.deferredLeast
      // All that are left wait for a step of the outer event.
      if idle > 0, idle >= deferred.count - next { next = deferred.count }
      if mustYield { break }
    }
    // Those that wait belong to the outer event: they are not tried again after each event.
    nestedHead = min(next, deferred.count)
    // The remaining steps come before the rest of the batch.
    if yielding, steps >= Self.deferredLimit { endTurn() }
  }

  /// Starts sources from inside a node: what an event of theirs defers runs after it (``runNested(yielding:)``).
  func nested(_ start: () -> Void) {
    depth += 1
    let outer = nestedHead
    nestedHead = deferred.count
    start()
    nestedHead = outer
    depth -= 1
  }

  /// Calls `resumed` of `node` with an empty stack, later in this turn or, if the turn is spent, in the next.
  func `defer`(_ node: OperatorNode, _ token: Int) {
    deferrals &+= 1
    deferred.append((node, token))
  }

  /// Calls `resumed` of `node` again, which has run before a step upstream of it.
  func waitLonger(_ node: OperatorNode) {
    waits &+= 1
    self.defer(node, 0)
  }

  /// The deferred steps of `node`: positions in the queue and tokens.
  func deferrals(of node: OperatorNode) -> [(position: Int, token: Int)] {
    guard deferredHead < deferred.count else { return [] }
    return (deferredHead..<deferred.count).compactMap {
      deferred[$0].node === node ? ($0 - deferredHead, deferred[$0].token) : nil
    }
  }

  /// Wakes `target` in its own turn. Nodes use `OperatorNode.wake`, which cancels timers at their end.
  package func schedule(at deadline: Instant, _ target: any TimerTarget, _ token: Int) -> Wake {
    timers.schedule(at: deadline, target, token)
  }

  package func unschedule(_ wake: Wake) { timers.cancel(wake) }

  package func wake(at deadline: Instant, _ target: any TimerTarget, _ token: Int = 0) -> Wake {
    timers.schedule(at: deadline, target, token)
  }

  package func cancel(_ wake: Wake) { timers.cancel(wake) }

  func pending(_ wake: Wake) -> TimerQueue.Pending? { timers.pending(wake) }

  /// Schedules a timer of a saved state under its old number.
  func reschedule(at deadline: Instant, _ number: UInt64, _ target: any TimerTarget, _ token: Int) -> Wake {
    timers.schedule(at: deadline, number, target, token)
  }

  /// The number of the last scheduled timer; it only grows.
  var lastTimer: UInt64 {
    get { timers.last }
    set { timers.last = newValue }
  }

  /// Reports that the wall clock was set, to sources that wait for a time of day. Call it in a turn.
  package func clockWasSet() {
    for waiting in clockWatchers where waiting.object != nil { waiting.object?.clockWasSet() }
    clockWatchers.removeAll { $0.object == nil }
  }

  /// Notifies `source` from now on when the wall clock is set.
  func watchClock(_ source: RunningSource) {
    if clockWatchers.count >= watchersToSweep {
      clockWatchers.removeAll { $0.object == nil }
      watchersToSweep = max(16, 2 * clockWatchers.count)
    }
    clockWatchers.append(Weak(source))
  }

  /// The clock's current reading, not the turn's instant; for measuring only.
  var instant: Instant { clock.now }

  func releaseLater(_ object: AnyObject) { deferredReleases.append(object) }

  /// Pauses the input; nests. Each call needs one ``resumeInput(_:)``.
  package func pauseInput(_ pressure: Pressure) { inputPause.begin(pressure, at: now) }

  package func resumeInput(_ pressure: Pressure) {
    inputPause.end(pressure, at: now)
    if inputPause.outputs == 0, timers.holdsSome { releaseTimers() }
  }

  /// Lets held timers fire. They are late because they were held, not because the process was stopped.
  private func releaseTimers() {
    timers.releaseHeld()
    graceEnd = nil
    graceGiven = now
  }

  /// How long the input has been paused, until `time`.
  func timePaused(until time: Instant) -> TimeSpan { inputPause.time(until: time) }

  /// Calls `body` with the deadline and the target of pending timers, of at most `limit`; returns whether these are all.
  func visitTimers(limit: Int, _ body: (Instant, any TimerTarget) -> Void) -> Bool {
    timers.visit(limit: limit, body)
  }
}
