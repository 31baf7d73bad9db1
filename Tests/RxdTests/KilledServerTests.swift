import Foundation
import Testing

/// What a server has answered with 200 is in the file, even if the process is killed right then.
@Suite(.timeLimit(.minutes(2)))
struct KilledServerTests {
  /// A client that makes one request after the other.
  private final class Client {
    private let socket: Int32
    private let port: Int

    init(port: Int) throws {
      self.port = port
      socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
      var address = sockaddr_in()
      address.sin_family = sa_family_t(AF_INET)
      address.sin_port = in_port_t(port).bigEndian
      address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
      let code = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
        }
      }
      guard code == 0 else { throw TimedOut(description: "no connection to port \(port)") }
    }

    deinit { close(socket) }

    func send(_ body: String) {
      let text =
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
      let bytes = Array(text.utf8)
      #expect(write(socket, bytes, bytes.count) == bytes.count)
    }

    /// The status of the next answer, which has no body; nil if there is none.
    func status() -> Int? {
      var text: [UInt8] = []
      var byte: UInt8 = 0
      while !text.suffix(4).elementsEqual("\r\n\r\n".utf8) {
        guard read(socket, &byte, 1) == 1 else { return nil }
        text.append(byte)
      }
      return Int(String(decoding: text, as: UTF8.self).split(separator: " ")[1])
    }
  }

  @Test(arguments: ["", "chain: [ { filter: 'event.n >= 0' } ], "])
  func nothingThatWasAnsweredIsLost(_ chain: String) throws {
    let folder = try Scratch()
    let out = folder.path + "/out"
    let file = try folder.write(
      "take.yaml",
      """
      sources: { events: { httpServer: { address: '127.0.0.1:0', decode: ndjson } } }
      sinks: { out: { from: events, \(chain)file: { path: \(out), encode: ndjson } } }

      """)
    var number = 0
    for round in 0..<12 {
      let process = try RunningRxd(["-v", file])
      let line = try process.errorLine(with: "listening on 127.0.0.1:")
      let port = try #require(line.split(separator: ":").last.flatMap { Int($0.prefix { $0.isNumber }) })
      let client = try Client(port: port)
      var answered = ""
      for _ in 0...round % 4 {
        // Some are large enough to be passed on as they are.
        let text = String(repeating: "x", count: [10, 500, 3000][number % 3])
        let body = (0..<10).map { "{\"n\":\(number),\"i\":\($0),\"text\":\"\(text)\"}\n" }.joined()
        number += 1
        client.send(body)
        #expect(client.status() == 200)
        answered += body
      }
      process.send(SIGKILL)
      let written = try String(contentsOfFile: out, encoding: .utf8)
      #expect(written.hasSuffix(answered), "round \(round)")
    }
  }
}
