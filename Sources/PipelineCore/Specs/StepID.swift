/// Identifies a step of the plan.
package struct StepID: Sendable, Hashable {
  package var number: Int
  package init(_ number: Int) { self.number = number }
}
