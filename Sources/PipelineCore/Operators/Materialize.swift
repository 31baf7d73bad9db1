/// `materialize`: events, completion and errors as events.
struct Materialize: OperatorComponent {
  static let spec = ComponentSpec<Materialize>(
    "materialize",
    summary: "Sends events, completion and errors of a signal as events.",
    details: """
      An event becomes `{kind: next, value: ...}`; the end becomes `{kind: completed}` or `{kind: error, error: \
      {kind: ..., message: ...}}`. Then the signal completes, also after an error.
      """,
    examples: [
      .marble(
        "a completion", "materialize", in: "-1-|", out: "-a-(b|)",
        values: ["a": "{kind: next, value: 1}", "b": "{kind: completed}"]),
      .marble(
        "an error", "materialize", in: "-1-#", out: "-a-(b|)",
        values: ["a": "{kind: next, value: 1}", "b": "{kind: error, error: {kind: user, message: error}}"]),
    ],
    edges: EdgeCases(
      empty: "Sends `{kind: completed}`, then completes.", error: "Sends `{kind: error, ...}`, then completes.",
      completion: "Sends `{kind: completed}`, then completes."),
    knownAs: ["RxJS materialize", "ReactiveSwift materialize"],
    useCases: [
      .init(.living, "see ends and errors as events", "materialize"),
      .init(.failing, "store errors like any other event", "materialize"),
    ],
    seeAlso: ["dematerialize", "catch"])

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(nodeContext, downstream: downstream)
  }

  final class Node: OperatorNode {
    override func receive(_ event: Event) {
      emit(
        event.with(
          arena.map([(.literal("kind"), .literal("next")), (.literal("value"), event.value)])))
    }

    override func complete() {
      emit(made(arena.map([(.literal("kind"), .literal("completed"))])))
      finish()
    }

    override func fail(_ failure: SignalFailure) {
      emit(
        made(
          arena.map([(.literal("kind"), .literal("error")), (.literal("error"), failure.value(in: arena))])))
      finish()
    }
  }
}
