/// `bufferWithTime`: lists of the events that arrive within a time.
struct BufferWithTime: OperatorComponent {
  var every = TimeSpan.zero
  var count = 10_000

  static let spec = ComponentSpec<BufferWithTime>(
    "bufferWithTime",
    summary: "Collects events for a time and sends them as one list.",
    details: """
      The first event of a list starts the time, so no list is empty. A list that reaches `count` events goes out at \
      once. Completion sends the rest; an error drops it.
      """,
    parameters: [
      .init(
        "every", \.every, primary: true, required: true, range: 1...Int64.max,
        "How long to collect."),
      .init("count", \.count, range: 1...10_000_000, "The maximum number of events in a list."),
    ],
    examples: [
      .marble(
        "five ticks", "bufferWithTime: 5ms", in: "-1-2-------3--|", out: "------a-------(b|)",
        values: ["a": "[1, 2]", "b": "[3]"]),
      .marble(
        "or two events", "bufferWithTime: { every: 5ms, count: 2 }", in: "-1-2-3-|",
        out: "---a---(b|)", values: ["a": "[1, 2]", "b": "[3]"]),
    ],
    edges: EdgeCases(
      empty: "Completes too; there are no empty lists.",
      error: "Passed on at once; the collected events are dropped.",
      completion: "Sends the rest, if there is any, then completes.",
      disposal: "Unsubscribes from the input, frees its timer and drops its state."),
    memory: "The events of the current list.", persistence: .state(version: 1),
    lateness: .leavesOut("A list that was due is dropped."),
    knownAs: ["RxJS bufferTime (periodic)"],
    useCases: [
      .init(.gathering, "gather events that follow each other within a second into one list", "bufferWithTime: 1s"),
      .init(
        .gathering, "send batches that are full or old enough, whichever comes first",
        "bufferWithTime: { every: 2s, count: 500 }"),
    ],
    seeAlso: ["collect", "throttle"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(.list(inputs.first?.type ?? .dyn)) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let parameters: BufferWithTime
    private var events: [OwnedEvent] = []
    /// Set exactly while `events` is not empty.
    private var timer = Wake.none

    init(_ parameters: BufferWithTime, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override var heldCount: Int { events.count }

    override func receive(_ event: Event) {
      if events.isEmpty { timer = wake(after: parameters.every) }
      let event = OwnedEvent(event)
      events.append(event)
      keptSize.add(events: 1, bytes: event.byteCount)
      if events.count >= parameters.count { flush() }
    }

    override func woke(_ token: Int) { flush() }

    override func skipped(_ token: Int, _ late: Lateness) {
      cancelWake(&timer)
      for event in events { countDropped(event.event) }
      events = []
      keptSize.set(bytes: 0)
    }

    override func complete() {
      flush()
      finish()
    }

    override var outputTimers: [Wake] { [timer] }

    override func stop() { cancelWake(&timer) }

    private func flush() {
      cancelWake(&timer)
      guard !events.isEmpty else { return }
      let list = arena.list(of: events)
      events = []
      keptSize.set(bytes: 0)
      emit(made(list))
    }

    override func save(_ state: inout StateWriter) {
      state.write(events)
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      events = try state.read()
      keptSize.set(events: events.count, bytes: events.reduce(0) { $0 + $1.byteCount })
      timer = try state.read()
    }
  }
}
