import PipelineHost
import PipelineTestSupport
import Testing
import Transport

@testable import PipelineCore

/// Sources and sinks of one process that serve HTTP at one address: valid combinations, and those that the check
/// refuses.
@Suite struct SharedAddressTests {
  private func ask(_ port: Int, _ what: String, _ body: String = "") throws -> Connection {
    let connection = try Connection(port: port)
    connection.send(
      "\(what) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
    return connection
  }

  /// A source, an answering source, a feed and metrics of one pipeline, and a source of another.
  @Test func onePortServesAll() throws {
    let port = try FreePort().number
    let address = "127.0.0.1:\(port)"
    let one = try RealPipeline(
      """
      sources:
        orders: { httpServer: { address: '\(address)', path: /orders, methods: [POST], decode: text } }
        asked: { httpServer: { address: '\(address)', path: /asked } }
      signals: { answers: { from: asked, chain: [ { map: event.method } ] } }
      sinks:
        out: { from: orders, probe: {} }
        reply: { from: answers, reply: { encode: text } }
        feed: { from: orders, sse: { address: '\(address)', path: /feed } }
        metrics: { from: orders, chain: [ { map: "{'name': 'orders', 'type': 'counter', 'value': 1}" } ], prometheusExporter: { listen: '\(address)' } }
      """)
    let other = try RealPipeline(
      """
      sources: { in: { httpServer: { address: '\(address)', path: /other, decode: text } } }
      sinks: { out: { from: in, probe: {} } }
      """)
    one.run { one.log.count { $0.contains("listening on") } == 4 }
    other.run { other.log.count { $0.contains("listening on") } == 1 }
    let feed = try Connection(port: port)
    feed.send("GET /feed HTTP/1.1\r\nHost: localhost\r\n\r\n")
    one.run { feed.waits(milliseconds: 0) }
    let order = try ask(port, "POST /orders", "book")
    one.run { order.waits(milliseconds: 0) }
    #expect(order.readAll().hasPrefix("HTTP/1.1 200") && one.events == [#""book""#])
    let asked = try ask(port, "PUT /asked")
    one.run { asked.waits(milliseconds: 0) }
    #expect(asked.readAll().hasSuffix("PUT"))
    #expect(try ask(port, "GET /metrics").readAll().contains("orders"))
    let foreign = try ask(port, "POST /other", "x")
    other.run { foreign.waits(milliseconds: 0) }
    #expect(foreign.readAll().hasPrefix("HTTP/1.1 200") && other.events == [#""x""#])
    let wrong = try ask(port, "GET /orders").readAll()
    #expect(wrong.hasPrefix("HTTP/1.1 405") && wrong.contains("Allow: POST\r\n"))
    #expect(try ask(port, "GET /none").readAll().hasPrefix("HTTP/1.1 404"))
    // The end of one pipeline does not affect the other.
    one.inTurn { $0.execution.drain() }
    #expect(one.runToEnd() == .completed)
    #expect(try ask(port, "POST /orders").readAll().hasPrefix("HTTP/1.1 503"))
    let again = try ask(port, "POST /other", "y")
    other.run { again.waits(milliseconds: 0) }
    #expect(again.readAll().hasPrefix("HTTP/1.1 200"))
    other.inTurn { $0.execution.drain() }
    #expect(other.runToEnd() == .completed)
    #expect(throws: PosixError.self) { _ = try Connection(port: port) }
  }

  static let pairs: [(String, String, String?)] = [
    ("httpServer: { address: 80, path: /a }", "sse: { address: 80, path: /b }", nil),
    ("httpServer: { address: 80, path: /a }", "prometheusExporter: 80", nil),
    ("httpServer: { address: 80, path: /a }", "webSocket: { listen: 80, path: /b }", nil),
    ("httpServer: { address: 80 }", "sse: { address: 80 }", nil),
    ("httpServer: { address: 80, path: /events, methods: [POST] }", "sse: { address: 80 }", nil),
    ("httpServer: { address: 80, path: /events }", "sse: { address: 80 }", "can serve GET /events on 127.0.0.1:80"),
    (
      "httpServer: { address: 80, path: /metrics, methods: [HEAD, PUT] }", "prometheusExporter: 80",
      "can serve HEAD /metrics"
    ),
    (
      "httpServer: { address: 80, path: /a }", "sse: { address: 'localhost:80', path: /b }",
      "can listen on localhost:80"
    ),
    ("httpServer: { address: 80, path: /a, tls: x.pem }", "sse: { address: 80, path: /b }", "this 'tls' differs"),
    ("httpServer: { address: 80, path: /a, tls: x.pem }", "sse: { address: 80, path: /b, tls: x.pem }", nil),
    ("tcp: 80", "sse: { address: 80, path: /b }", "can listen on 127.0.0.1:80"),
  ]

  @Test(arguments: pairs) func theCheckNamesConflicts(_ source: String, _ sink: String, _ message: String?) {
    let found = PipelineText.complaints(
      """
      sources: { a: { \(source) } }
      sinks: { out: { from: a, chain: [ { map: 1 } ], \(sink) } }
      """
    ).filter { !$0.contains("answers these requests") && !$0.contains("x.pem") }
    if let message {
      #expect(found.count == 1 && found[0].contains(message), "\(found)")
    } else {
      #expect(found.isEmpty, "\(found)")
    }
  }

  /// Two pipelines with the same path: the later one is refused, and both locations are named.
  @Test func twoPipelinesAreCheckedTogether() {
    func compile(_ name: String, _ path: String) -> FrontEnd.Result {
      FrontEnd(PipelineText.catalogue).compile(
        "name: \(name)\nsources: { a: { httpServer: { address: 80, path: \(path), decode: text } } }\nsinks: { out: { from: a, discard: {} } }\n"
      )
    }
    var results = [compile("one", "/a"), compile("two", "/b"), compile("three", "/a")]
    FrontEnd.checkTogether(&results)
    #expect(results.map { $0.plan != nil } == [true, true, false])
    let found = results[2].diagnostics.first { $0.code.name == "RX326" }
    #expect(found?.message == "only one source or sink of a process can serve /a on 127.0.0.1:80")
    #expect(found?.location != nil && found?.notes.first?.location != nil)
  }
}
