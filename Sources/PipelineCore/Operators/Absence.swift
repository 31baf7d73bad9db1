/// `absence`: an event after a silence.
struct Absence: OperatorComponent {
  var after = TimeSpan.zero
  var value = MappingParameter()
  var again = false
  var only = false

  static let spec = ComponentSpec<Absence>(
    "absence",
    summary: "Sends an event when no event has arrived for a while.",
    details: """
      The time runs from the subscription to the first event, and from each event to the next. The event is \
      `{silence: DURATION}`, or what `value` makes of `silence`. It comes once in each pause; with `repeat` it comes \
      again after each further `after`, as a heartbeat. The events themselves are passed on, unless `only` drops \
      them.
      """,
    parameters: [
      .init("after", \.after, primary: true, required: true, range: 1...Int64.max, "How long the silence must last."),
      .init("value", \.value, variables: [("silence", .duration)], "What to send."),
      .init("repeat", \.again, "Send the event again after each further silence of this length."),
      .init("only", \.only, "Do not pass on the events themselves."),
    ],
    examples: [
      .marble(
        "once in each pause", "absence: 4ms", in: "-1-2---------3-|", out: "-1-2---s-----3-|",
        values: ["s": "{silence: 0.004s}"]),
      .marble(
        "a heartbeat", "absence: { after: 3ms, value: \"'quiet'\", repeat: true }", in: "-1--------2-|",
        out: "-1--q--q--2-|", values: ["q": "quiet"]),
      .marble(
        "before the first event, and nothing else",
        "absence: { after: 3ms, value: \"'quiet'\", only: true }", in: "-----1-----|", out: "---q----q--|",
        values: ["q": "quiet"]),
    ],
    edges: EdgeCases(
      completion: "Passed on at once; no absence is reported after the end.",
      disposal: "Unsubscribes from the input and frees its timer."),
    memory: "The time of the last event, and one timer.", persistence: .state(version: 1),
    lateness: .leavesOut(
      "Time while the pipeline was down does not count as silence, which is measured again from the start."),
    knownAs: ["Esper pattern timers", "Riemann expired events"],
    useCases: [
      .init(.time, "notice when no event has arrived for a while", "absence: 5m"),
      .init(.time, "send a heartbeat as long as no event arrives", "absence: { after: 10s, repeat: true }"),
      .init(
        .time, "raise an alarm, and nothing else, when a device falls silent", "absence: { after: 1m, only: true }"),
    ],
    seeAlso: ["timeoutBetween", "throttle", "window"])

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let parameters: Absence
    private let builder: ValueBuilder?
    private lazy var frame = sharedFrame()
    /// The time of the last event; before any event, of the subscription.
    private var last: Instant
    /// Unset between the report of a silence and the next event.
    private var timer = Wake.none

    init(_ parameters: Absence, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      builder = parameters.value.makeBuilder()
      last = nodeContext.execution.executor.now
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      timer = wake(after: parameters.after)
      super.start()
    }

    override func receive(_ event: Event) {
      last = now
      if !timer.isSet { timer = wake(after: parameters.after) }
      if !parameters.only { emit(event) }
    }

    /// The timer is not moved for each event; when it fires too early, it is set again.
    override func woke(_ token: Int) {
      timer = .none
      guard last + parameters.after <= now else {
        timer = wake(at: last + parameters.after)
        return
      }
      if parameters.again { timer = wake(after: parameters.after) }
      let silence = Value.duration(nanoseconds: (now - last).nanoseconds)
      guard let builder else {
        emit(made(arena.map([(.literal("silence"), silence)])))
        return
      }
      frame.set(0, silence)
      if let value = build(builder, made(.null), frame) { emit(made(value)) }
    }

    override var mayGoOn: Bool { !parameters.again || !execution.isStopping }

    /// The silence is counted from the restart: nothing could arrive while the pipeline was down.
    override func skipped(_ token: Int, _ late: Lateness) {
      guard last + parameters.after <= late.restored else {
        woke(token)
        return
      }
      last = late.restored
      timer = wake(at: last + parameters.after)
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
