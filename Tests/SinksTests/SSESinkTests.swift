import Glibc
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing
import Transport

@testable import PipelineCore
@testable import Sinks

/// A live feed of Server-Sent Events, read over real connections.
@Suite struct SSESinkTests {
  /// A pipeline whose events the test sends, as whole numbers.
  private final class Feed {
    let pipeline: RealPipeline
    let source: TrackedSource
    let port: Int
    private var sent = 0

    init(_ parameters: String = "", chain: String = "[]", environment: [String: String] = [:]) throws {
      let source = TrackedSource()
      self.source = source
      pipeline = try RealPipeline(
        """
        sources: { in: { never: {} } }
        sinks:
          out: { from: in, chain: \(chain), sse: { address: '127.0.0.1:0'\(parameters) } }
          bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }
        """, environment: environment
      ) { execution in
        execution.replacements.sources = { $0 == "in" ? source : nil }
      }
      port = try #require(pipeline.port())
    }

    func send(_ values: [Int64]) {
      sent += values.count
      source.feed.send(sent, values)
      let wanted = UInt64(sent)
      pipeline.run { pipeline.counters.received >= wanted }
    }

    func client(_ headers: String = "") throws -> Client {
      let client = try Client(port, headers, pipeline.ring)
      // The greeting comment: the client receives every later event.
      pipeline.run { client.lines.count > client.head.count + 1 || client.isOver }
      return client
    }
  }

  /// Reads a feed on its own thread.
  private final class Client: Sendable {
    private struct State {
      /// The lines of the head and of the feed, each without its line ending and truncated to 200 bytes.
      var lines: [String] = []
      var line: [UInt8] = []
      var isOver = false
    }
    private let state = Mutex(State())
    private let connection: Connection

    init(_ port: Int, _ headers: String, _ ring: @escaping @Sendable () -> Void) throws {
      connection = try Connection(port: port)
      // Without chunks.
      connection.send("GET /events HTTP/1.0\r\nHost: localhost\r\n\(headers)\r\n")
      _ = try OwnThread("test feed") { [self] in
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
          let count = recv(connection.descriptor, &buffer, buffer.count, 0)
          state.withLock { state in
            guard count > 0 else {
              state.isOver = true
              return
            }
            for byte in buffer[..<count] {
              if byte == 0x0A {
                state.lines.append(String(decoding: state.line.filter { $0 != 0x0D }, as: UTF8.self))
                state.line = []
              } else if state.line.count < 200 {
                state.line.append(byte)
              }
            }
          }
          ring()
          if count <= 0 { return }
        }
      }
    }

    var lines: [String] { state.withLock(\.lines) }
    var isOver: Bool { state.withLock(\.isOver) }
    var head: [String] { Array(lines.prefix { !$0.isEmpty }) }
    /// The messages of the feed, without comments.
    var messages: [String] {
      lines.drop { !$0.isEmpty }.split(separator: "").filter { $0 != [":"] }.map { $0.joined(separator: "\n") }
    }
    var ids: [String] { lines.filter { $0.hasPrefix("id: ") }.map { String($0.dropFirst(4)) } }
    func close() { connection.finishSending() }
  }

  @Test func clientsGetWhatComes() throws {
    let feed = try Feed(
      ", encode: text, id: 'n{{ event.n }}', event: '{{ event.kind }}', retry: 2s, allowOrigin: 'https://a.example'",
      chain: "[ { map: { n: event, kind: \"'odd'\" } } ]")
    feed.send([1])
    let client = try feed.client()
    feed.send([2, 3])
    feed.pipeline.run { client.messages.count >= 3 }
    #expect(client.head.first == "HTTP/1.1 200 OK")
    #expect(client.head.contains("Content-Type: text/event-stream"))
    #expect(client.head.contains("Access-Control-Allow-Origin: https://a.example"))
    #expect(try client.messages.item(0) == "retry: 2000")
    #expect(client.ids == ["n2", "n3"])
    #expect(try client.messages.item(1).hasPrefix("id: n2\nevent: odd\ndata: "), "\(client.messages)")
    feed.pipeline.inTurn { $0.execution.drain() }
    #expect(feed.pipeline.runToEnd(within: .seconds(30)) == .completed)
    feed.pipeline.run { client.isOver }
    #expect(feed.pipeline.counters.sent == 3)
  }

  @Test func aReturningClientMissesNothing() throws {
    for (last, expected) in [
      ("4", ["5"]), ("5", []), ("1", ["3", "4", "5"]), ("unknown", ["3", "4", "5"]), (nil, []),
    ] as [(String?, [String])] {
      let feed = try Feed(", id: '{{ event }}', replay: 3")
      feed.send([1, 2, 3, 4, 5])
      let client = try feed.client(last.map { "Last-Event-ID: \($0)\r\n" } ?? "")
      feed.send([9])
      feed.pipeline.run { client.ids.last == "9" }
      #expect(client.ids == expected + ["9"], "\(last ?? "new")")
    }
  }

  @Test func numbersAreNames() throws {
    let feed = try Feed()
    let client = try feed.client()
    feed.send([7, 8])
    feed.pipeline.run { client.messages.count >= 2 }
    let parts = client.ids.map { $0.split(separator: "-") }
    #expect(
      parts.count == 2 && parts[0][0] == parts[1][0] && parts.map { String($0[1]) } == ["1", "2"], "\(client.ids)")
    #expect(client.messages.map { String($0.suffix(8)) } == ["\ndata: 7", "\ndata: 8"], "\(client.messages)")
  }

  @Test func commentsKeepConnectionsOpen() throws {
    let feed = try Feed(", heartbeat: 5ms")
    let client = try feed.client()
    feed.pipeline.run { client.lines.count { $0 == ":" } > 4 }
    #expect(client.messages.isEmpty)
  }

  /// A client that does not read is disconnected, and the others receive everything without delay.
  @Test func slowClientsAreDropped() throws {
    let feed = try Feed(
      ", encode: text, heartbeat: 20ms", chain: "[ { map: 'string(event) + env.BIG' } ]",
      environment: ["BIG": String(repeating: "x", count: 60_000)])
    let slow = try Connection(port: feed.port)
    slow.send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    // The request is answered in a turn.
    feed.pipeline.run { slow.waits(milliseconds: 0) }
    let reader = try feed.client()
    var sent: Int64 = 0
    while !feed.pipeline.log.contains(where: { $0.contains("a client reads too slowly and was disconnected, 1 so far") }
    ), sent < 2000 {
      sent += 1
      feed.send([sent])
      let wanted = Int(sent)
      // The other client reads meanwhile.
      if sent % 2 == 0 { feed.pipeline.run { reader.ids.count >= wanted } }
    }
    #expect(sent < 2000)
    let wanted = Int(sent)
    feed.pipeline.run { reader.ids.count >= wanted }
    #expect(reader.ids.count == wanted)
    // Its connection is closed, not only its feed.
    #expect(!slow.readAll().hasSuffix("0\r\n\r\n"))
  }

  @Test func otherRequestsAreRefused() throws {
    let feed = try Feed(", auth: { bearer: t }")
    for (head, status) in [
      ("GET /events", "401"), ("GET /other", "404"), ("POST /events", "405"),
    ] {
      let connection = try Connection(port: feed.port)
      connection.send("\(head) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
      #expect(connection.readAll().hasPrefix("HTTP/1.1 \(status)"), "\(head)")
    }
    let client = try feed.client("Authorization: Bearer t\r\n")
    #expect(client.head.first == "HTTP/1.1 200 OK")
  }

  @Test func whatIsNoMessageIsRejected() throws {
    let feed = try Feed(
      ", id: '{{ event.id }}', event: '{{ event.kind }}'",
      chain: "[ { map: { id: \"event == 1 ? 'a\\\\nb' : 'c'\", kind: \"event == 2 ? 'd\\\\re' : 'f'\" } } ]")
    feed.send([1, 2, 3])
    #expect(
      feed.pipeline.probe("bad").events == [
        #""'id' cannot be used: it would contain a line break or NUL""#,
        #""'event' cannot be used: it would contain a line break or NUL""#,
      ])
    #expect(feed.pipeline.counters.sent == 1)
  }

  @Test(arguments: [
    ("a", "data: a\n\n"), ("", "data: \n\n"), ("a\nb", "data: a\ndata: b\n\n"),
    ("a\r\nb\rc\n", "data: a\ndata: b\ndata: c\ndata: \n\n"),
  ]) func linesOfDataStayTogether(_ text: String, _ bytes: String) {
    #expect(String(decoding: SSEMessage(id: "", type: "", data: Array(text.utf8)).bytes, as: UTF8.self) == bytes)
  }

  @Test(arguments: [
    ("address: '0.0.0.0:1'", "would serve every client"), ("address: 1, path: events", "no request has the path"),
    ("address: 1, allowOrigin: ''", "not an origin"), ("path: /x", "needs 'address'"),
    ("address: 1, heartbeat: 0s", "heartbeat"),
  ]) func mistakesAreFound(_ parameters: String, _ message: String) {
    let found = PipelineText.complaints(
      "sources: { in: { values: [1] } }\nsinks: { out: { from: in, sse: { \(parameters) } } }")
    #expect(found.contains { $0.contains(message) }, "\(found)")
  }

  @Test func twoCannotListenOnOnePort() {
    let found = PipelineText.complaints(
      """
      sources: { in: { httpServer: { address: 8099, path: /events, decode: text } } }
      sinks: { out: { from: in, sse: 8099 } }
      """)
    #expect(found.contains { $0.contains("can serve GET /events on 127.0.0.1:8099") }, "\(found)")
  }
}
