import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing
import Transport

/// What is counted of connections, on both sides.
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
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n1")
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
    pipeline.run { pipeline.execution.outcome != nil }
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
    pipeline.run { pipeline.execution.outcome != nil }
  }
}
