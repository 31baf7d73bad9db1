import Foundation
import PipelineHost
import Testing

private let hasPrometheus = VerbTests.has("promtool", "--version") && VerbTests.has("prometheus", "--version")

/// The Grafana dashboard: its format is Grafana's, and Debian's Prometheus answers each of its queries.
@Suite(.timeLimit(.minutes(10)))
struct DashboardTests {
  private struct Target {
    var panel: String
    var refID: String
    var query: String
  }

  private static let monitoring = Rxd.root + "/docs/monitoring"

  private func dashboard() throws -> [String: Any] {
    let data = try Data(contentsOf: URL(fileURLWithPath: Self.monitoring + "/rxd-dashboard.json"))
    return try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
  }

  private func panels() throws -> [[String: Any]] { try #require(try dashboard()["panels"] as? [[String: Any]]) }

  private func targets() throws -> [Target] {
    try panels().flatMap { panel in
      try #require(panel["targets"] as? [[String: Any]]).map {
        Target(
          panel: try #require(panel["title"] as? String), refID: try #require($0["refId"] as? String),
          query: try #require($0["expr"] as? String))
      }
    }
  }

  /// Grafana's dashboard JSON model: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
  @Test func theFormIsGrafanas() throws {
    let dashboard = try dashboard()
    #expect(dashboard["title"] as? String == "rxd" && (dashboard["uid"] as? String)?.isEmpty == false)
    #expect((dashboard["schemaVersion"] as? Int ?? 0) >= 36)
    let times = try #require(dashboard["time"] as? [String: String])
    #expect(times["from"]?.hasPrefix("now-") == true && times["to"] == "now")
    let templating = try #require(dashboard["templating"] as? [String: Any])
    let variables = try #require(templating["list"] as? [[String: Any]])
    let names = Set(variables.compactMap { $0["name"] as? String })
    #expect(names == ["datasource", "instance", "pipeline"])
    var ids: Set<Int> = []
    var taken: [(x: Range<Int>, y: Range<Int>, title: String)] = []
    for panel in try panels() {
      let title = try #require(panel["title"] as? String)
      #expect(ids.insert(try #require(panel["id"] as? Int)).inserted, "\(title)")
      #expect(["stat", "timeseries", "nodeGraph"].contains(panel["type"] as? String), "\(title)")
      // The grid has 24 columns, and panels do not overlap.
      let place = try #require(panel["gridPos"] as? [String: Int])
      let (x, y) = (try #require(place["x"]), try #require(place["y"]))
      let (right, bottom) = (x + (try #require(place["w"])), y + (try #require(place["h"])))
      #expect(x >= 0 && right <= 24 && right > x && bottom > y, "\(title)")
      for other in taken {
        #expect(!(other.x.overlaps(x..<right) && other.y.overlaps(y..<bottom)), "\(title) over \(other.title)")
      }
      taken.append((x..<right, y..<bottom, title))
      let source = try #require(panel["datasource"] as? [String: String])
      #expect(source == ["type": "prometheus", "uid": "${datasource}"], "\(title)")
      let targets = try #require(panel["targets"] as? [[String: Any]])
      #expect(Set(targets.compactMap { $0["refId"] as? String }).count == targets.count && !targets.isEmpty, "\(title)")
      if let fields = panel["fieldConfig"] as? [String: Any] {
        #expect(fields["defaults"] is [String: Any] && fields["overrides"] is [Any], "\(title)")
      }
      // A node graph needs tables whose value column is named `mainstat`.
      if panel["type"] as? String == "nodeGraph" {
        for target in targets { #expect(target["format"] as? String == "table" && target["instant"] as? Bool == true) }
        #expect(Set(targets.compactMap { $0["refId"] as? String }) == ["edges", "nodes"])
        let renamed = (panel["transformations"] as? [[String: Any]] ?? []).compactMap {
          ($0["options"] as? [String: String])?["renamePattern"]
        }
        #expect(renamed.contains("mainstat"))
      }
    }
    // Each variable of a query is defined, or is one of Grafana's own.
    for target in try targets() {
      let used = Set(target.query.matches(of: /\$(\w+)/).map { String($0.1) })
      #expect(used.isSubset(of: names.union(["__rate_interval", "1"])), "\(target)")
    }
  }

  /// A pipeline that fails, waits and drops events gives each query a result, and the edges of the node graph only have existing
  /// nodes.
  @Test(.enabled(if: hasPrometheus, "needs prometheus")) func prometheusAnswersEveryQuery() throws {
    let folder = try Scratch()
    let (own, dead) = (try FreePort(), try FreePort())
    let input = try folder.write("in", "")
    let file = try folder.write(
      "a.yaml",
      """
      name: tail
      sources: { ticks: { interval: 20ms }, lines: { file: { path: '\(input)', follow: true } } }
      signals:
        odd: { from: ticks, chain: [ { filter: meta.offset % 2 == 1 }, { map: "meta.offset % 3 == 0 ? int('x') : 1" } ] }
        later: { from: ticks, chain: [ { distinct: meta.offset }, { delay: 1h } ] }
      sinks:
        out: { from: odd, file: '\(folder.path)/out' }
        bad: { from: odd.errors, discard: {} }
        kept: { from: later, discard: {} }
        shop: { from: lines, http: { url: 'http://127.0.0.1:\(dead.number)/', retry: { delay: 50ms, maxDelay: 50ms } } }

      """)
    let process = try RunningRxd([
      "--daemon", "--log-format", "text", "--metrics-listen", "\(own.number)", "--control-socket",
      folder.path + "/c.sock",
      file,
    ])
    try process.waits(forSocket: folder.path + "/c.sock")
    let writer = try #require(FileHandle(forWritingAtPath: input))
    try writer.write(contentsOf: Data("one\ntwo\n".utf8))
    let server = try PrometheusServer(
      folder,
      """
      global: { scrape_interval: 1s, evaluation_interval: 1s }
      rule_files: [ '\(Self.monitoring)/rxd-alerts.yaml' ]
      scrape_configs: [ { job_name: rxd, static_configs: [ { targets: [ '127.0.0.1:\(own.number)' ] } ] } ]

      """)
    for target in try targets() {
      // As Grafana does if 'All' is selected.
      let query = target.query.replacing("$instance", with: ".*").replacing("$pipeline", with: ".*")
        .replacing("$__rate_interval", with: "4s")
      try server.asked("/api/v1/query", "query=\(query)", until: #""value":["#)
    }
    for variable in ["rxd_build_info", "rxd_pipeline_running"] {
      try server.asked("/api/v1/series", "match[]=\(variable)", until: #""instance":"127.0.0.1:"#)
    }
    try graphIsConnected(server)
    try rulesAreEvaluated(server)
    process.send(SIGQUIT)
    #expect(try process.wait() == 128 + SIGQUIT)
  }

  private func labels(_ answer: String) throws -> [[String: String]] {
    let document = try JSONSerialization.jsonObject(with: Data(answer.utf8)) as? [String: Any]
    let data = try #require(document?["data"] as? [String: Any])
    return try #require(data["result"] as? [[String: Any]]).map { try #require($0["metric"] as? [String: String]) }
  }

  private func graphIsConnected(_ server: PrometheusServer) throws {
    var rows: [String: [[String: String]]] = [:]
    for target in try targets() where ["edges", "nodes"].contains(target.refID) {
      let query = target.query.replacing("$instance", with: ".*").replacing("$pipeline", with: ".*")
        .replacing("$__rate_interval", with: "4s")
      rows[target.refID] = try labels(server.answer("/api/v1/query", ["query=\(query)"]))
    }
    let nodes = try #require(rows["nodes"])
    let ids = Set(nodes.compactMap { $0["id"] })
    #expect(ids.count == nodes.count && ids.contains("odd/filter"), "\(nodes)")
    #expect(nodes.allSatisfy { $0["title"] == $0["id"] })
    let edges = try #require(rows["edges"])
    #expect(Set(edges.compactMap { $0["id"] }).count == edges.count && !edges.isEmpty)
    for edge in edges {
      #expect(ids.contains(edge["source"] ?? "") && ids.contains(edge["target"] ?? ""), "\(edge)")
    }
  }

  /// Every rule is evaluated without an error, and its tests make it fire.
  private func rulesAreEvaluated(_ server: PrometheusServer) throws {
    let text = try String(contentsOfFile: Self.monitoring + "/rxd-alerts.yaml", encoding: .utf8)
    let tests = try String(contentsOfFile: Self.monitoring + "/rxd-alerts_test.yaml", encoding: .utf8)
    let names = text.matches(of: /alert: (\w+)/).map { String($0.1) }
    #expect(names.count > 10)
    for name in names {
      #expect(tests.contains("alertname: \(name)\n") && tests.contains("exp_alerts:\n"), "\(name)")
    }
    let rules = try server.asked("/api/v1/rules", until: #""health":"ok""#)
    #expect(!rules.contains(#""health":"err""#), "\(rules)")
    // Only the alerts for the pipeline's current state fire immediately; the others do not.
    let alert = try server.asked("/api/v1/query", "query=ALERTS{alertstate=\"firing\"}", until: #""value":["#)
    let firing = try labels(alert).compactMap { $0["alertname"] }
    #expect(Set(firing) == ["RxdEventsRejected"])
  }
}
