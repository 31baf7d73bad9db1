import Foundation
import PipelineCore
import PipelineHost
import Testing

/// Sinks that send to sockets: real receivers on the loopback address and in the file system.
@Suite struct SocketSinkTests {
  private func pipeline(_ sink: String, values: String = "[1, two, { a: 3 }]") throws -> RealPipeline {
    try RealPipeline(
      "sources: { in: { values: \(values) } }\nsinks: { out: { from: in, \(sink) }, bad: { from: out.errors, probe: {} } }"
    )
  }

  @Test(arguments: [
    ("", "1\n\"two\"\n{\"a\":3}\n"), (", framing: nul, encode: text", "1\0two\0{\"a\":3}\0"),
    (", framing: octets", "1 15 \"two\"7 {\"a\":3}"),
    (", framing: length, encode: text", "\0\0\0\u{1}1\0\0\0\u{3}two\0\0\0\u{7}{\"a\":3}"),
    (", framing: none, encode: text", "1two{\"a\":3}"),
  ]) func framesMessages(_ parameters: String, _ expected: String) throws {
    let (receiver, port) = try #require(SocketClient.listening())
    let pipeline = try pipeline("tcp: { address: '127.0.0.1:\(port)'\(parameters) }")
    let text = TextBox()
    let ring = pipeline.ring
    nonisolated(unsafe) let listening = receiver
    Thread {
      text.text = listening.accept()?.receiveAll()
      ring()
    }.start()
    #expect(pipeline.runToEnd() == .completed)
    pipeline.run { text.text != nil }
    #expect(text.text == expected)
    #expect(pipeline.counters.sent == 3)
  }

  /// At first there is no receiver: events wait, and the log says so once.
  @Test func waitsForItsReceiver() throws {
    let (receiver, port) = try #require(SocketClient.listening())
    receiver.end()
    let pipeline = try pipeline("tcp: { address: '127.0.0.1:\(port)', reconnect: 5ms }")
    pipeline.run { pipeline.log.contains { $0.contains("Connection refused; trying again") } }
    #expect(pipeline.counters.sent == 0)
    let (later, _) = try #require(SocketClient.listening(port: port))
    let text = TextBox()
    let ring = pipeline.ring
    nonisolated(unsafe) let listening = later
    Thread {
      text.text = listening.accept()?.receiveAll()
      ring()
    }.start()
    #expect(pipeline.runToEnd() == .completed)
    pipeline.run { text.text != nil }
    #expect(text.text == "1\n\"two\"\n{\"a\":3}\n")
    #expect(pipeline.log.count { $0.contains("trying again") } == 1)
    #expect(pipeline.log.contains { $0.contains("sending again, after") })
  }

  /// A receiver that breaks its connections receives unread data again: nothing is missing.
  @Test func sendsAgainWhatABrokenConnectionDidNotTake() throws {
    let folder = Scratch()
    let receiver = try #require(SocketClient.listening(path: folder("s")))
    let count = 20_000
    let pipeline = try RealPipeline(
      """
      sources: { in: { values: [\((0..<count).map(String.init).joined(separator: ", "))] } }
      sinks: { out: { from: in, unix: { path: \(folder("s")), reconnect: 1ms, queue: 4KiB } } }
      """)
    let seen = TextBox()
    let ring = pipeline.ring
    nonisolated(unsafe) let listening = receiver
    Thread {
      var numbers = Set<Int>()
      var connections = 0
      while numbers.count < count, let connection = listening.accept() {
        connections += 1
        var bytes: [UInt8] = []
        while let more = connection.receive(), !more.isEmpty {
          bytes += more
          if connections <= 5, bytes.count > 2000 * connections { break }
        }
        let whole = bytes.lastIndex(of: 10).map { bytes[...$0] } ?? []
        for line in String(decoding: whole, as: UTF8.self).split(separator: "\n") {
          if let number = Int(line) { numbers.insert(number) }
        }
        connection.end()
      }
      seen.text = "\(numbers.count) of \(connections)"
      ring()
    }.start()
    #expect(pipeline.runToEnd() == .completed)
    pipeline.run { seen.text != nil }
    #expect(seen.text?.hasPrefix("\(count) of ") == true, "\(seen.text ?? "")")
    #expect(pipeline.counters.sent == UInt64(count))
  }

  @Test func sendsDatagrams() throws {
    let (receiver, port) = try #require(SocketClient.listening(isDatagram: true))
    let long = String(repeating: "x", count: 65_508)
    let pipeline = try pipeline("udp: { address: '127.0.0.1:\(port)', encode: text }", values: "[one, two, \(long)]")
    #expect(pipeline.runToEnd() == .completed)
    #expect(receiver.receive() == Array("one".utf8))
    #expect(receiver.receive() == Array("two".utf8))
    #expect(pipeline.probe("bad").events.first?.contains("has 65508 bytes, more than the 65507 of a datagram") == true)
  }

  @Test(arguments: ["stream", "datagram"]) func sendsToUnixSockets(_ kind: String) throws {
    let folder = Scratch()
    let receiving = try RealPipeline(
      "sources: { in: { unix: { path: \(folder("s")), kind: \(kind) } } }\nsinks: { out: { from: in, probe: {} } }")
    receiving.run { receiving.log.contains { $0.contains("listening on") } }
    let sending = try pipeline("unix: { path: \(folder("s")), kind: \(kind), encode: text }")
    // The turns of both run here alternately.
    let end = Date(timeIntervalSinceNow: 60)
    while Date() < end, sending.outcome == nil || receiving.events.count < 3 {
      sending.run(within: .milliseconds(5)) { sending.outcome != nil }
      receiving.run(within: .milliseconds(5)) { receiving.events.count >= 3 }
    }
    #expect(sending.outcome == .completed)
    #expect(receiving.events == ["\"1\"", "\"two\"", #""{\"a\":3}""#])
  }

  @Test func refusesAPortToWhichNothingCanBeSent() {
    let complaints = PipelineText.complaints("sources: { a: { values: [1] } }\nsinks: { out: { from: a, tcp: 0 } }")
    #expect(complaints.contains { $0.hasSuffix("nothing can be sent to port 0") }, "\(complaints)")
  }

  @Test(arguments: [
    ("\"/a\\0b\"", "the path of a Unix socket holds a NUL character"),
    ("\"/a\\nb\"", "the path of a Unix socket holds a line feed"), ("''", "a Unix socket needs a path"),
    ("/\(String(repeating: "a", count: 107))", "the path of a Unix socket has at most 107 bytes, and this one 108"),
  ])
  func refusesWhatIsNoPathOfASocket(_ path: String, _ message: String) {
    let complaints = PipelineText.complaints(
      "sources: { a: { values: [1] } }\nsinks: { out: { from: a, unix: \(path) } }")
    #expect(complaints.contains { $0.hasSuffix(message) }, "\(complaints)")
  }
}

/// A text that another thread sets.
final class TextBox: @unchecked Sendable {
  private let lock = NSLock()
  private var value: String?
  var text: String? {
    get { lock.withLock { value } }
    set { lock.withLock { value = newValue } }
  }
}
