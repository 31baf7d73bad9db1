internal import DequeModule

/// `gate`: events pass while another signal is true.
struct Gate: OperatorComponent, TimedOperator {
  enum WhileClosed: String, ChoiceParameter {
    case drop, latest, hold
    var help: String {
      switch self {
      case .drop: "events are dropped"
      case .latest: "the newest one is kept, and sent when the gate opens"
      case .hold: "up to `limit` are kept, and sent in order when the gate opens"
      }
    }
  }

  var signal = SignalParameter()
  var open = false
  var whileClosed = WhileClosed.drop
  var limit = 10_000

  static let relaysEvents = true
  var settles: Bool { true }

  static let spec = ComponentSpec<Gate>(
    "gate",
    summary: "Passes on events while the newest event of another signal is true.",
    details: """
      That signal sends true and false (a number counts as false if it is 0; anything else goes to the errors \
      output). Before its first event `open` decides; when it completes, the gate stays as it is. If \
      more than `limit` events are held, the oldest goes to the errors output. A completion waits until held events \
      have been sent, or until the gate can no longer open. An error of either signal ends it at once.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The signal that opens and closes the gate."),
      .init("open", \.open, "Whether the gate is open at first."),
      .init("whileClosed", \.whileClosed, "What happens to events while the gate is closed."),
      .init(
        "limit", \.limit, range: 1...10_000_000, applies: .word("whileClosed", ["hold"]), "How many events to hold."),
    ],
    examples: [
      .marbles(
        "dropped while it is closed", "{ from: a, chain: [ { gate: b } ] }",
        in: ["a": "-1-2-3-4-|", "b": "--t--f"], out: "---2-----|", values: ["t": "true", "f": "false"]),
      .marbles(
        "held while it is closed", "{ from: a, chain: [ { gate: { signal: b, whileClosed: hold } } ] }",
        in: ["a": "-1-2-3-4-|", "b": "----t"], out: "----(12)3-4-|", values: ["t": "true"]),
      .marbles(
        "only the newest", "{ from: a, chain: [ { gate: { signal: b, whileClosed: latest } } ] }",
        in: ["a": "-1-2-3-4-|", "b": "----t"], out: "----23-4-|", values: ["t": "true"]),
      .marbles(
        "the completion waits", "{ from: a, chain: [ { gate: { signal: b, whileClosed: hold } } ] }",
        in: ["a": "-1-|", "b": "-----t"], out: "-----(1|)", values: ["t": "true"]),
    ],
    edges: EdgeCases(
      error: "Passed on at once, from either signal; held events are dropped.",
      completion: "Passed on when held events have been sent, or can no longer be sent.",
      disposal: "Unsubscribes from both signals; held events are dropped."),
    memory: "The held events: none, one, or at most `limit`, until the gate opens.",
    persistence: .state(version: 2),
    knownAs: ["RxJava valve", "rxjs-etc pause", "Bacon holdWhen"],
    useCases: [
      .init(.choosing, "let events through only while something else is true", "gate: { signal: other }"),
      .init(
        .time, "hold events back during maintenance and send them afterwards",
        "gate: { signal: other, whileClosed: hold }"),
    ],
    seeAlso: ["skipUntil", "takeUntil", "if"])

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: SettlingNode {
    private let parameters: Gate
    private var isOpen: Bool
    /// Empty, except while the gate is closed or held events are being sent.
    private var held = Deque<OwnedEvent>()
    private var hasEnded = false
    private var isSending = false

    init(_ parameters: Gate, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      isOpen = parameters.open
      super.init(trigger: parameters.signal.plan, nodeContext, downstream)
    }

    override func take(_ event: Event) {
      if isOpen, held.isEmpty {
        emit(event)
        return
      }
      switch parameters.whileClosed {
      case .drop:
        countDropped(event)
        return
      case .latest:
        while let oldest = popFirst() { countSuperseded(oldest.event) }
      case .hold:
        if held.count == parameters.limit, let oldest = popFirst() {
          oldest.keep(in: arena)
          reject(
            oldest.event, .limitReached,
            "a closed gate has \(Printable.count(parameters.limit, "event")), its limit `limit`")
        }
      }
      let event = OwnedEvent(event)
      held.append(event)
      keptSize.add(bytes: event.byteCount)
    }

    private func popFirst() -> OwnedEvent? {
      guard let event = held.popFirst() else { return nil }
      keptSize.add(bytes: -event.byteCount)
      return event
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      guard let truth = event.value.truth else {
        countMade()
        reject(
          event, .unexpectedValue, "the signal of 'gate' must send true or false, not \(event.value.kindName)")
        return
      }
      isOpen = truth
      guard !isSending else { return }
      isSending = true
      while isOpen, !isClosed, let event = popFirst() {
        event.keep(in: arena)
        emit(event.event)
      }
      isSending = false
      if hasEnded { finishIfOver() }
    }

    override func complete() {
      settle()
      hasEnded = true
      finishIfOver()
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      if hasEnded { finishIfOver() }
    }

    private func finishIfOver() {
      if held.isEmpty || inletCount == 0 { finish() }
    }

    override var heldCount: Int { held.count + settlingCount }

    override func stop() {
      held.removeAll()
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      state.write(isOpen)
      state.write(each: held)
      state.write(hasEnded)
      saveSettling(&state)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      isOpen = try state.read()
      held = Deque(try state.read([OwnedEvent].self))
      keptSize.set(bytes: held.reduce(0) { $0 + $1.byteCount })
      hasEnded = try state.read()
      if state.version > 1 { try restoreSettling(&state) }
    }
  }
}
