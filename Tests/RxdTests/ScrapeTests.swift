import Foundation
import PipelineHost
import Testing

/// Metrics of this machine are sent to a real Prometheus, and scraped back into a pipeline.
@Suite(
  .timeLimit(.minutes(10)), .enabled(if: VerbTests.has("prometheus", "--version"), "needs prometheus"))
struct ScrapeTests {
  let folder: Scratch
  init() throws { folder = try Scratch() }

  @Test func prometheusScrapesTheExporter() throws {
    let own = try FreePort()
    let file = try folder.write(
      "export.yaml",
      """
      sources: { machine: { host: { every: 1s, collect: [load, memory] } } }
      sinks: { out: { from: machine, prometheusExporter: { listen: \(own.number) } } }

      """)
    let process = try RunningRxd(["run", file])
    let server = try PrometheusServer(
      folder,
      """
      global: { scrape_interval: 1s }
      scrape_configs: [ { job_name: rxd, static_configs: [ { targets: [ '127.0.0.1:\(own.number)' ] } ] } ]

      """)
    try server.asked("/api/v1/query", "query=up == 1", until: #","1"]"#)
    try server.asked("/api/v1/query", "query=node_memory_MemTotal_bytes > 1e6", until: #""value":["#)
    try server.asked("/api/v1/query", "query=node_load15 >= 0", until: #""value":["#)
    // Prometheus's own metrics page, read by a pipeline.
    let scrape = try folder.write(
      "scrape.yaml",
      """
      sources: { own: { http: { url: 'http://127.0.0.1:\(own.number)/metrics', decode: prometheus } } }
      sinks: { out: { from: own, chain: [ { filter: "event.name == 'node_load1' && event.type == 'gauge'" }, { map: event.value >= 0.0 } ], stdout: {} } }

      """)
    #expect(try Rxd.run("run", scrape).lines == ["true"])
    let theirs = try folder.write(
      "theirs.yaml",
      """
      sources: { own: { http: { url: 'http://127.0.0.1:\(server.port)/metrics', decode: prometheus } } }
      sinks:
        out: { from: own, chain: [ { filter: "event.type == 'histogram' && event.?family.orValue('') == 'prometheus_http_request_duration_seconds'" }, { take: 1 }, { map: event.name } ], stdout: {} }
        bad: { from: own.errors, stderr: {} }

      """)
    let outcome = try Rxd.run("run", theirs)
    #expect(outcome.lines == ["\"prometheus_http_request_duration_seconds_bucket\""], "\(outcome.errors)")
    #expect(outcome.errors == "")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }
}
