import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Transport

/// `webSocket` as source and sink, against python3-websockets and against clients that violate the protocol.
@Suite struct WebSocketTests {
  static let needsPeer = Comment(rawValue: "needs the package python3-websockets")

  private func source(_ parameters: String) throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { webSocket: { \(parameters) } } }
      signals: { seen: { from: in, chain: [ { map: '[meta.type, event]' } ] } }
      sinks:
        out: { from: seen, probe: {} }
        bad: { from: in.errors, chain: [ { map: event.error } ], probe: {} }
      """)
  }

  private func end(_ pipeline: RealPipeline) {
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }

  /// The peer's next line, while the pipeline runs turns.
  private func line(_ peer: WebSocketPeer, _ pipeline: RealPipeline) -> String? {
    pipeline.run(within: .seconds(30)) { peer.isReadable }
    return peer.line()
  }

  private func connections(_ pipeline: RealPipeline) -> PipelineStatistics.Connections? {
    pipeline.execution.statistics.steps.lazy.compactMap(\.connections).first
  }

  // MARK: The source as a client

  @Test(.enabled(if: WebSocketPeer.isThere, needsPeer)) func aClientReceivesAndConnectsAgain() throws {
    let port = try FreePort().number
    let peer = try WebSocketPeer("serve", "\(port)", "v1")
    #expect(peer.line() == "listening")
    let pipeline = try source(
      """
      url: 'ws://127.0.0.1:\(port)/feed?a=b', decode: text, headers: { X-Name: me }, auth: { bearer: tok }, subprotocols: [v2, v1],
      send: '{"subscribe":"all"}', reconnect: 1ms, maxReconnect: 20ms
      """)
    pipeline.run(within: .seconds(30)) { connections(pipeline)?.opened == 1 }
    #expect(peer.line() == "connected /feed?a=b me Bearer tok v1")
    #expect(peer.line() == #"text {"subscribe":"all"}"#)
    peer.say("text grüße")
    peer.say("binary 6162")
    peer.say("parts one two three")
    peer.say("ping")
    pipeline.run(within: .seconds(30)) { pipeline.events.count == 3 }
    #expect(pipeline.events == [#"["text","grüße"]"#, #"["binary","ab"]"#, #"["text","onetwothree"]"#])
    #expect(peer.line() == "pong")
    // The server closes the connection: it is made again, and the close reason is logged.
    peer.say("close 1011 overloaded")
    #expect(peer.line()?.hasPrefix("closed 1011") == true)
    pipeline.run(within: .seconds(30)) { connections(pipeline)?.opened == 2 }
    #expect(peer.line()?.hasPrefix("connected") == true)
    #expect(
      pipeline.log.contains { $0.contains("closed it with 1011: overloaded; connecting again") }, "\(pipeline.log)")
    // The server restarts.
    peer.kill()
    pipeline.run(within: .seconds(30)) { (connections(pipeline)?.broken ?? 0) > 1 }
    let next = try WebSocketPeer("serve", "\(port)", "v1")
    pipeline.run(within: .seconds(30)) { connections(pipeline)?.opened == 3 }
    while let line = next.line(), !line.hasPrefix("text"), !line.hasPrefix("nothing") {}
    next.say("text again")
    pipeline.run(within: .seconds(30)) { pipeline.events.count == 4 }
    #expect(pipeline.log.contains { $0.contains("connected again") })
    end(pipeline)
    #expect(next.line() == "closed 1001 the pipeline stops")
  }

  @Test func anAnswerThatIsNoWebSocketEndsIt() throws {
    let server = try ScriptedServer { connection in
      _ = connection.message()
      connection.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    }
    let pipeline = try source("url: 'ws://127.0.0.1:\(server.port)/'")
    #expect(pipeline.runToEnd() != .completed)
    #expect(pipeline.failure?.message.contains("answered 403 to the opening handshake") == true)
    server.stop()
  }

  @Test func aWrongAcceptIsNoWebSocket() throws {
    let server = try ScriptedServer { connection in
      _ = connection.message()
      connection.send(
        "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
      )
      _ = connection.byte()
    }
    let pipeline = try source("url: 'ws://127.0.0.1:\(server.port)/', reconnect: 1ms")
    pipeline.run(within: .seconds(30)) {
      pipeline.log.contains { $0.contains("a wrong Sec-WebSocket-Accept; connecting again") }
    }
    end(pipeline)
    server.stop()
  }

  /// The ping detects a server that does not answer.
  @Test func aSilentServerIsLeft() throws {
    let server = try ScriptedServer { connection in
      guard let head = connection.message()?.head else { return }
      let key = head.split(separator: "\r\n").first { $0.hasPrefix("Sec-WebSocket-Key: ") }?.dropFirst(19) ?? ""
      connection.send(
        "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: \(WebSocketHandshake.accept(String(key)) ?? "")\r\n\r\n"
      )
      while connection.byte() != nil {}
    }
    let pipeline = try source("url: 'ws://127.0.0.1:\(server.port)/', ping: 20ms, pingTimeout: 20ms, reconnect: 1ms")
    pipeline.run(within: .seconds(30)) {
      pipeline.log.contains { $0.contains("a ping was not answered within 20ms; connecting again") }
    }
    end(pipeline)
    server.stop()
  }

  // MARK: The source as a server

  @Test(.enabled(if: WebSocketPeer.isThere, needsPeer)) func aServerReceives() throws {
    let pipeline = try source("listen: '127.0.0.1:0', path: /in, subprotocols: [v1]")
    let port = try #require(pipeline.port())
    let peer = try WebSocketPeer("connect", "ws://127.0.0.1:\(port)/in?x=1", "http://127.0.0.1:\(port)", "v1")
    #expect(line(peer, pipeline) == "connected v1")
    peer.say(#"text {"n":1}"#)
    peer.say(#"parts {"n": 2}"#)
    peer.say("binary 5b335d")
    peer.say("ping")
    peer.say("text {")
    pipeline.run(within: .seconds(30)) { pipeline.events.count == 3 && pipeline.probe("bad").events.count == 1 }
    #expect(pipeline.events == [#"["text",{"n":1}]"#, #"["text",{"n":2}]"#, #"["binary",[3]]"#])
    #expect(peer.line() == "pong")
    #expect(connections(pipeline) == .init(open: 1, opened: 1))
    let other = try WebSocketPeer("connect", "ws://127.0.0.1:\(port)/in", "", "v2")
    #expect(line(other, pipeline) == "refused 400")
    let stranger = try WebSocketPeer("connect", "ws://127.0.0.1:\(port)/in", "https://evil.example", "v1")
    #expect(line(stranger, pipeline) == "refused 403")
    end(pipeline)
    #expect(peer.line() == "closed 1001 the pipeline stops")
  }

  @Test(arguments: [
    ("masked", 1002), ("utf8", 1007), ("large", 1009), ("fragments", 1009), ("opcode", 1002), ("close", 1000),
    ("bare close", 1005),
  ]) func clientsThatBreakTheRulesAreClosed(_ what: String, _ code: Int) throws {
    let pipeline = try source("listen: '127.0.0.1:0', path: /in, decode: text, maxMessage: 100B")
    let port = try #require(pipeline.port())
    let raw = try RawWebSocket(port)
    // The answer to a request, which the pipeline handles in a turn.
    pipeline.run(within: .seconds(30)) { connections(pipeline)?.opened == 1 }
    #expect(raw.head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="))
    raw.send(1, Array("fine".utf8))
    switch what {
    case "masked": raw.connection.send(WebSocketFrame.ofServer(isText: true, [65]))
    case "utf8": raw.send(1, [0xC3, 0x28])
    case "large": raw.send(2, Array(repeating: 0, count: 101))
    case "fragments":
      raw.send(2, Array(repeating: 0, count: 99), isFinal: false)
      raw.send(9, [1])
      raw.send(0, [0, 0])
    case "opcode": raw.send(5, [])
    case "close": raw.send(8, [0x03, 0xE8])
    default: raw.send(8, [])
    }
    #expect(raw.closeCode == code)
    #expect(raw.connection.byte() == nil)
    pipeline.run(within: .seconds(30)) { connections(pipeline)?.open == 0 }
    #expect(pipeline.events == [#"["text","fine"]"#])
    #expect(connections(pipeline)?.broken == (code == 1000 || code == 1005 ? 0 : 1))
    end(pipeline)
  }

  @Test(arguments: [
    ("GET /other", "", "404"), ("POST /in", "", "405"), ("GET /in", "", "426"),
    ("GET /in", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 8\r\n", "426"),
    (
      "GET /in", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n",
      "400"
    ),
  ]) func otherRequestsAreRefused(_ line: String, _ headers: String, _ status: String) throws {
    let pipeline = try source("listen: '127.0.0.1:0', path: /in")
    let port = try #require(pipeline.port())
    let connection = try Connection(port: port)
    connection.send("\(line) HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\(headers)\r\n")
    pipeline.run(within: .seconds(30)) { connection.waits(milliseconds: 0) }
    let head = connection.message()?.head ?? ""
    #expect(head.hasPrefix("HTTP/1.1 \(status) "), "\(head)")
    if status == "426" { #expect(head.contains("Upgrade: websocket")) }
    end(pipeline)
  }

  @Test func limitsOfAServerHold() throws {
    let pipeline = try source(
      "listen: '127.0.0.1:0', path: /in, decode: text, maxConnections: 1, idleTimeout: 200ms, auth: { bearer: t }")
    let port = try #require(pipeline.port())
    let stranger = try RawWebSocket(port)
    pipeline.run(within: .seconds(30)) { stranger.connection.waits(milliseconds: 0) }
    #expect(stranger.head.hasPrefix("HTTP/1.1 401"))
    stranger.connection.close()
    pipeline.run(within: .seconds(30)) { connections(pipeline)?.open == 0 }
    // The stranger's slot is free when the server has noticed that it is gone.
    var accepted: RawWebSocket?
    for _ in 0..<1000 where accepted == nil {
      let next = try RawWebSocket(port, "Authorization: Bearer t\r\n")
      pipeline.run(within: .seconds(30)) { next.connection.waits(milliseconds: 0) }
      let head = next.head
      #expect(head.hasPrefix("HTTP/1.1 101") || head.hasPrefix("HTTP/1.1 503"), "\(head)")
      if head.hasPrefix("HTTP/1.1 101") { accepted = next }
    }
    let raw = try #require(accepted)
    let second = try Connection(port: port)
    #expect(second.readAll().hasPrefix("HTTP/1.1 503"))
    // The client sends nothing.
    #expect(raw.closeCode == 1001)
    pipeline.run(within: .seconds(30)) { connections(pipeline)?.open == 0 }
    end(pipeline)
  }

  // MARK: Sinks

  @Test(.enabled(if: WebSocketPeer.isThere, needsPeer)) func aSinkSendsToAServerThatRestarts() throws {
    let port = try FreePort().number
    let source = TrackedSource()
    let pipeline = try RealPipeline(
      """
      sources: { in: { never: {} } }
      sinks: { out: { from: in, webSocket: { url: 'ws://127.0.0.1:\(port)/x', reconnect: { delay: 1ms, maxDelay: 20ms } } } }
      """
    ) { execution in execution.replacements.sources = { $0 == "in" ? source : nil } }
    pipeline.run(within: .seconds(30)) { source.feed.node != nil }
    // There is no client yet, so the event waits.
    source.feed.send(1, [1])
    pipeline.run(within: .seconds(30)) { pipeline.log.contains { $0.contains("cannot connect to 127.0.0.1:\(port)") } }
    let peer = try WebSocketPeer("serve", "\(port)")
    #expect(peer.line() == "listening")
    pipeline.run(within: .seconds(30)) { pipeline.counters.sent == 1 }
    #expect(peer.line()?.hasPrefix("connected /x") == true)
    #expect(peer.line() == "text 1")
    peer.say("close 1012 restart")
    #expect(peer.line()?.hasPrefix("closed 1012") == true)
    peer.kill()
    pipeline.run(within: .seconds(30)) { connections(pipeline)?.open == 0 }
    source.feed.send(2, [2])
    let next = try WebSocketPeer("serve", "\(port)")
    pipeline.run(within: .seconds(30)) { pipeline.counters.sent == 2 }
    while let line = next.line(), !line.hasPrefix("text"), !line.hasPrefix("nothing") {
      #expect(line.hasPrefix("listening") || line.hasPrefix("connected"))
    }
    end(pipeline)
    #expect(next.line() == "closed 1000 ")
  }

  @Test(.enabled(if: WebSocketPeer.isThere, needsPeer)) func aSinkSendsToWhoIsConnected() throws {
    let source = TrackedSource()
    let pipeline = try RealPipeline(
      """
      sources: { in: { never: {} } }
      sinks: { out: { from: in, webSocket: { listen: '127.0.0.1:0', path: /live } } }
      """
    ) { execution in execution.replacements.sources = { $0 == "in" ? source : nil } }
    let port = try #require(pipeline.port())
    source.feed.send(1, [1])
    pipeline.run(within: .seconds(30)) { pipeline.counters.sent == 1 }
    let peers = try (0..<2).map { _ in try WebSocketPeer("connect", "ws://127.0.0.1:\(port)/live") }
    pipeline.run(within: .seconds(30)) { connections(pipeline)?.open == 2 }
    source.feed.send(3, [2, 3])
    pipeline.run(within: .seconds(30)) { pipeline.counters.sent == 3 }
    for peer in peers {
      #expect(peer.line() == "connected -")
      #expect(peer.line() == "text 2" && peer.line() == "text 3")
      peer.say("text ignored")
      peer.say("ping")
      #expect(peer.line() == "pong")
    }
    end(pipeline)
    for peer in peers { #expect(peer.line() == "closed 1001 the server stops") }
  }

  /// A client that does not read delays nothing.
  @Test(arguments: ["disconnect", "skip"]) func slowClientsAreBounded(_ slow: String) throws {
    let source = TrackedSource()
    let pipeline = try RealPipeline(
      """
      sources: { in: { never: {} } }
      sinks: { out: { from: in, chain: [ { map: 'string(event) + env.BIG' } ], webSocket: { listen: '127.0.0.1:0', path: /live, encode: text, slow: \(slow) } } }
      """, environment: ["BIG": String(repeating: "x", count: 60_000)]
    ) { execution in execution.replacements.sources = { $0 == "in" ? source : nil } }
    let port = try #require(pipeline.port())
    let raw = try RawWebSocket(port, path: "/live")
    pipeline.run(within: .seconds(30)) { connections(pipeline)?.open == 1 }
    let word = slow == "skip" ? "missed 1 message so far" : "was disconnected, 1 so far"
    var sent = 0
    func send() {
      sent += 1
      source.feed.send(sent, [Int64(sent)])
      let wanted = UInt64(sent)
      pipeline.run(within: .seconds(30)) { pipeline.counters.sent == wanted }
    }
    func isSlow() -> Bool { pipeline.log.contains { $0.contains(word) } }
    while !isSlow(), sent < 2000 { send() }
    try #require(isSlow())
    // The waiting data: 256 KiB in the sink, and the system's buffers at both ends.
    let system = ["tcp_wmem", "tcp_rmem"].reduce(0) { sum, name in
      let text = (try? String(contentsOfFile: "/proc/sys/net/ipv4/\(name)", encoding: .utf8)) ?? ""
      return sum + (text.split(whereSeparator: \.isWhitespace).last.flatMap { Int($0) } ?? 16 << 20)
    }
    let most = (system + 256 << 10) / 60_000 + 2
    #expect(sent <= most, "\(sent) messages of 60 KB, at most \(most)")
    if slow == "skip" {
      #expect(connections(pipeline)?.open == 1)
      // The client has all events up to the first missed one, and those that arrive after it has read.
      _ = raw.head
      for number in 1..<sent {
        let frame = try #require(raw.frame())
        #expect(frame.opcode == 1 && frame.payload.starts(with: Array("\(number)x".utf8)))
      }
      send()
      #expect(raw.frame()?.payload.starts(with: Array("\(sent)x".utf8)) == true)
    } else {
      _ = raw.connection.readAll()
      pipeline.run(within: .seconds(30)) { connections(pipeline)?.open == 0 }
      #expect(connections(pipeline)?.open == 0)
    }
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run(within: .seconds(30)) { pipeline.execution.hasClosed }
  }

  /// The example: a page, orders, and the live feed that its script follows, on one port.
  @Test(.enabled(if: WebSocketPeer.isThere, needsPeer)) func theLivePageWorks() throws {
    let port = try FreePort().number
    let file = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("pipelines/live-orders.yaml")
    let pipeline = try RealPipeline(
      String(contentsOf: file, encoding: .utf8), name: "live-orders.yaml",
      environment: ["LIVE_ADDRESS": "127.0.0.1:\(port)"])
    pipeline.run(within: .seconds(30)) { pipeline.log.count { $0.contains("listening on") } == 3 }
    let page = try Connection(port: port)
    page.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    pipeline.run(within: .seconds(30)) { page.waits(milliseconds: 0) }
    let answer = try #require(page.message())
    #expect(answer.head.contains("text/html") && String(decoding: answer.body, as: UTF8.self).contains("new WebSocket"))
    // As a browser with the page would: with its origin.
    let browser = try WebSocketPeer("connect", "ws://127.0.0.1:\(port)/live", "http://127.0.0.1:\(port)")
    #expect(line(browser, pipeline) == "connected -")
    let order = try Connection(port: port)
    order.send("POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 24\r\n\r\n" + #"{"item":"tea","price":3}"#)
    pipeline.run(within: .seconds(30)) { order.waits(milliseconds: 0) }
    #expect(order.message()?.head.hasPrefix("HTTP/1.1 200") == true)
    #expect(line(browser, pipeline) == #"text {"item":"tea","price":3,"total":3.0}"#)
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }

  // MARK: Mistakes

  @Test(arguments: [
    ("", "neither 'url' nor 'listen'"), ("url: 'ws://h/', listen: 1", "a client or a server"),
    ("url: 'http://h/'", "speaks ws and wss"),
    ("url: 'ws://h/', origins: ['*']", "'origins' of 'webSocket' has no effect without 'listen'"),
    ("listen: 1, send: x", "'send' of 'webSocket' has no effect without 'url'"),
    ("listen: '0.0.0.0:1'", "would serve every client"),
    ("listen: 1, path: x", "no request has the path"), ("listen: 1, origins: [a]", "not an origin"),
    ("listen: 1, subprotocols: ['a b']", "not the name of a subprotocol"),
    ("url: 'ws://h/', reconnect: 2m", "longer than 'maxReconnect'"),
  ]) func mistakesAreFound(_ parameters: String, _ message: String) {
    let found = PipelineText.complaints(
      "sources: { a: { webSocket: { \(parameters) } } }\nsinks: { out: { from: a, discard: {} } }")
    #expect(found.contains { $0.contains(message) }, "\(found)")
  }
}
