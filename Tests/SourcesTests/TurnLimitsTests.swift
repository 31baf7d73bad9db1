import Foundation
import PipelineHost
import Synchronization
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// A turn is bounded: the rest of a batch, or deferred work, continues in the next turn, and other work runs in
/// between.
@Suite struct TurnLimitsTests {
  /// Takes a millisecond for each event.
  private struct SlowSink: SinkComponent {
    static let spec = ComponentSpec<SlowSink>("slow", summary: "Takes a millisecond for each event.")
    let time: VirtualTime?
    init() { time = nil }
    init(_ time: VirtualTime) { self.time = time }

    func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(time, nodeContext) }

    final class Node: RunningSink {
      private let time: VirtualTime?
      init(_ time: VirtualTime?, _ nodeContext: NodeContext) {
        self.time = time
        super.init(nodeContext)
      }
      override func receive(_ event: Event) {
        if let time { time.advance(to: time.now + .milliseconds(1)) }
        delivered()
      }
    }
  }

  private static func rows(_ count: Int) -> String { (1...count).map { "{\"n\":\($0)}\n" }.joined() }

  /// An answer of a thousand events, each of which takes a millisecond, next to a clock.
  @Test func timersComeBetweenTheEventsOfABatch() throws {
    let pipeline = try VirtualPipeline(
      """
      sources:
        answers: { http: { url: 'http://127.0.0.1:1/', decode: ndjson } }
        clock: { interval: 10ms }
      sinks:
        out: { from: answers, discard: {} }
        ticks: { from: clock, chain: [ { map: event.tick } ], probe: {} }
      """)
    let slow = SlowSink(pipeline.time)
    let recording = ProbeSink.Recording()
    pipeline.execution.replacements.sinks = { name in
      if name == "out" { return slow }
      return ProbeSink(recording)
    }
    pipeline.settle()
    pipeline.http.open.first?.answer(200, Self.rows(1000))
    pipeline.run(until: .milliseconds(900))
    let times = recording.times
    #expect(times.count >= 85, "\(times)")
    // A turn may exceed the clock's period by the time needed to measure how slow events are.
    for (index, time) in times.enumerated().dropFirst(2) {
      #expect(time - times[index - 1] <= 20_000_000, "tick \(index + 1)")
    }
  }

  /// A turn uses memory for a few events, not for the batch.
  @Test func aTurnEndsWhenItsMemoryIsUsedUp() throws {
    let pipeline = try VirtualPipeline(
      """
      sources: { answers: { http: { url: 'http://127.0.0.1:1/', decode: ndjson } } }
      sinks: { out: { from: answers, chain: [ { map: "'\(String(repeating: "x", count: 10_000))' + string(event.n)" } ], probe: {} } }
      """)
    pipeline.settle()
    pipeline.http.open.first?.answer(200, Self.rows(2000))
    var most = 0
    let executor = pipeline.executor
    let ended = executor.turnEnded
    executor.turnEnded = {
      most = max(most, executor.arena.allocated)
      ended()
    }
    pipeline.settle()
    #expect(pipeline.probe().events.count == 2000)
    #expect(most > 100_000)
    #expect(most < 3 << 20, "\(most) bytes")
  }

  /// The answer is sent to its last event, however it is divided, and the next request follows it.
  @Test func aDividedAnswerIsOneAnswer() throws {
    let pipeline = try VirtualPipeline(
      """
      sources: { answers: { http: { url: 'http://127.0.0.1:1/', decode: ndjson, every: 1s } } }
      sinks: { out: { from: answers, chain: [ { map: event.n } ], probe: {} } }
      """)
    pipeline.executor.limits.events = 3
    pipeline.settle()
    let turns = pipeline.executor.turns
    pipeline.http.open.first?.answer(200, Self.rows(100) + "nonsense\n" + Self.rows(1))
    pipeline.settle()
    #expect(pipeline.executor.turns - turns >= 30)
    #expect(pipeline.probe().events == (1...100).map { "\($0)" } + ["1"])
    #expect(pipeline.deadLetters.count == 1)
    pipeline.run(until: .seconds(1))
    #expect(pipeline.http.exchanges.count == 2)
  }

  /// A stop completes a batch of which some has been sent.
  @Test func aBatchThatHasBegunIsSeenThroughAtAStop() throws {
    let pipeline = try VirtualPipeline(
      """
      sources: { answers: { http: { url: 'http://127.0.0.1:1/', decode: ndjson, every: 1s } } }
      sinks: { out: { from: answers, chain: [ { map: event.n } ], probe: {} } }
      """)
    pipeline.executor.limits.events = 1
    pipeline.settle()
    pipeline.http.open.first?.answer(200, Self.rows(20))
    for _ in 0..<3 { _ = pipeline.executor.runOne() }
    #expect(pipeline.probe().events.count < 20)
    pipeline.drain()
    #expect(pipeline.probe().events == (1...20).map { "\($0)" })
    #expect(pipeline.outcome == .completed)
  }

  /// An endless sequence of values does not keep the clock from ticking or the pipeline from being stopped.
  @Test func anEndlessRoundStopsNothingElse() throws {
    let list = (1...2000).map(String.init).joined(separator: ", ")
    let pipeline = try RealPipeline(
      """
      sources: { round: { values: [\(list)] }, clock: { interval: 10ms } }
      signals: { endless: { from: round, chain: [ repeat ] } }
      sinks:
        out: { from: endless, chain: [ { scan: { start: 0, next: running + event } } ], discard: {} }
        ticks: { from: clock, chain: [ { map: event.tick } ], probe: {} }
      """)
    #expect(pipeline.run { pipeline.probe("ticks").events.count >= 5 })
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }
}

extension ProbeSink.Recording {
  /// When events arrived, in nanoseconds.
  fileprivate var times: [Int64] {
    moments.compactMap { if case .next = $0.moment { $0.at.nanoseconds } else { nil } }
  }
}
