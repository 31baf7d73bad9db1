/// `takeUntilReplacement`: one signal until another takes over.
struct TakeUntilReplacement: OperatorComponent {
  var signal = SignalParameter()

  static let spec = ComponentSpec<TakeUntilReplacement>(
    "takeUntilReplacement",
    summary: "Passes on events until another signal sends, then only that signal's events.",
    details: """
      The completion of the signal itself is not passed on, because the replacement may still come; its error is, \
      until it is replaced. The replacement's completion or error ends everything. The replacement is subscribed \
      first: if its source sends at once, only a value of `startWith` upstream comes before that.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The signal that takes over.")
    ],
    examples: [
      .marbles(
        "it takes over", "{ from: a, chain: [ { takeUntilReplacement: b } ] }",
        in: ["a": "-1-2-3-4-|", "b": "----8---9-|"], out: "-1-28---9-|"),
      .marbles(
        "only its end counts", "{ from: a, chain: [ { takeUntilReplacement: b } ] }",
        in: ["a": "-1|", "b": "---3|"], out: "-1-3|"),
    ],
    edges: EdgeCases(
      empty: "Continues with the replacement alone.",
      error: "Passed on at once until the replacement has taken over; the replacement's error always is.",
      completion: "Not passed on; the replacement's completion is.", disposal: "Unsubscribes from both signals."),
    memory: "Whether the replacement has taken over.",
    persistence: .state(version: 1),
    knownAs: ["ReactiveSwift take(untilReplacement:)"],
    useCases: [
      .init(.combining, "use one signal until a better one starts", "takeUntilReplacement: other")
    ],
    seeAlso: ["takeUntil", "switchToLatest", "catch"])

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(signal.required, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    private let replacement: SignalPlan
    private var isReplaced = false
    private static let replacing = 1

    init(_ replacement: SignalPlan, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.replacement = replacement
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      open(replacement, number: Self.replacing)
      if isClosed || isReplaced { return }
      open(nodeContext.inputs[0])
      // The replacement may have sent an event while the original was being subscribed.
      if isReplaced { leaveOriginal() }
    }

    private func leaveOriginal() {
      isReplaced = true
      for inlet in inlets where inlet.number != Self.replacing { drop(inlet) }
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      if inlet.number == Self.replacing { leaveOriginal() } else if isReplaced { return }
      emit(event)
    }

    override func completed(_ inlet: Inlet) {
      if inlet.number == Self.replacing { finish() } else { drop(inlet) }
    }

    override func save(_ state: inout StateWriter) {
      state.write(isReplaced)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      isReplaced = try state.read()
    }
  }
}
