import PipelineCore
import PipelineHost
import Synchronization
import Testing

@testable import Transport

/// A server decides from the head of a request whether it is refused, before any of its body is read.
@Suite struct ServerAccessTests {
  private final class Site {
    let server: HTTPServer
    let port: Int
    private let seen = Counter()

    private final class Counter: Sendable { let paths = Mutex<[String]>([]) }
    var paths: [String] { seen.paths.withLock { $0 } }

    init(_ change: (inout HTTPServer.Options) -> Void) throws {
      var options = HTTPServer.Options()
      change(&options)
      server = HTTPServer(options: options)
      let seen = seen
      port = try server.start { request in
        seen.paths.withLock { $0.append(request.path) }
        request.reply.reply(status: 200, headers: [], body: [])
      }
    }

    deinit { server.stop(within: .zero) }

    func connect() throws -> Connection { try Connection(port: port) }

    /// The status of the answer to a request; the body is announced and not sent.
    func status(_ head: String, length: Int = 0) throws -> String {
      let connection = try connect()
      connection.send("\(head)\r\nContent-Length: \(length)\r\n\r\n")
      return Self.status(connection.message()?.head)
    }

    static func status(_ head: String?) -> String {
      head?.split(separator: " ").dropFirst().first.map(String.init) ?? "none"
    }
  }

  /// An announced body is not waited for, even if the client asks whether it may send it.
  @Test(arguments: [
    ("Host: localhost", "401"), ("Host: localhost\r\nAuthorization: Bearer s", "401"),
    ("Host: rebind.example\r\nOrigin: http://rebind.example\r\nAuthorization: Bearer t", "421"),
    ("Host: localhost\r\nAuthorization: Bearer t\r\nOrigin: https://evil.example", "403"),
    ("Host: localhost\r\nExpect: 100-continue", "401"),
  ]) func refusedClientsSendNoBody(_ headers: String, _ status: String) throws {
    let site = try Site {
      $0.rules.auth = .bearer(Secret("t"))
      $0.limits.body = .seconds(600)
    }
    #expect(try site.status("POST / HTTP/1.1\r\n\(headers)", length: 1 << 19) == status)
    #expect(try site.status("POST / HTTP/1.1\r\n\(headers)\r\nContent-Encoding: gzip", length: 1 << 19) == status)
    let chunked = try site.connect()
    chunked.send("POST / HTTP/1.1\r\n\(headers)\r\nTransfer-Encoding: chunked\r\n\r\n")
    #expect(Site.status(chunked.message()?.head) == status)
    // The announced body could not be distinguished from a further request.
    #expect(chunked.byte() == nil)
    #expect(site.server.bufferedBytes == 0)
    #expect(site.paths == [])
  }

  /// Without a body the connection stays, and the next request may have the credentials.
  @Test func aClientMayTryAgain() throws {
    let site = try Site { $0.rules.auth = .bearer(Secret("t")) }
    let connection = try site.connect()
    connection.send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n")
    #expect(Site.status(connection.message()?.head) == "401")
    connection.send("GET /b HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n\r\n")
    #expect(Site.status(connection.message()?.head) == "200")
    #expect(site.paths == ["/b"])
  }

  @Test func pagesOfOtherSitesAreRefused() throws {
    let site = try Site { $0.rules.access.hosts = ["rxd.example"] }
    for (headers, status) in [
      ("Host: localhost", "200"), ("Host: rxd.example", "200"), ("Host: evil.example", "421"),
      ("Host: rxd.example\r\nOrigin: https://rxd.example", "200"),
      ("Host: localhost:\(site.port)\r\nOrigin: http://localhost:\(site.port)", "200"),
      ("Host: localhost:\(site.port)\r\nOrigin: http://localhost:1", "403"),
      ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors", "403"),
      ("Host: localhost\r\nSec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors", "403"),
      ("Host: localhost\r\nSec-Fetch-Site: new-word\r\nSec-Fetch-Mode: no-cors", "403"),
      ("Host: localhost\r\nSec-Fetch-Site: cross-site", "403"),
      ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate", "200"),
      ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document", "200"),
      ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe", "403"),
      ("Host: localhost\r\nSec-Fetch-Site: same-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: object", "403"),
      ("Host: localhost\r\nSec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document", "200"),
      ("Host: localhost\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors", "200"),
    ] {
      #expect(try site.status("GET / HTTP/1.1\r\n\(headers)") == status, "\(headers)")
    }
    #expect(try site.status("GET / HTTP/1.0") == "200")
    // If names are given, they also apply to programs.
    #expect(try site.status("POST / HTTP/1.1\r\nHost: evil.example") == "421")
    // Otherwise a proxy may forward any name, with requests that no browser sends without an origin.
    let open = try Site { _ in }
    #expect(try open.status("POST / HTTP/1.1\r\nHost: proxy.example") == "200")
    #expect(try open.status("POST / HTTP/1.1\r\nHost: proxy.example\r\nOrigin: http://proxy.example") == "421")
    // A request whose `Origin` was removed on the way still comes from a browser.
    for site in ["cross-site", "same-site", "same-origin", "none"] {
      for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        #expect(
          try open.status("\(method) / HTTP/1.1\r\nHost: rebind.example\r\nSec-Fetch-Site: \(site)") == "421", "\(site)"
        )
      }
    }
    #expect(try open.status("POST / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-site") == "403")
    #expect(try open.status("POST / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin") == "200")
    #expect(try open.status("POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: null") == "403")
    #expect(try open.status("GET / HTTP/1.1\r\nHost: proxy.example") == "421")
  }

  @Test func someAddressesHaveNoNames() throws {
    let site = try Site { $0.host = "0.0.0.0" }
    #expect(try site.status("POST / HTTP/1.1\r\nHost: any.example\r\nOrigin: https://other.example") == "200")
  }

  /// Clients that connect and send nothing do not keep others out, nor do those without credentials.
  @Test func idleConnectionsMakeRoom() throws {
    let site = try Site {
      $0.rules.auth = .bearer(Secret("t"))
      $0.rules.maxConnections = 4
      $0.makesRoom = true
    }
    let known = "GET /known HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n\r\n"
    let good = try site.connect()
    good.send(known)
    #expect(Site.status(good.message()?.head) == "200")
    var silent: [Connection] = []
    for number in 0..<12 {
      let one = try site.connect()
      // Some of them are refused.
      if number % 3 == 0 {
        one.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        #expect(Site.status(one.message()?.head) == "401", "\(number)")
      }
      silent.append(one)
    }
    // The client with credentials has been idle longest, and is still connected.
    good.send(known)
    #expect(Site.status(good.message()?.head) == "200")
    let late = try site.connect()
    late.send(known)
    #expect(Site.status(late.message()?.head) == "200")
    #expect(silent[0].byte() == nil)
    #expect(site.server.counts.refused == 0)
  }

  /// If all are busy, there is no room.
  @Test func connectionsAtWorkStay() throws {
    let held = Mutex<[any ReplyTarget]>([])
    let asked = WaitOnce()
    var options = HTTPServer.Options()
    options.rules.maxConnections = 1
    options.makesRoom = true
    let server = HTTPServer(options: options)
    let port = try server.start { request in
      held.withLock { $0.append(request.reply) }
      asked.signal()
    }
    defer { server.stop(within: .zero) }
    let first = try Connection(port: port)
    first.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    asked.wait()
    #expect(Site.status(try Connection(port: port).message()?.head) == "503")
    for reply in held.withLock({ $0 }) { reply.reply(status: 200, headers: [], body: []) }
    #expect(Site.status(first.message()?.head) == "200")
  }
}
