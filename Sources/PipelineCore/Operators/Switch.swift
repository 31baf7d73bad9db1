/// `switch`: one of several signals, chosen by another.
struct Switch: CombiningOperator, BranchingOperator {
  private(set) var branches = Branches()

  init() {}

  static let spec = ComponentSpec<Switch>(
    "switch",
    summary: "Sends the events of one of several signals, chosen by the newest event of another.",
    details: """
      Each event of `by` ends the running branch and subscribes the case with its name (perhaps the same again): a \
      text names a case directly, any other value as JSON (`true`, `7`, `null`). Without such a case, `default` \
      runs; without `default`, an error ends the signal. Events and errors of other branches are lost. It completes \
      when `by` and the running branch have.
      """,
    examples: [
      .marbles(
        "two cases", "{ switch: { by: a, cases: { x: b, y: c } } }",
        in: ["a": "-x--y-|", "b": "--1--2", "c": "---8--9|"], out: "--1---9|"),
      .marbles(
        "anything else", "{ switch: { by: a, cases: { x: b }, default: c } }",
        in: ["a": "-x--z-|", "b": "--1--2", "c": "---8--9|"], out: "--1---9|"),
      .marbles(
        "no case", "{ switch: { by: a, cases: { x: b } } }",
        in: ["a": "-x--z-|", "b": "--1--2"], out: "--1-#"),
    ],
    edges: EdgeCases(
      empty: "Completes if `by` ends without an event.",
      error:
        "Passed on at once, from `by` and the running branch; so is an event without a case, unless there is a `default`.",
      completion: "Completes when `by` and the running branch have.",
      disposal: """
        Unsubscribes from `by` and the running branch.
        """),
    memory: "The running branch.", persistence: .state(version: 1),
    knownAs: ["RxPY case (which chooses once)", "Benthos switch"],
    useCases: [
      .init(
        .combining, "choose among several signals by the newest event of another",
        "switch: { by: a, cases: { day: b, night: other } }")
    ],
    seeAlso: ["if", "switchToLatest"])

  mutating func take(_ inputs: [InputNode]) { branches = Branches(inputs) }

  static let subscribesAgain = true

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    let buffer = OutputBuffer()
    return BranchingNode(branches, nodeContext, downstream) { [branches] event, node in
      buffer.clear()
      if event.value.is(.string) {
        buffer.append(JSONParser.unescape(event.value, into: node.arena).rawBytes)
      } else {
        JSONWriter.appendKey(event.value, to: buffer)
      }
      if let index = branches.index(ofCase: buffer.bytes) ?? branches.index(of: .default) { return index }
      let shown = Printable.cut(Array(buffer.bytes))
      node.finish(
        failing: SignalFailure(.user, "'switch' has no case '\(shown)' and no default", at: node.nodeContext.location))
      return nil
    }
  }
}
