/// `timeout`: an error if the signal has not completed in time.
struct Timeout: OperatorComponent, TimedOperator {
  var after = TimeSpan.zero

  static let relaysEvents = true

  static let spec = ComponentSpec<Timeout>(
    "timeout",
    summary: "Ends the signal with an error if it has not completed in time.",
    details: """
      The time runs from the subscription to the completion; events do not reset it. Use it for signals that end, \
      such as a request, not for endless sources.
      """,
    parameters: [
      .init(
        "after", \.after, primary: true, required: true, range: 1...Int64.max,
        "How long the signal may take.")
    ],
    examples: [
      .marble("events do not reset it", "timeout: 6ms", in: "-1-1-1-1-|", out: "-1-1-1#"),
      .marble("in time", "timeout: 6ms", in: "-1-|", out: "-1-|"),
    ],
    edges: EdgeCases(
      completion: "Passed on at once; the timer is freed.",
      disposal: """
        Unsubscribes from the input and frees its timer.
        """),
    memory: "One timer.", persistence: .state(version: 1),
    lateness: .always("without its time limit the signal might never end"),
    knownAs: ["ReactiveSwift timeout", "not RxJS timeout, which measures gaps"],
    useCases: [
      .init(.failing, "give up a request that takes too long", "timeout: 5s")
    ],
    seeAlso: ["retry", "catch"])

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(after, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let after: TimeSpan
    private var timer = Wake.none

    init(_ after: TimeSpan, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.after = after
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      timer = wake(after: after)
      super.start()
    }

    override func woke(_ token: Int) {
      timer = .none
      finish(
        failing: SignalFailure(.timeout, "the signal did not complete within \(after)", at: nodeContext.location))
    }

    override func stop() { cancelWake(&timer) }

    override func save(_ state: inout StateWriter) { state.write(timer) }

    override func restore(_ state: inout StateReader) throws(StateFault) { timer = try state.read() }
  }
}
