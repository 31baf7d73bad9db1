/// `tryMap`: another value for each event, or the end.
struct TryMap: PureOperator {
  var to = MappingParameter()

  static let changesValue = true

  static let spec = ComponentSpec<TryMap>(
    "tryMap",
    summary: "Replaces each event as `map` does, and ends the signal with an error where that fails.",
    details: """
      An expression that gives `optional.none()` fails too; null is a value like any other. With \
      `onError: route`, `drop` or `keep` it is `map`.
      """,
    parameters: [
      .init("to", \.to, primary: true, required: true, whole: true, "What to make of `event`.")
    ],
    examples: [
      .marble("a division", "tryMap: 6 / event", in: "-1-2-0-3-|", out: "-6-3-#"),
      .marble(
        "nothing is a failure", "tryMap: event.?id", in: "-a-b-|", out: "-1-#",
        values: ["a": "{id: 1}", "b": "{}"]),
    ],
    edges: EdgeCases(error: "Passed on at once; an event for which the expression fails makes one."),
    rivals: ["Combine tryMap", "ReactiveSwift attemptMap"],
    wants: [
      .init(.failing, "end a signal when an expression fails", "tryMap: int(event)")
    ],
    seeAlso: ["map", "try", "catch"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(to.type) }

  func makePureStep() -> PureStep {
    guard let builder = to.makeBuilder() else { preconditionFailure("tryMap was not bound") }
    return Step(builder)
  }

  final class Step: PureStep {
    private let builder: ValueBuilder

    init(_ builder: ValueBuilder) {
      self.builder = builder
    }

    override var standardPolicy: ErrorPolicy { .fail }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      var failing: Unmanaged<Program>?
      let new = builder.build(frame, &failing)
      if new.isError, let failing = failing?.takeUnretainedValue() { return fail(new, failing, frame) }
      guard new.is(.optional) else {
        value = new
        return .pass
      }
      guard let wrapped = new.wrapped else {
        return refuse(.eventRefused, "the expression of 'tryMap' gives nothing for an event", frame)
      }
      value = wrapped
      return .pass
    }
  }
}
