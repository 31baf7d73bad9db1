/// `concat`: one signal after another.
struct Concat: CombiningOperator, TimedOperator {
  static let relaysEvents = true

  static let spec = ComponentSpec<Concat>(
    "concat",
    summary: "Sends the events of its inputs one after the other.",
    details: """
      The next input is subscribed when the one before has completed and freed its resources. Events that a shared \
      input sends before that are lost. The first error ends it; later inputs are never subscribed.
      """,
    examples: [
      .marbles(
        "events that came too early are lost", "concat: [a, b]", in: ["a": "-1--|", "b": "--2---3-|"],
        out: "-1----3-|")
    ],
    edges: EdgeCases(
      empty: "Continues with the next input.", error: "Passed on at once; later inputs are never subscribed.",
      completion: "Continues with the next input; completes with the last.",
      disposal: "Unsubscribes from the running input; later ones are never subscribed."),
    persistence: .state(version: 1),
    knownAs: ["RxJS concat", "Combine append"],
    useCases: [
      .init(.combining, "have one signal after the other", "concat: [a, b]")
    ],
    seeAlso: ["merge", "startWith"])

  static let subscribesAgain = true

  func outputType(_ inputs: [EventType]) -> EventType { Merge().outputType(inputs) }

  var timing: Timing { .inTurn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(nodeContext, downstream: downstream)
  }

  final class Node: MultiInletNode {
    private var next = 0
    private var isAdvancing = false

    override func start() { advance() }

    /// A loop instead of recursion, so that any number of inputs may end while they are subscribed.
    private func advance() {
      guard !isAdvancing else { return }
      isAdvancing = true
      defer { isAdvancing = false }
      while !isClosed, inletCount == 0 {
        guard next < nodeContext.inputs.count else {
          finish()
          return
        }
        let number = next
        next += 1
        open(nodeContext.inputs[number], number: number)
      }
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      advance()
    }

    override func save(_ state: inout StateWriter) { state.write(next) }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      next = try state.read(in: 0...nodeContext.inputs.count)
    }
  }
}
