/// When the results of a step are sent, and how earlier ones are replaced.
struct Emission {
  /// How long after a change the result is sent before the end; nil: it is not.
  let early: TimeSpan?
  /// At most once in this time each change is sent; nil: only at the end, or with `early`.
  let update: TimeSpan?
  let pairs: Bool

  init(_ parameter: EmitParameter?) {
    early = parameter?.early
    update = parameter?.update ?? (parameter?.when == .update ? .zero : nil)
    pairs = parameter?.pairs ?? false
  }

  /// When a change of now is to be sent that must not wait for the end.
  @inline(__always)
  func due(_ now: Instant, sentAt: Instant?, isLate: Bool) -> Instant {
    if let update { return sentAt.map { max(now, $0 + update) } ?? now }
    if isLate { return now }
    return early.map { now + $0 } ?? .distantFuture
  }
}

extension LateStep {
  /// Sends a row that says which result it is.
  final func send(_ value: Value, _ pane: Pane, _ change: RowChange) {
    if !isStopped { run.send(value, as: Origin.row(pane, change), from: self, at: position, chain) }
  }
}
