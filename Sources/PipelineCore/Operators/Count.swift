/// `count`: the number of events.
struct CountEvents: OperatorComponent {
  var condition = ExpressionParameter()

  static let spec = ComponentSpec<CountEvents>(
    "count",
    summary: "Sends the number of events when the signal completes.",
    details: """
      With `where`, counts the events that fulfil a condition. Use `scan` for a number after each event, `window` \
      for one each minute.
      """,
    parameters: [
      .init("where", \.condition, primary: true, expecting: .bool, "Which events count; all if left out.")
    ],
    examples: [
      .marble("all", "count", in: "-a-b-|", out: "-----(2|)"),
      .marble("some", "count: event > 1", in: "-1-2-3-|", out: "-------(2|)"),
      .marble("of nothing", "count", in: "--|", out: "--(0|)"),
      .marble("an error", "count", in: "-a-#", out: "---#"),
    ],
    edges: EdgeCases(
      empty: "Sends 0, then completes.", error: "Passed on at once; the number is dropped.",
      completion: "Sends the number, then completes.", disposal: "Unsubscribes from the input and drops its state."),
    memory: "A counter.", persistence: .state(version: 1),
    knownAs: ["RxJS count", "Combine count"],
    useCases: [
      .init(.gathering, "count the events", "count"),
      .init(.gathering, "count the events that fulfil a condition", "count: event.status >= 500"),
    ],
    seeAlso: ["any", "aggregate", "window"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(.int) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(condition.program, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let program: Program?
    private lazy var frame = sharedFrame()
    private var count: Int64 = 0

    init(_ program: Program?, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.program = program
      super.init(nodeContext, downstream: downstream)
    }

    override func receive(_ event: Event) {
      if let program {
        guard decide(event, program, frame, kept: false) == true else { return }
      }
      count &+= 1
    }

    override func complete() {
      emit(made(.int(count)))
      finish()
    }

    override func save(_ state: inout StateWriter) {
      state.write(count)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      count = try state.read()
    }
  }
}
