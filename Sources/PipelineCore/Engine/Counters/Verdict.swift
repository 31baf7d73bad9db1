/// The disposition of an event at a step.
public enum Verdict: String, Sendable, CaseIterable {
  /// The event went on, or a sink delivered it.
  case passed
  /// The step keeps the event, or has used it in an event that it emits.
  case kept
  /// The step dropped the event as specified.
  case dropped
  /// A newer event replaced it; it had been decided as `kept` (``EdgeObserver/superseded(_:)``).
  case superseded
  /// Dropped because a condition, or another expression, failed.
  case undecided
  /// The event went to the errors output.
  case rejected
  /// The event ended the signal with an error.
  case failed
}
