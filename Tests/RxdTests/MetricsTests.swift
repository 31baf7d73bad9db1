import Foundation
import PipelineHost
import Testing

private let hasCurl = VerbTests.has("curl", "--version")
private let hasPrometheus = VerbTests.has("promtool", "--version") && VerbTests.has("prometheus", "--version")

/// Metrics, health and readiness, over the control socket and over TCP.
@Suite(.timeLimit(.minutes(10)), .enabled(if: hasCurl, "needs curl"))
struct MetricsTests {
  private let folder: Scratch
  private var socket: String { folder.path + "/c.sock" }

  init() throws { folder = try Scratch() }

  /// Reads `file` and writes the events above 2 to the file `out`.
  private func pipeline(_ file: String, out: String = "out", map: String = "event * 1") -> String {
    """
    name: tail
    sources: { lines: { file: { path: '\(file)', follow: true } } }
    signals:
      large: { from: lines, chain: [ { map: int(event) }, { filter: event > 2 }, { map: \(map) } ] }
      slow: { from: large, chain: [ { delay: 1h } ] }
    sinks:
      out: { from: large, file: { path: '\(folder.path)/\(out)' } }
      later: { from: slow, discard: {} }
      bad: { from: large.errors, file: { path: '\(folder.path)/\(out).bad' } }

    """
  }

  private func start(_ arguments: [String]) throws -> RunningRxd {
    let process = try RunningRxd(["--daemon", "--log-format", "text", "--control-socket", socket] + arguments)
    try process.waits(forSocket: socket)
    return process
  }

  private func end(_ process: RunningRxd) throws {
    // A normal stop would wait for delayed events.
    process.send(SIGQUIT)
    #expect(try process.wait() == 128 + SIGQUIT)
  }

  private func get(_ path: String, _ more: String...) throws -> String {
    try Program.run(
      "/usr/bin/env", ["curl", "-sS", "-m", "60", "--unix-socket", socket, "http://rxd\(path)"] + more
    ).output
  }

  /// The answer to `path`, once it contains all of `texts`.
  private func wait(_ path: String, until texts: String...) throws -> String {
    let deadline = Deadline(after: RunningRxd.limit)
    while true {
      let answer = try get(path)
      if texts.allSatisfy(answer.contains) { return answer }
      guard !deadline.isOver else { throw TimedOut(description: "\(texts) are not in \(answer)") }
    }
  }

  private static let passed =
    #"rxd_component_sent_events_total{pipeline="tail",component_id="large/filter",component_kind="operator",component_type="filter"}"#

  @Test func metricsCountWhatHappened() throws {
    let input = try folder.write("in", "1\n2\n3\n4\nx\n")
    let process = try start([try folder.write("a.yaml", pipeline(input))])
    let text = try wait("/metrics", until: "\(Self.passed) 2\n")
    for line in [
      #"rxd_build_info{version="0.1.0"} 1"#,
      #"rxd_pipeline_running{pipeline="tail"} 1"#,
      #"rxd_component_received_events_total{pipeline="tail",component_id="lines/file",component_kind="source",component_type="file"} 5"#,
      #"rxd_component_received_bytes_total{pipeline="tail",component_id="lines/file",component_kind="source",component_type="file"} 10"#,
      #"rxd_component_discarded_events_total{pipeline="tail",component_id="large/filter",component_kind="operator",component_type="filter",intentional="true",reason="dropped"} 2"#,
      #"rxd_component_errors_total{pipeline="tail",component_id="large/map",component_kind="operator",component_type="map",error_type="rejected",stage="processing"} 1"#,
      #"rxd_component_held_events{pipeline="tail",component_id="slow/delay",component_kind="operator",component_type="delay"} 2"#,
      #"rxd_component_pending_timers{pipeline="tail",component_id="slow/delay",component_kind="operator",component_type="delay"} 1"#,
      #"rxd_edge_events_total{pipeline="tail",from="large/filter",to="large/map#2",output="events"} 2"#,
      #"rxd_edge_bytes_total{pipeline="tail",from="lines/file",to="lines",output="events"} 10"#,
      // Texts of three bytes arrived, and numbers of one byte left.
      #"rxd_edge_bytes_total{pipeline="tail",from="lines",to="large/map",output="events"} 15"#,
      #"rxd_edge_bytes_total{pipeline="tail",from="large/filter",to="large/map#2",output="events"} 2"#,
      #"rxd_edge_events_total{pipeline="tail",from="large.errors",to="bad/file",output="errors"} 1"#,
      #"rxd_component_latency_seconds_bucket{pipeline="tail",component_id="bad/file",component_kind="sink",component_type="file",le="+Inf"} 1"#,
      #"rxd_component_latency_seconds_count{pipeline="tail",component_id="bad/file",component_kind="sink",component_type="file"} 1"#,
      // The pipeline file reads the rejected events.
      #"rxd_pipeline_dead_letters_total{pipeline="tail",fate="kept"} 0"#,
      #"rxd_pipeline_dead_letters_total{pipeline="tail",fate="logged"} 0"#,
      #"rxd_reloads_total{result="refused"} 0"#, "# TYPE rxd_component_latency_seconds histogram",
    ] { #expect(text.contains(line + "\n"), "\(line)\n\(text)") }
    let kept = try #require(
      text.firstMatch(of: #/rxd_component_kept_bytes\{pipeline="tail",component_id="slow/delay",[^}]*\} (\d+)\n/#))
    #expect(Int(kept.1) ?? 0 > 0)
    #expect(
      text.contains("# HELP rxd_edge_bytes_total Bytes of these events") && text.contains("estimated from samples"))
    #expect(!text.contains("# EOF"))

    let open = try get("/metrics", "-H", "Accept: application/openmetrics-text; version=1.0.0, text/plain;q=0.5")
    #expect(open.hasSuffix("# EOF\n") && open.contains("# TYPE rxd_edge_events counter\n"))
    #expect(open.contains("# TYPE rxd_build info\n") && open.contains(#"rxd_build_info{version="0.1.0"} 1"#))
    let head = try get("/metrics", "-I", "-X", "GET", "-H", "Accept: application/openmetrics-text")
    #expect(head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"))

    // Series are unique.
    let series = text.split(separator: "\n").filter { !$0.hasPrefix("#") }
      .map { line in line.lastIndex(of: " ").map { line[..<$0] } ?? line }
    #expect(Set(series).count == series.count && series.count > 100)
    try end(process)
  }

  /// Rejected events that no signal reads are counted by what happened to them.
  @Test(arguments: [true, false]) func deadLettersAreCounted(_ keepsState: Bool) throws {
    let input = try folder.write("in", "1\nx\ny\n4\n")
    let text = """
      name: tail
      sources: { lines: { file: { path: '\(input)', follow: true } } }
      signals: { large: { from: lines, chain: [ { map: int(event) } ] } }
      sinks: { out: { from: large, discard: {} } }

      """
    let state = keepsState ? ["--state-dir", folder.path + "/state"] : []
    let process = try start([try folder.write("a.yaml", text)] + state)
    let (fate, isNot) = keepsState ? ("kept", "logged") : ("logged", "kept")
    _ = try wait(
      "/metrics", until: "rxd_pipeline_dead_letters_total{pipeline=\"tail\",fate=\"\(fate)\"} 2\n",
      "rxd_pipeline_dead_letters_total{pipeline=\"tail\",fate=\"\(isNot)\"} 0\n")
    try end(process)
  }

  /// Counts continue over a reload, for steps that still exist.
  @Test func countsContinueOverAReload() throws {
    let input = try folder.write("in", "3\n4\n")
    let file = try folder.write("a.yaml", pipeline(input))
    let process = try start([file])
    _ = try wait("/metrics", until: "\(Self.passed) 2\n")
    try folder.write(
      "a.yaml",
      pipeline(input, map: "event * 2").replacing("{ filter: event > 2 },", with: "{ filter: event > 2 }, { skip: 0 },")
    )
    #expect(try Rxd.run("reload", "--wait", "--socket", socket).status == 0)
    let handle = try #require(FileHandle(forWritingAtPath: input))
    try handle.seekToEnd()
    try handle.write(contentsOf: Data("5\n".utf8))
    let text = try wait("/metrics", until: "\(Self.passed) 3\n")
    #expect(text.contains(#"rxd_reloads_total{result="reloaded"} 1"# + "\n"))
    #expect(text.contains(#"component_id="large/skip",component_kind="operator",component_type="skip"} 1"#))
    // An event held by an earlier run is still held, once.
    #expect(
      text.contains(
        #"rxd_component_held_events{pipeline="tail",component_id="slow/delay",component_kind="operator",component_type="delay"} 3"#
      ))
    try end(process)
  }

  /// The unread part of a source, while a sink holds it back and when everything has been read.
  @Test func lagIsWhatIsLeftToRead() throws {
    let port = try FreePort()
    try port.listen()
    let lines = try folder.write("lines", String(repeating: "{\"a\": 1}\n", count: 500_000))
    let sink = "http: { url: 'http://127.0.0.1:\(port.number)/', queue: 100, timeout: 10m }"
    let blocked = """
      name: blocked
      sources: { lines: { file: { path: '\(lines)', decode: ndjson } } }
      sinks: { shop: { from: lines, \(sink) } }

      """
    let process = try start([
      try folder.write("a.yaml", pipeline(try folder.write("in", "1\n3\n"))), try folder.write("b.yaml", blocked),
    ])
    let waits =
      #"rxd_source_wait_seconds_total{pipeline="blocked",component_id="lines/file",component_kind="source",component_type="file"} "#
    let name =
      #"rxd_source_lag_bytes{pipeline="blocked",component_id="lines/file",component_kind="source",component_type="file"} "#
    func value(_ name: String, in text: String) -> Double? {
      text.split(separator: "\n").first { $0.hasPrefix(name) }.flatMap { Double($0.dropFirst(name.count)) }
    }
    let deadline = Deadline(after: RunningRxd.limit)
    var text = ""
    repeat { text = try get("/metrics") } while (value(waits, in: text) ?? 0) == 0 && !deadline.isOver
    let read = try #require(value(name.replacing("lag", with: "position"), in: text))
    // Events that wait in the pipeline's input queue count as unread.
    let left = try #require(value(name, in: text))
    #expect(left >= 4_500_000 - read && left < 4_500_000 && left > 4_000_000, "\(left) \(read)")
    // None of it has been read since the first check, so it is at least that old.
    let age = name.replacing("lag_bytes", with: "lag_seconds")
    let first = try #require(value(age, in: text))
    repeat { text = try get("/metrics") } while (value(age, in: text) ?? 0) <= first + 0.2 && !deadline.isOver
    #expect((value(age, in: text) ?? 0) > first + 0.2)
    text = try wait("/metrics", until: "\(Self.passed) 1\n")
    #expect(value(name.replacing("blocked", with: "tail"), in: text) == 0)
    #expect(value(age.replacing("blocked", with: "tail"), in: text) == 0)
    try end(process)
  }

  @Test func readinessSaysWhatIsMissing() throws {
    let input = try folder.write("in", "3\n")
    let good = try folder.write("a.yaml", pipeline(input))
    let bad = try folder.write(
      "b.yaml", "name: b\nsources: { a: { error: { message: no } } }\nsinks: { out: { from: a, discard: {} } }\n")
    let process = try start([good, bad])
    _ = try wait("/metrics", until: #"rxd_pipeline_state{pipeline="b",state="restarting"} 1"#)
    let answer = try get("/ready", "-w", "%{http_code}")
    #expect(answer.hasSuffix("503") && answer.contains(#""name": "b""#) && !answer.contains(#""name": "tail""#))
    #expect(try get("/health", "-w", "%{http_code}").hasSuffix("200"))
    try folder.write("b.yaml", "name: b\nsources: { a: { never: {} } }\nsinks: { out: { from: a, discard: {} } }\n")
    #expect(try Rxd.run("reload", "--wait", "--socket", socket).status == 0)
    #expect(try get("/ready", "-w", "%{http_code}").hasSuffix("200"))
    try end(process)
  }

  /// Over TCP there are only the paths that monitoring needs, and only with the token.
  @Test func tcpServesLittle() throws {
    let port = try FreePort()
    let file = try folder.write("a.yaml", pipeline(try folder.write("in", "3\n")))
    let token = try folder.write("token", "s3cret-token\n")
    let process = try start([
      file, "--metrics-listen", "127.0.0.1:\(port.number)", "--metrics-token-file", token, "--metrics-hosts",
      "rxd.example, m.example",
    ])
    _ = try wait("/metrics", until: "\(Self.passed) 1\n")
    // Another test of this process sets a proxy in the environment for a while.
    func tcp(_ path: String, _ more: String...) throws -> String {
      try Program.run(
        "/usr/bin/env",
        [
          "curl", "-sS", "--noproxy", "*", "-m", "60", "-o", "/dev/null", "-w", "%{http_code}",
          "http://127.0.0.1:\(port.number)\(path)",
        ]
          + more
      ).output
    }
    let known = "Authorization: Bearer s3cret-token"
    #expect(try tcp("/metrics") == "401")
    #expect(try tcp("/metrics", "-H", "Authorization: Bearer s3cret-toke") == "401")
    #expect(try tcp("/metrics", "-H", known) == "200")
    #expect(try tcp("/ready", "-H", known) == "200")
    // Pages of other sites are refused, both under another name that resolves here and from their own origin.
    for host in ["rebind.example", "rebind.example:7930"] {
      #expect(try tcp("/metrics", "-H", known, "-H", "Host: \(host)") == "421", "\(host)")
    }
    #expect(try tcp("/metrics", "-H", known, "-H", "Origin: https://evil.example") == "403")
    for host in ["rxd.example", "m.example:80", "localhost:1"] {
      #expect(try tcp("/metrics", "-H", known, "-H", "Host: \(host)") == "200", "\(host)")
    }
    #expect(try tcp("/status", "-H", known) == "404")
    #expect(try tcp("/stats", "-H", known) == "404")
    #expect(try tcp("/reload", "-X", "POST", "-H", known) == "404")
    try end(process)
  }

  @Test func whatCannotBeServedIsRefused() throws {
    let file = try folder.write("a.yaml", pipeline(try folder.write("in", "3\n")))
    for address in ["0.0.0.0:7930", "[::]:7930", "example.org:80"] {
      let outcome = try Rxd.run("run", file, "--metrics-listen", address)
      #expect(outcome.status == 64 && outcome.errors.contains("--metrics-token-file"), "\(outcome.errors)")
    }
    for address in ["127.0.0.1", "localhost:", "::1:80", "a:b:1", "127.0.0.1:99999"] {
      #expect(try Rxd.run("run", file, "--metrics-listen", address).status == 64)
    }
    let named = try Rxd.run("run", file, "--metrics-listen", "0", "--metrics-hosts", "rxd.example:80")
    #expect(named.status == 64 && named.errors.contains("'rxd.example:80' is not a host name"), "\(named.errors)")
    let taken = try FreePort()
    try taken.listen()
    let outcome = try Rxd.run("run", file, "--metrics-listen", "\(taken.number)")
    #expect(outcome.status == 74 && outcome.errors.contains("another program listens there"), "\(outcome.errors)")
  }

  // MARK: Prometheus

  private func promtool(_ arguments: String..., input: String? = nil) throws -> (status: Int32, output: String) {
    guard let input else { return try Program.run("/usr/bin/env", ["promtool"] + arguments) }
    let file = try folder.write("metrics", input)
    return try Program.run("/bin/sh", ["-c", "promtool \(arguments.joined(separator: " ")) < \(file)"])
  }

  @Test(.enabled(if: hasPrometheus, "needs prometheus")) func promtoolAcceptsAll() throws {
    let text = pipeline(try folder.write("in", "1\n3\n")).replacing("{ delay:", with: "distinct, { delay:")
    let process = try start([try folder.write("a.yaml", text)])
    let metrics = try wait("/metrics", until: "\(Self.passed) 1\n")
    let checked = try promtool("check", "metrics", input: metrics)
    #expect(checked.status == 0 && checked.output.isEmpty, "\(checked.output)")
    let monitoring = Rxd.root + "/docs/monitoring"
    let rules = try promtool("check", "rules", monitoring + "/rxd-alerts.yaml")
    #expect(rules.status == 0, "\(rules.output)")
    let tests = try promtool("test", "rules", monitoring + "/rxd-alerts_test.yaml")
    #expect(tests.status == 0, "\(tests.output)")
    // The dashboard and the rules use only existing metrics.
    let described = Set(
      metrics.matches(of: #/TYPE (\S+) (\S+)/#).flatMap { match in
        (match.2 == "histogram" ? ["_bucket", "_sum", "_count"] : [""]).map { "\(match.1)\($0)" }
      })
    for name in ["rxd-alerts.yaml", "rxd-dashboard.json"] {
      let text = try String(contentsOfFile: monitoring + "/" + name, encoding: .utf8)
      let asked = Set(text.matches(of: /\b(?:rxd|process)_[a-z_]+/).map { String($0.0) })
      #expect(asked.count > 5 && asked.isSubset(of: described), "\(name): \(asked.subtracting(described))")
    }
    _ = try JSONSerialization.jsonObject(
      with: try Data(contentsOf: URL(fileURLWithPath: monitoring + "/rxd-dashboard.json")))
    try end(process)
  }

  /// A real server scrapes rxd and evaluates the rules.
  @Test(.enabled(if: hasPrometheus, "needs prometheus")) func prometheusScrapes() throws {
    let own = try FreePort()
    let token = try folder.write("token", "s3cret-token\n")
    let file = try folder.write("a.yaml", pipeline(try folder.write("in", "1\n3\n4\nx\n")))
    let process = try start([file, "--metrics-listen", "\(own.number)", "--metrics-token-file", token])
    let server = try PrometheusServer(
      folder,
      """
      global: { scrape_interval: 1s, evaluation_interval: 1s }
      rule_files: [ '\(Rxd.root)/docs/monitoring/rxd-alerts.yaml' ]
      scrape_configs:
        - job_name: rxd
          authorization: { credentials_file: '\(token)' }
          static_configs: [ { targets: [ '127.0.0.1:\(own.number)' ] } ]

      """)
    try server.asked(
      "/api/v1/query", "query=sum(rxd_component_sent_events_total{pipeline=\"tail\",component_id=\"large/filter\"})",
      until: #","2"]"#)
    try server.asked("/api/v1/query", "query=rxd_edge_events_total{to=\"bad/file\"}", until: #""from":"large.errors""#)
    // The file of the errors output accepted its event within some bound.
    try server.asked(
      "/api/v1/query",
      "query=histogram_quantile(0.99, sum by (le) (rxd_component_latency_seconds_bucket{component_id=\"bad/file\"})) < 300",
      until: #""value":["#)
    try server.asked("/api/v1/query", "query=rxd_source_lag_seconds{component_id=\"lines/file\"}", until: #","0"]"#)
    try server.asked("/api/v1/query", "query=rxd_utilization{component_id=\"large/filter\"} < 2", until: #""value":["#)
    // Every rule has been evaluated without an error.
    let rules = try server.asked("/api/v1/rules", until: #""health":"ok""#)
    #expect(!rules.contains(#""health":"err""#), "\(rules)")
    try end(process)
  }
}
