/// `map`: replaces each event by the value of an expression.
struct Map: PureOperator {
  var to = MappingParameter()

  static let changesValue = true

  static let spec = ComponentSpec<Map>(
    "map",
    summary: "Replaces each event by the result of an expression or of a mapping of expressions.",
    details: """
      The value is one expression, or a YAML mapping from field to expression, nested like the result. A field whose \
      expression returns `optional.none()` is left out.
      """,
    parameters: [
      .init("to", \.to, primary: true, required: true, whole: true, "The new value for `event`.")
    ],
    examples: [
      .marble(
        "ten times as much", "map: event * 10", in: "1-2-3|", out: "a-b-c|",
        values: ["a": "10", "b": "20", "c": "30"]),
      .marble(
        "an object of named fields", "map: { n: event, even: event % 2 == 0 }",
        in: "1-2|", out: "a-b|",
        values: ["a": "{n: 1, even: false}", "b": "{n: 2, even: true}"]),
    ],
    knownAs: ["RxJS map", "Vector remap", "Benthos mapping"],
    useCases: [
      .init(.shaping, "compute something from each event", "map: event.price * event.quantity"),
      .init(.shaping, "build a new object from an event", "map: { name: event.user.name, total: event.price }"),
      .init(.shaping, "pick one field", "map: event.message"),
      .init(.shaping, "take apart a line of text", "map: grok(event, \"%{IP:client} %{WORD:method}\")"),
      .init(.shaping, "use a default if a field is missing", "map: event.?user.orValue('nobody')"),
      .init(.shaping, "convert text to numbers or times", "map: { at: timestamp(event.time), n: int(event.n) }"),
    ],
    seeAlso: ["set", "flattenMap", "scan"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(to.type) }

  func makePureStep() -> PureStep {
    guard let builder = to.makeBuilder() else { preconditionFailure("map was not bound") }
    return builder.single.map { ValueStep($0) } ?? Step(builder)
  }

  /// Evaluates one expression.
  final class ValueStep: PureStep {
    private let program: Program

    init(_ program: Program) {
      self.program = program
    }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      let new = program.evaluate(frame)
      if new.isError { return fail(new, program, frame) }
      value = new.is(.optional) ? new.wrapped ?? .null : new
      return .pass
    }
  }

  /// Evaluates a mapping of expressions.
  final class Step: PureStep {
    private let builder: ValueBuilder

    init(_ builder: ValueBuilder) {
      self.builder = builder
    }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      var failing: Unmanaged<Program>?
      let new = builder.build(frame, &failing)
      if new.isError, let failing = failing?.takeUnretainedValue() { return fail(new, failing, frame) }
      value = new.is(.optional) ? new.wrapped ?? .null : new
      return .pass
    }
  }
}
