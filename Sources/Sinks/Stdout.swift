import Glibc
import PipelineCore
import Transport

/// `stdout`: standard output.
package struct Stdout: StreamSinkComponent {
  package var encode = EncodeParameter(.json)

  package init() {}

  package static let spec = ComponentSpec<Stdout>(
    "stdout",
    summary: "Writes events to standard output.",
    details: """
      On a terminal, control characters inside events are written as escapes, so that no event can control the \
      terminal. When the reader closes the pipe, the sink ends as if its signal had completed, and the pipeline \
      continues without it.
      """,
    parameters: [.init("encode", \.encode, primary: true, "How events are encoded as bytes.")],
    examples: [
      .snippet("a JSON document a line", "stdout: { encode: json }"),
      .snippet("text", "stdout: text"),
    ],
    edges: EdgeCases(
      empty: "Nothing is written.",
      error: "A write that fails ends the pipeline; a reader that goes away ends only the sink.",
      completion: "Waiting events are written first.",
      disposal: """
        Waiting events are written within the time limit for stopping.
        """),
    knownAs: ["Vector console", "Benthos stdout"],
    useCases: [
      .init(.writing, "see events on the screen or pipe them on", "stdout"),
      .init(.writing, "write plain lines of text", "stdout: { encode: text }"),
    ],
    seeAlso: ["stderr", "file"])

  package var threads: String? { StreamSink.threads }
  package var encoding: EncodeParameter? { encode }
  package var confirmation: SinkConfirmation { .system }
  package var streamEncoding: EncodeParameter? {
    var encode = encode
    encode.options.escapeControls = isatty(1) == 1
    return encode
  }

  var streamTarget: StreamTarget? { StreamTarget(target: .descriptor(.standardOutput), sync: .never) }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    StreamSink(nodeContext, streamEncoding ?? encode, .descriptor(.standardOutput))
  }
}
