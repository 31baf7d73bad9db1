import Glibc
import PipelineCore
import Transport

/// `stderr`: standard error.
package struct Stderr: StreamSinkComponent {
  package var encode = EncodeParameter(.json)

  package init() {}

  package static let spec = ComponentSpec<Stderr>(
    "stderr",
    summary: "Writes events to standard error.",
    details: "On a terminal, control characters inside events are written as escapes.",
    parameters: [.init("encode", \.encode, primary: true, "How events are encoded as bytes.")],
    examples: [.snippet("text", "stderr: text")],
    edges: EdgeCases(
      empty: "Nothing is written.", error: "A write that fails ends the pipeline.",
      completion: "Waiting events are written first.",
      disposal: """
        Waiting events are written within the time limit for stopping.
        """),
    knownAs: ["Vector console with target stderr"],
    useCases: [
      .init(.writing, "write events to standard error", "stderr")
    ],
    seeAlso: ["stdout"])

  package var threads: String? { StreamSink.threads }
  package var encoding: EncodeParameter? { encode }
  package var confirmation: SinkConfirmation { .system }
  package var streamEncoding: EncodeParameter? {
    var encode = encode
    encode.options.escapeControls = isatty(2) == 1
    return encode
  }

  var streamTarget: StreamTarget? { StreamTarget(target: .descriptor(.standardError), sync: .never) }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    StreamSink(nodeContext, streamEncoding ?? encode, .descriptor(.standardError))
  }
}
