/// The facts that `rxd explain` reports about one expression.
package struct ExpressionReport: Sendable {
  package var step: StepID
  package var checked: CheckedExpression
}
