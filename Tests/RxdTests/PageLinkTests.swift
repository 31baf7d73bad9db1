import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

/// Requests by curl.
enum Curl {
  static let isThere = VerbTests.has("curl", "--version")

  static func output(_ arguments: [String]) throws -> String {
    try Program.run("/usr/bin/env", ["curl", "-sS", "--noproxy", "*", "-m", "60"] + arguments).output
  }

  static func status(_ arguments: [String]) throws -> String {
    try output(["-o", "/dev/null", "-w", "%{http_code}"] + arguments)
  }
}

/// A link to the live page, as rxd prints it.
struct PageLink {
  let text: String
  /// The address of the page.
  let base: String
  let key: String

  init(_ line: String) throws {
    let found = try #require(line.firstMatch(of: #/(http://127\.0\.0\.1:\d+/)open\?key=(\w{32})$/#), "\(line)")
    (text, base, key) = (String(found.1) + "open?key=" + String(found.2), String(found.1), String(found.2))
  }

  /// The cookie that the link sets.
  func cookie() throws -> String {
    let head = try Curl.output(["-i", text])
    return try #require(
      head.firstMatch(of: #/Set-Cookie: (rxd-(?:free-)?\d+=\w{32});/#).map { String($0.1) }, "\(head)")
  }

  /// Opens the link as a browser does. Returns the curl arguments with the cookie, followed by the seal of the session.
  func session() throws -> [String] { try session(of: cookie()) }

  func session(of cookie: String) throws -> [String] {
    let answer = try Curl.output(["-X", "POST", base + "session", "-H", "Cookie: \(cookie)"])
    let seal = try #require(answer.firstMatch(of: #/"seal": "(\w{32})"/#).map { String($0.1) }, "\(answer)")
    return ["-H", "Cookie: \(cookie)", "-H", "X-Rxd-Seal: \(seal)"]
  }
}

/// Links to the live page work once, and open sessions that end with the process.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Curl.isThere, "needs curl"))
struct PageLinkTests {
  private let folder: Scratch
  private var socket: String { folder.path + "/c.sock" }

  init() throws { folder = try Scratch() }

  private func start(_ arguments: [String] = []) throws -> RunningRxd {
    let file = try folder.write(
      "a.yaml", "name: p\nsources: { s: { never: {} } }\nsinks: { o: { from: s, discard: {} } }\n")
    let process = try RunningRxd(["run", file, "--control-socket", socket] + arguments)
    try process.waits(forSocket: socket)
    return process
  }

  private func end(_ process: RunningRxd) throws {
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  private func isOpen(_ base: String, _ known: [String]) throws -> Bool {
    try Curl.status([base + "ui/graph?pipeline=p"] + known) == "200"
  }

  @Test func aLinkWorksOnceAndLeavesNoKey() throws {
    let process = try start(["--ui"])
    let link = try PageLink(process.errorLine(with: "http://"))
    // A HEAD request does not use the link up.
    #expect(try Curl.status(["-I", link.text]) == "200")
    let head = try Curl.output(["-i", link.text])
    #expect(head.hasPrefix("HTTP/1.1 303 ") && head.contains("\r\nLocation: ./\r\n"), "\(head)")
    #expect(
      head.contains("\r\nReferrer-Policy: no-referrer\r\n") && head.contains("\r\nCache-Control: no-store\r\n"),
      "\(head)")
    let set = try #require(
      head.firstMatch(of: #/Set-Cookie: (\S+); HttpOnly; SameSite=Strict\r\n/#), "\(head)")
    #expect(!head.contains(link.key))
    let known = try link.session(of: String(set.1))
    #expect(try isOpen(link.base, known))
    // A second use shows a page that says what to run, and does not repeat the key.
    for other in ["", "0", link.key, link.key + "&key=" + link.key] {
      let answer = try Curl.output(["-i", link.base + "open?key=" + other])
      #expect(answer.hasPrefix("HTTP/1.1 410 ") && answer.contains("Run <code>rxd ui</code>"), "\(answer)")
      #expect(!answer.contains("Set-Cookie") && !answer.contains(link.key), "\(answer)")
    }
    // A browser with the session is redirected to the page, even from its history.
    let again = try Curl.output(["-i", link.text] + known)
    #expect(again.hasPrefix("HTTP/1.1 303 ") && !again.contains("Set-Cookie"), "\(again)")
    // The seal of a session is issued once.
    #expect(try Curl.status(["-X", "POST", link.base + "session"] + known) == "409")
    #expect(try isOpen(link.base, known))
    try end(process)
  }

  @Test func oneOfSeveralUsesAtATimeSucceeds() throws {
    let process = try start(["--ui"])
    let link = try PageLink(process.errorLine(with: "http://"))
    // Twelve connections, each with the same link.
    let outcome = try Curl.output(
      ["--parallel", "--parallel-immediate", "--parallel-max", "12", "-w", "%{http_code}\n", "-o", "/dev/null"]
        + Array(repeating: [link.text], count: 12).joined(separator: ["-o", "/dev/null"]))
    // With several transfers curl also prints its progress.
    let statuses = outcome.split(separator: "\n").map(String.init).filter { $0.wholeMatch(of: #/\d{3}/#) != nil }
      .sorted()
    #expect(statuses == ["303"] + Array(repeating: "410", count: 11), "\(statuses)")
    try end(process)
  }

  /// Each `rxd ui` makes a new link; sessions, links and the port survive a reload, and end with the process.
  @Test func linksAndSessionsStayOverAReloadAndEndWithTheProcess() throws {
    let port = try FreePort()
    let process = try start(["--daemon", "--log-format", "text", "--ui-listen", "\(port.number)"])
    func fresh() throws -> PageLink {
      let outcome = try Rxd.run("ui", "--socket", socket)
      #expect(outcome.status == 0 && !outcome.output.dropLast().contains("\n"), "\(outcome.output)\(outcome.errors)")
      return try PageLink(String(outcome.output.dropLast()))
    }
    let (one, two, unused) = (try fresh(), try fresh(), try fresh())
    #expect(Set([one.key, two.key, unused.key]).count == 3)
    let (first, second) = (try one.session(), try two.session())
    try folder.write("a.yaml", "name: p\nsources: { s: { interval: 1h } }\nsinks: { o: { from: s, discard: {} } }\n")
    let reload = try Rxd.run("reload", "--wait", "--socket", socket)
    #expect(reload.status == 0, "\(reload.output)\(reload.errors)")
    let third = try unused.session()
    for known in [first, second, third] { #expect(try isOpen(one.base, known)) }
    try end(process)
    let next = try start(["--daemon", "--log-format", "text", "--ui-listen", "\(port.number)"])
    // The page may listen later than the control socket; it does when there is a link.
    let last = try fresh()
    for known in [first, second, third] {
      let answer = try Curl.output([one.base + "ui/graph?pipeline=p"] + known)
      #expect(answer.contains("open the address that 'rxd ui' prints"), "\(answer)")
    }
    #expect(try isOpen(one.base, last.session()))
    try end(next)
  }

  /// Cookies of other ports, which browsers also send, are ignored.
  @Test func cookiesOfOtherProgramsDoNoHarm() throws {
    let process = try start(["--ui"])
    let link = try PageLink(process.errorLine(with: "http://"))
    let cookie = try link.cookie()
    let known = try link.session(of: cookie)
    let seal = try #require(known.last)
    for (text, status) in [
      ("a=b; \(cookie); rxd-1=x", "200"), ("rxd-1=x; rxd=y;\(cookie)", "200"), ("x\(cookie)", "401"),
      (cookie.uppercased(), "401"), (cookie.replacingOccurrences(of: "=", with: "1="), "401"), ("=;;= ;", "401"),
      (String(repeating: "a=b; ", count: 1000) + cookie, "200"),
    ] {
      #expect(
        try Curl.status([link.base + "ui/graph?pipeline=p", "-H", "Cookie: \(text)", "-H", seal]) == status, "\(text)")
    }
    try end(process)
  }

  /// Each start on a free port sets another cookie; the oldest are removed, and those of fixed ports are not.
  @Test func cookiesOfFreePortsDoNotPileUp() throws {
    let process = try start(["--ui"])
    let link = try PageLink(process.errorLine(with: "http://"))
    let cookie = try link.cookie()
    #expect(cookie.hasPrefix("rxd-free-"), "\(cookie)")
    // The browser sends the oldest first. The system never chooses any of these ports.
    let former = (1...20).map { "rxd-free-\($0)=x" } + ["rxd-7931=x", "rxd-free-=x", "rxd-free-a=x", "other=x"]
    let answer = try Curl.output([
      "-i", "-X", "POST", link.base + "session", "-H", "Cookie: \((former + [cookie]).joined(separator: "; "))",
    ])
    #expect(answer.hasPrefix("HTTP/1.1 200 "), "\(answer)")
    let removed = answer.matches(of: #/Set-Cookie: (\S+)=; Max-Age=0; HttpOnly; SameSite=Strict\r\n/#).map {
      String($0.1)
    }
    #expect(removed == (1...5).map { "rxd-free-\($0)" }, "\(answer)")
    try end(process)
  }

  /// Programs send the token of the file; a person may enter it instead of using a link.
  @Test func aTokenFileIsForPrograms() throws {
    let port = try FreePort()
    let token = "0123456789abcdef0123456789abcdef"
    let process = try start([
      "--daemon", "--log-format", "text", "--ui-listen", "\(port.number)", "--ui-token-file",
      try folder.write("token", token + "\n"),
    ])
    let base = "http://127.0.0.1:\(port.number)/"
    // The pipeline starts a little later than the page.
    #expect(
      Polling.until {
        (try? Curl.status([base + "ui/graph?pipeline=p", "-H", "Authorization: Bearer \(token)"])) == "200"
      })
    for wrong in ["", "Bearer", "Bearer \(token)0", "Bearer \(token.dropLast())", "Basic \(token)"] {
      let answer = try Curl.output(["-i", base + "ui/graph?pipeline=p", "-H", "Authorization: \(wrong)"])
      #expect(answer.hasPrefix("HTTP/1.1 401 ") && answer.contains("WWW-Authenticate: Bearer"), "\(wrong): \(answer)")
      #expect(try Curl.status(["-X", "POST", base + "session", "-H", "Authorization: \(wrong)"]) == "401")
    }
    let session = try Curl.output(["-i", "-X", "POST", base + "session", "-H", "Authorization: Bearer \(token)"])
    let cookie = try #require(session.firstMatch(of: #/Set-Cookie: (\S+);/#).map { String($0.1) }, "\(session)")
    let seal = try #require(session.firstMatch(of: #/"seal": "(\w{32})"/#).map { String($0.1) }, "\(session)")
    #expect(try isOpen(base, ["-H", "Cookie: \(cookie)", "-H", "X-Rxd-Seal: \(seal)"]))
    // A page that has lost its seal is offered the token.
    let lost = try Curl.output(["-i", "-X", "POST", base + "session", "-H", "Cookie: \(cookie)"])
    #expect(
      lost.hasPrefix("HTTP/1.1 409 ") && lost.contains("\r\nWWW-Authenticate: Bearer realm=\"rxd\"\r\n"), "\(lost)")
    // The link of 'rxd ui' does not contain the token.
    let link = try Rxd.run("ui", "--socket", socket).output
    #expect(!link.contains(token))
    #expect(try isOpen(base, PageLink(String(link.dropLast())).session()))
    try end(process)
  }
}
