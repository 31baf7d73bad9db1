import PipelineCore
import Transport

/// `prometheusRemoteWrite`: sends metrics to Prometheus and compatible servers.
package struct PrometheusRemoteWrite: SinkComponent {
  /// Like ``HTTPSink/Batch``, for the one form of this protocol.
  struct Batch: RecordParameter {
    var count = 2000
    var bytes = ByteSize(1 << 20)
    var every = TimeSpan.seconds(1)
    static var fields: [RecordField<Batch>] {
      [
        .init("count", \.count, primary: true, range: 1...100_000, "The largest number of events in one request."),
        .init("bytes", \.bytes, "The largest body, before compression."),
        .init(
          "every", \.every, range: 0...Int64.max,
          "How long an event may wait for others to share its request."),
      ]
    }
  }

  var http = HTTPSink()
  var batch = Batch() {
    didSet { batch.apply(to: &http) }
  }
  var labels = Table<String>()
  var buckets: [Double] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
  var maxSeries = 10_000

  package init() {
    batch.apply(to: &http)
  }

  package static let spec = ComponentSpec<PrometheusRemoteWrite>(
    "prometheusRemoteWrite",
    summary: "Sends metrics to Prometheus by remote write, many in a request, and repeats failed requests.",
    details: """
      An event is a metric: `{ name, type, labels, value }`, as the sources `host` and `statsd` and `decode: prometheus` make it. `timestamp` is the time of the value; by default it is the time \
      at which the event came. What names and labels cannot contain becomes `_`, and a label without a text is left out. The request is that of version 0.1.0: a protobuf message with the snappy block format. \
      Prometheus takes it with `--web.enable-remote-write-receiver` at `/api/v1/write`, VictoriaMetrics at the same path, Mimir at `/api/v1/push`.

      Where `relative` is true, the value is added to the ones before (divided by `sampleRate`, if there is one) and the total is sent; `timer`, `distribution` and `histogram` without `family` are observations, and the buckets, the sum and the count are sent. \
      The totals are kept in memory, for `maxSeries` series at most; after a restart they start again, which Prometheus takes as a reset of counters. Of two values of a series with the same time in one request, the later one is sent.

      Requests are repeated after 429, 5xx and broken connections, as by the sink `http`. 400 means that a sample is refused, such as one that is older than the newest of its series: the request is halved until it is alone, which goes to the \
      errors output. Other statuses mean that the configuration is wrong. Prometheus refuses late samples, so requests are sent one after another.
      """,
    parameters: [
      .init("url", \.http.url, primary: true, required: true, "The URL, http or https."),
      .init("labels", \.labels, "Labels of every series; a label of the event with the same name stays."),
      .init("headers", \.http.headers, "Further headers, such as `X-Scope-OrgID`."),
      .init("buckets", \.buckets, "The upper bounds of the buckets of observations, ascending; `+Inf` is added."),
      .init("maxSeries", \.maxSeries, range: 1...1_000_000, "The maximum number of series whose totals are kept."),
      .init("batch", \.batch, "How many events share a request, and how long they wait for that."),
      .init("retry", \.http.retry, variables: HTTPSink.responseVariables, "How failed requests are repeated."),
      .init("auth", \.http.auth, "How to authenticate."),
      .init(
        "tls", \.http.tls, applies: .any([.begins("url", ["https:"]), .begins("auth.oauth2.tokenURL", ["https:"])]),
        "Certificates."),
      .init("timeout", \.http.timeout, range: 1_000_000...Int64.max, "How long a request may take."),
      .init(
        "connectTimeout", \.http.connectTimeout, range: 1_000_000...Int64.max,
        "How long name resolution and connecting may take, TLS included; at most `timeout`."),
      .init("queue", \.http.queue, range: 1...1_000_000, "How many events may wait."),
      .init("proxy", \.http.proxy, "A proxy, http://HOST:PORT; the environment's is not used."),
      .init(
        "allowPrivate", \.http.allowPrivate,
        "Whether a host name may resolve to a private address. Literal addresses are always allowed."),
    ],
    examples: [
      .snippet(
        "figures of this machine",
        "prometheusRemoteWrite: { url: 'http://127.0.0.1:9090/api/v1/write', labels: { instance: web-1 } }"),
      .pipeline(
        "what the server refuses",
        """
        name: metrics
        sources:
          in: { stdin: { decode: ndjson } }
        sinks:
          prometheus: { from: in, prometheusRemoteWrite: { url: 'http://127.0.0.1:9090/api/v1/write', batch: 10 } }
          refused: { from: prometheus.errors, chain: [ { map: event.error } ], stderr: {} }
        tests:
          - name: one that is no metric
            inputs: { in: { marbles: "b|", values: { b: { name: down } } } }
            stubs:
              http: [ { sink: prometheus, reply: { status: 204 } } ]
            expect:
              refused: { marbles: "a|", values: { a: "the metric 'down' has no 'value' that is a number" } }
        """),
    ],
    edges: EdgeCases(
      empty: "No request is sent.",
      error: "An event that is not a metric goes to the errors output. If libcurl is not installed, the pipeline ends.",
      completion: "Waiting events are sent first.",
      disposal: "Waiting events are given up, and a warning counts them."),
    memory: "Waiting events, up to `queue`, and the totals of `maxSeries` series.",
    persistence: .position(version: 1),
    knownAs: [
      "Vector prometheus_remote_write", "Fluent Bit prometheus_remote_write",
      "Telegraf http with prometheusremotewrite",
    ],
    useCases: [
      .init(
        .writing, "push metrics to Prometheus, Mimir or VictoriaMetrics",
        "prometheusRemoteWrite: 'http://127.0.0.1:9090/api/v1/write'")
    ],
    seeAlso: ["prometheusExporter", "host", "statsd", "http"])

  package func validate(_ context: inout DecodingContext) {
    http.validate(&context)
    for entry in labels.entries
    where MetricStore.name(entry.name, mayHaveColon: false) != entry.name || MetricStore.isNameOfMetrics(entry.name) {
      context.badValue(
        at: entry.location, "'\(Printable.cut(entry.name))' cannot be the name of a label",
        help: "Use letters, digits and '_'")
    }
    if zip(buckets, buckets.dropFirst()).contains(where: { $0 >= $1 }) || buckets.count > 200 {
      context.badValue(
        at: context.location(of: "buckets"), "the bounds of 'buckets' must ascend, and be 200 at most",
        help: "Write them in order, each once, such as [0.1, 0.5, 1]")
    }
    for name in ["content-type", "content-encoding", "x-prometheus-remote-write-version"] {
      if let header = http.headers.entries.first(where: { $0.name.lowercased() == name }) {
        context.badValue(at: header.location, "the sink sets this header itself", .conflictingParameters)
      }
    }
  }

  package var sendsRequests: Bool { true }
  package var sendsTo: [TargetAddress] { http.sendsTo }
  package var namesDeliveries: Bool { http.namesDeliveries }
  package var confirmation: SinkConfirmation { .receiver }
  package var threads: String? { http.threads }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    HTTPSink.Connector(http, nodeContext, RemoteWriteForm(self)).sink(nodeContext)
  }
}

/// Creates bodies of the sink `http` that are not encoded events.
protocol RequestForm: AnyObject {
  /// Headers of each request.
  var headers: [HTTPHeader] { get }
  /// The encoded form of an event until its request is sent.
  ///
  /// - Parameter wallTime: Now, in nanoseconds since 1970.
  func bytes(of event: Event, wallTime: Int64) -> Result<[UInt8], DeliveryRefusal>
  func body(of parts: [[UInt8]]) -> [UInt8]
}

/// Requests of Prometheus's remote write.
final class RemoteWriteForm: RequestForm {
  let headers = [
    HTTPHeader("Content-Type", "application/x-protobuf"), HTTPHeader("Content-Encoding", "snappy"),
    HTTPHeader("X-Prometheus-Remote-Write-Version", "0.1.0"),
  ]
  private let reader = MetricReader()
  private let store: MetricStore
  private let labels: [(name: String, value: String)]
  /// The last timestamp sent for each series, in milliseconds, for metrics without a time.
  private var times: [[UInt8]: Int64] = [:]
  private let mostSeries: Int

  init(_ parameters: PrometheusRemoteWrite) {
    store = MetricStore(buckets: parameters.buckets, mostSeries: parameters.maxSeries, expire: nil)
    labels = parameters.labels.entries.map { ($0.name, $0.value) }
    mostSeries = parameters.maxSeries
  }

  func bytes(of event: Event, wallTime: Int64) -> Result<[UInt8], DeliveryRefusal> {
    switch reader.metric(event) {
    case .failure(let failure): return .failure(failure)
    case .success(var metric):
      for label in labels where !metric.labels.contains(where: { $0.name == label.name }) {
        metric.labels.append(label)
      }
      let samples: [MetricStore.Sample]
      switch store.samples(metric) {
      case .failure(let fault): return .failure(DeliveryRefusal(fault.message))
      case .success(let found): samples = found
      }
      var bytes: [UInt8] = []
      for sample in samples {
        let series = RemoteWriteMessage.labels(sample.name, sample.labels.map { ($0.name, $0.value) })
        let time = metric.timestamp ?? arrival(wallTime / 1_000_000, of: series)
        RemoteWriteMessage.append(series, sample.value, time, to: &bytes)
      }
      return .success(bytes)
    }
  }

  /// The time of an event without one: later than that of the previous event, if that is near.
  private func arrival(_ now: Int64, of series: [UInt8]) -> Int64 {
    let last = times[series] ?? .min
    let time = last >= now ? min(last + 1, now + 1000) : now
    if times.count >= mostSeries, times[series] == nil { times = [:] }
    times[series] = time
    return time
  }

  func body(of parts: [[UInt8]]) -> [UInt8] { Snappy.block(RemoteWriteMessage.request(parts)) }
}

/// The protobuf message `prometheus.WriteRequest`.
enum RemoteWriteMessage {
  /// The fields `labels` of a series, in the order of their names.
  static func labels(_ name: String, _ labels: [(name: String, value: String)]) -> [UInt8] {
    let all = (labels.filter { !$0.value.isEmpty } + [("__name__", name)])
      .sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
    var bytes: [UInt8] = []
    for label in all {
      var message: [UInt8] = []
      field(1, Array(label.name.utf8), &message)
      field(2, Array(label.value.utf8), &message)
      field(1, message, &bytes)
    }
    return bytes
  }

  /// Appends a row, from which ``request(_:)`` makes messages: the length of the labels, the labels, the value, the time.
  static func append(_ labels: [UInt8], _ value: Double, _ time: Int64, to bytes: inout [UInt8]) {
    append(UInt64(labels.count), &bytes)
    bytes += labels
    append(value.bitPattern, &bytes)
    append(UInt64(bitPattern: time), &bytes)
  }

  private static func append(_ number: UInt64, _ bytes: inout [UInt8]) {
    withUnsafeBytes(of: number.littleEndian) { bytes += $0 }
  }

  /// A request of rows: each series once, its samples in the order of their times, of each time the last one.
  static func request(_ parts: [[UInt8]]) -> [UInt8] {
    var order: [[UInt8]] = []
    var series: [[UInt8]: [(time: Int64, value: UInt64)]] = [:]
    for part in parts {
      part.withUnsafeBytes { bytes in
        var at = 0
        func number() -> UInt64 {
          defer { at += 8 }
          return UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self))
        }
        while at < bytes.count {
          let length = Int(number())
          let labels = Array(bytes[at..<(at + length)])
          at += length
          let value = number()
          let time = Int64(bitPattern: number())
          if series[labels] == nil { order.append(labels) }
          series[labels, default: []].append((time, value))
        }
      }
    }
    var request: [UInt8] = []
    for labels in order {
      var message = labels
      let samples = (series[labels] ?? []).enumerated().sorted {
        ($0.element.time, $0.offset) < ($1.element.time, $1.offset)
      }
      .map(\.element)
      for (index, sample) in samples.enumerated() {
        if index + 1 < samples.count, samples[index + 1].time == sample.time { continue }
        var bytes: [UInt8] = [0x09]
        append(sample.value, &bytes)
        bytes.append(0x10)
        varint(UInt64(bitPattern: sample.time), &bytes)
        field(2, bytes, &message)
      }
      field(1, message, &request)
    }
    return request
  }

  /// A field with a length.
  private static func field(_ number: UInt8, _ content: [UInt8], _ bytes: inout [UInt8]) {
    bytes.append(number << 3 | 2)
    varint(UInt64(content.count), &bytes)
    bytes += content
  }

  static func varint(_ number: UInt64, _ bytes: inout [UInt8]) {
    var rest = number
    while rest >= 0x80 {
      bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    bytes.append(UInt8(rest))
  }
}

/// The block format of snappy.
enum Snappy {
  /// A block of `bytes` with copies of parts at most 64 KiB back, found by four bytes in a table.
  static func block(_ bytes: [UInt8]) -> [UInt8] {
    var block: [UInt8] = []
    block.reserveCapacity(bytes.count / 2 + 16)
    RemoteWriteMessage.varint(UInt64(bytes.count), &block)
    var start = 0
    while start < bytes.count {
      let end = min(bytes.count, start + 65_536)
      fragment(bytes, start, end, &block)
      start = end
    }
    return block
  }

  private static func fragment(_ bytes: [UInt8], _ start: Int, _ end: Int, _ block: inout [UInt8]) {
    var table = [Int32](repeating: -1, count: 1 << 12)
    var literal = start
    var at = start
    bytes.withUnsafeBytes { bytes in
      while at + 4 <= end {
        let four = bytes.loadUnaligned(fromByteOffset: at, as: UInt32.self)
        let slot = Int((four &* 0x1E35_A7BD) >> 20)
        let candidate = Int(table[slot])
        table[slot] = Int32(at - start)
        guard candidate >= 0, bytes.loadUnaligned(fromByteOffset: start + candidate, as: UInt32.self) == four else {
          at += 1
          continue
        }
        let from = start + candidate
        var length = 4
        while at + length < end, bytes[from + length] == bytes[at + length] { length += 1 }
        append(bytes[literal..<at], &block)
        copy(length, at - from, &block)
        at += length
        literal = at
      }
      append(bytes[literal..<end], &block)
    }
  }

  private static func append(_ literal: Slice<UnsafeRawBufferPointer>, _ block: inout [UInt8]) {
    guard !literal.isEmpty else { return }
    let length = literal.count - 1
    if length < 60 {
      block.append(UInt8(length) << 2)
    } else if length < 256 {
      block += [60 << 2, UInt8(length)]
    } else {
      block += [61 << 2, UInt8(length & 0xFF), UInt8(length >> 8)]
    }
    block += literal
  }

  /// Copies with an offset of two bytes, 64 bytes at most each.
  private static func copy(_ length: Int, _ offset: Int, _ block: inout [UInt8]) {
    var rest = length
    while rest > 0 {
      let count = min(rest, 64)
      block += [UInt8(count - 1) << 2 | 2, UInt8(offset & 0xFF), UInt8(offset >> 8)]
      rest -= count
    }
  }
}

extension PrometheusRemoteWrite.Batch {
  fileprivate func apply(to http: inout HTTPSink) {
    (http.batch.count, http.batch.bytes, http.batch.every) = (count, bytes, every)
  }
}
