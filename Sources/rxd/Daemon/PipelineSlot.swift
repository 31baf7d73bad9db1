import Logging
import PipelineCore
import PipelineRuntime
import Storage

/// One pipeline file of the process, through all its runs.
final class PipelineSlot {
  enum State {
    case running
    /// The pipeline is ending; work under way is finished.
    case draining
    /// The pipeline has failed, and starts again after a pause.
    case waiting
    /// Like `waiting`, but the failures have lasted for some time.
    case failed
    /// The pipeline has ended, and does not run again by itself.
    case over
  }

  private(set) var path: String
  /// A version of the file.
  struct Version {
    var plan: Plan
    /// Hashes of the file's meaning and of the inserted values: see ``PipelineLoader/Loaded``.
    var meaning: UInt64
    var values: Int

    /// Whether both versions behave alike.
    func means(_ other: Version) -> Bool { meaning == other.meaning && values == other.values }
  }

  private(set) var current: Version
  var plan: Plan { current.plan }
  private var lastIndex: PlanIndex?
  /// The steps and edges of the plan, for views.
  var index: PlanIndex {
    if let lastIndex, lastIndex.plan === plan { return lastIndex }
    let index = PlanIndex(plan)
    lastIndex = index
    return index
  }
  /// The version to run after the current run.
  var next: Version?
  /// The state left by the previous run, until the next one has started from it.
  var saved: LeftState?
  /// Whether the state is that of a run that is being replaced: the pipeline was not down.
  var isMoved = false
  /// The store of the state; nil: there is none, or it has not been opened.
  var store: DiskStore?
  /// Whether `next` is tried out (``Execution/dryRun(_:services:clock:restoring:)``) as soon as the run has saved its
  /// state.
  var isTrying = false
  /// Whether the pipeline starts as soon as the store of its name is closed, by this or another slot, or a check of the
  /// pipeline is done.
  var awaitsStore = false
  /// Whether a check blocks the pipeline for longer than the verdict of a reload waits.
  var isHeldUp = false
  /// The record of the event in hand, as long as the store is open.
  var inHand: InHand?
  /// The version that ran before a reload, in case the new version does not start.
  var previous: Version?
  /// Whether the file is gone, so that the slot is removed after its run.
  var isLeaving = false
  var state = State.running {
    didSet { if state != oldValue { since = SystemClock.shared.wallTime } }
  }
  /// The time at which `state` began: wall-clock nanoseconds since 1970.
  private(set) var since = SystemClock.shared.wallTime
  /// A failure of a run.
  struct Failure {
    var reason: String
    /// The time of the failure: wall-clock nanoseconds since 1970.
    var at = SystemClock.shared.wallTime
    /// The number of the attempt since the pipeline last ran for a minute, or was changed.
    var attempt = 1
    /// The time at which the pipeline is started again; nil: it has been, or is not restarted automatically.
    var nextTry: Int64?
  }
  /// The last failure; nil: no run has failed.
  var failure: Failure?
  /// The reason why the next run begins without a state, if it does.
  var loss: String?
  var run: PipelineLaunch?
  /// The report handler of the current run.
  var report: (@Sendable (PipelineLaunch.Report) -> Void)?
  var hasLaunched = false
  /// Whether another slot has left an address that this one needs, since the current run was launched.
  var mayHaveAddress = false
  /// Whether the last run failed and no restart follows.
  var hasFailed = false
  var startedAt = Instant(nanoseconds: 0)
  var drainDeadline: Instant?
  /// Whether the run is being suspended; `drainDeadline` ends the wait for answers under way.
  var isSuspending = false
  var totals = Execution.Counters()
  /// The counts of runs that have ended.
  var past = PastCounts()
  /// Events that did not pass, of all runs.
  let stopped = StoppedEvents()
  /// The restarts of the pipeline after failures.
  struct Restarts {
    /// The number of restarts.
    fileprivate(set) var count = 0
    fileprivate var pauses = RestartPauses()
    /// The time of the next restart; nil: none is due.
    var at: Instant?
    /// The time at which a pipeline that could not start is checked; nil: it is not checked.
    var checkAt: Instant?
    /// Whether a check can find out if the pipeline could start.
    var mayCheck = true
  }
  var restarts = Restarts()

  var name: String { plan.name }

  /// Whether the running version equals the file's.
  var isSettled: Bool {
    switch state {
    case .running: hasLaunched && !isTrying || isHeldUp
    // A reload does not wait for removed pipelines.
    case .draining: isLeaving
    case .waiting, .failed, .over: true
    }
  }

  init(path: String, _ version: Version) {
    self.path = path
    current = version
  }

  /// Follows a renamed file.
  func move(to path: String) { self.path = path }

  func adopt(_ version: Version) {
    current = version
    restarts.pauses = RestartPauses()
    restarts.mayCheck = true
    hasFailed = false
  }

  /// Decides when to start again after a failure; returns the pause.
  func fail(at now: Instant, random: UInt64) -> TimeSpan {
    isMoved = false
    restarts.count += 1
    let pause = restarts.pauses.fail(startedAt: startedAt, at: now, random: random)
    state = restarts.pauses.isLasting ? .failed : .waiting
    restarts.at = now + pause
    failure?.attempt = restarts.pauses.attempt
    failure?.nextTry = SystemClock.shared.wallTime &+ pause.nanoseconds
    return pause
  }

  func count(_ counters: Execution.Counters) {
    totals.received &+= counters.received
    totals.sent &+= counters.sent
    totals.rejected &+= counters.rejected
    totals.undelivered &+= counters.undelivered
    totals.undecided &+= counters.undecided
  }

  /// Logs one line with the counters: a warning if events were rejected, otherwise only with `--verbose`.
  func summarize(_ log: LogWriter) {
    var line = "\(Printable.count(totals.received, "event")) in, \(totals.sent) out"
    if totals.rejected > 0 { line += ", \(totals.rejected) rejected" }
    if totals.undelivered > 0 { line += ", \(totals.undelivered) not delivered" }
    if totals.undecided > 0 { line += ", \(totals.undecided) undecided" }
    log.write(
      totals.rejected + totals.undelivered + totals.undecided > 0 ? .warning : .debug, name, line,
      fields: [
        ("received", .uint(totals.received)), ("sent", .uint(totals.sent)),
        ("rejected", .uint(totals.rejected)), ("undelivered", .uint(totals.undelivered)),
        ("undecided", .uint(totals.undecided)),
      ], limited: false)
  }
}
