import Foundation
import PipelineHost
import Synchronization
import Testing

@testable import Transport

/// Streamed answers: bounded, and never waited for.
@Suite struct ResponseStreamTests {
  private final class Streams: Sendable {
    let server: HTTPServer
    let port: Int
    let streams = Guarded<[ResponseStream]>([])
    let closed = Guarded(0)

    init() throws {
      server = HTTPServer()
      let (streams, closed) = (streams, closed)
      port = try server.start { request in
        let stream = request.stream(status: 200, headers: [("X-A", "b")]) {
          closed.withLock { $0 += 1 }
          closed.notify()
        }
        // Only the first answer counts.
        #expect(request.stream(status: 200) == nil)
        #expect(!request.reply.reply(status: 500, headers: [], body: []))
        guard let stream else { return }
        streams.withLock { $0.append(stream) }
        streams.notify()
      }
    }

    deinit { server.stop(within: .zero) }

    /// The stream of the first request.
    func first() throws -> ResponseStream {
      try #require(streams.wait(until: monotonicNow() + 60_000_000_000) { $0.first })
    }

    func waitsForClosing() -> Bool {
      closed.wait(until: monotonicNow() + 60_000_000_000) { $0 == 1 ? true : nil } == true
    }
  }

  @Test func sendsChunksUntilTheEnd() throws {
    let streams = try Streams()
    let connection = try Connection(port: streams.port)
    connection.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    let head = try #require(connection.message(hasBody: false)).head
    #expect(head.hasPrefix("HTTP/1.1 200 OK\r\n") && head.contains("X-A: b\r\n"))
    #expect(head.contains("Transfer-Encoding: chunked\r\n") && !head.contains("Content-Length"))
    let stream = try streams.first()
    #expect(stream.send(Array("hello".utf8)))
    for expected in "5\r\nhello\r\n".utf8 { #expect(connection.byte() == expected) }
    #expect(stream.isOpen && stream.send(Array(repeating: 0x61, count: 17)))
    stream.end()
    #expect(!stream.isOpen && !stream.send([0x62]))
    #expect(connection.readAll() == "11\r\n\(String(repeating: "a", count: 17))\r\n0\r\n\r\n")
    #expect(streams.waitsForClosing())
  }

  @Test func oldClientsGetThePlainBody() throws {
    let streams = try Streams()
    let connection = try Connection(port: streams.port)
    connection.send("GET / HTTP/1.0\r\n\r\n")
    let stream = try streams.first()
    stream.send(Array("hello".utf8))
    stream.end()
    let answer = connection.readAll()
    #expect(!answer.contains("chunked") && answer.hasSuffix("\r\n\r\nhello"))
  }

  /// The memory for a client that does not read is bounded, and the client receives the accepted data when it reads
  /// again.
  @Test func whatASlowClientLeavesIsBounded() throws {
    let streams = try Streams()
    let connection = try Connection(port: streams.port)
    connection.send("GET / HTTP/1.0\r\n\r\n")
    let stream = try streams.first()
    let part = Array(repeating: UInt8(ascii: "x"), count: 10_000)
    var taken = 0
    var refused = 0
    // The client does not read: the system accepts some data, the stream fills its buffer, and then nothing is
    // accepted.
    while refused < 1000, taken < 100_000 { if stream.send(part) { taken += 1 } else { refused += 1 } }
    #expect(refused == 1000 && taken * part.count >= ResponseStream.room - part.count)
    stream.end()
    let answer = connection.readAll()
    #expect(answer.utf8.count { $0 == UInt8(ascii: "x") } == taken * part.count)
    #expect(streams.waitsForClosing())
  }

  @Test(arguments: [true, false]) func aClientThatLeavesIsNoticed(_ resets: Bool) throws {
    let streams = try Streams()
    let connection = try Connection(port: streams.port)
    connection.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    _ = connection.message(hasBody: false)
    let stream = try streams.first()
    if resets { connection.reset() } else { connection.close() }
    #expect(streams.waitsForClosing())
    #expect(!stream.isOpen && !stream.send([0x61]))
  }
}
