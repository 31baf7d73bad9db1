/// `bufferWithCount`: lists of a fixed number of events.
struct BufferWithCount: OperatorComponent {
  var count = 1

  static let spec = ComponentSpec<BufferWithCount>(
    "bufferWithCount",
    summary: "Collects a number of events and sends them as one list.",
    details: "Completion sends a last, shorter list if events are left; an error drops them.",
    parameters: [
      .init("count", \.count, primary: true, required: true, range: 1...10_000_000, "How many events a list has.")
    ],
    examples: [
      .marble(
        "pairs", "bufferWithCount: 2", in: "-1-2-3-|", out: "---p---(q|)",
        values: ["p": "[1, 2]", "q": "[3]"]),
      .marble(
        "an error drops the rest", "bufferWithCount: 2", in: "-1-2-3-#", out: "---p---#",
        values: ["p": "[1, 2]"]),
      .marble("of nothing", "bufferWithCount: 2", in: "--|", out: "--|"),
    ],
    edges: EdgeCases(
      error: "Passed on at once; the collected events are dropped.",
      completion: "Sends the rest as a shorter list, if there is any, then completes.",
      disposal: "Unsubscribes from the input and drops its state."),
    memory: "The events of the current list.",
    persistence: .state(version: 1),
    knownAs: ["RxJS bufferCount", "Combine collect", "ReactiveCocoa buffer: (which drops the rest)"],
    useCases: [
      .init(.gathering, "make lists of a fixed length", "bufferWithCount: 100")
    ],
    seeAlso: ["bufferWithTime", "window", "collect"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(.list(inputs.first?.type ?? .dyn)) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(count, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let count: Int
    private var events: [OwnedEvent] = []

    init(_ count: Int, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.count = count
      super.init(nodeContext, downstream: downstream)
    }

    override var heldCount: Int { events.count }

    override func receive(_ event: Event) {
      let event = OwnedEvent(event)
      events.append(event)
      keptSize.add(events: 1, bytes: event.byteCount)
      if events.count == count { flush() }
    }

    override func complete() {
      if !events.isEmpty { flush() }
      finish()
    }

    override func stop() { events = [] }

    private func flush() {
      let list = arena.list(of: events)
      events.removeAll(keepingCapacity: true)
      keptSize.set(bytes: 0)
      emit(made(list))
    }

    override func save(_ state: inout StateWriter) {
      state.write(events)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      events = try state.read()
      keptSize.set(events: events.count, bytes: events.reduce(0) { $0 + $1.byteCount })
      guard events.count < count else { throw StateFault("there are too many events") }
    }
  }
}
