import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

@testable import Transport

/// How `webSocket` connects as a client: credentials, proxies, forbidden addresses, permanent refusals.
@Suite struct WebSocketClientTests {
  /// The requests of clients: the first line and a header.
  private final class Heads: Sendable {
    private let heads = Mutex<[String]>([])
    var all: [String] { heads.withLock { $0 } }
    func add(_ text: String) { heads.withLock { $0.append(text) } }
  }

  private static func header(_ name: String, _ head: String) -> String? {
    head.split(separator: "\r\n").first { $0.lowercased().hasPrefix(name.lowercased() + ": ") }
      .map { String($0.dropFirst(name.count + 2)) }
  }

  /// Upgrades a connection to a WebSocket, sends `text`, and reads until it ends.
  private static func upgrade(_ connection: Connection, _ head: String, _ text: String) {
    let accept = WebSocketHandshake.accept(header("Sec-WebSocket-Key", head) ?? "") ?? ""
    connection.send(
      "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: \(accept)\r\n\r\n")
    connection.send(WebSocketFrame.ofServer(isText: true, Array(text.utf8)))
    while connection.byte() != nil {}
  }

  private func source(_ parameters: String) throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { webSocket: { \(parameters), decode: text, reconnect: 1ms, maxReconnect: 5ms } } }
      sinks: { out: { from: in, probe: {} } }
      """, http: CurlClient())
  }

  /// A token is fetched, and replaced once after a 401, as for requests.
  @Test func tokensOfOAuth2ArePresentedAndReplaced() throws {
    let heads = Heads()
    let server = try ScriptedServer { connection in
      guard let (head, body) = connection.message() else { return }
      if head.hasPrefix("POST /token") {
        let number = heads.all.count { $0.hasPrefix("POST") } + 1
        heads.add("POST \(String(decoding: body, as: UTF8.self))")
        let token = #"{"access_token":"t\#(number)","token_type":"Bearer"}"#
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: \(token.utf8.count)\r\n\r\n\(token)")
      } else {
        let token = Self.header("Authorization", head) ?? "-"
        heads.add("GET \(token)")
        if token == "Bearer t2" { return Self.upgrade(connection, head, "hello") }
        connection.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
      }
    }
    let pipeline = try source(
      """
      url: 'ws://127.0.0.1:\(server.port)/feed',
      auth: { oauth2: { tokenURL: 'http://127.0.0.1:\(server.port)/token', clientID: a, clientSecret: b } }
      """)
    pipeline.run(within: .seconds(30)) { pipeline.events.count == 1 }
    #expect(pipeline.events == ["\"hello\""])
    let grant = "POST grant_type=client_credentials"
    #expect(heads.all == [grant, "GET Bearer t1", grant, "GET Bearer t2"])
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run(within: .seconds(30)) { pipeline.execution.hasClosed }
    server.stop()
  }

  @Test func aSignatureOfAWSIsSent() throws {
    let heads = Heads()
    let server = try ScriptedServer { connection in
      guard let (head, _) = connection.message() else { return }
      heads.add(Self.header("Authorization", head) ?? "-")
      heads.add(Self.header("X-Amz-Date", head) ?? "-")
      Self.upgrade(connection, head, "signed")
    }
    let pipeline = try source(
      """
      url: 'ws://127.0.0.1:\(server.port)/prod?a=1',
      auth: { awsSigV4: { region: eu-central-1, service: execute-api, accessKey: AKID, secretKey: s } }
      """)
    pipeline.run(within: .seconds(30)) { pipeline.events.count == 1 }
    #expect(heads.all.first?.hasPrefix("AWS4-HMAC-SHA256 Credential=AKID/") == true, "\(heads.all)")
    #expect(heads.all.last?.hasSuffix("Z") == true)
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run(within: .seconds(30)) { pipeline.execution.hasClosed }
    server.stop()
  }

  /// The proxy resolves the name, which exists nowhere else.
  @Test func aProxyIsAskedForTheWay() throws {
    let heads = Heads()
    let proxy = try ScriptedServer { connection in
      guard let (head, _) = connection.message() else { return }
      heads.add(head.split(separator: "\r\n").first.map(String.init) ?? "")
      guard heads.all.count > 1 else {
        connection.send("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        return
      }
      connection.send("HTTP/1.0 200 Connection established\r\n\r\n")
      guard let (request, _) = connection.message() else { return }
      heads.add(Self.header("Host", request) ?? "-")
      Self.upgrade(connection, request, "by proxy")
    }
    let pipeline = try source("url: 'ws://feed.invalid/live', proxy: 'http://127.0.0.1:\(proxy.port)'")
    pipeline.run(within: .seconds(30)) { pipeline.events.count == 1 }
    #expect(pipeline.events == ["\"by proxy\""])
    #expect(heads.all == ["CONNECT feed.invalid:80 HTTP/1.1", "CONNECT feed.invalid:80 HTTP/1.1", "feed.invalid"])
    #expect(
      pipeline.log.contains { $0.contains("answered 502 to CONNECT feed.invalid:80; connecting again") },
      "\(pipeline.log)")
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run(within: .seconds(30)) { pipeline.execution.hasClosed }
    proxy.stop()
  }

  /// The name of this machine, if it resolves to a private address.
  static let privateName: String? = {
    var name = [CChar](repeating: 0, count: 256)
    guard gethostname(&name, name.count) == 0 else { return nil }
    let text = String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return SocketClient(port: 9, isDatagram: true) != nil && text != "localhost" && resolves(text) ? text : nil
  }()

  private static func resolves(_ host: String) -> Bool {
    var found: UnsafeMutablePointer<addrinfo>?
    var hints = addrinfo()
    hints.ai_family = AF_INET
    guard getaddrinfo(host, nil, &hints, &found) == 0, let found else { return false }
    defer { freeaddrinfo(found) }
    return found.pointee.ai_addr?.withMemoryRebound(to: sockaddr_in.self, capacity: 1) {
      $0.pointee.sin_addr.s_addr == UInt32(0x7f00_0001).bigEndian
    } ?? false
  }

  @Test(.enabled(if: privateName != nil, "needs a host name that leads to 127.0.0.1"))
  func namesOfPrivateAddressesAreRefused() throws {
    let name = try #require(Self.privateName)
    let server = try ScriptedServer { connection in
      guard let (head, _) = connection.message() else { return }
      Self.upgrade(connection, head, "private")
    }
    let refused = try source("url: 'ws://\(name):\(server.port)/'")
    #expect(refused.runToEnd(within: .seconds(30)) != .completed)
    #expect(refused.failure?.message.contains("leads to a loopback or private address") == true)
    #expect(server.connections == 0)
    let allowed = try source("url: 'ws://\(name):\(server.port)/', allowPrivate: true")
    allowed.run(within: .seconds(30)) { allowed.events.count == 1 }
    #expect(allowed.events == ["\"private\""])
    allowed.inTurn { $0.execution.cancel() }
    allowed.run(within: .seconds(30)) { allowed.execution.hasClosed }
    server.stop()
  }

  /// A refusal that a retry would not change ends a sink, too.
  @Test func aRefusalEndsASink() throws {
    let server = try ScriptedServer { connection in
      _ = connection.message()
      connection.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    }
    let source = TrackedSource()
    let pipeline = try RealPipeline(
      """
      sources: { in: { never: {} } }
      sinks: { out: { from: in, webSocket: { url: 'ws://127.0.0.1:\(server.port)/' } } }
      """
    ) { execution in execution.replacements.sources = { $0 == "in" ? source : nil } }
    pipeline.run(within: .seconds(30)) { source.feed.node != nil }
    source.feed.send(1, [1])
    #expect(pipeline.runToEnd(within: .seconds(30)) != .completed)
    #expect(pipeline.failure?.message.contains("answered 403 to the opening handshake") == true)
    server.stop()
  }

  @Test(arguments: [
    ("listen: 1, auth: { oauth2: { tokenURL: 'http://h/', clientID: a, clientSecret: b } }", "'basic' or 'bearer'"),
    ("listen: 1, proxy: 'http://h:1'", "'proxy' of 'webSocket' has no effect without 'url'"),
    ("listen: 1, allowPrivate: true", "'allowPrivate' of 'webSocket' has no effect without 'url'"),
    ("url: 'ws://h/', proxy: 'https://h'", "begins with http://"),
  ]) func mistakesAreFound(_ parameters: String, _ message: String) {
    for text in [
      "sources: { a: { webSocket: { \(parameters) } } }\nsinks: { out: { from: a, discard: {} } }",
      "sources: { a: { never: {} } }\nsinks: { out: { from: a, webSocket: { \(parameters) } } }",
    ] {
      let found = PipelineText.complaints(text)
      #expect(found.contains { $0.contains(message) }, "\(found)")
    }
  }
}
