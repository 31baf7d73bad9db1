/// `merge`: the events of several signals as they arrive.
struct Merge: CombiningOperator, NamingOperator, TimedOperator {
  static let relaysEvents = true

  static let spec = ComponentSpec<Merge>(
    "merge",
    summary: "Sends the events of all its inputs as they arrive.",
    details: """
      The inputs are subscribed in the order of the list, and sources that send at once send in this order; values \
      of `startWith` come before all of them, whichever input they are in. It completes when all inputs have; the \
      first error ends it and cancels the others.
      """,
    examples: [
      .marbles("interleaved", "merge: [a, b]", in: ["a": "-1---3|", "b": "---2---4|"], out: "-1-2-3-4|")
    ],
    edges: EdgeCases(
      empty: "An input without events adds nothing; completes when all inputs have.",
      error: "The first error of any input ends it at once; the other inputs are cancelled.",
      completion: "Completes when all inputs have.", disposal: "Unsubscribes from all inputs."),
    persistence: .state(version: 1),
    knownAs: ["RxJS merge", "Combine merge"],
    useCases: [
      .init(.combining, "merge several signals as their events arrive", "merge: [a, b]")
    ],
    seeAlso: ["concat", "combineLatest"])

  func outputType(_ inputs: [EventType]) -> EventType {
    .either(inputs)
  }

  var timing: Timing { .all }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(nodeContext, downstream: downstream)
  }

  final class Node: MultiInletNode {
    private var open = 0

    override func start() {
      open = nodeContext.inputs.count
      for (number, input) in nodeContext.inputs.enumerated() {
        if isClosed { return }
        open(input, number: number)
      }
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      open -= 1
      if open == 0 { finish() }
    }

    override func save(_ state: inout StateWriter) { state.write(open) }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      open = try state.read(in: 0...nodeContext.inputs.count)
    }
  }
}
