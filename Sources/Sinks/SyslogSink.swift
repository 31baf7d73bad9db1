import PipelineCore
import Transport

/// `syslog`: sends events as syslog messages.
package struct SyslogSink: SinkComponent {
  enum Carrier: String, ChoiceParameter {
    case udp, tcp
    var help: String { self == .udp ? "each message is a datagram" : "messages follow each other in a stream" }
  }
  enum Format: String, ChoiceParameter {
    case rfc5424, rfc3164
    var help: String {
      self == .rfc5424 ? "with a full time and structured data" : "the older form, with its time in UTC"
    }
  }
  enum Framing: String, ChoiceParameter {
    case octets, lines
    var help: String {
      self == .octets
        ? "the length of a message comes before it" : "a line feed ends it; those inside are written as \\n"
    }
  }
  /// One of the names of RFC 5424.
  struct Facility: ParameterValue {
    var number = 1
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
      .choice(SyslogNames.facilities.enumerated().map { .init("\($1)", "facility \($0)") })
    }
    var defaultText: String? { "\(SyslogNames.facilities[number])" }
    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Facility? {
      SyslogSink.number(node, SyslogNames.facilities, &context).map { Facility(number: $0) }
    }
  }
  struct Severity: ParameterValue {
    var number = 6
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
      .choice(SyslogNames.severities.enumerated().map { .init("\($1)", "severity \($0)") })
    }
    var defaultText: String? { "\(SyslogNames.severities[number])" }
    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Severity? {
      SyslogSink.number(node, SyslogNames.severities, &context).map { Severity(number: $0) }
    }
  }
  private static func number(
    _ node: YAMLNode, _ names: [StaticString], _ context: inout DecodingContext
  ) -> Int? {
    if node.scalar?.isPlaceholder == true { return 0 }
    let known = names.map { "\($0)" }
    if let text = node.string, let index = known.firstIndex(of: text) { return index }
    context.badValue(
      node, "'\(context.parameter)' of '\(context.component)' cannot be '\(node.shown)'", .unknownChoice,
      help: "It can be: " + known.joined(separator: ", "))
    return nil
  }

  var target = Target()
  var transport = Carrier.udp
  var format = Format.rfc5424
  var framing = Framing.octets
  var facility = Facility()
  var severity = Severity()
  var hostname = ""
  var appname = "rxd"
  var tls: TLSParameter?
  var serverName: String?
  var reconnect = ReconnectParameter()
  var queue = ByteSize(16 << 20)
  /// HOST:PORT, a port, or a path.
  struct Target: ParameterValue {
    var network: NetworkAddress?
    var path: String?
    static func shape(range: ClosedRange<Int64>?) -> ParameterShape { NetworkAddress.shape(range: range) }
    var defaultText: String? { nil }
    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Target? {
      if let text = node.string, text.hasPrefix("/") || text.hasPrefix("@") { return Target(path: text) }
      return NetworkAddress.decode(node, &context).map { Target(network: $0) }
    }
  }

  package init() {}

  package static let spec = ComponentSpec<SyslogSink>(
    "syslog",
    summary: "Sends events as syslog messages (RFC 5424 or RFC 3164) over UDP, TCP, TLS or to a Unix socket.",
    details: """
      A map has the parts of the message: `message`, `facility` and `severity` (by name) or `facilityCode` and \
      `severityCode` (by number), `timestamp`, `hostname`, `appname`, `procid`, `msgid`, and `structuredData`, a map of maps. \
      These are the members that the source `syslog` makes. What is missing comes from the parameters, the time is that of \
      sending. A map without any of them, or any other event, is the message itself. What a part cannot contain becomes \
      `_`, and values longer than the RFC allows are cut.

      Over UDP an event counts as delivered when the system has taken it; over TCP when the receiver's system has confirmed \
      its bytes. Neither tells whether the receiver has kept it. While it cannot connect, events wait: beyond `queue` the \
      pipeline reads no further input.
      """,
    parameters: [
      .init(
        "address", \.target, primary: true, required: true,
        "HOST:PORT, a port on 127.0.0.1, or the path of a Unix socket such as /dev/log."),
      .init("transport", \.transport, "What carries the messages; a path takes datagrams."),
      .init("format", \.format, "The form of the messages."),
      .init("framing", \.framing, applies: .word("transport", ["tcp"]), "How messages are delimited."),
      .init("facility", \.facility, "The facility of events that have none."),
      .init("severity", \.severity, "The severity of events that have none."),
      .init("hostname", \.hostname, "The host name of events that have none; by default none is sent."),
      .init("appname", \.appname, "The program of events that have none."),
      .init("tls", \.tls, applies: .word("transport", ["tcp"]), "Encrypts the connection."),
      .init(
        "serverName", \.serverName, applies: .with("tls"),
        "The name that the server's certificate must have; by default the host."),
      .init("reconnect", \.reconnect, "The pauses between attempts to connect."),
      .init("queue", \.queue, "How much may wait."),
    ],
    examples: [
      .snippet("to the system's log", "syslog: /dev/log"),
      .snippet("over TCP", "syslog: { address: 'logs.example.org:514', transport: tcp, appname: shop }"),
    ],
    edges: EdgeCases(
      empty: "Nothing is sent.",
      error: "A lost connection is reopened, forever; an event that cannot be encoded goes to the errors output.",
      completion: "Waiting events are sent first.",
      disposal: """
        Waiting events are sent within the time limit for stopping; the rest goes to the errors output. Without a \
        reader these events become dead letters or, without a state directory, a number in a warning.
        """),
    memory: "Waiting events, up to `queue`, and those that the receiver's system has not confirmed.",
    persistence: .position(version: 1),
    knownAs: ["Fluent Bit syslog", "Logstash syslog", "Telegraf syslog"],
    useCases: [
      .init(.writing, "send events to a syslog server", "syslog: { address: '127.0.0.1:514', transport: tcp }"),
      .init(.writing, "write to the system's log", "syslog: /dev/log"),
    ],
    seeAlso: ["tcp", "udp", "unix"])

  package func validate(_ context: inout DecodingContext) {
    tls?.validate(at: "tls", &context)
    if let network = target.network { context.checkTarget(network) }
    if let path = target.path, transport == .tcp {
      context.badValue(
        at: context.location(of: "transport"),
        "'transport: tcp' needs an address, and '\(Printable.cut(path))' is a path",
        .conflictingParameters, help: "Write HOST:PORT, or leave 'transport' out")
    }
  }

  package var threads: String? { "encoded on the pipeline thread, sent by a thread of its own" }
  package var sendsTo: [TargetAddress] {
    if let path = target.path { return path.contains("${") ? [] : [TargetAddress(ListenAddress(socket: path))] }
    return target.network?.targets(isDatagram: transport == .udp) ?? []
  }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    let isStream = transport == .tcp
    let endpoint: SocketEndpoint =
      if let path = target.path { .unix(path: path, isDatagram: true) } else {
        .network(
          host: target.network?.host ?? "127.0.0.1", port: target.network?.port ?? 0, isDatagram: !isStream)
      }
    var settings = MessageConnector.Settings(endpoint: endpoint, encode: EncodeParameter(.json))
    settings.framing = framing == .octets ? .octets : .lines
    settings.maxMessage = isStream ? .max : UDPSink.largest
    settings.queue = queue.bytes
    settings.options.tls = tls?.value
    settings.options.serverName = serverName
    settings.attempts = reconnect.attempts
    settings.syslog = encodingOfMessages
    return MessageConnector(settings, nodeContext).sink(nodeContext)
  }

  package var shownEncoder: ShownEncoder? { ShownEncoder(SyslogEncoder(encodingOfMessages)) }

  private var encodingOfMessages: SyslogEncoding {
    var encoding = SyslogEncoding()
    encoding.isOld = format == .rfc3164
    encoding.facility = facility.number
    encoding.severity = severity.number
    encoding.hostname = hostname
    encoding.appname = appname
    encoding.isLine = transport == .tcp && framing == .lines
    return encoding
  }
}
