/// `race`: only the signal that sends first.
struct Race: CombiningOperator, TimedOperator {
  static let relaysEvents = true

  static let spec = ComponentSpec<Race>(
    "race",
    summary: "Continues with the input that sends first, and cancels the others.",
    details: """
      The inputs are subscribed in the order of the list; if one sends at once, later ones are never subscribed. A \
      completion or an error counts too, so a source that fails at once wins; add `catch` or `retry` to an input to \
      prevent that.
      """,
    examples: [
      .marbles("the first wins", "race: [a, b]", in: ["a": "---1-2-|", "b": "--8---9-|"], out: "--8---9-|"),
      .marbles("an end counts too", "race: [a, b]", in: ["a": "---1-2-|", "b": "--|"], out: "--|"),
    ],
    edges: EdgeCases(
      empty: "If an input completes first, it wins, and the signal completes.",
      error: "If an input fails first, it wins, and the error is passed on.",
      completion: "The winner's completion is passed on.", disposal: "Unsubscribes from all inputs, or from the winner."
    ),
    memory: "Which input has won.", persistence: .state(version: 1),
    knownAs: ["RxJS race", "RxSwift amb"],
    useCases: [
      .init(.asking, "query two servers and take the faster response", "race: [a, b]")
    ],
    seeAlso: ["merge", "timeout"])

  func outputType(_ inputs: [EventType]) -> EventType { Merge().outputType(inputs) }

  var timing: Timing { .all }

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
