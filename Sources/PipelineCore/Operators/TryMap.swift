/// `tryMap`: replaces each event by the value of an expression, or fails.
struct TryMap: PureOperator {
  var to = MappingParameter()
  var message = TemplateParameter()

  static let changesValue = true

  static let spec = ComponentSpec<TryMap>(
    "tryMap",
    summary: "Replaces each event as `map` does, and ends the signal with an error if the expression fails.",
    details: """
      An expression that returns `optional.none()` fails too; null is a value like any other. With `onError: route`, \
      `drop` or `keep` it behaves like `map`. `message` is written beside `tryMap`, because every key of its mapping \
      is a field of the new event.
      """,
    parameters: [
      .init("to", \.to, primary: true, required: true, whole: true, "The new value for `event`."),
      .init(
        "message", \.message, beside: true,
        "The message of the error, in place of the reason; a key of the step, like `onError`."),
    ],
    examples: [
      .marble("a division", "tryMap: 6 / event", in: "-1-2-0-3-|", out: "-6-3-#"),
      .marble(
        "nothing is a failure", "tryMap: event.?id", in: "-a-b-|", out: "-1-#",
        values: ["a": "{id: 1}", "b": "{}"]),
      .marble(
        "a message of one's own", "{ tryMap: int(event), message: \"'{{ event }}' is no number\" }", in: "-a-b-|",
        out: "-1-#", values: ["a": "'1'", "b": "one"]),
    ],
    edges: EdgeCases(error: "Passed on at once; an event for which the expression fails causes one."),
    knownAs: ["Combine tryMap", "ReactiveSwift attemptMap"],
    useCases: [
      .init(.failing, "end a signal when an expression fails", "tryMap: int(event)"),
      .init(
        .failing, "fail with a message of my own if a value cannot be computed",
        "{ from: a, chain: [ { tryMap: int(event), message: \"no number: {{ event }}\" } ] }"),
    ],
    seeAlso: ["map", "try", "catch"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(to.type) }

  func makePureStep() -> PureStep {
    guard let builder = to.makeBuilder() else { preconditionFailure("tryMap was not bound") }
    return Step(builder, message)
  }

  final class Step: PureStep {
    private let builder: ValueBuilder
    private let message: TemplateParameter

    init(_ builder: ValueBuilder, _ message: TemplateParameter) {
      self.builder = builder
      self.message = message
    }

    override var standardPolicy: ErrorPolicy { .fail }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      var failing: Unmanaged<Program>?
      let new = builder.build(frame, &failing)
      if new.isError, let failing = failing?.takeUnretainedValue() {
        guard let message = message.shownText(frame) else { return fail(new, failing, frame) }
        return refuse(.eventRefused, message, frame)
      }
      guard new.is(.optional) else {
        value = new
        return .pass
      }
      guard let wrapped = new.wrapped else {
        let message = message.shownText(frame) ?? "the expression of 'tryMap' has no value for an event"
        return refuse(.eventRefused, message, frame)
      }
      value = wrapped
      return .pass
    }
  }
}
