import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing

@testable import Transport

/// The memory of requests that are not taken is bounded, and is released when they are answered or abandoned.
@Suite struct ServerBoundsTests {
  /// A server whose requests wait for the test.
  private final class Waiting: Sendable {
    let server: HTTPServer
    let port: Int
    private let arrivals = Guarded(0)

    init(_ change: (inout HTTPServer.Options) -> Void) throws {
      var options = HTTPServer.Options()
      options.rules.queueTimeout = .seconds(3600)
      options.rules.replyTimeout = .seconds(3600)
      change(&options)
      server = HTTPServer(options: options)
      let (queue, arrivals) = (server.queue, arrivals)
      port = try server.start { request in
        queue.add(request)
        arrivals.withLock { $0 += 1 }
        arrivals.notify()
      }
    }

    deinit { server.stop(within: .zero) }

    /// Waits until a total of so many requests has arrived.
    func hasArrived(_ count: Int) -> Bool {
      arrivals.wait(until: monotonicNow() + 60_000_000_000) { $0 >= count ? true : nil } ?? false
    }

    /// Waits until no client is connected.
    func isAlone() -> Bool {
      server.state.wait(until: monotonicNow() + 60_000_000_000) { $0.connections.isEmpty ? true : nil } ?? false
    }

    func connect() throws -> Connection { try Connection(port: port) }

    static func post(_ count: Int) -> String {
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(count)\r\n\r\n" + String(repeating: "x", count: count)
    }
  }

  private static let refusal = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1"

  @Test func bodiesShareOneBudget() throws {
    let waiting = try Waiting { $0.rules.maxBufferedBytes = 256 << 10 }
    // Three fit with their heads; the fourth would exceed the budget.
    let connections = try (0..<20).map { _ in try waiting.connect() }
    for (number, connection) in connections.enumerated() {
      connection.send(Waiting.post(64 << 10))
      if number < 3 {
        #expect(waiting.hasArrived(number + 1))
      } else {
        #expect(connection.message()?.head.hasPrefix(Self.refusal) == true, "\(number)")
      }
      #expect(waiting.server.bufferedBytes <= 256 << 10)
    }
    #expect(waiting.server.queue.count == 3)
    while let request = waiting.server.queue.take().request {
      #expect(request.body.count == 64 << 10)
      request.reply.reply(status: 200, headers: [], body: [])
    }
    for connection in connections.prefix(3) { #expect(connection.message()?.head.hasPrefix("HTTP/1.1 200") == true) }
    #expect(waiting.server.bufferedBytes == 0)
    // Refused connections stay open, and there is room again.
    connections[19].send(Waiting.post(64 << 10))
    #expect(waiting.hasArrived(4))
  }

  @Test func chunksOfUnknownLengthAreCounted() throws {
    let waiting = try Waiting { $0.rules.maxBufferedBytes = 100 << 10 }
    let connection = try waiting.connect()
    connection.send("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in 0..<8 { connection.send("8000\r\n\(String(repeating: "x", count: 0x8000))\r\n") }
    connection.send("0\r\n\r\n")
    #expect(connection.message()?.head.hasPrefix(Self.refusal) == true)
    #expect(waiting.server.bufferedBytes == 0)
  }

  /// Bytes after a waiting request do not belong to a request yet, but they are counted.
  @Test func requestsBehindAnotherAreCounted() throws {
    let waiting = try Waiting { $0.rules.maxBufferedBytes = 4 << 10 }
    let connection = try waiting.connect()
    connection.send(Waiting.post(1))
    #expect(waiting.hasArrived(1))
    let before = waiting.server.bufferedBytes
    connection.send("GET /\(String(repeating: "a", count: 1000)) HTTP/1.1\r\n")
    let probe = try waiting.connect()
    // Everything that the first client sent has been read when a later connection is served.
    probe.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    #expect(waiting.hasArrived(2))
    #expect(waiting.server.bufferedBytes > before)
    connection.reset()
    probe.reset()
    #expect(waiting.isAlone())
    #expect(waiting.server.bufferedBytes == 0)
  }

  @Test(arguments: [true, false]) func leftoversAreReleased(_ resets: Bool) throws {
    let waiting = try Waiting { $0.limits.halfClosed = .milliseconds(20) }
    for number in 1...100 {
      let connection = try waiting.connect()
      connection.send(Waiting.post(10_000))
      #expect(waiting.hasArrived(number))
      if resets { connection.reset() } else { connection.close() }
    }
    #expect(waiting.isAlone())
    #expect(waiting.server.queue.count == 0)
    #expect(waiting.server.bufferedBytes == 0)
  }

  /// A client that stalls in the middle of a body does not delay a stop, however long bodies and the stop may take.
  @Test func aStalledBodyDoesNotHoldUpAStop() throws {
    let waiting = try Waiting {
      $0.limits.body = .seconds(3600)
      $0.limits.header = .seconds(3600)
    }
    let stalled = try waiting.connect()
    stalled.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
    // The server waits for the body.
    #expect(stalled.line()?.hasPrefix("HTTP/1.1 100") == true)
    #expect(stalled.line() == "")
    stalled.send("half")
    waiting.server.stop(within: .seconds(3600))
    #expect(stalled.readAll().hasPrefix("HTTP/1.1 408"))
    #expect(waiting.server.bufferedBytes == 0)
  }

  @Test func aClientThatOnlyReadsIsAnswered() throws {
    let server = HTTPServer()
    let port = try server.start { $0.reply.reply(status: 200, headers: [], body: Array("yes".utf8)) }
    defer { server.stop(within: .zero) }
    let connection = try Connection(port: port)
    connection.send(Waiting.post(3))
    connection.finishSending()
    #expect(connection.readAll().hasSuffix("yes"))
  }

  @Test func requestsAnsweredForThePipelineAreReleased() throws {
    let waiting = try Waiting { $0.rules.replyTimeout = .milliseconds(20) }
    let connection = try waiting.connect()
    connection.send(Waiting.post(10_000))
    #expect(connection.message()?.head.hasPrefix("HTTP/1.1 504") == true)
    #expect(waiting.server.queue.count == 0)
    #expect(waiting.server.bufferedBytes == 0)
  }

  @Test func refusesAtOnceWhileThePipelineTakesNothing() throws {
    let waiting = try Waiting { $0.rules.queueTimeout = .milliseconds(20) }
    let connection = try waiting.connect()
    connection.send(Waiting.post(10_000))
    #expect(connection.message()?.head.hasPrefix(Self.refusal) == true)
    #expect(waiting.server.bufferedBytes == 0)
    // Now clients are not asked to send a body.
    let asking = try waiting.connect()
    asking.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    #expect(asking.message()?.head.hasPrefix(Self.refusal) == true)
    connection.send(Waiting.post(10_000))
    #expect(connection.message()?.head.hasPrefix(Self.refusal) == true)
    #expect(waiting.hasArrived(1))
    // The pipeline resumes.
    #expect(waiting.server.queue.take().request == nil)
    connection.send(Waiting.post(10))
    #expect(waiting.hasArrived(2))
    let taken = waiting.server.queue.take()
    #expect(taken.request?.body.count == 10)
    #expect(!taken.isMoreToCome)
    taken.request?.reply.reply(status: 200, headers: [], body: [])
    #expect(connection.message()?.head.hasPrefix("HTTP/1.1 200") == true)
  }

  @Test func requestsAreTakenInTheirOrder() throws {
    let waiting = try Waiting { _ in }
    let connections = try (0..<5).map { _ in try waiting.connect() }
    for (number, connection) in connections.enumerated() {
      connection.send("GET /\(number) HTTP/1.1\r\nHost: localhost\r\n\r\n")
      #expect(waiting.hasArrived(number + 1))
    }
    connections[0].reset()
    connections[2].reset()
    let isLet = waiting.server.state.wait(until: monotonicNow() + 60_000_000_000) {
      $0.connections.count == 3 ? true : nil
    }
    #expect(isLet == true)
    var paths: [String] = []
    while let request = waiting.server.queue.take().request { paths.append(request.path) }
    #expect(paths == ["/1", "/3", "/4"])
  }

  /// Requests that have left the queue take no room, even after a request that stays.
  @Test func placesOfWhatIsWithdrawnAreUsedAgain() throws {
    let waiting = try Waiting { _ in }
    let patient = try waiting.connect()
    patient.send(Waiting.post(1))
    #expect(waiting.hasArrived(1))
    for number in 2...400 {
      let connection = try waiting.connect()
      connection.send(Waiting.post(1))
      #expect(waiting.hasArrived(number))
      connection.reset()
    }
    let isLet = waiting.server.state.wait(until: monotonicNow() + 60_000_000_000) {
      $0.connections.count == 1 ? true : nil
    }
    #expect(isLet == true)
    #expect(waiting.server.queue.count == 1)
    #expect(waiting.server.queue.entryCount < 100)
    let taken = waiting.server.queue.take()
    #expect(taken.request != nil)
    #expect(!taken.isMoreToCome)
    taken.request?.reply.reply(status: 200, headers: [], body: [])
    #expect(patient.message()?.head.hasPrefix("HTTP/1.1 200") == true)
  }

  @Test func aQueueThatIsClosedTakesNothing() throws {
    let waiting = try Waiting { _ in }
    let connection = try waiting.connect()
    connection.send(Waiting.post(1))
    #expect(waiting.hasArrived(1))
    for request in waiting.server.queue.close() { request.reply.reply(.stopped) }
    #expect(connection.message()?.head.hasPrefix(Self.refusal) == true)
    connection.send(Waiting.post(1))
    #expect(connection.message()?.head.hasPrefix(Self.refusal) == true)
    #expect(waiting.server.queue.count == 0)
  }
}

@Suite struct HTTPRequestReaderTests {
  /// A reader's result for bytes that arrive in these pieces.
  private func parts(_ pieces: [[UInt8]]) -> [String] {
    var reader = HTTPRequestReader(maxHeadBytes: 4096, maxLines: 20)
    var found: [String] = []
    var body: [UInt8] = []
    var pending: [UInt8] = []
    for piece in pieces {
      pending += piece
      var at = 0
      var needsMore = false
      while !needsMore {
        pending.withUnsafeBytes { bytes in
          let (used, part) = reader.next(UnsafeRawBufferPointer(rebasing: bytes[at...]))
          at += used
          switch part {
          case .more: needsMore = true
          case .head(let head):
            let fields = head.fields.map { "\(head.text($0.name))=\(head.text($0.value))" }.joined(separator: "|")
            found.append("\(head.text(head.method)) \(head.text(head.path)) \(head.text(head.target)) \(fields)")
          case .body(let bytes): body += bytes
          case .end:
            found.append(String(decoding: body, as: UTF8.self))
            body = []
          case .refused(let status):
            found.append("\(status)")
            needsMore = true
          }
        }
      }
      pending.removeFirst(at)
    }
    return found
  }

  private static let stream =
    "\r\nPOST /a?b=c HTTP/1.1\r\nHost:  h \t\r\nX-Empty:\r\nContent-Length: 5\r\n\r\n12345"
    + "POST /chunks HTTP/1.1\r\nhost: h\r\nTRANSFER-encoding: Chunked\r\n\r\n"
    + "3\r\nabc\r\n0A ;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n"
    + "GET * HTTP/1.0\r\n\r\n"
  private static let made = [
    "POST /a /a?b=c Host=h|X-Empty=|Content-Length=5", "12345",
    "POST /chunks /chunks host=h|TRANSFER-encoding=Chunked", "abc0123456789", "GET * * ", "",
  ]

  /// The cuts between the bytes make no difference.
  @Test func readsWhateverThePieces() {
    let bytes = Array(Self.stream.utf8)
    #expect(parts([bytes]) == Self.made)
    #expect(parts(bytes.map { [$0] }) == Self.made)
    for cut in bytes.indices { #expect(parts([Array(bytes[..<cut]), Array(bytes[cut...])]) == Self.made, "\(cut)") }
  }

  @Test(arguments: [
    "GET / HTTP/1.1\nHost: h\n\n", "GET / HTTP/1.1\r\nHost: h\n\r\n", "GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET / HTTP/1.1 \r\nHost: localhost\r\n\r\n", "GET /\r\nHost: localhost\r\n\r\n",
    " GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET / HTTP/1.1\r\nHost : h\r\n\r\n", "GET / HTTP/1.1\r\n: h\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: localhost\r\nA: b\rc\r\n\r\n",
    "GET / HTTP/1.2\r\nHost: localhost\r\n\r\n", "GET / http/1.1\r\nHost: localhost\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3 x\r\nabc\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1000000000000000\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno field\r\n\r\n",
  ])
  func refusesOtherForms(_ text: String) {
    let bytes = Array(text.utf8)
    #expect(parts([bytes]).last == "400", "\(text.debugDescription)")
    #expect(parts(bytes.map { [$0] }).contains("400"), "\(text.debugDescription)")
  }

  @Test func endlessLinesAreRefused() {
    let chunked = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    let long = String(repeating: "x", count: 5000)
    #expect(parts([Array("GET /\(long)".utf8)]).last == "431")
    #expect(parts([Array((chunked + "1;\(long)").utf8)]).last == "400")
    #expect(parts([Array((chunked + "0\r\nA: \(long)").utf8)]).last == "400")
    let trailers = String(repeating: "A: b\r\n", count: 30)
    #expect(parts([Array((chunked + "0\r\n" + trailers).utf8)]).last == "400")
    let extensions = String(repeating: "1;\(long.prefix(1000))\r\nx\r\n", count: 10)
    #expect(parts([Array((chunked + extensions).utf8)]).last == "400")
  }
}
