/// `takeWhile`: events as long as a condition is true.
struct TakeWhile: FusableOperator {
  var condition = ExpressionParameter()
  var inclusive = false

  static let spec = ComponentSpec<TakeWhile>(
    "takeWhile",
    summary: "Passes on events until one does not fulfil a condition, then completes.",
    details: """
      The event that does not fulfil it is not sent, unless `inclusive` says so. An event for which the condition \
      fails goes to the errors output and does not end the signal.
      """,
    parameters: [
      .init("where", \.condition, primary: true, required: true, expecting: .bool, "The condition."),
      .init("inclusive", \.inclusive, "Also send the event that ends it."),
    ],
    examples: [
      .marble("while small", "takeWhile: event < 3", in: "-1-2-3-1-|", out: "-1-2-|"),
      .marble(
        "with the event that ends it", "takeWhile: { where: event < 3, inclusive: true }",
        in: "-1-2-3-1-|", out: "-1-2-(3|)"),
      .marble("of nothing", "takeWhile: event < 3", in: "--|", out: "--|"),
      .marble("an error before that", "takeWhile: event < 3", in: "-1-#", out: "-1-#"),
    ],
    edges: EdgeCases(
      completion: "Passed on at once; it completes by itself at the first event that does not fulfil the condition."),
    knownAs: ["RxJS takeWhile", "Combine prefix(while:)", "ReactiveCocoa takeWhileBlock:"],
    useCases: [
      .init(.choosing, "have events as long as a condition holds", "takeWhile: event.n < 100"),
      .init(
        .choosing, "stop after the event that ends a batch",
        "takeWhile: { where: event.last != true, inclusive: true }"),
    ],
    seeAlso: ["takeUntil", "skipWhile", "take"])

  func makeStep() -> FusedStep { Step(self) }

  final class Step: FusedStep {
    private let program: Program
    private let inclusive: Bool
    private var isOver = false

    init(_ parameters: TakeWhile) {
      program = parameters.condition.required
      inclusive = parameters.inclusive
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      // While the last event was being passed on, a step downstream may have caused a further event.
      if isOver { return .finish }
      switch program.evaluateBool(frame) {
      case .yes: return .pass
      case .no:
        isOver = true
        return inclusive ? .passAndFinish : .finish
      case .failed: return failed(event, frame.frame.lastError, program, frame, run)
      }
    }
  }
}
