import PipelineCore
import Transport

/// `unix`: receives messages over a Unix socket.
package struct UnixSocket: SourceComponent, ReceivingSource {
  enum Kind: String, ChoiceParameter {
    case stream, datagram
    var help: String { self == .stream ? "programs connect" : "programs send datagrams, each a message" }
  }

  var path = ""
  var kind = Kind.stream
  var mode = SocketMode()
  package var decode = DecodeParameter(.text)
  var charset = CharsetParameter()
  var join: JoinParameter?
  var framing = FramingParameter()
  var maxMessage = ByteSize(64 << 10)
  var maxConnections = 1024
  var idleTimeout: TimeSpan?
  var receiveBuffer: ByteSize?

  package init() {}

  /// The end of a datagram, or of a message with another framing, also ends its last line.
  private static let decodeConditions: [String: Applicability] = {
    var conditions = DecodeParameter.withCharsetAndJoin
    conditions["container.wait"] = .all(
      [.word("/kind", ["stream"]), .without("/join")] + FramingParameter.ofLines)
    return conditions
  }()

  package static let spec = ComponentSpec<UnixSocket>(
    "unix",
    summary: "Receives messages over a Unix socket, as a stream or as datagrams.",
    details: """
      `meta.pid` and `meta.uid` are the process of the sender and its user, as the system knows them. Only the user of \
      the process may connect or send, unless `mode` says otherwise. The socket of a process that has ended is replaced; \
      a path that begins with `@` is an abstract name.

      While the pipeline takes no input nothing is read: the senders wait. A reload keeps the socket and its connections.
      """,
    parameters: [
      .init("path", \.path, primary: true, required: true, "The path, at most 107 bytes, or `systemd:NAME`."),
      .init("kind", \.kind, "What programs send."),
      .init(
        "mode", \.mode, applies: .notBegins("path", ["systemd:", "@"]),
        "The permissions of the socket, in octal digits."),
      .init("decode", \.decode, nested: decodeConditions, "How messages are decoded into events."),
      .init(
        "charset", \.charset,
        "How characters are encoded, such as `utf-16`, `latin1`, `windows-1252` or a name that `iconv -l` lists."),
      .init(
        "join", \.join, applies: .word("kind", ["stream"]), nested: JoinParameter.ofConnections,
        "Which lines make one event together, as with `file`; by default each is one."),
      .init("framing", \.framing, applies: .word("kind", ["stream"]), "How a stream is cut into messages."),
      .init("maxMessage", \.maxMessage, "The longest message; a longer one goes to the errors output."),
      .init(
        "maxConnections", \.maxConnections, range: 1...100_000,
        applies: .word("kind", ["stream"]), "The largest number of connections; further ones are closed at once."),
      .init(
        "idleTimeout", \.idleTimeout, range: 1_000_000...Int64.max,
        applies: .word("kind", ["stream"]),
        "How long a connection may send nothing before it is closed; by default forever."),
      .init("receiveBuffer", \.receiveBuffer, "The system's buffer; by default the system decides."),
    ],
    examples: [
      .snippet("lines of local programs", "unix: /run/rxd/events.sock"),
      .snippet(
        "datagrams of a group of users",
        "unix: { path: /run/rxd/events.sock, kind: datagram, mode: '0660', decode: json }"),
    ],
    edges: EdgeCases(
      empty: "An empty message is an empty text; other decoders skip it.",
      error:
        "A path that cannot be used ends it with an error; a message that cannot be decoded goes to the errors output.",
      completion: "Only when the pipeline is stopped.",
      disposal: "Removes the socket, after arrived messages were sent."),
    memory: """
      An incomplete message of each connection, up to `maxMessage`, and 64 MiB on all of them together: beyond, the connection with the longest is \
      closed, and that message goes to the errors output.
      """,
    knownAs: ["Vector socket", "Fluent Bit unix_socket", "Logstash unix"],
    useCases: [.init(.reading, "receive events of local programs", "unix: /run/rxd/events.sock")],
    seeAlso: ["tcp", "udp", "syslog"])

  package func validate(_ context: inout DecodingContext) {
    framing.check(&context)
    join?.check(decode.options, framing, &context)
    charset.check(decode.options, joins: false, &context)
    context.checkSocketPath(path, at: "path")
    if kind == .datagram { context.checkDatagramSize(maxMessage) }
  }

  package var listens: ListenAddress? { ListenAddress(ofSocket: path) }
  /// How the lines of a stream become events.
  private var decoding: DecoderOptions {
    charset.reading(join?.joining(decode.options) ?? decode.options, maxLine: maxMessage)
  }
  /// How a message whose end the framing determines becomes events.
  private var decodingMessages: DecoderOptions { charset.reading(decode.options.ofMessages, maxLine: maxMessage) }

  package var outputType: EventType { decode.options.eventType }
  package var namesEvents: Bool { true }
  package func threads(_ limit: Int?) -> String? { "received and decoded by a thread of its own" }

  var endpoint: SocketEndpoint { .local(path, isDatagram: kind == .datagram, mode: mode.bits) }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    guard kind == .stream else {
      var options = DatagramReceiver.Options()
      options.decoding = decodingMessages
      options.maxMessage = maxMessage.bytes
      options.receiveBuffer = receiveBuffer?.bytes
      return ReceivingNode(endpoint, .datagrams(options), nodeContext, downstream)
    }
    var options = StreamReceiver.Options()
    options.framing = framing.framing
    options.decoding =
      options.framing == .lines && decoding.framing.hasOpenEnd ? decoding : decodingMessages
    options.maxMessage = maxMessage.bytes
    options.maxConnections = maxConnections
    options.idleTimeout = idleTimeout
    options.receiveBuffer = receiveBuffer?.bytes
    return ReceivingNode(endpoint, .stream(options, nil), nodeContext, downstream)
  }
}

extension SocketEndpoint {
  /// A path, or `systemd:NAME`.
  static func local(_ path: String, isDatagram: Bool, mode: UInt32) -> SocketEndpoint {
    path.hasPrefix("systemd:")
      ? .activated(name: String(path.dropFirst("systemd:".count)), isDatagram: isDatagram)
      : .unix(path: path, isDatagram: isDatagram, mode: mode)
  }
}

extension ListenAddress {
  /// Nil if the service manager opens the socket, or the path is not known yet.
  init?(ofSocket path: String) {
    if path.hasPrefix("systemd:") || path.contains("${") { return nil }
    self.init(socket: path)
  }
}
