/// `and`: whether all parts of each event are true.
struct And: PureOperator {
  static let changesValue = true

  static let spec = ComponentSpec<And>(
    "and",
    summary: "Sends whether all parts of an event are true.",
    details: """
      An event is a list of booleans, as combineLatest and zip make them; a number counts as false if it is 0. Any \
      other event goes to the errors output. It handles one event at a time; `any` and `all` are for all events of a \
      signal.
      """,
    examples: [
      .marble(
        "all of them", "and", in: "-p-q-|", out: "-f-t-|",
        values: ["p": "[true, false]", "q": "[true, true]", "f": "false", "t": "true"]),
      .marbles(
        "of two signals", "{ combineLatest: [a, b], chain: [and] }", in: ["a": "t--f-|", "b": "-t---|"],
        out: "-t-f-|", values: ["t": "true", "f": "false"]),
    ],
    knownAs: ["ReactiveCocoa and"],
    useCases: [
      .init(.combining, "know whether several signals are all true", "{ combineLatest: [a, b], chain: [ and ] }")
    ],
    seeAlso: ["or", "not", "combineLatest"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(.bool) }

  func makePureStep() -> PureStep { TruthStep("and", from: true) { $0 && $1 } }
}
