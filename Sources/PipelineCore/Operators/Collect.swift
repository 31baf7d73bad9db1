/// `collect`: all events as one list.
struct Collect: OperatorComponent {
  var max = 10_000

  static let spec = ComponentSpec<Collect>(
    "collect",
    summary: "Sends one list of all events when the signal completes.",
    details: """
      An empty signal gives an empty list. An error of the signal is passed on alone. More than `max` events end the \
      signal with an error.
      """,
    parameters: [
      .init("max", \.max, primary: true, range: 1...10_000_000, "The largest number of events to keep.")
    ],
    examples: [
      .marble("a list", "collect", in: "1-2|", out: "---(l|)", values: ["l": "[1, 2]"]),
      .marble("of nothing", "collect", in: "--|", out: "--(l|)", values: ["l": "[]"]),
    ],
    edges: EdgeCases(
      empty: "Sends an empty list, then completes.", error: "Passed on at once; the collected events are dropped.",
      completion: "Sends the list, then completes.", disposal: "Unsubscribes from the input and drops its state."),
    memory: "Every event, at most `max`, until the end.", persistence: .state(version: 1),
    knownAs: ["RxJS toArray", "Combine collect"],
    useCases: [
      .init(.gathering, "have all events as one list at the end", "collect")
    ],
    seeAlso: ["bufferWithTime", "aggregate"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(.list(inputs.first?.type ?? .dyn)) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(max, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let max: Int
    private var events: [OwnedEvent] = []

    init(_ max: Int, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.max = max
      super.init(nodeContext, downstream: downstream)
    }

    override var heldCount: Int { events.count }

    override func receive(_ event: Event) {
      guard events.count < max else {
        finish(
          failing: SignalFailure(
            .limit, "collect has \(Printable.count(max, "event")), its limit", at: nodeContext.location)
        )
        return
      }
      let event = OwnedEvent(event)
      events.append(event)
      keptSize.add(events: 1, bytes: event.byteCount)
    }

    override func save(_ state: inout StateWriter) { state.write(events) }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      events = try state.read()
      keptSize.set(events: events.count, bytes: events.reduce(0) { $0 + $1.byteCount })
    }

    override func complete() {
      let list = arena.list(of: events)
      events = []
      keptSize.set(bytes: 0)
      emit(made(list))
      finish()
    }
  }
}

extension Arena {
  /// The values of kept events as a list, valid until the end of the turn.
  func list(of events: [OwnedEvent]) -> Value {
    let target = elements(events.count)
    for (index, event) in events.enumerated() {
      event.keep(in: self)
      target[index] = event.event.value
    }
    return Value(kind: .list, pointer: target.baseAddress, length: events.count)
  }
}
