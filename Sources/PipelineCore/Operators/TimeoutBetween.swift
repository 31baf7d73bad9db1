/// `timeoutBetween`: an error if the signal is silent for too long.
struct TimeoutBetween: OperatorComponent, TimedOperator {
  var gap = TimeSpan.zero

  static let spec = ComponentSpec<TimeoutBetween>(
    "timeoutBetween",
    summary: "Ends the signal with an error if no event arrives in time.",
    details: """
      The time runs from the subscription to the first event, and from each event to the next. Use \
      `absence` for an event in place of an error, and `timeout` for the time up to the completion.
      """,
    parameters: [
      .init(
        "gap", \.gap, primary: true, required: true, range: 1...Int64.max,
        "How long the signal may be silent.")
    ],
    examples: [
      .marble("events reset it", "timeoutBetween: 4ms", in: "-1-1-1-------|", out: "-1-1-1---#"),
      .marble("before the first event too", "timeoutBetween: 4ms", in: "------1|", out: "----#"),
      .marble("in time", "timeoutBetween: 4ms", in: "-1-|", out: "-1-|"),
    ],
    edges: EdgeCases(
      completion: "Passed on at once; the timer is freed.",
      disposal: """
        Unsubscribes from the input and frees its timer.
        """),
    memory: "The time of the last event, and one timer.",
    persistence: .state(version: 1),
    lateness: .leavesOut(
      "Time while the pipeline was down does not count as silence, which is measured again from the start."),
    knownAs: ["RxJS timeout with each", "RxSwift timeout", "Combine timeout"],
    useCases: [
      .init(.failing, "fail when a stream stalls", "timeoutBetween: 30s")
    ],
    seeAlso: ["timeout", "absence", "retry"])

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(gap, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let gap: TimeSpan
    private var last: Instant
    private var timer = Wake.none

    init(_ gap: TimeSpan, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.gap = gap
      last = nodeContext.execution.executor.now
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      timer = wake(after: gap)
      super.start()
    }

    override func receive(_ event: Event) {
      last = now
      emit(event)
    }

    /// The timer is not moved for each event; when it fires too early, it is set again.
    override func woke(_ token: Int) {
      timer = .none
      if last + gap > now {
        timer = wake(at: last + gap)
      } else {
        finish(failing: SignalFailure(.timeout, "nothing came for \(gap)", at: nodeContext.location))
      }
    }

    /// The gap is counted from the restart: nothing could arrive while the pipeline was down.
    override func skipped(_ token: Int, _ late: Lateness) {
      guard last + gap <= late.restored else {
        woke(token)
        return
      }
      last = late.restored
      timer = wake(at: last + gap)
    }

    override func stop() { cancelWake(&timer) }

    override func save(_ state: inout StateWriter) {
      state.write(last)
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      last = try state.read()
      timer = try state.read()
    }
  }
}
