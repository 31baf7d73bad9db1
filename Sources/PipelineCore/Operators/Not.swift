/// `not`: the negation of each event.
struct Not: PureOperator {
  static let changesValue = true

  static let spec = ComponentSpec<Not>(
    "not",
    summary: "Sends true for each event that is false, and false for each that is true.",
    details: "A number counts as false if it is 0. Any other event goes to the errors output.",
    examples: [
      .marble("contraries", "not", in: "-t-f-|", out: "-f-t-|", values: ["t": "true", "f": "false"]),
      .marble("of numbers", "not", in: "-0-7-|", out: "-t-f-|", values: ["t": "true", "f": "false"]),
    ],
    knownAs: ["ReactiveCocoa not"],
    useCases: [
      .init(.shaping, "turn true into false", "not")
    ],
    seeAlso: ["and", "or", "map"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(.bool) }

  func makePureStep() -> PureStep { Step() }

  final class Step: PureStep {
    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      guard let truth = value.truth else {
        return refuse(.unexpectedValue, "not needs a boolean or a number, not \(value.kindName)", frame)
      }
      value = .bool(!truth)
      return .pass
    }
  }
}

extension Value {
  /// A boolean itself, or whether a number is not 0; nil for anything else.
  var truth: Bool? {
    switch what {
    case .bool: asBool
    case .int: asInt != 0
    case .uint: asUInt != 0
    case .double: asDouble != 0
    default: nil
    }
  }
}
