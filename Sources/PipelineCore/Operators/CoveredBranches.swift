/// What the tests of a pipeline should reach at a step, beyond an event that comes to it.
package enum CoveredBranches {
  /// The step subscribes one of these inputs at a time, by a condition or a case.
  case choices([(input: Int, name: String)])
  /// Events pass, and others are dropped.
  case passingAndDropping
  /// Events come, and an error does.
  case eventsAndErrors
  /// An error comes.
  case errors
  case none

  package init(_ component: (any Component)?) {
    self =
      switch component {
      case let branching as any BranchingOperator: .choices(branching.branches.choices)
      case is Filter: .passingAndDropping
      case is Catch: .eventsAndErrors
      case is Retry: .errors
      default: .none
      }
  }

  /// Whether the component is a step of the file: the outputs of a command are none, nor is the node that holds it.
  package static func isStep(_ component: any Component) -> Bool {
    !(component is CommandOutput || component is CommandHold)
  }
}
