import PipelineCore
import Transport

/// `prometheusExporter`: keeps the newest values of metrics for Prometheus to scrape.
package struct PrometheusExporter: SinkComponent, PageAccessComponent {
  var address = NetworkAddress()
  var path = "/metrics"
  var buckets: [Double] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
  var expire: TimeSpan?
  var maxSeries = 10_000
  var auth: HTTPAuth?
  var allowUnauthenticated = false
  package var hosts: [String] = []
  package var origins: [String] = []

  package init() {}

  package static let spec = ComponentSpec<PrometheusExporter>(
    "prometheusExporter",
    summary: "Serves metrics over HTTP for Prometheus to scrape.",
    details: """
      An event is a metric: `{ name, type, labels, value }`, as the sources `host` and `statsd` and `decode: prometheus` make it; `help` is the text of the metric. What \
      names and labels cannot contain becomes `_`. `type` is `counter`, `gauge`, `untyped`, or:

      - `timer`, `histogram` or `distribution`: the value is one observation, and a histogram with `buckets` is made of them. A `timer` is in milliseconds, and is \
      served in seconds.
      - `histogram` or `summary` with `family`, or `summary` with a label `quantile`: a part of a ready-made metric, served unchanged.

      Where `relative` is true, the value is added to the one before (divided by `sampleRate`, if there is one); otherwise it takes its place. An event that is no such \
      metric, a counter that would fall, a name with two types, and a new series beyond `maxSeries` go to the errors output.

      An event counts as delivered when its value is kept in memory. After a restart or a reload all values start again, which Prometheus takes as a reset of counters. \
      By default it listens on the loopback address; any other address requires `auth` or `allowUnauthenticated`. A reload keeps the port. Other sources and sinks that \
      serve HTTP can share the address with other paths, as \
      `httpServer` says, also about `hosts` and `origins`.
      """,
    parameters: [
      .init(
        "listen", \.address, primary: true, required: true, "HOST:PORT, or a port on 127.0.0.1."),
      .init("path", \.path, "The path that is served; others are answered 404, or by other servers of the address."),
      .init("buckets", \.buckets, "The upper bounds of the buckets of histograms, ascending; `+Inf` is added."),
      .init(
        "expire", \.expire, range: 1_000_000_000...Int64.max,
        "How long a series is served after its last event; by default forever."),
      .init(
        "maxSeries", \.maxSeries, range: 1...1_000_000,
        "The maximum number of series; a histogram with its buckets is one."),
      .init("auth", \.auth, "The credentials that clients must present."),
      .init("allowUnauthenticated", \.allowUnauthenticated, "Serve every client on an address other than loopback."),
    ] + accessParameters,
    examples: [
      .snippet("on a port of this machine", "prometheusExporter: 9464"),
      .snippet(
        "of what comes and goes", "prometheusExporter: { listen: 9464, expire: 5m, buckets: [0.1, 0.5, 1, 5] }"),
    ],
    edges: EdgeCases(
      empty: "An empty page is served.",
      error: "A port that cannot be used ends the pipeline; an event that is not a metric goes to the errors output.",
      completion: "The port is closed.", disposal: "Closes the port."),
    memory: "The series, up to `maxSeries`.",
    knownAs: ["Vector prometheus_exporter", "Telegraf prometheus_client", "statsd_exporter", "node_exporter"],
    useCases: [
      .init(.writing, "let Prometheus scrape metrics of events", "prometheusExporter: 9464")
    ],
    seeAlso: ["host", "statsd", "http"])

  static let methods = ["GET", "HEAD"]

  package var listens: ListenAddress? {
    ListenAddress(
      host: address.host, port: address.port, location: address.location,
      site: ListenAddress.Site(path: path, methods: Self.methods))
  }

  package func validate(_ context: inout DecodingContext) {
    if !address.isLoopback, auth == nil, !allowUnauthenticated {
      context.badValue(
        at: context.location, "'prometheusExporter' would serve every client that can reach \(address.host)",
        .conflictingParameters,
        help: "Add 'auth', listen on 127.0.0.1, or set 'allowUnauthenticated: true'")
    }
    validateAccess(&context)
    if !path.hasPrefix("/") || path.utf8.contains(where: { $0 <= 0x20 || $0 == UInt8(ascii: "?") || $0 >= 0x7F }) {
      context.badValue(
        at: context.location(of: "path"), "no request has the path '\(Printable.cut(path))'",
        help: "Write a path such as /metrics")
    }
    if zip(buckets, buckets.dropFirst()).contains(where: { $0 >= $1 }) || buckets.count > 200 {
      context.badValue(
        at: context.location(of: "buckets"), "'buckets' must ascend, and be 200 at most",
        help: "Write them in order, each once, such as [0.1, 0.5, 1]")
    }
  }

  package var threads: String? { "kept on the pipeline thread, served by the threads of the HTTP server" }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(self, nodeContext) }

  final class Node: RunningSink {
    private let parameters: PrometheusExporter
    private let series: MetricStore
    private let reader = MetricReader()
    private var server: HTTPServer?
    override var connections: PipelineStatistics.Connections? { server?.counts }
    private var isSuspending = false

    init(_ parameters: PrometheusExporter, _ nodeContext: NodeContext) {
      self.parameters = parameters
      series = MetricStore(
        buckets: parameters.buckets, mostSeries: parameters.maxSeries, expire: parameters.expire?.nanoseconds)
      super.init(nodeContext)
    }

    private var options: HTTPServer.Options {
      var options = HTTPServer.Options()
      options.host = parameters.address.host
      options.port = parameters.address.port
      options.isShared = true
      options.rules.path = parameters.path
      options.rules.methods = PrometheusExporter.methods
      options.maxHeaderBytes = 16 << 10
      options.rules.maxConnections = 64
      options.rules.maxBodyBytes = 1 << 10
      options.rules.maxBufferedBytes = 4 << 20
      options.rules.replyTimeout = .seconds(10)
      options.rules.auth = parameters.auth?.value ?? .none
      options.rules.access = parameters.access
      options.makesRoom = true
      return options
    }

    override func open() {
      let options = options
      let series = series
      let server = HTTPServer(options: options)
      let services = execution.services
      let label = execution.plan.steps[nodeContext.step.number].label
      do throws(HTTPServerFailure) {
        let port = try server.start { notice in
          services.report(notice, label)
        } handler: { request in
          request.reply.reply(
            status: 200, headers: [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")], body: series.page())
        }
        self.server = server
        services.log(.info, label, "listening on \(options.host):\(port)")
      } catch {
        fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
      }
    }

    /// Reserves the address until the reload is over.
    override func dryRun() {
      do throws(HTTPServerFailure) { try HTTPServer.reserve(options) } catch {
        fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
      }
    }

    override func receive(_ event: Event) {
      switch reader.metric(event) {
      case .failure(let fault): reject(event, fault.message)
      case .success(let metric):
        if let fault = series.take(metric) { reject(event, fault) } else { delivered() }
      }
    }

    override func willSuspend() { isSuspending = true }

    override func finish() {
      close()
      drained()
    }

    override func cancel() { close() }

    private func close() {
      guard let server else { return }
      self.server = nil
      server.stopListening(handsOver: isSuspending)
      // Answers under way have a second.
      if (try? OwnThread("rxd close") { server.stop(within: .seconds(1)) }) == nil { server.stop(within: .zero) }
    }
  }
}
