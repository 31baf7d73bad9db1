/// `set`: replaces or adds fields of the event.
struct SetFields: PureOperator {
  var fields = Table<MappingParameter>()

  static let changesValue = true

  static let spec = ComponentSpec<SetFields>(
    "set",
    summary: "Replaces or adds fields of an event and keeps the others.",
    details: """
      A name with dots is a path: `user.name` sets the field `name` inside `user`, which is made if it is missing. \
      All expressions see the original event. A field whose expression returns `optional.none()` is not changed. An \
      event that is no object goes to the errors output.
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
    knownAs: ["Vector remap .field = value", "Benthos root.field"],
    useCases: [
      .init(.shaping, "add or replace a field and keep the others", "set: { env: \"'production'\" }"),
      .init(.shaping, "set a field deep inside an event", "set: { user.name: event.user.name.upperAscii() }"),
    ],
    seeAlso: ["unset", "map"])

  func outputType(_ inputs: [EventType]) -> EventType {
    let input = inputs.first?.type ?? .dyn
    return EventType(
      fields.entries.reduce(input) { $0.setting(FieldPath($1.name).components[...], $1.value.type) })
  }

  func makePureStep() -> PureStep {
    Step(
      fields.entries.map {
        guard let builder = $0.value.makeBuilder() else { preconditionFailure("set was not bound") }
        return (FieldPath($0.name), builder)
      })
  }

  final class Step: PureStep {
    private struct Field {
      /// Path and builder are retained.
      var path: Unmanaged<FieldPath>
      var builder: Unmanaged<ValueBuilder>
    }
    // Stored in raw memory to avoid retain and release for each event.
    private let fields: UnsafeMutableBufferPointer<Field>

    init(_ fields: [(FieldPath, ValueBuilder)]) {
      self.fields = .allocate(capacity: fields.count)
      _ = self.fields.initialize(
        from: fields.map { Field(path: .passRetained($0.0), builder: .passRetained($0.1)) })
    }

    deinit {
      for field in fields {
        field.path.release()
        field.builder.release()
      }
      fields.deallocate()
    }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      var edited = value
      for field in fields {
        var failing: Unmanaged<Program>?
        var new = field.builder._withUnsafeGuaranteedRef { $0.build(frame, &failing) }
        if new.isError, let failing = failing?.takeUnretainedValue() { return fail(new, failing, frame) }
        if new.is(.optional) {
          guard let wrapped = new.wrapped else { continue }
          new = wrapped
        }
        let next = field.path._withUnsafeGuaranteedRef { $0.set(new, in: edited, frame.frame.json, frame.frame.arena) }
        guard let next else {
          let path = field.path._withUnsafeGuaranteedRef(\.text)
          return refuse(.unexpectedValue, "set needs an object to set `\(path)` in, not \(edited.kindName)", frame)
        }
        edited = next
      }
      value = edited
      return .pass
    }
  }
}
