public import PipelineCore

/// `discard`: nowhere.
public struct Discard: SinkComponent {
  public init() {}

  public static let spec = ComponentSpec<Discard>(
    "discard",
    summary: "Counts events and throws them away.",
    details: "It makes a chain run whose work is done by its steps, a `do` or a `log` for instance.",
    examples: [.snippet("nothing", "discard")],
    edges: EdgeCases(
      empty: "Nothing is written.", error: "Ends the pipeline, as everywhere.", completion: "Done at once.",
      disposal: ""),
    knownAs: ["Vector blackhole", "Benthos drop"],
    useCases: [
      .init(.writing, "run a chain for its side effects only", "discard")
    ],
    seeAlso: ["stdout"])

  public func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(nodeContext) }

  final class Node: RunningSink {
    override func receive(_ event: Event) { countSent() }
  }
}
