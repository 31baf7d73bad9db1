import FigureTable
import Foundation
import PipelineCore
import PipelineTestSupport
import Testing

private let packageRoot = URL(fileURLWithPath: Rxd.root)

/// Every view of a running process shows exactly the figures of the table.
@Suite struct FigureTests {
  /// A figure, as views use it.
  private struct Entry {
    /// `queue.events`; nil: metrics only.
    var key: String?
    var meaning: String
    var family: MetricFamily?
    var labels: [String]
  }

  private struct Chapter {
    var name: String
    var title: String
    var labels: String
    var entries: [Entry]
    var keys: Set<String> { Set(entries.compactMap(\.key)) }
  }

  private static func entries<Subject>(_ table: FigureTable<Subject>) -> [Entry] {
    table.all.map { figure in
      let labels = (figure.metric?.labels.map(\.name) ?? []) + (figure.metric?.label.map { [$0] } ?? [])
      return Entry(key: figure.key, meaning: figure.meaning, family: figure.metric?.family, labels: labels)
    }
  }

  private static let chapters = [
    Chapter(name: "process", title: "of the process", labels: "", entries: entries(Figures.process)),
    Chapter(
      name: "pipelines", title: "of a pipeline", labels: "`{pipeline}`",
      entries: entries(Figures.pipelines) + entries(Figures.runs)),
    Chapter(
      name: "steps", title: "of a step", labels: "`{pipeline, component_id, component_kind, component_type}`",
      entries: entries(Figures.steps)),
    Chapter(
      name: "edges", title: "of an edge", labels: "`{pipeline, from, to, output}`", entries: entries(Figures.edges)),
  ]

  private static var families: [MetricFamily] { chapters.flatMap { $0.entries.compactMap(\.family) } }
  private static var keys: Set<String> { Set(chapters.flatMap { $0.entries.compactMap(\.key) }) }
  /// Every member name, including those of nested objects.
  private static var words: Set<String> { Set(keys.flatMap { $0.split(separator: ".").map(String.init) }) }

  private func text(_ path: String) throws -> String {
    try String(contentsOf: packageRoot.appending(path: path), encoding: .utf8)
  }

  // MARK: The table

  @Test func namesAreUniqueAndFollowTheRules() {
    for chapter in Self.chapters { #expect(chapter.keys.count == chapter.entries.compactMap(\.key).count) }
    var seen: [String: MetricFamily] = [:]
    for family in Self.families {
      #expect(family.name.wholeMatch(of: /(rxd|process)_[a-z_]+/) != nil && !family.name.hasSuffix("_total"))
      #expect(!family.help.isEmpty && !family.help.hasSuffix("."), "\(family.name)")
      #expect(seen[family.name].map { $0.help == family.help && $0.kind == family.kind } ?? true, "\(family.name)")
      seen[family.name] = family
    }
    #expect(seen.count > 50)
    for chapter in Self.chapters {
      for entry in chapter.entries where entry.family == nil {
        #expect(!entry.meaning.isEmpty || chapter.keys.contains { $0.hasPrefix("\(entry.key ?? "").") }, "\(entry)")
      }
    }
  }

  // MARK: JSON and metrics

  /// A step with all properties, as a component of each kind.
  private func whole(_ plan: Plan) -> PipelineStatistics.Step {
    var step = PipelineStatistics(of: plan).steps[0]
    step.nanoseconds = 5
    (step.bytes, step.position, step.lag, step.lagAge) = (1, 2, 3, .seconds(1))
    var latency = Latency()
    latency.add(.milliseconds(3), 1)
    step.latency = latency
    (step.inner, step.timers, step.nextTimer, step.dueTimers) = (1, 1, .seconds(1), [.seconds(1)])
    (step.deadLetters, step.retries, step.keys, step.keptEvents) = (1, 1, 1, 1)
    (step.lookups, step.misses) = (2, 1)
    (step.keptBytes, step.stateBytes, step.paused, step.isPausing) = (1, 1, .seconds(1), true)
    (step.watermark, step.isIdle, step.watermarkHeldBy) = (1_000_000_000, true, "a")
    step.connections = .init(open: 1, opened: 2, refused: 3, broken: 4, reused: 5)
    step.queue = .init(events: 1, bytes: 2, inFlight: 3, oldest: .seconds(4))
    step.outbox = step.queue
    var plugin = PipelineStatistics.Plugin()
    plugin.memory = 1
    plugin.counts = ["hits": 2]
    plugin.gauges = ["lag": ["a/0": 3, "a/1": 1.5], "depth": ["": 4]]
    step.plugin = plugin
    return step
  }

  private func paths(_ members: [(String, JSONText)]) -> Set<String> {
    Set(
      members.flatMap { name, value -> [String] in
        guard case .object(let inner) = value,
          ["connections", "queue", "outbox", "plugin", "replication"].contains(name)
        else {
          return [name]
        }
        return [name] + inner.map { "\(name).\($0.0)" }
      })
  }

  private func plan() throws -> Plan {
    try PipelineRun.compile("sources: { a: { scripted: {} } }\nsinks: { out: { from: a, probe: {} } }\n")
  }

  @Test func everyFigureIsInJSONAndInMetrics() throws {
    let plan = try plan()
    let step = whole(plan)
    var keys: Set<String> = []
    var writer = MetricsWriter(.openMetrics)
    for kind in [StepFigures.Kind.source, .operator, .sink] {
      let figures = StepFigures(step, kind, keyword: "x", busy: 0.5, trouble: .object([("reason", .string("no"))]))
      keys.formUnion(paths(Figures.steps.members(of: figures)))
      writer.write(Figures.steps, [("component_kind=\"\(kind.rawValue)\"", figures)])
    }
    // A step for requests refuses no connections.
    var listener = step
    listener.connections?.reused = nil
    writer.write(Figures.steps, [("x=\"y\"", StepFigures(listener, .sink, keyword: "x"))])
    #expect(keys == Self.chapters[2].keys)
    var edge = PipelineStatistics.Edge(plan.edges[1])
    (edge.bytes, edge.bytesAreEstimated) = (1, true)
    #expect(paths(Figures.edges.members(of: edge)) == Self.chapters[3].keys)
    writer.write(Figures.edges, [("", edge)])
    var pipeline = PipelineFigures(file: "a.yaml", state: "running", since: "")
    pipeline.deadLetters = [("kept", 1)]
    pipeline.replication = ReplicationFigures(isReached: true, behindBytes: 2, lag: .seconds(3))
    let statistics = PipelineStatistics(of: plan)
    #expect(
      paths(Figures.pipelines.members(of: pipeline) + Figures.runs.members(of: statistics)) == Self.chapters[1].keys)
    writer.write(Figures.pipelines, [("pipeline=\"a\\\"b\"", pipeline)])
    writer.write(Figures.runs, [("", statistics)])
    var process = ProcessFigures(version: "1")
    process.residentMemory = 3
    writer.write(Figures.process, [("", process)])
    let text = writer.finished()
    for family in Self.families { #expect(text.contains("# HELP \(family.name) \(family.help)\n"), "\(family.name)") }
    #expect(text.contains("rxd_pipeline_dead_letters_total{pipeline=\"a\\\"b\",fate=\"kept\"} 1\n"))
    #expect(text.contains("rxd_buffer_oldest_age_seconds{component_kind=\"sink\",buffer=\"outbox\"} 4.0\n"))
    #expect(text.hasSuffix("# EOF\n"))
  }

  /// The formats are an interface: names, order and conditions must not change between versions.
  @Test func formsAreAsBefore() throws {
    let step = whole(try plan())
    var text = ""
    for kind in [StepFigures.Kind.source, .operator, .sink] {
      let figures = StepFigures(step, kind, keyword: "x", busy: 0.5)
      text += "\(kind.rawValue) \(JSONText.object(Figures.steps.members(of: figures)).line)\n"
      var writer = MetricsWriter(.prometheus)
      writer.write(Figures.steps, [("component_kind=\"\(kind.rawValue)\"", figures)])
      text += writer.finished().split(separator: "\n").filter { !$0.contains("_bucket") }.joined(separator: "\n") + "\n"
    }
    let file = packageRoot.appending(path: "Tests/Golden/figures.txt")
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" { try Data(text.utf8).write(to: file) }
    #expect(text == (try String(contentsOf: file, encoding: .utf8)))
  }

  // MARK: Views that are written by hand

  /// The live page reads figures of the table. Those of a step that no row of its drawer says are shown by their names, as
  /// `figures_without_a_row_are_shown` of Tests/Page holds.
  @Test func thePageReadsTheTable() throws {
    // The names that identify an element, and methods of the page itself.
    let facts: Set = ["index", "step", "kind", "type", "at", "revision", "id", "set", "now"]
    var read: Set<String> = []
    let folder = packageRoot.appending(path: "Page")
    for name in try FileManager.default.contentsOfDirectory(atPath: folder.path) where name.hasSuffix(".js") {
      let script = try text("Page/\(name)")
      for match in script.matches(of: /(?:now|rates)\??\.([a-z_]+)/) { read.insert(String(match.1)) }
      for list in script.matches(of: /(?:step|edge): \[([^\]]*)\]/) {
        for name in list.1.matches(of: /"([a-z_]+)"/) { read.insert(String(name.1)) }
      }
      if name == "facts.js" || name == "model.js" {
        for match in script.matches(of: /(?:queue\??|outbox\?)\.([a-z_]+)/) { read.insert(String(match.1)) }
      }
    }
    #expect(read.subtracting(facts).subtracting(Self.words) == [], "these are no figures")
    let rows = try text("Page/facts.js").matches(of: #/^ +\["[^"]+", "([a-z_ ]+)",/#.anchorsMatchLineEndings())
    #expect(rows.count > 20)
    let said = rows.flatMap { $0.1.split(separator: " ").map(String.init) }
    #expect(Set(said).count == said.count, "a figure is said twice")
    #expect(Set(said).subtracting(Self.chapters[2].keys) == [], "these are no figures of a step")
  }

  /// `rxd top` and its sentences read figures of the table.
  @Test func topReadsTheTable() throws {
    let source = try text("Sources/rxd/Figures/LiveStatistics.swift")
    var read = Set(source.matches(of: /number\("([a-z_]+)"\)/).map { String($0.1) })
    read.formUnion(source.matches(of: /\["([a-z_]+)"\]/).map { String($0.1) })
    let facts: Set = ["id", "kind", "at", "name", "steps", "pipelines", "monotonic_nanoseconds", "reload"]
    let within: Set = ["reason", "since", "next_try", "result", "summary", "counts", "sum_nanoseconds"]
    #expect(read.subtracting(facts).subtracting(within).subtracting(Self.words) == [])
    #expect(read.count > 20)
  }

  /// Dashboard, alerts and documentation name metrics of the table only.
  @Test func otherPlacesNameMetricsOfTheTable() throws {
    var names: Set<String> = []
    for family in Self.families {
      names.insert(family.name + family.suffix)
      if family.kind == .histogram {
        for suffix in ["_bucket", "_sum", "_count"] { names.insert(family.name + suffix) }
      }
    }
    var places = [
      "docs/monitoring/rxd-dashboard.json", "docs/monitoring/rxd-alerts.yaml", "docs/monitoring/rxd-alerts_test.yaml",
    ]
    let docs = packageRoot.appending(path: "docs")
    places += try FileManager.default.contentsOfDirectory(atPath: docs.path).filter { $0.hasSuffix(".md") }.map {
      "docs/\($0)"
    }
    let used =
      /\b(?:rxd_(?:build|uptime|reloads|last|metrics|pipeline|component|source|buffer|plugin|edge|utilization)[a-z_]*|process_(?:cpu|resident|start)[a-z_]*)\b/
    var count = 0
    for place in places {
      for match in try text(place).matches(of: used) {
        let name = String(match.0)
        // C functions have such names too.
        if name.hasPrefix("rxd_plugin"), !place.contains("monitoring") { continue }
        #expect(names.contains(name), "\(place): \(name)")
        count += 1
      }
    }
    #expect(count > 100)
  }

  // MARK: Documentation

  private static func table(_ chapter: Chapter) -> String {
    var rows: [(first: String, entry: Entry, keys: [String], labels: [String])] = []
    for entry in chapter.entries {
      let key = entry.key.map { key in
        entry.family == nil || entry.meaning.isEmpty ? "`\(key)`" : "`\(key)` (\(entry.meaning))"
      }
      if let family = entry.family, let known = rows.firstIndex(where: { $0.entry.family?.name == family.name }) {
        if let key { rows[known].keys.append(key) }
      } else {
        let first = entry.family.map { family in
          let labels = entry.labels.isEmpty ? "" : "{\(entry.labels.joined(separator: ", "))}"
          return "`\(family.name)\(family.suffix)\(labels)`"
        }
        rows.append((first ?? "", entry, key.map { [$0] } ?? [], entry.labels))
      }
    }
    let head =
      "| metric \(chapter.title)\(chapter.labels.isEmpty ? "" : ", \(chapter.labels)") | in `GET /stats` | |\n|---|---|---|\n"
    return head
      + rows.map { row in
        let text = row.entry.family.map { $0.note.isEmpty ? $0.help : "\($0.help); \($0.note)" } ?? row.entry.meaning
        return "| \(row.first) | \(row.keys.joined(separator: ", ")) | \(text) |\n"
      }.joined()
  }

  /// The tables of docs/monitoring.md are generated from the table of figures; RXD_UPDATE_GOLDEN=1 rewrites them.
  @Test func theDocumentationHasEveryFigure() throws {
    var page = try text("docs/monitoring.md")
    let before = page
    for chapter in Self.chapters {
      let begin = "<!-- figures: \(chapter.name) -->\n"
      let start = try #require(page.range(of: begin), "\(chapter.name) has no place")
      let end = try #require(page.range(of: "<!-- end -->\n", range: start.upperBound..<page.endIndex))
      page.replaceSubrange(start.upperBound..<end.lowerBound, with: Self.table(chapter))
    }
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" {
      try Data(page.utf8).write(to: packageRoot.appending(path: "docs/monitoring.md"))
    }
    #expect(page == before, "docs/monitoring.md differs from the table of figures; RXD_UPDATE_GOLDEN=1 writes it")
  }
}
