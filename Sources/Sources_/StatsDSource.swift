import PipelineCore
import Transport

/// `statsd`: receives StatsD metrics.
package struct StatsDSource: SourceComponent, ReceivingSource {
  var address = SyslogSource.Address()
  var transport = SyslogSource.Carrier.udp
  var mode = SocketMode(bits: 0o666)
  var maxMessage = ByteSize(64 << 10)
  var maxConnections = 1024
  var idleTimeout: TimeSpan?
  var receiveBuffer: ByteSize?
  var allowUnauthenticated = false

  package init() {}

  package static let spec = ComponentSpec<StatsDSource>(
    "statsd",
    summary: "Receives metrics of StatsD, with the tags of DogStatsD, over UDP, TCP or a Unix socket.",
    details: """
      Each line is a metric: `NAME:VALUE|TYPE|@RATE|#TAG:VALUE,TAG`. An event is `{ name, type, labels, value, sampleRate }`, the shape that the \
      source `host`, `decode: prometheus` and the sink `prometheusExporter` have. `type` is `counter` (`c`), `gauge` (`g`), `timer` \
      (`ms`, in milliseconds), `histogram` (`h`), `distribution` (`d`) or `set` (`s`, whose value is a text). `labels` are the tags. Several values in a line \
      are an event each.

      Nothing is added up here: `relative` is true for counters, and for gauges with a sign, whose values are changes. `event.value / event.sampleRate` \
      is what a sampled counter stands for. `aggregate`, `window` and `prometheusExporter` add up. `timestamp` and `container` are those of DogStatsD. \
      A line that is no metric goes to the errors output, as do its events and service checks.

      `decode: statsd` reads the same of any other source. UDP loses datagrams on the way, or where the system's `receiveBuffer` is full. \
      A reload keeps the socket.
      """,
    parameters: [
      .init(
        "address", \.address, primary: true, required: true,
        "HOST:PORT, a port on 127.0.0.1 (8125 is usual), `systemd:NAME`, or the path of a Unix socket, which takes datagrams."
      ),
      .init("transport", \.transport, "What carries the metrics; a path has datagrams."),
      .init(
        "mode", \.mode, applies: .begins("address", ["/"]), "The permissions of the socket at a path, in octal digits."),
      .init("maxMessage", \.maxMessage, "The longest datagram or line; a longer one goes to the errors output."),
      .init(
        "maxConnections", \.maxConnections, range: 1...100_000,
        applies: .word("transport", ["tcp"]), "The largest number of connections; further ones are closed at once."),
      .init(
        "idleTimeout", \.idleTimeout, range: 1_000_000...Int64.max,
        applies: .word("transport", ["tcp"]),
        "How long a connection may send nothing before it is closed; by default forever."),
      .init("receiveBuffer", \.receiveBuffer, "The system's buffer; by default the system decides."),
      .init(
        "allowUnauthenticated", \.allowUnauthenticated, "Take metrics of everybody on an address other than loopback."),
    ],
    examples: [
      .snippet("from programs of this machine", "statsd: 8125"),
      .snippet("with room for bursts", "statsd: { address: 8125, receiveBuffer: 4MiB }"),
      .snippet("as the agent of Datadog", "statsd: /run/rxd/dsd.socket"),
    ],
    edges: EdgeCases(
      empty: "An empty datagram gives no event.",
      error: "An address that cannot be used ends it with an error; a malformed line goes to the errors output.",
      completion: "Only when the pipeline is stopped.",
      disposal: "Closes its place, after arrived messages were sent."),
    memory: "An incomplete line of each connection, up to `maxMessage`.",
    knownAs: ["Vector statsd", "Telegraf statsd", "Fluent Bit statsd", "statsd_exporter"],
    useCases: [.init(.reading, "receive metrics of StatsD", "statsd: 8125")],
    seeAlso: ["udp", "host", "syslog"])

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
    context.refuseOpenEndpoint(
      address.address, isKnown: false, isAllowed: allowUnauthenticated, canUseTLS: false)
  }

  package var outputType: EventType { DecoderOptions(.statsd).eventType }
  package var namesEvents: Bool { true }
  package var listens: ListenAddress? {
    address.path == nil ? address.address.listens(isDatagram: transport == .udp) : nil
  }
  package func threads(_ limit: Int?) -> String? { "received and decoded by a thread of its own" }

  var endpoint: SocketEndpoint {
    address.path.map { .unix(path: $0, isDatagram: true, mode: mode.bits) }
      ?? address.address.endpoint(isDatagram: transport == .udp)
  }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    guard transport == .tcp else {
      var options = DatagramReceiver.Options()
      options.decoding = DecoderOptions(.statsd, unit: .body)
      options.maxMessage = maxMessage.bytes
      options.receiveBuffer = receiveBuffer?.bytes
      return ReceivingNode(endpoint, .datagrams(options), nodeContext, downstream)
    }
    var options = StreamReceiver.Options()
    options.framing = .lines
    options.decoding = DecoderOptions(.statsd)
    options.maxMessage = maxMessage.bytes
    options.maxConnections = maxConnections
    options.idleTimeout = idleTimeout
    options.receiveBuffer = receiveBuffer?.bytes
    return ReceivingNode(endpoint, .stream(options, nil), nodeContext, downstream)
  }
}
