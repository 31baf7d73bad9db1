/// `throttle`: what stands when it has been quiet for a while.
struct Throttle: OperatorComponent {
  var quiet = TimeSpan.zero
  var when = ExpressionParameter()
  var maxWait: TimeSpan?

  static let spec = ComponentSpec<Throttle>(
    "throttle",
    summary: "Holds the newest event and sends it once the signal has been quiet for a while.",
    details: """
      This is ReactiveCocoa's throttle, which others call debounce. Completion sends what is held, at \
      once; an error drops it. A steady stream that never pauses holds it back for ever, unless \
      `maxWait` sets a bound. With `when`, only events for which it is true are held; any other goes \
      out at once and drops what was held.
      """,
    parameters: [
      .init(
        "quiet", \.quiet, primary: true, required: true, range: 0...Int64.max,
        "How long without another event."),
      .init("when", \.when, expecting: .bool, "Which events to hold; all if left out."),
      .init(
        "maxWait", \.maxWait, range: 1...Int64.max,
        "How long events may be held back at most, measured from the first one held."),
    ],
    examples: [
      .marble("a pause in typing", "throttle: 5ms", in: "abc------d-|", out: "-------c---(d|)"),
      .marble("an error drops what is held", "throttle: 5ms", in: "-1-#", out: "---#"),
      .marble(
        "a bound for steady streams", "throttle: { quiet: 3ms, maxWait: 5ms }",
        in: "-1-2-3-4-5|", out: "------3---(5|)"),
      .marble(
        "only some are held", "throttle: { quiet: 5ms, when: event < 5 }", in: "-1-9----2|",
        out: "---9-----(2|)"),
    ],
    keeps: "The newest event and one timer.", carries: .state(version: 1),
    rivals: ["RxJS debounceTime", "Combine debounce", "lodash debounce"],
    seeAlso: ["sample", "bufferWithTime"])

  func makeNode(_ seat: Seat, downstream: Downstream) -> OperatorNode { Node(self, seat, downstream) }

  final class Node: OperatorNode {
    private let parameters: Throttle
    private let program: Program?
    private lazy var frame = makeFrame()
    private var held: OwnedEvent?
    /// Both timers are set only while `held` is.
    private var timer = Wake.none
    private var deadline = Wake.none

    init(_ parameters: Throttle, _ seat: Seat, _ downstream: Downstream) {
      self.parameters = parameters
      program = parameters.when.program
      super.init(seat, downstream: downstream)
    }

    override func receive(_ event: Event) {
      if let program, !holds(event, program) { return }
      cancelWake(&timer)
      if held == nil {
        held = OwnedEvent(event)
        if let maxWait = parameters.maxWait { deadline = wake(after: maxWait) }
      } else {
        held?.assign(event)
      }
      timer = wake(after: parameters.quiet)
    }

    /// Whether the event is to be held; one that is not has been dealt with.
    private func holds(_ event: Event, _ program: Program) -> Bool {
      if let failure = frame.load(event) {
        reject(event, .eventNotReadable, EventFrame.message(of: failure))
        return false
      }
      let verdict = program.evaluate(frame.frame)
      if verdict.isError, !failed(event, verdict, program, frame) { return false }
      if verdict.isTrue { return true }
      drop()
      emit(event)
      return false
    }

    override func woke(_ token: Int) { flush() }

    override func complete() {
      flush()
      finish()
    }

    override func stop() { drop() }

    private func drop() {
      cancelWake(&timer)
      cancelWake(&deadline)
      held = nil
    }

    private func flush() {
      guard let event = held else { return }
      drop()
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
      timer = try state.read()
      deadline = try state.read()
    }
  }
}
