/// Counts the verdicts of one step; the step's edges count the events that pass. Written by one thread.
struct StepCounters {
  /// Events that the step made itself: figures, windows, values at the end.
  var made: UInt64 = 0
  /// Events that the step keeps, or has used in events that it emits.
  var kept: UInt64 = 0
  var dropped: UInt64 = 0
  var superseded: UInt64 = 0
  var undecided: UInt64 = 0
  var rejected: UInt64 = 0
  /// Rejected events that no reader of an errors output received.
  var deadLetters: UInt64 = 0
  var failed: UInt64 = 0
  /// Events held when the subscription ended: lost, or part of a saved state.
  var held: UInt64 = 0
  /// Events of a saved state, which an earlier execution had taken.
  var restored: UInt64 = 0
  /// Attempts that repeated a failed one.
  var retries: UInt64 = 0
  /// Lookups by expressions, if the step is a table.
  var lookups = LookupCounts()
  /// The number of events in the step's queues.
  var waiting = 0
  /// How many of the step's nodes pause the input.
  var pauses = 0
  /// When the first of these nodes began to pause it.
  var pausedSince = Instant(nanoseconds: 0)
  /// The total time of ended pauses, in nanoseconds.
  var paused: Int64 = 0
  /// Events that a sink delivered.
  var delivered: UInt64 = 0
  /// Bytes that a source read or a sink wrote.
  var bytes: UInt64 = 0
  /// The offset in a source's input after the last event; -1: unknown.
  var position: Int64 = -1
  /// The time in the step, without the steps downstream, in nanoseconds.
  var time = SampledTotal()
  /// The amounts that the step's instances store now, and whether they have stored anything and any key so far
  /// (``KeptSize``).
  var keptBytes = 0
  var keptKeys = 0
  var keptEvents = 0
  var hasKept = false
  var hasKeys = false
  /// The watermark that the step sent last; unknown: none.
  var watermark = EventTime.unknown
  /// The part of the input that holds the watermark back; the step keeps the object alive.
  var behind: Unmanaged<InputPart>?
  /// The groups of a `groupBy` that share one run, so that no edge counts them.
  var groups = 0
  /// The number of observers of the edges into the step.
  var watchers = 0
  /// Selects the events that do not pass and are offered to ``StoppedEvents``.
  var ofDropped = StoppedCredit()
  var ofSuperseded = StoppedCredit()
  var ofUndecided = StoppedCredit()
  var ofRejected = StoppedCredit()
  var ofFailed = StoppedCredit()

  /// Events that the step did not pass on.
  var stopped: UInt64 { kept &+ dropped &+ superseded &+ given }
  /// Events that the step could not process.
  var given: UInt64 { undecided &+ rejected &+ failed }
}

extension StepCounters {
  func count(of verdict: Verdict) -> UInt64 {
    switch verdict {
    case .dropped: dropped
    case .superseded: superseded
    case .undecided: undecided
    case .rejected: rejected
    case .failed: failed
    case .passed, .kept: 0
    }
  }
}

extension UnsafeMutablePointer<StepCounters> {
  func credit(of verdict: Verdict) -> UnsafeMutablePointer<StoppedCredit> {
    func at(_ path: KeyPath<StepCounters, StoppedCredit>) -> UnsafeMutablePointer<StoppedCredit> {
      let offset = MemoryLayout<StepCounters>.offset(of: path) ?? 0
      return (UnsafeMutableRawPointer(self) + offset).assumingMemoryBound(to: StoppedCredit.self)
    }
    switch verdict {
    case .superseded: return at(\.ofSuperseded)
    case .undecided: return at(\.ofUndecided)
    case .rejected: return at(\.ofRejected)
    case .failed: return at(\.ofFailed)
    case .dropped, .passed, .kept: return at(\.ofDropped)
    }
  }

  /// Begins a period of ``StoppedEvents``.
  func renewCredits() {
    pointee.ofDropped.renew(pointee.dropped)
    pointee.ofSuperseded.renew(pointee.superseded)
    pointee.ofUndecided.renew(pointee.undecided)
    pointee.ofRejected.renew(pointee.rejected)
    pointee.ofFailed.renew(pointee.failed)
  }

  /// Records that the step pauses the input. In turns.
  func beganPause(at now: Instant) {
    if pointee.pauses == 0 { pointee.pausedSince = now }
    pointee.pauses += 1
  }

  func endedPause(at now: Instant) {
    pointee.pauses -= 1
    if pointee.pauses == 0 { pointee.paused &+= (now - pointee.pausedSince).nanoseconds }
  }
}
