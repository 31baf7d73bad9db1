/// `withLatestFrom`: each event together with the newest event of another signal.
struct WithLatestFrom: OperatorComponent, TimedOperator {
  var signal = SignalParameter()
  var reduce = MappingParameter()
  var settles: Bool { true }

  static let spec = ComponentSpec<WithLatestFrom>(
    "withLatestFrom",
    summary: "Sends each event together with the newest event of another signal.",
    details: """
      Unlike combineLatest, it sends only for events of the signal itself. The event becomes a list of the two, or \
      the result of `reduce` for `event` and `latest`. Events before the first of the other signal are dropped. It \
      completes with its own signal, whether or not the other has completed; an error of either ends it. The other \
      signal is subscribed first. Where both come of one source, an event waits until everything that the source's \
      event changes has changed, so it is paired with the newest, in whichever order the file names the readers.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The other signal."),
      .init(
        "reduce", \.reduce, variables: [("latest", .dyn)], typing: { step, _ in ["latest": step.signal.type] },
        "The result for `event` and `latest`; without it, a list of both."),
    ],
    examples: [
      .marbles(
        "pairs", "{ from: a, chain: [ { withLatestFrom: b } ] }",
        in: ["a": "1--2-3---4-|", "b": "-x----y-|"], out: "---p-q---r-|",
        values: ["p": "[2, x]", "q": "[3, x]", "r": "[4, y]"]),
      .marbles(
        "an expression",
        "{ from: a, chain: [ { withLatestFrom: { signal: b, reduce: event * latest } } ] }",
        in: ["a": "--2-3-|", "b": "2--3|"], out: "--4-9-|"),
      .marbles(
        "what was made of an event, with the event",
        "{ from: a, chain: [ { map: event * 10 }, { withLatestFrom: a } ] }",
        in: ["a": "-1-2-|"], out: "-p-q-|", values: ["p": "[10, 1]", "q": "[20, 2]"]),
    ],
    edges: EdgeCases(
      error: "Passed on at once, from either signal.",
      completion: "Passed on at once; the completion of the other signal has no effect.",
      disposal: "Unsubscribes from both signals."),
    memory: "The newest event of the other signal.", persistence: .state(version: 2),
    knownAs: ["RxJS withLatestFrom"],
    useCases: [
      .init(
        .combining, "look something up in the newest state of another signal",
        "withLatestFrom: { signal: other, reduce: \"{'event': event, 'state': latest}\" }")
    ],
    seeAlso: ["combineLatest", "sample", "join"])

  func outputType(_ inputs: [EventType]) -> EventType {
    EventType(reduce.isGiven ? reduce.type : .list(.dyn))
  }

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: SettlingNode {
    private let parameters: WithLatestFrom
    private let builder: ValueBuilder?
    private lazy var frame = sharedFrame()
    private var latest: OwnedValue?

    init(_ parameters: WithLatestFrom, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      builder = parameters.reduce.makeBuilder()
      super.init(trigger: parameters.signal.plan, nodeContext, downstream)
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      if latest == nil {
        latest = OwnedValue(event.value)
      } else {
        latest?.assign(event.value, retiring: arena)
      }
      keptSize.set(bytes: latest?.keptBytes ?? 0)
    }

    override func take(_ event: Event) {
      guard let latest = latest?.value else { return countDropped(event) }
      guard let builder else {
        emit(event.with(arena.list([event.value, latest])))
        return
      }
      frame.set(0, latest)
      if let value = build(builder, event, frame) { emit(event.with(value)) }
    }

    override func completed(_ inlet: Inlet) { drop(inlet) }

    override func complete() {
      settle()
      finish()
    }

    override var heldCount: Int { settlingCount }

    override func save(_ state: inout StateWriter) {
      state.write(latest)
      saveSettling(&state)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      latest = try state.read()
      if state.version > 1 { try restoreSettling(&state) }
      keptSize.set(bytes: latest?.keptBytes ?? 0)
    }
  }
}
