/// `takeUntil`: events until another signal sends, or until a condition is true.
struct TakeUntil: OperatorComponent, TimedOperator {
  var signal = SignalParameter()
  var condition = ExpressionParameter()

  static let relaysEvents = true

  static let spec = ComponentSpec<TakeUntil>(
    "takeUntil",
    summary: "Passes on events until another signal sends or completes, or until a condition holds.",
    details: """
      The other signal is subscribed first: if its source sends at once, no event of the signal's own sources is \
      passed on, only a value of `startWith` upstream. Its completion ends the signal as its events do; its error is \
      ignored, and from then on only the signal's own end ends it. With `where`, the first event that fulfils the \
      condition ends it and is not sent.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, "The signal that ends it."),
      .init("where", \.condition, expecting: .bool, "The condition that ends it."),
    ],
    examples: [
      .marbles(
        "an event", "{ from: a, chain: [ { takeUntil: b } ] }", in: ["a": "-1-2-3-|", "b": "----x"],
        out: "-1-2|"),
      .marbles(
        "a completion", "{ from: a, chain: [ { takeUntil: b } ] }",
        in: ["a": "-1--2-3", "b": "---|"], out: "-1-|"),
      .marbles(
        "an error of the other is ignored", "{ from: a, chain: [ { takeUntil: b } ] }",
        in: ["a": "-1-2-|", "b": "--#"], out: "-1-2-|"),
      .marbles(
        "at once, behind startWith", "{ from: a, chain: [ { startWith: 0 }, { takeUntil: b } ] }",
        in: ["a": "1-2|", "b": "x"], out: "(0|)"),
      .marble("a condition", "takeUntil: { where: event >= 3 }", in: "-1-3-1-|", out: "-1-|"),
    ],
    edges: EdgeCases(
      error: "Passed on at once; an error of the other signal is ignored.",
      disposal: """
        Unsubscribes from both signals.
        """),
    knownAs: [
      "RxJS takeUntil (only events end it, errors pass)", "Combine prefix(untilOutputFrom:)",
      "ReactiveCocoa takeUntilBlock:",
    ],
    useCases: [
      .init(.living, "end when another signal sends an event", "takeUntil: other"),
      .init(
        .living, "end at the first event that fulfils a condition, without sending it",
        "takeUntil: { where: event.kind == \"end\" }"),
    ],
    seeAlso: ["takeWhile", "takeUntilReplacement", "skipUntil", "gate"])

  func validate(_ context: inout DecodingContext) {
    context.requireOne("signal", signal.isGiven, or: "where", condition.isGiven)
  }

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: TriggeredNode {
    private let parameters: TakeUntil
    private lazy var frame = sharedFrame()

    init(_ parameters: TakeUntil, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(trigger: parameters.signal.plan, nodeContext, downstream)
    }

    override func receive(_ event: Event) {
      if let program = parameters.condition.program {
        guard let holds = decide(event, program, frame) else { return }
        if holds {
          countDropped(event)
          finish()
          return
        }
      }
      emit(event)
    }

    override func receive(_ event: Event, from inlet: Inlet) { finish() }
    override func completed(_ inlet: Inlet) { finish() }
    override func failed(_ inlet: Inlet, _ failure: SignalFailure) { drop(inlet) }
  }
}
