/// `skipUntil`: drops events until a condition is true, or until another signal sends.
struct SkipUntil: OperatorComponent, TimedOperator {
  var condition = ExpressionParameter()
  var signal = SignalParameter()

  static let relaysEvents = true

  static let spec = ComponentSpec<SkipUntil>(
    "skipUntil",
    summary: "Drops events until one fulfils a condition, or until another signal sends an event.",
    details: """
      The first event that fulfils the condition is sent, and later ones are not tested. With `signal`, events after \
      its first event are sent; if it completes without one, only the end passes. Its error ends the signal while \
      the signal waits for it.
      """,
    parameters: [
      .init("where", \.condition, primary: true, expecting: .bool, "The condition."),
      .init("signal", \.signal, "Events pass after this signal's first event."),
    ],
    examples: [
      .marble("a condition", "skipUntil: event >= 3", in: "-1-3-1-|", out: "---3-1-|"),
      .marbles(
        "another signal", "{ from: a, chain: [ { skipUntil: { signal: b } } ] }",
        in: ["a": "-1-2-3-|", "b": "--x-x"], out: "---2-3-|"),
      .marbles(
        "another signal that sends nothing", "{ from: a, chain: [ { skipUntil: { signal: b } } ] }",
        in: ["a": "-1-2-|", "b": "--|"], out: "-----|"),
    ],
    edges: EdgeCases(
      error: "Passed on at once, as is an error of the awaited signal.",
      disposal: "Unsubscribes from both signals."),
    memory: "Whether events pass.",
    persistence: .state(version: 1),
    knownAs: ["RxJS skipUntil", "Combine drop(untilOutputFrom:)", "ReactiveCocoa skipUntilBlock:"],
    useCases: [
      .init(.choosing, "begin when an event fulfils a condition", "skipUntil: event.ready == true"),
      .init(.combining, "begin when another signal has sent something", "skipUntil: { signal: other }"),
    ],
    seeAlso: ["skipWhile", "takeUntil", "gate"])

  func validate(_ context: inout DecodingContext) {
    context.requireOne("where", condition.isGiven, or: "signal", signal.isGiven)
  }

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: TriggeredNode {
    private let parameters: SkipUntil
    private lazy var frame = sharedFrame()
    private var isOpen = false

    init(_ parameters: SkipUntil, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(trigger: parameters.signal.plan, nodeContext, downstream)
    }

    override func receive(_ event: Event) {
      if !isOpen {
        guard let program = parameters.condition.program else { return countDropped(event) }
        guard let holds = decide(event, program, frame) else { return }
        guard holds else { return countDropped(event) }
        isOpen = true
      }
      emit(event)
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      isOpen = true
      drop(inlet)
    }

    override func completed(_ inlet: Inlet) { drop(inlet) }

    override func save(_ state: inout StateWriter) {
      state.write(isOpen)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      isOpen = try state.read()
    }
  }
}
