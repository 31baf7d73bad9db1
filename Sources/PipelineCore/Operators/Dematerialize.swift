/// `dematerialize`: a signal from the events that describe it.
struct Dematerialize: OperatorComponent {
  static let spec = ComponentSpec<Dematerialize>(
    "dematerialize",
    summary: "Turns the events of materialize back into a signal.",
    details: """
      The first event of kind `completed` or `error` ends it, even if its input continues; so does the end of its \
      input. An event of any other form goes to the errors output.
      """,
    examples: [
      .marble(
        "a completion", "dematerialize", in: "-a-b-a-|", out: "-1-|",
        values: ["a": "{kind: next, value: 1}", "b": "{kind: completed}"]),
      .marble(
        "an error", "dematerialize", in: "-a-b-a-|", out: "-1-#",
        values: ["a": "{kind: next, value: 1}", "b": "{kind: error, error: {message: broken}}"]),
      .marble("neither", "dematerialize", in: "-a-|", out: "-1-|", values: ["a": "{kind: next, value: 1}"]),
    ],
    edges: EdgeCases(
      completion: """
        Passed on at once. An event of kind `completed` also completes it; one of kind `error` ends it with that \
        error.
        """),
    knownAs: ["RxJS dematerialize", "ReactiveSwift dematerialize"],
    useCases: [
      .init(.living, "make a signal of recorded events and ends", "dematerialize")
    ],
    seeAlso: ["materialize"])

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(nodeContext, downstream: downstream)
  }

  final class Node: OperatorNode {
    override func receive(_ event: Event) {
      guard let kind = text(member("kind", of: event.value)) else {
        refuse(event)
        return
      }
      switch kind {
      case "next":
        let value = member("value", of: event.value)
        if value.isAbsent { refuse(event) } else { emit(event.with(value)) }
      case "completed": finish()
      case "error":
        let error = member("error", of: event.value)
        finish(
          failing: SignalFailure(
            text(member("kind", of: error)).flatMap(SignalFailure.Kind.init) ?? .user,
            text(member("message", of: error)) ?? "an event of kind 'error' arrived", at: nodeContext.location))
      default: refuse(event)
      }
    }

    private func refuse(_ event: Event) {
      refuse(
        event, .unexpectedValue,
        "dematerialize needs an object with 'kind' (next with 'value', completed or error)")
    }

    /// A member of an object; absent if there is none.
    private func member(_ name: StaticString, of value: Value) -> Value {
      let map = value.is(.jsonMap) ? execution.json.expand(value, into: arena) : value
      guard map.is(.map) else { return .absent }
      let wanted = Value.literal(name).rawBytes
      for entry in map.entries {
        let key = JSONParser.unescape(entry.key, into: arena)
        if key.rawBytes.elementsEqual(wanted) { return entry.value }
      }
      return .absent
    }

    private func text(_ value: Value) -> String? {
      guard value.is(.string) else { return nil }
      return String(decoding: JSONParser.unescape(value, into: arena).rawBytes, as: UTF8.self)
    }
  }
}
