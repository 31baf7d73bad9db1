/// The effect of down time, from a pipeline's last saved state to the start that restores it, on its timers.
package enum WhenLate: String, Sendable, CaseIterable {
  /// Down time counts: timers that came due fire at the start, in order of time and before new input.
  case fire
  /// Down time counts: the output of timers that came due is dropped.
  case skip
  /// Down time does not count: every timer fires after its remaining time.
  case resume

  /// The policy as a clause, for the reference.
  package var help: String {
    switch self {
    case .fire: "missed times are made up at the start, in their order and before new input"
    case .skip: "missed times are skipped"
    case .resume: "the pipeline's clock stood still, so everything comes after its remaining time"
    }
  }
}
