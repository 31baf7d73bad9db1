/// `try`: fails unless a condition is true.
struct Attempt: PureOperator {
  var condition = ExpressionParameter()
  var message = TemplateParameter()

  static let spec = ComponentSpec<Attempt>(
    "try",
    summary: "Ends the signal with an error at the first event that does not fulfil a condition.",
    details: """
      That event is not sent. With `onError: route` it goes to the errors output instead, with `drop` it is counted, \
      and the signal continues. A condition that fails counts as not fulfilled.
      """,
    parameters: [
      .init("where", \.condition, primary: true, required: true, expecting: .bool, "The condition."),
      .init("message", \.message, "The message of the error."),
    ],
    examples: [
      .marble("an error", "try: event < 3", in: "-1-3-1-|", out: "-1-#"),
      .marble("answered", "{ try: event < 3, onError: route }", in: "-1-3-1-|", out: "-1---1-|"),
    ],
    edges: EdgeCases(error: "Passed on at once; an event that does not fulfil the condition causes one."),
    knownAs: ["ReactiveSwift attempt", "ReactiveCocoa try:"],
    useCases: [
      .init(.failing, "end a signal with an error when something is wrong", "try: event.status < 400"),
      .init(
        .failing, "fail with a message of my own", "try: { where: has(event.id), message: \"no id in {{ event }}\" }"),
    ],
    seeAlso: ["tryMap", "filter", "catch"])

  func makePureStep() -> PureStep { Step(self) }

  final class Step: PureStep {
    private let program: Program
    private let message: TemplateParameter

    init(_ parameters: Attempt) {
      program = parameters.condition.required
      message = parameters.message
    }

    override var standardPolicy: ErrorPolicy { .fail }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      switch program.evaluateBool(frame) {
      case .yes: .pass
      case .no:
        refuse(
          .eventRefused, message.shownText(frame) ?? "an event does not fulfil the condition of 'try'", frame)
      case .failed: fail(frame.frame.lastError, program, frame)
      }
    }
  }
}
