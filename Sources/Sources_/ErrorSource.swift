import PipelineCore

/// `error`: fails without an event.
package struct ErrorSource: SourceComponent {
  package var message = TemplateParameter()

  package init() {}

  package static let spec = ComponentSpec<ErrorSource>(
    "error",
    summary: "Fails at once, without an event.",
    details: """
      Downstream steps receive an error of the kind `user` with this message: `catch` and `retry` handle it, and \
      without them it ends the pipeline. In an inner signal the message can use the event.
      """,
    parameters: [
      .init("message", \.message, primary: true, required: true, "What is wrong, one sentence.")
    ],
    examples: [
      .snippet("an error", "error: there is no such user"),
      .pipeline(
        "an event that ends everything",
        """
        sources:
          orders: { stdin: { decode: json } }
        signals:
          checked:
            from: orders
            chain:
              - flattenMap:
                  signal: { error: "order {{ outer.id }} has no items" }
        sinks:
          screen: { from: checked, stdout: {} }
        tests:
          - name: the message names the order
            inputs: { orders: { marbles: "-a", values: { a: { id: 7 } } } }
            expect: { screen: [ { at: 1ms, error: "order 7 has no items" } ] }
        """),
    ],
    edges: EdgeCases(
      empty: "It never sends an event.", error: "At once, of the kind `user`.", completion: "It does not complete.",
      disposal: "Nothing to free."),
    knownAs: ["RxJS throwError", "Combine Fail", "ReactiveCocoa error:"],
    useCases: [.init(.reading, "end a signal with an error of my own", "error: there is no such user")],
    seeAlso: ["empty", "never", "try", "catch"])

  package var runsOnVirtualTime: Bool { true }
  package var once: (any SourceComponent)? { self }
  package var recovery: SourceRecovery { .made }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(message, nodeContext, downstream)
  }

  final class Node: RunningSource {
    private let message: TemplateParameter

    init(_ message: TemplateParameter, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.message = message
      super.init(nodeContext, downstream: downstream)
    }

    override func begin() {
      let frame = makeFrame()
      frame.loadNothing()
      let text = OutputBuffer()
      guard let error = message.renderShown(frame, into: text) else {
        finish(failing: SignalFailure(.user, String(decoding: text.bytes, as: UTF8.self), at: nodeContext.location))
        return
      }
      finish(
        failing: SignalFailure(
          .expression, message.program?.failureMessage(error, frame.frame) ?? "a template failed",
          at: message.location))
    }
  }
}
