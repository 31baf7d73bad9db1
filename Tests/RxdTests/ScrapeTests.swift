import Foundation
import PipelineHost
import Testing

/// Metrics of this machine go to a real Prometheus, and from the page that it scrapes back into a pipeline.
@Suite(
  .timeLimit(.minutes(10)), .enabled(if: VerbTests.has("prometheus", "--version"), "needs prometheus"))
struct ScrapeTests {
  let folder: Scratch
  init() throws { folder = try Scratch() }

  @Test func prometheusScrapesTheExporter() throws {
    let (own, server) = (try FreePort(), try FreePort())
    own.leave()
    server.leave()
    let file = try folder.write(
      "export.yaml",
      """
      sources: { machine: { host: { every: 1s, collect: [load, memory] } } }
      sinks: { out: { from: machine, prometheusExporter: { listen: \(own.number) } } }

      """)
    let process = try RunningRxd(["run", file])
    let configuration = try folder.write(
      "prometheus.yml",
      """
      global: { scrape_interval: 1s }
      scrape_configs: [ { job_name: rxd, static_configs: [ { targets: [ '127.0.0.1:\(own.number)' ] } ] } ]

      """)
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for descriptor in [Int32(0), 1, 2] {
      posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
    }
    let prometheus = try spawn(
      "/usr/bin/prometheus",
      [
        "prometheus", "--config.file=\(configuration)", "--storage.tsdb.path=\(folder.path)/tsdb", "--log.level=error",
        "--web.listen-address=127.0.0.1:\(server.number)",
      ], ["PATH": "/usr/bin:/bin"], &actions)
    defer {
      kill(prometheus, SIGTERM)
      waitpid(prometheus, nil, 0)
    }
    func asked(_ query: String, until text: String) throws -> String {
      let deadline = Deadline(after: RunningRxd.limit)
      while true {
        let answer = try Program.run(
          "/usr/bin/env",
          [
            "curl", "-sS", "--noproxy", "*", "-m", "60", "-G", "http://127.0.0.1:\(server.number)/api/v1/query",
            "--data-urlencode", "query=\(query)",
          ]
        ).output
        if answer.contains(text) { return answer }
        guard !deadline.isOver else { throw TimedOut(description: "\(text) is not in \(answer)") }
        usleep(100_000)
      }
    }
    _ = try asked("up == 1", until: #","1"]"#)
    _ = try asked("node_memory_MemTotal_bytes > 1e6", until: #""value":["#)
    _ = try asked("node_load15 >= 0", until: #""value":["#)
    // Prometheus's own page, read by a pipeline.
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
      sources: { own: { http: { url: 'http://127.0.0.1:\(server.number)/metrics', decode: prometheus } } }
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
