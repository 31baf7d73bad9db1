/// `throttle`: the newest event after a quiet time.
struct Throttle: OperatorComponent {
  enum Edge: String, ChoiceParameter {
    case trailing, leading, both
    var help: String {
      switch self {
      case .trailing: "the newest event, when it has been quiet"
      case .leading: "the first event, and no other until it has been quiet"
      case .both: "the first event, and the newest of the others when it has been quiet"
      }
    }
  }

  var quiet = TimeSpan.zero
  var when = ExpressionParameter()
  var maxWait: TimeSpan?
  var edge = Edge.trailing

  static let relaysEvents = true

  static let spec = ComponentSpec<Throttle>(
    "throttle",
    summary: "Holds the newest event and sends it once the signal has been quiet for a while.",
    details: """
      This is ReactiveCocoa's throttle, which others call debounce. Completion sends the held event at once; an \
      error drops it. If the stream never pauses, nothing is sent, unless `maxWait` sets a limit. With `when`, only \
      events for which it is true are held; any other event is sent at once and drops the held one.
      """,
    parameters: [
      .init(
        "quiet", \.quiet, primary: true, required: true, range: 0...Int64.max,
        "How long the signal must be quiet."),
      .init("when", \.when, expecting: .bool, "Which events to hold; all if left out."),
      .init(
        "maxWait", \.maxWait, range: 1...Int64.max,
        "The longest time an event may be held, counted from the first held event."),
      .init("edge", \.edge, "Which event of a burst is sent."),
    ],
    examples: [
      .marble("a pause in typing", "throttle: 5ms", in: "abc------d-|", out: "-------c---(d|)"),
      .marble(
        "the first before a pause", "throttle: { quiet: 3ms, edge: leading }", in: "-123----4-|",
        out: "-1------4-|"),
      .marble(
        "the first and the last", "throttle: { quiet: 3ms, edge: both }", in: "-123----4-|", out: "-1----3-4-|"),
      .marble("an error drops the held event", "throttle: 5ms", in: "-1-#", out: "---#"),
      .marble(
        "a bound for steady streams", "throttle: { quiet: 3ms, maxWait: 5ms }",
        in: "-1-2-3-4-5|", out: "------3---(5|)"),
      .marble(
        "only some are held", "throttle: { quiet: 5ms, when: event < 5 }", in: "-1-9----2|",
        out: "---9-----(2|)"),
    ],
    edges: EdgeCases(
      error: "Passed on at once; the held event is dropped.",
      completion: """
        Sends the held event at once, then completes.
        """,
      disposal: "Unsubscribes from the input; the held event is dropped and the timers freed."),
    memory: "The newest event and one timer.", persistence: .state(version: 1),
    lateness: .leavesOut("A held event that was due is dropped."),
    knownAs: ["RxJS debounceTime", "Combine debounce", "lodash debounce"],
    useCases: [
      .init(.time, "act only when typing pauses", "throttle: 300ms"),
      .init(.time, "wait until a file has not changed for a while", "throttle: 5s"),
      .init(
        .time, "act on the first event of a burst and ignore the rest", "throttle: { quiet: 1m, edge: leading }"),
      .init(.time, "wait for a pause, but not forever", "throttle: { quiet: 1s, maxWait: 10s }"),
    ],
    seeAlso: ["sample", "bufferWithTime"])

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let parameters: Throttle
    private let program: Program?
    private lazy var frame = sharedFrame()
    private var held: OwnedEvent?
    /// Set until the signal has been quiet long enough; `held` is set too, unless the event was sent at once.
    private var timer = Wake.none
    /// Set only while `held` is.
    private var deadline = Wake.none

    init(_ parameters: Throttle, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      program = parameters.when.program
      super.init(nodeContext, downstream: downstream)
    }

    override func receive(_ event: Event) {
      if let program, !holds(event, program) { return }
      let isFirst = !timer.isSet
      cancelWake(&timer)
      if parameters.edge != .trailing, isFirst || parameters.edge == .leading {
        timer = wake(after: parameters.quiet)
        if isFirst { emit(event) } else { countDropped(event) }
        return
      }
      if held == nil {
        held = OwnedEvent(event)
        if let maxWait = parameters.maxWait { deadline = wake(after: maxWait) }
      } else {
        countSuperseded(held?.event)
        held?.assign(event)
      }
      keptSize.set(bytes: held?.byteCount ?? 0)
      timer = wake(after: parameters.quiet)
    }

    /// Whether the event must be held; if not, it has been handled.
    private func holds(_ event: Event, _ program: Program) -> Bool {
      guard let holds = decide(event, program, frame, kept: false) else { return false }
      if holds { return true }
      if held != nil { countSuperseded(held?.event) }
      drop()
      emit(event)
      return false
    }

    override func woke(_ token: Int) { flush() }

    override func skipped(_ token: Int, _ late: Lateness) {
      if held != nil { countDropped(held?.event) }
      drop()
    }

    override func complete() {
      flush()
      finish()
    }

    override var heldCount: Int { held == nil ? 0 : 1 }

    override var outputTimers: [Wake] { held == nil ? [] : [timer, deadline] }

    override func stop() { drop() }

    private func drop() {
      cancelWake(&timer)
      cancelWake(&deadline)
      held = nil
      keptSize.set(bytes: 0)
    }

    private func flush() {
      let event = held
      drop()
      guard let event else { return }
      event.keep(in: arena)
      emit(event.event)
    }

    override func save(_ state: inout StateWriter) {
      state.write(held)
      state.write(timer)
      state.write(deadline)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      held = try state.read()
      keptSize.set(bytes: held?.byteCount ?? 0)
      timer = try state.read()
      deadline = try state.read()
    }
  }
}
