import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing

@testable import Transport

/// Servers that share an address: each has its own paths, limits and end.
@Suite struct SharedListenerTests {
  /// A server that answers with its name, or holds requests.
  private final class Site: Sendable {
    let server: HTTPServer
    let kept = Guarded<[ServerRequest]>([])

    init(
      _ port: Int, _ name: String, path: String?, methods: [String]? = nil, keeps: Bool = false,
      _ change: (inout HTTPServer.Options) -> Void = { _ in }
    ) throws {
      var options = HTTPServer.Options()
      options.port = port
      options.isShared = true
      options.rules.path = path
      options.rules.methods = methods
      change(&options)
      server = HTTPServer(options: options)
      let kept = kept
      _ = try server.start { request in
        if keeps {
          kept.withLock { $0.append(request) }
          kept.notify()
        } else {
          request.reply.reply(status: 200, headers: [], body: Array(name.utf8))
        }
      }
    }

    deinit { server.stop(within: .zero) }

    func request() throws -> ServerRequest {
      try #require(kept.wait(until: monotonicNow() + 60_000_000_000) { $0.first })
    }
  }

  private func ask(_ connection: Connection, _ what: String) -> String {
    connection.send("\(what) HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
    guard let answer = connection.message() else { return "closed" }
    let allow = answer.head.components(separatedBy: "\r\n").first { $0.hasPrefix("Allow: ") }
    let body = String(decoding: answer.body, as: UTF8.self)
    return "\(answer.head.split(separator: " ")[1]) \(allow ?? body)"
  }

  @Test func eachRequestGoesToTheServerOfItsPathAndMethod() throws {
    let port = try FreePort().number
    let sites = try [
      Site(port, "a", path: "/a"), Site(port, "read", path: "/b", methods: ["GET", "HEAD"]),
      Site(port, "write", path: "/b", methods: ["POST"]),
    ]
    let connection = try Connection(port: port)
    #expect(ask(connection, "GET /a?x=/b") == "200 a")
    #expect(ask(connection, "GET /b") == "200 read")
    #expect(ask(connection, "POST /b") == "200 write")
    #expect(ask(connection, "PUT /b") == "405 Allow: POST, GET, HEAD")
    #expect(ask(connection, "GET /c") == "404 ")
    #expect(ask(connection, "GET /a/") == "404 ")
    let rest = try Site(port, "rest", path: nil)
    #expect(ask(connection, "GET /c") == "200 rest")
    #expect(ask(connection, "PUT /b") == "200 rest")
    #expect(ask(connection, "GET /b") == "200 read")
    // A connection counts at the server that it used last.
    #expect(sites.map(\.server.counts.open) == [0, 1, 0] && rest.server.counts.open == 0)
    #expect(sites.map(\.server.counts.opened) == [1, 2, 1] && rest.server.counts.opened == 1)
  }

  @Test func onePathHasOneServer() throws {
    let port = try FreePort().number
    let first = try Site(port, "a", path: "/a", methods: ["GET"])
    let failure = #expect(throws: HTTPServerFailure.self) { try Site(port, "b", path: "/a") }
    #expect(failure?.kind == .addressInUse && failure?.message.contains("serves GET /a there") == true)
    let scratch = ScratchDirectory()
    let made = try TestCertificate(scratch.path)
    let other = #expect(throws: HTTPServerFailure.self) {
      try Site(port, "c", path: "/c") { $0.tls = try? TLSServing(TLSServing.Files(certificate: made.file)) { _ in } }
    }
    #expect(other?.message.contains("another 'tls'") == true)
    #expect(ask(try Connection(port: port), "GET /a") == "200 a")
    _ = first
  }

  /// The end of a server closes no connection of another one, and its own connections continue with the others.
  @Test func theEndOfOneLeavesTheOthersAlone() throws {
    let port = try FreePort().number
    let (first, second) = (try Site(port, "a", path: "/a"), try Site(port, "b", path: "/b", keeps: true))
    let (one, other) = (try Connection(port: port), try Connection(port: port))
    #expect(ask(one, "GET /a") == "200 a")
    other.send("GET /b HTTP/1.1\r\nHost: localhost\r\n\r\n")
    let held = try second.request()
    first.server.stop(within: .seconds(60))
    #expect(ask(one, "GET /a") == "503 ", "as of a program that stops; the path may come back")
    held.reply.reply(status: 200, headers: [], body: Array("late".utf8))
    #expect(other.message().map { String(decoding: $0.body, as: UTF8.self) } == "late")
    #expect(ask(other, "GET /a") == "503 ")
    #expect(ask(other, "GET /c") == "404 ")
    let again = try Site(port, "again", path: "/a")
    #expect(ask(other, "GET /a") == "200 again")
    again.server.stop(within: .seconds(60))
    // The last server closes the address.
    second.server.stop(within: .seconds(60))
    #expect(one.byte() == nil && other.byte() == nil)
    #expect(throws: PosixError.self) { _ = try Connection(port: port) }
  }

  /// An outstanding answer is waited for, and then its connection stays open for the others.
  @Test func answersThatAreDueAreWaitedFor() throws {
    let port = try FreePort().number
    let (first, second) = (try Site(port, "a", path: "/a", keeps: true), try Site(port, "b", path: "/b"))
    let connection = try Connection(port: port)
    connection.send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n")
    let held = try first.request()
    let stopping = try OwnThread("stop") { first.server.stop(within: .seconds(60)) }
    held.reply.reply(status: 200, headers: [], body: Array("done".utf8))
    #expect(connection.message().map { String(decoding: $0.body, as: UTF8.self) } == "done")
    stopping.join()
    #expect(ask(connection, "GET /b") == "200 b")
    _ = second
  }

  /// Each server has its own limit; the address accepts as many connections as all of them together.
  @Test func limitsAreEachServersOwn() throws {
    let port = try FreePort().number
    let (first, second) = (
      try Site(port, "a", path: "/a") { $0.rules.maxConnections = 1 },
      try Site(port, "b", path: "/b") { $0.rules.maxConnections = 2 }
    )
    let connections = try (0..<3).map { _ in try Connection(port: port) }
    #expect(ask(connections[0], "GET /a") == "200 a")
    #expect(ask(connections[1], "GET /b") == "200 b" && ask(connections[2], "GET /b") == "200 b")
    // The fourth is refused immediately, without a request.
    #expect(try Connection(port: port).readAll().hasPrefix("HTTP/1.1 503"))
    // A request on an open connection to a full server is answered by that server.
    #expect(ask(connections[1], "GET /a") == "503 ")
    #expect(first.server.counts.refused == 2 && first.server.counts.open == 1 && second.server.counts.opened == 2)
  }

  @Test func bodiesAreChargedToTheirServer() throws {
    let port = try FreePort().number
    let small = try Site(port, "a", path: "/a", keeps: true) {
      $0.rules.maxBufferedBytes = 6 << 10
      $0.rules.maxBodyBytes = 4 << 10
    }
    let large = try Site(port, "b", path: "/b", keeps: true)
    func post(_ path: String, _ count: Int) throws -> Connection {
      let connection = try Connection(port: port)
      connection.send(
        "POST \(path) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(count)\r\n\r\n"
          + String(repeating: "x", count: count))
      return connection
    }
    let waits = try post("/b", 100_000)
    _ = try large.request()
    #expect(large.server.bufferedBytes >= 100_000 && small.server.bufferedBytes == 0)
    #expect(try post("/a", 5000).readAll().hasPrefix("HTTP/1.1 413"))
    let first = try post("/a", 4000)
    _ = try small.request()
    #expect(small.server.bufferedBytes >= 4000)
    #expect(try post("/a", 4000).message()?.head.hasPrefix("HTTP/1.1 503") == true)
    for site in [small, large] {
      for request in site.kept.withLock({ $0 }) { request.reply.reply(status: 200, headers: [], body: []) }
      site.kept.withLock { $0 = [] }
    }
    #expect(waits.message()?.head.hasPrefix("HTTP/1.1 200") == true)
    #expect(first.message()?.head.hasPrefix("HTTP/1.1 200") == true)
    #expect(small.server.bufferedBytes == 0 && large.server.bufferedBytes == 0)
  }

  /// A connection made with the certificate from before a reload cannot be used for servers with the new one: 421 ends it, and the next
  /// connection has the new certificate.
  @Test(.enabled(if: access("/usr/bin/openssl", X_OK) == 0, "needs Debian's openssl"))
  func aConnectionWithAnOldCertificateIsMisdirected() throws {
    let folders = (Scratch(), Scratch())
    let files = try (TestCertificate(folders.0.path).file, TestCertificate(folders.1.path).file)
    func tls(_ file: String) throws -> TLSServing {
      try TLSServing(TLSServing.Files(certificate: file, key: nil, clientCA: nil)) { _ in }
    }
    let port = try FreePort().number
    let (first, second) = try (tls(files.0), tls(files.1))
    let old = try Site(port, "old", path: "/a") { $0.tls = first }
    let client = CurlClient()
    func ask() -> String {
      var request = HTTPRequest(url: "https://127.0.0.1:\(port)/a")
      request.options.tls.verify = false
      let answer = Guarded<String?>(nil)
      _ = client.send(request) { result in
        answer.withLock {
          switch result {
          case .success(let response): $0 = "\(response.status) \(String(decoding: response.body, as: UTF8.self))"
          case .failure(let failure): $0 = failure.message
          }
        }
        answer.notify()
      }
      let got: (inout String?) -> String? = { $0 }
      return answer.wait(until: monotonicNow() + 30_000_000_000, got) ?? "nothing"
    }
    #expect(ask() == "200 old")
    // The same server, as in a reload: the connection of the client stays.
    let other = try Site(port, "other", path: "/other") { $0.tls = first }
    old.server.stop(within: .seconds(5))
    #expect(ask().hasPrefix("503"))
    let new = try keepingListeners.withLock { _ in
      KeptListeners.begin()
      defer { KeptListeners.end() }
      other.server.stopListening(handsOver: true)
      let new = try Site(port, "new", path: "/a") { $0.tls = second }
      other.server.stop(within: .seconds(5))
      return new
    }
    #expect(ask().hasPrefix("421"))
    #expect(ask() == "200 new")
    new.server.stop(within: .zero)
  }

  /// Requests that two readers could understand differently are refused before they reach any of them.
  @Test(arguments: HTTPServerTests.smuggled) func ambiguousRequestsReachNobody(_ text: String) throws {
    let port = try FreePort().number
    let sites = try [Site(port, "a", path: "/a", keeps: true), Site(port, "b", path: nil, keeps: true)]
    let connection = try Connection(port: port)
    connection.send(text + "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n")
    #expect(connection.readAll().hasPrefix("HTTP/1.1 400"), "\(text.debugDescription)")
    #expect(sites.allSatisfy { $0.kept.withLock(\.isEmpty) })
  }
}

/// Only one test at a time is in a reload.
let keepingListeners = Mutex(())

/// A local certificate for tests, made by openssl.
struct TestCertificate {
  let file: String

  init(_ folder: String) throws {
    file = folder + "/both.pem"
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
    process.arguments = [
      "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
      "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", file, "-out",
      folder + "/cert.pem",
    ]
    process.standardError = FileHandle.nullDevice
    try process.run()
    process.waitUntilExit()
    let both =
      try Data(contentsOf: URL(fileURLWithPath: file)) + Data(contentsOf: URL(fileURLWithPath: folder + "/cert.pem"))
    try both.write(to: URL(fileURLWithPath: file))
  }
}
