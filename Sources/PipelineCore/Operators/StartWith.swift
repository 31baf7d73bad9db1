/// `startWith`: sends a value before all events.
struct StartWith: OperatorComponent {
  var value = LiteralParameter()

  static let spec = ComponentSpec<StartWith>(
    "startWith",
    summary: "Sends a value first, then subscribes upstream.",
    details: """
      Every subscription starts with the value, so a retry or repeat downstream sends it again. When a signal with \
      several inputs starts, these values come first, in the order of subscription, before the events of sources.
      """,
    parameters: [
      .init("value", \.value, primary: true, required: true, whole: true, "The first event.")
    ],
    examples: [
      .marble("a zero first", "startWith: 0", in: "--1-|", out: "0-1-|")
    ],
    edges: EdgeCases(
      empty: "Sends the value, then completes.", error: "Sends the value first; the error is passed on at once.",
      completion: "Passed on at once, after the value."),
    knownAs: ["RxJS startWith", "Combine prepend"],
    useCases: [
      .init(.living, "begin with a value of my own", "startWith: false")
    ],
    seeAlso: ["concat"])

  func outputType(_ inputs: [EventType]) -> EventType {
    .either(inputs + [EventType(.of(value.value.value))])
  }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(value.value, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let value: OwnedValue

    init(_ value: OwnedValue, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.value = value
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      execution.whenWired { [self] in emit(made(value.value)) }
      super.start()
    }
  }
}
