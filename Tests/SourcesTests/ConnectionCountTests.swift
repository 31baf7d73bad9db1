import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing
import Transport

/// The connection counters, on both sides.
@Suite struct ConnectionCountTests {
  let scratch = Scratch()

  private func connections(_ pipeline: RealPipeline) -> PipelineStatistics.Connections? {
    pipeline.execution.statistics.steps.lazy.compactMap(\.connections).first
  }

  @Test(arguments: [
    "tcp: { address: '127.0.0.1:0', maxConnections: 1 }",
    "syslog: { address: '127.0.0.1:0', transport: tcp, maxConnections: 1 }",
  ])
  func sourcesCountThoseThatTheyAccept(_ source: String) throws {
    let pipeline = try RealPipeline("sources: { in: { \(source) } }\nsinks: { out: { from: in, probe: {} } }")
    let port = try #require(pipeline.port())
    let first = try #require(SocketClient(port: port))
    first.send("<13>1 2026-01-02T03:04:05Z h a - - - one\n")
    pipeline.run { pipeline.events.count == 1 }
    #expect(connections(pipeline) == .init(open: 1, opened: 1))
    let second = try #require(SocketClient(port: port))
    pipeline.run { pipeline.log.contains { $0.contains("are open") } }
    #expect(connections(pipeline) == .init(open: 1, opened: 1, refused: 1))
    second.end()
    first.end()
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }

  @Test func aConnectionThatBreaksIsCountedOnce() throws {
    let pipeline = try RealPipeline(
      "sources: { in: { tcp: '127.0.0.1:0' } }\nsinks: { out: { from: in, probe: {} } }")
    let port = try #require(pipeline.port())
    let client = try #require(SocketClient(port: port))
    client.send("one\n")
    pipeline.run { pipeline.events.count == 1 }
    client.abort()
    pipeline.run { connections(pipeline)?.open == 0 }
    #expect(connections(pipeline) == .init(open: 0, opened: 1, broken: 1))
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }

  @Test func aServerCountsItsClients() throws {
    let pipeline = try RealPipeline(
      "sources: { in: { httpServer: { address: '127.0.0.1:0' } } }\nsinks: { out: { from: in, probe: {} } }")
    let port = try #require(pipeline.port())
    let client = try #require(SocketClient(port: port))
    client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n1")
    pipeline.run { pipeline.events.count == 1 }
    #expect(connections(pipeline)?.opened == 1)
    client.end()
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }

  @Test func sinksCountThoseThatTheyMake() throws {
    let arrived = Mutex<(isHere: Bool, ring: @Sendable () -> Void)>((false, {}))
    let receiver = try StreamReceiver(
      .network(host: "127.0.0.1", port: 0, isDatagram: false), StreamReceiver.Options())
    let take: @Sendable ([StreamReceiver.Piece]) -> Bool = { _ in
      let ring = arrived.withLock { arrived in
        arrived.isHere = true
        return arrived.ring
      }
      ring()
      return true
    }
    try receiver.start(notify: { _ in }, deliver: take)
    let pipeline = try RealPipeline(
      "sources: { in: { values: { list: [1, 2], every: 1h } } }\nsinks: { out: { from: in, tcp: '\(receiver.text)' } }")
    let ring = pipeline.ring
    arrived.withLock { $0.ring = ring }
    pipeline.run { arrived.withLock(\.isHere) }
    #expect(connections(pipeline) == .init(open: 1, opened: 1))
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run { pipeline.execution.hasClosed }
    receiver.cancel()
  }

  @Test func attemptsThatFailAreCounted() throws {
    let pipeline = try RealPipeline(
      "sources: { in: { values: [1] } }\nsinks: { out: { from: in, unix: { path: '\(scratch("none"))', reconnect: 1ms } } }"
    )
    pipeline.run { pipeline.log.contains { $0.contains("none") } }
    let found = try #require(connections(pipeline))
    #expect(found.open == 0 && found.opened == 0 && found.broken > 0)
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run { pipeline.execution.hasClosed }
  }

  // MARK: Requests

  /// Answers `count` requests on each connection, and then closes it.
  private func server(_ count: Int = .max, status: String = "200 OK") throws -> ScriptedServer {
    try ScriptedServer { connection in
      var left = count
      while left > 0, connection.message() != nil {
        left -= 1
        connection.send("HTTP/1.1 \(status)\r\nContent-Length: 2\r\n\(left == 0 ? "Connection: close\r\n" : "")\r\n{}")
      }
    }
  }

  @Test func requestsOverOneConnectionReuseIt() throws {
    let server = try server()
    let pipeline = try RealPipeline(
      "sources: { in: { values: [1, 2, 3, 4, 5] } }\nsinks: { out: { from: in, http: '\(server.url)' } }",
      http: CurlClient())
    #expect(pipeline.runToEnd() == .completed)
    let found = try #require(connections(pipeline))
    #expect(server.connections == 1)
    // The connection is kept for the next request of any component.
    #expect(found == .init(open: 1, opened: 1, broken: 0, reused: 4))
    server.stop()
  }

  @Test func aConnectionForEachRequestIsOpenedAndClosed() throws {
    let server = try server(1)
    let pipeline = try RealPipeline(
      "sources: { in: { values: [1, 2, 3] } }\nsinks: { out: { from: in, http: '\(server.url)' } }", http: CurlClient())
    #expect(pipeline.runToEnd() == .completed)
    let isClosed = pipeline.run(within: .seconds(60)) { connections(pipeline)?.open == 0 }
    #expect(isClosed)
    #expect(connections(pipeline) == .init(open: 0, opened: 3, broken: 0, reused: 0))
    server.stop()
  }

  @Test func requestsWithoutAServerAreBroken() throws {
    // A port without a listener.
    let server = try server()
    server.stop()
    let pipeline = try RealPipeline(
      """
      sources: { in: { values: [1] } }
      sinks:
        out: { from: in, http: { url: 'http://127.0.0.1:1/', retry: { attempts: 3, delay: 1ms } } }
        lost: { from: out.errors, probe: {} }
      """, http: CurlClient())
    #expect(pipeline.runToEnd() == .completed)
    #expect(connections(pipeline) == .init(open: 0, opened: 0, broken: 3, reused: 0))
  }

  @Test func sourcesThatAskCountTheirConnections() throws {
    let server = try server()
    let pipeline = try RealPipeline(
      """
      sources: { in: { http: { url: '\(server.url)', every: 100ms, decode: json } } }
      sinks: { out: { from: in, probe: {} } }
      """, http: CurlClient())
    pipeline.run { pipeline.events.count >= 3 }
    let found = try #require(connections(pipeline))
    #expect(found.open == 1 && found.opened == 1 && (found.reused ?? 0) >= 2 && found.broken == 0, "\(found)")
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run { pipeline.execution.hasClosed }
    server.stop()
  }

  /// A stream is long-lived, and is counted when it starts.
  @Test func aStreamIsCountedWhileItLasts() throws {
    let server = try ScriptedServer { connection in
      guard connection.message(hasBody: false) != nil else { return }
      connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
      while connection.byte() != nil {}
    }
    let pipeline = try RealPipeline(
      "sources: { in: { sse: '\(server.url)' } }\nsinks: { out: { from: in, probe: {} } }", http: CurlClient())
    pipeline.run { pipeline.events.count == 1 }
    #expect(connections(pipeline) == .init(open: 1, opened: 1, broken: 0, reused: 0))
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
    server.stop()
  }
}
