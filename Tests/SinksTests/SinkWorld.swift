import Foundation
import PipelineHost
import Testing
import Transport

@testable import PipelineCore
@testable import Sinks

/// The entry of each sink in the laws of all sinks. A new sink needs an entry in ``entry(_:)``: without one the laws fail and say so.
final class SinkWorld {
  /// Settings of one sink, as YAML after `from: in, `. The events are whole numbers; a `chain:` may come first.
  struct Entry {
    /// With a destination that accepts everything.
    var working: [String] = []
    /// With a destination that accepts nothing.
    var dead: [String] = []
    /// Why it has no dead destination, if so: each event is delivered or refused in its turn, or dropped by design.
    var neverWaits: String?
    /// In a pipeline that fails and is restarted repeatedly.
    var failing: [String] = []
    /// Event 2 cannot be encoded, or exceeds the destination's limit; any other can.
    var picky: [String] = []
    /// Why it refuses no event for its form, if so.
    var takesAnything: String?
  }

  let scratch = Scratch()
  private let receiver = Swallower()

  /// Event 2 becomes a text, any other a map: a text is neither a row of a table nor a metric.
  private static let odd = "{ map: \"event == 2 ? dyn('2') : dyn({'a': string(event)})\" }"
  /// The same for metrics.
  private static let oddMetric =
    "{ map: \"event == 2 ? dyn('2') : dyn({'name': 'm', 'value': 1, 'labels': {'a': string(event)}})\" }"

  /// Event 2 becomes a text that no datagram can hold.
  private static let large =
    "{ map: \"{'n': event, 't': '\(String(repeating: "x", count: 40_000))'}\" }, { map: \"event.n == 2 ? event.t + event.t : 'small'\" }"

  func entry(_ name: String) -> Entry? {
    switch name {
    case "discard":
      Entry(
        working: ["discard: {}"], neverWaits: "it drops what comes", failing: ["discard: {}"],
        takesAnything: "it reads nothing of an event")
    case "file": file
    case "http": http
    case "prometheusRemoteWrite":
      Entry(
        // No event is a metric: each is rejected.
        working: ["prometheusRemoteWrite: 'http://h.example/'"],
        dead: [
          "chain: [ { map: \"{'name': 'm', 'value': 1, 'labels': {'text': string(event)}}\" } ], prometheusRemoteWrite: { url: 'http://h.example/', retry: { delay: 1h, maxDelay: 1h } }"
        ],
        failing: [
          "chain: [ { map: \"{'name': 'm', 'value': 1, 'labels': {}}\" } ], prometheusRemoteWrite: { url: 'http://h.example/', retry: { delay: 1h, maxDelay: 1h } }"
        ],
        picky: [
          "chain: [ \(Self.oddMetric) ], prometheusRemoteWrite: { url: 'http://h.example/', retry: { delay: 1ms } }"
        ])
    case "sqlite":
      Entry(
        working: [
          "sqlite: { path: '\(scratch("a.db"))', table: t, columns: { v: event }, batch: { every: 1ms }, create: 'CREATE TABLE IF NOT EXISTS t(v)' }",
          // Some rows are refused.
          "sqlite: { path: '\(scratch("b.db"))', table: t, columns: { v: event }, batch: 7, create: 'CREATE TABLE IF NOT EXISTS t(v CHECK(v % 3 < 2))' }",
        ],
        dead: ["sqlite: { path: '\(scratch("none.db"))', table: t, columns: { v: event } }"],
        failing: [
          "sqlite: { path: '\(scratch("f.db"))', table: t, columns: { v: event }, create: 'CREATE TABLE IF NOT EXISTS t(v)' }",
          "sqlite: { path: '\(scratch("g.db"))', table: t, columns: { v: event }, batch: { every: 1h }, create: 'CREATE TABLE IF NOT EXISTS t(v)' }",
        ],
        picky: [
          "sqlite: { path: '\(scratch("c.db"))', table: t, columns: { v: 1 / (event - 2) }, create: 'CREATE TABLE IF NOT EXISTS t(v)' }"
        ]
      )
    case "tcp":
      Entry(
        working: [
          "tcp: '127.0.0.1:\(receiver.port)'",
          "tcp: { address: '127.0.0.1:\(receiver.port)', queue: 1KiB, framing: octets }",
        ],
        dead: ["tcp: { address: '127.0.0.1:\(receiver.closedPort)', reconnect: 5ms }"],
        failing: ["tcp: { address: '127.0.0.1:9', reconnect: 1s }"],
        picky: ["chain: [ \(Self.odd) ], tcp: { address: '127.0.0.1:\(receiver.port)', encode: csv }"])
    case "syslog":
      Entry(
        working: ["syslog: { address: '127.0.0.1:\(receiver.port)', transport: tcp }"],
        dead: ["syslog: { address: '127.0.0.1:\(receiver.closedPort)', transport: tcp }"],
        failing: ["syslog: { address: '127.0.0.1:9', transport: tcp }"],
        takesAnything: "any event is the text of a message")
    case "unix":
      Entry(
        working: ["unix: \(receiver.path)"], dead: ["unix: '\(scratch("nobody"))'"],
        failing: ["unix: '\(scratch("nobody"))'"],
        picky: ["chain: [ \(Self.odd) ], unix: { path: \(receiver.path), encode: csv }"])
    case "udp":
      Entry(
        working: ["udp: '127.0.0.1:\(receiver.port)'"], neverWaits: "a datagram is sent in its turn, or lost",
        failing: ["udp: '127.0.0.1:9'"],
        picky: [
          "chain: [ \(Self.odd) ], udp: { address: '127.0.0.1:\(receiver.port)', encode: csv }",
          "chain: [ \(Self.large) ], udp: { address: '127.0.0.1:\(receiver.port)' }",
        ])
    case "journald":
      Entry(
        working: ["journald: \(receiver.datagrams)"], dead: ["journald: '\(scratch("nowhere"))'"],
        failing: ["journald: '\(scratch("nowhere"))'"],
        picky: ["chain: [ \(Self.large) ], journald: { socket: '\(receiver.datagrams)', maxMessage: 64KiB }"])
    case "webSocket":
      Entry(
        working: ["webSocket: { listen: '127.0.0.1:0', path: /live }"],
        dead: ["webSocket: 'ws://127.0.0.1:\(receiver.closedPort)/'"],
        failing: ["webSocket: { listen: '127.0.0.1:0', path: /live }"],
        picky: ["chain: [ \(Self.odd) ], webSocket: { listen: '127.0.0.1:0', path: /live, encode: csv }"])
    case "sse":
      Entry(
        working: ["sse: '127.0.0.1:0'"], neverWaits: "a client that is not there misses what comes",
        failing: ["sse: '127.0.0.1:0'"], picky: ["chain: [ \(Self.odd) ], sse: { address: '127.0.0.1:0', encode: csv }"]
      )
    case "prometheusExporter":
      Entry(
        working: ["prometheusExporter: '127.0.0.1:0'"], neverWaits: "it keeps values, which are asked for",
        failing: ["prometheusExporter: '127.0.0.1:0'"],
        picky: ["chain: [ \(Self.oddMetric) ], prometheusExporter: '127.0.0.1:0'"])
    case "exec":
      Entry(
        working: [
          "exec: { shell: 'cat > /dev/null' }",
          "exec: { shell: 'head -c 2000 > /dev/null', restart: { delay: 1ms, maxDelay: 1ms }, queue: 1KiB }",
        ],
        dead: ["exec: { command: [sleep, '1000'], stopTimeout: 0s }"], failing: ["exec: { shell: 'cat > /dev/null' }"],
        picky: ["chain: [ \(Self.odd) ], exec: { shell: 'cat > /dev/null', encode: csv }"])
    case "reply":
      // To no request: each is rejected.
      Entry(
        working: ["reply: {}"], neverWaits: "an answer belongs to a request, or is refused", failing: ["reply: {}"],
        takesAnything: "without a request every event is refused")
    case "stdout", "stderr":
      // Prints three lines on the terminal that runs the tests. Otherwise like `file`, on the streams of the tests.
      Entry(
        working: ["chain: [ { filter: event < 3 } ], \(name): {}"], neverWaits: "the same as `file`",
        failing: ["chain: [ { filter: event < 0 } ], \(name): {}"],
        picky: ["chain: [ { filter: event == 2 } ], \(name): { encode: csv }"])
    default: nil
    }
  }

  private var file: Entry {
    Entry(
      working: ["never", "batch", "interval"].flatMap { sync in
        ["append", "replace"].map { "file: { path: '\(scratch("\(sync)-\($0)"))', mode: \($0), sync: \(sync) }" }
      } + [
        "file: { path: /dev/null, encode: csv }", "file: \"\(scratch.path)/{{ event % 7 }}.log\"",
        "file: { path: \"\(scratch.path)/{{ event % 9 }}\", maxOpenFiles: 2, sync: batch }",
        "file: { path: \"\(scratch.path)/{{ event % 2 == 0 ? '..' : 'a' }}\", sync: interval }",
      ],
      // A device that is always full.
      dead: ["file: /dev/full"],
      failing: [
        "file: '\(scratch("a"))'", "file: { path: '\(scratch("b"))', mode: replace }",
        "file: \"\(scratch.path)/{{ event % 3 }}.log\"",
        "file: { path: '\(scratch("c"))', rotate: { size: 1MiB } }",
      ],
      picky: ["chain: [ \(Self.odd) ], file: { path: '\(scratch("odd"))', encode: csv }"])
  }

  private var http: Entry {
    Entry(
      working: [
        "http: { url: 'http://h.example/', retry: { delay: 1ms } }",
        "http: { url: 'http://h.example/', retry: { delay: 1ms }, maxConcurrent: 4, batch: { count: 7, every: 1ms } }",
        "http: { url: 'http://h.example/', compress: gzip, batch: { count: 100, every: 1ms }, retry: { delay: 1ms } }",
      ],
      dead: [
        "http: { url: 'http://h.example/', retry: { delay: 1h, maxDelay: 1h } }",
        "http: { url: 'http://h.example/', batch: 7, maxConcurrent: 3, retry: { delay: 1h, maxDelay: 1h } }",
      ],
      failing: [
        "http: { url: 'http://h.example/', batch: 1, retry: { delay: 1h, maxDelay: 1h } }",
        "http: { url: 'http://h.example/', batch: { count: 4, every: 1h }, retry: { delay: 1h, maxDelay: 1h } }",
        "http: { url: 'http://h.example/', batch: 1, maxConcurrent: 3, retry: { delay: 1h, maxDelay: 1h } }",
      ],
      picky: ["chain: [ \(Self.odd) ], http: { url: 'http://h.example/', encode: csv, retry: { delay: 1ms } }"])
  }

  /// The entry, or a test failure that says what to add.
  func required(_ name: String) throws -> Entry {
    try #require(entry(name), "say in SinkWorld how '\(name)' may stand in the laws of all sinks")
  }

  static let names = Catalogue.sinks.components.map(\.name)
}

/// Reads and discards everything that is sent to it over TCP, over a Unix socket or as datagrams.
private final class Swallower: Sendable {
  let port: Int
  /// A port without a listener.
  let closedPort: Int
  let path: String
  /// A socket that accepts datagrams.
  let datagrams: String
  private let folder = Scratch()
  private let receivers: [StreamReceiver]
  private let datagramReceiver: DatagramReceiver?

  init() {
    path = folder("s")
    datagrams = folder("d")
    closedPort = (try? FreePort().number) ?? 9
    datagramReceiver = try? DatagramReceiver(.unix(path: datagrams, isDatagram: true), DatagramReceiver.Options())
    try? datagramReceiver?.start(notify: { _ in }, deliver: { _ in true })
    receivers = [
      SocketEndpoint.network(host: "127.0.0.1", port: 0, isDatagram: false), .unix(path: path, isDatagram: false),
    ].compactMap { try? StreamReceiver($0, StreamReceiver.Options()) }
    for receiver in receivers { try? receiver.start(notify: { _ in }, deliver: { _ in true }) }
    port = receivers.first.flatMap { Int($0.text.split(separator: ":").last ?? "") } ?? 0
  }

  deinit {
    for receiver in receivers { receiver.cancel() }
    datagramReceiver?.cancel()
  }
}
