/// `then`: continues with another signal after completion.
struct Then: OperatorComponent {
  var signal = SignalParameter()

  static let spec = ComponentSpec<Then>(
    "then",
    summary: "Drops all events, and continues with another signal when the signal completes.",
    details: """
      The other signal is subscribed only then. An error ends everything, and the other signal is never \
      subscribed.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The signal to continue with.")
    ],
    examples: [
      .marbles(
        "afterwards", "{ from: a, chain: [ { then: { values: [8, 9] } } ] }", in: ["a": "-1-2-|"],
        out: "-----(89|)"),
      .marbles(
        "not after an error", "{ from: a, chain: [ { then: { values: [8, 9] } } ] }", in: ["a": "-1-#"],
        out: "---#"),
    ],
    edges: EdgeCases(
      empty: "Continues with the other signal.", error: "Passed on at once; the other signal is never subscribed.",
      completion: "Continues with the other signal and ends with it.",
      disposal: "Unsubscribes from upstream or from the other signal."),
    knownAs: ["ReactiveSwift then", "RxJS ignoreElements with concat"],
    useCases: [
      .init(.asking, "do one thing after another has been done", "then: other")
    ],
    seeAlso: ["concat", "ignoreValues", "switchToLatest"])

  func outputType(_ inputs: [EventType]) -> EventType { signal.plan?.type ?? .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(signal.required, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    private let next: SignalPlan
    private static let following = 1

    init(_ next: SignalPlan, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.next = next
      super.init(nodeContext, downstream: downstream)
    }

    override func start() { open(nodeContext.inputs[0]) }

    override func receive(_ event: Event, from inlet: Inlet) {
      if inlet.number == Self.following { emit(event) } else { countDropped(event) }
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      if inlet.number == Self.following { finish() } else { open(next, number: Self.following) }
    }
  }
}
