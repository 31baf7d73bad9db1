/// Control work that was taken from the mailbox and has had no turn yet, and the numbers of turns that other kinds have
/// waited for it.
struct ControlWork {
  var work: [Executor.Work] = []
  /// The index of the first work that has had no turn.
  var head = 0
  /// The number of consecutive turns with control work, and with timers, while input may have waited.
  var row = 0
  var timerRow = 0
}

/// Which timers run before waiting input, and which after it.
struct TimerGrace {
  /// Timers that were due before this instant run first, however many they are: the timers of a restored state.
  var restoredAt = Instant(nanoseconds: .min)
  /// See ``Executor/graceOfTimers``.
  var span: TimeSpan?
  /// Timers wait until this instant.
  var end: Instant?
  /// Timers that were due before this instant have already waited for `end`.
  var given = Instant(nanoseconds: .min)
  /// The input that due timers wait for now; nil: they do not wait.
  var queue: InputAhead?
  /// Timers that were due before this instant have already waited for the input that was queued.
  var passed = Instant(nanoseconds: .min)

  /// Input that was queued when a timer was found to be due.
  struct InputAhead {
    var since: Instant
    /// The number of the queued batches that have had no turn.
    var batches: Int
    /// The number of turns that the input may still take. A source that never stops leaves the rest of a batch each
    /// time.
    var turns = Executor.rowLimit
  }
}

/// How long a turn may last.
struct TurnBudget {
  var limits = TurnLimits()
  /// The number of events granted after a reading of the clock: about as many as take ``TurnLimits/checkInterval``.
  var stride = 8
  var lastCheck = Instant(nanoseconds: 0)
  var end = Instant(nanoseconds: 0)
  /// The instant at which another pipeline needs the thread: turns end soon after it.
  var bound = Instant.distantFuture
  var eventsLeft = 0
  /// The number of events granted at the last check.
  var granted = 0
  var isSpent = false
}

/// The queue of steps that must not run on the stack of their caller.
struct DeferredSteps {
  var steps: [(node: OperatorNode, token: Int)] = []
  /// The index of the first step that has not run.
  var head = 0
  /// The index of the first deferred step that the innermost start of sources may run; earlier ones wait for outer
  /// events.
  var nestedHead = Int.max
  /// The nodes whose steps are on the stack, the innermost last.
  var resuming: [OperatorNode] = []
  /// The number of deferrals so far.
  var deferrals: UInt64 = 0
  /// The number of deferrals by steps that ran too early, because a step upstream must run first.
  var waits: UInt64 = 0
  /// See ``Executor/drain``.
  var drain: UInt64 = 0
  /// The number of steps and starts of sources on the stack.
  var depth = 0
  /// Whether a sink had paused the input before this turn, so that the steps wait.
  var isLonger = false
}

/// The sources that are notified when the wall clock is set.
struct ClockWatchers {
  private var waiting: [Weak<RunningSource>] = []
  /// When the list is longer, elements whose source was freed are removed.
  private var limit = 16

  var sources: [RunningSource] { waiting.compactMap(\.object) }

  mutating func add(_ source: RunningSource) {
    if waiting.count >= limit {
      sweep()
      limit = max(16, 2 * waiting.count)
    }
    waiting.append(Weak(source))
  }

  /// Removes elements whose source was freed.
  mutating func sweep() { waiting.removeAll { $0.object == nil } }
}
