/// `do`: a side effect for each event.
struct Do: OperatorComponent, TimedOperator {
  enum Moment: String, ChoiceParameter {
    case next, error, completed
    var help: String {
      switch self {
      case .next: "for each event"
      case .error: "for the error that ends the signal"
      case .completed: "for the completion"
      }
    }
  }

  var signal = SignalParameter()
  var when = [Moment.next]
  var maxConcurrent = 16
  var queueLimit = 1000

  static let relaysEvents = true

  static let spec = ComponentSpec<Do>(
    "do",
    summary: "Runs another signal for each event as a side effect, and passes everything on.",
    details: """
      The other signal runs for its effect, such as a request; its events are dropped. It sees the event as `outer`, \
      the error as `error` (null at a completion). It starts before the event is passed on. Only the end waits for \
      it: the completion comes when all side signals have ended, an error when the one of `when: error` has; an \
      error cancels the others. If a side signal fails, its event goes to the errors output. While more than \
      `queueLimit` events wait, or more bytes than `--queue-memory` allows, the pipeline reads no further input.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The signal to run."),
      .init("when", \.when, formerly: "on", "When to run it."),
      .init("maxConcurrent", \.maxConcurrent, range: 1...10_000, "How many signals may run at the same time."),
      .init(
        "queueLimit", \.queueLimit, range: 1...10_000_000,
        "How many events may wait before the pipeline's input pauses."),
    ],
    examples: [
      .marble("everything is passed on", "do: { values: [8, 9] }", in: "-1-2-|", out: "-1-2-|"),
      .marble(
        "only the completion waits", "do: { values: [8], chain: [ { delay: 3ms } ] }", in: "-1-2|",
        out: "-1-2--|"),
      .marble(
        "a failure on the side", "do: { values: [8], chain: [ { try: outer > 1 } ] }", in: "-1-2|",
        out: "-1-2|"),
      .marble(
        "at the end", "do: { when: [completed], signal: { values: [8], chain: [ { delay: 3ms } ] } }",
        in: "-1|", out: "-1---|"),
      .marble("for an error", "do: { when: [error], signal: { values: [8] } }", in: "-1-#", out: "-1-#"),
    ],
    edges: EdgeCases(
      empty: "Completes after the signal of `when: completed` has ended.",
      error: """
        Signals of `when: next` are cancelled; the error is passed on when the signal of `when: error` has ended.
        """,
      completion: "Passed on when all side signals have ended.",
      disposal: "Unsubscribes from the input and every inner signal; waiting events are dropped."),
    memory: "The running signals and the waiting events.",
    persistence: .state(version: 1),
    knownAs: ["RxJS tap", "Combine handleEvents", "ReactiveCocoa doNext:, doError:, doCompleted:"],
    useCases: [
      .init(.living, "call a webhook for each event without changing the stream", "do: { signal: other }"),
      .init(.living, "send a notification when a signal fails", "do: { signal: other, when: [error] }"),
    ],
    seeAlso: ["log", "initially", "finally", "flattenMap"])

  static let seesError = true

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: QueueingNode {
    private enum Ending {
      case completed
      case failed(SignalFailure)
    }

    private let parameters: Do
    private let onNext: Bool
    /// The end to pass on as soon as no side signal runs any more.
    private var ending: Ending?

    init(_ parameters: Do, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      onNext = parameters.when.contains(.next)
      super.init(
        maxConcurrent: parameters.maxConcurrent, queueLimit: parameters.queueLimit, nodeContext, downstream)
    }

    override func receive(_ event: Event) {
      if onNext { queue(event) }
      emit(event)
    }

    override func begin(_ event: Event) {
      open(parameters.signal.required, nodeContext.scope.with(outer: event))
    }

    override func receive(_ event: Event, from inlet: Inlet) {}

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      if advance() { endIfOver() }
    }

    override func failed(_ inlet: Inlet, _ failure: SignalFailure) {
      drop(inlet)
      let outer = inlet.scope.outer
      outer?.keep(in: arena)
      countMade()
      reject(inlet.scope.outerEvent ?? made(.null), .innerSignalFailed, failure.message, at: failure.location)
      if advance() { endIfOver() }
    }

    override func complete() {
      if parameters.when.contains(.completed) {
        open(parameters.signal.required, nodeContext.scope.with(error: .null))
      }
      ending = .completed
      endIfOver()
    }

    override func fail(_ failure: SignalFailure) {
      forgetWaiting()
      for inlet in inlets { drop(inlet) }
      if parameters.when.contains(.error) {
        open(parameters.signal.required, nodeContext.scope.with(error: failure.value(in: arena)))
      }
      ending = .failed(failure)
      endIfOver()
    }

    private func endIfOver() {
      guard let ending, isIdle else { return }
      switch ending {
      case .completed: finish()
      case .failed(let failure): finish(failing: failure)
      }
    }

    override func save(_ state: inout StateWriter) {
      saveWaiting(&state)
      state.write(ending != nil)
      if case .failed(let failure)? = ending {
        state.write(Optional(failure))
      } else {
        state.write(SignalFailure?.none)
      }
      saveBacklog(&state)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try restoreWaiting(&state)
      let isEnding = try state.read(Bool.self)
      let failure = try state.read(SignalFailure?.self)
      if isEnding { ending = failure.map { .failed($0) } ?? .completed }
      try restoreBacklog(&state)
    }
  }
}
