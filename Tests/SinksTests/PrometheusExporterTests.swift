import Foundation
import PipelineCore
import PipelineHost
import Testing

@testable import Sinks

/// The metrics kept by the exporter, and the page that it serves.
@Suite struct PrometheusExporterTests {
  private func metric(
    _ name: String, _ type: String, _ value: Double, _ labels: [(String, String)] = [], relative: Bool = false,
    family: String? = nil, weight: Double = 1
  ) -> MetricStore.Metric {
    var metric = MetricStore.Metric()
    (metric.name, metric.type, metric.value, metric.family) = (name, type, value, family)
    (metric.labels, metric.isRelative, metric.weight) = (labels.map { ($0.0, $0.1) }, relative, weight)
    return metric
  }

  private func page(_ store: MetricStore, at now: Int64 = 0) -> String {
    String(decoding: store.page(at: now), as: UTF8.self)
  }

  @Test func addsUpAndReplaces() {
    let store = MetricStore(buckets: [1, 2], mostSeries: 100, expire: nil)
    #expect(store.take(metric("hits", "counter", 3, relative: true, weight: 2), at: 0) == nil)
    #expect(store.take(metric("hits", "counter", 1, relative: true), at: 0) == nil)
    #expect(store.take(metric("total", "counter", 10), at: 0) == nil)
    #expect(store.take(metric("total", "counter", 12), at: 0) == nil)
    #expect(store.take(metric("a.b-c", "gauge", 1.5, [("path", "a\"\\\nb"), ("_1x", "y")]), at: 0) == nil)
    #expect(
      store.take(metric("a.b-c", "gauge", -0.5, [("_1x", "y"), ("path", "a\"\\\nb")], relative: true), at: 0) == nil)
    #expect(store.take(metric("odd", "untyped", .nan), at: 0) == nil)
    #expect(
      page(store) == """
        # TYPE hits counter
        hits 7
        # TYPE total counter
        total 12
        # TYPE a_b_c gauge
        a_b_c{_1x="y",path="a\\"\\\\\\nb"} 1
        # TYPE odd untyped
        odd NaN

        """)
  }

  @Test func makesHistograms() {
    let store = MetricStore(buckets: [0.1, 0.5], mostSeries: 100, expire: nil)
    for (value, weight) in [(50, 1.0), (100, 1), (300, 2), (900, 1)] {
      #expect(store.take(metric("latency", "timer", Double(value), [("env", "prod")], weight: weight), at: 0) == nil)
    }
    #expect(
      page(store) == """
        # TYPE latency histogram
        latency_bucket{env="prod",le="0.1"} 2
        latency_bucket{env="prod",le="0.5"} 4
        latency_bucket{env="prod",le="+Inf"} 5
        latency_sum{env="prod"} 1.65
        latency_count{env="prod"} 5

        """)
  }

  /// Histograms and summaries made elsewhere are served unchanged.
  @Test func passesHistogramsAndSummariesOn() {
    let store = MetricStore(buckets: [1], mostSeries: 100, expire: nil)
    for (name, value, labels) in [
      ("h_bucket", 1.0, [("le", "1")]), ("h_bucket", 2, [("le", "+Inf")]), ("h_sum", 3, []), ("h_count", 2, []),
    ] as [(String, Double, [(String, String)])] {
      #expect(store.take(metric(name, "histogram", value, labels, family: "h"), at: 0) == nil)
    }
    #expect(store.take(metric("s", "summary", 5, [("quantile", "0.5")]), at: 0) == nil)
    #expect(store.take(metric("s_count", "summary", 7, family: "s"), at: 0) == nil)
    #expect(store.take(metric("c_total", "counter", 1, family: "c"), at: 0) == nil)
    #expect(
      page(store) == """
        # TYPE h histogram
        h_bucket{le="1"} 1
        h_bucket{le="+Inf"} 2
        h_sum 3
        h_count 2
        # TYPE s summary
        s{quantile="0.5"} 5
        s_count 7
        # TYPE c_total counter
        c_total 1

        """)
  }

  @Test func refusesWhatHasNoForm() {
    let store = MetricStore(buckets: [1], mostSeries: 2, expire: nil)
    #expect(store.take(metric("ids", "set", 1), at: 0)?.contains("has the type 'set'") == true)
    #expect(store.take(metric("c", "counter", -1, relative: true), at: 0)?.contains("would fall by 1") == true)
    #expect(store.take(metric("h", "timer", .infinity), at: 0)?.contains("has observed inf") == true)
    // A refused metric has left no series, and no type for its name.
    #expect(page(store) == "")
    #expect(store.take(metric("c", "gauge", 1), at: 0) == nil)
    #expect(
      store.take(metric("c", "counter", 1), at: 0)?.contains("is a counter, and an earlier one of its name a gauge")
        == true)
    #expect(store.take(metric("t", "timer", 1, [("le", "1")]), at: 0)?.contains("has a label 'le'") == true)
    #expect(store.take(metric("b", "gauge", 1), at: 0) == nil)
    #expect(store.take(metric("d", "gauge", 1), at: 0)?.contains("there are 2, which 'maxSeries' allows") == true)
    #expect(store.take(metric("b", "gauge", 2), at: 0) == nil)
  }

  /// One datagram must not spoil the whole page for Prometheus; exporter and remote write share the code that reads metrics.
  @Test func aLabelIsNoNameOfAMetric() throws {
    for labels in ["{'__name__': 'evil'}", "{'.-name..': 'evil'}"] {
      let pipeline = try VirtualPipeline(
        """
        sources: { in: { values: [1] } }
        sinks:
          page: { from: in, chain: [ { map: "{'name': 'x', 'type': 'counter', 'value': 1, 'labels': \(labels)}" } ], prometheusExporter: 127.0.0.1:0 }
          sent: { from: in, chain: [ { map: "{'name': 'x', 'type': 'counter', 'value': 1, 'labels': \(labels)}" } ], prometheusRemoteWrite: 'http://127.0.0.1:9/w' }
          refused: { from: { merge: [page.errors, sent.errors] }, probe: {} }
        """)
      pipeline.settle()
      let letters = pipeline.probe("refused").moments.count { if case .next = $0.moment { true } else { false } }
      #expect(letters == 2, "\(pipeline.probe("refused").timeline)")
    }
  }

  @Test func forgetsWhatIsOld() {
    let second: Int64 = 1_000_000_000
    let store = MetricStore(buckets: [1], mostSeries: 2, expire: 10 * second)
    #expect(store.take(metric("a", "gauge", 1, [("x", "1")]), at: second) == nil)
    #expect(store.take(metric("a", "gauge", 2, [("x", "2")]), at: 8 * second) == nil)
    #expect(page(store, at: 12 * second) == "# TYPE a gauge\na{x=\"2\"} 2\n")
    // There is room again, and the remaining series are still found.
    #expect(store.take(metric("b", "gauge", 3), at: 13 * second) == nil)
    #expect(store.take(metric("a", "gauge", 4, [("x", "2")]), at: 14 * second) == nil)
    #expect(page(store, at: 15 * second) == "# TYPE a gauge\na{x=\"2\"} 4\n# TYPE b gauge\nb 3\n")
    #expect(page(store, at: 60 * second) == "")
  }

  private func get(_ port: Int, _ path: String, _ head: String = "") -> String {
    guard let client = SocketClient(port: port) else { return "" }
    client.send("GET \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\(head)\r\n")
    return client.receiveAll()
  }

  @Test func servesEvents() throws {
    let pipeline = try RealPipeline(
      """
      sources: { in: { statsd: '127.0.0.1:0' } }
      sinks:
        out: { from: in, prometheusExporter: { listen: '127.0.0.1:0', auth: { bearer: token } } }
        bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }
      """)
    pipeline.run { pipeline.log.count { $0.contains("listening on") } == 2 }
    func port(_ name: String) -> Int? {
      pipeline.log.first { $0.contains(" \(name)/") && $0.contains("listening on") }
        .flatMap { Int($0.split(separator: ":").last ?? "") }
    }
    let receiving = try #require(port("in"))
    let client = try #require(SocketClient(port: receiving, isDatagram: true))
    client.send("hits:1|c|@0.5|#code:200\nids:x|s\nusers:3|g\n")
    #expect(pipeline.run { pipeline.counters.sent == 2 && pipeline.probe("bad").events.count == 1 }, "\(pipeline.log)")
    let own = try #require(port("out"))
    let page = get(own, "/metrics", "Authorization: Bearer token\r\n")
    #expect(page.hasPrefix("HTTP/1.1 200 "))
    #expect(page.contains("Content-Type: text/plain; version=0.0.4"))
    #expect(page.contains("# TYPE hits counter\nhits{code=\"200\"} 2\n# TYPE users gauge\nusers 3\n"), "\(page)")
    #expect(get(own, "/metrics").hasPrefix("HTTP/1.1 401 "))
    #expect(get(own, "/", "Authorization: Bearer token\r\n").hasPrefix("HTTP/1.1 404 "))
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }

  @Test(arguments: [
    ("listen: '0.0.0.0:9464'", "'prometheusExporter' would serve every client that can reach 0.0.0.0"),
    ("listen: 9464, buckets: [1, 1]", "'buckets' must ascend"),
    ("listen: 9464, path: metrics", "no request has the path 'metrics'"),
  ]) func refuses(_ parameters: String, _ message: String) {
    let complaints = PipelineText.complaints(
      "sources: { in: { values: [1] } }\nsinks: { out: { from: in, prometheusExporter: { \(parameters) } } }")
    #expect(complaints.count == 1 && complaints.first?.contains(message) == true, "\(complaints)")
  }
}
