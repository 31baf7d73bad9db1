/// `combinePrevious`: each event together with the previous one.
struct CombinePrevious: FusableOperator {
  var start = LiteralParameter()
  var next = ExpressionParameter()

  static let changesValue = true

  static let spec = ComponentSpec<CombinePrevious>(
    "combinePrevious",
    summary: "Combines each event with the one before it.",
    details: """
      `next` sees the event before as `previous`; for the first event that is `start`, null by default. An event for \
      which `next` fails goes to the errors output, and is still the `previous` of the next event.
      """,
    parameters: [
      .init("start", \.start, whole: true, "The value of `previous` for the first event."),
      .init(
        "next", \.next, primary: true, required: true,
        variables: [("previous", .dyn), ("index", .int)],
        typing: { step, event in
          guard event.hasFields else { return [:] }
          let start = step.start.value.value
          return ["previous": start.is(.null) ? event.orNull : previous(event, orStart: .of(start))]
        }, "What to send."),
    ],
    examples: [
      .marble(
        "differences", "combinePrevious: { start: 0, next: event - previous }", in: "3-4-9|",
        out: "3-1-5|"),
      .marble(
        "pairs", "combinePrevious: '[previous, event]'", in: "1-2|", out: "a-b|",
        values: ["a": "[null, 1]", "b": "[1, 2]"]),
    ],
    memory: "The last event.", persistence: .state(version: 1),
    knownAs: ["RxJS pairwise", "ReactiveSwift combinePrevious"],
    useCases: [
      .init(
        .gathering, "compare each event with the one before",
        "combinePrevious: { next: event.value - previous.value, start: { value: 0 } }"),
      .init(
        .gathering, "have the difference of a counter between two readings",
        "combinePrevious: { start: 0, next: event - previous }"),
    ],
    seeAlso: ["scan", "distinctUntilChanged"])

  /// The type of an event or of the start. What the event's type says of a field holds for the start's, too: a declared type converts what is read.
  private static func previous(_ event: ExpressionType, orStart start: ExpressionType) -> ExpressionType {
    // A start that is no object may have another type than the events.
    guard case .object(var fields, let isOpen) = event, case .object(let own, _) = start else { return event.opened }
    for var field in own where !fields.contains(where: { $0.name == field.name }) {
      field.mayBeAbsent = true
      if isOpen { field.type = .dyn }
      fields.append(field)
    }
    return .object(fields: fields, open: isOpen)
  }

  func outputType(_ inputs: [EventType]) -> EventType { EventType(next.type) }

  func makeStep() -> FusedStep { Step(start.value, next.required) }

  final class Step: FusedStep {
    private var previous: OwnedValue
    private var index: Int64 = 0
    private let program: Program

    init(_ start: OwnedValue, _ program: Program) {
      previous = start
      self.program = program
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      frame.set(0, previous.value)
      frame.set(1, .int(index))
      index &+= 1
      let value = program.evaluate(frame)
      // The old content must stay until the end: it may be part of `value`, and a failure message may show it.
      let current = event.value
      defer {
        previous.assign(current, retiring: run.arena)
        keptSize.set(bytes: previous.keptBytes)
      }
      if value.isError { return failed(event, value, program, frame, run) }
      event.value = value
      return .pass
    }

    override func save(_ state: inout StateWriter) {
      state.write(previous)
      state.write(index)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      previous = try state.read()
      index = try state.read()
      keptSize.set(bytes: previous.keptBytes)
    }
  }
}
