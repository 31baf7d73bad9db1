extension Executor {
  /// The cause of a pause of the input.
  package enum Pressure: Sendable {
    /// A sink cannot write as fast as events come.
    case output
    /// An operator's queue is over its bound.
    case queue
  }
}

/// Counts the causes that pause the input of a pipeline, and the time of the pauses.
struct InputPause {
  /// The numbers of sinks and of full queues that pause the input.
  private(set) var outputs = 0
  private(set) var queues = 0
  private var since = Instant(nanoseconds: 0)
  /// The time of the pauses that have ended.
  private var ended = TimeSpan.zero

  var isOn: Bool { outputs + queues > 0 }

  mutating func begin(_ pressure: Executor.Pressure, at now: Instant) {
    if !isOn { since = now }
    if pressure == .output { outputs += 1 } else { queues += 1 }
  }

  mutating func end(_ pressure: Executor.Pressure, at now: Instant) {
    if pressure == .output { outputs -= 1 } else { queues -= 1 }
    precondition(outputs >= 0 && queues >= 0, "input resumed more often than paused")
    if !isOn { ended = ended + (now - since) }
  }

  /// How long the input has been paused in total, until `time`.
  func time(until time: Instant) -> TimeSpan { isOn ? ended + max(.zero, time - since) : ended }
}
