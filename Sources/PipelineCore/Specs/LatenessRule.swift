/// The meaning of `whenLate` for a component that depends on time, by timers or by the ages of kept events.
public struct LatenessRule<C: Component>: Sendable {
  /// The effect of `skip`, one sentence; nil: it has no meaning.
  package var skip: String?
  /// The reason why `skip` has no meaning, a clause; empty if it has one.
  let withoutSkip: String
  /// Why a value of `whenLate` has no meaning with these parameters, a clause; nil: it has one.
  let refusal: @Sendable (C, WhenLate) -> String?

  /// The component implements `skip` with ``OperatorNode/skipped(_:_:)`` or ``LateStep/timeSkipped(_:_:)``.
  ///
  /// - Parameters:
  ///   - skip: The effect of `skip`, one sentence.
  ///   - refusing: Why a value has no meaning with these parameters, a clause; nil: it has one.
  package static func leavesOut(
    _ skip: String, refusing refusal: @escaping @Sendable (C, WhenLate) -> String? = { _, _ in nil }
  ) -> LatenessRule {
    LatenessRule(skip: skip, withoutSkip: "", refusal: refusal)
  }

  /// The component cannot skip outputs: due timers fire, or its clock stands still.
  ///
  /// - Parameters:
  ///   - reason: Why, a clause.
  ///   - refusing: Why a value has no meaning with these parameters, a clause; nil: it has one.
  package static func always(
    _ reason: String, refusing refusal: @escaping @Sendable (C, WhenLate) -> String? = { _, _ in nil }
  ) -> LatenessRule {
    LatenessRule(skip: nil, withoutSkip: reason, refusal: refusal)
  }
}

extension LatenessRule {
  /// The rule as the reference shows it.
  var meaning: String {
    guard let skip else { return "`whenLate`: `fire` or `resume`." }
    return "`whenLate`: `fire`, `skip` or `resume`. `skip`: \(skip)"
  }
}

extension Component {
  /// Why `whenLate` cannot have this value, as a clause; nil: it can.
  func refusal(of value: WhenLate) -> String? {
    guard let rule = ownSpec.lateness else { return "it keeps no time" }
    return rule.refusal(self, value) ?? (value == .skip && rule.skip == nil ? rule.withoutSkip : nil)
  }
}
