import Logging
import PipelineCore
import PipelineRuntime

/// One pipeline file of the process, over all its runs.
final class PipelineSlot {
  enum State {
    case running
    /// Told to end; what is under way is seen through.
    case draining
    /// Failed; starts again in a moment.
    case waiting
    /// Failed too often; tried again every five minutes.
    case failed
    /// Ended, and will not run again by itself.
    case over
  }

  let path: String
  /// What a slot runs.
  struct Version {
    var plan: Plan
    /// What the file said, and what was put in: see ``PipelineLoader/Loaded``.
    var meaning: UInt64
    var values: Int

    /// Whether both run alike.
    func means(_ other: Version) -> Bool { meaning == other.meaning && values == other.values }
  }

  private(set) var current: Version
  var plan: Plan { current.plan }
  /// What to run once the current run has ended.
  var next: Version?
  /// What the run before has left, until the next one has started from it.
  var saved: [UInt8]?
  /// What ran before a reload, to go back to if the new version does not start.
  var previous: Version?
  /// The file is gone: the slot goes with its run.
  var isLeaving = false
  var state = State.running
  var run: PipelineLaunch?
  /// How the current run is to report.
  var report: (@Sendable (PipelineLaunch.Report) -> Void)?
  var hasLaunched = false
  /// The last run failed, and nothing is tried any more.
  var hasFailed = false
  var startedAt = Instant(nanoseconds: 0)
  var retryAt: Instant?
  var drainDeadline: Instant?
  /// The run is being suspended, and `drainDeadline` is when to stop waiting for answers under way.
  var isSuspending = false
  var totals = Execution.Counters()

  /// Restarts in a row; a minute without a failure begins anew.
  private var attempt = 0
  private var failures: [Instant] = []

  static let firstDelay = TimeSpan.milliseconds(100)
  static let longestDelay = TimeSpan.seconds(30)
  /// More failures than this within ``calm`` are too many.
  static let burst = 5
  static let calm = TimeSpan.seconds(60)
  static let pause = TimeSpan.seconds(300)

  var name: String { plan.name }

  /// Nothing is under way between what the files say and what runs.
  var isSettled: Bool {
    switch state {
    case .running: hasLaunched
    // A reload does not wait for what it has removed.
    case .draining: isLeaving
    case .waiting, .failed, .over: true
    }
  }

  init(path: String, _ version: Version) {
    self.path = path
    current = version
  }

  func adopt(_ version: Version) {
    current = version
    attempt = 0
    failures = []
    hasFailed = false
  }

  /// Decides when to start again after a failure: 0.1 s doubling to 30 s, of which a random part is
  /// taken, so that many pipelines that failed together do not come back together.
  func fail(at now: Instant, random: UInt64) -> TimeSpan {
    failures = failures.filter { now < $0 + Self.calm } + [now]
    if now - startedAt >= Self.calm { attempt = 0 }
    if failures.count > Self.burst {
      failures = []
      state = .failed
      retryAt = now + Self.pause
      return Self.pause
    }
    let ceiling = min(
      Self.firstDelay.nanoseconds << Int64(min(attempt, 20)), Self.longestDelay.nanoseconds)
    attempt += 1
    let delay = TimeSpan(nanoseconds: Int64(random % UInt64(ceiling)))
    state = .waiting
    retryAt = now + delay
    return delay
  }

  func count(_ counters: Execution.Counters) {
    totals.received &+= counters.received
    totals.sent &+= counters.sent
    totals.rejected &+= counters.rejected
    totals.undelivered &+= counters.undelivered
    totals.undecided &+= counters.undecided
  }

  /// One line on what went through: a warning if something was rejected, else only with
  /// `--verbose`.
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
