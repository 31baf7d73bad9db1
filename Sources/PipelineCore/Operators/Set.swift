/// `set`: fields of the event replaced or added.
struct SetFields: RowOperator {
  var fields = Table<MappingParameter>()

  static let changesValue = true
  static let isPure = true

  static let spec = ComponentSpec<SetFields>(
    "set",
    summary: "Replaces or adds fields of an event and leaves the others as they are.",
    details: """
      A name with dots is a path: `user.name` sets the field `name` inside `user`, which is made if it \
      is missing. All expressions see the event as it was. A field whose expression gives \
      `optional.none()` is left as it is. An event that is no object goes to the errors output.
      """,
    parameters: [
      .init(
        "fields", \.fields, primary: true, required: true, whole: true,
        "The fields, each with an expression or a mapping of expressions.")
    ],
    examples: [
      .marble(
        "one more field", "set: { total: event.price * event.count }", in: "a|", out: "b|",
        values: ["a": "{price: 3, count: 2}", "b": "{price: 3, count: 2, total: 6}"]),
      .marble(
        "inside", "set: { user.name: '\"ann\"' }", in: "a|", out: "b|",
        values: ["a": "{user: {id: 1}}", "b": "{user: {id: 1, name: ann}}"]),
    ],
    rivals: ["Vector remap .field = value", "Benthos root.field"],
    wants: [
      .init(.shaping, "add or replace a field and leave the rest as it is", "set: { env: \"'production'\" }"),
      .init(.shaping, "set a field deep inside an event", "set: { user.name: event.user.name.upperAscii() }"),
    ],
    seeAlso: ["unset", "map"])

  func outputType(_ inputs: [EventType]) -> EventType {
    let input = inputs.first?.type ?? .dyn
    return EventType(
      fields.entries.reduce(input) { $0.setting(FieldPath($1.name).components[...], $1.value.type) })
  }

  func makeStep() -> RowStep {
    Step(
      fields.entries.map {
        guard let builder = $0.value.makeBuilder() else { preconditionFailure("set was not bound") }
        return (FieldPath($0.name), builder)
      })
  }

  final class Step: RowStep {
    private let fields: [(path: FieldPath, builder: ValueBuilder)]

    init(_ fields: [(FieldPath, ValueBuilder)]) {
      self.fields = fields
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: RowRun) -> RowVerdict {
      var value = event.value
      for field in fields {
        var failing: Unmanaged<Program>?
        var new = field.builder.build(frame, &failing)
        if new.isError, let failing = failing?.takeUnretainedValue() {
          return failed(event, new, failing, frame, run)
        }
        if new.is(.optional) {
          guard let wrapped = new.wrapped else { continue }
          new = wrapped
        }
        guard let edited = field.path.set(new, in: value, run.execution.json, run.arena) else {
          run.rejectRow(
            event, .unexpectedValue, "set needs an object to set `\(field.path.text)` in, not \(value.kindName)",
          )
          return .drop
        }
        value = edited
      }
      event.value = value
      return .pass
    }

    override func applyAlone(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      var edited = value
      for field in fields {
        var failing: Unmanaged<Program>?
        var new = field.builder.build(frame, &failing)
        if new.isError { return .undecided }
        if new.is(.optional) {
          guard let wrapped = new.wrapped else { continue }
          new = wrapped
        }
        guard let next = field.path.set(new, in: edited, frame.frame.json, frame.frame.arena) else { return .undecided }
        edited = next
      }
      value = edited
      return .pass
    }
  }
}
