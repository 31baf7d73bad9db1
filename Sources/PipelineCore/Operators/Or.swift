/// `or`: whether any part of each event is true.
struct Or: PureOperator {
  static let changesValue = true

  static let spec = ComponentSpec<Or>(
    "or",
    summary: "Sends whether any part of an event is true.",
    details: """
      An event is a list of booleans, as combineLatest and zip make them; a number counts as false if it is 0. Any \
      other event goes to the errors output. It handles one event at a time; `any` and `all` are for all events of a \
      signal.
      """,
    examples: [
      .marble(
        "any of them", "or", in: "-p-q-|", out: "-t-f-|",
        values: ["p": "[true, false]", "q": "[false, 0]", "f": "false", "t": "true"]),
      .marbles(
        "of two signals", "{ combineLatest: [a, b], chain: [or] }", in: ["a": "t--f-|", "b": "-f---|"],
        out: "-t-f-|", values: ["t": "true", "f": "false"]),
    ],
    knownAs: ["ReactiveCocoa or"],
    useCases: [
      .init(.combining, "know whether any of several signals is true", "{ combineLatest: [a, b], chain: [ or ] }")
    ],
    seeAlso: ["and", "not", "combineLatest"])

  func outputType(_ inputs: [EventType]) -> EventType { EventType(.bool) }

  func makePureStep() -> PureStep { TruthStep("or", from: false) { $0 || $1 } }
}
