/// `filter`: the events that satisfy a condition.
struct Filter: PureOperator {
  var condition = ExpressionParameter()

  static let spec = ComponentSpec<Filter>(
    "filter",
    summary: "Passes on the events for which a condition holds.",
    details: """
      If the condition fails, because a field is missing or has the wrong type, the event is dropped and counted, \
      and the first of each kind is logged. `onError: route` sends such events to the errors output instead, `keep` \
      passes them on, `fail` ends the signal.
      """,
    parameters: [
      .init(
        "where", \.condition, primary: true, required: true, expecting: .bool,
        "The condition.")
    ],
    examples: [
      .marble("the larger ones", "filter: event >= 3", in: "1-3-2-4|", out: "--3---4|"),
      .marble(
        "a failing condition drops the event", "filter: event.level >= 3", in: "a-b-c|", out: "----c|",
        values: ["a": "{level: 1}", "b": "{}", "c": "{level: 3}"]),
    ],
    knownAs: ["RxJS filter", "Vector filter", "jq select"],
    useCases: [
      .init(.choosing, "keep the events that fulfil a condition", "filter: event.status >= 500"),
      .init(.choosing, "drop events that lack a field", "filter: has(event.user)"),
    ],
    seeAlso: ["ignore", "take"])

  func makePureStep() -> PureStep { Step(condition.required) }
  var passCondition: Program? { condition.required }

  final class Step: PureStep {
    private let program: Program

    init(_ program: Program) {
      self.program = program
    }

    override var standardPolicy: ErrorPolicy { .drop }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      switch program.evaluateBool(frame) {
      case .yes: .pass
      case .no: .drop
      case .failed: fail(frame.frame.lastError, program, frame)
      }
    }
  }
}
