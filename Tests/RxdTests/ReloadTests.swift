import Foundation
import PipelineHost
import Testing

/// SIGHUP in a busy process: no event is sent again or lost, and no pipeline with an unchanged meaning is restarted.
@Suite(.timeLimit(.minutes(10)))
struct ReloadTests {
  private static let following = """
    # The first form.
    sources: { lines: { file: { path: PATH, follow: true, start: START } } }
    signals: { kept: { from: lines, chain: [ { filter: "event != 'LEAST'" } ] } }
    sinks: { out: { from: kept, stdout: text } }

    """

  private func following(_ folder: Scratch, start: String = "end", least: String = "") -> String {
    Self.following.replacingOccurrences(of: "PATH", with: "'\(folder.path)/in.log'")
      .replacingOccurrences(of: "START", with: start).replacingOccurrences(of: "LEAST", with: least)
  }

  private func append(_ text: String, to path: String) {
    let file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
    defer { close(file) }
    #expect(write(file, text, text.utf8.count) == text.utf8.count)
  }

  /// A comment, spaces, the order of parameters, the description and the tests do not change a running pipeline.
  @Test func whatMeansTheSameRunsOn() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text", "-v"])
    #expect(try process.line() == "one")
    try folder.write(
      "a.yaml",
      """
      # Says something.
      description: says one
      sources:
        now:   { values: 'one' }
        later: { values: { every: 1h, list: [2, 3] } }
      """ + DaemonTests.saying("one").split(separator: "\n").dropFirst().map { "\n\($0)" }.joined() + "\n")
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded")
    process.send(SIGTERM)
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  /// The file changes ten times while another process writes lines.
  @Test(arguments: ["beginning", "end"])
  func followedFilesContinue(_ start: String) throws {
    let folder = try Scratch()
    let log = try folder.write("in.log", start == "end" ? "old\n" : "")
    let file = try folder.write("a.yaml", following(folder, start: start))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text", "--log-level", "debug"])
    try process.errorLine(with: "following")
    for number in 0..<10 {
      for line in 0..<100 { append("\(number).\(line)\n", to: log) }
      try folder.write("a.yaml", following(folder, start: start, least: "none \(number)"))
      process.send(SIGHUP)
      for line in 100..<200 { append("\(number).\(line)\n", to: log) }
      try process.errorLine(with: "reloaded")
    }
    for number in 0..<10 {
      for line in 0..<200 where try process.line() != "\(number).\(line)" {
        Issue.record("\(number).\(line) is missing or late")
        return
      }
    }
    process.send(SIGTERM)
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  /// The state of operators is kept too: a total, and an event that waits.
  @Test func operatorsKeepWhatTheyHold() throws {
    let folder = try Scratch()
    let log = try folder.write("in.log", "1\n2\n3\n")
    func text(_ format: String) -> String {
      """
      sources: { lines: { file: { path: '\(log)', follow: true } } }
      signals: { total: { from: lines, chain: [ { scan: { start: 0, next: running + int(event) } }, { map: \(format) } ] } }
      sinks: { out: { from: total, stdout: text } }

      """
    }
    let file = try folder.write("a.yaml", text("event"))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text"])
    for line in ["1", "3", "6"] { #expect(try process.line() == line) }
    try folder.write("a.yaml", text("\"'total ' + string(event)\""))
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded")
    append("4\n", to: log)
    #expect(try process.line() == "total 10")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// Bytes of a pipe cannot be read twice: complete lines that were read are sent, and the start of a line is kept.
  @Test func standardInputContinues() throws {
    let folder = try Scratch()
    func text(_ word: String) -> String {
      """
      sources: { lines: { stdin: { decode: csv } } }
      signals: { named: { from: lines, chain: [ { map: "'\(word) ' + event.n" } ] } }
      sinks: { out: { from: named, stdout: text } }

      """
    }
    let file = try folder.write("a.yaml", text("old"))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text"])
    process.write("n\n1\n2\n3")
    #expect(try process.line() == "old 1")
    #expect(try process.line() == "old 2")
    try folder.write("a.yaml", text("new"))
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded")
    process.write("0\n4\n")
    process.closeInput()
    #expect(try process.line() == "new 30")
    #expect(try process.line() == "new 4")
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  /// A variable that an expression reads as `env.NAME`, even by a computed name, is read again like `${NAME}`; other variables
  /// change nothing.
  @Test(arguments: ["env.WORD", "env['WO' + 'RD']"]) func variablesOfExpressionsAreReadAgain(_ read: String) throws {
    let folder = try Scratch()
    let variables = try folder.write("variables", "WORD=old\nOTHER=1\n")
    let log = try folder.write("in.log", "1\n")
    let file = try folder.write(
      "a.yaml",
      """
      sources: { lines: { file: { path: '\(log)', follow: true } } }
      sinks: { out: { from: lines, chain: [ { map: "\(read) + ' ' + event" } ], stdout: text } }

      """)
    let process = try RunningRxd(["--daemon", file, "--env-file", variables, "--log-format", "text"])
    #expect(try process.line() == "old 1")
    try folder.write("variables", "WORD=new\nOTHER=1\n")
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded in")
    append("2\n", to: log)
    #expect(try process.line() == "new 2")

    // Without the file nothing changes, and the log names the missing file.
    try FileManager.default.removeItem(atPath: variables)
    process.send(SIGHUP)
    try process.errorLine(with: "variables: No such file or directory")
    append("3\n", to: log)
    #expect(try process.line() == "new 3")
    process.send(SIGTERM)
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  /// A dead server delays neither the reload nor the events: they go to the new file's destination.
  @Test func aDeadServerHoldsUpNothing() throws {
    let folder = try Scratch()
    let closed = try FreePort()
    func text(_ sink: String) -> String {
      """
      sources: { soon: { values: [1, 2, 3] }, later: { values: { list: [4], every: 1h } } }
      signals: { all: { merge: [soon, later] } }
      sinks: { out: { from: all, http: { url: '\(sink)', batch: 1, allowPrivate: true } } }

      """
    }
    let file = try folder.write("a.yaml", text("http://127.0.0.1:\(closed.number)/"))
    let server = try folder.write(
      "server.yaml",
      """
      sources: { posts: { httpServer: { address: "127.0.0.1:0", decode: ndjson } } }
      sinks: { out: { from: posts, stdout: json } }

      """)
    let receiver = try RunningRxd(["--daemon", server, "--log-format", "text", "--log-level", "info"])
    let listening = try receiver.errorLine(with: "listening on ")
    let port = try #require(listening.split(separator: ":").last)
    let process = try RunningRxd(["--daemon", file, "--log-format", "text"])
    try process.errorLine(with: "trying again")
    try folder.write("a.yaml", text("http://127.0.0.1:\(port)/"))
    process.send(SIGHUP)
    let lines = try process.errorLines(to: "reloaded in")
    // The reload does not wait until the limits have passed.
    #expect(!lines.contains { $0.contains("have not arrived in time") || $0.contains("given up") }, "\(lines)")
    for number in 1...3 { #expect(try receiver.line() == "\(number)") }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    receiver.send(SIGTERM)
    #expect(try receiver.wait() == 0)
  }

  /// A reload waits for removed sinks as long as they deliver something, but these have no receiver.
  @Test(arguments: [false, true]) func removedSinksThatAreDeadHoldUpNothing(_ hasState: Bool) throws {
    let folder = try Scratch()
    let closed = try FreePort()
    let log = try folder.write("in.log", "1\n2\n")
    func text(_ more: String) -> String {
      """
      delivery: \(hasState ? "light" : "bestEffort")
      sources: { lines: { file: { path: '\(log)', follow: true } } }
      sinks: { out: { from: lines, stdout: text }\(more) }

      """
    }
    let place = "127.0.0.1:\(closed.number)"
    let dead = ", web: { from: lines, http: { url: 'http://\(place)/' } }, socket: { from: lines, tcp: '\(place)' }"
    let file = try folder.write("a.yaml", text(dead))
    let state = hasState ? ["--state-dir", folder.path + "/state"] : []
    let process = try RunningRxd(["--daemon", file, "--log-format", "text"] + state)
    #expect(try process.line() == "1")
    #expect(try process.line() == "2")
    try process.errorLine(with: "trying again")
    try folder.write("a.yaml", text(""))
    process.send(SIGHUP)
    let lines = try process.errorLines(to: "reloaded in")
    #expect(lines.contains { $0.contains("given up") }, "\(lines)")
    // The reload does not wait until the limits have passed.
    #expect(
      !lines.contains { $0.contains("have not arrived in time") }, "\(lines)")
    append("3\n", to: log)
    var line = try process.line()
    // Uncommitted events are repeated.
    while hasState, line == "1" || line == "2" { line = try process.line() }
    #expect(line == "3")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// An obstacle to the start of a new version is found before the old one ends, which is not affected: a followed file is opened
  /// once, a client of a server keeps its connection.
  @Test(arguments: ["address", "sink", "source"]) func aVersionThatDoesNotStartChangesNothing(_ fault: String) throws {
    let folder = try Scratch()
    let taken = try FreePort()
    let free = try FreePort()
    let log = try folder.write("in.log", "1\n")
    func text(_ more: String, _ sink: String) -> String {
      """
      sources:
        lines: { file: { path: '\(log)', follow: true } }
        asked: { httpServer: { address: 127.0.0.1:\(free.number), decode: text } }
      \(more)
      sinks: { out: { from: lines, stdout: text }, drop: { from: asked, discard: {} }\(sink) }

      """
    }
    let file = try folder.write("a.yaml", text("", ""))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text", "--log-level", "debug"])
    #expect(try process.line() == "1")
    let client = try Connection(port: free.number)
    client.post("x\n")
    #expect(client.status() == 200)
    let reason: String
    switch fault {
    case "address":
      reason = "\(taken.number)"
      let server = "httpServer: { address: 127.0.0.1:\(taken.number), decode: ndjson }"
      try folder.write("a.yaml", text("  posts: { \(server) }", ", rest: { from: posts, discard: {} }"))
      try taken.listen()
    case "sink":
      reason = "it is a directory"
      mkdir(folder.path + "/gone", 0o700)
      try folder.write("a.yaml", text("", ", rest: { from: lines, file: '\(folder.path)/gone' }"))
    default:
      reason = "once"
      mkdir(folder.path + "/once", 0o700)
      try folder.write("a.yaml", text("  once: { file: '\(folder.path)/once' }", ", rest: { from: once, discard: {} }"))
    }
    process.send(SIGHUP)
    let line = try process.errorLine(with: "not reloaded")
    #expect(line.contains(reason))
    #expect(line.contains("continues unchanged"))
    client.post("x\n")
    #expect(client.status() == 200)
    append("2\n", to: log)
    #expect(try process.line() == "2")
    process.send(SIGTERM)
    #expect(try process.line() == nil)
    while let line = try process.line(from: process.errors) {
      #expect(!line.contains("following") && !line.contains("listening"), "it was started again")
    }
    #expect(try process.wait() == 0)
  }

  /// Connections made while a pipeline changes wait for its new version.
  @Test func listeningSocketsStayOpen() throws {
    let folder = try Scratch()
    let free = try FreePort()
    let port = free.number
    func text(_ number: Int) -> String {
      """
      sources: { posts: { httpServer: { address: 127.0.0.1:\(port), decode: text } } }
      signals: { named: { from: posts, chain: [ { map: "'\(number) ' + event" } ] } }
      sinks: { out: { from: named, discard: {} } }

      """
    }
    let file = try folder.write("a.yaml", text(0))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text"])
    try process.errorLine(with: "listening on")
    let clients = Clients(port: port)
    clients.start()
    for number in 1...30 {
      try folder.write("a.yaml", text(number))
      process.send(SIGHUP)
      try process.errorLine(with: "reloaded")
    }
    clients.end()
    #expect(clients.refused == 0)
    #expect(clients.statuses[200, default: 0] > 0)
    #expect(Set(clients.statuses.keys).isSubset(of: [200, 503]), "\(clients.statuses)")
    // A new version without the server closes the socket.
    try folder.write("a.yaml", DaemonTests.saying("gone"))
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded")
    #expect(throws: (any Error).self) { _ = try Connection(port: port) }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// Two pipelines share a port. A change of one leaves the connections of both open, requests that arrive meanwhile wait for the
  /// new version, and paths appear and disappear with the reload that adds or removes them.
  @Test func pathsOfOnePortComeAndGo() throws {
    let folder = try Scratch()
    let port = try FreePort().number
    func text(_ path: String, _ number: Int) -> String {
      """
      sources: { asked: { httpServer: { address: 127.0.0.1:\(port), path: \(path) } } }
      signals: { answers: { from: asked, chain: [ { map: "'\(number)'" } ] } }
      sinks: { out: { from: answers, reply: { encode: text } } }

      """
    }
    let first = try folder.write("a.yaml", text("/a", 1))
    let second = try folder.write("b.yaml", text("/b", 1))
    let process = try RunningRxd(["--daemon", first, second, "--log-format", "text"])
    try process.errorLine(with: "listening on")
    try process.errorLine(with: "listening on")
    let (one, other) = (try Connection(port: port), try Connection(port: port))
    func ask(_ connection: Connection, _ path: String) -> String {
      connection.send("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n")
      guard let answer = connection.message() else { return "closed" }
      return "\(answer.head.split(separator: " ")[1]) \(String(decoding: answer.body, as: UTF8.self))"
    }
    #expect(ask(one, "/a") == "200 1" && ask(other, "/b") == "200 1" && ask(other, "/c") == "404 ")
    // Requests on open connections while the pipeline changes repeatedly: none is lost or refused.
    for number in 2...20 {
      try folder.write("a.yaml", text("/a", number))
      process.send(SIGHUP)
      let meanwhile = ask(one, "/a")
      #expect(["200 \(number - 1)", "200 \(number)", "503 "].contains(meanwhile), "\(meanwhile)")
      #expect(ask(other, "/b") == "200 1")
      try process.errorLine(with: "reloaded")
      #expect(ask(one, "/a") == "200 \(number)")
    }
    try folder.write("a.yaml", text("/c", 21))
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded")
    #expect(ask(one, "/c") == "200 21" && ask(one, "/a") == "404 " && ask(other, "/b") == "200 1")
    try folder.write("a.yaml", DaemonTests.saying("gone"))
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded")
    #expect(ask(one, "/c") == "404 " && ask(other, "/b") == "200 1" && ask(one, "/b") == "200 1")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// Stored data belongs to the name of a pipeline, even when a reload changes the name.
  @Test func anotherNameHasAnotherStore() throws {
    let folder = try Scratch()
    let log = try folder.write("in.log", "1\n2\n")
    let state = folder.path + "/state"
    func text(_ name: String) -> String {
      """
      name: \(name)
      sources: { lines: { file: { path: '\(log)', follow: true } } }
      signals: { total: { from: lines, chain: [ { scan: { start: 0, next: running + int(event) } } ] } }
      sinks: { out: { from: total, stdout: text } }

      """
    }
    let file = try folder.write("a.yaml", text("first"))
    func start() throws -> RunningRxd {
      try RunningRxd(["--daemon", file, "--log-format", "text", "--state-dir", state])
    }
    var process = try start()
    for total in ["1", "3"] { #expect(try process.line() == total) }
    try folder.write("a.yaml", text("second"))
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded in")
    for total in ["1", "3"] { #expect(try process.line() == total) }
    append("3\n", to: log)
    #expect(try process.line() == "6")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    // A restart continues from the state after the reload.
    process = try start()
    append("4\n", to: log)
    #expect(try process.line() == "10")
    try folder.write("a.yaml", text("first"))
    process.send(SIGHUP)
    for total in ["6", "10"] { #expect(try process.line() == total) }
    process.send(SIGTERM)
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  /// A pipeline that has failed continues where it was.
  @Test func aFailedPipelineContinues() throws {
    let folder = try Scratch()
    let log = try folder.write("in.log", "1\n2\nx\n3\n")
    let file = try folder.write(
      "a.yaml",
      """
      sources: { lines: { file: { path: '\(log)', follow: true } } }
      signals: { numbers: { from: lines, chain: [ { map: int(event), onError: fail } ] } }
      sinks: { out: { from: numbers, stdout: json } }

      """)
    let process = try RunningRxd(["--daemon", file, "--log-format", "text"])
    try process.errorLine(with: "starting again in")
    for number in 1...3 { #expect(try process.line() == "\(number)") }
    append("4\n", to: log)
    #expect(try process.line() == "4")
    process.send(SIGTERM)
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }
}

/// Connects repeatedly, each time with one request.
private final class Clients: @unchecked Sendable {
  private let port: Int
  private let lock = NSLock()
  private var isEnding = false
  private let done = DispatchSemaphore(value: 0)
  private(set) var refused = 0
  private(set) var statuses: [Int: Int] = [:]

  init(port: Int) { self.port = port }

  func start() {
    Thread { [self] in
      while !lock.withLock({ isEnding }) {
        guard let connection = try? Connection(port: port) else {
          lock.withLock { refused += 1 }
          continue
        }
        connection.post("x\n")
        if let status = connection.status() { lock.withLock { statuses[status, default: 0] += 1 } }
        connection.close()
      }
      done.signal()
    }.start()
  }

  /// The results may be read after this call.
  func end() {
    lock.withLock { isEnding = true }
    done.wait()
  }
}
