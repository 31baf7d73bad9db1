import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Pipelines of real sources and sinks that are suspended at random instants and continue: every row arrives once, as if nothing
/// had happened.
@Suite struct SuspendedPipelinesTests {
  private static let sources = [
    "values: { list: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], every: 3ms }",
    "values: [1, 2, 3, 4, 5]",
    "interval: 4ms",
    "interval: { every: 5ms, immediate: true }",
    "http: { url: 'http://poll.example/', every: 7ms, decode: ndjson }",
    "http: { url: 'http://poll.example/', decode: ndjson }",
  ]

  private static let steps = [
    "{ delay: 4ms }", "{ throttle: 2ms }", "{ bufferWithTime: 9ms }", "{ bufferWithCount: 3 }",
    "{ scan: { start: 0, next: running + 1 } }",
    "{ groupBy: { key: '1', chain: [ { delay: 3ms } ] } }",
    "{ flattenMap: { policy: concat, signal: { values: { list: [1, 2], every: 2ms }, chain: [ { map: '[outer, event]' } ] } } }",
    "{ flattenMap: { signal: { from: { http: { url: 'http://ask.example/', decode: json } }, chain: [ { map: '[outer, event]' } ] } } }",
    "{ rateLimit: { per: 6ms, mode: both } }", "{ withLatestFrom: beat }", "distinctUntilChanged",
  ]

  private func yaml(_ random: inout SplitMix) -> String {
    var text =
      "sources:\n  a: { \(random.pick(Self.sources)) }\n  b: { \(random.pick(Self.sources)) }\n  other: { interval: 8ms }\n"
    text +=
      "signals:\n  plain:\n    merge: [a, b]\n    chain: [ { map: \"type(dyn(event)) == map ? dyn(event).tick : dyn(event)\" } ]\n"
    let chain = (0..<(1 + random.below(3))).map { _ in random.pick(Self.steps) }
    text += "  made: { from: plain, chain: [ \(chain.joined(separator: ", ")), { take: 40 } ] }\n"
    // Without the time of day, which each of these pipelines starts again.
    text += "  beat: { from: other, chain: [ { map: event.tick } ] }\n"
    text += "sinks:\n  out: { from: made, probe: {} }\n"
    text +=
      "  shop: { from: made, http: { url: 'http://shop.example/', batch: { count: \(1 + random.below(4)), every: \(random.pick(["0s", "5ms"])) } } }\n"
    return text
  }

  /// The output of both sinks until `end`, with suspensions at `cuts` (in milliseconds).
  private func run(_ yaml: String, _ cuts: [Int64], until end: Int64) throws -> (probe: [String], shop: [String]) {
    var shop: [String] = []
    var probe: [String] = []
    var state: [UInt8]?
    var before: Int64 = 0
    for cut in cuts + [end] {
      let start = before
      let pipeline = try VirtualPipeline(yaml, restoring: state)
      let clock = pipeline.time
      pipeline.http.script = { _, exchange in
        if exchange.request.url.hasPrefix("http://shop") {
          shop += exchange.body.split(separator: "\n").map(String.init)
          return ScriptedHTTP.status(200)
        }
        if exchange.request.url.hasPrefix("http://ask") { return ScriptedHTTP.status(200, "7") }
        let time = start + clock.now.nanoseconds / 1_000_000
        return ScriptedHTTP.status(200, "\(time)\n\(time + 1)\n")
      }
      pipeline.run(until: .milliseconds(cut - start))
      #expect(pipeline.execution.refusals.map(\.message) == [])
      let hasEnded = pipeline.outcome != nil || cut == end
      if !hasEnded {
        state = pipeline.suspend()
        #expect(pipeline.outcome == .completed && state != nil)
        #expect(pipeline.executor.nextDeadline == nil)
      }
      probe += pipeline.probe().events
      if hasEnded { break }
      before = cut
    }
    return (probe, shop)
  }

  @Test(arguments: 0..<8 as Range<UInt64>)
  func everyRowComesOnce(_ part: UInt64) throws {
    var busy = 0
    for seed in stride(from: part, to: 200, by: 8) {
      var random = SplitMix(seed)
      let yaml = yaml(&random)
      let end: Int64 = 150
      let whole = try run(yaml, [], until: end)
      var cuts: [Int64] = []
      for _ in 0...random.below(4) { cuts.append((cuts.last ?? 0) + 1 + Int64(random.below(30))) }
      let parts = try run(yaml, cuts, until: end)
      #expect(parts.probe == whole.probe, "seed \(seed), suspended at \(cuts) ms\n\(yaml)")
      // The sink waits again for a batch to fill, so the last rows may not have arrived.
      let both = min(parts.shop.count, whole.shop.count)
      #expect(abs(parts.shop.count - whole.shop.count) < 5)
      #expect(parts.shop.prefix(both) == whole.shop.prefix(both), "seed \(seed), suspended at \(cuts) ms\n\(yaml)")
      if whole.probe.count > 2 { busy += 1 }
    }
    #expect(busy > 10)
  }
}
