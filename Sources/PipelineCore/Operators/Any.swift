/// `any`: whether at least one event satisfies a condition.
struct AnyMatch: OperatorComponent {
  /// The effect of an error of the signal on the result.
  enum OnFailure: String, ChoiceParameter {
    case answer, fail
    var help: String {
      switch self {
      case .answer: "the result is false, as in ReactiveCocoa"
      case .fail: "the error is passed on, as in Rx"
      }
    }
  }

  var condition = ExpressionParameter()
  var onFailure = OnFailure.answer

  static let spec = ComponentSpec<AnyMatch>(
    "any",
    summary: "Sends true at the first event that fulfils a condition, or false at the end.",
    details: """
      Then it completes. Without a condition, every event counts. An event for which the condition fails goes to the \
      errors output and is not counted.
      """,
    parameters: [
      .init("where", \.condition, primary: true, expecting: .bool, "The condition; any event if left out."),
      .init("onFailure", \.onFailure, "What happens if the signal fails."),
    ],
    examples: [
      .marble("one does", "any: event > 2", in: "-1-3-4-|", out: "---(t|)", values: ["t": "true"]),
      .marble("none does", "any: event > 9", in: "-1-3-|", out: "-----(f|)", values: ["f": "false"]),
      .marble("of nothing", "any", in: "--|", out: "--(f|)", values: ["f": "false"]),
      .marble("an error is an answer", "any: event > 9", in: "-1-#", out: "---(f|)", values: ["f": "false"]),
      .marble("an error is an error", "any: { where: event > 9, onFailure: fail }", in: "-1-#", out: "---#"),
    ],
    edges: EdgeCases(
      empty: "Sends false, then completes.",
      error: "Sends false, then completes; with `onFailure: fail` the error is passed on.",
      completion: "Sends false, then completes."),
    knownAs: ["RxSwift contains", "RxPY some", "ReactiveCocoa any:"],
    useCases: [
      .init(.choosing, "know whether any event fulfils a condition", "any: event.level == \"error\""),
      .init(.choosing, "know whether anything came at all", "any"),
    ],
    seeAlso: ["all", "filter", "count"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(.bool) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    QuestionNode(condition.program, stopsAt: true, answersErrors: onFailure == .answer, nodeContext, downstream)
  }
}

/// Sends the result at the first event whose condition equals `stopsAt`.
final class QuestionNode: OperatorNode {
  private let program: Program?
  private let stopsAt: Bool
  private let answersErrors: Bool
  private lazy var frame = sharedFrame()
  private var isAnswered = false

  init(
    _ program: Program?, stopsAt: Bool, answersErrors: Bool, _ nodeContext: NodeContext, _ downstream: Downstream
  ) {
    self.program = program
    self.stopsAt = stopsAt
    self.answersErrors = answersErrors
    super.init(nodeContext, downstream: downstream)
  }

  override func receive(_ event: Event) {
    guard !isAnswered else { return }
    if let program {
      guard decide(event, program, frame, kept: !stopsAt) == stopsAt else { return }
    }
    answer(stopsAt)
  }

  override func complete() { answer(!stopsAt) }

  override func fail(_ failure: SignalFailure) {
    // An error never counts as true, not even for `all`.
    if answersErrors { answer(false) } else { finish(failing: failure) }
  }

  private func answer(_ answer: Bool) {
    guard !isAnswered else { return }
    isAnswered = true
    emit(made(.bool(answer)))
    finish()
  }
}
