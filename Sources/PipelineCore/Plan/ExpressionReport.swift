/// The facts that `rxd explain` reports about one expression.
public struct ExpressionReport: Sendable {
  public var step: StepID
  public var checked: CheckedExpression
}
