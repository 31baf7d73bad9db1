import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

/// `rxd why`: events of a running pipeline that did not pass.
@Suite(.timeLimit(.minutes(10)))
struct WhyTests {
  private let folder: Scratch
  private var socket: String { folder.path + "/c.sock" }
  private var input: String { folder.path + "/in" }

  init() throws {
    folder = try Scratch()
    try folder.write("in", "")
  }

  private func text(_ least: Int = 500) -> String {
    """
    name: tail
    sources: { lines: { file: { path: '\(input)', follow: true, decode: ndjson } } }
    signals:
      large:
        from: lines
        chain:
          - map: event
          - filter: event.status >= \(least)
    sinks: { out: { from: large, file: '\(folder.path)/out' } }

    """
  }

  private func start(_ arguments: String...) throws -> RunningRxd {
    let process = try RunningRxd(["--daemon", "--log-format", "text", "--control-socket", socket] + arguments)
    try process.waits(forSocket: socket)
    return process
  }

  private func end(_ process: RunningRxd) throws {
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  private func why(_ arguments: String...) throws -> Rxd.Outcome {
    try Rxd.run(arguments: ["why"] + arguments + ["--socket", socket])
  }

  private func append(_ text: String) throws {
    let handle = try #require(FileHandle(forWritingAtPath: input))
    try handle.seekToEnd()
    try handle.write(contentsOf: Data(text.utf8))
  }

  private func object(_ text: String) throws -> [String: Any] {
    try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
  }

  /// The events of `--format json`, once there are so many.
  private func events(_ count: Int, orMore: Bool = false, _ arguments: String...) throws -> [[String: Any]] {
    let deadline = Deadline(after: RunningRxd.limit)
    while true {
      let outcome = try Rxd.run(arguments: ["why"] + arguments + ["--format", "json", "--socket", socket])
      #expect(outcome.status == 0, "\(outcome.errors)")
      let lines = try outcome.output.split(separator: "\n").map { try object(String($0)) }
      if orMore ? lines.count > count : lines.count == count + 1 { return Array(lines.dropLast()) }
      guard !deadline.isOver else { throw TimedOut(description: outcome.output) }
    }
  }

  @Test func reportsWhatTheConditionSaw() throws {
    let file = try folder.write("a.yaml", text())
    let process = try start(file)
    try append("{\"id\": \"a\", \"status\": 200}\n{\"id\": \"b\", \"status\": 503}\n{\"id\": 7, \"status\": 404}\n")
    let events = try events(2, "tail", "large/filter")
    #expect(events.map { $0["verdict"] as? String } == ["dropped", "dropped"])
    #expect(try events.item(0)["reason"] as? String == "event.status >= 500 is false")
    #expect(try events.item(0)["at"] as? String == "\(file):8:17" && events.item(0)["line"] as? Int == 8)
    #expect(try (events.item(0)["event"] as? [String: Any])?["status"] as? Int == 200)
    #expect(try events.item(1)["offset"] as? Int == 54 && events.item(1)["path"] as? String == input)
    let way = try #require(events.item(0)["way"] as? [[String: Any]])
    #expect(way.map { $0["step"] as? String } == ["lines/file", "large/map", "large/filter"])
    // The text format: the line of the file is underlined as by `check`.
    let shown = try why("tail", "8", "--id", "7")
    #expect(shown.status == 0)
    for part in [
      "tail: dropped by `large/filter`: event.status >= 500 is false\n", "--> \(file):8:17\n",
      "8 |       - filter: event.status >= 500\n", "  |                 ^^^^^^^^^^^^^^^^^^^\n",
      "= saw: event.status = 404\n", "= event: {\"id\": 7, \"status\": 404}\n", "= from: \(input), at byte 54\n",
      "= way: lines/file -> large/map -> large/filter\n", "`large/filter` at \(file):8:9: 2 dropped; 2 kept here\n",
    ] { #expect(shown.output.contains(part), "\(part) in \(shown.output)") }
    for (arguments, ids) in [
      (["--where", "event.status < 300"], ["a"]), (["--id", "a"], ["a"]), (["--id", "\(input):54"], ["7"]),
      (["tail", "--where", "meta.offset > 10"], ["7"]), (["--limit", "1"], ["7"]), (["--since", "1h"], ["a", "7"]),
      (["--until", "1h"], []), (["tail", "a.yaml:8", "--since", "2026-01-01T00:00:00Z"], ["a", "7"]),
      (["--verdict", "rejected"], []), (["tail", "large"], ["a", "7"]), (["t*", "*/filter"], ["a", "7"]),
      (["*", "lines"], []),
    ] as [([String], [String])] {
      let outcome = try Rxd.run(arguments: ["why"] + arguments + ["--format", "json", "--socket", socket])
      let found = try outcome.output.split(separator: "\n").dropLast().map { line -> String in
        let event = try object(String(line))["event"] as? [String: Any]
        return "\(event?["id"] ?? "")"
      }
      #expect(found == ids, "\(arguments): \(outcome.output) \(outcome.errors)")
    }
    try end(process)
  }

  @Test func unknownNamesAreExplained() throws {
    let process = try start(try folder.write("a.yaml", text()))
    let pipeline = try why("tial")
    #expect(pipeline.status == 64 && pipeline.errors.contains("Did you mean 'tail'?"), "\(pipeline.errors)")
    let step = try why("tail", "large/filtre")
    #expect(step.status == 64 && step.errors.contains("Did you mean 'large/filter'?"), "\(step.errors)")
    let condition = try why("tail", "--where", "event >")
    #expect(condition.status == 64 && condition.errors.contains("event >"), "\(condition.errors)")
    let since = try why("tail", "--since", "yesterday")
    #expect(since.status == 64 && since.errors.contains("10m"), "\(since.errors)")
    #expect(try why("tail", "--verdict", "passed").status == 64)
    let nothing = try why("tail")
    #expect(nothing.status == 0 && nothing.output == "No kept event matches.\n", "\(nothing.output)")
    let other = try why("tail", "--id", "none")
    #expect(other.status == 0 && other.output.contains("'rxd tap --where' shows the next one"), "\(other.output)")
    try end(process)
    #expect(try why("tail").status == 69)
  }

  @Test func keepsNothingWithoutMemoryForIt() throws {
    let process = try start(try folder.write("a.yaml", text()), "--why-memory", "0B")
    let answer = try why("tail")
    #expect(answer.status != 0 && answer.errors.contains("--why-memory"), "\(answer.errors)")
    try end(process)
  }

  /// Events stopped by an earlier version are reported with that version's line.
  @Test func continuesOverAReload() throws {
    let file = try folder.write("a.yaml", text())
    let process = try start(file)
    try append("{\"status\": 200}\n")
    _ = try events(1, "tail")
    try folder.write("a.yaml", "# a line more\n" + text(600))
    #expect(try Rxd.run("reload", "--wait", "--socket", socket).status == 0)
    try append("{\"status\": 550}\n")
    let events = try events(2, "tail")
    #expect(events.map { $0["line"] as? Int } == [8, 9])
    #expect(events.map { $0["reason"] as? String } == ["event.status >= 500 is false", "event.status >= 600 is false"])
    let shown = try why("tail").output
    #expect(shown.contains("8 |       - filter: event.status >= 500\n"), "\(shown)")
    try end(process)
  }

  /// Decoder threads drop events too.
  @Test func manyThreads() throws {
    let lines = (0..<200_000).map { "{\"status\": \($0 % 400)}\n" }.joined()
    try folder.write("in", lines)
    // The other input keeps the process running when all has been read.
    let process = try start(
      try folder.write("a.yaml", text().replacing("follow: true, ", with: "")),
      try folder.write("b.yaml", "name: b\nsources: { a: { never: {} } }\nsinks: { out: { from: a, discard: {} } }\n"))
    let events = try events(5, orMore: true, "tail", "large/filter")
    #expect(
      events.allSatisfy { $0["reason"] as? String == "event.status >= 500 is false" && $0["path"] as? String == input })
    try end(process)
  }

  /// The log, `rxd why` and the metrics use one name for a component, and a log line names its pipeline.
  @Test(.enabled(if: VerbTests.has("curl", "--version"), "needs curl")) func theLogHasTheNamesOfMetrics() throws {
    let port = try FreePort()
    func text(_ name: String) -> String {
      """
      name: \(name)
      sources: { t: { interval: 50ms } }
      signals: { s: { from: t, chain: [ { map: { n: event.tick } }, { filter: 100 / (event.n % 3) > 20 } ] } }
      sinks: { out: { from: s, http: { url: 'http://127.0.0.1:\(port.number)/' } } }

      """
    }
    let process = try RunningRxd([
      "--daemon", "--log-format", "json", "--control-socket", socket, try folder.write("one.yaml", text("one")),
      try folder.write("two.yaml", text("two")),
    ])
    var wanted: Set<String> = ["one s/filter", "one out/http", "two s/filter", "two out/http"]
    while !wanted.isEmpty {
      let line = try process.errorLine(with: "component_id")
      let record = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
      let (pipeline, component) = (record["pipeline"] as? String ?? "", record["component_id"] as? String ?? "")
      #expect(["one", "two"].contains(pipeline) && ["s/filter", "out/http"].contains(component), "\(line)")
      wanted.remove("\(pipeline) \(component)")
    }
    let metrics = try Program.run(
      "/usr/bin/env", ["curl", "-sS", "-m", "60", "--unix-socket", socket, "http://rxd/metrics"]
    ).output
    for component in ["s/filter", "out/http"] {
      #expect(metrics.contains("pipeline=\"one\",component_id=\"\(component)\""))
      #expect(try Rxd.run("why", "one", component, "--socket", socket).status == 0)
    }
    process.send(SIGQUIT)
    _ = try process.wait()
  }
}
