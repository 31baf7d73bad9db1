import PipelineCore
import PipelineRuntime
import Testing

/// Sinks whose output returns to them through a file or an address, within a file and between the files of a process.
@Suite struct CircleTests {
  /// The errors of files that run together, as `FILE:LINE: message`, each with its notes.
  private func circles(_ texts: String...) -> [String] {
    let front = FrontEnd(.builtIn)
    var results = texts.enumerated().map { front.compile("name: p\($0)\n" + $1, name: "\($0).yaml") }
    FrontEnd.checkTogether(&results)
    func place(_ location: PipelineCore.SourceLocation?, _ text: String) -> String {
      location.map { "\($0.text.name.prefix(1)):\($0.line) \(text)" } ?? text
    }
    for result in results { #expect((result.plan == nil) == result.hasErrors) }
    var found: [String] = []
    for diagnostic in results.flatMap(\.diagnostics) where diagnostic.severity == .error {
      var parts = [place(diagnostic.location, "\(diagnostic.code.name) \(diagnostic.message)")]
      for note in diagnostic.notes { parts.append(place(note.location, note.message)) }
      found.append(parts.joined(separator: "; "))
    }
    return found
  }

  private let aToB = """
    sources: { a: { file: { path: '/a/*.log', follow: true } } }
    sinks: { toB: { from: a, file: /b/x.log } }
    """
  private let bToA = """
    sources: { b: { file: { path: '/b/*.log', follow: true } } }
    sinks: { toA: { from: b, file: /a/../a/x.log } }
    """
  private let bToC = """
    sources: { b: { file: { path: '/b/*.log', follow: true } } }
    sinks: { toC: { from: b, file: /c/x.log } }
    """
  private let cToA = """
    sources: { c: { file: /c/x.log } }
    sinks: { toA: { from: c, file: /a/x.log } }
    """

  @Test func filesOfAProcessFeedEachOther() {
    #expect(
      circles(aToB, bToA) == [
        "1:3 RX303 the sink 'toA' writes a file that its own events are read from; 1:2 'b' reads '/b/*.log' here; "
          + "0:3 the sink 'toB' writes '/b/x.log' here; 0:2 'a' reads '/a/*.log' here"
      ])
    #expect(circles(aToB, bToC, cToA).map { String($0.prefix(9)) } == ["2:3 RX303"])
    // The file that would close the circle is refused; the others run.
    #expect(circles(aToB, bToC) == [])
    #expect(circles(aToB, bToC, cToA, bToA).map { String($0.prefix(9)) } == ["2:3 RX303", "3:3 RX303"])
    #expect(circles(aToB, aToB) == [])
  }

  private func served(_ server: String, _ url: String, _ more: String = "") -> [String] {
    circles(
      """
      sources: { in: { httpServer: { \(server), decode: ndjson } } }
      signals: { kept: { from: in, chain: [ { filter: event.n > 1 } ] } }
      sinks: { out: { from: kept, http: { url: '\(url)'\(more) } } }
      """)
  }

  @Test func aRequestToAnOwnServer() {
    let found = served("address: 8080, path: /in", "http://127.0.0.1:8080/in?x=1")
    #expect(
      found == [
        "0:4 RX303 the sink 'out' sends to a source that its own events come from; 0:2 'in' listens on 127.0.0.1:8080 here"
      ])
    #expect(!served("address: 8080", "http://localhost:8080").isEmpty)
    #expect(!served("address: '0.0.0.0:80', allowUnauthenticated: true", "http://127.0.0.2/x").isEmpty)
    #expect(!served("address: '[::]:8080', allowUnauthenticated: true", "http://[::1]:8080/").isEmpty)
    #expect(!served("address: 8080, methods: [PUT]", "http://127.0.0.1:8080/", ", method: PUT").isEmpty)
    // Another path, method, port, host or scheme does not form a circle.
    #expect(served("address: 8080, path: /in", "http://127.0.0.1:8080/out") == [])
    #expect(served("address: 8080, methods: [PUT]", "http://127.0.0.1:8080/") == [])
    #expect(served("address: 8080", "http://127.0.0.1:8081/") == [])
    #expect(served("address: 8080", "http://127.0.0.2:8080/") == [])
    #expect(served("address: 8080", "http://shop.example:8080/") == [])
    #expect(served("address: 8080", "https://127.0.0.1:8080/") == [])
    #expect(served("address: '127.0.0.1:0'", "http://127.0.0.1:80/") == [])
  }

  /// Only a source from which the sink's events come.
  @Test func aRequestToAnotherSource() {
    let yaml = """
      sources: { in: { httpServer: { address: 8080, decode: ndjson } }, lines: { file: /var/in.log } }
      sinks:
        out: { from: lines, http: { url: 'http://127.0.0.1:8080/' } }
        kept: { from: in, file: /var/SINK.log }
      """
    #expect(circles(yaml.replacing("SINK", with: "out")) == [])
    // Through an address and a file.
    #expect(
      circles(yaml.replacing("SINK", with: "in")) == [
        "0:4 RX303 the sink 'out' sends to a source that its own events come from; 0:2 'lines' reads '/var/in.log' here; "
          + "0:5 the sink 'kept' writes '/var/in.log' here; 0:2 'in' listens on 127.0.0.1:8080 here"
      ])
  }

  @Test(arguments: [
    ("tcp: 5170", "tcp: 127.0.0.1:5170", true), ("tcp: 5170", "udp: 127.0.0.1:5170", false),
    ("udp: 5170", "udp: localhost:5170", true), ("udp: 5170", "syslog: 127.0.0.1:5170", true),
    ("syslog: { address: 5170, transport: tcp }", "tcp: 127.0.0.1:5170", true),
    ("unix: /run/x.sock", "unix: /run/./x.sock", true), ("unix: /run/x.sock", "unix: /run/y.sock", false),
    ("syslog: /run/log", "syslog: /run/log", true), ("unix: 'systemd:x'", "unix: 'systemd:x'", false),
  ])
  func sockets(_ source: String, _ sink: String, _ isCircle: Bool) {
    let found = circles(
      """
      sources: { in: { \(source) } }
      sinks: { out: { from: in, \(sink) } }
      """)
    #expect(found.contains { $0.hasPrefix("0:3 RX303") } == isCircle, "\(found)")
  }

  /// Clients and servers of WebSockets and feeds, with and without TLS.
  @Test(arguments: [
    ("webSocket: { listen: 8080, path: /in }", "webSocket: 'ws://127.0.0.1:8080/in'", true),
    ("webSocket: { listen: 8080, path: /in }", "webSocket: 'ws://127.0.0.1:8080/other'", false),
    ("webSocket: { listen: 8080, path: /in }", "webSocket: 'wss://127.0.0.1:8080/in'", false),
    ("webSocket: { listen: 8080, path: /in }", "http: 'http://127.0.0.1:8080/in'", false),
    ("webSocket: { listen: 8080, path: /in }", "tcp: 127.0.0.1:8080", false),
    (
      "webSocket: { listen: 8080, path: /in, serverTLS: /srv.pem }", "webSocket: 'wss://localhost:8080/in?a=1'", true
    ),
    ("webSocket: 'ws://127.0.0.1:8080/live'", "webSocket: { listen: 8080, path: /live }", true),
    ("webSocket: 'ws://127.0.0.1:8080/live'", "webSocket: { listen: 8080, path: /other }", false),
    ("webSocket: 'ws://127.0.0.1:8080/live'", "sse: { address: 8080, path: /live }", false),
    ("sse: 'http://127.0.0.1:8080/live'", "sse: { address: 8080, path: /live }", true),
    ("sse: 'https://127.0.0.1:8080/live'", "sse: { address: 8080, path: /live, tls: /srv.pem }", true),
    ("httpServer: { address: 8443, decode: ndjson, tls: /srv.pem }", "http: 'https://[::1]:8443/'", false),
    ("httpServer: { address: 8443, decode: ndjson, tls: /srv.pem }", "http: 'https://localhost:8443/'", true),
    ("httpServer: { address: 443, decode: ndjson, tls: /srv.pem }", "http: 'https://127.0.0.1/'", true),
    ("httpServer: { address: 8443, decode: ndjson, tls: /srv.pem }", "http: 'http://127.0.0.1:8443/'", false),
  ])
  func webSockets(_ source: String, _ sink: String, _ isCircle: Bool) {
    let found = circles(
      """
      sources: { in: { \(source) } }
      sinks: { out: { from: in, \(sink) } }
      """)
    #expect(found.contains { $0.hasPrefix("0:3 RX303") } == isCircle, "\(found)")
  }

  /// A step before the request may limit it, so it is a warning; a request that no event of the server causes is not reported.
  @Test func requestsOfChains() {
    func warnings(_ input: String, _ url: String) -> [String] {
      FrontEnd(.builtIn).compile(
        """
        sources: { in: { httpServer: { address: 8080, path: /in, decode: json, answer: accepted } }, tick: { interval: 1s } }
        signals:
          asked: { from: \(input), chain: [ { flattenMap: { signal: { http: { method: POST, url: '\(url)' } } } } ] }
        sinks: { out: { from: { merge: [asked, in] }, discard: {} } }
        """, name: "a.yaml"
      ).diagnostics.filter { $0.code.name == "RX351" }.map(\.message)
    }
    let found = warnings("in", "http://127.0.0.1:8080/in")
    #expect(found.count == 1 && found[0] == "'asked' asks a source that its own events come from", "\(found)")
    #expect(warnings("in", "http://127.0.0.1:8080/else") == [])
    #expect(warnings("tick", "http://127.0.0.1:8080/in") == [])
  }
}

/// Which addresses clash, in any spelling.
@Suite struct ListenAddressTests {
  private func clash(_ first: String, _ second: String) -> Bool {
    func yaml(_ address: String) -> String {
      """
      sources: { in: { httpServer: { address: '\(address)', decode: text, allowUnauthenticated: true } } }
      sinks: { out: { from: in, discard: {} } }
      """
    }
    let front = FrontEnd(.builtIn)
    var results = [
      front.compile("name: a\n" + yaml(first), name: "a.yaml"),
      front.compile("name: b\n" + yaml(second), name: "b.yaml"),
    ]
    #expect(results.allSatisfy { !$0.hasErrors }, "\(first) \(second)")
    FrontEnd.checkTogether(&results)
    return results[1].diagnostics.contains { $0.code.name == "RX326" }
  }

  private static let spellings = [
    "8080", ":8080", "127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080", "[0:0:0:0:0:0:0:1]:8080",
    "0.0.0.0:8080", "[::]:8080", "127.0.0.2:8080",
  ]

  /// Rows and columns in the order of the spellings; `x`: only one of the two can listen.
  private static let clashes = [
    "xxxxx..xx.", "xxxxx..xx.", "xxxxx..xx.", "xxxxxxxxx.", "xxxxxxxxx.", "...xxxx.x.", "...xxxx.x.", "xxxxx..xxx",
    "xxxxxxxxxx", ".......xxx",
  ]

  @Test func spellings() {
    for (row, first) in Self.spellings.enumerated() {
      let found = Self.spellings.map { clash(first, $0) ? "x" : "." }.joined()
      #expect(found == Self.clashes[row], "\(first)")
    }
    #expect(!clash("8080", "8081"))
    #expect(!clash("127.0.0.1:0", "127.0.0.1:0"))
    #expect(clash("shop.example:80", "Shop.Example:80"))
  }
}
