/// `scan`: a running fold.
struct Scan: FusableOperator {
  var start = LiteralParameter()
  var next = ExpressionParameter()

  static let changesValue = true

  static let spec = ComponentSpec<Scan>(
    "scan",
    summary: "Folds the events into a running value and sends it after each of them.",
    details: """
      `next` sees the value so far as `running` (at first `start`), the event and its number `index`, \
      from 0. The start value itself is not sent. An event for which `next` fails goes to the errors \
      output and leaves the running value as it was.
      """,
    parameters: [
      .init("start", \.start, whole: true, "The value before the first event."),
      .init(
        "next", \.next, required: true, variables: [("running", .dyn), ("index", .int)],
        "The new value."),
    ],
    examples: [
      .marble(
        "a running sum", "scan: { start: 0, next: running + event }", in: "1-2-3|",
        out: "1-3-6|"),
      .marble("numbered", "scan: { next: index }", in: "a-b|", out: "0-1|"),
    ],
    edges: EdgeCases(
      empty: "Completes too; the start value is not sent.",
      disposal: """
        Unsubscribes from the input and drops its state.
        """),
    memory: "The running value.", persistence: .state(version: 1),
    knownAs: ["RxJS scan", "Combine scan", "Logstash aggregate"],
    useCases: [
      .init(.gathering, "have a running total after each event", "scan: { start: 0, next: running + event.bytes }"),
      .init(.gathering, "number the events", "scan: { start: null, next: \"{'n': index + 1, 'event': event}\" }"),
      .init(
        .gathering, "keep the largest value so far", "scan: { start: 0, next: \"event > running ? event : running\" }"),
    ],
    seeAlso: ["aggregate", "combinePrevious"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(next.type) }

  func makeStep() -> FusedStep { Step(start.value, next.required) }

  final class Step: FusedStep {
    @exclusivity(unchecked) private var running: OwnedValue
    @exclusivity(unchecked) private var index: Int64 = 0
    private let program: Program
    /// A fold that keeps wrapping its value is stopped here, before deeper values overflow the stack.
    static let depthLimit = 64

    init(_ start: OwnedValue, _ program: Program) {
      running = start
      self.program = program
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      frame.set(0, running.value)
      frame.set(1, .int(index))
      let value = program.evaluate(frame)
      if value.isError { return failed(event, value, program, frame, run) }
      if value.isDeeper(than: Self.depthLimit) { return refuseDepth(event, run) }
      index &+= 1
      running.assign(value, retiring: run.arena)
      keptSize.set(bytes: running.keptBytes)
      event.value = running.value
      return .pass
    }

    @inline(never)
    private func refuseDepth(_ event: Event, _ run: FusedRun) -> StepVerdict {
      run.rejectRow(event, .limitReached, "the value of scan is nested more than \(Self.depthLimit) deep")
      return .gone
    }

    override func save(_ state: inout StateWriter) {
      state.write(running)
      state.write(index)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      running = try state.read()
      index = try state.read()
      keptSize.set(bytes: running.keptBytes)
    }
  }
}
