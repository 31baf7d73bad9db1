import Glibc
public import PipelineCore
import Transport

/// `stdout`: standard output.
public struct Stdout: SinkComponent {
  public var encode = EncodeParameter(.json)

  public init() {}

  public static let spec = ComponentSpec<Stdout>(
    "stdout",
    summary: "Writes events to standard output.",
    details: """
      On a terminal, control characters inside events are written as escapes, so that no event can \
      drive the terminal. When the reader closes the pipe, the sink ends as if its signal had \
      completed, and the pipeline goes on without it.
      """,
    parameters: [.init("encode", \.encode, primary: true, "How events become bytes.")],
    examples: [
      .snippet("a JSON document a line", "stdout: { encode: json }"),
      .snippet("text", "stdout: text"),
    ],
    rivals: ["Vector console", "Benthos stdout"], seeAlso: ["stderr", "file"])

  public func makeSink(_ seat: Seat) -> RunningSink {
    var encode = encode
    encode.options.escapeControls = isatty(1) == 1
    return StreamSink(seat, encode.makeEncoder(), .descriptor(.standardOutput))
  }
}
