/// `race`: whichever signal speaks first.
struct Race: CombiningOperator {
  static let spec = ComponentSpec<Race>(
    "race",
    summary: "Goes on with the one of its inputs that sends something first, and leaves the others.",
    details: """
      The inputs are subscribed in the order of the list; one that speaks at once keeps the later ones from \
      being subscribed. A completion or an error counts as speaking, so a source that fails at once wins; \
      put `catch` or `retry` into an input that shall not.
      """,
    examples: [
      .marbles("the first wins", "race: [a, b]", in: ["a": "---1-2-|", "b": "--8---9-|"], out: "--8---9-|"),
      .marbles("an end counts too", "race: [a, b]", in: ["a": "---1-2-|", "b": "--|"], out: "--|"),
    ],
    edges: EdgeCases(
      empty: "An input that ends first wins, so it completes.",
      error: "An input that fails first wins, so the error is passed on.",
      completion: "That of the winner is passed on.", disposal: "Leaves all inputs, or the winner."),
    memory: "Which input has won.", persistence: .state(version: 1),
    knownAs: ["RxJS race", "RxSwift amb"],
    useCases: [
      .init(.asking, "ask two servers and take the faster answer", "race: [a, b]")
    ],
    seeAlso: ["merge", "timeout"])

  func outputType(_ inputs: [EventType]) -> EventType { Merge().outputType(inputs) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(nodeContext, downstream: downstream)
  }

  final class Node: MultiInletNode {
    private var winner: Int?

    override func start() {
      for (number, input) in nodeContext.inputs.enumerated() {
        if isClosed || winner != nil { return }
        open(input, number: number)
      }
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      if winner == nil {
        winner = inlet.number
        for other in inlets where other !== inlet { drop(other) }
      }
      emit(event)
    }

    override func completed(_ inlet: Inlet) { finish() }

    override func save(_ state: inout StateWriter) {
      state.write(winner)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      winner = try state.read()
    }
  }
}
