import Synchronization

/// Runs one pipeline, turn by turn: a *turn* is one thing taken from the mailbox or one due timer,
/// processed until nothing more happens synchronously. Turns never overlap.
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

  private let mailbox = Mutex(Mailbox())
  private let clock: any Clock
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
  /// thread. What those turns leave to the thread with ``leave(_:)`` it does behind them. Set, if at all, by whoever
  /// runs the turns, once, before the first post.
  public var runHere: @Sendable (_ batch: @escaping Work, _ isInner: Bool) -> Bool = { _, _ in false }
  /// What becomes of the events of this turn, if somebody asks. A sink that takes something of them to write it later
  /// holds it until it is written.
  public private(set) var settlement: Settlement?
  /// `settlement` was made here, for several.
  private var tracksSeveral = false
  /// What the thread that runs turns by `runHere` does behind them; nil while another one runs them.
  private var errands: [Work]?
  /// Called at the end of each turn, while its values are still valid.
  var turnEnded: () -> Void = {}
  /// Called in a turn when nothing is left to do in it; it may cause more.
  var becameQuiet: () -> Void = {}

  /// How many sinks (and full queues) ask for no further input.
  private var congestedOutputs = 0
  private var congestedQueues = 0
  /// Steps that must not run on the stack of whoever asked for them: the next round of a repeat.
  private var deferred: [(node: OperatorNode, token: Int)] = []
  private var deferredHead = 0
  /// How many steps have ever been deferred: what a pipeline does without time going by shows here, if not in `turns`.
  public private(set) var deferrals: UInt64 = 0
  /// Changes whenever deferred steps begin to run and whenever they have stopped. While it stays the same and deferred
  /// steps run, nothing comes from outside.
  private(set) var drain: UInt64 = 0
  /// How many deferred steps and starts of sources are on the stack.
  private var depth = 0
  /// Keeps nodes that ended during this turn alive until nobody can be inside them.
  private var graveyard: [AnyObject] = []
  /// Steps of one turn that may run before the others get theirs; an endless synchronous source yields here.
  private static let deferredLimit = 1000

  public init(clock: any Clock) {
    self.clock = clock
    now = clock.now
    time = .allocate(capacity: 1)
    time.initialize(to: clock.wallTime)
  }

  deinit { time.deallocate() }

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
    // Released outside of the lock.
    withExtendedLifetime(waiting) {}
  }

  // MARK: Turns

  /// When the next timer is due, or nil.
  public var nextDeadline: Instant? { deferredHead < deferred.count ? now : timers.next }

  /// How many timers are pending.
  public var pendingTimers: Int { timers.count }

  /// Whether a batch of input waits, even if it is held back.
  var hasBatches: Bool { mailbox.withLock { !$0.batches.isEmpty || !$0.innerBatches.isEmpty } }

  /// Whether another batch of input waits and will be taken without anybody having to act.
  public var hasBatchAtHand: Bool {
    !isCongested && mailbox.withLock { !$0.batches.isEmpty }
  }

  public var isCongested: Bool { congestedOutputs + congestedQueues > 0 }

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

  /// What came of turns on a thread that belongs to somebody else.
  public struct Lent {
    /// The batch has had its turn. If not, it is to be posted.
    public var isTaken = false
    /// Something is left to do now.
    public var isBusy = false
    /// What this thread has to do as soon as others may run turns again.
    public var errands: [Work] = []
  }

  /// Runs turns as `run` does, on a thread that belongs to somebody else, and among them one with `batch`, which comes
  /// behind all that is due and waits for it.
  public func runLent(inner: Bool = false, limit: Int = 64, _ batch: Work) -> Lent {
    var lent = Lent()
    errands = []
    lent.isBusy = run(limit: limit)
    if !lent.isBusy, congestedOutputs == 0, inner || congestedQueues == 0 {
      lent.isTaken = true
      turn(batch)
      if isDue { lent.isBusy = run(limit: limit) }
    }
    lent.errands = errands.take() ?? []
    return lent
  }

  /// Whether another turn may be due at the instant of the last one.
  private var isDue: Bool {
    if let next = nextDeadline, next <= now { return true }
    return mailbox.withLock { !$0.urgent.isEmpty || !$0.batches.isEmpty || !$0.innerBatches.isEmpty }
  }

  /// Leaves work that may block, such as writing, to the thread that runs this turn; false if that thread must not
  /// wait. Called in a turn; the work runs behind it, while other turns may run elsewhere.
  public func leave(_ work: @escaping Work) -> Bool {
    guard errands != nil else { return false }
    errands?.append(work)
    return true
  }

  /// Runs one turn; returns false if there was none to run.
  public func runOne() -> Bool {
    now = max(now, clock.now)
    wallTime = clock.wallTime
    let urgent: [Work] = mailbox.withLock { box in
      if box.urgent.isEmpty { return [] }
      let taken = box.urgent
      box.urgent = []
      return taken
    }
    if !urgent.isEmpty {
      for work in urgent { turn(work) }
      return true
    }
    // What an endless pipeline puts off again and again comes behind control, or nothing could stop it.
    if deferredHead < deferred.count {
      turn {}
      return true
    }
    if let due = timers.popDue(now) {
      turn { due.target.woke(due.token) }
      return true
    }
    if congestedOutputs == 0 {
      let outer = congestedQueues == 0
      let batch: Work? = mailbox.withLock {
        if !$0.innerBatches.isEmpty { return $0.innerBatches.removeFirst() }
        return outer && !$0.batches.isEmpty ? $0.batches.removeFirst() : nil
      }
      if let batch {
        turn(batch)
        return true
      }
    }
    return false
  }

  private func turn(_ work: () -> Void) {
    turns &+= 1
    work()
    runDeferred()
    if deferredHead == deferred.count {
      becameQuiet()
      runDeferred()
    }
    if deferredHead == deferred.count {
      deferred.removeAll(keepingCapacity: true)
      deferredHead = 0
    } else if deferredHead > 4096 {
      deferred.removeFirst(deferredHead)
      deferredHead = 0
    }
    turnEnded()
    if !graveyard.isEmpty { graveyard.removeAll(keepingCapacity: true) }
    arena.reset()
    // Steps that were put off to the next turn belong to the events of this one.
    if let settled = settlement, deferredHead == deferred.count {
      settlement = nil
      tracksSeveral = false
      settled.release()
    }
  }

  /// Runs what was deferred, at most `deferredLimit` steps.
  private func runDeferred() {
    depth += 1
    drain &+= 1
    var steps = 0
    while deferredHead < deferred.count, steps < Self.deferredLimit {
      let step = deferred[deferredHead]
      deferredHead += 1
      if !step.node.isClosed { step.node.resumed(step.token) }
      steps += 1
    }
    drain &+= 1
    depth -= 1
  }

  // MARK: During a turn

  /// All that this turn does from now on, what it puts off included, belongs to the events of `settlements`; one hold
  /// of each ends with that. Called by the source of the events, or by a sink that has held them and now rejects them,
  /// once in a turn.
  public func track(_ settlements: Settlement...) { track(settlements) }

  public func track(_ settlements: [Settlement]) {
    guard let first = settlements.first else { return }
    if settlement == nil, settlements.count == 1 {
      settlement = first
      return
    }
    if !tracksSeveral {
      let all = Settlement()
      // What an earlier turn has put off may go on in this one.
      if let settlement { all.include(settlement) }
      settlement = all
      tracksSeveral = true
    }
    for one in settlements { settlement?.include(one) }
  }

  /// Runs what an event of a batch has deferred before the next event of the batch comes, so that it makes
  /// no difference whether events share a turn.
  @inline(__always)
  func settle() {
    if deferredHead < deferred.count, depth == 0 { runDeferred() }
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

  func bury(_ object: AnyObject) { graveyard.append(object) }

  /// Who asks for no further input.
  public enum Pressure: Sendable {
    /// A sink that cannot write as fast as events come.
    case output
    /// An operator with more events waiting than its bound says.
    case queue
  }

  /// One more place that wants no further input. Each call needs one ``decongest(_:)``.
  public func congest(_ pressure: Pressure) {
    if pressure == .output { congestedOutputs += 1 } else { congestedQueues += 1 }
  }

  public func decongest(_ pressure: Pressure) {
    if pressure == .output { congestedOutputs -= 1 } else { congestedQueues -= 1 }
    precondition(congestedOutputs >= 0 && congestedQueues >= 0, "decongest without congest")
  }
}
