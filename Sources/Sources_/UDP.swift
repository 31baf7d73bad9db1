import PipelineCore
import Transport

/// `udp`: receives datagrams.
package struct UDP: SourceComponent, ReceivingSource {
  var address = ReceivingAddress()
  package var decode = DecodeParameter(.text)
  var charset = CharsetParameter()
  var maxMessage = ByteSize(64 << 10)
  var receiveBuffer: ByteSize?
  var allowUnauthenticated = false

  package init() {}

  package static let spec = ComponentSpec<UDP>(
    "udp",
    summary: "Receives UDP datagrams, each a message.",
    details: """
      `meta.peer` is the address of the sender; it can be forged. By default it listens on the loopback address; \
      any other address requires `allowUnauthenticated`.

      Datagrams may be lost on the way, without a report. While the pipeline takes no input they wait in the system's \
      buffer, `receiveBuffer`; the system drops datagrams that do not fit. The log says how many, as far as the kernel \
      does. A reload keeps the socket with what waits in it.
      """,
    parameters: [
      .init(
        "address", \.address, primary: true, required: true,
        "HOST:PORT, a port on 127.0.0.1, or `systemd:NAME`."),
      .init(
        "decode", \.decode, nested: DecodeParameter.ofMessagesWithCharset, "How datagrams are decoded into events."),
      .init(
        "charset", \.charset,
        "How characters are encoded, such as `utf-16`, `latin1`, `windows-1252` or a name that `iconv -l` lists."),
      .init("maxMessage", \.maxMessage, "The longest datagram, at most 64KiB; a longer one goes to the errors output."),
      .init(
        "receiveBuffer", \.receiveBuffer,
        "The system's buffer; by default the system decides. The log says if it grants less."),
      .init(
        "allowUnauthenticated", \.allowUnauthenticated, "Take events of everybody on an address other than loopback."),
    ],
    examples: [
      .snippet("texts", "udp: 127.0.0.1:5170"),
      .snippet("JSON documents, and room for bursts", "udp: { address: 5170, decode: json, receiveBuffer: 4MiB }"),
    ],
    edges: EdgeCases(
      empty: "An empty datagram is an empty text; other decoders skip it.",
      error:
        "A port that cannot be used ends it with an error; a datagram that cannot be decoded goes to the errors output.",
      completion: "Only when the pipeline is stopped.",
      disposal: "Closes the port, after what waits in it was sent."),
    knownAs: ["Vector socket", "Fluent Bit udp", "Logstash udp"],
    useCases: [.init(.reading, "receive datagrams", "udp: 5170")],
    seeAlso: ["tcp", "unix", "syslog"])

  package func validate(_ context: inout DecodingContext) {
    context.checkDatagramSize(maxMessage)
    charset.check(decode.options, joins: false, &context)
    context.refuseOpenEndpoint(address, isKnown: false, isAllowed: allowUnauthenticated, canUseTLS: false)
  }

  package var outputType: EventType { decode.options.eventType }
  package var namesEvents: Bool { true }
  package var listens: ListenAddress? { address.listens(isDatagram: true) }
  package func threads(_ limit: Int?) -> String? { "received and decoded by a thread of its own" }

  var endpoint: SocketEndpoint { address.endpoint(isDatagram: true) }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    var options = DatagramReceiver.Options()
    options.decoding = charset.reading(decode.options.ofMessages, maxLine: maxMessage)
    options.maxMessage = maxMessage.bytes
    options.receiveBuffer = receiveBuffer?.bytes
    return ReceivingNode(endpoint, .datagrams(options), nodeContext, downstream)
  }
}

extension DecodingContext {
  /// Reports a limit that no datagram can have.
  mutating func checkDatagramSize(_ size: ByteSize) {
    guard size.bytes > 64 << 10 || size.bytes < 1 else { return }
    badValue(
      at: location(of: "maxMessage"),
      "'maxMessage' of '\(component)' is \(size.defaultText ?? "0"), but a datagram has at most 64KiB",
      help: "Write at most 64KiB")
  }
}
