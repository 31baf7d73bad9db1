internal import DequeModule

/// `takeLast`: the last events, at the end.
struct TakeLast: OperatorComponent {
  var count = 0

  static let relaysEvents = true

  static let spec = ComponentSpec<TakeLast>(
    "takeLast",
    summary: "Keeps the last events and sends them when the signal completes.",
    details: """
      A signal that never completes sends nothing. An error drops the kept events. `takeLast: 0` waits for the \
      completion and sends nothing else.
      """,
    parameters: [
      .init("count", \.count, primary: true, required: true, range: 0...10_000_000, "How many.")
    ],
    examples: [
      .marble("two", "takeLast: 2", in: "-1-2-3-|", out: "-------(23|)"),
      .marble("fewer than asked for", "takeLast: 5", in: "-1-2-|", out: "-----(12|)"),
      .marble("an error drops them", "takeLast: 2", in: "-1-2-#", out: "-----#"),
      .marble("none", "takeLast: 0", in: "-1-|", out: "---|"),
    ],
    edges: EdgeCases(
      error: "Passed on at once; kept events are dropped.",
      completion: "Sends the kept events in their order, then completes.",
      disposal: "Unsubscribes from the input and drops its state."),
    memory: "The last `count` events, until the end.", persistence: .state(version: 1),
    knownAs: ["RxJS takeLast", "Combine last"],
    useCases: [
      .init(.choosing, "have the last events only", "takeLast: 10")
    ],
    seeAlso: ["take", "collect", "window"])

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(count, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let count: Int
    private var kept = Deque<OwnedEvent>()

    init(_ count: Int, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.count = count
      super.init(nodeContext, downstream: downstream)
    }

    override func receive(_ event: Event) {
      guard count > 0 else { return countDropped(event) }
      if kept.count == count {
        countSuperseded(kept.first?.event)
        keptSize.add(bytes: -kept.removeFirst().byteCount)
      }
      let event = OwnedEvent(event)
      kept.append(event)
      keptSize.add(bytes: event.byteCount)
    }

    override func complete() {
      while let event = kept.popFirst(), !isClosed {
        keptSize.add(bytes: -event.byteCount)
        event.keep(in: arena)
        emit(event.event)
      }
      finish()
    }

    override var heldCount: Int { kept.count }

    override func stop() { kept.removeAll() }

    override func save(_ state: inout StateWriter) {
      state.write(each: kept)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      kept = Deque(try state.read([OwnedEvent].self))
      keptSize.set(bytes: kept.reduce(0) { $0 + $1.byteCount })
      guard kept.count <= count else { throw StateFault("there are too many events") }
    }
  }
}
