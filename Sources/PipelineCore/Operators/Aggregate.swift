/// `aggregate`: a fold whose result comes at the end.
struct Aggregate: OperatorComponent {
  var start = LiteralParameter()
  var next = ExpressionParameter()

  static let spec = ComponentSpec<Aggregate>(
    "aggregate",
    summary: "Folds all events into one value and sends it when the signal completes.",
    details: """
      `next` sees `running`, `event` and `index` as in `scan`. Without any event the start value is \
      sent. An error of the signal is passed on alone.
      """,
    parameters: [
      .init("start", \.start, whole: true, "The value before the first event."),
      .init(
        "next", \.next, required: true, variables: [("running", .dyn), ("index", .int)],
        "The new value."),
    ],
    examples: [
      .marble("a sum", "aggregate: { start: 0, next: running + event }", in: "1-2-3|", out: "-----(6|)"),
      .marble("of nothing", "aggregate: { start: 0, next: running + event }", in: "--|", out: "--(0|)"),
      .marble(
        "of a signal that fails", "aggregate: { start: 0, next: running + event }", in: "1-#",
        out: "--#"),
    ],
    edges: EdgeCases(
      empty: "Sends the start value, then completes.", error: "Passed on at once; the running value is dropped.",
      completion: "Sends the value, then completes.", disposal: "Leaves the input; what is kept is lost."),
    keeps: "The running value.", carries: .state(version: 1), rivals: ["RxJS reduce", "Combine reduce"],
    wants: [
      .init(.gathering, "have one total at the end", "aggregate: { start: 0, next: running + event.bytes }"),
      .init(.gathering, "fold a whole file into one object", "aggregate: { start: {}, next: \"running\" }"),
    ],
    seeAlso: ["scan", "collect"])

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ seat: Seat, downstream: Downstream) -> OperatorNode {
    Node(start.value, next.required, seat, downstream)
  }

  final class Node: OperatorNode {
    private var running: OwnedValue
    private var index: Int64 = 0
    private let program: Program
    private let frame: EventFrame

    init(_ start: OwnedValue, _ program: Program, _ seat: Seat, _ downstream: Downstream) {
      running = start
      self.program = program
      frame = seat.scope.frames?.frame(seat.segment, seat.scope, seat.execution) ?? .make(seat)
      super.init(seat, downstream: downstream)
    }

    override func receive(_ event: Event) {
      if let failure = frame.load(event) {
        reject(event, .eventNotReadable, EventFrame.message(of: failure))
        return
      }
      frame.set(0, running.value)
      frame.set(1, .int(index))
      let value = program.evaluate(frame)
      if value.isError {
        _ = failed(event, value, program, frame)
        return
      }
      if value.isDeeper(than: Scan.Step.depthLimit) {
        reject(
          event, .limitReached, "aggregate's value is nested more than \(Scan.Step.depthLimit) deep")
        return
      }
      index &+= 1
      running.assign(value)
    }

    override func complete() {
      emit(Event(running.value))
      finish()
    }

    override func save(_ state: inout StateWriter) {
      state.write(running)
      state.write(index)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      running = try state.read()
      index = try state.read()
    }
  }
}
