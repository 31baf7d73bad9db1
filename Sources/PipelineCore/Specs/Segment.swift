/// The expressions of one or several steps that see the same event: they share the slots of one projection of the
/// event.
package final class Segment: @unchecked Sendable {
  /// Frozen after compilation.
  package let projection: Projection
  package internal(set) var usesMeta = false
  /// The members of `meta` that are read; nil: any may be.
  var metaMembers: Set<String>? = []
  package internal(set) var usesNow = false
  /// Whether an expression reads a table, which is possible only in turns.
  package internal(set) var usesTables = false
  package internal(set) var hasPrograms = false
  /// The number of variables in a frame.
  package internal(set) var variableCount = Variables.base.count
  /// The environment as a map, fixed when the plan is made.
  package let environment: OwnedValue
  package init(environment: OwnedValue, projection: Projection = Projection()) {
    self.environment = environment
    self.projection = projection
  }
  static let empty = Segment(environment: OwnedValue())
}

/// The facts that `rxd explain` reports about one expression.
package struct ExpressionReport: Sendable {
  package var step: StepID
  package var checked: CheckedExpression
}
