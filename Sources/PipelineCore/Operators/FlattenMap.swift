/// `flattenMap`: a signal, or a list, for each event.
struct FlattenMap: OperatorComponent, NamingOperator, TimedOperator {
  enum Policy: String, ChoiceParameter {
    case merge, concat, latest, exhaust
    var help: String {
      switch self {
      case .merge: "all at once, up to `maxConcurrent`; further events wait"
      case .concat: "one after the other"
      case .latest: "only the newest; a new event ends the one before"
      case .exhaust: "events are dropped while one is running"
      }
    }
  }

  var list = ExpressionParameter()
  var signal = SignalParameter()
  var policy = Policy.merge
  var maxConcurrent = 16
  var queueLimit = 1000

  static let spec = ComponentSpec<FlattenMap>(
    "flattenMap",
    summary: "Creates a signal for each event and sends the events of these signals.",
    details: """
      The short form is an expression that returns a list, whose elements are sent one by one. With `signal`, an \
      inner signal is made for each event, which its templates and expressions see as `outer` (and, in the \
      parameters of its source, as `event`). It completes when its input and all inner signals have; an error of any \
      ends everything. While more than `queueLimit` events wait, or more bytes than \
      `--queue-memory` allows, the pipeline reads no further input.
      """,
    parameters: [
      .init("list", \.list, primary: true, "An expression that returns the list of values to send."),
      .init("signal", \.signal, "The inner signal."),
      .init("policy", \.policy, applies: .with("signal"), "What to do while inner signals are running."),
      .init(
        "maxConcurrent", \.maxConcurrent, range: 1...10_000,
        applies: .all([.with("signal"), .word("policy", ["merge"])]), "How many inner signals may run at the same time."
      ),
      .init(
        "queueLimit", \.queueLimit, range: 1...10_000_000,
        applies: .all([.with("signal"), .word("policy", ["merge", "concat"])]),
        "How many events may wait before the pipeline's input pauses."),
    ],
    examples: [
      .marble(
        "the elements of a list", "flattenMap: event.items", in: "a-b|", out: "(12)-3|",
        values: ["a": "{items: [1, 2]}", "b": "{items: [3]}"]),
      .marble(
        "fixed values for each", "flattenMap: { signal: { values: [p, q], chain: [ { map: outer + event } ] } }",
        in: "a-b|", out: "(wx)-(yz)|", values: ["w": "ap", "x": "aq", "y": "bp", "z": "bq"]),
      .marble(
        "only the newest",
        "flattenMap: { policy: latest, signal: { values: [p, q], chain: [ { delay: 3ms } ] } }",
        in: "-x-y------|", out: "------(pq)---|"),
    ],
    edges: EdgeCases(
      error: "Passed on at once, as is an error of an inner signal; all other inner signals are cancelled.",
      completion: "Completes when all inner signals have.",
      disposal: "Unsubscribes from the input and every inner signal; waiting events are dropped."),
    memory: "The running inner signals and, depending on `policy`, the waiting events.",
    persistence: .state(version: 1),
    knownAs: [
      "RxJS mergeMap, concatMap, switchMap, exhaustMap", "ReactiveSwift flatMap",
      "ReactiveCocoa switchToLatest",
    ],
    useCases: [
      .init(
        .asking, "query an HTTP service for each event",
        "flattenMap: { signal: { from: { http: { url: \"http://127.0.0.1:8080/users/{{ event.id }}\" } } } }"),
      .init(.shaping, "make several events of a list, one for each element", "flattenMap: event.items"),
      .init(.asking, "forget the answer to an older question", "flattenMap: { signal: other, policy: latest }"),
      .init(.asking, "ask one after the other, in order", "flattenMap: { signal: other, policy: concat }"),
      .init(.asking, "ignore questions while one is being answered", "flattenMap: { signal: other, policy: exhaust }"),
      .init(.asking, "bound how many requests run at once", "flattenMap: { signal: other, maxConcurrent: 4 }"),
    ],
    seeAlso: ["map", "merge"])

  func validate(_ context: inout DecodingContext) {
    if list.isGiven == signal.isGiven {
      context.diagnostics.report(
        Diagnostic(
          .conflictingParameters,
          list.isGiven
            ? "'flattenMap' has both 'list' and 'signal'"
            : "'flattenMap' needs 'signal', or an expression that returns a list", at: context.location,
          help: "Write 'flattenMap: event.items', or 'flattenMap: { signal: { from: ... } }'"))
    }
  }

  func outputType(_ inputs: [EventType]) -> EventType {
    if let plan = signal.plan { return EventType(plan.type.type) }
    if case .list(let element) = list.type { return EventType(element) }
    return .dyn
  }

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    if let program = list.program { return ListNode(program, nodeContext, downstream) }
    return Node(self, nodeContext, downstream)
  }

  /// The short form.
  final class ListNode: OperatorNode {
    private let program: Program
    private lazy var frame = makeFrame()

    init(_ program: Program, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.program = program
      super.init(nodeContext, downstream: downstream)
    }

    override func receive(_ event: Event) {
      guard var value = evaluate(program, event, frame) else { return }
      if value.is(.jsonList) { value = execution.json.expand(value, into: arena) }
      if value.is(.optional) { value = value.wrapped ?? Value(kind: .list) }
      if value.isError {
        reject(event, .eventNotReadable, "the list is not valid JSON")
        return
      }
      guard value.is(.list) else {
        reject(
          event, .unexpectedValue, "flattenMap needs a list, but the expression returns \(value.kindName)")
        return
      }
      guard let id = event.id else {
        for element in value.elements {
          if isClosed { return }
          emit(event.with(element))
        }
        return
      }
      let step = execution.plan.steps[nodeContext.step.number].key
      for (index, element) in value.elements.enumerated() {
        if isClosed { return }
        let origin = event.origin.takeUnretainedValue().with(.event("\(id):\(step):\(index)"))
        arena.keep(origin)
        emit(Event(element, key: event.key, origin: origin, position: event.position))
      }
    }
  }

  final class Node: QueueingNode {
    private let parameters: FlattenMap
    private var outerEnded = false
    /// The inner signal, if it can end as soon as it starts.
    private lazy var immediate = ImmediateSignal(parameters.signal.required, in: self)
    /// The number of immediate signals that are on the stack and not cancelled; one that sends an event may be entered
    /// again.
    private var running = 0
    /// The number of immediate signals that have been started so far.
    private var begun = 0

    init(_ parameters: FlattenMap, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(
        maxConcurrent: parameters.policy == .merge ? parameters.maxConcurrent : 1, queueLimit: parameters.queueLimit,
        nodeContext, downstream)
    }

    override var active: Int { inletCount + running }
    override var heldCount: Int { waitingCount }

    override func receive(_ event: Event) {
      guard !isClosed else { return }
      switch parameters.policy {
      case .latest:
        // The resources of the old signal, such as a connection, are freed before the new one may need them.
        if let old = inlets.first {
          countSuperseded(old.scope.outerEvent)
          drop(old)
        }
        countSuperseded(running)
        running = 0
        begin(event)
      case .exhaust:
        if active == 0 { begin(event) } else { countDropped(event) }
      case .merge, .concat: queue(event)
      }
    }

    override func begin(_ event: Event) {
      guard let immediate else {
        open(parameters.signal.required, nodeContext.scope.with(outer: event))
        return
      }
      begun &+= 1
      running += 1
      let number = begun
      let isLatest = parameters.policy == .latest
      immediate.send(for: event) { !isClosed && (!isLatest || begun == number) }
      guard !isClosed, !isLatest || begun == number else { return }
      running -= 1
      if advance() { finishIfOver() }
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      if advance() { finishIfOver() }
    }

    override func complete() {
      outerEnded = true
      finishIfOver()
    }

    private func finishIfOver() {
      if outerEnded, isIdle { finish() }
    }

    override func save(_ state: inout StateWriter) {
      saveWaiting(&state)
      state.write(outerEnded)
      saveBacklog(&state)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try restoreWaiting(&state)
      outerEnded = try state.read()
      try restoreBacklog(&state)
    }
  }
}
