import PipelineCore
import Transport

/// `syslog`: receives syslog messages.
package struct SyslogSource: SourceComponent, ReceivingSource {
  enum Carrier: String, ChoiceParameter {
    case udp, tcp
    var help: String {
      self == .udp
        ? "each datagram is a message" : "a stream; each message begins with its length or ends with its line"
    }
  }

  /// HOST:PORT, a port, `systemd:NAME`, or the path of a Unix socket.
  struct Address: ParameterValue {
    var address = ReceivingAddress()
    var path: String?
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape { ReceivingAddress.shape(range: range) }
    var defaultText: String? { nil }
    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Address? {
      if let text = node.string, text.hasPrefix("/") || text.hasPrefix("@") { return Address(path: text) }
      return ReceivingAddress.decode(node, &context).map { Address(address: $0) }
    }
  }

  var address = Address()
  var transport = Carrier.udp
  var mode = SocketMode(bits: 0o666)
  var strict = false
  var charset = CharsetParameter()
  var invalidUTF8 = InvalidTextParameter.reject
  var maxMessage = ByteSize(64 << 10)
  var maxConnections = 1024
  var idleTimeout: TimeSpan?
  var receiveBuffer: ByteSize?
  var tls: ServingTLSParameter?
  var allowUnauthenticated = false

  package init() {}

  package static let spec = ComponentSpec<SyslogSource>(
    "syslog",
    summary: "Receives syslog messages (RFC 5424 and RFC 3164) over UDP, TCP, TLS or a Unix socket.",
    details: """
      An event has `message`, `facility` and `severity` by name, `facilityCode` and `severityCode` by number, and, where the \
      message has them, `timestamp`, `hostname`, `appname`, `procid`, `msgid`, `version`, and `structuredData`: a map of \
      maps of texts, with a list where a parameter stands several times. The date of RFC 3164, which has neither a year nor \
      a zone, is the text `localTime`; `meta.time` says when the message came.

      A message that is not quite as its RFC says, as those of many devices, is read as far as it can be told, and the rest is `message`: without a \
      priority it is a notice of a user; a date may have a year, a fraction or a zone; a number and the name of a Cisco device may come before it \
      (`sequence`, `hostname`); CEF and pairs are the message. The list `guessed` names the members of such an event that no RFC makes \
      certain; other events have none, so `filter: "!has(event.guessed)"` passes the exact ones. A priority above 191 and a day that does not exist go to the errors output; with `strict`, \
      everything that the RFC does not allow does, with the reason and its place.

      Over TCP each message may begin with its length or end with its line (RFC 6587); its first byte tells. With a path \
      as its address it receives datagrams, as `/dev/log` does. `meta.peer` is the sender; of a Unix socket, `meta.pid` \
      and `meta.uid` are.

      Neither UDP nor TCP has an acknowledgement. UDP loses messages on the way, or where the system's `receiveBuffer` is \
      full. A reload keeps the socket and its connections. Any address but loopback requires `tls` with `clientCA`, or \
      `allowUnauthenticated`.
      """,
    parameters: [
      .init(
        "address", \.address, primary: true, required: true,
        "HOST:PORT, a port on 127.0.0.1, `systemd:NAME`, or the path of a Unix socket."),
      .init("transport", \.transport, "What carries the messages; a path has datagrams."),
      .init(
        "mode", \.mode, applies: .begins("address", ["/"]), "The permissions of the socket at a path, in octal digits."),
      .init("strict", \.strict, "Reject messages that are not as their RFC says."),
      .init(
        "charset", \.charset,
        "How characters are encoded: utf-8, latin1, windows-1252, or another one that iconv(3) knows."),
      .init("invalidUTF8", \.invalidUTF8, "What happens to a message that is not UTF-8."),
      .init("maxMessage", \.maxMessage, "The longest message; a longer one goes to the errors output."),
      .init(
        "maxConnections", \.maxConnections, range: 1...100_000,
        applies: .word("transport", ["tcp"]), "The largest number of connections; further ones are closed at once."),
      .init(
        "idleTimeout", \.idleTimeout, range: 1_000_000...Int64.max,
        applies: .word("transport", ["tcp"]),
        "How long a connection may send nothing before it is closed; by default forever."),
      .init("receiveBuffer", \.receiveBuffer, "The system's buffer; by default the system decides."),
      .init(
        "tls", \.tls, applies: .word("transport", ["tcp"]), "The certificate; by default connections are not encrypted."
      ),
      .init(
        "allowUnauthenticated", \.allowUnauthenticated, "Take messages of everybody on an address other than loopback."),
    ],
    examples: [
      .snippet("from programs of this machine", "syslog: 5514"),
      .snippet("over TCP", "syslog: { address: 5514, transport: tcp }"),
      .snippet("as /dev/log", "syslog: /run/rxd/log"),
    ],
    edges: EdgeCases(
      empty: "An empty message gives no event.",
      error: "An address that cannot be used ends it with an error; a malformed message goes to the errors output.",
      completion: "Only when the pipeline is stopped.",
      disposal: "Closes its place, after arrived messages were sent."),
    memory: "An incomplete message of each connection, up to `maxMessage`.",
    knownAs: ["Vector syslog", "Fluent Bit syslog", "Logstash syslog", "Telegraf syslog"],
    useCases: [
      .init(.reading, "receive syslog messages", "syslog: 5514"),
      .init(.reading, "receive syslog over TCP", "syslog: { address: 5514, transport: tcp }"),
    ],
    seeAlso: ["tcp", "udp", "unix"])

  package func validate(_ context: inout DecodingContext) {
    if let path = address.path {
      context.checkSocketPath(path, at: "address")
      if transport == .tcp {
        context.badValue(
          at: context.location(of: "transport"),
          "'transport: tcp' needs an address, and '\(Printable.cut(path))' is a path",
          .conflictingParameters, help: "Write HOST:PORT, or leave 'transport' out")
      }
    }
    if transport == .udp { context.checkDatagramSize(maxMessage) }
    charset.check(decoding, joins: false, &context)
    tls?.validate(at: "tls", &context)
    context.refuseOpenEndpoint(
      address.address, isKnown: tls?.clientCA != nil, isAllowed: allowUnauthenticated, canUseTLS: transport == .tcp)
  }

  private var decoding: DecoderOptions {
    var options = DecoderOptions(.syslog, unit: .body)
    options.isStrictSyslog = strict
    options.invalidUTF8 = invalidUTF8.value
    return charset.reading(options, maxLine: maxMessage)
  }

  package var outputType: EventType { decoding.eventType }
  package var namesEvents: Bool { true }
  package var listens: ListenAddress? {
    address.path.map { ListenAddress(ofSocket: $0) } ?? address.address.listens(isDatagram: transport == .udp)
  }
  package func threads(_ limit: Int?) -> String? { "received and decoded by a thread of its own" }

  var endpoint: SocketEndpoint {
    address.path.map { .unix(path: $0, isDatagram: true, mode: mode.bits) }
      ?? address.address.endpoint(isDatagram: transport == .udp)
  }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    guard transport == .tcp else {
      var options = DatagramReceiver.Options()
      options.decoding = decoding
      options.maxMessage = maxMessage.bytes
      options.receiveBuffer = receiveBuffer?.bytes
      return ReceivingNode(endpoint, .datagrams(options), nodeContext, downstream)
    }
    var options = StreamReceiver.Options()
    options.framing = .syslog
    options.decoding = decoding
    options.maxMessage = maxMessage.bytes
    options.maxConnections = maxConnections
    options.idleTimeout = idleTimeout
    options.receiveBuffer = receiveBuffer?.bytes
    return ReceivingNode(endpoint, .stream(options, tls?.files), nodeContext, downstream)
  }
}
