import Foundation
import PipelineCore
import PipelineHost
import Testing

private let opensslPath: String? = ["/usr/bin/openssl"].first { (path: String) in access(path, X_OK) == 0 }

/// TLS of sockets, against openssl(1) and both ways between rxd's own ends, with certificates that are made here.
@Suite(.enabled(if: opensslPath != nil, "needs Debian's openssl")) struct TLSTests {
  /// Certificates of an authority of the test's own.
  private final class Certificates {
    let folder = Scratch()

    init() throws {
      try openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority",
        "-keyout", folder("ca.key"), "-out", folder("ca.pem"))
      try make("server", "first")
      try make("client", "alice")
    }

    /// A certificate for 127.0.0.1 with that name in its subject.
    func make(_ file: String, _ subject: String) throws {
      folder.append("subjectAltName=IP:127.0.0.1,DNS:localhost\n", to: "\(file).ext")
      try openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=\(subject)", "-keyout", folder("\(file).new.key"),
        "-out", folder("\(file).csr"))
      try openssl(
        "x509", "-req", "-in", folder("\(file).csr"), "-CA", folder("ca.pem"), "-CAkey", folder("ca.key"),
        "-CAcreateserial", "-days", "2", "-extfile", folder("\(file).ext"), "-out", folder("\(file).new.pem"))
      // Key and certificate in one file, which changes in one step.
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
    // The turns of both run here, in turn, or one would wait for the other.
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
    // Each pipeline runs its turns only here.
    stranger.run(within: .seconds(30)) { stranger.log.contains { $0.contains("trying again") } }
    server.run(within: .seconds(30)) { server.log.contains { $0.contains("is over") } }
    #expect(
      server.log.contains {
        $0.contains("the TLS handshake failed") && $0.contains("peer did not return a certificate")
      }, "\(server.log)")
    #expect(stranger.counters.sent == 0)
    stranger.inTurn { $0.execution.cancel() }
    #expect(stranger.run(within: .seconds(30)) { stranger.execution.outcome != nil })
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
      #expect(client.run(within: .seconds(30)) { client.execution.outcome != nil })
    }
    #expect(server.events == [])
  }

  /// A connection that comes after the files have changed has the new certificate; files that cannot be used change nothing.
  @Test func readsChangedCertificates() throws {
    let made = try Certificates()
    let server = try receiving(made.folder("server.pem"))
    let port = try #require(server.port())
    func subject() throws -> String {
      let process = Process()
      process.executableURL = URL(fileURLWithPath: opensslPath ?? "")
      process.arguments = ["s_client", "-connect", "127.0.0.1:\(port)", "-CAfile", made.folder("ca.pem")]
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
    // The files are looked at once a second.
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

  @Test func saysWhichFileCannotBeUsed() throws {
    let made = try Certificates()
    made.folder.append("nonsense", to: "bad.pem")
    for file in ["bad.pem", "missing.pem"] {
      let server = try receiving(made.folder(file))
      server.runToEnd()
      #expect(server.failure?.message.contains(made.folder(file)) == true, "\(String(describing: server.failure))")
    }
  }
}
