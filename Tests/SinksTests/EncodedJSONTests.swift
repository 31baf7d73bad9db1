import Foundation
import PipelineHost
import Synchronization
import Testing
import Transport

@testable import PipelineCore
@testable import Sinks

/// Unchecked JSON text leaves a sink only as its original line. Every sink that encodes is tested with every format that its spec allows.
@Suite struct EncodedJSONTests {
  private let scratch = Scratch()
  private static let malformed = #"{"b":,}"#

  /// A sink, and its output so far.
  private final class Way {
    let text: (String) -> String
    let sent: () -> [UInt8]
    /// Whether its output is a stream of lines, each checked separately, even if the format is `json`.
    let isLines: () -> Bool
    let stop: () -> Void
    init(
      isLines: @escaping @autoclosure () -> Bool = false, _ text: @escaping (String) -> String,
      sent: @escaping () -> [UInt8],
      stop: @escaping () -> Void = {}
    ) {
      (self.text, self.sent, self.isLines, self.stop) = (text, sent, isLines, stop)
    }
  }

  /// Sinks like `file` that write to the streams of the tests.
  private static let streams: Set<String> = ["stdout", "stderr"]
  private static let encoding = Catalogue.sinks.components.filter { sink in
    sink.parameters.contains { $0.name == "encode" } && !streams.contains(sink.name)
  }

  /// Each sink with a receiver. A new sink that encodes needs a line here.
  private func ways(_ name: String, _ http: ScriptedHTTP) throws -> [Way] {
    func lines(_ endpoint: SocketEndpoint, _ text: @escaping (String, String) -> String) throws -> Way {
      let received = Guarded<[UInt8]>([])
      let port: String
      let stop: () -> Void
      if endpoint.isDatagram {
        let receiver = try DatagramReceiver(endpoint, DatagramReceiver.Options())
        try receiver.start(
          notify: { _ in },
          deliver: { pieces in
            for piece in pieces { received.withLock { $0 += piece.rows.map { Array($0.text) } ?? [] } }
            return true
          })
        port = receiver.text
        stop = { receiver.cancel() }
      } else {
        var options = StreamReceiver.Options()
        options.decoding = DecoderOptions(.text)
        let receiver = try StreamReceiver(endpoint, options)
        try receiver.start(
          notify: { _ in },
          deliver: { pieces in
            for piece in pieces { received.withLock { $0 += piece.rows.map { Array($0.text) } ?? [] } }
            return true
          })
        port = receiver.text
        stop = { receiver.cancel() }
      }
      return Way(isLines: !endpoint.isDatagram, { text(port, $0) }, sent: { received.withLock { $0 } }, stop: stop)
    }
    switch name {
    case "file":
      let path = scratch("out-\(UInt32.random(in: 0 ... .max))")
      return [
        Way(
          isLines: true, { "file: { path: '\(path)', encode: \($0) }" },
          sent: { Array(FileManager.default.contents(atPath: path) ?? Data()) })
      ]
    case "exec":
      let path = scratch("exec-\(UInt32.random(in: 0 ... .max))")
      return [
        Way(
          isLines: true, { "exec: { shell: 'cat > \(path)', encode: \($0) }" },
          sent: { Array(FileManager.default.contents(atPath: path) ?? Data()) })
      ]
    case "tcp":
      return [
        try lines(.network(host: "127.0.0.1", port: 0, isDatagram: false)) {
          "tcp: { address: '\($0)', encode: \($1) }"
        }
      ]
    case "udp":
      return [
        try lines(.network(host: "127.0.0.1", port: 0, isDatagram: true)) { "udp: { address: '\($0)', encode: \($1) }" }
      ]
    case "unix":
      let path = scratch("s-\(UInt32.random(in: 0 ... .max))")
      return [try lines(.unix(path: path, isDatagram: false)) { "unix: { path: '\($0)', encode: \($1) }" }]
    case "http":
      return ["batch: 1", "batch: { count: 3, every: 1ms }"].map { batch in
        Way(
          // Lines if the content type says so.
          isLines: http.exchanges.allSatisfy { $0.header("content-type") == "application/x-ndjson" },
          { "http: { url: 'http://h.example/', \(batch), encode: \($0) }" }, sent: { Array(http.bodies.joined().utf8) })
      }
    default: return []
    }
  }

  /// Sinks that need a client.
  private static let served: Set<String> = ["sse", "webSocket", "reply"]

  @Test(arguments: encoding.map(\.name)) func nothingMalformedLeaves(_ name: String) throws {
    for format in EncoderFormat.allCases.map(\.rawValue) {
      if Self.served.contains(name) {
        try served(name, format)
        continue
      }
      for (step, isWhole) in [("map: event", true), ("map: \"{'x': event}\"", false), ("map: '[event]'", false)] {
        try sent(name, format, step, isWhole)
      }
    }
  }

  /// - Parameter isWhole: The step sends the event unchanged.
  private func sent(_ name: String, _ format: String, _ step: String, _ isWhole: Bool) throws {
    var number = 0
    while true {
      let http = ScriptedHTTP()
      http.script = { _, _ in ScriptedHTTP.status(200) }
      let ways = try ways(name, http)
      defer { for way in ways { way.stop() } }
      #expect(!ways.isEmpty, "say how '\(name)' sends what it has encoded")
      guard let way = ways.dropFirst(number).first else { return }
      number += 1
      scratch.append("{\"a\":1}\n\(Self.malformed)\n{\"a\":2}\n", to: "in")
      defer { unlink(scratch("in")) }
      let text = """
        sources: { in: { file: { path: '\(scratch("in"))', decode: ndjson } } }
        sinks:
          out: { from: in, chain: [ { \(step) } ], \(way.text(format)) }
          bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }
        """
      // A format that the sink does not support, or that needs further parameters.
      guard
        let pipeline = try? RealPipeline(
          text, http: http,
          before: { execution in
            let executor = execution.executor
            http.later = { work in executor.post(work) }
          })
      else { continue }
      pipeline.runToEnd(within: .seconds(60))
      Polling.until(within: 60) { pipeline.probe("bad").events.count >= 3 || !way.sent().isEmpty }
      let sent = String(decoding: way.sent(), as: UTF8.self)
      let passes = isWhole && (["ndjson", "text", "lines"].contains(format) || way.isLines() && format == "json")
      let leaves = sent.contains(#""b":,"#) || sent.contains(#"""b"":,"#) || sent.contains(#"\"b\":,"#)
      #expect(!leaves || passes, "\(text)\n\(sent)")
      #expect(leaves || !pipeline.probe("bad").events.isEmpty, "\(text)\n\(sent)")
    }
  }

  /// A client that asks, and reads what comes for an event that holds the malformed text, and for a good one.
  private func served(_ name: String, _ format: String) throws {
    let sink =
      switch name {
      case "sse": "sse: { address: '127.0.0.1:0', encode: \(format) }"
      case "webSocket": "webSocket: { listen: '127.0.0.1:0', path: /live, encode: \(format) }"
      default: "reply: { encode: \(format) }"
      }
    let text =
      name == "reply"
      ? """
      sources: { in: { httpServer: { address: '127.0.0.1:0', decode: ndjson, answer: reply } } }
      sinks:
        out: { from: in, chain: [ { map: "{'x': event}" } ], \(sink) }
        bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }
      """
      : """
      sources: { in: { never: {} } }
      sinks:
        out: { from: in, chain: [ { map: "{'x': event}" } ], \(sink) }
        bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }
      """
    let source = MalformedSource()
    guard
      let pipeline = try? RealPipeline(
        text,
        before: { execution in if name != "reply" { execution.replacements.sources = { $0 == "in" ? source : nil } } })
    else { return }
    let port = try #require(pipeline.port(), "\(text): \(pipeline.log)")
    let client = try Connection(port: port)
    let answered = Guarded<String?>(nil)
    switch name {
    case "reply":
      client.send(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nContent-Length: \(Self.malformed.utf8.count)\r\nConnection: close\r\n\r\n\(Self.malformed)"
      )
    case "sse": client.send("GET / HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\n\r\n")
    default:
      client.send(
        "GET /live HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
      )
    }
    let head = Guarded(false)
    let ring = pipeline.ring
    _ = try OwnThread("test client") {
      if name != "reply" { _ = client.message(hasBody: false) }
      head.withLock { $0 = true }
      ring()
      let all = client.readAll()
      answered.withLock { $0 = all }
      ring()
    }
    if name != "reply" {
      pipeline.run(within: .seconds(60)) { source.node != nil && head.withLock { $0 } }
      pipeline.inTurn { _ in source.node?.send(Self.malformed) }
    }
    let isOver = pipeline.run(within: .seconds(60)) {
      !pipeline.probe("bad").events.isEmpty || answered.withLock { $0 != nil }
    }
    #expect(isOver, "\(text)")
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run(within: .seconds(60)) { pipeline.execution.hasClosed && answered.withLock { $0 != nil } }
    let sent = answered.withLock { $0 } ?? ""
    #expect(!sent.contains(#""b":,"#) && !sent.contains(#"\"b\":,"#), "\(text)\n\(sent)")
  }
}

/// A source whose events are JSON text as the decoders leave it.
private struct MalformedSource: SourceComponent {
  static let spec = ComponentSpec<MalformedSource>("malformed", summary: "Sends unchecked text.")
  private let place = Place()
  final class Place: @unchecked Sendable { weak var node: Node? }
  var node: Node? { place.node }

  init() {}

  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    let node = Node(nodeContext, downstream: downstream)
    place.node = node
    return node
  }

  final class Node: DecodingSource {
    func send(_ text: String) {
      guard let decoder = makeDecoder(DecoderOptions(.ndjson)) else { return }
      let slab = Array((text + "\n").utf8).withUnsafeBytes { Slab($0) }
      take(slab, offset: 0, isLast: true, by: decoder, origin: origin)
    }
  }
}
