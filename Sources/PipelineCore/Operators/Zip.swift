internal import DequeModule

/// `zip`: combines the events of several signals by position.
struct Zip: CombiningOperator, TimedOperator {
  var limit = 1000

  static let spec = ComponentSpec<Zip>(
    "zip",
    summary: "Combines the first events of all inputs, then the second ones, and so on.",
    details: """
      The time between them does not matter. The event is a list in the order of the inputs; only a `reduce` that \
      follows directly sees the parts by name, as with `combineLatest`. It completes as soon as an ended input has \
      no waiting events; an error of any input ends it at once. An input may be `limit` events ahead of the slowest; \
      one more ends the signal with an error, because dropping it would make wrong pairs. It stands beside the names of \
      the inputs (`zip: { item: a, tick: b, limit: 10 }`), or beside their list (`zip: { signals: [a, b], limit: 10 }`).
      """,
    parameters: [
      .init("limit", \.limit, range: 1...10_000_000, "How many events one input may be ahead.")
    ],
    examples: [
      .marbles(
        "by position", "zip: [a, b]", in: ["a": "1-2-3|", "b": "--x----y|"], out: "--p----q|",
        values: ["p": "[1, x]", "q": "[2, y]"]),
      .marbles(
        "at most ten events ahead", "zip: { signals: [a, b], limit: 10 }", in: ["a": "1-2|", "b": "--x|"], out: "--p|",
        values: ["p": "[1, x]"]),
      .marbles(
        "ends when no pair is possible", "zip: [a, b]", in: ["a": "-1-|", "b": "--2----3"],
        out: "--p|", values: ["p": "[1, 2]"]),
    ],
    edges: EdgeCases(
      empty: "Completes as soon as an ended input has no waiting events.",
      error: "The first error of any input ends it at once; waiting events are dropped.",
      completion: "Completes as soon as an ended input has no waiting events.",
      disposal: "Unsubscribes from all inputs; waiting events are dropped."),
    memory: "The events without a partner yet, at most `limit` for each input.", persistence: .state(version: 1),
    knownAs: ["RxJS zip", "Combine zip"],
    useCases: [
      .init(.combining, "pair the first with the first, the second with the second", "zip: [a, b]"),
      .init(
        .time, "send stored events at the pace of a clock",
        "{ zip: { item: a, tick: b }, chain: [ { reduce: item } ] }"),
    ],
    seeAlso: ["combineLatest"])

  static let minimumInputs = 1

  static let makesTuple = true

  func outputType(_ inputs: [EventType]) -> EventType { .list(inputs) }

  var timing: Timing { .all }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(limit, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    private let limit: Int
    private var queues: [Deque<OwnedEvent>]
    private var ended: [Bool]

    init(_ limit: Int, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.limit = limit
      queues = Array(repeating: [], count: nodeContext.inputs.count)
      ended = Array(repeating: false, count: nodeContext.inputs.count)
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      for (number, input) in nodeContext.inputs.enumerated() {
        if isClosed { return }
        open(input, number: number)
      }
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      guard queues[inlet.number].count < limit else {
        finish(
          failing: SignalFailure(
            .limit,
            "zip: input \(inlet.number + 1) is more than \(Printable.count(limit, "event")) ahead of the others",
            at: nodeContext.location))
        return
      }
      let own = OwnedEvent(event)
      queues[inlet.number].append(own)
      keptSize.add(events: 1, bytes: own.byteCount)
      guard queues.allSatisfy({ !$0.isEmpty }) else { return }
      let row = queues.indices.map { queues[$0].removeFirst() }
      for event in row { keptSize.add(events: -1, bytes: -event.byteCount) }
      // Must be decided before any step downstream can react to the row.
      let isOver = queues.indices.contains { ended[$0] && queues[$0].isEmpty }
      emit(event.with(arena.list(of: row)))
      if isOver { end() }
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      ended[inlet.number] = true
      if queues[inlet.number].isEmpty { end() }
    }

    /// Completes; events that are left have no partners.
    private func end() {
      guard !isClosed else { return }
      for event in queues.joined() {
        event.keep(in: arena)
        countDropped(event.event)
      }
      queues = queues.map { _ in [] }
      finish()
    }

    override var heldCount: Int { queues.reduce(0) { $0 + $1.count } }

    override func stop() {
      queues = queues.map { _ in [] }
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      state.write(each: queues) { $0.write(each: $1) }
      state.write(ended)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      queues = try state.read([[OwnedEvent]].self).map { Deque($0) }
      keptSize.set(
        events: queues.reduce(0) { $0 + $1.count }, bytes: queues.joined().reduce(0) { $0 + $1.byteCount })
      ended = try state.read()
      guard queues.count == nodeContext.inputs.count, ended.count == queues.count else {
        throw StateFault("it has other inputs")
      }
    }
  }
}
