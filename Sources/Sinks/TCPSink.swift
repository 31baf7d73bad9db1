import PipelineCore
import Transport

/// `tcp`: sends messages over TCP.
package struct TCPSink: SinkComponent {
  var address = NetworkAddress()
  package var encode = EncodeParameter(.json)
  var framing = SentFraming.lines
  var tls: TLSParameter?
  var serverName: String?
  var connectTimeout = TimeSpan.seconds(10)
  var reconnect = ReconnectParameter()
  var queue = ByteSize(16 << 20)

  package init() {}

  package static let spec = ComponentSpec<TCPSink>(
    "tcp",
    summary: "Sends events over TCP, each a message.",
    details: """
      It connects when the first event comes. While it cannot connect, events wait: beyond `queue` the pipeline reads no \
      further input. The log says when that begins and when events flow again.

      TCP has no acknowledgement of messages: an event counts as delivered when the receiver's system has confirmed its \
      bytes. If a connection breaks before, the event is sent again on the next one, so a receiver may see it twice. What \
      its program has not yet read when it ends is lost, without a report. With `tls` nothing counts as delivered in the first \
      500 ms of a connection: a server may refuse a client's certificate that late. With `encode: csv` there is no header.

      In a reload the connection goes on. If the parameters have changed, it has 2 s to send what was begun; the rest is sent over a new one, from the start of \
      a message.
      """,
    parameters: [
      .init("address", \.address, primary: true, required: true, "HOST:PORT, or a port on 127.0.0.1."),
      .init("encode", \.encode, nested: EncodeParameter.ofMessages, "How events are encoded as bytes."),
      .init("framing", \.framing, "How messages are delimited."),
      .init("tls", \.tls, "Encrypts the connection; `tls: {}` trusts the certificates that the system trusts."),
      .init(
        "serverName", \.serverName, applies: .with("tls"),
        "The name that the server's certificate must have; by default the host."),
      .init(
        "connectTimeout", \.connectTimeout, range: 1_000_000...Int64.max, "How long connecting may take, TLS included."),
      .init("reconnect", \.reconnect, "The pauses between attempts to connect."),
      .init("queue", \.queue, "How much may wait."),
    ],
    examples: [
      .snippet("a line for each event", "tcp: 127.0.0.1:5170"),
      .snippet(
        "encrypted, with a certificate of the sender",
        "tcp: { address: 'logs.example.org:6514', tls: { certificate: /etc/rxd/client.pem, key: /etc/rxd/client.key } }"
      ),
    ],
    edges: EdgeCases(
      empty: "Nothing is connected.",
      error: "A lost connection is reopened, forever; an event that cannot be encoded goes to the errors output.",
      completion: "Waiting events are sent first.",
      disposal: """
        Waiting events are sent within the time limit for stopping; the rest goes to the errors output. Without a \
        reader these events become dead letters or, without a state directory, a number in a warning.
        """),
    memory: "Waiting events, up to `queue`, and those that the receiver's system has not confirmed.",
    persistence: .position(version: 1),
    knownAs: ["Vector socket", "Fluent Bit tcp", "Logstash tcp", "Benthos socket"],
    useCases: [.init(.writing, "send lines over TCP", "tcp: 127.0.0.1:5170")],
    seeAlso: ["unix", "udp", "syslog", "http"])

  package func validate(_ context: inout DecodingContext) {
    tls?.validate(at: "tls", &context)
    context.checkTarget(address)
  }

  package var encoding: EncodeParameter? { encode }
  package var sendsTo: [TargetAddress] { address.targets(isDatagram: false) }
  package var threads: String? { "encoded on the pipeline thread, sent by a thread of its own" }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    var settings = MessageConnector.Settings(
      endpoint: .network(host: address.host, port: address.port, isDatagram: false), encode: encode)
    settings.framing = framing
    settings.queue = queue.bytes
    settings.options.tls = tls?.value
    settings.options.serverName = serverName
    settings.options.connectTimeout = connectTimeout
    settings.attempts = reconnect.attempts
    return MessageConnector(settings, nodeContext).sink(nodeContext)
  }
}

extension NetworkAddress {
  /// Empty: not known yet.
  func targets(isDatagram: Bool) -> [TargetAddress] {
    location.map { [TargetAddress(ListenAddress(host: host, port: port, location: $0, isDatagram: isDatagram))] } ?? []
  }
}

extension DecodingContext {
  /// Reports an invalid port.
  mutating func checkTarget(_ address: NetworkAddress) {
    guard address.port == 0, let location = address.location else { return }
    badValue(at: location, "nothing can be sent to port 0", help: "Write HOST:PORT such as 127.0.0.1:5170")
  }
}
