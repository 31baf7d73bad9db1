import Foundation
import PipelineHost
import Testing

/// A real VictoriaMetrics accepts the output of `prometheusRemoteWrite`, and scrapes `prometheusExporter`.
@Suite(
  .timeLimit(.minutes(10)),
  .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/victoria-metrics"), "needs victoria-metrics"))
struct VictoriaMetricsTests {
  let folder: Scratch
  init() throws { folder = try Scratch() }

  @Test func takesWhatIsSent() throws {
    let server = try PrometheusServer.victoriaMetrics(folder, "scrape_configs: []\n")
    let now = Int(Date().timeIntervalSince1970)
    var lines = (0..<3000).map { number in
      #"{"name":"load.value","type":"gauge","labels":{"host":"h\#(number % 10)","empty":"","q":"a\"ü"},"value":\#(number),"timestamp":\#(now - 3000 + number)}"#
    }
    // It accepts samples in any order.
    lines.append(#"{"name":"load.value","labels":{"host":"h1","q":"a\"ü"},"value":1,"timestamp":\#(now - 2000)}"#)
    lines += (0..<10).map { _ in #"{"name":"hits","type":"counter","value":2,"relative":true}"# }
    lines += [1, 5, 300].map { #"{"name":"wait","type":"timer","value":\#($0)}"# }
    let input = try folder.write("in.ndjson", lines.joined(separator: "\n") + "\n")
    let file = try folder.write(
      "write.yaml",
      """
      sources: { in: { file: { path: '\(input)', decode: ndjson } } }
      sinks:
        out: { from: in, prometheusRemoteWrite: { url: 'http://127.0.0.1:\(server.port)/api/v1/write', labels: { instance: here }, batch: 500, retry: { delay: 50ms, maxDelay: 200ms } } }
        lost: { from: out.errors, stdout: {} }

      """)
    let outcome = try Rxd.run("run", file)
    #expect(outcome.lines == [], "\(outcome.errors)")
    // Accepted samples are in memory at first; a flush makes them visible to queries.
    _ = try server.answer("/internal/force_flush", [])
    try server.asked(
      "/api/v1/query", #"query=sum(count_over_time(load_value{instance="here",q="a\"ü"}[2h]))"#, until: #","3001"]"#)
    try server.asked("/api/v1/query", #"query=load_value{host="h9"}"#, until: #","2999"]"#)
    try server.asked("/api/v1/query", "query=hits", until: #","20"]"#)
    try server.asked("/api/v1/query", #"query=wait_bucket{le="0.01"}"#, until: #","2"]"#)
    try server.asked("/api/v1/query", "query=wait_count", until: #","3"]"#)
  }

  @Test func scrapesTheExporter() throws {
    let own = try FreePort()
    let file = try folder.write(
      "export.yaml",
      """
      sources: { machine: { host: { every: 1s, collect: [load, memory] } } }
      sinks: { out: { from: machine, prometheusExporter: { listen: \(own.number) } } }

      """)
    let process = try RunningRxd(["run", file])
    let server = try PrometheusServer.victoriaMetrics(
      folder,
      """
      global: { scrape_interval: 1s }
      scrape_configs: [ { job_name: rxd, static_configs: [ { targets: [ '127.0.0.1:\(own.number)' ] } ] } ]

      """)
    try server.asked("/api/v1/query", "query=up == 1", until: #","1"]"#)
    try server.asked("/api/v1/query", "query=node_memory_MemTotal_bytes > 1e6", until: #""value":["#)
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }
}
