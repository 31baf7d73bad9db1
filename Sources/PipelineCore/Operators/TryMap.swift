/// `tryMap`: another value for each event, or the end.
struct TryMap: PureOperator {
  var to = MappingParameter()
  var message = TemplateParameter()

  static let changesValue = true

  static let spec = ComponentSpec<TryMap>(
    "tryMap",
    summary: "Replaces each event as `map` does, and ends the signal with an error where that fails.",
    details: """
      An expression that gives `optional.none()` fails too; null is a value like any other. With \
      `onError: route`, `drop` or `keep` it is `map`. `message` stands beside `tryMap`, because every key of a mapping \
      behind it is a field of the new event.
      """,
    parameters: [
      .init("to", \.to, primary: true, required: true, whole: true, "What to make of `event`."),
      .init(
        "message", \.message, beside: true,
        "The message of the error, in place of the reason; stands beside `tryMap`, as `onError` does."),
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
    edges: EdgeCases(error: "Passed on at once; an event for which the expression fails makes one."),
    knownAs: ["Combine tryMap", "ReactiveSwift attemptMap"],
    useCases: [
      .init(.failing, "end a signal when an expression fails", "tryMap: int(event)"),
      .init(
        .failing, "say in my own words why a value cannot be made",
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
        let message = message.shownText(frame) ?? "the expression of 'tryMap' gives nothing for an event"
        return refuse(.eventRefused, message, frame)
      }
      value = wrapped
      return .pass
    }
  }
}
