/// How a step treats event time.
package enum Timing: Sendable {
  /// The step's output has the time of the event of its first input that caused it, and the step holds no event back.
  case passes
  /// Like `passes`, for events of any input; all inputs must have event time.
  case all
  /// Like `passes`, for the inputs one after the other.
  case inTurn
  /// Event time begins here.
  case begins
  /// The step's output has no event time.
  case ends
}

/// An operator that declares how it treats event time. Other fused steps preserve it; all other operators end it.
package protocol TimedOperator: OperatorDeclaration {
  var timing: Timing { get }
  /// How the operator's parameters affect event time, in words; nil: not at all.
  var timeNote: String? { get }
  /// Whether the operator's fused steps send at the end only outputs that time would otherwise make them send.
  var endsByTime: Bool { get }
  /// Whether the operator's steps use the event time of the stream.
  var followsStream: Bool { get }
}

extension TimedOperator {
  package var timeNote: String? { nil }
  package var endsByTime: Bool { false }
  package var followsStream: Bool { false }
}

extension Timing {
  /// How a component treats event time.
  static func of(_ component: any Component) -> Timing {
    if let timed = component as? any TimedOperator { return timed.timing }
    return component is any FusableDeclaration ? .passes : .ends
  }
}

extension SignalPlan {
  /// The signals whose watermarks determine that of the output: several, if the step waits for all of them.
  package var watermarkInputs: [SignalPlan] {
    guard let component = steps.first?.component, Timing.of(component) == .all else { return Array(inputs) }
    return inputs + inner
  }
}
