import Foundation
import PipelineHost
import Testing

/// No request ends the process, whether over the control socket, to the page or to the metrics listener.
@Suite(.timeLimit(.minutes(10)))
struct HostileRequestTests {
  private let folder: Scratch
  private var socket: String { folder.path + "/c.sock" }

  init() throws { folder = try Scratch() }

  private static let pipeline = """
    name: p
    sources: { s: { interval: 20ms } }
    signals:
      few: { from: s, chain: [ { map: "{'n': 1, 'secret': 'x'}" }, { filter: event.n > 1 } ] }
      slow: { from: s, chain: [ { throttle: 50ms }, { flattenMap: { signal: { from: { values: [1] } } } } ] }
    sinks: { o: { from: few, discard: {} }, l: { from: slow, discard: {} }, d: { from: s, discard: {} } }

    """

  private func start(_ arguments: [String] = []) throws -> RunningRxd {
    let process = try RunningRxd(
      ["run", "--daemon", "--log-format", "text", "--control-socket", socket] + arguments
        + [try folder.write("p.yaml", Self.pipeline)])
    try process.waits(forSocket: socket)
    return process
  }

  /// Sends the request and reads the start of the answer; nil: there was none.
  private func ask(_ request: [UInt8], within milliseconds: Int32 = 10_000) throws -> String? {
    // The socket file exists a moment before the process listens.
    let client = try #require(
      Polling.first(within: 60) { SocketClient(path: socket) }, "the process does not listen")
    client.send(request)
    client.endSending()
    var answer: [UInt8] = []
    while answer.count < 12, let more = client.receive(within: milliseconds), !more.isEmpty { answer += more }
    return answer.count < 12 ? nil : String(decoding: answer.prefix(4000), as: UTF8.self)
  }

  private func post(_ path: String, _ body: [UInt8]) -> [UInt8] {
    Array("POST \(path) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.count)\r\n\r\n".utf8) + body
  }

  /// The process runs and answers, and ends only when asked to.
  private func check(_ process: RunningRxd, after what: String) throws {
    let answer = try ask(Array("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8))
    #expect(answer?.hasPrefix("HTTP/1.1 200") == true, "after \(what): \(answer ?? "no answer")")
  }

  private static let edges = [
    "s/interval", "s", "few/1 map", "few/map", "few/filter", "few", "o/discard", "d/discard", "slow/throttle",
    "slow/flattenMap", "slow",
  ]

  /// A body of "save as a test", with at least one line out of order.
  private static func recording(_ hostile: inout Hostile) -> [UInt8] {
    func time(_ hostile: inout Hostile) -> String {
      hostile.random.below(2) == 0 ? hostile.number() : "\(1_000_000_000 + hostile.random.below(1_000_000_000))"
    }
    var lines = ["{\"step\":\"\(hostile.random.pick(edges))\",\"end\":\(time(&hostile)),\"name\":\(hostile.json(4))}"]
    for _ in 0..<hostile.random.below(6) {
      let (from, to) =
        hostile.random.below(3) > 0 ? ("s/interval", "s") : (hostile.random.pick(edges), hostile.random.pick(edges))
      let kind = hostile.random.below(4)
      let moment =
        kind == 0
        ? "\"end\":\"complete\""
        : kind == 1 ? "\"end\":\"error\",\"message\":\(hostile.json(4))" : "\"event\":\(hostile.json(2))"
      lines.append("{\"from\":\"\(from)\",\"to\":\"\(to)\",\"nanoseconds\":\(time(&hostile)),\(moment)}")
    }
    let text = Array(lines.joined(separator: "\n").utf8)
    return hostile.random.below(3) == 0 ? hostile.mutated(text) : text
  }

  /// Times beyond either end of the range are refused, with the reason.
  @Test func aRecordingOfExtremeTimesIsRefused() throws {
    let process = try start()
    for (end, at) in [
      ("9223372036854775807", "-9223372036854775807"), ("-9223372036854775808", "9223372036854775807"),
      ("9223372036854775807", "0"), ("0", "9223372036854775807"), ("3600001000000", "0"),
    ] {
      let body = """
        {"step":"d/discard","end":\(end),"name":"x"}
        {"from":"s/interval","to":"s","nanoseconds":\(at),"event":1}
        {"from":"s/interval","to":"s","nanoseconds":5,"event":1}
        """
      let answer = try ask(post("/ui/test?pipeline=p", Array(body.utf8)))
      #expect(answer?.hasPrefix("HTTP/1.1 422") == true, "\(end) \(at): \(answer ?? "no answer")")
      #expect(answer?.contains("longer than the 1h of a test") == true, "\(answer ?? "")")
    }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  @Test(arguments: 0..<3) func requestsToTheControlSocket(_ part: UInt64) throws {
    let process = try start(["--why-memory", "1MiB"])
    let routes = [
      "/reload", "/status", "/stats", "/tap", "/why", "/ui/link", "/ui/feed", "/ui/graph", "/ui/test", "/metrics",
      "/health",
      "/ready", "/", "//", "/%2e%2e/",
    ]
    let names = [
      "pipeline", "edge", "sample", "bytes", "limit", "where", "step", "id", "verdict", "since", "until", "format",
      "colors", "wait", "from", "",
    ]
    let likely =
      [
        "p", "*", "", "few/filter", "s -> s", "->", "p.yaml:3", "14", "rejected", "undecided", "dropped", "text",
        "ndjson", "true", "event.n / 0 > 1",
      ]
      + Self.edges
    for seed in part * 1000..<part * 1000 + 120 {
      var hostile = Hostile(seed)
      let request: [UInt8]
      switch hostile.random.below(6) {
      case 0, 1:
        request = post("/ui/test?pipeline=p", Self.recording(&hostile))
      case 2:
        // Malformed heads: lengths, chunks, versions, bytes.
        let head =
          "\(hostile.random.pick(["GET", "POST", "PUT", "\u{0}", "CONNECT", "PRI"])) \(hostile.random.pick(routes)) HTTP/1.1\r\nHost: localhost\r\n"
          + hostile.random.pick([
            "Content-Length: \(hostile.number())", "Transfer-Encoding: chunked", "Expect: 100-continue",
            "Upgrade: websocket\r\nConnection: upgrade",
            "Content-Length: 5\r\nContent-Length: 6", "X: " + String(repeating: "y", count: 20_000),
          ])
        request = hostile.mutated(Array((head + "\r\n\r\n").utf8)) + hostile.bytes()
      case 3:
        request = hostile.bytes()
      default:
        let route = hostile.random.pick(routes)
        let query = (0..<hostile.random.below(4)).map { _ in "\(hostile.random.pick(names))=\(hostile.encoded(likely))"
        }
        let target = route + (query.isEmpty ? "" : "?" + query.joined(separator: "&"))
        request =
          hostile.random.below(4) == 0
          ? post(target, hostile.bytes())
          : Array("GET \(target) HTTP/1.1\r\nHost: localhost\r\nAccept: \(hostile.number())\r\n\r\n".utf8)
      }
      // Some requests wait for more data, which never arrives; a tap sends as long as the client listens.
      _ = try ask(request, within: 300)
      if seed % 20 == 19 { try check(process, after: "seed \(seed)") }
    }
    try check(process, after: "all")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// The same requests over TCP, with and without the token.
  @Test func requestsToThePageAndTheMetrics() throws {
    let (page, metrics) = (try FreePort().number, try FreePort().number)
    let token = "0123456789abcdef0123456789abcdef"
    let file = try folder.write("token", token + "\n")
    chmod(file, 0o600)
    let process = try start([
      "--ui-listen", "127.0.0.1:\(page)", "--ui-token-file", file, "--metrics-listen", "127.0.0.1:\(metrics)",
    ])
    let ports = [page, metrics]
    let routes = [
      "/", "/main.js", "/ui/feed", "/ui/graph", "/ui/test", "/tap", "/why", "/metrics", "/health", "/ready", "/reload",
      "/open", "/session",
    ]
    for seed in UInt64(0)..<120 {
      var hostile = Hostile(50_000 + seed)
      let port = hostile.random.pick(ports)
      let client = try #require(Polling.first(within: 60) { SocketClient(port: port) }, "seed \(seed)")
      let target =
        "\(hostile.random.pick(routes))?pipeline=p&edge=\(hostile.encoded(Self.edges))&limit=\(hostile.encoded(["1"]))"
      let known = hostile.random.below(4) == 0 ? hostile.encoded(["x"]) : token
      let head = "Host: 127.0.0.1\r\nAuthorization: Bearer \(known)\r\n"
      switch hostile.random.below(4) {
      case 0: client.send(hostile.bytes())
      case 1:
        let body = Self.recording(&hostile)
        client.send(
          Array("POST /ui/test?pipeline=p HTTP/1.1\r\n\(head)Content-Length: \(body.count)\r\n\r\n".utf8) + body)
      case 2: client.send(hostile.mutated(Array("GET \(target) HTTP/1.1\r\n\(head)\r\n".utf8)))
      default: client.send("GET \(target) HTTP/1.1\r\n\(head)\r\n")
      }
      client.endSending()
      _ = client.receive(within: 300)
    }
    try check(process, after: "all")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }
}
