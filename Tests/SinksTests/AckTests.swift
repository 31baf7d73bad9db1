import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing
import Transport

@testable import Sinks

/// The outcome of events that arrived together is reported when all of their results have been written.
@Suite struct AckTests {
  private final class Outcomes: Sendable {
    let all = Mutex<[Ack.Outcome]>([])
    var ack: Ack { Ack { outcome in self.all.withLock { $0.append(outcome) } } }
    var seen: [Ack.Outcome] { all.withLock { $0 } }
  }

  @Test func notifiesOnceWhenTheLastHolderReleases() {
    let outcomes = Outcomes()
    let ack = outcomes.ack
    for _ in 0..<3 { ack.hold() }
    for _ in 0..<3 { ack.release() }
    #expect(outcomes.seen.isEmpty)
    ack.release()
    #expect(outcomes.seen == [.acknowledged])
  }

  @Test func theFirstFailureWins() {
    let outcomes = Outcomes()
    let ack = outcomes.ack
    ack.hold()
    ack.hold()
    ack.release(.failed("first"))
    ack.fail("second")
    ack.release()
    #expect(outcomes.seen.isEmpty)
    ack.release(.failed("third"))
    #expect(outcomes.seen == [.failed("first")])
  }

  @Test func whatIsLostIsNotWritten() {
    let outcomes = Outcomes()
    var ack: Ack? = outcomes.ack
    ack?.hold()
    ack?.release()
    #expect(outcomes.seen.isEmpty)
    ack = nil
    #expect(outcomes.seen == [.failed("it was given up")])
  }

  // MARK: Through a pipeline

  /// `in` is tracked; the sinks `a` and `b` hold their events.
  private func pipeline(_ signals: String, sinks: String) throws -> (
    VirtualPipeline, TrackedSource.Feed, [String: HoldingSink.Held]
  ) {
    let pipeline = try VirtualPipeline(
      """
      sources: { in: { never: {} } }
      signals: { \(signals) }
      sinks: { \(sinks) }
      """)
    let source = TrackedSource()
    let a = HoldingSink()
    let b = HoldingSink()
    pipeline.execution.replacements.sources = { $0 == "in" ? source : nil }
    pipeline.execution.replacements.sinks = { $0 == "a" ? a : $0 == "b" ? b : nil }
    pipeline.settle()
    return (pipeline, source.feed, ["a": a.held, "b": b.held])
  }

  private let discard = "discard: {}"

  @Test func waitsForAllThatHold() throws {
    let (pipeline, feed, held) = try pipeline(
      "", sinks: "a: { from: in, \(discard) }, b: { from: in, chain: [ { filter: event > 1 } ], \(discard) }")
    feed.send(1, [1, 2])
    feed.send(2, [1])
    feed.send(3, [])
    pipeline.settle()
    #expect(held["a"]?.receipts.count == 2 && held["b"]?.receipts.count == 1)
    #expect(feed.outcomes == [3: .acknowledged], "nothing came of it")
    held["a"]?.release()
    #expect(feed.outcomes == [2: .acknowledged, 3: .acknowledged])
    held["b"]?.receipts[0].acknowledgeAll(.failed("no room"))
    #expect(feed.outcomes[1] == .failed("no room"))
  }

  @Test(arguments: ["[ { flattenMap: '[event, event + 1]' } ]", "[ { deliverOn: other } ]", "[ { map: event + 1 } ]"])
  func waitsForWhatComesInTheSameTurn(_ chain: String) throws {
    let (pipeline, feed, held) = try pipeline(
      "made: { from: in, chain: \(chain) }", sinks: "a: { from: made, \(discard) }")
    feed.send(1, [1, 2, 3])
    pipeline.settle()
    #expect(held["a"]?.events.isEmpty == false)
    #expect(feed.outcomes.isEmpty)
    held["a"]?.release()
    #expect(feed.outcomes == [1: .acknowledged])
  }

  @Test func doesNotWaitForWhatAStepKeeps() throws {
    let (pipeline, feed, held) = try pipeline(
      "late: { from: in, chain: [ { throttle: 1s } ] }", sinks: "a: { from: late, \(discard) }")
    feed.send(1, [1])
    pipeline.settle()
    #expect(feed.outcomes == [1: .acknowledged])
    pipeline.run(until: .seconds(2))
    #expect(held["a"]?.events == [1])
    #expect(held["a"]?.receipts.contains { $0.notifiesSender } == false, "a turn of a timer belongs to nobody")
  }

  /// A call that an inner signal makes for an event belongs to that event: while it is queued, while it is outstanding, before it
  /// is repeated, and until its results are written.
  @Test func waitsForCallsThatAreUnderWay() throws {
    let http =
      "{ from: { http: { url: 'http://h.example/{{ event }}', decode: json } }, chain: [ { retry: { delay: 1s } } ] }"
    let (pipeline, feed, held) = try pipeline(
      "made: { from: in, chain: [ { flattenMap: { policy: concat, signal: \(http) } } ] }",
      sinks: "a: { from: made, \(discard) }")
    feed.send(1, [1])
    feed.send(2, [2, 3])
    pipeline.settle()
    #expect(pipeline.http.open.count == 1 && feed.outcomes.isEmpty)
    pipeline.http.open.first?.answer(503)
    pipeline.settle()
    #expect(pipeline.http.open.isEmpty && feed.outcomes.isEmpty, "a pause before the next attempt")
    pipeline.run(until: .seconds(2))
    pipeline.http.open.first?.answer(200, "10")
    pipeline.settle()
    #expect(held["a"]?.events == [10] && feed.outcomes.isEmpty, "its answer is not written")
    held["a"]?.release()
    #expect(feed.outcomes == [1: .acknowledged])
    pipeline.http.open.first?.answer(200, "20")
    pipeline.settle()
    held["a"]?.release()
    #expect(feed.outcomes == [1: .acknowledged], "half of the second is not enough")
    pipeline.http.open.first?.answer(200, "30")
    pipeline.settle()
    held["a"]?.release()
    #expect(feed.outcomes == [1: .acknowledged, 2: .acknowledged])
  }

  /// A request that a newer one has replaced is acknowledged; one that ends with the pipeline has failed.
  @Test func doesNotWaitForCallsThatAreGivenUp() throws {
    let (pipeline, feed, _) = try pipeline(
      "made: { from: in, chain: [ { switchToLatest: { from: { http: { url: 'http://h.example/{{ event }}' } } } } ] }",
      sinks: "a: { from: made, \(discard) }")
    feed.send(1, [1])
    feed.send(2, [2])
    pipeline.settle()
    #expect(feed.outcomes == [1: .acknowledged])
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.settle()
    guard case .failed = feed.outcomes[2] else {
      Issue.record("\(feed.outcomes)")
      return
    }
  }

  /// Deferred work that exceeds the limit of a turn continues in later turns.
  @Test func waitsForWhatIsPutOffToLaterTurns() throws {
    let (pipeline, feed, held) = try pipeline("", sinks: "a: { from: in, \(discard) }")
    feed.send(1, [], steps: 2500)
    #expect(pipeline.executor.runOne())
    #expect(feed.outcomes.isEmpty)
    pipeline.settle()
    #expect(held["a"]?.events == [-1])
    #expect(feed.outcomes.isEmpty)
    held["a"]?.release()
    #expect(feed.outcomes == [1: .acknowledged])
  }

  @Test func aPipelineThatFailsHasNotWritten() throws {
    let (pipeline, feed, _) = try pipeline(
      "strict: { from: in, chain: [ { map: 1 / event, onError: fail } ] }", sinks: "a: { from: strict, \(discard) }")
    feed.send(1, [0])
    pipeline.settle()
    guard case .failed = feed.outcomes[1] else {
      Issue.record("\(feed.outcomes)")
      return
    }
  }

  @Test func aPipelineThatIsCancelledHasNotWritten() throws {
    let (pipeline, feed, held) = try pipeline("", sinks: "a: { from: in, \(discard) }")
    feed.send(1, [1])
    pipeline.settle()
    #expect(held["a"]?.receipts.count == 1)
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.settle()
    #expect(feed.outcomes == [1: .failed("it was given up")])
  }

  // MARK: To files

  let scratch = Scratch()

  /// A real file sink, fed by a tracked source.
  private func writing(_ file: String, chain: String = "") throws -> (RealPipeline, TrackedSource.Feed) {
    let pipeline = try RealPipeline(
      """
      sources: { in: { never: {} } }
      sinks: { out: { from: in, chain: [\(chain)], file: \(file) } }
      """)
    let source = TrackedSource()
    pipeline.execution.replacements.sources = { _ in source }
    source.feed.ring = pipeline.ring
    pipeline.run { source.feed.node != nil }
    return (pipeline, source.feed)
  }

  @Test(arguments: ["never", "batch", "interval"]) func acknowledgedEventsAreInTheFile(_ sync: String) throws {
    let (pipeline, feed) = try writing("{ path: '\(scratch("out"))', sync: \(sync) }")
    let path = scratch("out")
    let missing = Mutex<[Int]>([])
    feed.hears = { number in
      let text = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
      if !text.hasPrefix("\(number)\n"), !text.contains("\n\(number)\n") { missing.withLock { $0.append(number) } }
    }
    let count = 500
    // Several batches at once are written together.
    for number in 0..<count { feed.send(number, [Int64(number)]) }
    #expect(pipeline.run { feed.outcomes.count == count })
    #expect(feed.outcomes.values.allSatisfy { $0 == .acknowledged })
    #expect(missing.withLock { $0 } == [])
  }

  /// More than one block in one turn.
  @Test func allBlocksOfATurnAreWaitedFor() throws {
    let (pipeline, feed) = try writing("'\(scratch("out"))'")
    let size = Mutex(0)
    let path = scratch("out")
    feed.hears = { _ in
      let length = FileManager.default.contents(atPath: path)?.count ?? 0
      size.withLock { $0 = length }
    }
    feed.send(1, (100_000..<300_000).map { $0 })
    #expect(pipeline.run { feed.outcomes.count == 1 })
    #expect(size.withLock { $0 } == 200_000 * 7)
  }

  @Test func theNewestContentSettlesAll() throws {
    let (pipeline, feed) = try writing("{ path: '\(scratch("out"))', mode: replace }")
    for number in 1...9 { feed.send(number, [100, Int64(number)]) }
    #expect(pipeline.run { feed.outcomes.count == 9 })
    #expect(feed.outcomes.values.allSatisfy { $0 == .acknowledged })
    #expect(scratch.read("out").hasPrefix("9"))
  }

  @Test func aFullDiskSettlesNothing() throws {
    let (pipeline, feed) = try writing("/dev/full")
    feed.send(1, [1])
    #expect(pipeline.run { pipeline.counters.received == 1 })
    #expect(feed.outcomes.isEmpty)
    pipeline.inTurn { $0.execution.cancel() }
    #expect(
      pipeline.run {
        if case .failed = feed.outcomes[1] { true } else { false }
      })
    #expect(pipeline.run { pipeline.execution.hasClosed })
    #expect(pipeline.counters.sent == 0 && pipeline.counters.undelivered == 1)
  }

  private struct BrokenPipe: SinkComponent {
    static let spec = ComponentSpec<BrokenPipe>("broken", summary: "A pipe that nobody reads.")
    func makeSink(_ nodeContext: NodeContext) -> RunningSink {
      var ends: [Int32] = [0, 0]
      #expect(pipe(&ends) == 0)
      close(ends[0])
      return StreamSink(
        nodeContext, EncodeParameter(.json), .descriptor(FileDescriptor(ends[1], name: "a pipe")))
    }
  }

  @Test func aFailedWriteIsReported() throws {
    let (pipeline, feed) = try {
      let pipeline = try RealPipeline("sources: { in: { never: {} } }\nsinks: { out: { from: in, discard: {} } }")
      let source = TrackedSource()
      pipeline.execution.replacements.sources = { _ in source }
      pipeline.execution.replacements.sinks = { _ in BrokenPipe() }
      source.feed.ring = pipeline.ring
      pipeline.run { source.feed.node != nil }
      return (pipeline, source.feed)
    }()
    feed.send(1, [1])
    #expect(pipeline.run { !feed.outcomes.isEmpty && pipeline.outcome != nil })
    #expect(feed.outcomes == [1: .failed("cannot write to a pipe: Broken pipe")])
  }
}
