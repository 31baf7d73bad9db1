import Foundation
import PipelineHost
import Testing

/// A request that a server has answered with 200 is in the file, even if the process is killed immediately afterwards.
@Suite(.timeLimit(.minutes(2)))
struct KilledServerTests {
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
      let client = try Connection(port: port)
      var answered = ""
      for _ in 0...round % 4 {
        // Some are large enough to be passed through unchanged.
        let text = String(repeating: "x", count: [10, 500, 3000][number % 3])
        let body = (0..<10).map { "{\"n\":\(number),\"i\":\($0),\"text\":\"\(text)\"}\n" }.joined()
        number += 1
        #expect(client.post(body))
        #expect(client.status() == 200)
        answered += body
      }
      process.send(SIGKILL)
      let written = try String(contentsOfFile: out, encoding: .utf8)
      #expect(written.hasSuffix(answered), "round \(round)")
    }
  }
}
