/// `initially`: a side effect before subscribing.
struct Initially: OperatorComponent, TimedOperator {
  var signal = SignalParameter()

  static let spec = ComponentSpec<Initially>(
    "initially",
    summary: "Runs another signal to its end before it subscribes upstream.",
    details: """
      The other signal runs for its effect; its events are dropped. It runs before each subscription, so a retry or \
      repeat downstream runs it again. If it fails, the signal fails. Upstream is subscribed when it has completed; \
      a shared signal may have sent events by then.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The signal to run first.")
    ],
    examples: [
      .marble("at once", "initially: { values: [8, 9] }", in: "-1-2-|", out: "-1-2-|"),
      .marble(
        "it takes its time", "initially: { values: [8], chain: [ { delay: 3ms } ] }", in: "-1-2-|",
        out: "----1-2-|"),
    ],
    edges: EdgeCases(
      empty: "Runs the other signal first, then completes.",
      error: "Passed on at once; after an error of the other signal, upstream is never subscribed.",
      completion: "Passed on at once; upstream is not subscribed before the other signal has ended.",
      disposal: "Unsubscribes from the other signal or from upstream."),
    memory: "The signal that runs first.", knownAs: ["ReactiveSwift on(starting:)", "RxJava doOnSubscribe"],
    useCases: [
      .init(.living, "do something before the first event", "initially: { signal: other }"),
      .init(.asking, "log in before asking", "initially: { signal: other }"),
    ],
    seeAlso: ["finally", "do", "then"])

  static let subscribesAgain = true

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(signal.required, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    private let first: SignalPlan

    init(_ first: SignalPlan, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.first = first
      super.init(nodeContext, downstream: downstream)
    }

    override func start() { open(first) }
    override func receive(_ event: Event, from inlet: Inlet) {}

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      subscribe(nodeContext.inputs[0])
    }
  }
}
