import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

private let hasCurl = VerbTests.has("curl", "--version")

/// The live page: its access control, its feed, and the tests that it saves. `PageBrowserTests` open it in a browser.
@Suite(.timeLimit(.minutes(10)), .enabled(if: hasCurl, "needs curl"))
struct PageTests {
  private let folder: Scratch
  private var socket: String { folder.path + "/c.sock" }
  private var input: String { folder.path + "/in" }

  init() throws {
    folder = try Scratch()
    try folder.write("in", "")
  }

  private func text(_ span: String = "100ms") -> String {
    """
    name: tail
    sources: { lines: { file: { path: '\(input)', follow: true } } }
    signals:
      long:
        from: lines
        chain:
          - filter: size(event) > 2
          - throttle: \(span)
    sinks: { out: { from: long, stdout: { encode: json } } }

    """
  }

  private func append(_ text: String) throws {
    let handle = try #require(FileHandle(forWritingAtPath: input))
    try handle.seekToEnd()
    try handle.write(contentsOf: Data(text.utf8))
  }

  /// A process with the page, its address, and the headers of a session.
  private func open(_ file: String) throws -> (process: RunningRxd, base: String, known: [String]) {
    let process = try RunningRxd(["run", file, "--ui", "--control-socket", socket])
    let link = try PageLink(process.errorLine(with: "http://"))
    return (process, link.base, try link.session())
  }

  private func curl(_ arguments: [String]) throws -> String { try Curl.output(arguments) }
  private func status(_ arguments: [String]) throws -> String { try Curl.status(arguments) }

  private func end(_ process: RunningRxd) throws {
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// Without a session, only the page's own files are served, and only under this machine's own name.
  @Test func otherClientsGetNothing() throws {
    let (process, base, known) = try open(try folder.write("a.yaml", text()))
    for file in ["", "main.js", "lanes.js", "page.css", "icon.svg"] {
      #expect(try status([base + file]) == "200", "\(file)")
    }
    let head = try curl(["-i", base])
    #expect(
      head.contains("Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'"), "\(head)")
    #expect(head.contains("frame-ancestors 'none'") && head.contains("X-Content-Type-Options: nosniff"))
    #expect(head.contains("Referrer-Policy: no-referrer") && !head.contains("Set-Cookie"))
    for path in ["ui/graph?pipeline=tail", "tap?pipeline=tail", "stats", "ui/feed", "open/x", "session"] {
      #expect(try status([base + path]) == "401", "\(path)")
      #expect(try status([base + path, "-H", "Authorization: Bearer "]) == "401", "\(path)")
      // A cookie without its seal, and a seal without its cookie.
      for part in [Array(known.prefix(2)), Array(known.suffix(2))] {
        #expect(try status([base + path] + part) == "401", "\(path) \(part)")
      }
    }
    #expect(try status([base + "session", "-X", "POST"]) == "401")
    // HTTP requires a challenge with 401. The page must not ask for a token if there is none.
    for request in [[base + "ui/feed"], [base + "session", "-X", "POST"]] {
      let answer = try curl(["-i"] + request)
      #expect(answer.contains("\r\nWWW-Authenticate: Rxd-Session realm=\"rxd\"\r\n"), "\(answer)")
    }
    #expect(try status([base + "ui/graph?pipeline=tail"] + known) == "200")
    #expect(try status([base + "ui/graph?pipeline=none"] + known) == "404")
    // No path changes the process, and none issues a link.
    for path in ["reload", "ui", "ui/link", "metrics", "status"] {
      #expect(try status([base + path] + known) == "404", "\(path)")
      #expect(try status([base + path, "-X", "POST"] + known) == "404", "\(path)")
    }
    // DNS rebinding: another name that resolves to this address.
    for host in ["rebind.example", "rebind.example:80", "127.0.0.1.example.org", "[::2]", ""] {
      #expect(try status([base, "-H", "Host: \(host)"]) != "200", "\(host)")
      #expect(try status([base + "ui/graph?pipeline=tail", "-H", "Host: \(host)"] + known) != "200", "\(host)")
    }
    // Pages of other sites and of other local ports, with the browser's cookies.
    for headers in [
      ["-H", "Origin: http://127.0.0.1:1"], ["-H", "Sec-Fetch-Site: same-site", "-H", "Sec-Fetch-Mode: no-cors"],
    ] {
      #expect(try status([base + "ui/graph?pipeline=tail"] + headers + known) == "403", "\(headers)")
      #expect(try status([base + "session", "-X", "POST"] + headers + known) == "403", "\(headers)")
    }
    for host in ["localhost:1", "127.0.0.1", "[::1]:7931"] {
      #expect(try status([base, "-H", "Host: \(host)"]) == "200")
    }
    try end(process)
  }

  /// Clients that connect and send nothing do not keep the page's reader out.
  @Test func idleConnectionsMakeRoom() throws {
    let (process, base, known) = try open(try folder.write("a.yaml", text()))
    let port = try #require(base.split(separator: ":").last.flatMap { Int($0.filter(\.isNumber)) })
    let silent = try (0..<80).map { _ in try Connection(port: port) }
    #expect(try status([base + "ui/graph?pipeline=tail"] + known) == "200")
    for connection in silent { connection.close() }
    try end(process)
  }

  @Test func addressesAreChecked() throws {
    let file = try folder.write("a.yaml", text())
    let open = try Rxd.run("run", file, "--ui-listen", "0.0.0.0:7931")
    #expect(open.status == 64 && open.errors.contains("--ui-token-file"), "\(open.errors)")
    #expect(try Rxd.run("run", file, "--ui-listen", "nowhere").status == 64)
    let taken = try FreePort()
    try taken.listen()
    let outcome = try Rxd.run("run", file, "--ui-listen", "\(taken.number)")
    #expect(outcome.status == 74 && outcome.errors.contains("another program listens there"), "\(outcome.errors)")
  }

  /// The messages of a feed until `isEnough`, each as a document.
  private func feed(
    _ base: String, _ known: [String], _ then: () throws -> Void = {}, until isEnough: ([[String: Any]]) -> Bool
  ) throws -> [[String: Any]] {
    let file = folder.path + "/feed"
    let curl = try spawnCurl(["-N", base + "ui/feed?pipeline=tail", "-o", file] + known)
    defer {
      kill(curl, SIGKILL)
      waitpid(curl, nil, 0)
    }
    var hasActed = false
    var text = ""
    let found = try Polling.first(pause: 20) { () -> [[String: Any]]? in
      text = (try? String(contentsOfFile: file, encoding: .utf8)) ?? ""
      // The last message may be incomplete.
      let messages = try text.components(separatedBy: "\n\n").dropLast().map { message in
        try #require(
          try JSONSerialization.jsonObject(with: Data(message.dropFirst("data: ".count).utf8)) as? [String: Any])
      }
      if isEnough(messages) { return messages }
      if !messages.isEmpty, !hasActed {
        hasActed = true
        try then()
      }
      return nil
    }
    guard let found else { throw TimedOut(description: "the feed has: \(text)") }
    return found
  }

  private func spawnCurl(_ arguments: [String]) throws -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for descriptor in [Int32(0), 1, 2] {
      posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
    }
    return try spawn(
      "/usr/bin/curl", ["curl", "-sS", "--noproxy", "*"] + arguments, ["PATH": "/usr/bin:/bin"], &actions)
  }

  /// The state of a reader after some messages, by the names of elements.
  private func members(_ messages: [[String: Any]]) -> [String: [String: Any]] {
    var known: [String: [String: Any]] = [:]
    for change in messages.flatMap({ $0["changes"] as? [[String: Any]] ?? [] }) {
      let name = ["id", "from", "to"].compactMap { change[$0] as? String }.joined(separator: ">")
      for (member, value) in change["set"] as? [String: Any] ?? [:] { known[name, default: [:]][member] = value }
    }
    return known
  }

  /// The feed sends everything at first, then changes; together they equal the answer to `GET /stats`.
  @Test func theFeedAddsUpToTheCounts() throws {
    let (process, base, known) = try open(try folder.write("a.yaml", text()))
    let messages = try feed(base, known) {
      try append("a\nabc\nabcd\n")
    } until: {
      members($0)["long/throttle"]?["out"] as? Int == 1
    }
    let fed = members(messages)
    let stats = try #require(
      try JSONSerialization.jsonObject(
        with: Data(curl(["--unix-socket", socket, "http://rxd/stats"]).utf8)) as? [String: Any])
    let tail = try #require((stats["pipelines"] as? [[String: Any]])?.first)
    for step in try #require(tail["steps"] as? [[String: Any]]) {
      let id = try #require(step["id"] as? String)
      for member in ["in", "out", "dropped", "superseded", "holding"] {
        #expect(fed[id]?[member] as? Int == step[member] as? Int, "\(id) \(member)")
      }
    }
    for edge in try #require(tail["edges"] as? [[String: Any]]) {
      let name = "\(edge["from"] ?? "")>\(edge["to"] ?? "")"
      #expect(fed[name]?["events"] as? Int == edge["events"] as? Int, "\(name)")
    }
    // The second message does not repeat the first.
    func count(_ message: [String: Any]) -> Int {
      (message["changes"] as? [[String: Any]] ?? []).reduce(0) { $0 + (($1["set"] as? [String: Any])?.count ?? 0) }
    }
    #expect(try count(messages.item(1)) < count(messages.item(0)))
    try end(process)
  }

  /// An open page is in constant use: newer sessions do not end its session.
  @Test func anOpenFeedKeepsItsSession() throws {
    let token = "0123456789abcdef0123456789abcdef"
    let process = try RunningRxd([
      "run", try folder.write("a.yaml", text()), "--ui", "--control-socket", socket, "--ui-token-file",
      try folder.write("token", token + "\n"),
    ])
    let link = try PageLink(process.errorLine(with: "http://"))
    let known = try link.session()
    let session = ["-o", "/dev/null", link.base + "session"]
    var isDone = false
    _ = try feed(link.base, known) {
      // More sessions than the process keeps.
      _ = try curl(["-X", "POST", "-H", "Authorization: Bearer \(token)"] + (0..<100).flatMap { _ in session })
      #expect(try status([link.base + "ui/graph?pipeline=tail"] + known) == "200")
      isDone = true
    } until: { _ in
      isDone
    }
    try end(process)
  }

  /// A recording becomes a test that passes, with the file that was running.
  @Test func aRecordingBecomesATest() throws {
    let source = text()
    let file = try folder.write("a.yaml", source)
    let (process, base, known) = try open(file)
    let graph = try #require(
      try JSONSerialization.jsonObject(
        with: Data(curl([base + "ui/graph?pipeline=tail"] + known).utf8))
        as? [String: Any])
    let steps = try #require(graph["steps"] as? [[String: Any]])
    let throttle = try #require(steps.first { $0["id"] as? String == "long/throttle" })
    #expect(throttle["text"] as? String == "- throttle: 100ms")
    let lanes = try #require(throttle["lanes"] as? [[String: String]])
    #expect(lanes.map { $0["role"] } == ["source", "input", "output"], "\(lanes)")
    let edges = lanes.map { "\($0["from"] ?? "") -> \($0["to"] ?? "")" }
    let tap = try RunningRxd(["tap", "tail", "--socket", socket, "--limit", "7"] + edges)
    _ = try tap.line()
    try append("a\nabc\nabcd\n")
    #expect(try process.line() == "\"abcd\"")
    try append("x\n")
    var seen: [String] = []
    while let line = try tap.line() { seen.append(line) }
    #expect(try tap.wait() == 0)
    // Three lines and the short one; two of them enter throttle, one leaves it.
    #expect(seen.count { $0.contains("\"nanoseconds\"") && !$0.contains("\"since\"") } == 7, "\(seen)")
    let end = seen.compactMap { $0.firstMatch(of: #/"nanoseconds": (\d+)/#).flatMap { Int($0.1) } }.max() ?? 0
    let body = try folder.write(
      "body", #"{"step": "long/throttle", "end": \#(end), "name": "as it was"}"# + "\n" + seen.joined(separator: "\n"))
    let answer = try #require(
      try JSONSerialization.jsonObject(
        with: Data(
          curl([base + "ui/test?pipeline=tail", "--data-binary", "@\(body)"] + known).utf8)) as? [String: Any])
    #expect(answer["passes"] as? Bool == true, "\(answer)")
    let block = try #require(answer["text"] as? String)
    let tested = try folder.write("tested.yaml", source + block)
    let outcome = try Rxd.run("test", tested)
    #expect(outcome.status == 0 && outcome.output.contains("as it was"), "\(outcome.output)\(outcome.errors)\(block)")
    // The test is effective: a pipeline that waits longer fails it.
    let other = try folder.write("other.yaml", text("150ms") + block)
    #expect(try Rxd.run("test", other).status == 1)
    try self.end(process)
  }

  /// A service without a port: `rxd ui` opens one, and asks over the control socket.
  @Test func aServiceNeedsNoPort() throws {
    let service = try RunningRxd([
      "--daemon", "--log-format", "text", "--control-socket", socket, try folder.write("a.yaml", text()),
    ])
    try service.waits(forSocket: socket)
    let way = try RunningRxd(["ui", "--socket", socket])
    let link = try PageLink(#require(try way.line()))
    let (base, known) = (link.base, try link.session())
    #expect(try status([base + "ui/graph?pipeline=tail"]) == "401")
    #expect(try status([base + "ui/graph?pipeline=tail"] + known) == "200")
    #expect(try status([base + "reload", "-X", "POST"] + known) == "404")
    let messages = try feed(base, known) {
      try append("abc\n")
    } until: {
      members($0)["long/throttle"]?["out"] as? Int == 1
    }
    #expect(messages.count > 1)
    let small = try folder.write("body", "{}")
    #expect(try status([base + "ui/test?pipeline=tail", "--data-binary", "@\(small)"] + known) == "422")
    way.send(SIGTERM)
    _ = try way.wait()
    try end(service)
  }
}
