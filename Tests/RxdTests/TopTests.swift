import Foundation
import PipelineHost
import Testing

/// `rxd top`: the activity of a running process, and its bottleneck.
@Suite(.timeLimit(.minutes(10)))
struct TopTests {
  private let folder: Scratch
  private var socket: String { folder.path + "/c.sock" }

  init() throws { folder = try Scratch() }

  private func start(_ files: String...) throws -> RunningRxd {
    let process = try RunningRxd(["--daemon", "--log-format", "text", "--control-socket", socket] + files)
    try process.waits(forSocket: socket)
    return process
  }

  private func end(_ process: RunningRxd) throws {
    process.send(SIGQUIT)
    #expect(try process.wait() == 128 + SIGQUIT)
  }

  private func top(_ arguments: String...) throws -> Rxd.Outcome {
    try Rxd.run(arguments: ["top", "--socket", socket] + arguments)
  }

  private static let ticking = """
    name: ticking
    sources: { ticks: { interval: 2ms } }
    signals: { few: { from: ticks, chain: [ { map: "{'n': 1}" }, { filter: event.n > 1 } ] } }
    sinks: { none: { from: few, discard: {} } }

    """

  /// A sink whose server accepts the connection and never answers.
  private func blocked(_ port: FreePort) throws -> String {
    let lines = try folder.write("lines", String(repeating: "{\"a\": 1}\n", count: 50_000))
    return """
      name: blocked
      sources: { lines: { file: { path: '\(lines)', decode: ndjson } } }
      sinks: { shop: { from: lines, http: { url: 'http://127.0.0.1:\(port.number)/', queue: 100, timeout: 10m } } }

      """
  }

  /// The document of `--once`, once one of its sentences contains `text`.
  private func sentences(until text: String) throws -> [String] {
    let deadline = Deadline(after: RunningRxd.limit)
    while true {
      let outcome = try top("--once", "--format", "json", "--interval", "500ms")
      #expect(outcome.status == 0, "\(outcome.errors)")
      let document = try #require(
        try JSONSerialization.jsonObject(with: Data(outcome.output.utf8)) as? [String: Any])
      let sentences = try #require(document["sentences"] as? [String])
      if sentences.contains(where: { $0.contains(text) }) { return sentences }
      guard !deadline.isOver else { throw TimedOut(description: "\(sentences)") }
    }
  }

  @Test func reportsWhatIsLeftOut() throws {
    let process = try start(try folder.write("a.yaml", Self.ticking))
    let sentences = try sentences(until: "`few/filter` at a.yaml:3 left out 100 % of ")
    #expect(sentences.count == 1, "\(sentences)")
    try end(process)
  }

  @Test func reportsWhatHoldsBack() throws {
    let port = try FreePort()
    try port.listen()
    let process = try start(
      try folder.write("a.yaml", Self.ticking), try folder.write("b.yaml", try blocked(port)))
    let sentences = try sentences(until: "`shop/http` holds back `blocked`")
    // The worst problem comes first.
    let worst = try #require(sentences.first)
    #expect(worst.wholeMatch(of: #/`shop\/http` holds back `blocked`.*: [\d,]+ events wait.*/#) != nil, "\(worst)")
    try end(process)
  }

  @Test func theTableFitsATerminalWithoutColours() throws {
    let process = try start(try folder.write("a.yaml", Self.ticking))
    _ = try sentences(until: "left out")
    let outcome = try top("--once", "--color", "auto")
    #expect(outcome.status == 0 && !outcome.output.contains("\u{1B}"))
    #expect(outcome.lines.allSatisfy { $0.unicodeScalars.count <= 80 }, "\(outcome.output)")
    let header = try #require(outcome.lines.firstIndex { $0.hasPrefix("STEP") })
    let names = outcome.lines[(header + 1)...].map { $0.prefix { $0 != " " } }
    #expect(names == ["ticks/interval", "few/map", "few/filter", "none/discard"])
    let filtered = try top("--once", "--filter", "few", "--sort", "dropped")
    #expect(filtered.lines.contains { $0.hasPrefix("few/filter") } && !filtered.output.contains("none/discard"))
    let rows = filtered.lines.drop { !$0.hasPrefix("STEP by dropped") }.dropFirst()
    #expect(rows.first?.hasPrefix("few/filter") == true, "\(filtered.output)")
    try end(process)
    #expect(try top("--once").status == 69)
    #expect(try top("--format", "json").status == 64)
  }

  /// The sizes of steps' state are in the document, and in a table that is at least 100 columns wide.
  @Test func showsWhatStepsKeep() throws {
    let text = Self.ticking.replacing("chain: [", with: "chain: [ { distinct: meta.offset },")
    let process = try start(try folder.write("a.yaml", text))
    let deadline = Deadline(after: RunningRxd.limit)
    while true {
      let output = try top("--once", "--format", "json", "--interval", "100ms").output
      let document = try #require(try JSONSerialization.jsonObject(with: Data(output.utf8)) as? [String: Any])
      let steps = try #require(document["steps"] as? [[String: Any]])
      let keys = steps.compactMap { step in (step["keys"] as? Int).map { "\(step["id"] as? String ?? ""): \($0)" } }
      let bytes = steps.compactMap { ($0["kept_bytes"] as? Int) }.max() ?? 0
      if keys.count == 1, keys[0].hasPrefix("few/distinct: "), bytes > 20 { break }
      guard !deadline.isOver else { throw TimedOut(description: output) }
    }
    let narrow = try top("--once", "--interval", "100ms").output
    #expect(narrow.contains("HELD") && !narrow.contains("KEYS"))
    let terminal = try Terminal("top", "--socket", socket, "--interval", "100ms", "--sort", "keys")
    try terminal.expect("KEYS")
    try terminal.expect("KEEPS")
    try terminal.type("q", expecting: "\u{1B}[?1049l")
    #expect(try terminal.wait() == 0)
    try end(process)
  }

  /// The counts of many steps are as good as those of few: the answer may have any size.
  @Test func aThousandStepsAreShown() throws {
    let chain = (0..<30).map { _ in "{ map: event }, { filter: event != 3 }" }.joined(separator: ", ")
    var files: [String] = []
    for number in 0..<10 {
      files.append(
        try folder.write(
          "p\(number).yaml",
          """
          name: p\(number)
          sources: { t: { interval: 1s } }
          signals: { a: { from: t, chain: [ { map: event.tick }, \(chain) ] }, b: { from: a, chain: [ \(chain) ] } }
          sinks: { out: { from: b, discard: {} } }

          """))
    }
    let process = try RunningRxd(["--daemon", "--log-format", "text", "--control-socket", socket] + files)
    try process.waits(forSocket: socket)
    let outcome = try top("--once", "--interval", "100ms", "--format", "json")
    #expect(outcome.status == 0, "\(outcome.errors)")
    let document = try #require(
      try JSONSerialization.jsonObject(with: Data(outcome.output.utf8)) as? [String: Any])
    #expect((document["steps"] as? [Any])?.count == 10 * 123)
    #expect((document["sentences"] as? [Any])?.isEmpty == false)
    try end(process)
  }

  /// No line is longer than the window, however narrow it is.
  @Test(arguments: [24, 41, 63, 79] as [UInt16]) func aNarrowWindowIsEnough(_ columns: UInt16) throws {
    let process = try start(try folder.write("a.yaml", Self.ticking))
    let terminal = try Terminal("top", "--socket", socket, "--interval", "100ms", columns: columns, rows: 20)
    try terminal.expect("STEP")
    let line = try terminal.line()
    #expect(line.contains("IN/S") && line.unicodeScalars.count <= Int(columns) - 4, "\(line.debugDescription)")
    for _ in 0..<4 {
      let line = try terminal.line()
      #expect(line.unicodeScalars.count <= Int(columns), "\(line.debugDescription)")
    }
    try terminal.type("q", expecting: "\u{1B}[?1049l")
    #expect(try terminal.wait() == 0)
    try end(process)
  }

  @Test func theTableScrolls() throws {
    let chain = (0..<40).map { _ in "{ map: event }" }.joined(separator: ", ")
    let text = """
      name: long
      sources: { t: { interval: 10ms } }
      signals: { a: { from: t, chain: [ \(chain) ] } }
      sinks: { out: { from: a, discard: {} } }

      """
    let process = try start(try folder.write("a.yaml", text))
    let terminal = try Terminal("top", "--socket", socket, "--interval", "100ms", rows: 20)
    try terminal.expect("rows 1 to ")
    try terminal.expect(" of 42")
    try terminal.type("\u{1B}[B", expecting: "rows 2 to ")
    try terminal.type("\u{1B}[A", expecting: "rows 1 to ")
    try terminal.type("G", expecting: "to 42 of 42")
    try terminal.type("\u{1B}[5~", expecting: "a/map#")
    try terminal.type("\u{1B}[H", expecting: "rows 1 to ")
    try terminal.type("\u{1B}[6~", expecting: "a/map#")
    try terminal.type("q", expecting: "\u{1B}[?1049l")
    #expect(try terminal.wait() == 0)
    try end(process)
  }

  /// Errors that the file itself reads from an errors output come after anything that is stuck.
  @Test func whatTheFileReadsIsNoFailure() throws {
    let port = try FreePort()
    try port.listen()
    let text = """
      name: both
      sources: { ticks: { interval: 2ms } }
      signals: { ints: { from: ticks, chain: [ { map: 1 / (event.tick % 2) } ] } }
      sinks:
        none: { from: ints, discard: {} }
        bad: { from: ints.errors, discard: {} }

      """
    let process = try start(
      try folder.write("a.yaml", text), try folder.write("b.yaml", try blocked(port)))
    let sentences = try sentences(until: "which the file reads from its errors output")
    let stuck = try #require(try self.sentences(until: "holds back").firstIndex { $0.contains("holds back") })
    #expect(stuck == 0, "\(sentences)")
    #expect(!sentences.contains { $0.contains("failed for") }, "\(sentences)")
    try end(process)
  }

  /// The reasons why a pipeline does not run and why a reload was refused come first, also in the output of `rxd why`.
  @Test func theCauseIsSaid() throws {
    let text = """
      name: lost
      sources: { lines: { file: { path: '\(folder.path)/missing' } } }
      sinks: { none: { from: lines, discard: {} } }

      """
    let ticking = try folder.write("a.yaml", Self.ticking)
    let process = try start(ticking, try folder.write("b.yaml", text))
    let failed = try sentences(until: "`lost` does not run: ")
    #expect(failed.first?.contains("missing") == true, "\(failed)")
    let why = try Rxd.run("why", "lost", "--socket", socket)
    #expect(why.output.contains("`lost` does not run: ") && why.output.contains("missing"), "\(why.output)")
    try folder.write("a.yaml", Self.ticking.replacing("filter:", with: "filtre:"))
    #expect(try Rxd.run("reload", "--wait", "--socket", socket).status == 78)
    _ = try sentences(until: "The last reload was rejected: ")
    let refused = try Rxd.run("why", "ticking", "--socket", socket)
    #expect(refused.output.contains("The last reload was rejected: "), "\(refused.output)")
    try end(process)
  }

  @Test func keysOnATerminal() throws {
    let process = try start(try folder.write("a.yaml", Self.ticking))
    let terminal = try Terminal("top", "--socket", socket, "--interval", "100ms")
    try terminal.expect("few/filter")
    try terminal.expect("q ends, s: order (file)")
    try terminal.type("s", expecting: "s: order (name)")
    try terminal.type("/none", expecting: "filter: none_")
    try terminal.type("\r", expecting: "q ends")
    try terminal.type("q", expecting: "\u{1B}[?1049l")
    #expect(try terminal.wait() == 0)
    try end(process)
  }

  /// The terminal is restored even when a signal ends it.
  @Test(arguments: [SIGTERM, SIGINT, SIGHUP]) func aSignalRestoresTheTerminal(_ signal: Int32) throws {
    let process = try start(try folder.write("a.yaml", Self.ticking))
    let terminal = try Terminal("top", "--socket", socket, "--interval", "100ms")
    try terminal.expect("q ends, s: order (file)")
    #expect(!terminal.isCooked)
    terminal.send(signal)
    try terminal.expect("\u{1B}[?25h\u{1B}[?1049l")
    #expect(terminal.isCooked)
    #expect(try terminal.wait() == -signal)
    try end(process)
  }
}
