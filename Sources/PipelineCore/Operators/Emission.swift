/// When the results of a step are sent, and how earlier ones are replaced.
struct Emission {
  /// How long after a change the result is sent before the end; nil: never.
  let early: TimeSpan?
  /// Changes are sent at most once in this time; nil: only at the end, or with `early`.
  let update: TimeSpan?
  let pairs: Bool

  init(_ parameter: EmitParameter?) {
    early = parameter?.early
    update = parameter?.update ?? (parameter?.when == .update ? .zero : nil)
    pairs = parameter?.pairs ?? false
  }

  /// Whether results are sent before they are certain.
  var sendsEarly: Bool { early != nil || update != nil }

  /// The time at which a change made now must be sent, if before the end.
  @inline(__always)
  func due(_ now: Instant, sentAt: Instant?, isLate: Bool) -> Instant {
    if let update { return sentAt.map { max(now, $0 + update) } ?? now }
    if isLate { return now }
    return early.map { now + $0 } ?? .distantFuture
  }
}

extension LateStep {
  /// Sends a row with the metadata of its result.
  final func send(_ value: Value, _ pane: Pane, _ change: RowChange) {
    if !isStopped { run.send(value, as: Origin.row(pane, change), from: self, at: position, chain) }
  }
}
