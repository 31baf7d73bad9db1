import PipelineCore
import Transport

/// `udp`: sends datagrams.
package struct UDPSink: SinkComponent {
  var address = NetworkAddress()
  package var encode = EncodeParameter(.json)
  var queue = ByteSize(16 << 20)

  package init() {}

  /// The largest payload of a datagram over IPv4.
  static let largest = 65_507

  package static let spec = ComponentSpec<UDPSink>(
    "udp",
    summary: "Sends each event as a UDP datagram.",
    details: """
      An event counts as delivered when the system has taken it. Datagrams may be lost on the way, without a report. One \
      of more than 65,507 bytes, or of more than the system sends, goes to the errors output; those of more than about 1,400 bytes are lost more often.
      """,
    parameters: [
      .init("address", \.address, primary: true, required: true, "HOST:PORT, or a port on 127.0.0.1."),
      .init("encode", \.encode, nested: EncodeParameter.ofMessages, "How events are encoded as bytes."),
      .init("queue", \.queue, "How much may wait while the host cannot be resolved or reached."),
    ],
    examples: [.snippet("a JSON document in each datagram", "udp: 127.0.0.1:5170")],
    edges: EdgeCases(
      empty: "Nothing is sent.",
      error: "An event that cannot be encoded, or is too large, goes to the errors output.",
      completion: "Waiting events are sent first.",
      disposal: """
        Waiting events are sent within the time limit for stopping; the rest goes to the errors output. Without a \
        reader these events become dead letters or, without a state directory, a number in a warning.
        """),
    memory: "Waiting events, up to `queue`.", persistence: .position(version: 1),
    knownAs: ["Vector socket", "Logstash udp"],
    useCases: [.init(.writing, "send datagrams", "udp: 127.0.0.1:5170")],
    seeAlso: ["tcp", "unix", "syslog"])

  package func validate(_ context: inout DecodingContext) { context.checkTarget(address) }

  package var encoding: EncodeParameter? { encode }
  package var sendsTo: [TargetAddress] { address.targets(isDatagram: true) }
  package var threads: String? { "encoded on the pipeline thread, sent by a thread of its own" }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    var settings = MessageConnector.Settings(
      endpoint: .network(host: address.host, port: address.port, isDatagram: true), encode: encode)
    settings.maxMessage = Self.largest
    settings.queue = queue.bytes
    return MessageConnector(settings, nodeContext).sink(nodeContext)
  }
}
