import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

/// `rxd tap`: events of a running pipeline.
@Suite(.timeLimit(.minutes(10)))
struct TapTests {
  private let folder: Scratch
  private var socket: String { folder.path + "/c.sock" }
  private var input: String { folder.path + "/in" }

  init() throws {
    folder = try Scratch()
    try folder.write("in", "")
  }

  /// Reads the file `in`, to which the test appends.
  private func text(_ map: String = "event * 1") -> String {
    """
    name: tail
    sources: { lines: { file: { path: '\(input)', follow: true } } }
    signals:
      large:
        from: lines
        chain:
          - map: int(event)
          - filter: event > 2
          - map: \(map)
    sinks: { out: { from: large, discard: {} } }

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

  private func append(_ text: String) throws {
    let handle = try #require(FileHandle(forWritingAtPath: input))
    try handle.seekToEnd()
    try handle.write(contentsOf: Data(text.utf8))
  }

  /// An attached tap: its first line names the attached edges.
  private func tap(_ arguments: String..., lines: Int = 1) throws -> (tap: RunningRxd, head: [[String: Any]]) {
    let tap = try RunningRxd(["tap", "tail", "--socket", socket] + arguments)
    return (tap, try (0..<lines).map { _ in try object(tap.line()) })
  }

  private func object(_ text: String?) throws -> [String: Any] {
    let text = try #require(text)
    return try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
  }

  @Test func showsEventsWithTheirVerdicts() throws {
    let process = try start(try folder.write("a.yaml", text()))
    for edge in ["large/filter", "large/fil*", "a.yaml:8", "8", "large/map->large/filter"] {
      let (tap, head) = try tap(edge, "--limit", "2")
      let edges = try #require(head.item(0)["edges"] as? [[String: Any]])
      #expect(edges.count == 1 && edges[0]["from"] as? String == "large/map", "\(edge): \(head)")
      #expect((edges[0]["at"] as? String)?.hasSuffix("a.yaml:8:9") == true)
      try append("1\n3\n")
      let events = try [object(tap.line()), object(tap.line())]
      #expect(events.map { $0["event"] as? Int } == [1, 3])
      #expect(events.map { $0["verdict"] as? String } == ["dropped", "passed"])
      #expect(try events.item(0)["pipeline"] as? String == "tail" && events.item(0)["to"] as? String == "large/filter")
      #expect(try tap.wait() == 0)
    }
    try end(process)
  }

  @Test func conditionsAndSamples() throws {
    let process = try start(try folder.write("a.yaml", text()))
    let (odd, _) = try tap("large", "--where", "event % 2 == 1", "--limit", "2")
    let (third, _) = try tap("large", "--sample", "3", "--limit", "2")
    let (undecided, _) = try tap("large", "--where", "event.x == 1 || event == 8", "--limit", "1")
    try append("3\n4\n5\n6\n7\n8\n")
    #expect(try [object(odd.line()), object(odd.line())].map { $0["event"] as? Int } == [3, 5])
    #expect(try [object(third.line()), object(third.line())].map { $0["event"] as? Int } == [5, 8])
    #expect(try object(undecided.line())["event"] as? Int == 8)
    for tap in [odd, third, undecided] { #expect(try tap.wait() == 0) }
    let wrong = try Rxd.run("tap", "tail", "large", "--where", "event >", "--socket", socket)
    #expect(wrong.status == 64 && wrong.errors.contains("event >"), "\(wrong.errors)")
    try end(process)
  }

  @Test func unknownNamesAreExplained() throws {
    let process = try start(try folder.write("a.yaml", text()))
    let edge = try Rxd.run("tap", "tail", "lareg", "--socket", socket)
    #expect(edge.status == 64 && edge.errors.contains("Did you mean 'large'?"), "\(edge.errors)")
    let pipeline = try Rxd.run("tap", "tial", "large", "--socket", socket)
    #expect(pipeline.status == 64 && pipeline.errors.contains("Did you mean 'tail'?"), "\(pipeline.errors)")
    let list = try Rxd.run("tap", "tail", "--socket", socket)
    #expect(
      list.status == 0
        && list.lines.contains { $0.hasPrefix("  large/filter") && $0.contains("large/map -> large/filter") })
    #expect(try Rxd.run("tap", "tail", "large", "--socket", folder.path + "/none").status == 69)
    try end(process)
  }

  /// The tap is attached to the new version before its first event.
  @Test func continuesOverAReload() throws {
    let file = try folder.write("a.yaml", text())
    let process = try start(file)
    let (tap, _) = try tap("large")
    try append("3\n")
    #expect(try object(tap.line())["event"] as? Int == 3)
    try folder.write("a.yaml", text("event * 10"))
    #expect(try Rxd.run("reload", "--wait", "--socket", socket).status == 0)
    try append("4\n")
    #expect(try object(tap.line())["edges"] != nil)
    #expect(try object(tap.line())["event"] as? Int == 40)
    // When the process ends, the tap ends too and says so.
    try end(process)
    #expect(try tap.wait() == 69)
  }

  @Test func secretsAreMasked() throws {
    let file = try folder.write("a.yaml", text("\"'${secret:key}-' + string(event)\""))
    #expect(chmod(try folder.write("key", "hunter22"), 0o600) == 0)
    let process = try start(file, "--secrets-dir", folder.path)
    let (tap, _) = try tap("large", "--limit", "1")
    try append("3\n")
    let line = try #require(try tap.line())
    #expect(try object(line)["event"] as? String == "(secret)-3" && !line.contains("hunter"))
    #expect(try tap.wait() == 0)
    try end(process)
  }

  @Test func longEventsAreCut() throws {
    let process = try start(try folder.write("a.yaml", text("\"string(event) + 'äöü'\"")))
    let (tap, _) = try tap("large", "--limit", "1", "--bytes", "4B")
    try append("3\n")
    let line = try object(tap.line())
    #expect(line["cut"] as? Bool == true && line["bytes"] as? Int == 9)
    #expect((line["event"] as? String)?.hasPrefix("\"3ä") == true)
    #expect(try tap.wait() == 0)
    try end(process)
  }

  /// A stalled reader costs the pipeline nothing but the counting, and a reader that resumes learns how much it missed.
  @Test func aSlowReaderMissesEvents() throws {
    let file = try folder.write(
      "a.yaml",
      """
      name: tail
      sources: { ticks: { interval: 1ms } }
      signals: { large: { from: ticks, chain: [ { map: "'\(String(repeating: "x", count: 1500))'" } ] } }
      sinks: { out: { from: large, discard: {} } }

      """)
    let process = try start(file)
    let (tap, _) = try tap("large")
    // Standard output of the tap is a full pipe; soon the socket is full too, and then the stream.
    let sent = try waitForCount(of: "large/map", above: 2500)
    #expect(sent > 2500)
    var missed = 0
    var shown = 0
    while missed == 0 {
      let line = try object(tap.line())
      if let count = line["missed"] as? Int { missed += count } else { shown += 1 }
    }
    #expect(shown > 100 && shown < 2500)
    tap.send(SIGKILL)
    _ = try tap.wait()
    try end(process)
  }

  private func waitForCount(of step: String, above count: Int) throws -> Int {
    var sent = 0
    let isAbove = try Polling.until(pause: 50) {
      let text = try Program.run("/usr/bin/env", ["curl", "-sS", "--unix-socket", socket, "http://rxd/stats"]).output
      let pipelines = try object(text)["pipelines"] as? [[String: Any]]
      let steps = pipelines?.first?["steps"] as? [[String: Any]]
      sent = steps?.first { $0["id"] as? String == step }?["out"] as? Int ?? 0
      return sent > count
    }
    guard isAbove else { throw TimedOut(description: "\(sent) events") }
    return sent
  }

  @Test func drawsMarbles() throws {
    let process = try start(try folder.write("a.yaml", text()))
    let tap = try RunningRxd([
      "tap", "tail", "large/filter", "large", "--marbles", "--tick", "10s", "--limit", "5", "--socket", socket,
    ])
    #expect(try tap.line() == "watching 2 edges of tail")
    try append("1\n3\n4\n")
    var lines: [String] = []
    while let line = try tap.line() { lines.append(line) }
    #expect(try tap.wait() == 0)
    // The filter got three events and dropped one; the signal sent the others.
    #expect(lines.contains { $0.hasPrefix("large/map -> large/filter") && $0.hasSuffix("(134)") }, "\(lines)")
    #expect(lines.contains { $0.hasPrefix("  dropped") && $0.contains("1") }, "\(lines)")
    #expect(lines.contains { $0.hasPrefix("large/map#2 -> large ") && $0.contains("(34)") }, "\(lines)")
    try end(process)
  }

  /// A step that holds the newest event first reports that it holds an event, and later that a newer one has replaced it.
  @Test func replacedEventsAreReportedLater() throws {
    let file = try folder.write(
      "a.yaml",
      """
      name: tail
      sources: { lines: { file: { path: '\(input)', follow: true } } }
      signals: { last: { from: lines, chain: [ { throttle: 1h } ] } }
      sinks: { out: { from: last, discard: {} } }

      """)
    let process = try start(file)
    // Lines with events count towards the limit, lines with verdicts do not.
    let (tap, _) = try tap("last/throttle", "--limit", "4")
    try append("a\nb\nb\n")
    var lines = try (0..<5).map { _ in try object(tap.line()) }
    try append("c\n")
    lines += try (0..<2).map { _ in try object(tap.line()) }
    #expect(lines.map { $0["event"] as? String } == ["a", "a", "b", "b", "b", "b", "c"], "\(lines)")
    #expect(
      lines.map { $0["verdict"] as? String } == [
        "kept", "superseded", "kept", "superseded", "kept", "superseded", "kept",
      ])
    let times = lines.map { $0["nanoseconds"] as? Int }
    #expect(
      try lines.map { $0["since"] as? Int } == [nil, times.item(0), nil, times.item(2), nil, times.item(4), nil],
      "\(lines)")
    #expect(lines[1]["from"] as? String == "lines" && lines[1]["to"] as? String == "last/throttle")
    #expect(try tap.wait() == 0)

    let marbles = try RunningRxd([
      "tap", "tail", "last/throttle", "--marbles", "--tick", "10s", "--limit", "2", "--socket", socket,
    ])
    #expect(try marbles.line() == "watching 1 edge of tail")
    try append("7\n8\n")
    var drawn: [String] = []
    while let line = try marbles.line() { drawn.append(line) }
    #expect(try marbles.wait() == 0)
    #expect(drawn.contains { $0.hasPrefix("lines -> last/throttle") && $0.hasSuffix("(AB)") }, "\(drawn)")
    #expect(drawn.contains { $0.hasPrefix("  kept") && $0.contains("(AB)") }, "\(drawn)")
    #expect(drawn.contains { $0.hasPrefix("  superseded") && $0.contains("A") && !$0.contains("B") }, "\(drawn)")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// When the process ends, a reader learns how many events it received, and that these are not all.
  @Test func theEndOfTheProcessEndsTheAnswer() throws {
    let process = try start(try folder.write("a.yaml", text()))
    let curl = try RunningRxd(
      ["-sSN", "--unix-socket", socket, "http://rxd/tap?pipeline=tail&edge=large"], running: "/usr/bin/curl")
    #expect(try object(curl.line())["edges"] != nil)
    let (tap, _) = try tap("large")
    try append("3\n")
    #expect(try object(curl.line())["event"] as? Int == 3)
    #expect(try object(tap.line())["event"] as? Int == 3)
    process.send(SIGTERM)
    var last: [String: Any] = [:]
    while let line = try curl.line() { last = try object(line) }
    let done = try #require(last["done"] as? [String: Any], "\(last)")
    #expect(done["shown"] as? Int == 1 && done["ending"] as? Bool == true)
    #expect(try curl.wait() == 0)
    #expect(try tap.wait() == 69)
    #expect(try process.wait() == 0)
  }
}
