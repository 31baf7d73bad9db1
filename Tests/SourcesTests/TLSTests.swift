import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing
import Transport

private let opensslPath: String? = ["/usr/bin/openssl"].first { (path: String) in access(path, X_OK) == 0 }

/// TLS of sockets, against openssl(1) and between rxd's own ends in both directions, with certificates made here.
@Suite(.enabled(if: opensslPath != nil, "needs Debian's openssl")) struct TLSTests {
  /// Certificates of the test's own authority.
  private final class Certificates {
    let folder = Scratch()

    init() throws {
      try openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority",
        "-keyout", folder("ca.key"), "-out", folder("ca.pem"))
      try make("server", "first")
      try make("client", "alice")
    }

    /// A certificate for 127.0.0.1 with this name in its subject.
    func make(_ file: String, _ subject: String) throws {
      folder.append("subjectAltName=IP:127.0.0.1,DNS:localhost\n", to: "\(file).ext")
      try openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=\(subject)", "-keyout", folder("\(file).new.key"),
        "-out", folder("\(file).csr"))
      try openssl(
        "x509", "-req", "-in", folder("\(file).csr"), "-CA", folder("ca.pem"), "-CAkey", folder("ca.key"),
        "-CAcreateserial", "-days", "2", "-extfile", folder("\(file).ext"), "-out", folder("\(file).new.pem"))
      // Key and certificate in one file, which is replaced atomically.
      folder.append(folder.read("\(file).new.pem") + folder.read("\(file).new.key"), to: "\(file).both")
      rename(folder("\(file).both"), folder("\(file).pem"))
    }

    private func openssl(_ arguments: String...) throws {
      let process = Process()
      process.executableURL = URL(fileURLWithPath: opensslPath ?? "")
      process.arguments = arguments
      process.standardError = FileHandle.nullDevice
      process.standardOutput = FileHandle.nullDevice
      try process.run()
      process.waitUntilExit()
      #expect(process.terminationStatus == 0, "\(arguments)")
    }
  }

  private func receiving(_ tls: String) throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { tcp: { address: '127.0.0.1:0', tls: \(tls) } } }
      sinks: { out: { from: in, chain: [ { map: "[event, has(meta.subject) ? meta.subject : '']" } ], probe: {} } }
      """)
  }

  private func sending(_ port: Int, _ tls: String, name: String = "") throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { values: [one, two] } }
      sinks: { out: { from: in, tcp: { address: '127.0.0.1:\(port)', encode: text, reconnect: 20ms, tls: \(tls)\(name) } } }
      """)
  }

  @Test func encryptsBetweenBothEnds() throws {
    let made = try Certificates()
    let server = try receiving("{ certificate: \(made.folder("server.pem")) }")
    let client = try sending(try #require(server.port()), "{ ca: \(made.folder("ca.pem")) }")
    #expect(client.runToEnd(within: .seconds(30)) == .completed)
    server.run(within: .seconds(30)) { server.events.count >= 2 }
    #expect(server.events == [#"["one",""]"#, #"["two",""]"#])
  }

  /// More than the buffers of both systems hold.
  @Test func encryptsMuch() throws {
    let made = try Certificates()
    let server = try RealPipeline(
      """
      sources: { in: { tcp: { address: '127.0.0.1:0', decode: ndjson, tls: \(made.folder("server.pem")) } } }
      sinks: { out: { from: in, discard: {} } }
      """)
    let count = 50_000
    made.folder.append(
      (0..<count).map { "{\"n\":\($0),\"text\":\"\(String(repeating: "x", count: 200))\"}\n" }.joined(), to: "in")
    let client = try RealPipeline(
      """
      sources: { in: { file: { path: \(made.folder("in")), decode: ndjson } } }
      sinks: { out: { from: in, tcp: { address: '127.0.0.1:\(try #require(server.port()))', tls: { ca: \(made.folder("ca.pem")) } } } }
      """)
    // The turns of both run here alternately; otherwise one would wait for the other.
    let end = Date(timeIntervalSinceNow: 60)
    while Date() < end, client.outcome == nil || server.counters.received < UInt64(count) {
      client.run(within: .milliseconds(5)) { client.outcome != nil }
      server.run(within: .milliseconds(5)) { server.counters.received >= UInt64(count) }
    }
    #expect(server.counters.received == UInt64(count))
    #expect(client.counters.sent == UInt64(count))
  }

  @Test func letsOnlyKnownClientsIn() throws {
    let made = try Certificates()
    let server = try receiving("{ certificate: \(made.folder("server.pem")), clientCA: \(made.folder("ca.pem")) }")
    let port = try #require(server.port())
    let stranger = try sending(port, "{ ca: \(made.folder("ca.pem")) }")
    // The turns of each pipeline run only here.
    stranger.run(within: .seconds(30)) { stranger.log.contains { $0.contains("trying again") } }
    server.run(within: .seconds(30)) { server.log.contains { $0.contains("is over") } }
    #expect(
      server.log.contains {
        $0.contains("the TLS handshake failed") && $0.contains("peer did not return a certificate")
      }, "\(server.log)")
    #expect(stranger.counters.sent == 0)
    stranger.inTurn { $0.execution.cancel() }
    #expect(stranger.run(within: .seconds(30)) { stranger.execution.hasClosed })
    let known = try sending(
      port,
      "{ ca: \(made.folder("ca.pem")), certificate: \(made.folder("client.pem")), key: \(made.folder("client.pem")) }")
    #expect(known.runToEnd(within: .seconds(30)) == .completed)
    server.run(within: .seconds(30)) { server.events.count >= 2 }
    #expect(server.events == [#"["one","CN = alice"]"#, #"["two","CN = alice"]"#])
  }

  @Test func sendsToNobodyWhoseCertificateIsWrong() throws {
    let made = try Certificates()
    let server = try receiving(made.folder("server.pem"))
    let port = try #require(server.port())
    for (tls, name, reason) in [
      ("{}", "", "the certificate is not accepted"),
      ("{ ca: \(made.folder("ca.pem")) }", ", serverName: other.example", "mismatch"),
    ] {
      let client = try sending(port, tls, name: name)
      client.run(within: .seconds(30)) { client.log.contains { $0.contains("trying again") } }
      #expect(client.log.contains { $0.contains(reason) }, "\(client.log)")
      client.inTurn { $0.execution.cancel() }
      #expect(client.run(within: .seconds(30)) { client.execution.hasClosed })
    }
    #expect(server.events == [])
  }

  /// A connection made after the files have changed gets the new certificate; unusable files change nothing.
  @Test func readsChangedCertificates() throws {
    let made = try Certificates()
    let server = try receiving(made.folder("server.pem"))
    let port = try #require(server.port())
    func subject() throws -> String {
      let process = Process()
      // openssl has no time limit, and no turn runs here meanwhile.
      process.executableURL = URL(fileURLWithPath: "/usr/bin/timeout")
      process.arguments = [
        "20", opensslPath ?? "", "s_client", "-connect", "127.0.0.1:\(port)", "-CAfile", made.folder("ca.pem"),
      ]
      let output = Pipe()
      process.standardOutput = output
      process.standardError = FileHandle.nullDevice
      process.standardInput = FileHandle.nullDevice
      try process.run()
      let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
      process.waitUntilExit()
      return text.split(separator: "\n").first { $0.hasPrefix("subject=") }.map(String.init) ?? text
    }
    #expect(try subject() == "subject=CN = first")
    try made.make("server", "second")
    // The files are checked once a second.
    let end = Date(timeIntervalSinceNow: 60)
    while try subject() != "subject=CN = second", Date() < end {}
    #expect(try subject() == "subject=CN = second")
    made.folder.append("nonsense", to: "broken")
    rename(made.folder("broken"), made.folder("server.pem"))
    while !server.log.contains(where: { $0.contains("the old certificate stays in use") }), Date() < end {
      #expect(try subject() == "subject=CN = second")
    }
    #expect(server.log.contains { $0.contains("the certificate was read again") })
  }

  @Test func takesWhatOpensslSends() throws {
    let made = try Certificates()
    let server = try receiving(made.folder("server.pem"))
    let process = Process()
    process.executableURL = URL(fileURLWithPath: opensslPath ?? "")
    process.arguments = [
      "s_client", "-quiet", "-no_ign_eof", "-verify_return_error", "-connect",
      "127.0.0.1:\(try #require(server.port()))", "-CAfile",
      made.folder("ca.pem"),
    ]
    let input = Pipe()
    process.standardInput = input
    process.standardError = FileHandle.nullDevice
    try process.run()
    try input.fileHandleForWriting.write(contentsOf: Data("one\ntwo\n".utf8))
    server.run(within: .seconds(30)) { server.events.count >= 2 }
    try input.fileHandleForWriting.close()
    process.waitUntilExit()
    #expect(server.events == [#"["one",""]"#, #"["two",""]"#])
  }

  @Test func reportsWhichFileCannotBeUsed() throws {
    let made = try Certificates()
    made.folder.append("nonsense", to: "bad.pem")
    for file in ["bad.pem", "missing.pem"] {
      let server = try receiving(made.folder(file))
      server.runToEnd()
      #expect(server.failure?.message.contains(made.folder(file)) == true, "\(String(describing: server.failure))")
    }
  }

  // MARK: sse and webSocket

  @Test func anSSESinkSpeaksTLS() throws {
    let made = try Certificates()
    let source = TrackedSource()
    let pipeline = try RealPipeline(
      """
      sources: { in: { never: {} } }
      sinks: { out: { from: in, sse: { address: '127.0.0.1:0', tls: \(made.folder("server.pem")) } } }
      """
    ) { execution in execution.replacements.sources = { $0 == "in" ? source : nil } }
    let port = try #require(pipeline.port())
    var request = HTTPRequest(url: "https://127.0.0.1:\(port)/events")
    request.options.tls.caFile = made.folder("ca.pem")
    let client = CurlClient()
    let text = Mutex("")
    let ring = pipeline.ring
    let call = client.stream(request) { part in
      if case .bytes(let bytes) = part { text.withLock { $0 += String(decoding: bytes, as: UTF8.self) } }
      ring()
    }
    pipeline.run { text.withLock { $0.contains(":\n") } }
    source.feed.send(1, [7])
    pipeline.run { text.withLock { $0.contains("data: 7\n") } }
    call.cancel()
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }

  /// Both ends of a WebSocket are rxd, with TLS; a client that does not trust the authority is not connected.
  @Test func webSocketsSpeakTLS() throws {
    let made = try Certificates()
    let server = try RealPipeline(
      """
      sources: { in: { webSocket: { listen: '127.0.0.1:0', path: /in, serverTLS: \(made.folder("server.pem")) } } }
      sinks: { out: { from: in, probe: {} } }
      """)
    let port = try #require(server.port())
    func client(_ tls: String) throws -> RealPipeline {
      try RealPipeline(
        """
        sources: { in: { values: { list: [x], every: 1h } } }
        sinks: { out: { from: in, webSocket: { url: 'wss://127.0.0.1:\(port)/in', tls: \(tls), reconnect: 1ms } } }
        """)
    }
    let stranger = try client("{}")
    stranger.run { stranger.log.contains { $0.contains("certificate") } }
    stranger.inTurn { $0.execution.cancel() }
    let known = try client("{ ca: \(made.folder("ca.pem")) }")
    // Both run turns until the message has arrived.
    while server.events.isEmpty {
      known.run(within: .milliseconds(20)) { false }
      server.run(within: .milliseconds(20)) { !server.events.isEmpty }
    }
    #expect(server.events == [#""x""#])
  }

  /// The subject of a client's certificate is known for each message; a client without one is refused.
  @Test func webSocketsKnowTheirClients() throws {
    let made = try Certificates()
    let server = try RealPipeline(
      """
      sources: { in: { webSocket: { listen: '127.0.0.1:0', path: /in, serverTLS: { certificate: \(made.folder("server.pem")), clientCA: \(made.folder("ca.pem")) } } } }
      sinks: { out: { from: in, chain: [ { map: '[event, meta.subject]' } ], probe: {} } }
      """)
    let port = try #require(server.port())
    func client(_ tls: String) throws -> RealPipeline {
      try RealPipeline(
        """
        sources: { in: { values: { list: [x], every: 1h } } }
        sinks: { out: { from: in, webSocket: { url: 'wss://127.0.0.1:\(port)/in', tls: { ca: \(made.folder("ca.pem"))\(tls) }, reconnect: 1ms } } }
        """)
    }
    let stranger = try client("")
    stranger.run(within: .seconds(30)) { stranger.log.contains { $0.contains("trying again") } }
    stranger.inTurn { $0.execution.cancel() }
    let known = try client(", certificate: \(made.folder("client.pem")), key: \(made.folder("client.pem"))")
    for _ in 0..<1000 where server.events.isEmpty {
      known.run(within: .milliseconds(20)) { false }
      server.run(within: .milliseconds(20)) { !server.events.isEmpty }
    }
    #expect(server.events.count == 1 && server.events[0].contains("alice"), "\(server.events)")
    #expect(server.events.allSatisfy { $0.hasPrefix(#"["x""#) })
  }

  // MARK: httpServer

  private func serving(_ tls: String, _ rest: String = "decode: text") throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { httpServer: { address: '127.0.0.1:0', tls: \(tls), maxBody: 8MiB, \(rest) } } }
      sinks: { out: { from: in, chain: [ { map: "[event, has(meta.subject) ? meta.subject : '']" } ], probe: {} } }
      """)
  }

  /// Sends requests one after another while the pipeline runs; returns the statuses, or why there is none.
  private func post(_ pipeline: RealPipeline, _ requests: [HTTPRequest]) -> [String] {
    let client = CurlClient()
    let answers = Mutex<[String]>([])
    for request in requests {
      let ring = pipeline.ring
      _ = client.send(request) { result in
        answers.withLock {
          switch result {
          case .success(let response): $0.append("\(response.status)")
          case .failure(let failure): $0.append("\(failure.kind)")
          }
        }
        ring()
      }
      let count = answers.withLock(\.count) + 1
      pipeline.run(within: .seconds(30)) { answers.withLock { $0.count >= count } }
    }
    return answers.withLock { $0 }
  }

  private func request(_ port: Int, _ made: Certificates, body: [UInt8] = Array("one".utf8)) -> HTTPRequest {
    var request = HTTPRequest(method: "POST", url: "https://127.0.0.1:\(port)/", body: body)
    request.options.tls.caFile = made.folder("ca.pem")
    return request
  }

  @Test func anHTTPServerSpeaksTLS() throws {
    let made = try Certificates()
    let server = try serving("{ certificate: \(made.folder("server.pem")) }")
    let port = try #require(server.port())
    let large = [UInt8](repeating: UInt8(ascii: "x"), count: 3 << 20)
    #expect(
      post(server, [request(port, made), request(port, made, body: large), request(port, made)]) == [
        "200", "200", "200",
      ])
    #expect(server.events.count == 3)
    #expect(server.events.first == #"["one",""]"# && server.events.map(\.utf8.count).max() == (3 << 20) + 7)
  }

  @Test func anHTTPServerRefusesWhoShowsNoCertificate() throws {
    let made = try Certificates()
    let server = try serving(
      "{ certificate: \(made.folder("server.pem")), clientCA: \(made.folder("ca.pem")) }")
    let port = try #require(server.port())
    var known = request(port, made)
    known.options.tls.certificateFile = made.folder("client.pem")
    known.options.tls.keyFile = made.folder("client.pem")
    var plain = request(port, made)
    plain.url = "http://127.0.0.1:\(port)/"
    let answers = post(server, [request(port, made), plain, known])
    #expect(
      answers.count == 3 && answers.last == "200" && !answers.dropLast().contains { $0.hasPrefix("2") }, "\(answers)")
    #expect(server.events == [#"["one","CN = alice"]"#])
    server.run(within: .seconds(30)) {
      server.log.contains { $0.contains("a connection is over: the TLS handshake failed") }
    }
    #expect(server.log.contains { $0.hasPrefix("warning") && $0.contains("a connection is over") }, "\(server.log)")
  }

  /// A large answer is sent in many records.
  @Test func anHTTPServerAnswersOverTLS() throws {
    let made = try Certificates()
    let server = try RealPipeline(
      """
      sources: { in: { httpServer: { address: '127.0.0.1:0', tls: \(made.folder("server.pem")) } } }
      signals: { answers: { from: in, chain: [ { map: { text: "event.body + event.body + event.body + event.body" } } ] } }
      sinks: { out: { from: answers, reply: { encode: json } } }
      """)
    let port = try #require(server.port())
    let body = [UInt8](repeating: UInt8(ascii: "y"), count: 1 << 20)
    let client = CurlClient()
    let answer = Mutex<Result<HTTPResponse, HTTPFailure>?>(nil)
    let ring = server.ring
    _ = client.send(request(port, made, body: body)) { result in
      answer.withLock { $0 = result }
      ring()
    }
    server.run(within: .seconds(30)) { answer.withLock { $0 != nil } }
    let response = try #require(try answer.withLock { $0 }?.get())
    #expect(response.status == 200 && response.body.count > 4 << 20)
  }

  @Test func anHTTPServerWithoutItsCertificateFails() throws {
    let server = try serving("{ certificate: /nonexistent.pem }")
    #expect(server.runToEnd(within: .seconds(30)) != .completed)
    #expect(server.failure?.message.contains("TLS cannot be used") == true, "\(String(describing: server.outcome))")
  }

  /// Data on a connection without a handshake is not a request, and does no harm.
  @Test func anHTTPServerSurvivesNonsense() throws {
    let made = try Certificates()
    let server = try serving("{ certificate: \(made.folder("server.pem")) }")
    let port = try #require(server.port())
    for text in ["", "\u{16}\u{03}\u{01}", "GET / HTTP/1.1\r\n\r\n", String(repeating: "z", count: 100_000)] {
      let connection = try Connection(port: port)
      connection.send(text)
      connection.finishSending()
      #expect(!connection.readAll().hasPrefix("HTTP"))
      connection.close()
    }
    #expect(post(server, [request(port, made)]) == ["200"])
  }
}
