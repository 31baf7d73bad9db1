extension Executor {
  /// The cause of a pause of the input.
  package enum Pressure: Sendable {
    /// A sink cannot write as fast as events arrive.
    case output
    /// An operator's queue is over its limit.
    case queue
  }
}

/// Counts the causes that pause the input of a pipeline, and the time of the pauses.
struct InputPause {
  /// The numbers of sinks and of full queues that pause the input.
  var outputs: Int { isIgnored ? 0 : causes.outputs }
  var queues: Int { isIgnored ? 0 : causes.queues }
  private var causes = (outputs: 0, queues: 0)
  /// Whether the input flows in spite of all causes. While tables are being loaded, the input is that of the tables,
  /// and the sinks wait for it.
  private var isIgnored = false
  private var since = Instant(nanoseconds: 0)
  /// The time of the pauses that have ended.
  private var ended = TimeSpan.zero

  var isOn: Bool { outputs + queues > 0 }

  mutating func begin(_ pressure: Executor.Pressure, at now: Instant) {
    if !isOn { since = now }
    if pressure == .output { causes.outputs += 1 } else { causes.queues += 1 }
  }

  mutating func end(_ pressure: Executor.Pressure, at now: Instant) {
    let wasOn = isOn
    if pressure == .output { causes.outputs -= 1 } else { causes.queues -= 1 }
    precondition(causes.outputs >= 0 && causes.queues >= 0, "input resumed more often than paused")
    if wasOn, !isOn { ended = ended + (now - since) }
  }

  /// Starts or stops ignoring all causes of pauses.
  mutating func ignore(_ isIgnored: Bool, at now: Instant) {
    if isOn { ended = ended + (now - since) }
    self.isIgnored = isIgnored
    if isOn { since = now }
  }

  /// How long the input has been paused in total, until `time`.
  func time(until time: Instant) -> TimeSpan { isOn ? ended + max(.zero, time - since) : ended }
}
