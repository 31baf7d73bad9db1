/// `finally`: a side effect at the end.
struct Finally: OperatorComponent, TimedOperator {
  var signal = SignalParameter()

  static let relaysEvents = true

  static let spec = ComponentSpec<Finally>(
    "finally",
    summary: "Runs another signal to its end before it passes on the completion or the error.",
    details: """
      The other signal runs for its effect; its events are dropped. After an error it sees `error` (null after a \
      completion). If it fails, the failure is logged, and the end is passed on all the same. It does not run when \
      the signal is cancelled downstream, by `take` for instance.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The signal to run at the end.")
    ],
    examples: [
      .marble("at once", "finally: { values: [8, 9] }", in: "-1-2-|", out: "-1-2-|"),
      .marble("the end waits", "finally: { values: [8], chain: [ { delay: 3ms } ] }", in: "-1|", out: "-1---|"),
      .marble("after an error", "finally: { values: [8] }", in: "-1-#", out: "-1-#"),
    ],
    edges: EdgeCases(
      empty: "Runs the other signal, then completes.", error: "Runs the other signal, then passes the error on.",
      completion: "Runs the other signal, then completes.",
      disposal: "Does not start the other signal; cancels it if it runs."),
    memory: "The signal that runs at the end.",
    persistence: .state(version: 1),
    knownAs: ["RxJS finalize (on cancelling too, and after the end)", "ReactiveCocoa finally:"],
    useCases: [
      .init(.living, "do something at the end, whether it went well or not", "finally: { signal: other }")
    ],
    seeAlso: ["initially", "do", "catch"])

  static let seesError = true

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(signal.required, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    private let last: SignalPlan
    private var failure: SignalFailure?

    init(_ last: SignalPlan, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.last = last
      super.init(nodeContext, downstream: downstream)
    }

    override func complete() { open(last, nodeContext.scope.with(error: .null)) }

    override func fail(_ failure: SignalFailure) {
      self.failure = failure
      open(last, nodeContext.scope.with(error: failure.value(in: arena)))
    }

    override func receive(_ event: Event, from inlet: Inlet) {}

    override func completed(_ inlet: Inlet) { end() }

    override func failed(_ inlet: Inlet, _ failure: SignalFailure) {
      execution.services.log(
        .error, execution.plan.steps[nodeContext.step.number].label,
        """
        the signal that runs at the end failed: \(failure.message)
        """)
      end()
    }

    private func end() {
      if let failure { finish(failing: failure) } else { finish() }
    }

    override func save(_ state: inout StateWriter) {
      state.write(failure)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      failure = try state.read()
    }
  }
}
