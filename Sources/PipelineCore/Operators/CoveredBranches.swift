/// The branches of a step that the tests of a pipeline should reach, besides sending it an event.
package enum CoveredBranches {
  /// The step subscribes to one of these inputs at a time, chosen by a condition or a case.
  case choices([(input: Int, name: String)])
  /// Some events pass, others are dropped.
  case passingAndDropping
  /// Events arrive, and an error does.
  case eventsAndErrors
  /// An error arrives.
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

  /// Whether the component is a step of the file. The outputs of a command are not, nor is the node that keeps it
  /// alive.
  package static func isStep(_ component: any Component) -> Bool {
    !(component is CommandOutput || component is CommandHold)
  }
}
