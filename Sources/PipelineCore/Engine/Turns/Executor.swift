import Synchronization

/// When a turn is spent: its source stops behind the event that goes beyond one of these.
public struct TurnLimits: Sendable {
  /// How long a turn may last.
  public var time = TimeSpan.milliseconds(2)
  /// How many bytes of memory its events may take.
  public var bytes = 1 << 20
  /// How many events it may have; for tests.
  public var events = Int.max

  public init() {}

  /// How long the turns of one pipeline may keep a thread that others want.
  public static let quantum = TimeSpan.milliseconds(4)
  /// The clock is looked at about so often during a turn.
  static let checkInterval = TimeSpan(nanoseconds: 200_000)
  /// The most events between two looks; it bounds how much longer the turn lasts in which events become expensive.
  static let longestStride = 128
}

/// Runs one pipeline, turn by turn: a *turn* is one thing taken from the mailbox or one due timer,
/// processed until nothing more happens synchronously. Turns never overlap.
///
/// A turn is bounded in time and memory (``TurnLimits``): a source asks behind each event whether the turn is spent and, if
/// so, hands the rest of its batch to ``resume(inner:_:)``. One event with all that it causes synchronously is never divided.
///
/// Everything but ``post(_:)``, ``postBatch(_:)`` and ``setNeedsTurn`` belongs to the thread that
/// currently runs the turns. Time stands still during a turn.
public final class Executor: @unchecked Sendable {
  /// Work for a turn.
  public typealias Work = @Sendable () -> Void

  private struct Mailbox {
    /// What the world answered, control: taken first, never held back.
    var urgent: [Work] = []
    /// What sources read: held back while the pipeline is congested.
    var batches: [Work] = []
    /// What the sources of inner signals read: held back only while an output is congested, because a
    /// full queue may be waiting for just these.
    var innerBatches: [Work] = []
  }

  /// The rest of a batch whose turn was spent.
  private struct Remainder {
    var isInner: Bool
    /// What becomes of the events of the whole batch: held once for the rest.
    var ack: Ack?
    var work: () -> Void
  }

  private let mailbox = Mutex(Mailbox())
  private let clock: any Clock
  /// Control work that was taken from the mailbox and has had no turn yet.
  private var urgent: [Work] = []
  private var urgentHead = 0
  private var remainders: [Remainder] = []
  /// How many turns in a row were control work, and timers, while something of lower rank may have waited.
  private var urgentRow = 0
  private var timerRow = 0
  /// So many of one kind in a row, and the next kind gets a turn: nobody starves.
  private static let rowLimit = 1024

  /// When a turn is spent; tests may change it between two turns.
  public var limits = TurnLimits()
  /// How many events may come until the clock is looked at; shared with the arena, which sets it to zero when it needs
  /// more memory from the system.
  private let credit: UnsafeMutablePointer<Int>
  /// What `credit` was when the clock was looked at last: about as many events as take ``TurnLimits/checkInterval``.
  private var stride = 8
  private var lastCheck = Instant(nanoseconds: 0)
  private var turnEnd = Instant(nanoseconds: 0)
  private var eventsLeft = 0
  /// What `credit` began with.
  private var granted = 0
  private var isSpent = false
  private var timers = TimerQueue()

  /// Memory of the current turn.
  public let arena = Arena()
  /// The turn's instant on the monotonic clock.
  public private(set) var now: Instant
  /// The turn's wall-clock time, in nanoseconds since 1970.
  public private(set) var wallTime: Int64 {
    get { time.pointee }
    set { time.pointee = newValue }
  }
  /// ``wallTime`` where nodes read it for each event without touching the executor; lives as long as it.
  let time: UnsafeMutablePointer<Int64>
  /// Turns run so far.
  public private(set) var turns: UInt64 = 0

  /// Called on any thread when there is something to do; set once, before the first post.
  public var setNeedsTurn: @Sendable () -> Void = {}
  /// Has the calling thread, which has nothing else to do and may wait, run turns if no other thread does at the moment,
  /// one with this batch (of an inner source?) among them; false if the batch was not taken. It saves waking another
  /// thread. What those turns leave to the thread with ``afterTurn(_:)`` it does behind them. Set, if at all, by whoever
  /// runs the turns, once, before the first post.
  public var runInline: @Sendable (_ batch: @escaping Work, _ isInner: Bool) -> Bool = { _, _ in false }
  /// What becomes of the events of this turn, if somebody asks. A sink that takes something of them to write it later
  /// holds it until it is written.
  public private(set) var ack: Ack?
  /// `ack` was made here, for several.
  private var tracksSeveral = false
  /// What the thread that runs turns by `runInline` does behind them; nil while another one runs them.
  private var workAfterTurn: [Work]?
  /// Called at the end of each turn, while its values are still valid.
  var turnEnded: () -> Void = {}
  /// Called in a turn when nothing is left to do in it; it may cause more.
  var becameQuiet: () -> Void = {}

  /// How many sinks (and full queues) ask for no further input.
  private var pausingOutputs = 0
  private var pausingQueues = 0
  /// Steps that must not run on the stack of their caller: the next round of a repeat.
  private var deferred: [(node: OperatorNode, token: Int)] = []
  private var deferredHead = 0
  /// How many steps have ever been deferred: what a pipeline does without time going by shows here, if not in `turns`.
  public private(set) var deferrals: UInt64 = 0
  /// Changes whenever deferred steps begin to run and whenever they have stopped. While it stays the same and deferred
  /// steps run, nothing comes from outside.
  private(set) var drain: UInt64 = 0
  /// How many deferred steps and starts of sources are on the stack.
  private var depth = 0
  /// The sources that wait for a time of day.
  private var clockWatchers: [Weak<RunningSource>] = []
  /// How many may be before those that are gone are taken out.
  private var watchersToSweep = 16
  /// Keeps nodes that ended during this turn alive until nobody can be inside them.
  private var deferredReleases: [AnyObject] = []
  /// Steps of one turn that may run before the others get theirs; an endless synchronous source yields here.
  private static let deferredLimit = 1000
  /// So many run even where the turn is spent: what one event puts off is rarely more and stays together.
  private static let deferredLeast = 4

  public init(clock: any Clock) {
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

  /// Hands over control work; it runs in a turn of its own.
  public func post(_ work: @escaping Work) {
    mailbox.withLock { $0.urgent.append(work) }
    setNeedsTurn()
  }

  /// Hands over input; it waits while the pipeline is congested. Bounding it is the source's duty.
  public func postBatch(inner: Bool = false, _ work: @escaping Work) {
    mailbox.withLock { box in
      if inner { box.innerBatches.append(work) } else { box.batches.append(work) }
    }
    setNeedsTurn()
  }

  /// Forgets what waits for a turn, because there will be none any more: it may hold what holds this executor.
  public func discard() {
    let waiting = mailbox.withLock { box in
      defer { box = Mailbox() }
      return box
    }
    let left = (urgent, remainders)
    urgent = []
    urgentHead = 0
    remainders = []
    // Released outside of the lock.
    withExtendedLifetime((waiting, left)) {}
  }

  // MARK: Turns

  /// When the next timer is due, or nil.
  public var nextDeadline: Instant? { deferredHead < deferred.count ? now : timers.next }

  /// How many timers are pending.
  public var pendingTimers: Int { timers.count }

  /// Whether a batch of input waits, even if it is held back.
  var hasBatches: Bool {
    !remainders.isEmpty || mailbox.withLock { !$0.batches.isEmpty || !$0.innerBatches.isEmpty }
  }

  /// Whether another batch of input waits and will be taken without anybody having to act.
  public var hasBatchAtHand: Bool {
    !isInputPaused && (!remainders.isEmpty || mailbox.withLock { !$0.batches.isEmpty })
  }

  public var isInputPaused: Bool { pausingOutputs + pausingQueues > 0 }

  /// Runs turns until nothing is due, at most `limit`; returns whether something is left to do now.
  @discardableResult
  public func run(limit: Int = 64) -> Bool {
    var remaining = limit
    while remaining > 0 {
      guard runOne() else { return false }
      remaining -= 1
    }
    return true
  }

  /// Runs turns until nothing is due, or until `quantum` has passed or `deadline` has come; at least one turn, if there is
  /// one. Returns whether something is left to do now.
  public func run(for quantum: TimeSpan, until deadline: Instant? = nil) -> Bool {
    guard runOne() else { return false }
    let end = min(now + quantum, deadline ?? .distantFuture)
    // The instant of the last turn: reading the clock again would cost more than it tells.
    while now < end {
      guard runOne() else { return false }
    }
    return true
  }

  /// What came of turns on a thread that belongs to somebody else.
  public struct InlineRun {
    /// The batch has had its turn. If not, it is to be posted.
    public var isTaken = false
    /// Something is left to do now.
    public var isBusy = false
    /// What this thread has to do as soon as others may run turns again.
    public var afterTurn: [Work] = []
  }

  /// Runs turns as `run` does, on a thread that belongs to somebody else, and among them one with `batch`, which comes
  /// behind all that is due and waits for it.
  public func runOnCaller(
    inner: Bool = false, for quantum: TimeSpan = TurnLimits.quantum, until deadline: Instant? = nil, _ batch: Work
  ) -> InlineRun {
    var result = InlineRun()
    workAfterTurn = []
    result.isBusy = run(for: quantum, until: deadline)
    if !result.isBusy, pausingOutputs == 0, inner || pausingQueues == 0 {
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

  /// Leaves work that may block, such as writing, to the thread that runs this turn; false if that thread must not
  /// wait. Called in a turn; the work runs behind it, while other turns may run elsewhere.
  public func afterTurn(_ work: @escaping Work) -> Bool {
    guard workAfterTurn != nil else { return false }
    workAfterTurn?.append(work)
    return true
  }

  /// Runs one turn, or those of control work that came together; returns false if there was none to run.
  ///
  /// Control work comes first, then timers, then what the last turn has put off, then the rest of a batch and the next
  /// batch. Each turn also goes on with what is put off, and of work and timers without end nobody else starves.
  public func runOne() -> Bool {
    now = max(now, clock.now)
    wallTime = clock.wallTime
    if urgentRow < Self.rowLimit, let work = takeUrgent() {
      urgentRow += 1
      turn(work)
      // What came with it has its turns at the same instant, unless they take longer than one may.
      while urgentHead < urgent.count, clock.now < now + limits.time, let work = takeUrgent() {
        urgentRow += 1
        turn(work)
      }
      return true
    }
    urgentRow = 0
    if timerRow < Self.rowLimit, let due = timers.popDue(now) {
      timerRow += 1
      turn { due.target.woke(due.token) }
      return true
    }
    timerRow = 0
    if deferredHead < deferred.count {
      turn {}
      return true
    }
    if pausingOutputs == 0, runBatch() { return true }
    // What had to let the others go first.
    if let work = takeUrgent() {
      turn(work)
      return true
    }
    if let due = timers.popDue(now) {
      turn { due.target.woke(due.token) }
      return true
    }
    return false
  }

  private func takeUrgent() -> Work? {
    if urgentHead == urgent.count {
      urgent.removeAll(keepingCapacity: true)
      urgentHead = 0
      mailbox.withLock { box in
        if !box.urgent.isEmpty { swap(&box.urgent, &urgent) }
      }
      if urgent.isEmpty { return nil }
    }
    defer {
      urgent[urgentHead] = Self.nothing
      urgentHead += 1
    }
    return urgent[urgentHead]
  }

  private static let nothing: Work = {}

  /// Runs a turn with input; false if there is none that may be taken.
  private func runBatch() -> Bool {
    let outer = pausingQueues == 0
    // A source has one batch at a time, so the rest of one comes before all that waits; inner ones first, as below.
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
    turnEnd = now + limits.time
    lastCheck = now
    eventsLeft = limits.events
    grant()
    work()
    runDeferred(yielding: true)
    if deferredHead == deferred.count {
      becameQuiet()
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
    // Steps that were put off to the next turn belong to the events of this one.
    if let ended = ack, deferredHead == deferred.count {
      ack = nil
      tracksSeveral = false
      ended.release()
    }
  }

  /// Runs what was deferred: at most `deferredLimit` steps. `yielding`: few once the turn is spent, for nothing else of the
  /// same batch comes before the rest.
  private func runDeferred(yielding: Bool) {
    depth += 1
    drain &+= 1
    var steps = 0
    while deferredHead < deferred.count, steps < Self.deferredLimit {
      let step = deferred[deferredHead]
      deferredHead += 1
      if !step.node.isClosed { step.node.resumed(step.token) }
      steps += 1
      if spend(), yielding, steps >= Self.deferredLeast { break }
    }
    drain &+= 1
    depth -= 1
    // Nothing else of the batch may come before what is left.
    if deferredHead < deferred.count { credit.pointee = 0 }
  }

  // MARK: How long a turn lasts

  /// Counts an event; whether the turn is spent, so that no further one should be begun in it.
  @inline(__always)
  func spend() -> Bool {
    credit.pointee &-= 1
    return credit.pointee <= 0 && checkLimits()
  }

  /// Counts an event of a source that cannot stop behind it.
  @inline(__always)
  func count() { credit.pointee &-= 1 }

  /// Looks at the clock and at the memory, and decides how soon to look again.
  @inline(never)
  private func checkLimits() -> Bool {
    if isSpent { return true }
    let time = clock.now
    let elapsed = time - lastCheck
    lastCheck = time
    eventsLeft -= granted
    // Events of one kind take about as long as those before them.
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

  /// Has the rest of a batch run in a turn of its own, before any other batch of its kind; timers and control work may
  /// come between. It belongs to the events of this turn (``ack``). Called in a turn that is spent, at most once
  /// for each source.
  ///
  /// - Parameter inner: the source is part of an inner signal.
  public func resume(inner: Bool, _ work: @escaping () -> Void) {
    ack?.hold()
    remainders.append(Remainder(isInner: inner, ack: ack, work: work))
  }

  /// The pipeline is over: the rest of its batches has no turn any more. `reason`: why its events have failed, if so.
  func dropRemainders(_ reason: String? = nil) {
    let left = remainders
    remainders = []
    for rest in left {
      if let reason { rest.ack?.fail(reason) }
      rest.ack?.release()
    }
  }

  // MARK: During a turn

  /// All that this turn does from now on, what it puts off included, belongs to the events of `acks`; one hold
  /// of each ends with that. Called by the source of the events, or by a sink that has held them and now rejects them,
  /// once in a turn.
  public func track(_ acks: Ack...) { track(acks) }

  public func track(_ acks: [Ack]) {
    guard let first = acks.first else { return }
    if ack == nil, acks.count == 1 {
      ack = first
      return
    }
    if !tracksSeveral {
      let all = Ack()
      // What an earlier turn has put off may go on in this one.
      if let ack { all.include(ack) }
      ack = all
      tracksSeveral = true
    }
    for one in acks { ack?.include(one) }
  }

  /// Runs what an event of a batch has deferred before the next event of the batch comes, so that it makes
  /// no difference whether events share a turn.
  ///
  /// `yielding`: the next event waits for what is left, in another turn (``spend()``).
  @inline(__always)
  func finishEvent(yielding: Bool = false) {
    if deferredHead < deferred.count, depth == 0 { runDeferred(yielding: yielding) }
  }

  /// Starts a source from inside a node: what it defers waits until the outer event is dealt with.
  func nested(_ start: () -> Void) {
    depth += 1
    start()
    depth -= 1
  }

  /// Calls `resumed` of `node` later in this turn (or in the next, when this one has run for long), off the
  /// stack.
  func `defer`(_ node: OperatorNode, _ token: Int) {
    deferrals &+= 1
    deferred.append((node, token))
  }

  /// What still waits for `node` to go on: places in the queue and tokens.
  func deferrals(of node: OperatorNode) -> [(position: Int, token: Int)] {
    guard deferredHead < deferred.count else { return [] }
    return (deferredHead..<deferred.count).compactMap {
      deferred[$0].node === node ? ($0 - deferredHead, deferred[$0].token) : nil
    }
  }

  /// Wakes `target` in a turn of its own. For nodes use `OperatorNode.wake`, which knows their end.
  public func schedule(at deadline: Instant, _ target: any TimerTarget, _ token: Int) -> Wake {
    timers.schedule(at: deadline, target, token)
  }

  public func unschedule(_ wake: Wake) { timers.cancel(wake) }

  func wake(at deadline: Instant, _ target: any TimerTarget, _ token: Int = 0) -> Wake {
    timers.schedule(at: deadline, target, token)
  }

  func cancel(_ wake: Wake) { timers.cancel(wake) }

  func pending(_ wake: Wake) -> TimerQueue.Pending? { timers.pending(wake) }

  /// Schedules a timer of a saved state, with the number it had.
  func reschedule(at deadline: Instant, _ number: UInt64, _ target: any TimerTarget, _ token: Int) -> Wake {
    timers.schedule(at: deadline, number, target, token)
  }

  /// The number of the timer that was scheduled last; it only grows.
  var lastTimer: UInt64 {
    get { timers.last }
    set { timers.last = newValue }
  }

  /// The wall clock was set: what waits for a time of day reads it anew. Call it in a turn.
  public func clockWasSet() {
    for waiting in clockWatchers where waiting.object != nil { waiting.object?.clockWasSet() }
    clockWatchers.removeAll { $0.object == nil }
  }

  /// Tells `source` from now on when the wall clock was set.
  func watchClock(_ source: RunningSource) {
    if clockWatchers.count >= watchersToSweep {
      clockWatchers.removeAll { $0.object == nil }
      watchersToSweep = max(16, 2 * clockWatchers.count)
    }
    clockWatchers.append(Weak(source))
  }

  /// The clock as it is, not the turn's instant: to measure with only.
  var instant: Instant { clock.now }

  func releaseLater(_ object: AnyObject) { deferredReleases.append(object) }

  /// Who asks for no further input.
  public enum Pressure: Sendable {
    /// A sink that cannot write as fast as events come.
    case output
    /// An operator with more events waiting than its bound says.
    case queue
  }

  /// One more place that wants no further input. Each call needs one ``resumeInput(_:)``.
  public func pauseInput(_ pressure: Pressure) {
    if pressure == .output { pausingOutputs += 1 } else { pausingQueues += 1 }
  }

  public func resumeInput(_ pressure: Pressure) {
    if pressure == .output { pausingOutputs -= 1 } else { pausingQueues -= 1 }
    precondition(pausingOutputs >= 0 && pausingQueues >= 0, "input resumed more often than paused")
  }
}
