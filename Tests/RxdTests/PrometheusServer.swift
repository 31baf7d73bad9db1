import Foundation
import PipelineHost

/// A real Prometheus, or VictoriaMetrics, which answers the same queries, on a local port. It ends with the value.
final class PrometheusServer {
  let port: Int
  private let process: pid_t

  /// - Parameter configuration: The text of its file; `arguments`: further ones.
  convenience init(_ folder: Scratch, _ configuration: String, _ arguments: String...) throws {
    let file = try folder.write("prometheus.yml", configuration)
    try self.init("/usr/bin/prometheus") { port in
      [
        "prometheus", "--config.file=\(file)", "--storage.tsdb.path=\(folder.path)/tsdb", "--log.level=error",
        "--web.listen-address=127.0.0.1:\(port)",
      ] + arguments
    }
  }

  /// VictoriaMetrics; its scrape configuration has Prometheus's format.
  static func victoriaMetrics(_ folder: Scratch, _ configuration: String) throws -> PrometheusServer {
    let file = try folder.write("scrape.yml", configuration)
    return try PrometheusServer("/usr/bin/victoria-metrics") { port in
      [
        "victoria-metrics", "-promscrape.config=\(file)", "-storageDataPath=\(folder.path)/data", "-loggerLevel=ERROR",
        "-httpListenAddr=127.0.0.1:\(port)", "-search.latencyOffset=0s",
      ]
    }
  }

  private init(_ program: String, _ arguments: (Int) -> [String]) throws {
    let free = try FreePort()
    port = free.number
    // Not `Process`: a long-running child would keep the pipes open by which other tests notice the end of their
    // processes.
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for descriptor in [Int32(0), 1, 2] {
      posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
    }
    process = try spawn(program, arguments(port), ["PATH": "/usr/bin:/bin"], &actions)
  }

  deinit {
    kill(process, SIGTERM)
    waitpid(process, nil, 0)
  }

  /// Its current answer. It accepts connections before it is ready.
  func answer(_ path: String, _ parameters: [String]) throws -> String {
    try Program.run(
      "/usr/bin/env",
      ["curl", "-sS", "--noproxy", "*", "-m", "60", "-G", "http://127.0.0.1:\(port)\(path)"]
        + parameters.flatMap { ["--data-urlencode", $0] }
    ).output
  }

  /// Polls a query, or `path`, for the first answer that contains `text`. The server checks its targets and rules each second, without
  /// notification.
  @discardableResult
  func asked(_ path: String = "/api/v1/query", _ parameters: String..., until text: String) throws -> String {
    var last = ""
    let found = try Polling.first(pause: 100) {
      last = try answer(path, parameters)
      return last.contains(text) ? last : nil
    }
    guard let found else { throw TimedOut(description: "\(text) is not in \(last)") }
    return found
  }
}
