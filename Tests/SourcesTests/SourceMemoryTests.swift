import Foundation
import PipelineHost
import Synchronization
import Testing
import Transport

@testable import PipelineCore
@testable import Sources_

/// Every source takes part in `--queue-memory`: what it has read and no turn has taken counts, and is bounded however much comes.
@Suite(.serialized) struct SourceMemoryTests {
  private static let limit = 1 << 20
  private static let line = String(repeating: "x", count: 999) + "\n"
  /// What comes at once: much more than any source may hold.
  private static let flood = String(repeating: line, count: 8000)

  /// How much of a source comes at once, and how.
  private struct Way {
    /// The source, in YAML.
    var text: String
    /// Sends the flood, before the start or while the input is paused. Threads end with the source.
    var feed: (RealPipeline) throws -> Void = { _ in }
    /// It asks for its input itself, which it does not while the input is paused: its memory shows between the turns of one answer.
    var asks = false
    /// The most that may count.
    var most = SourceMemoryTests.limit / 4
    /// Kept until the end.
    var keeps: [AnyObject] = []
  }

  /// Sources that keep nothing that comes from outside: they make their events in the turn, one by one or the values of this moment.
  private static let making: Set<String> = ["empty", "error", "host", "interval", "never", "values"]
  /// The same reader as that of `exec` with `streaming`, on a descriptor of the tests.
  private static let streams: Set<String> = ["stdin"]
  /// Its entries are names that the file system has, looked at one directory at a time; a queue has few of them.
  private static let small: Set<String> = ["directory"]

  private let scratch = Scratch()

  /// How each source is fed. A new source needs a line.
  private func ways(_ name: String) throws -> [Way] {
    switch name {
    case "file":
      return ["", ", follow: true"].map { more in
        scratch.append(Self.flood, to: "in.log")
        return Way(text: "file: { path: '\(scratch("in.log"))'\(more) }")
      }
    case "exec":
      scratch.append(Self.flood, to: "in.log")
      let command = "command: [cat, '\(scratch("in.log"))']"
      return [
        Way(text: "exec: { \(command), streaming: true }"),
        Way(text: "exec: { \(command), decode: lines }", asks: true, most: Self.flood.utf8.count + Self.limit / 4),
      ]
    case "tcp":
      // Whole lines, and many that have begun.
      return [
        listening("tcp: { address: '127.0.0.1:0', decode: text }", Self.flood),
        listening(
          "tcp: { address: '127.0.0.1:0', decode: text, maxMessage: 64KiB }", String(repeating: "y", count: 60_000),
          clients: 60,
          most: Self.limit + Self.limit / 4),
        listening(
          "tcp: { address: '127.0.0.1:0', decode: text, framing: nul }", String(repeating: "y\0", count: 100_000)),
      ]
    case "syslog": return [listening("syslog: { address: '127.0.0.1:0', transport: tcp }", Self.flood)]
    case "unix":
      let path = scratch("unix")
      return [
        Way(text: "unix: { path: '\(path)', decode: text }") { pipeline in
          pipeline.run(within: .seconds(60)) { pipeline.log.contains { $0.contains("listening") } }
          nonisolated(unsafe) let client = try #require(SocketClient(path: path))
          try Self.thread { client.send(Self.flood) }
        }
      ]
    case "udp":
      return [datagrams("udp: { address: '127.0.0.1:0', decode: text }", String(repeating: "x", count: 50_000))]
    case "statsd":
      return [datagrams("statsd: '127.0.0.1:0'", String(repeating: "a.metric.of.statsd:1|c\n", count: 2000))]
    case "httpServer":
      return [
        Way(
          text: "httpServer: { address: '127.0.0.1:0', decode: text, queueTimeout: 1h }",
          feed: { pipeline in
            let port = try #require(pipeline.port())
            let body = String(repeating: Self.line, count: 20)
            for _ in 0..<8 {
              try Self.thread {
                while let client = try? Connection(port: port) {
                  for _ in 0..<40 {
                    guard
                      client.send(
                        "POST / HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
                      ),
                      let answer = client.message(), answer.head.contains(" 200 ") || answer.head.contains(" 503 ")
                    else { return }
                  }
                }
              }
            }
          }, most: Self.limit + Self.limit / 4)
      ]
    case "http":
      let server = try ScriptedServer { connection in
        guard connection.message(hasBody: false) != nil else { return }
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: \(Self.flood.utf8.count)\r\n\r\n\(Self.flood)")
      }
      return [
        Way(
          text: "http: { url: '\(server.url)/', decode: lines }", asks: true,
          most: Self.flood.utf8.count + Self.limit / 4, keeps: [server])
      ]
    case "sse":
      let server = try ScriptedServer { connection in
        guard connection.message(hasBody: false) != nil else { return }
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for _ in 0..<8000 where !connection.send("data: \(Self.line)\n") { return }
      }
      return [Way(text: "sse: { url: '\(server.url)/', decode: text }", keeps: [server])]
    case "docker":
      let path = scratch("docker")
      let event =
        #"{"Type":"image","Action":"pull","Actor":{"ID":"\#(Self.line.dropLast())"},"time":1,"timeNano":1}"# + "\n"
      let server = try ScriptedServer(path: path) { connection in
        guard connection.message(hasBody: false) != nil else { return }
        connection.send("HTTP/1.1 200 OK\r\n\r\n")
        for _ in 0..<8000 where !connection.send(event) { return }
      }
      return [Way(text: "docker: { socket: '\(path)', emit: events }", keeps: [server])]
    case "webSocket":
      let serving = Way(text: "webSocket: { listen: '127.0.0.1:0', path: /in, decode: text }") { pipeline in
        let port = try #require(pipeline.port())
        try Self.thread {
          guard let client = try? RawWebSocket(port), client.head.contains("101") else { return }
          for _ in 0..<200 { client.send(Self.line + Self.line) }
          for _ in 0..<2000 where !client.connection.send([0x82, 0x80, 1, 2, 3, 4]) { return }
        }
      }
      var options = HTTPServer.Options()
      options.host = "127.0.0.1"
      let server = HTTPServer(options: options)
      let port = try server.start { request in
        let listener = WebSocketSession.Listener(
          opened: { session in while session.send(isText: true, Self.line.utf8) {} },
          message: { session, message in session.handled(message.bytes.count) }, ended: { _, _ in })
        _ = request.acceptWebSocket(WebSocketSession(isServer: true, WebSocketSession.Options(), listener))
      }
      return [serving, Way(text: "webSocket: { url: 'ws://127.0.0.1:\(port)/', decode: text }", keeps: [server])]
    case "journald":
      guard JournalFiles.canBeMade else { return [] }
      let files = JournalFiles()
      try files.write(messages: (0..<3000).map { "\($0) \(Self.line.dropLast())" })
      return [Way(text: "journald: { directory: '\(files.path)' }", keeps: [files])]
    case "sqlite":
      guard SQLiteShell.isInstalled else { return [] }
      let path = scratch("in.db")
      try SQLiteShell(path).run(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000) INSERT INTO t SELECT i, hex(zeroblob(1000)) FROM n;"
      )
      return [Way(text: "sqlite: { path: '\(path)', query: 'SELECT * FROM t', key: id, maxRows: 4000 }", asks: true)]
    default: return []
    }
  }

  private func listening(
    _ text: String, _ bytes: String, clients: Int = 1, most: Int = SourceMemoryTests.limit / 4
  ) -> Way {
    let feed: (RealPipeline) throws -> Void = { pipeline in
      let port = try #require(pipeline.port())
      for _ in 0..<clients {
        nonisolated(unsafe) let client = try #require(SocketClient(port: port))
        try Self.thread {
          client.send(bytes)
          // Open until the source ends it.
          _ = client.receiveAll(within: 120_000)
        }
      }
    }
    return Way(text: text, feed: feed, most: most)
  }

  private func datagrams(_ text: String, _ datagram: String) -> Way {
    Way(text: text) { pipeline in
      let port = try #require(pipeline.port())
      let client = try #require(SocketClient(port: port, isDatagram: true))
      for _ in 0..<300 { client.send(datagram) }
    }
  }

  private static func thread(_ body: @escaping @Sendable () -> Void) throws { _ = try OwnThread("test feed", body) }

  @Test(arguments: Catalogue.sources.components.map(\.name).filter { !making.union(streams).union(small).contains($0) })
  func everySourceCounts(_ name: String) throws {
    let ways = try ways(name)
    if ways.isEmpty, ["journald", "sqlite"].contains(name) { return }
    #expect(!ways.isEmpty, "say how '\(name)' is fed")
    for way in ways {
      let memory = MemoryBudget(Self.limit)
      let pipeline = try RealPipeline(
        "name: t\nsources: { in: { \(way.text) } }\nsinks: { out: { from: in, discard: {} } }",
        http: CurlClient(memory: memory), memory: memory
      ) { execution in
        let executor = execution.executor
        if !way.asks { executor.post { executor.pauseInput(.queue) } }
      }
      if way.asks {
        var most = 0
        pipeline.run(within: .seconds(60)) {
          most = max(most, memory.held)
          return pipeline.outcome != nil
        }
        #expect(most > 16 << 10 && most <= way.most, "\(way.text): \(most), \(pipeline.log)")
      } else {
        try way.feed(pipeline)
        #expect(
          pipeline.run(within: .seconds(60)) { memory.held >= 4096 }, "\(way.text): \(memory.held) \(pipeline.log)")
        // Nothing more comes in.
        var (most, looks) = (0, 0)
        #expect(
          pipeline.run(within: .seconds(60)) {
            looks = memory.held > most ? 0 : looks + 1
            most = max(most, memory.held)
            return looks > 20
          })
        #expect(most <= way.most, "\(way.text): \(most), \(pipeline.log)")
        // Whatever waits is taken then.
        pipeline.inTurn { $0.executor.resumeInput(.queue) }
        #expect(pipeline.run(within: .seconds(60)) { pipeline.counters.received > 0 || pipeline.counters.rejected > 0 })
      }
      pipeline.inTurn { $0.execution.cancel() }
      pipeline.run(within: .seconds(60)) { memory.held == 0 && pipeline.execution.hasClosed }
      #expect(memory.held == 0, "\(way.text)")
      withExtendedLifetime(way) {}
    }
  }
}
