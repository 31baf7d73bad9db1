import PipelineCore

/// `never`: sends nothing and never ends.
package struct NeverSource: SourceComponent {
  package init() {}

  package static let spec = ComponentSpec<NeverSource>(
    "never",
    summary: "Sends nothing and does not end.",
    details: "Like every source, it ends when the pipeline is stopped.",
    examples: [
      .snippet("neither an event nor an end", "never: {}"),
      .pipeline(
        "a time-out that is sure to come",
        """
        sources:
          silence: { never: {} }
        signals:
          late:
            from: silence
            chain: [ { timeout: 3s }, { catch: { value: error.kind } } ]
        sinks:
          screen: { from: late, stdout: {} }
        tests:
          - name: after three seconds
            expect: { screen: [ { at: 3s, next: timeout }, { complete: true } ] }
        """),
    ],
    edges: EdgeCases(
      empty: "It neither sends nor ends.", error: "", completion: "Only when the pipeline is stopped.",
      disposal: "Nothing to free."),
    knownAs: ["RxJS NEVER", "Combine Empty(completeImmediately: false)", "ReactiveCocoa never"],
    useCases: [.init(.reading, "have a silent signal, to test time-outs", "never: {}")],
    seeAlso: ["empty", "error"])

  package var runsOnVirtualTime: Bool { true }
  package var once: (any SourceComponent)? { EmptySource() }
  package var recovery: SourceRecovery { .made }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(nodeContext, downstream: downstream)
  }

  final class Node: RunningSource {}
}
