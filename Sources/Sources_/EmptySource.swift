import PipelineCore

/// `empty`: completes without an event.
package struct EmptySource: SourceComponent {
  package init() {}

  package static let spec = ComponentSpec<EmptySource>(
    "empty",
    summary: "Completes at once, without an event.",
    details: "Use it for a branch without events, and to test what an operator does at an early end.",
    examples: [
      .snippet("nothing", "empty: {}"),
      .pipeline(
        "a branch without events",
        """
        sources:
          asked: { stdin: { decode: json } }
          greeting: { values: [hello] }
          nothing: { empty: {} }
        signals:
          answer: { if: { condition: asked, then: greeting, else: nothing } }
        sinks:
          screen: { from: answer, stdout: {} }
        tests:
          - name: only when it is asked for
            inputs: { asked: { marbles: "-t-f|", values: { t: true, f: false } } }
            expect: { screen: { marbles: "-h--|", values: { h: hello } } }
        """),
    ],
    edges: EdgeCases(
      empty: "Always: it completes at once.", error: "It never fails.", completion: "At once.",
      disposal: "Nothing to free."),
    knownAs: ["RxJS EMPTY", "Combine Empty", "ReactiveCocoa empty"],
    useCases: [.init(.reading, "have a signal without events", "empty: {}")],
    seeAlso: ["never", "error", "values"])

  package var runsOnVirtualTime: Bool { true }
  package var once: (any SourceComponent)? { self }
  package var recovery: SourceRecovery { .made }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(nodeContext, downstream: downstream)
  }

  final class Node: RunningSource {
    override func begin() { finish() }
  }
}
