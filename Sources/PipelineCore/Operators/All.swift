/// `all`: whether every event satisfies a condition.
struct AllMatch: OperatorComponent {
  var condition = ExpressionParameter()
  var onFailure = AnyMatch.OnFailure.answer

  static let spec = ComponentSpec<AllMatch>(
    "all",
    summary: "Sends false at the first event that does not fulfil a condition, or true at the end.",
    details: """
      Then it completes. An empty signal gives true. An event for which the condition fails goes to the errors \
      output and is not counted.
      """,
    parameters: [
      .init("where", \.condition, primary: true, required: true, expecting: .bool, "The condition."),
      .init("onFailure", \.onFailure, "What happens if the signal fails."),
    ],
    examples: [
      .marble("all do", "all: event > 0", in: "-1-3-|", out: "-----(t|)", values: ["t": "true"]),
      .marble("one does not", "all: event < 3", in: "-1-3-4-|", out: "---(f|)", values: ["f": "false"]),
      .marble("of nothing", "all: event > 0", in: "--|", out: "--(t|)", values: ["t": "true"]),
      .marble("an error is an answer", "all: event > 0", in: "-1-#", out: "---(f|)", values: ["f": "false"]),
    ],
    edges: EdgeCases(
      empty: "Sends true, then completes.",
      error: "Sends false, then completes; with `onFailure: fail` the error is passed on.",
      completion: "Sends true, then completes."),
    knownAs: ["RxJS every", "Combine allSatisfy", "ReactiveCocoa all:"],
    useCases: [
      .init(.choosing, "know whether every event fulfils a condition", "all: event.ok == true")
    ],
    seeAlso: ["any", "filter", "and"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(.bool) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    QuestionNode(condition.program, stopsAt: false, answersErrors: onFailure == .answer, nodeContext, downstream)
  }
}
