import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

/// Neither a file nor an answer of another process ends a verb by a signal.
@Suite(.timeLimit(.minutes(20)))
struct HostileFileTests {
  private let folder: Scratch

  init() throws { folder = try Scratch() }

  private func write(_ name: String, _ bytes: [UInt8]) throws -> String {
    let path = folder.path + "/" + name
    try Data(bytes).write(to: URL(fileURLWithPath: path))
    return path
  }

  /// Runs a verb with many files at once, and names a file that ends it by a signal.
  private func survives(_ verb: [String], _ files: [String]) throws {
    let outcome = try Rxd.run(arguments: verb + files)
    guard outcome.hasCrashed else { return }
    if files.count <= 1 {
      let text = String(
        decoding: files.first.flatMap { FileManager.default.contents(atPath: $0) } ?? Data(), as: UTF8.self)
      Issue.record(
        "rxd \(verb.joined(separator: " ")): status \(outcome.status)\n\(outcome.errors.suffix(600))\n\(text.prefix(3000))"
      )
    } else {
      let half = files.count / 2
      try survives(verb, Array(files[..<half]))
      try survives(verb, Array(files[half...]))
    }
  }

  // MARK: Parameters of the catalogue

  /// A file whose tests run `step` over the inputs.
  private static func file(
    _ step: String, _ inputs: [(name: String, marbles: String)], _ values: [(String, String)], tick: String = "1ms"
  ) -> String {
    var text = "name: example\nsources:\n"
    for input in inputs { text += "  \(input.name): { interval: 1h }\n" }
    if MarbleCase.isWholeSignal(step) {
      text += "signals:\n  result: \(step.hasPrefix("{") ? step : "{ \(step) }")\n"
    } else {
      text += "signals:\n  result:\n    from: a\n    chain:\n      - \(step)\n"
    }
    text += "sinks:\n  out: { from: result, discard: {} }\ntests:\n  - name: t\n    until: 60ms\n    inputs:\n"
    let letters = values.map { "\($0.0): \($0.1)" }.joined(separator: ", ")
    for input in inputs {
      text += "      \(input.name): { marbles: '\(input.marbles)', tick: \(tick), values: { \(letters) } }\n"
    }
    return text + "    expect: { out: [] }\n"
  }

  /// The examples of all operators, with one number of the step or one value of an event replaced by an extreme one, run in virtual time.
  @Test func operatorsAtTheEndsOfTheirRanges() throws {
    var files: [String] = []
    func add(_ text: String) throws { files.append(try write("o\(files.count).yaml", Array(text.utf8))) }
    for entry in Catalogue.operators.components {
      for example in entry.examples.prefix(3) {
        guard case .marble(let step, let inputs, _, let values) = example.body else { continue }
        let bytes = Array(step.utf8)
        for range in Hostile.numbers(in: bytes) {
          let isWithUnit = !(0x30...0x39).contains(bytes[range.upperBound - 1])
          let extremes =
            isWithUnit
            ? ["0s", "36500d", "1048576GiB"]
            : ["0", "-1", "9223372036854775807", "-9223372036854775808", "4294967296", "1e308"]
          for extreme in extremes {
            let text = bytes[..<range.lowerBound] + Array(extreme.utf8) + bytes[range.upperBound...]
            try add(Self.file(String(decoding: text, as: UTF8.self), inputs, values))
          }
        }
        for extreme in ["9223372036854775807", "-9223372036854775808", "1.7e308", "[[]]", "''"] {
          let letters = Set(inputs.flatMap { $0.marbles.map(String.init) }).filter {
            $0.first.map { $0.isLetter || $0.isNumber } == true
          }
          try add(Self.file(step, inputs, letters.sorted().map { ($0, extreme) }))
        }
      }
    }
    #expect(files.count > 500)
    for from in stride(from: 0, to: files.count, by: 500) {
      try survives(["test", "-q"], Array(files[from..<min(from + 500, files.count)]))
    }
  }

  /// The examples of sources and sinks, checked with extreme numbers.
  @Test func sourcesAndSinksAtTheEndsOfTheirRanges() throws {
    let catalogue = try Rxd.run("list", "--names").lines.prefix(200)
    var files: [String] = []
    var hostile = Hostile(3)
    for name in catalogue {
      let page = try Rxd.run("describe", name, "--format", "markdown").output
      for block in page.components(separatedBy: "```yaml\n").dropFirst().prefix(4) {
        guard let text = block.components(separatedBy: "```").first, !text.isEmpty else { continue }
        for _ in 0..<4 { files.append(try write("c\(files.count).yaml", hostile.mutated(Array(text.utf8)))) }
      }
    }
    #expect(files.count > 500)
    for from in stride(from: 0, to: files.count, by: 400) {
      try survives(["check"], Array(files[from..<min(from + 400, files.count)]))
    }
  }

  // MARK: Tests of pipeline files

  private static let tested = """
    name: p
    sources: { a: { interval: 1h }, web: { httpServer: { address: "127.0.0.1:1", decode: json } } }
    signals:
      late: { from: a, chain: [ { delay: 300ms }, { map: '[now, event]' } ] }
      asked: { from: a, chain: [ { flattenMap: { signal: { http: { url: 'http://127.0.0.1:1/{{ event }}' } } } } ] }
    sinks: { o: { from: late, discard: {} }, h: { from: asked, discard: {} }, r: { from: web, reply: {} } }
    tests:
      - name: one
        now: 2026-05-01T12:00:00Z
        until: 10s
        inputs: { a: { marbles: 'a 300ms b|', tick: 10ms, values: { a: 1, b: { x: 2 } } } }
        stubs: { http: [ { url: '*', after: 20ms, reply: { status: 200, json: { a: 1 } } } ] }
        expect: { o: { marbles: '300ms a', tick: 1ms, values: { a: 1 } }, http.requests: [ { at: 3ms, next: { method: GET } } ] }
      - name: two
        stubs: { http: [ { url: '*', reply: { text: none } } ] }
        inputs: { a: [ { at: 20ms, next: 1 }, { at: 30ms, error: no } ], web: [ { at: 1ms, next: { body: 1 } } ] }
        expect: { o: { events: [ { at: 320ms, next: 1 } ], more: true }, web.replies: [ { at: 5ms, next: { status: 200 } } ] }

    """

  /// Times, sizes and texts of `tests:`, and everything else of a pipeline file.
  @Test func pipelineFilesAndTheirTests() throws {
    let text = Array(Self.tested.utf8)
    // Tests run only in a file that has no other error.
    let checked = try Rxd.run("check", try write("tested.yaml", text))
    #expect(checked.status == 0, "\(checked.output)")
    var files: [String] = []
    for range in Hostile.numbers(in: text) {
      for extreme in [
        "36500d", "36501d", "0s", "9223372036854775807", "-9223372036854775808", "1e308", "9999-12-31T23:59:59Z",
      ] {
        files.append(
          try write(
            "n\(files.count).yaml", Array(text[..<range.lowerBound] + Array(extreme.utf8) + text[range.upperBound...])))
      }
    }
    for seed in UInt64(0)..<150 {
      var hostile = Hostile(seed)
      files.append(try write("m\(files.count).yaml", hostile.mutated(hostile.mutated(text))))
    }
    try survives(["test", "-q"], files)
    try survives(["test", "-q", "--coverage", "--update"], Array(files.prefix(120)))
    for verb in [["check"], ["check", "--format", "json"], ["fmt", "--check"], ["fmt"]] { try survives(verb, files) }
    for file in files.suffix(12) {
      for verb in [
        ["graph"], ["graph", "--format", "json"], ["eval", "--functions", file, "1"], ["plugin", "check"],
      ] { try survives(verb, [file]) }
    }
  }

  /// An instant at the end of the range of tests is within the range of operators.
  @Test func testsAtTheEndOfTime() throws {
    let steps = [
      "delay: 36500d", "throttle: 36500d", "timeout: 36500d", "timeoutBetween: 36500d", "bufferWithTime: 36500d",
      "window: { every: 36500d }", "window: { gap: 36500d }", "distinct: { within: 36500d }", "map: '[now, event]'",
      "sample: { every: 36500d }", "rateLimit: { count: 1, per: 36500d }",
      "rateLimit: { count: 1, per: 36500d, mode: bucket, excess: wait }", "absence: { after: 36500d }",
      "retry: { count: 3, delay: 36500d, maxDelay: 36500d }", "repeat: { delay: 36500d }",
      "join: { signal: a, within: 36500d }", "dematerialize", "materialize",
      "scan: { start: 9223372036854775807, next: running + 1 }",
    ]
    let files = try steps.enumerated().map { index, step in
      let text = """
        name: e
        sources: { a: { interval: 1h } }
        signals: { r: { from: a, chain: [ { \(step) } ] } }
        sinks: { o: { from: r, discard: {} } }
        tests:
          - name: t
            now: 2262-04-11T23:47:16Z
            inputs: { a: [ { at: 0s, next: 1 }, { at: 36500d, next: 2 }, { at: 36500d, complete: true } ] }
            expect: { o: [ { at: 36500d, next: 2 } ] }
          - name: u
            inputs: { a: { marbles: 'a 36500d b 36500d c 36500d d 36500d e' } }
            expect: { o: [] }

        """
      return try write("e\(index).yaml", Array(text.utf8))
    }
    let checked = try Rxd.run(arguments: ["check"] + files)
    #expect(checked.status == 0, "\(checked.output)")
    try survives(["test", "-q"], files)
  }

  // MARK: Other files

  private static let counting = """
    name: p
    sources: { a: { values: { list: ["${A:-x}", 1, 2]MORE } } }
    signals: { t: { from: a, chain: [ { map: int(event) }, { scan: { start: 0, next: running + event } } ] } }
    sinks: { o: { from: t, discard: {} } }

    """

  @Test func settingsStatesSpecsAndDeadLetters() throws {
    // One pipeline that waits, so that it leaves a state, and one that ends.
    func pipeline(_ name: String, _ more: String) throws -> String {
      try folder.write(name, Self.counting.replacingOccurrences(of: "MORE", with: more))
    }
    let waiting = try pipeline("p.yaml", ", every: 1h")
    let ending = try pipeline("q.yaml", "")
    let state = folder.path + "/state"
    // The remains: a state with the position in the list, and a dead letter.
    let process = try RunningRxd([
      "run", "--daemon", "--state-dir", state, "--control-socket", folder.path + "/s", waiting,
    ])
    // The control socket exists before the pipelines have started.
    #expect(Polling.until { FileManager.default.subpaths(atPath: state)?.contains { $0.hasSuffix(".db") } == true })
    process.send(SIGTERM)
    _ = try process.wait()
    let exported = Array(try Rxd.run("state", "export", "p", "--state-dir", state).output.utf8)
    try #require(!exported.isEmpty)
    let store = try #require(FileManager.default.subpaths(atPath: state)?.first { $0.hasSuffix(".db") })
    let stored = try Array(Data(contentsOf: URL(fileURLWithPath: "\(state)/\(store)")))
    for seed in UInt64(0)..<12 {
      var hostile = Hostile(700 + seed)
      let settings = try write("env\(seed)", hostile.mutated(Array("A=1\nB='two'\nC=\"three\"\n".utf8)))
      try survives(["run", "--env-file", settings, ending], [])
      let other = folder.path + "/other\(seed)"
      let file = try write("x\(seed).json", hostile.mutated(exported))
      try survives(["state", "import", "p", "--yes", "--state-dir", other], [file])
      try survives(["run", "--state-dir", other, ending], [])
      // The store itself is damaged.
      let damaged = folder.path + "/damaged\(seed)"
      let place = URL(fileURLWithPath: "\(damaged)/\(store)")
      try FileManager.default.createDirectory(
        at: place.deletingLastPathComponent(), withIntermediateDirectories: true,
        attributes: [.posixPermissions: 0o700])
      try Data(hostile.mutated(stored)).write(to: place)
      for verb in [["state", "ls"], ["state", "show", "p"], ["deadletters", "ls"], ["deadletters", "show", "p"]] {
        try survives(verb + ["--state-dir", damaged], [])
      }
      let spec = hostile.mutated(
        Array(
          #"{"spec":{"plugin":"x","version":"1","summary":"S.","components":[{"kind":"operator","name":"n","summary":"N.","credit":64,"parameters":[{"name":"size","type":"integer","primary":true,"minimum":1,"maximum":9,"default":3,"help":"H."}]}]}}"#
            .utf8))
      let plugin = try write(
        "plug\(seed)", Array("#!/bin/sh\ncat <<'END'\n".utf8) + spec + Array("\nEND\ncat > /dev/null\n".utf8))
      chmod(plugin, 0o755)
      try survives(["plugin", "check"], [plugin])
    }
  }

  @Test func expressionsAndEvents() throws {
    let expressions = [
      "event.a + 9223372036854775807", "-9223372036854775808 / -1", "int(event.a) * 2", "duration('36500d') * 5",
      "timestamp(event.a)",
      "event.a.substring(0, 9223372036854775807)", "[1][event.a]", "'%d'.format([event.a])",
    ]
    for seed in UInt64(0)..<40 {
      var hostile = Hostile(900 + seed)
      let expression = String(
        decoding: hostile.mutated(Array(hostile.random.pick(expressions).utf8)).prefix(2000).filter { $0 != 0 },
        as: UTF8.self)
      let outcome = try Rxd.run("eval", "--no-history", "--", expression, input: "{\"a\": \(hostile.json())}\n")
      #expect(!outcome.hasCrashed, "seed \(seed): \(expression) \(outcome.errors.suffix(500))")
    }
  }

  /// The verbs that query a running process receive answers that no rxd gives.
  @Test func answersOfAnotherProcess() throws {
    let socket = folder.path + "/c.sock"
    let stats = """
      {"monotonic_nanoseconds": 5000000000, "at": "2026-01-01T00:00:00Z", "pipelines": [{"name": "p", "state": "running", "current": true, \
      "steps": [{"id": "a/file", "kind": "source", "at": "p.yaml:3:5", "in": 12, "out": 11, "dropped": 1, "rejected": 3, "superseded": 4, "failed": 2, \
      "nanoseconds": 100, "queue": {"events": 3, "bytes": 700, "oldest_nanoseconds": 9000000000}, "lag_bytes": 99999999, "lag_nanoseconds": 12000000000, \
      "latency": {"counts": [1, 2, 3], "sum_nanoseconds": 5}}], "edges": []}]}
      """
    let tap = """
      {"pipeline": "p", "edges": [{"from": "a", "to": "b"}]}
      {"from": "a", "to": "b", "nanoseconds": 100, "time": "2026", "event": 1}
      {"from": "a", "to": "b", "nanoseconds": 200, "time": "2026", "event": 2, "verdict": "passed"}
      {"done": {"seen": 2, "shown": 2, "missed": 0}}

      """
    let count = Atomic<UInt64>(2000)
    let server = try ScriptedServer(path: socket) { connection in
      guard let (head, _) = connection.message(hasBody: false) else { return }
      var hostile = Hostile(count.add(1, ordering: .relaxed).newValue)
      let body = hostile.mutated(
        hostile.mutated(Array((head.contains("/tap") || head.contains("/why") ? tap : stats).utf8)))
      let isWrong = hostile.random.below(5) == 0
      let start = "HTTP/1.1 \(hostile.random.pick(["200", "200", "200", "404", "99999999999999999999"])) OK\r\n"
      // The output of a tap arrives in chunks.
      if head.contains("edge=") {
        let length = isWrong ? hostile.number() : String(body.count, radix: 16)
        connection.send(
          Array("\(start)Transfer-Encoding: chunked\r\n\r\n\(length)\r\n".utf8) + body + Array("\r\n0\r\n\r\n".utf8))
      } else {
        let length = isWrong ? hostile.number() : "\(body.count)"
        connection.send(Array("\(start)Content-Length: \(length)\r\n\r\n".utf8) + body)
      }
    }
    defer { server.stop() }
    for _ in 0..<12 {
      for verb in [
        ["top", "--once", "--interval", "100ms"], ["tap", "p", "a", "--limit", "1"],
        ["tap", "p", "a", "--marbles", "--limit", "2"], ["why", "p"],
        ["reload", "--wait", "--timeout", "2"],
      ] {
        let outcome = try Rxd.run(arguments: verb + ["--socket", socket])
        #expect(!outcome.hasCrashed, "\(verb): \(outcome.errors.suffix(500))")
      }
    }
  }
}
