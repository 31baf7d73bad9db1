/// What becomes of event time at a step.
package enum Timing: Sendable {
  /// What the step sends has the time of the event of its first input that caused it, and it holds none back.
  case passes
  /// The same, of any of its inputs, all of which must have event time.
  case all
  /// The same, of its inputs one after the other.
  case inTurn
  /// Event time begins here.
  case begins
  /// What the step sends has no event time.
  case ends
}

/// An operator that says what becomes of event time at it. Of others, fused steps keep it, and it ends at the rest.
package protocol TimedOperator: OperatorDeclaration {
  var timing: Timing { get }
  /// What its parameters say of event time, in words; nil: nothing.
  var timeNote: String? { get }
  /// Whether it is of fused steps that send at the end only what else time would make them send.
  var endsByTime: Bool { get }
  /// Whether its steps go by the event time of the stream.
  var followsStream: Bool { get }
}

extension TimedOperator {
  package var timeNote: String? { nil }
  package var endsByTime: Bool { false }
  package var followsStream: Bool { false }
}

extension Timing {
  /// What becomes of event time at a component.
  static func of(_ component: any Component) -> Timing {
    if let timed = component as? any TimedOperator { return timed.timing }
    return component is any FusableDeclaration ? .passes : .ends
  }
}

extension SignalPlan {
  /// The signals whose watermarks decide that of what it sends: several, if its step waits for all of them.
  package var watermarkInputs: [SignalPlan] {
    guard let component = steps.first?.component, Timing.of(component) == .all else { return Array(inputs) }
    return inputs + inner
  }
}
