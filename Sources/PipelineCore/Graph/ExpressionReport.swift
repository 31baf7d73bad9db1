/// What `rxd explain` tells of one expression.
public struct ExpressionReport: Sendable {
  public var step: StepID
  public var checked: CheckedExpression
}
