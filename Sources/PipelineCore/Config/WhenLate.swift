/// The treatment of time that passed while a pipeline was down: from its last saved state to the start that restores it.
package enum WhenLate: String, Sendable, CaseIterable {
  /// The clock went on: what was due happens at the start, in the order of its times and before new input.
  case fire
  /// The clock went on: what was due is left out.
  case skip
  /// The clock stood still: everything comes after its remaining time.
  case resume

  /// For the reference, a clause.
  package var help: String {
    switch self {
    case .fire: "missed times are made up at the start, in their order and before new input"
    case .skip: "missed times are skipped"
    case .resume: "the pipeline's clock stood still, so everything comes after its remaining time"
    }
  }
}
