import PipelineCore
import Transport

/// `unix`: sends messages to a Unix socket.
package struct UnixSink: SinkComponent {
  enum Kind: String, ChoiceParameter {
    case stream, datagram
    var help: String { self == .stream ? "it connects" : "each event is a datagram" }
  }

  var path = ""
  var kind = Kind.stream
  package var encode = EncodeParameter(.json)
  var framing = SentFraming.lines
  var reconnect = ReconnectParameter()
  var queue = ByteSize(16 << 20)

  package init() {}

  package static let spec = ComponentSpec<UnixSink>(
    "unix",
    summary: "Sends events to a Unix socket, as a stream or as datagrams.",
    details: """
      Without a receiver events wait: beyond `queue` the pipeline reads no further input. An event of a stream \
      counts as delivered when the receiver has read its bytes, a datagram when it waits in the receiver's socket.
      """,
    parameters: [
      .init("path", \.path, primary: true, required: true, "The path; one that begins with `@` is an abstract name."),
      .init("kind", \.kind, "What the receiver takes."),
      .init("encode", \.encode, nested: EncodeParameter.ofMessages, "How events are encoded as bytes."),
      .init("framing", \.framing, applies: .word("kind", ["stream"]), "How the messages of a stream are delimited."),
      .init("reconnect", \.reconnect, "The pauses between attempts to connect."),
      .init("queue", \.queue, "How much may wait."),
    ],
    examples: [.snippet("a line for each event", "unix: /run/app/events.sock")],
    edges: EdgeCases(
      empty: "Nothing is connected.",
      error: "A lost connection is reopened, forever; an event that cannot be encoded goes to the errors output.",
      completion: "Waiting events are sent first.",
      disposal: """
        Waiting events are sent within the time limit for stopping; the rest goes to the errors output. Without a \
        reader these events become dead letters or, without a state directory, a number in a warning.
        """),
    memory: "Waiting events, up to `queue`, and those that the receiver has not read.",
    persistence: .position(version: 1),
    knownAs: ["Vector socket"],
    useCases: [.init(.writing, "send events to a local program", "unix: /run/app/events.sock")],
    seeAlso: ["tcp", "udp", "syslog"])

  package func validate(_ context: inout DecodingContext) {
    context.checkSocketPath(path, at: "path")
  }

  package var encoding: EncodeParameter? { encode }
  package var sendsTo: [TargetAddress] { path.contains("${") ? [] : [TargetAddress(ListenAddress(socket: path))] }
  package var threads: String? { "encoded on the pipeline thread, sent by a thread of its own" }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    var settings = MessageConnector.Settings(endpoint: .unix(path: path, isDatagram: kind == .datagram), encode: encode)
    settings.framing = framing
    settings.maxMessage = kind == .datagram ? 64 << 10 : .max
    settings.queue = queue.bytes
    settings.attempts = reconnect.attempts
    return MessageConnector(settings, nodeContext).sink(nodeContext)
  }
}
