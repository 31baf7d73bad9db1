import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Event time of sources whose input has parts: files, connections. Each part has its own order.
@Suite struct PartsOfInputTests {
  let scratch = Scratch()

  /// Events are seconds since 1970; windows of ten seconds list them.
  private func yaml(_ source: String, _ options: String = "") -> String {
    """
    sources: { input: { \(source), time: timestamp(event)\(options) } }
    sinks:
      out: { from: input, chain: [ { window: { every: 10s, to: 'events.sort()' } } ], probe: {} }
      late: { from: out.errors, probe: {} }
    """
  }

  private func append(_ times: [Int], to name: String) {
    scratch.append(times.map { "\($0)\n" }.joined(), to: name)
  }

  // MARK: Files that are read once

  /// The files are read one after the other, and the second is as old as the first.
  @Test func filesOfTheSameTimeLoseNothing() throws {
    append([1, 12, 25], to: "a.log")
    append([2, 13, 31], to: "b.log")
    append([3, 14], to: "c.log")
    let pipeline = try RealPipeline(yaml("file: { path: '\(scratch("?.log"))', decode: ndjson }"))
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.events == ["[1,2,3]", "[12,13,14]", "[25]", "[31]"])
    #expect(pipeline.probe("late").events == [])
  }

  /// The file that is furthest behind holds the windows open; each event is in the window of its time, however often the pipeline is
  /// lost.
  @Test(arguments: 0..<6 as Range<UInt64>) func aRestartForgetsNoFile(_ seed: UInt64) throws {
    var random = SplitMix(seed)
    var all: [Int: [Int]] = [:]
    for name in ["a", "b", "c"] {
      var time = 0
      for _ in 0..<100 {
        time += random.below(8)
        append([time], to: name)
        all[time / 10, default: []].append(time)
      }
    }
    let wanted = all.sorted { $0.key < $1.key }.map { "[\($0.value.sorted().map(String.init).joined(separator: ","))]" }
    let text = yaml("file: { path: '\(scratch("?"))', decode: ndjson }")
    var state: [UInt8]?
    for _ in 0..<4 {
      let pipeline = try RealPipeline(text, restoring: state) {
        $0.reading.blockBytes = 16
        $0.executor.limits.events = 1 + random.below(5)
      }
      let count = UInt64(1 + random.below(60))
      pipeline.run { pipeline.counters.received >= count || pipeline.outcome != nil }
      #expect(pipeline.events == [], "no window is complete before the last file has begun")
      #expect(pipeline.outcome == nil)
      state = try pipeline.lose()
    }
    let last = try RealPipeline(text, restoring: state)
    #expect(last.execution.refusals.map(\.message) == [])
    #expect(last.runToEnd() == .completed)
    #expect(last.events == wanted)
    #expect(last.probe("late").events == [])
  }

  // MARK: Files that are followed

  private var followed: String { "file: { path: '\(scratch("*.log"))', follow: true, decode: ndjson }" }

  @Test func theFileThatIsBehindHoldsTheWindows() throws {
    append([1, 2], to: "a.log")
    append([1, 33], to: "b.log")
    let pipeline = try VirtualPipeline(yaml(followed))
    #expect(pipeline.settle { pipeline.execution.statistics.steps.contains { $0.watermark == 2_000_000_000 } })
    #expect(pipeline.execution.statistics.steps.compactMap(\.watermarkHeldBy) == [scratch("a.log")])
    append([14], to: "a.log")
    #expect(pipeline.settle { pipeline.out.count == 1 })
    #expect(pipeline.out == ["0s [1,1,2]"])
    append([40], to: "a.log")
    #expect(pipeline.settle { pipeline.out.count == 2 })
    #expect(pipeline.out.last == "0s [14]")
  }

  /// A file that is no longer written does not hold up the others forever.
  @Test(arguments: [("", 60, "1m"), (", idle: 5s", 5, "5s")]) func aSilentFileHoldsNothingUp(
    _ options: String, _ wait: Int, _ shown: String
  ) throws {
    append([1, 2], to: "a.log")
    append([3, 33], to: "b.log")
    let pipeline = try VirtualPipeline(yaml(followed, options))
    #expect(pipeline.settle { pipeline.execution.statistics.steps.contains { $0.watermark == 2_000_000_000 } })
    pipeline.run(until: .milliseconds(Int64(wait) * 1000 - 1))
    append([44], to: "b.log")
    #expect(pipeline.settle { pipeline.counters.received == 5 })
    #expect(pipeline.out == [])
    pipeline.run(until: .seconds(Int64(wait)))
    #expect(pipeline.out == ["\(shown) [1,2,3]", "\(shown) [33]"])
    // The file counts again as soon as it continues, and its next events may be late.
    append([45, 30], to: "a.log")
    #expect(pipeline.settle { pipeline.probe("late").events.count == 1 })
    append([60], to: "b.log")
    #expect(pipeline.settle { pipeline.counters.received == 8 })
    #expect(pipeline.out.count == 2)
  }

  /// While the input is paused nothing is read, and no file counts as silent.
  @Test func aPauseIsNoSilence() throws {
    append([1, 2], to: "a.log")
    append([3, 33], to: "b.log")
    let pipeline = try VirtualPipeline(yaml(followed))
    #expect(pipeline.settle { pipeline.execution.statistics.steps.contains { $0.watermark == 2_000_000_000 } })
    let executor = pipeline.executor
    executor.post { executor.pauseInput(.queue) }
    pipeline.run(until: .seconds(90))
    executor.post { executor.resumeInput(.queue) }
    pipeline.run(until: .seconds(149))
    #expect(pipeline.out == [])
    pipeline.run(until: .seconds(150))
    #expect(pipeline.out == ["2m30s [1,2,3]"])
  }

  // MARK: Connections

  @Test func connectionsWithDifferentClocks() throws {
    let pipeline = try RealPipeline(yaml("tcp: { address: '127.0.0.1:0', decode: ndjson }"))
    let port = try #require(pipeline.port())
    let slow = try #require(SocketClient(port: port))
    let fast = try #require(SocketClient(port: port))
    slow.send("1\n")
    pipeline.run { pipeline.counters.received == 1 }
    fast.send("2\n35\n")
    pipeline.run { pipeline.counters.received == 3 }
    slow.send("3\n11\n")
    pipeline.run { pipeline.events.count == 1 }
    #expect(pipeline.events == ["[1,2,3]"])
    // The end of the connection releases the windows that it held open.
    slow.end()
    pipeline.run { pipeline.events.count == 2 }
    #expect(pipeline.events == ["[1,2,3]", "[11]"])
    #expect(pipeline.probe("late").events == [])
  }
}
