import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing
import Transport

/// `charset` of sources that receive data: sockets, requests and answers.
@Suite struct CharsetSourcesTests {
  private func pipeline(_ source: String, http: (any HTTPClient)? = nil) throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { \(source) } }
      sinks: { out: { from: in, probe: {} }, bad: { from: in.errors, chain: [ { map: event.error } ], probe: {} } }
      """, http: http)
  }

  private func units(_ text: String) -> [UInt8] { text.utf16.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] } }

  @Test func streamsAreConverted() throws {
    let latin = try pipeline("tcp: { address: '127.0.0.1:0', charset: latin1 }")
    let port = try #require(latin.port())
    let client = try #require(SocketClient(port: port))
    client.send([0xFC, 0x0A, 0x67, 0x72])
    client.send([0xE4, 0x0A])
    latin.run(within: .seconds(30)) { latin.events.count == 2 }
    #expect(latin.events == ["\"\u{FC}\"", "\"gr\u{E4}\""])

    let wide = try pipeline("tcp: { address: '127.0.0.1:0', charset: utf-16le, decode: ndjson }")
    let widePort = try #require(wide.port())
    let other = try #require(SocketClient(port: widePort))
    let bytes = units("{\"a\":\"\u{0A0A}\"}\n{\"b\":2}\n")
    // Cut within a code unit.
    other.send(Array(bytes[..<15]))
    other.send(Array(bytes[15...]))
    wide.run(within: .seconds(30)) { wide.events.count == 2 }
    #expect(wide.events == ["{\"a\":\"\u{0A0A}\"}", "{\"b\":2}"])
  }

  /// Joined lines end by time; a half-received line is not part of them.
  @Test func linesOfUTF16AreJoined() throws {
    let folder = Scratch()
    let joined = try pipeline(
      "unix: { path: '\(folder("s"))', charset: utf-16le, join: { indented: true, wait: 50ms } }")
    joined.run(within: .seconds(30)) { joined.log.contains { $0.contains("listening") } }
    let client = try #require(SocketClient(path: folder("s")))
    let bytes = units("a\n b\nnext line\n c\nend\n")
    let cut = units("a\n b\nnex").count + 1
    client.send(Array(bytes[..<cut]))
    joined.run(within: .seconds(30)) { joined.events.count == 1 }
    #expect(joined.events == ["\"a\\n b\""])
    client.send(Array(bytes[cut...]))
    joined.run(within: .seconds(30)) { joined.events.count == 3 }
    #expect(joined.events == ["\"a\\n b\"", "\"next line\\n c\"", "\"end\""])
    #expect(joined.probe("bad").events == [])
  }

  @Test func linesOfUTF16InAFileAreJoined() throws {
    let folder = Scratch()
    folder.append([0xFF, 0xFE] + units("a\n b\nc\n d"), to: "in.txt")
    let file = try pipeline("file: { path: '\(folder("in.txt"))', charset: utf-16, join: { indented: true } }")
    #expect(file.runToEnd(within: .seconds(30)) == .completed)
    #expect(file.events == ["\"a\\n b\"", "\"c\\n d\""])
  }

  @Test func datagramsAreConverted() throws {
    let udp = try pipeline("udp: { address: '127.0.0.1:0', charset: windows-1252 }")
    let port = try #require(udp.port())
    let client = try #require(SocketClient(port: port, isDatagram: true))
    client.send([0x80, 0x31])
    udp.run(within: .seconds(30)) { udp.events.count == 1 }
    #expect(udp.events == ["\"\u{20AC}1\""])
  }

  /// The content type of an answer applies, the parameter overrides it, and JSON is UTF-8.
  @Test(
    arguments: [
      ("decode: text", "text/plain; charset=ISO-8859-1", [0xFC], "\"\u{FC}\""),
      ("decode: text", "text/plain; Charset=\"windows-1252\"", [0x80], "\"\u{20AC}\""),
      ("decode: text, charset: latin1", "text/plain; charset=utf-8", [0xE4], "\"\u{E4}\""),
      ("decode: text, charset: utf-8", "text/plain; charset=latin1", [0xC3, 0xA4], "\"\u{E4}\""),
      ("decode: json", "application/json; charset=latin1", [0x22, 0xC3, 0xA4, 0x22], "\"\u{E4}\""),
      ("decode: text", "text/plain; charset=klingon", [0x61], "\"a\""), ("decode: text", "text/plain", [0x61], "\"a\""),
    ] as [(String, String, [UInt8], String)])
  func bodiesAreConverted(_ parameters: String, _ type: String, _ body: [UInt8], _ expected: String) throws {
    let server = try ScriptedServer { connection in
      _ = connection.message()
      connection.send("HTTP/1.1 200 OK\r\nContent-Type: \(type)\r\nContent-Length: \(body.count)\r\n\r\n")
      connection.send(body)
      _ = connection.byte()
    }
    let asked = try pipeline("http: { url: '\(server.url)/', \(parameters) }", http: CurlClient())
    asked.runToEnd(within: .seconds(30))
    #expect(asked.events == [expected], "\(asked.probe("bad").events)")
    #expect(asked.log.contains { $0.contains("charset 'klingon' is not known here") } == type.contains("klingon"))
    server.stop()

    let served = try pipeline("httpServer: { address: '127.0.0.1:0', \(parameters) }")
    let port = try #require(served.port())
    let client = try Connection(port: port)
    for _ in 0..<2 {
      client.send(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: \(type)\r\nContent-Length: \(body.count)\r\n\r\n")
      client.send(body)
      served.run(within: .seconds(30)) { client.waits(milliseconds: 0) }
      #expect(client.message()?.head.hasPrefix("HTTP/1.1 200") == true)
    }
    #expect(served.events == [expected, expected])
  }

  @Test(arguments: [
    ("tcp: { address: 1, charset: utf-61 }", "there is no charset 'utf-61'"),
    ("udp: { address: 1, decode: bytes, charset: latin1 }", "takes no 'charset'"),
    ("httpServer: { address: 1, charset: latin1 }", "'charset' of 'httpServer' has no effect without 'decode'"),
    ("http: { url: 'http://h/', decode: bytes, charset: latin1 }", "takes no 'charset'"),
  ]) func mistakesAreFound(_ source: String, _ message: String) {
    let found = PipelineText.complaints("sources: { a: { \(source) } }\nsinks: { out: { from: a, discard: {} } }")
    #expect(found.contains { $0.contains(message) }, "\(found)")
  }
}
