import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Transport

/// The handling of messages that a `webSocket` source has not processed when it stops.
@Suite struct WebSocketEndTests {
  private func source(_ parameters: String) throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { webSocket: { \(parameters), decode: text } } }
      sinks: { out: { from: in, probe: {} } }
      """)
  }

  private func connected(_ pipeline: RealPipeline) throws -> RawWebSocket {
    let port = try #require(pipeline.port())
    let raw = try RawWebSocket(port)
    pipeline.run(within: .seconds(30)) {
      pipeline.execution.statistics.steps.lazy.compactMap(\.connections).first?.opened == 1
    }
    #expect(raw.head.contains("101"))
    return raw
  }

  private func end(_ pipeline: RealPipeline, _ how: String) {
    pipeline.inTurn { how == "drain" ? $0.execution.drain() : $0.execution.suspend() }
  }

  /// Both messages that have arrived when the stop begins, and those that the client sends before it learns of the
  /// stop.
  @Test(arguments: ["drain", "suspend"]) func aStopTakesWhatWasSent(_ how: String) throws {
    let pipeline = try source("listen: '127.0.0.1:0', path: /in")
    let raw = try connected(pipeline)
    for number in 1...3 { raw.send("\(number)") }
    raw.sync()
    end(pipeline, how)
    raw.send("4")
    pipeline.run(within: .seconds(30)) { raw.connection.waits(milliseconds: 0) }
    raw.send("5")
    #expect(raw.closeCode == 1001)
    raw.send(8, [0x03, 0xE9])
    pipeline.runToEnd(within: .seconds(30))
    #expect(pipeline.events == ["1", "2", "3", "4", "5"].map { "\"\($0)\"" })
    #expect(pipeline.log.allSatisfy { !$0.contains("lost") }, "\(pipeline.log)")
  }

  /// A client that does not answer does not delay the end, and the log says so.
  @Test func aSilentClientIsCut() throws {
    let pipeline = try source("listen: '127.0.0.1:0', path: /in")
    let raw = try connected(pipeline)
    raw.send("1")
    raw.sync()
    end(pipeline, "drain")
    #expect(pipeline.runToEnd(within: .seconds(30)) == .completed)
    #expect(pipeline.events == ["\"1\""])
    #expect(
      pipeline.log.contains { $0.contains("1 connection did not end within 5s: messages on the way") },
      "\(pipeline.log)")
    #expect(raw.closeCode == 1001)
  }

  /// Messages lost in a stop are counted.
  @Test func messagesThatNoTurnTookAreCounted() throws {
    let pipeline = try source("listen: '127.0.0.1:0', path: /in")
    let raw = try connected(pipeline)
    for number in 1...3 { raw.send("\(number)") }
    raw.sync()
    pipeline.inTurn {
      $0.execution.drain()
      $0.execution.cancel()
    }
    pipeline.run(within: .seconds(30)) { pipeline.execution.hasClosed }
    #expect(pipeline.log.contains { $0.contains("3 received messages were not processed: lost") })
  }
}
