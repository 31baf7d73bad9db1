public import PipelineCore

/// `discard`: nowhere.
public struct Discard: SinkComponent {
  public init() {}

  public static let spec = ComponentSpec<Discard>(
    "discard",
    summary: "Counts events and throws them away.",
    examples: [.snippet("nothing", "discard")],
    rivals: ["Vector blackhole", "Benthos drop"], seeAlso: ["stdout"])

  public func makeSink(_ seat: Seat) -> RunningSink { Node(seat) }

  final class Node: RunningSink {
    override func receive(_ event: Event) { countSent() }
  }
}
