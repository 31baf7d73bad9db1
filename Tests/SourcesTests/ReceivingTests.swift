import Foundation
import PipelineCore
import PipelineHost
import Testing
import Transport

/// Sources that receive data: real sockets on the loopback address and in the file system.
@Suite struct ReceivingTests {
  private func pipeline(
    _ source: String, chain: String = "", before: (Execution) -> Void = { _ in }
  ) throws -> RealPipeline {
    try RealPipeline(
      "sources: { in: { \(source) } }\nsinks: { out: { from: in, \(chain)probe: {} }, bad: { from: in.errors, probe: {} } }",
      before: before)
  }

  private func client(_ pipeline: RealPipeline, isDatagram: Bool = false) throws -> SocketClient {
    let port = try #require(pipeline.port())
    return try #require(SocketClient(port: port, isDatagram: isDatagram))
  }

  private func waits(_ pipeline: RealPipeline, _ count: Int, of probe: String = "out") -> [String] {
    pipeline.run { pipeline.probe(probe).events.count >= count }
    return pipeline.probe(probe).events
  }

  private func drain(_ pipeline: RealPipeline) -> Execution.Outcome? {
    pipeline.inTurn { $0.execution.drain() }
    return pipeline.runToEnd()
  }

  @Test func receivesLinesOverTCP() throws {
    let pipeline = try pipeline(
      "tcp: '127.0.0.1:0'", chain: "chain: [ { map: '[event, meta.peer.startsWith(\"127.0.0.1:\")]' } ], ")
    let client = try client(pipeline)
    client.send("one\ntw")
    #expect(waits(pipeline, 1) == [#"["one",true]"#])
    client.send("o\r\nlast")
    client.end()
    #expect(waits(pipeline, 3) == [#"["one",true]"#, #"["two",true]"#, #"["last",true]"#])
    #expect(drain(pipeline) == .completed)
    #expect(pipeline.counters.received == 3)
  }

  @Test(arguments: [
    ("framing: nul, decode: json", "[1]\0\n[2]\0", ["[1]", "[2]"]),
    ("framing: { by: length, bytes: 2 }", "\0\u{1}a\0\u{3}b\nc", ["\"a\"", "\"b\\nc\""]),
    ("framing: octets, decode: ndjson", "3 [1]3 [2]", ["[1]", "[2]"]),
    ("framing: { by: fixed, bytes: 2 }", "abcd", ["\"ab\"", "\"cd\""]),
    ("framing: whole", "a\nb\n", ["\"a\\nb\\n\""]),
    ("decode: ndjson", "{\"a\":1}\n\n{\"a\":2}\n", ["{\"a\":1}", "{\"a\":2}"]),
    ("decode: { csv: { header: true } }", "a,b\n1,2\n", [#"{"a":"1","b":"2"}"#]),
  ]) func cutsAndDecodes(_ parameters: String, _ sent: String, _ expected: [String]) throws {
    let pipeline = try pipeline("tcp: { address: '127.0.0.1:0', \(parameters) }")
    let client = try client(pipeline)
    client.send(sent)
    client.end()
    #expect(waits(pipeline, expected.count) == expected)
    #expect(drain(pipeline) == .completed)
  }

  /// Each connection is a separate stream: incomplete messages of several are not mixed.
  @Test func keepsConnectionsApart() throws {
    let pipeline = try pipeline("tcp: '127.0.0.1:0'")
    let clients = try (0..<20).map { _ in try client(pipeline) }
    for round in 0..<3 { for (number, one) in clients.enumerated() { one.send("\(number)-\(round)") } }
    for one in clients { one.send("\n") }
    let events = Set(waits(pipeline, 20))
    #expect(events == Set((0..<20).map { "\"\($0)-0\($0)-1\($0)-2\"" }))
  }

  @Test func rejectsWhatIsTooLongOrNoMessage() throws {
    let pipeline = try pipeline("tcp: { address: '127.0.0.1:0', maxMessage: 5B, decode: json }")
    let client = try client(pipeline)
    client.send("[1234567]\n[2]\nno\n")
    #expect(waits(pipeline, 1) == ["[2]"])
    let bad = waits(pipeline, 2, of: "bad")
    #expect(
      bad.contains {
        $0.contains("the line has 9 bytes, more than the 5 that 'maxMessage' allows") && $0.contains("[1234")
      })
    #expect(bad.contains { $0.contains(#""event":"no""#) && $0.contains("\"offset\":14") })
  }

  @Test func closesAStreamThatCannotBeUnderstood() throws {
    let pipeline = try pipeline("tcp: { address: '127.0.0.1:0', framing: octets }")
    let client = try client(pipeline)
    client.send("2 okx nonsense")
    #expect(waits(pipeline, 1) == ["\"ok\""])
    #expect(waits(pipeline, 1, of: "bad").first?.contains("must begin with its length") == true)
    pipeline.run { pipeline.log.contains { $0.contains("is over") } }
    #expect(client.receive()?.isEmpty == true)
  }

  @Test func closesConnectionsBeyondTheLimit() throws {
    let pipeline = try pipeline("tcp: { address: '127.0.0.1:0', maxConnections: 1 }")
    let first = try client(pipeline)
    first.send("a\n")
    _ = waits(pipeline, 1)
    let second = try client(pipeline)
    #expect(second.receive()?.isEmpty == true)
    pipeline.run { pipeline.log.contains { $0.contains("'maxConnections', 1, are open") } }
    first.end()
    first.end()
    // The connection's slot is free when the thread has noticed its end.
    var third: SocketClient?
    let end = Date(timeIntervalSinceNow: 30)
    while third == nil, Date() < end {
      let next = SocketClient(port: pipeline.port() ?? 0)
      if next?.receive(within: 50) == nil { third = next }
    }
    third?.send("b\n")
    #expect(third != nil)
    #expect(waits(pipeline, 2).last == "\"b\"")
  }

  @Test func closesIdleConnections() throws {
    let pipeline = try pipeline("tcp: { address: '127.0.0.1:0', idleTimeout: 50ms }")
    let client = try client(pipeline)
    client.send("a")
    #expect(client.receive()?.isEmpty == true)
    #expect(waits(pipeline, 1) == ["\"a\""])
    #expect(pipeline.log.contains { $0.contains("it has sent nothing for 50ms") })
  }

  /// A pipeline that accepts nothing stops reading: the sender is held back, and nothing is lost.
  @Test func holdsSendersBack() throws {
    let pipeline = try pipeline("tcp: { address: '127.0.0.1:0', receiveBuffer: 8KiB }")
    let client = try client(pipeline)
    let port = try #require(pipeline.port())
    _ = port
    let lines = 20_000
    nonisolated(unsafe) let sending = client
    let text = (0..<lines).map { "\($0) " + String(repeating: "x", count: 100) + "\n" }.joined()
    let thread = Thread {
      sending.send(text)
      sending.endSending()
    }
    thread.start()
    // No turn runs here: the thread can only fill the queue between the two.
    #expect(pipeline.run { pipeline.counters.received >= UInt64(lines) })
    #expect(pipeline.counters.received == UInt64(lines))
  }

  @Test func receivesDatagrams() throws {
    let pipeline = try pipeline("udp: { address: '127.0.0.1:0', decode: json, maxMessage: 100B }")
    let client = try client(pipeline, isDatagram: true)
    client.send("{\"a\":1}")
    client.send("[1]\n[2]")
    client.send(String(repeating: "[", count: 101))
    #expect(waits(pipeline, 3) == [#"{"a":1}"#, "[1]", "[2]"])
    #expect(waits(pipeline, 1, of: "bad").first?.contains("longer than the 100 bytes") == true)
    #expect(drain(pipeline) == .completed)
  }

  /// Datagrams dropped for lack of room in the system's buffer are counted by the kernel, and logged.
  @Test func reportsHowManyDatagramsWereDropped() throws {
    let pipeline = try pipeline("udp: { address: '127.0.0.1:0', receiveBuffer: 4KiB }")
    let client = try client(pipeline, isDatagram: true)
    // No turn runs meanwhile, so the receiver soon waits for the pipeline.
    for number in 0..<3000 { client.send("\(number) " + String(repeating: "x", count: 200)) }
    client.send("last")
    #expect(
      pipeline.run {
        client.send("more")
        return pipeline.log.contains { $0.contains("the system had no room for") }
      })
  }

  @Test(arguments: ["stream", "datagram"]) func receivesOverUnixSockets(_ kind: String) throws {
    let folder = Scratch()
    let path = folder("s")
    let pipeline = try pipeline(
      "unix: { path: \(path), kind: \(kind), mode: '0660' }", chain: "chain: [ { map: '[event, meta.pid]' } ], ")
    #expect(pipeline.run(within: .seconds(20)) { pipeline.log.contains { $0.contains("listening on") } })
    var status = stat()
    #expect(stat(path, &status) == 0 && status.st_mode & 0o777 == 0o660)
    let client = try #require(SocketClient(path: path, isDatagram: kind == "datagram"))
    client.send(kind == "stream" ? "a\n" : "a")
    #expect(waits(pipeline, 1) == ["[\"a\",\(getpid())]"])
    #expect(drain(pipeline) == .completed)
    #expect(stat(path, &status) != 0)
  }

  /// Input that arrived before the end is sent, although no turn has taken it.
  @Test func sendsWhatHasArrivedBeforeItEnds() throws {
    let pipeline = try pipeline("tcp: '127.0.0.1:0'")
    let client = try client(pipeline)
    client.send("a\n")
    _ = waits(pipeline, 1)
    client.send((0..<1000).map { "\($0)\n" }.joined())
    #expect(drain(pipeline) == .completed)
    #expect(pipeline.events.count == 1001)
  }

  @Test func reportsWhyItCannotListen() throws {
    let (taken, port) = try #require(SocketClient.listening())
    let other = try pipeline("tcp: '127.0.0.1:\(port)'")
    other.runToEnd()
    #expect(other.failure?.message.contains("another program listens there") == true)
    _ = taken
    let unknown = try pipeline("tcp: systemd:logs")
    unknown.runToEnd()
    #expect(unknown.failure?.message.contains("systemd has opened no socket 'logs'") == true)
  }

  @Test(arguments: [
    ("tcp: 0.0.0.0:5170", "'tcp' would accept events from anyone who can reach 0.0.0.0"),
    ("tcp: { address: 1, framing: fixed }", "'framing: fixed' needs 'bytes', the size of each message"),
    (
      "tcp: { address: 1, framing: { by: length, bytes: 3 } }",
      "'bytes' of 'framing: length' is 3, but a length has 2 or 4 bytes"
    ),
    ("tcp: { address: 1, framing: { by: nul, bytes: 3 } }", "'bytes' of 'framing' has no effect with 'by: nul'"),
    ("udp: { address: 1, maxMessage: 1MiB }", "'maxMessage' of 'udp' is 1MiB, but a datagram has at most 64KiB"),
    (
      "unix: { path: /a, kind: datagram, framing: nul }",
      "'framing' of 'unix' has no effect with 'kind: datagram'"
    ),
    (
      "unix: { path: /a, kind: datagram, decode: { container: { wait: 2s } } }",
      "'wait' of 'decode.container' has no effect with 'kind: datagram'"
    ),
    (
      "unix: { path: /a, framing: nul, decode: { container: { wait: 2s } } }",
      "'wait' of 'decode.container' has no effect with 'framing: nul'"
    ),
    (
      "tcp: { address: 5170, framing: { by: length, bytes: 2 }, decode: { container: { wait: 2s } } }",
      "'wait' of 'decode.container' has no effect with 'framing.by: length'"
    ),
    (
      "tcp: { address: 5170, framing: octets, decode: { container: { wait: 2s } } }",
      "'wait' of 'decode.container' has no effect with 'framing: octets'"
    ),
    ("unix: { path: /a, mode: '999' }", "'999' is not a valid mode of a socket"),
    ("unix: ''", "a Unix socket needs a path"),
    ("unix: \"/a\\0b\"", "the path of a Unix socket holds a NUL character"),
    ("unix: \"/a\\nb\"", "the path of a Unix socket holds a line feed"),
    ("syslog: { address: 1, tls: a.pem }", "'tls' of 'syslog' has no effect without 'transport: tcp'"),
    ("syslog: { address: /dev/log, transport: tcp }", "'transport: tcp' needs an address, and '/dev/log' is a path"),
    ("tcp: 'systemd:'", "'systemd:' needs the name of a socket"),
  ]) func refuses(_ source: String, _ message: String) {
    let complaints = PipelineText.complaints("sources: { a: { \(source) } }\nsinks: { out: { from: a, discard: {} } }")
    #expect(complaints.contains { $0.hasSuffix(message) }, "\(complaints)")
  }

  @Test func portsOfDatagramsAreTheirOwn() {
    func complaints(_ first: String, _ second: String) -> [String] {
      PipelineText.complaints(
        "sources: { a: { \(first) }, b: { \(second) } }\nsinks: { out: { from: { merge: [a, b] }, discard: {} } }")
    }
    #expect(complaints("tcp: 5170", "udp: 5170") == [])
    #expect(
      complaints("tcp: 5170", "httpServer: { address: 5170, decode: json }").first?.contains("only one source") == true)
    #expect(complaints("udp: 5170", "syslog: 5170").first?.contains("only one source") == true)
  }
}
