import CCurl
import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing

@testable import Transport

@Suite struct CurlClientTests {
  let client = CurlClient()

  private func failure(_ request: HTTPRequest) async throws -> HTTPFailure {
    switch await client.answer(request) {
    case .failure(let failure): return failure
    case .success(let response):
      Issue.record("an answer came: \(response.status)")
      throw HTTPFailure(.badRequest, "an answer came")
    }
  }

  private static func reply(_ body: String = "", _ headers: String = "") -> String {
    "HTTP/1.1 200 OK\r\n\(headers)Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
  }

  @Test func givesStatusHeadersAndBody() async throws {
    let server = try ScriptedServer { connection in
      while let request = connection.message() {
        let body = "\(request.head.prefix { $0 != "\r\n" }) \(request.body.count)"
        connection.send(
          "HTTP/1.1 201 Created\r\nX-A:  b \r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
      }
    }
    let request = HTTPRequest(method: "POST", url: server.url + "/p?q=1", body: [1, 2, 3])
    let response = try await client.answer(request).get()
    #expect(response.status == 201)
    #expect(response.header("x-a") == "b")
    #expect(String(decoding: response.body, as: UTF8.self) == "POST /p?q=1 HTTP/1.1 3")
  }

  @Test func usesConnectionsAgain() async throws {
    // A connection idle for two minutes is not reused, and a busy machine may stall that long.
    for _ in 0..<5 {
      let server = try ScriptedServer { connection in
        while connection.message() != nil { connection.send(Self.reply("ok")) }
      }
      let start = ContinuousClock.now
      for method in ["GET", "POST", "PUT", "DELETE", "GET"] {
        let request = HTTPRequest(method: method, url: server.url)
        #expect(try await client.answer(request).get().body == Array("ok".utf8))
      }
      if ContinuousClock.now - start > .seconds(100) { continue }
      #expect(server.connections == 1)
      return
    }
    Issue.record("five requests never came within two minutes")
  }

  @Test func sendsOnlyTheHeadersItIsGiven() async throws {
    let heads = Box<[String]>()
    let server = try ScriptedServer { connection in
      while let request = connection.message() {
        heads.value.withLock { $0 = ($0 ?? []) + [request.head] }
        connection.send(Self.reply())
      }
    }
    setenv("http_proxy", "http://127.0.0.1:9", 1)
    defer { unsetenv("http_proxy") }
    var request = HTTPRequest(
      method: "PATCH", url: server.url + "/x",
      headers: [HTTPHeader("X-One", "1"), HTTPHeader("X-Empty", "")],
      body: [UInt8](repeating: 120, count: 2_000_000))
    request.options.auth = .basic(user: "me", password: Secret("pass"))
    _ = try await client.answer(request).get()
    let head = try #require(heads.value.withLock { $0?.first })
    let lines = head.components(separatedBy: "\r\n")
    #expect(lines[0] == "PATCH /x HTTP/1.1")
    #expect(
      Set(lines.dropFirst()) == [
        "Host: 127.0.0.1:\(server.port)", "Authorization: Basic bWU6cGFzcw==", "Accept: */*",
        "User-Agent: rxd", "X-One: 1", "X-Empty:", "Content-Length: 2000000",
      ])
  }

  @Test func deliversServerErrorsAsAnswers() async throws {
    for status in [301, 400, 404, 429, 500, 503] {
      let server = try ScriptedServer { connection in
        _ = connection.message()
        connection.send("HTTP/1.1 \(status) X\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n")
      }
      #expect(try await client.answer(HTTPRequest(url: server.url)).get().status == status)
    }
  }

  @Test func reportsWhyItCannotConnect() async throws {
    let failure = try await failure(HTTPRequest(url: "http://127.0.0.1:9/"))
    #expect(failure.kind == .connect)
    #expect(failure.message == "cannot connect to 127.0.0.1:9: Connection refused")
    let unknown = try await self.failure(HTTPRequest(url: "http://name.invalid/"))
    #expect(unknown.kind == .resolve)
  }

  /// A name that cannot be resolved for a while, as while a machine starts, is asked for again.
  @Test func asksForANameAgainThatWasNotResolved() async throws {
    for _ in 1...3 {
      let failure = try await failure(HTTPRequest(url: "http://name.invalid/"))
      #expect(failure.kind == .resolve, "\(failure.message)")
    }
    let server = try ScriptedServer { connection in
      _ = connection.message()
      connection.send(Self.reply("x"))
    }
    #expect(try await client.answer(HTTPRequest(url: server.url)).get().status == 200)
  }

  static let refusedURLs = [
    "", "ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/", "http://", "http:///x",
    "http://u:secret@127.0.0.1/", "http://127.0.0.1:99999/", "http://127.0.0.1/a b", "relative",
    "http://127.0.0.1/\r\nX: y", "dict://127.0.0.1:9/x", "http://[::1/",
  ]

  @Test(arguments: refusedURLs) func refusesURL(_ url: String) async throws {
    let failure = try await failure(HTTPRequest(url: url))
    #expect(failure.kind == .badRequest || failure.kind == .resolve, "\(failure.message)")
    #expect(!failure.message.contains("secret"))
  }

  static let refusedAddresses = [
    "169.254.169.254", "[fe80::1]", "224.0.0.1", "[ff02::1]", "0.0.0.0", "255.255.255.255",
    "[::ffff:169.254.169.254]", "[::]", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376",
    "169.254.43518", "[64:ff9b::a9fe:a9fe]", "100.100.100.200", "[fd00:ec2::254]",
    "[2002:a9fe:a9fe::1]", "[::169.254.169.254]",
  ]

  @Test(arguments: refusedAddresses) func refusesAddress(_ host: String) async throws {
    let failure = try await failure(HTTPRequest(url: "http://\(host)/"))
    #expect(failure.kind == .forbidden, "\(failure.message)")
  }

  @Test func refusesRequestsThatCouldBeSplit() async throws {
    let url = "http://127.0.0.1:9/"
    let requests = [
      HTTPRequest(method: "GET /x HTTP/1.1\r\n", url: url), HTTPRequest(method: "", url: url),
      HTTPRequest(method: "CONNECT", url: url),
      HTTPRequest(url: url, headers: [HTTPHeader("X", "a\r\nY: b")]),
      HTTPRequest(url: url, headers: [HTTPHeader("X", "a\0b")]),
      HTTPRequest(url: url, headers: [HTTPHeader("X\nY", "a")]),
      HTTPRequest(url: url, headers: [HTTPHeader("Content-Length", "5")]),
      HTTPRequest(url: url, headers: [HTTPHeader("Transfer-Encoding", "chunked")]),
    ]
    for request in requests { #expect(try await failure(request).kind == .badRequest) }
  }

  /// The peer's behaviour, and the client's result.
  struct Fault: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var kind: HTTPFailure.Kind
    var other: HTTPFailure.Kind?
    var script: @Sendable (Connection) -> Void
    init(
      _ name: String, _ kind: HTTPFailure.Kind, or other: HTTPFailure.Kind? = nil,
      _ script: @escaping @Sendable (Connection) -> Void
    ) {
      testDescription = name
      self.kind = kind
      self.other = other
      self.script = script
    }
  }

  static let head = "HTTP/1.1 200 OK\r\n"
  static let faults = [
    // Whether the client notices the connection before it is gone is random.
    Fault("reset before the request", .protocolError, or: .connect) { $0.reset() },
    Fault("reset after the request", .protocolError) {
      _ = $0.message()
      $0.reset()
    },
    Fault("closed without answer", .protocolError) { _ = $0.message() },
    Fault("closed in the status line", .protocolError) {
      _ = $0.message()
      $0.send("HTTP/1.1 2")
    },
    Fault("reset in the headers", .protocolError) {
      _ = $0.message()
      $0.send(head + "X: y\r\n")
      $0.reset()
    },
    Fault("closed in the body", .protocolError) {
      _ = $0.message()
      $0.send(head + "Content-Length: 10\r\n\r\nabc")
    },
    Fault("closed in a chunk", .protocolError) {
      _ = $0.message()
      $0.send(head + "Transfer-Encoding: chunked\r\n\r\n5\r\nab")
    },
    Fault("malformed chunk", .protocolError) {
      _ = $0.message()
      $0.send(head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n")
    },
    Fault("HTTP/0.9", .protocolError) {
      _ = $0.message()
      $0.send("hello")
    },
    Fault("malformed status line", .protocolError) {
      _ = $0.message()
      $0.send("HTTP/9.9 abc\r\n\r\n")
    },
    Fault("NUL in a header", .protocolError) {
      _ = $0.message()
      $0.send(head + "X: a\0b\r\nContent-Length: 0\r\n\r\n")
    },
    Fault("two lengths", .protocolError) {
      _ = $0.message()
      $0.send(head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd")
    },
    Fault("no answer", .timeout) {
      _ = $0.message()
      _ = $0.byte()
    },
    Fault("headers that drip", .timeout) {
      _ = $0.message()
      $0.send(head)
      while $0.send("X") { if $0.waits(milliseconds: 10) { break } }
    },
    Fault("body that drips", .timeout) {
      _ = $0.message()
      $0.send(head + "Content-Length: 100000\r\n\r\n")
      while $0.send("X") { if $0.waits(milliseconds: 10) { break } }
    },
    Fault("long header", .responseTooLarge) {
      _ = $0.message()
      $0.send(head)
      while $0.send("X: " + String(repeating: "y", count: 8000) + "\r\n") {}
    },
    Fault("one endless header", .protocolError) {
      _ = $0.message()
      $0.send(head + "X: ")
      while $0.send(String(repeating: "y", count: 8000)) {}
    },
    Fault("many headers", .responseTooLarge) {
      _ = $0.message()
      $0.send(head)
      while $0.send("X: y\r\n") {}
    },
    Fault("endless 100", .responseTooLarge) {
      _ = $0.message()
      while $0.send("HTTP/1.1 100 Continue\r\n\r\n") {}
    },
    Fault("endless chunks", .responseTooLarge) {
      _ = $0.message()
      $0.send(head + "Transfer-Encoding: chunked\r\n\r\n")
      while $0.send("1000\r\n" + String(repeating: "y", count: 4096) + "\r\n") {}
    },
    Fault("endless body", .responseTooLarge) {
      _ = $0.message()
      $0.send(head + "\r\n")
      while $0.send(String(repeating: "y", count: 4096)) {}
    },
  ]

  @Test(arguments: faults) func survives(_ fault: Fault) async throws {
    let server = try ScriptedServer(fault.script)
    var request = HTTPRequest(url: server.url)
    request.options.timeout = .milliseconds(fault.kind == .timeout ? 200 : 60_000)
    request.options.maxResponseBytes = 100_000
    let failure = try await failure(request)
    #expect(failure.kind == fault.kind || failure.kind == fault.other, "\(failure.message)")
    #expect(failure.message.contains("127.0.0.1:\(server.port)"), "\(failure.message)")
    // The client continues to work.
    let good = try ScriptedServer { connection in
      _ = connection.message()
      connection.send(Self.reply("ok"))
    }
    #expect(try await client.answer(HTTPRequest(url: good.url)).get().body == Array("ok".utf8))
  }

  @Test func cutsALongAnswerWhereItIsAskedTo() async throws {
    let server = try ScriptedServer { connection in
      _ = connection.message()
      connection.send("HTTP/1.1 404 Not Found\r\n\r\n")
      while connection.send(String(repeating: "y", count: 4096)) {}
    }
    var request = HTTPRequest(url: server.url)
    request.options.maxResponseBytes = 10_000
    request.options.cutsResponse = true
    let response = try await client.answer(request).get()
    #expect(response.status == 404)
    #expect(response.body == [UInt8](repeating: UInt8(ascii: "y"), count: 10_000))
  }

  @Test func stopsDecompressingAtTheLimit() async throws {
    // 64 MiB of zeros, about 64 KB.
    let bomb = try #require(Data(base64Encoded: Self.gzipBase64(zeros: 64 << 20)))
    let server = try ScriptedServer { connection in
      while connection.message() != nil {
        connection.send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: \(bomb.count)\r\n\r\n")
        connection.send(Array(bomb))
      }
    }
    var request = HTTPRequest(url: server.url)
    request.options.acceptCompressed = true
    #expect(try await failure(request).kind == .responseTooLarge)
    request.options.maxResponseBytes = 1 << 30
    let ratio = try await failure(request)
    #expect(ratio.message.hasSuffix("is compressed more than 100 to 1"), "\(ratio.message)")
    request.options.acceptCompressed = false
    #expect(try await client.answer(request).get().body.count == bomb.count)
  }

  private static func gzipBase64(zeros: Int) throws -> String {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/bin/sh")
    process.arguments = ["-c", "head -c \(zeros) /dev/zero | gzip -9 | base64 -w0"]
    let pipe = Foundation.Pipe()
    process.standardOutput = pipe
    try process.run()
    return String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
  }

  @Test func decompressesWhenAsked() async throws {
    let body = try #require(Data(base64Encoded: Self.gzipBase64(zeros: 1000)))
    let server = try ScriptedServer { connection in
      while let request = connection.message() {
        let twice = request.head.contains("/twice")
        #expect(request.head.contains("Accept-Encoding: gzip, deflate"))
        connection.send(
          "HTTP/1.1 200 OK\r\nContent-Encoding: \(twice ? "gzip, gzip" : "gzip")\r\n"
            + "Content-Length: \(body.count)\r\n\r\n")
        connection.send(Array(body))
      }
    }
    var request = HTTPRequest(url: server.url)
    request.options.acceptCompressed = true
    #expect(try await client.answer(request).get().body == [UInt8](repeating: 0, count: 1000))
    request.url += "/twice"
    #expect(try await failure(request).kind == .protocolError)
  }

  @Test func isNotFooledByAnEarlyAnswer() async throws {
    let server = try ScriptedServer { connection in
      _ = connection.byte()
      connection.send(Self.reply("early", "Connection: close\r\n"))
      connection.finishSending()
      _ = connection.waits(milliseconds: 100)
    }
    var request = HTTPRequest(method: "POST", url: server.url)
    request.body = [UInt8](repeating: 1, count: 50_000_000)
    request.options.timeout = .seconds(3)
    _ = try await failure(request)
  }

  struct Redirect: Sendable, CustomTestStringConvertible {
    var location: String
    var isFollowed: Bool
    var testDescription: String { location }
  }

  static let redirects = [
    Redirect(location: "/next", isFollowed: true),
    Redirect(location: "next?a=b", isFollowed: true),
    Redirect(location: "http://127.0.0.1:PORT/next", isFollowed: true),
    Redirect(location: "http://127.0.0.1:PORT/redirect", isFollowed: false),
    Redirect(location: "file:///etc/passwd", isFollowed: false),
    Redirect(location: "gopher://127.0.0.1:PORT/", isFollowed: false),
    Redirect(location: "https://127.0.0.1:PORT/next", isFollowed: false),
    Redirect(location: "http://127.0.0.1:9/next", isFollowed: false),
    Redirect(location: "http://localhost:PORT/next", isFollowed: false),
    Redirect(location: "http://127.0.0.2:PORT/next", isFollowed: false),
    Redirect(location: "http://169.254.169.254/latest", isFollowed: false),
    Redirect(location: "http://0x7f000001:PORT/next", isFollowed: true),
    Redirect(location: "http://[::ffff:127.0.0.1]:PORT/next", isFollowed: false),
    Redirect(location: "//example.invalid/next", isFollowed: false),
    Redirect(location: "http://user:secret@127.0.0.1:PORT/next", isFollowed: false),
    Redirect(location: "http://127.0.0.1:PORT@example.invalid/", isFollowed: false),
  ]

  @Test(arguments: redirects) func followsWithinOneOrigin(_ redirect: Redirect) async throws {
    let port = Box<UInt16>()
    let server = try ScriptedServer { connection in
      while let request = connection.message() {
        if request.head.contains("/redirect") {
          let number = port.value.withLock { $0 } ?? 0
          let location = redirect.location.replacingOccurrences(of: "PORT", with: "\(number)")
          connection.send(
            "HTTP/1.1 302 Found\r\nLocation: \(location)\r\nContent-Length: 3\r\n\r\nold")
        } else {
          connection.send(Self.reply("new"))
        }
      }
    }
    port.value.withLock { $0 = server.port }
    var request = HTTPRequest(url: server.url + "/redirect")
    request.options.maxRedirects = 5
    switch await client.answer(request) {
    case .success(let response):
      #expect(redirect.isFollowed)
      #expect(response.status == 200 && response.body == Array("new".utf8))
    case .failure(let failure):
      #expect(!redirect.isFollowed, "\(failure.message)")
      #expect(failure.kind == .redirect)
      #expect(!failure.message.contains("secret"))
    }
    #expect(server.connections == 1)
    // Redirects are not followed: the redirect is the answer.
    request.options.maxRedirects = 0
    #expect(try await client.answer(request).get().status == 302)
    // Never after a body.
    request.options.maxRedirects = 5
    request.method = "POST"
    request.body = [1]
    #expect(try await failure(request).kind == .redirect)
  }

  // MARK: The library

  /// Without the library every request reports immediately and permanently what to install.
  @Test func aMissingLibraryIsReported() async throws {
    let (state, reason) = Self.tried("libcurl-that-is-not-there.so.4")
    #expect(state == RX_CURL_MISSING)
    let fault = try #require(CurlClient.failure(state, reason))
    #expect(fault.kind == .unavailable)
    #expect(fault.message.contains("No such file or directory") && fault.message.contains("package libcurl4"))
    let client = CurlClient { fault }
    for _ in 0..<2 {
      switch await client.answer(HTTPRequest(url: "http://127.0.0.1:9/")) {
      case .failure(let failure): #expect(failure == fault)
      case .success: Issue.record("an answer came")
      }
    }
  }

  /// A different library of that name.
  @Test func anotherLibraryIsReported() {
    let (state, reason) = Self.tried("libc.so.6")
    #expect(state == RX_CURL_MISSING)
    #expect(reason == "libc.so.6: it has no function curl_global_init")
    #expect(Self.tried("libcurl.so.4").state == RX_CURL_READY)
  }

  private static func tried(_ name: String) -> (state: rx_curl_state, reason: String) {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { reason in
      reason.initialize(repeating: 0)
      let state = rx_curl_try(name, reason.baseAddress, reason.count)
      return (state, reason.baseAddress.map { String(cString: $0) } ?? "")
    }
  }

  /// The messages of glibc's loader if descriptors or memory are lacking, and if a file is missing or damaged.
  @Test(arguments: [
    ("libcurl.so.4: cannot open shared object file: Too many open files", true),
    ("libcurl.so.4: cannot open shared object file: Too many open files in system", true),
    ("libcurl.so.4: failed to map segment from shared object: Cannot allocate memory", true),
    ("libcurl.so.4: failed to map segment from shared object", true),
    ("libcurl.so.4: cannot create shared object descriptor: Cannot allocate memory", true),
    ("libnghttp2.so.14: cannot read file data: Input/output error", true),
    ("libcurl.so.4: cannot open shared object file: No such file or directory", false),
    ("libnghttp2.so.14: cannot open shared object file: No such file or directory", false),
    ("libcurl.so.4: cannot open shared object file: Permission denied", false),
    ("/lib/libcurl.so.4: invalid ELF header", false), ("/lib/libcurl.so.4: file too short", false),
    ("/lib/libcurl.so.4: undefined symbol: nghttp2_session_del", false),
  ])
  func whatMayPass(_ text: String, _ expected: Bool) { #expect(rx_curl_may_pass(text) == expected) }

  /// One request finds no free descriptor; the next one succeeds.
  @Test func aLackThatPassesIsTriedAgain() async throws {
    let server = try ScriptedServer { connection in
      while connection.message() != nil { connection.send(Self.reply("ok")) }
    }
    let calls = Atomic<Int>(0)
    let client = CurlClient {
      calls.add(1, ordering: .relaxed).newValue == 1
        ? CurlClient.failure(RX_CURL_BUSY, "Too many open files") : CurlClient.prepareLibrary()
    }
    switch await client.answer(HTTPRequest(url: server.url)) {
    case .failure(let failure):
      #expect(failure == HTTPFailure(.protocolError, "libcurl cannot be started now: Too many open files"))
    case .success: Issue.record("an answer came")
    }
    for _ in 0..<2 { #expect(try await client.answer(HTTPRequest(url: server.url)).get().body == Array("ok".utf8)) }
    #expect(calls.load(ordering: .relaxed) == 2, "what is there is not loaded again")
  }

  /// A body that arrives very slowly, with far fewer than a hundred bytes a second, may use its full time limit.
  @Test func anAnswerMayBeSlow() async throws {
    let server = try ScriptedServer { connection in
      _ = connection.message()
      connection.send(Self.head + "Content-Length: 12\r\n\r\n")
      for _ in 0..<12 {
        if connection.waits(milliseconds: 150) { break }
        connection.send("X")
      }
    }
    var request = HTTPRequest(url: server.url)
    request.options.timeout = .seconds(60)
    #expect(try await client.answer(request).get().body.count == 12)
  }

  @Test func cancelsAtAnyTime() async throws {
    let asked = WaitOnce()
    let server = try ScriptedServer { connection in
      _ = connection.message()
      asked.signal()
      _ = connection.byte()
      asked.signal()
    }
    let called = Box<Int>()
    let count: @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void = { _ in
      called.value.withLock { $0 = ($0 ?? 0) + 1 }
    }
    // Before it has started, or a little later: on a busy machine it may have failed by then.
    for _ in 0..<50 { client.send(HTTPRequest(url: "http://127.0.0.1:9/"), { _ in }).cancel() }
    // While it waits for the answer: the connection is closed.
    let waiting = client.send(HTTPRequest(url: server.url), count)
    #expect(asked.wait(1))
    waiting.cancel()
    waiting.cancel()
    #expect(asked.wait(2))
    #expect(called.value.withLock { $0 } == nil)
    // From many threads, racing with the answer: at most one of the two takes effect.
    let good = try ScriptedServer { connection in
      while connection.message() != nil { connection.send(Self.reply()) }
    }
    for _ in 0..<200 {
      let result = Box<Int>()
      let exchange = client.send(HTTPRequest(url: good.url)) { _ in
        result.value.withLock { $0 = ($0 ?? 0) + 1 }
      }
      let threads = try (0..<2).map { _ in try OwnThread("cancel") { exchange.cancel() } }
      for thread in threads { thread.join() }
      #expect((result.value.withLock { $0 } ?? 0) <= 1)
    }
    _ = try await client.answer(HTTPRequest(url: good.url)).get()
  }

  @Test func runsManyRequestsAtOnce() async throws {
    let server = try ScriptedServer { connection in
      while let request = connection.message() {
        connection.send(Self.reply(request.head.components(separatedBy: " ")[1]))
      }
    }
    let client = client
    await withTaskGroup(of: Bool.self) { group in
      for number in 0..<200 {
        group.addTask {
          let answer = await client.answer(HTTPRequest(url: server.url + "/\(number)"))
          return (try? answer.get().body) == Array("/\(number)".utf8)
        }
      }
      for await isRight in group { #expect(isRight) }
    }
  }

  @Test func burstsUseTheSameConnections() async throws {
    let server = try ScriptedServer { connection in
      while connection.message() != nil { connection.send(Self.reply("ok")) }
    }
    let client = client
    for _ in 0..<20 {
      await withTaskGroup(of: Bool.self) { group in
        for _ in 0..<24 {
          group.addTask { (try? await client.answer(HTTPRequest(url: server.url)).get().status) == 200 }
        }
        for await isRight in group { #expect(isRight) }
      }
    }
    #expect(server.connections <= 24)
  }

  /// The head of a silent answer is reported immediately, not with the first byte of the body; an interim head does
  /// not count.
  @Test func theHeadOfAStreamComesFirst() throws {
    let goOn = WaitOnce()
    let server = try ScriptedServer { connection in
      _ = connection.message()
      connection.send("HTTP/1.1 103 Early Hints\r\nX-A: early\r\n\r\nHTTP/1.1 200 OK\r\nX-A: b\r\n\r\n")
      goOn.wait()
      connection.send("late")
    }
    let parts = Guarded<[String]>([])
    let call = client.stream(HTTPRequest(url: server.url)) { part in
      parts.withLock {
        switch part {
        case .head(let response): $0.append("head \(response.status) \(response.header("x-a") ?? "")")
        case .bytes(let bytes): $0.append(String(decoding: bytes, as: UTF8.self))
        case .end(let failure): $0.append("end \(failure?.message ?? "")")
        }
      }
      parts.notify()
    }
    let deadline = monotonicNow() + 60_000_000_000
    #expect(parts.wait(until: deadline) { $0.count == 1 ? $0 : nil } == ["head 200 b"])
    goOn.signal()
    #expect(parts.wait(until: deadline) { $0.count == 3 ? $0 : nil } == ["head 200 b", "late", "end "])
    call.cancel()
    server.stop()
  }
}
