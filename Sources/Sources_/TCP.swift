import PipelineCore
import Transport

/// `tcp`: receives messages over TCP.
package struct TCP: SourceComponent, ReceivingSource {
  var address = ReceivingAddress()
  package var decode = DecodeParameter(.text)
  var charset = CharsetParameter()
  var join: JoinParameter?
  var framing = FramingParameter()
  var maxMessage = ByteSize(1 << 20)
  var maxConnections = 1024
  var idleTimeout: TimeSpan?
  var maxRate: ByteSize?
  var receiveBuffer: ByteSize?
  var tls: ServingTLSParameter?
  var allowUnauthenticated = false

  package init() {}

  /// A message of another framing ends its last line.
  private static let decodeConditions: [String: Applicability] = {
    var conditions = DecodeParameter.withCharsetAndJoin
    conditions["container.wait"] = .all([.without("/join")] + FramingParameter.ofLines)
    return conditions
  }()

  package static let spec = ComponentSpec<TCP>(
    "tcp",
    summary: "Receives messages over TCP: lines, or messages that another framing ends.",
    details: """
      `meta.peer` is the address of the sender, `meta.subject` that of its certificate. By default it listens on the \
      loopback address; any other address requires `tls` with `clientCA`, or `allowUnauthenticated`.

      While the pipeline takes no input nothing is read, so the senders' systems hold back. The protocol has no \
      acknowledgement: a sender does not learn the fate of its messages. When the pipeline stops, what has arrived \
      is still sent. A reload keeps the port and the connections open.

      With `tls` the files are looked at again when connections come: those that come after a change have the new \
      certificate. With `address: systemd:NAME` the socket is the one that a systemd unit (`.socket`) has opened under \
      that `FileDescriptorName`.
      """,
    parameters: [
      .init(
        "address", \.address, primary: true, required: true,
        "HOST:PORT, a port on 127.0.0.1, or `systemd:NAME`."),
      .init("decode", \.decode, nested: decodeConditions, "How messages are decoded into events."),
      .init(
        "charset", \.charset,
        "How characters are encoded, such as `utf-16`, `latin1`, `windows-1252` or a name that `iconv -l` lists."),
      .init(
        "join", \.join, nested: JoinParameter.ofConnections,
        "Which lines make one event together, as with `file`; by default each is one."),
      .init("framing", \.framing, "How the stream is cut into messages."),
      .init("maxMessage", \.maxMessage, "The longest message; a longer one goes to the errors output."),
      .init(
        "maxConnections", \.maxConnections, range: 1...100_000,
        "The largest number of connections; further ones are closed at once."),
      .init(
        "idleTimeout", \.idleTimeout, range: 1_000_000...Int64.max,
        "How long a connection may send nothing before it is closed; by default forever."),
      .init("maxRate", \.maxRate, "The maximum bytes per second of each connection; by default there is no limit."),
      .init("receiveBuffer", \.receiveBuffer, "The system's buffer of each connection; by default the system decides."),
      .init("tls", \.tls, "The certificate; by default connections are not encrypted."),
      .init(
        "allowUnauthenticated", \.allowUnauthenticated, "Take events of everybody on an address other than loopback."),
    ],
    examples: [
      .snippet("lines of text", "tcp: 127.0.0.1:5170"),
      .snippet(
        "JSON documents, each after its length in two bytes",
        "tcp: { address: 5170, decode: json, framing: { by: length, bytes: 2 }, maxMessage: 64KiB }"),
      .snippet(
        "encrypted, for clients with a certificate",
        "tcp: { address: '0.0.0.0:6514', decode: ndjson, tls: { certificate: /etc/rxd/server.pem, clientCA: /etc/rxd/clients.pem } }"
      ),
    ],
    edges: EdgeCases(
      empty: "An empty line is an empty text; other decoders skip it.",
      error: """
        A port that cannot be used ends it with an error; a message that cannot be decoded, or is too long, goes to the \
        errors output.
        """,
      completion: "Only when the pipeline is stopped.",
      disposal: "Closes the port and the connections, after arrived messages were sent."),
    memory: """
      An incomplete message of each connection, up to `maxMessage`, and 64 MiB on all of them together: beyond, the connection with the longest is \
      closed, and that message goes to the errors output.
      """,
    knownAs: ["Vector socket", "Fluent Bit tcp", "Logstash tcp", "Benthos socket_server"],
    useCases: [
      .init(.reading, "receive lines over TCP", "tcp: 5170"),
      .init(.reading, "receive JSON over TCP", "tcp: { address: 5170, decode: ndjson }"),
    ],
    seeAlso: ["unix", "udp", "syslog", "httpServer"])

  package func validate(_ context: inout DecodingContext) {
    framing.check(&context)
    join?.check(decode.options, framing, &context)
    charset.check(decode.options, joins: false, &context)
    tls?.validate(at: "tls", &context)
    context.refuseOpenEndpoint(
      address, isKnown: tls?.clientCA != nil, isAllowed: allowUnauthenticated, canUseTLS: true)
  }

  /// How the lines of a stream become events.
  private var decoding: DecoderOptions {
    charset.reading(join?.joining(decode.options) ?? decode.options, maxLine: maxMessage)
  }
  /// How a message whose end the framing determines becomes events.
  private var decodingMessages: DecoderOptions { charset.reading(decode.options.ofMessages, maxLine: maxMessage) }

  package var outputType: EventType { decode.options.eventType }
  package var namesEvents: Bool { true }
  package var listens: ListenAddress? { address.listens(isDatagram: false) }
  package func threads(_ limit: Int?) -> String? { "received and decoded by a thread of its own" }

  var endpoint: SocketEndpoint { address.endpoint(isDatagram: false) }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    var options = StreamReceiver.Options()
    options.framing = framing.framing
    options.decoding =
      options.framing == .lines && decoding.framing.hasOpenEnd ? decoding : decodingMessages
    options.maxMessage = maxMessage.bytes
    options.maxConnections = maxConnections
    options.idleTimeout = idleTimeout
    options.maxRate = maxRate?.bytes
    options.receiveBuffer = receiveBuffer?.bytes
    return ReceivingNode(endpoint, .stream(options, tls?.files), nodeContext, downstream)
  }
}
