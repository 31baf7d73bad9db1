import PipelineCore

/// `discard`: counts events and drops them.
package struct Discard: SinkComponent {
  package init() {}

  package static let spec = ComponentSpec<Discard>(
    "discard",
    summary: "Counts and discards events.",
    details: "Use it to run a chain for the effect of its steps, such as `do` or `log`.",
    examples: [.snippet("nothing", "discard")],
    edges: EdgeCases(
      empty: "Nothing is written.", error: "Ends the pipeline.", completion: "Done at once.",
      disposal: ""),
    knownAs: ["Vector blackhole", "Benthos drop"],
    useCases: [
      .init(.writing, "run a chain for its side effects only", "discard")
    ],
    seeAlso: ["stdout"])

  package var confirmation: SinkConfirmation { .dropped }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(nodeContext) }

  final class Node: RunningSink {
    override func receive(_ event: Event) { delivered() }
  }
}
