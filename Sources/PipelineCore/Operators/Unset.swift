/// `unset`: removes fields of the event.
struct UnsetFields: PureOperator {
  var fields: [String] = []

  static let changesValue = true

  static let spec = ComponentSpec<UnsetFields>(
    "unset",
    summary: "Removes fields of an event.",
    details: "A name with dots is a path. A missing field is not an error.",
    parameters: [
      .init("fields", \.fields, primary: true, required: true, "The fields.")
    ],
    examples: [
      .marble(
        "two fields", "unset: [password, user.email]", in: "a|", out: "b|",
        values: ["a": "{password: x, user: {id: 1, email: y}}", "b": "{user: {id: 1}}"])
    ],
    knownAs: ["Vector del()", "Fluent Bit record_modifier"],
    useCases: [
      .init(.shaping, "remove fields, a password for instance", "unset: [password, user.token]")
    ],
    seeAlso: ["set"])

  func outputType(_ inputs: [EventType]) -> EventType {
    EventType(
      fields.reduce(inputs.first?.type ?? .dyn) { $0.removing(FieldPath($1).components[...]) })
  }

  func makePureStep() -> PureStep { Step(fields.map(FieldPath.init)) }

  final class Step: PureStep {
    /// Retained, in raw memory, so that an event avoids retain and release.
    private let paths: UnsafeMutableBufferPointer<Unmanaged<FieldPath>>

    init(_ paths: [FieldPath]) {
      self.paths = .allocate(capacity: paths.count)
      _ = self.paths.initialize(from: paths.map(Unmanaged.passRetained))
    }

    deinit {
      for path in paths { path.release() }
      paths.deallocate()
    }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      for path in paths {
        value = path._withUnsafeGuaranteedRef { $0.remove(from: value, frame.frame.json, frame.frame.arena) }
      }
      return .pass
    }
  }
}
