import PipelineHost
import Synchronization
import Testing

@testable import PipelineCore
@testable import Transport

/// Incomplete messages on many connections share one budget.
@Suite struct UnfinishedMessagesTests {
  @Test func messagesOfWebSocketsShareTheBudgetOfTheirServer() throws {
    var options = HTTPServer.Options()
    options.rules.maxBufferedBytes = 256 << 10
    let server = HTTPServer(options: options)
    let received = Guarded<[Int]>([])
    var limits = WebSocketSession.Options()
    limits.maxMessage = 100 << 10
    limits.maxFrame = limits.maxMessage
    let port = try server.start { [limits] request in
      let listener = WebSocketSession.Listener(
        opened: { _ in },
        message: { session, message in
          received.withLock { $0.append(message.bytes.count) }
          received.notify()
          session.handled(message.bytes.count)
        }, ended: { _, _ in })
      _ = request.acceptWebSocket(WebSocketSession(isServer: true, limits, listener), subprotocol: nil)
    }
    defer { server.stop() }
    func waits(_ condition: ([Int]) -> Bool) -> Bool {
      received.wait(until: monotonicNow() + 60_000_000_000) { condition($0) ? true : nil } ?? false
    }
    let clients = try (0..<20).map { _ in
      let client = try RawWebSocket(port)
      #expect(client.head.contains("101"))
      client.send(2, [UInt8](repeating: 7, count: 60_000), isFinal: false)
      client.send(9, [1])
      return client
    }
    var open: [RawWebSocket] = []
    for client in clients {
      var answers: [UInt8] = []
      while let frame = client.frame() {
        answers.append(frame.opcode)
        if frame.opcode == 8 { #expect(Array(frame.payload.prefix(2)) == [UInt8(1013 >> 8), UInt8(1013 & 0xFF)]) }
        if frame.opcode == 8 || frame.opcode == 10 { break }
      }
      #expect(!answers.isEmpty)
    }
    // A client that was answered earlier may have been disconnected since.
    for client in clients {
      client.send(9, [2])
      var isOpen = false
      while let frame = client.frame() {
        if frame.opcode == 8 { break }
        if frame.opcode == 10, frame.payload == [2] {
          isOpen = true
          break
        }
      }
      if isOpen { open.append(client) }
    }
    #expect((1...4).contains(open.count), "\(open.count)")
    #expect(server.bufferedBytes <= 256 << 10)
    // Complete messages pass meanwhile, and those that have room are finished.
    let other = try RawWebSocket(port)
    #expect(other.head.contains("101"))
    other.send("hello")
    #expect(waits { $0 == [5] })
    for client in open { client.send(0, [1, 2, 3]) }
    #expect(waits { $0.count == 1 + open.count && $0.dropFirst().allSatisfy { $0 == 60_003 } })
    for client in clients + [other] { client.connection.reset() }
    #expect(server.state.wait(until: monotonicNow() + 60_000_000_000) { $0.connections.isEmpty ? true : nil } == true)
    #expect(server.bufferedBytes == 0)
  }

  @Test func messagesOfStreamsShareABudget() throws {
    var options = StreamReceiver.Options()
    options.maxMessage = 100 << 10
    options.maxUnfinished = 256 << 10
    let folder = ScratchDirectory()
    let receiver = try StreamReceiver(.unix(path: folder("s"), isDatagram: false), options)
    let seen = Guarded((rows: 0, refused: [String](), lost: 0))
    try receiver.start { notice in
      if case .lost = notice { seen.withLock { $0.lost += 1 } }
      seen.notify()
    } deliver: { pieces in
      seen.withLock {
        for piece in pieces {
          $0.rows += piece.rows?.bytes ?? 0
          $0.refused += piece.refused.map(\.reason)
        }
      }
      seen.notify()
      return true
    }
    defer { receiver.cancel() }
    let clients = try (0..<12).map { _ in
      let client = try #require(SocketClient(path: folder("s")))
      client.send([UInt8](repeating: 0x61, count: 60_000))
      return client
    }
    // Four fit.
    #expect(
      seen.wait(until: monotonicNow() + 60_000_000_000) { $0.lost == 8 && $0.refused.count == 8 ? true : nil } == true,
      "\(seen.withLock { $0 })")
    #expect(seen.withLock { $0.refused.allSatisfy { $0.contains("is the largest of unfinished messages") } })
    for client in clients { client.send("\n") }
    #expect(seen.wait(until: monotonicNow() + 60_000_000_000) { $0.rows == 4 * 60_001 ? true : nil } == true)
    withExtendedLifetime(clients) {}
  }
}
