/// Identifies a step of the plan.
package struct StepID: Sendable, Hashable {
  package var number: Int
  package init(_ number: Int) { self.number = number }
}

/// Identifies an edge of the plan, by its index in ``Plan/edges``.
package struct EdgeID: Hashable, Sendable {
  package var number: Int
  package init(_ number: Int) { self.number = number }
  /// The edge of everything that is not part of the plan.
  static let none = EdgeID(0)
}
