import Foundation
import PipelineHost
import Testing

/// A reload of a busy pipeline delays no client: none waits for what the old version waits for, and every answer arrives.
@Suite(.timeLimit(.minutes(10)))
struct ReloadPauseTests {
  /// The log messages of a reload that has waited in vain for an answer or a sink.
  private static let waits = ["have not arrived in time", "given up"]

  private static let sinks = [
    "discard: {}", "file: 'DIR/out'", "file: { path: 'DIR/out', sync: batch }", "file: 'DIR/{{ string(event.n) }}.out'",
    // Waits a minute for more events.
    "http: { url: 'URL', batch: { count: 10000, every: 1m } }",
    "exec: { command: [cat] }", "udp: '127.0.0.1:PORT'", "tcp: '127.0.0.1:PORT'", "take: {}",
    "sqlite: { path: 'DIR/db', table: t, columns: { n: event.n }, create: 'CREATE TABLE IF NOT EXISTS t (n INTEGER)', batch: { every: 1m } }",
  ]

  private static let plugin = #"""
    from rxd_plugin import Plugin, Sink
    plugin = Plugin("p", "1.0.0", "Takes events.")

    @plugin.sink(confirmation="nothing")
    class Take(Sink):
        """Takes events."""

        def write_batch(self, records):
            pass

    plugin.run()
    """#

  @Test(arguments: sinks, ["bestEffort", "light", "durable"])
  func nobodyWaitsForAReload(_ sink: String, _ delivery: String) throws {
    let folder = try Scratch()
    let port = try FreePort().number
    let socket = try #require(SocketClient.listening())
    let open = socket.port
    nonisolated(unsafe) let receiver = socket.0
    let receiving = Thread {
      while let one = receiver.accept(within: 240_000) { _ = one.receiveAll(within: 240_000) }
    }
    receiving.start()
    let server = try folder.write(
      "server.yaml",
      """
      sources: { posts: { httpServer: { address: "127.0.0.1:0", decode: ndjson } } }
      sinks: { out: { from: posts, file: '\(folder.path)/received' } }

      """)
    let other = try RunningRxd(["--daemon", server, "--log-format", "text", "--log-level", "info"])
    let listening = try other.errorLine(with: "listening on ")
    let place = try #require(listening.split(separator: ":").last)
    let target = sink.replacing("DIR", with: folder.path).replacing("URL", with: "http://127.0.0.1:\(place)/")
      .replacing("PORT", with: "\(open)")
    var plugins = "{}"
    if sink.hasPrefix("take:") {
      let program = try folder.write("plugin.py", Self.plugin)
      plugins = "{ p: { run: [python3, '\(program)'], env: { PYTHONPATH: '\(Rxd.root)/Plugins/python' } } }"
    }
    func text(_ number: Int) -> String {
      """
      delivery: \(delivery)
      plugins: \(plugins)
      sources: { posts: { httpServer: { address: 127.0.0.1:\(port), decode: ndjson, replyTimeout: 1h, queueTimeout: 1h } } }
      signals: { named: { from: posts, chain: [ { set: { v: \(number) } } ] } }
      sinks: { out: { from: named, \(target) } }

      """
    }
    let file = try folder.write("a.yaml", text(0))
    let process = try RunningRxd([
      "--daemon", file, "--log-format", "text", "--log-level", "info", "--state-dir", folder.path + "/state",
    ])
    try process.errorLine(with: "listening on")
    let clients = (0..<3).map { Posting(port: port, isInParts: $0 == 0, first: $0 * 1_000_000) }
    for client in clients { client.start() }
    for number in 1...4 {
      try folder.write("a.yaml", text(number))
      process.send(SIGHUP)
      let lines = try process.errorLines(to: "reloaded in")
      #expect(!lines.contains { line in Self.waits.contains { line.contains($0) } }, "\(lines)")
    }
    // A batch that still waits is sent at the end.
    for client in clients { client.askToEnd() }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    var accepted: Set<Int> = []
    for client in clients {
      let (statuses, numbers) = client.end()
      #expect(Set(statuses.keys).isSubset(of: [200]), "\(statuses)")
      accepted.formUnion(numbers)
    }
    if delivery == "durable" { #expect(!accepted.isEmpty) }
    other.send(SIGTERM)
    #expect(try other.wait() == 0)
    if sink.hasPrefix("http:"), delivery != "durable" {
      let received = try String(contentsOfFile: folder.path + "/received", encoding: .utf8).split(separator: "\n")
        .compactMap { line in (try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])?["n"] as? Int
        }
      #expect(accepted.isSubset(of: received))
      #expect(received.count == Set(received).count, "no event came twice")
    }
  }

  /// A receiver that reads nothing does not delay a reload: its connection, with the message that was begun, passes to the next version, and in the
  /// end the receiver has every line once, whole and in order.
  @Test(arguments: [
    "tcp: { address: '127.0.0.1:PORT', queue: 64KiB }", "unix: { path: 'DIR/s', queue: 64KiB }",
    "exec: { shell: 'touch DIR/up; while [ ! -e DIR/go ]; do sleep 0.01; done; exec cat > DIR/received', queue: 64KiB, stopTimeout: 1m }",
  ])
  func aReceiverThatReadsNothingHoldsUpNoReload(_ sink: String) throws {
    let folder = try Scratch()
    let (network, port) = try #require(SocketClient.listening())
    let local = try #require(SocketClient.listening(path: folder.path + "/s"))
    nonisolated(unsafe) let receiver = sink.hasPrefix("tcp") ? network : local
    let target = sink.replacing("DIR", with: folder.path).replacing("PORT", with: "\(port)")
    let count = 4000
    let text = String(repeating: "x", count: 2000)
    try folder.write("in", (0..<count).map { "{\"n\":\($0),\"t\":\"\(text)\"}\n" }.joined())
    func pipeline(_ number: Int) -> String {
      """
      sources: { in: { file: { path: '\(folder.path)/in', follow: true, decode: ndjson } } }
      sinks: { out: { from: in, chain: [ { set: { v: \(number) } } ], \(target) } }

      """
    }
    let file = try folder.write("a.yaml", pipeline(0))
    let process = try RunningRxd([
      "--daemon", file, "--log-format", "text", "--log-level", "info", "--state-dir", folder.path + "/state",
    ])
    let isProgram = sink.hasPrefix("exec")
    nonisolated(unsafe) let connection = isProgram ? nil : receiver.accept()
    #expect(isProgram ? Polling.until { access(folder.path + "/up", F_OK) == 0 } : connection != nil)
    var times: [Int] = []
    for number in 1...4 {
      try folder.write("a.yaml", pipeline(number))
      process.send(SIGHUP)
      let line = try process.errorLine(with: "reloaded in")
      times.append(try #require(line.split(separator: " ").compactMap { Int($0) }.first))
    }
    // A version that waited for the receiver would wait for seconds.
    #expect(times.allSatisfy { $0 < 1000 }, "\(times)")
    let received: String
    if isProgram {
      try folder.write("go", "")
      let path = folder.path + "/received"
      #expect(
        Polling.until(within: 120) {
          let size = (try? FileManager.default.attributesOfItem(atPath: path)[.size]) as? Int ?? 0
          // Lines that are unwritten when the program is stopped wait on disk for the next start.
          guard size >= count * 2000, let bytes = FileManager.default.contents(atPath: path) else { return false }
          return bytes.count { $0 == UInt8(ascii: "\n") } >= count
        })
      process.send(SIGTERM)
      #expect(try process.wait() == 0)
      received = try String(contentsOfFile: path, encoding: .utf8)
    } else {
      let bytes = ReadBytes()
      Thread {
        while let more = connection?.receive(within: 60_000), !more.isEmpty { bytes.add(more) }
      }.start()
      #expect(Polling.until(within: 120) { bytes.lines >= count })
      process.send(SIGTERM)
      #expect(try process.wait() == 0)
      received = bytes.text
    }
    let lines = received.split(separator: "\n")
    let numbers = lines.compactMap { line in
      (try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])?["n"] as? Int
    }
    #expect(numbers == Array(0..<count))
  }
}

/// The bytes that a thread has read.
private final class ReadBytes: @unchecked Sendable {
  private let lock = NSLock()
  private var bytes: [UInt8] = []
  private var count = 0
  func add(_ more: [UInt8]) {
    lock.withLock {
      bytes += more
      count += more.count { $0 == 0x0A }
    }
  }
  var lines: Int { lock.withLock { count } }
  var text: String { lock.withLock { String(decoding: bytes, as: UTF8.self) } }
}

/// A client that posts one event after another on one connection; some send the head of a request first, and its body
/// later.
private final class Posting: @unchecked Sendable {
  private let port: Int
  private let isInParts: Bool
  private let lock = NSLock()
  private var isEnding = false
  private var next: Int
  private var statuses: [Int: Int] = [:]
  private var accepted: [Int] = []
  private let done = DispatchSemaphore(value: 0)

  init(port: Int, isInParts: Bool, first: Int) {
    (self.port, self.isInParts, next) = (port, isInParts, first)
  }

  func start() { Thread { [self] in run() }.start() }

  private func run() {
    defer { done.signal() }
    guard let connection = try? Connection(port: port) else { return }
    while !lock.withLock({ isEnding }) {
      let body = "{\"n\":\(next)}\n"
      connection.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n")
      // As long as a body takes to cross a network.
      if isInParts { poll(nil, 0, 30) }
      connection.send(body)
      // Nil: the process has ended.
      guard let status = connection.status() else { return }
      // Requests after the signal are refused.
      if status == 503, lock.withLock({ isEnding }) { return }
      statuses[status, default: 0] += 1
      if status == 200 { accepted.append(next) }
      next += 1
    }
  }

  func askToEnd() { lock.withLock { isEnding = true } }

  /// The answers by status, and the numbers of the accepted events.
  func end() -> ([Int: Int], [Int]) {
    done.wait()
    return (statuses, accepted)
  }
}
