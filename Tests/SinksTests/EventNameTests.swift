import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// `meta.id`, and the `Idempotency-Key` of requests: a repeated event has the same name.
@Suite struct EventNameTests {
  private func names(_ signals: String, sources: String) throws -> [String] {
    let pipeline = try VirtualPipeline(
      """
      sources:
      \(sources)
      signals:
      \(signals)
      sinks:
        out: { from: s, probe: {} }
      """)
    pipeline.run(until: .seconds(10))
    return pipeline.probe().events
  }

  @Test func aNameIsSourcePositionStepAndOrdinal() throws {
    #expect(
      try names("  s: { from: n, chain: [ { map: meta.id } ] }", sources: "  n: { values: [a, b] }")
        == [#""n/values:0""#, #""n/values:1""#])
    #expect(
      try names(
        "  s: { from: n, chain: [ { flattenMap: event }, { flattenMap: '[event, event]' }, { map: meta.id } ] }",
        sources: "  n: { values: [[a, b], [c]] }")
        == [
          "n/values:0:s/flattenMap:0:s/flattenMap#2:0", "n/values:0:s/flattenMap:0:s/flattenMap#2:1",
          "n/values:0:s/flattenMap:1:s/flattenMap#2:0", "n/values:0:s/flattenMap:1:s/flattenMap#2:1",
          "n/values:1:s/flattenMap:0:s/flattenMap#2:0", "n/values:1:s/flattenMap:0:s/flattenMap#2:1",
        ].map { "\"\($0)\"" })
  }

  /// Inner signals, immediate or over time, name their events after the event for which they were made.
  @Test(arguments: ["", ", chain: [ { delay: 1s } ]"])
  func innerSignalsNameAfterTheOuterEvent(_ chain: String) throws {
    let names = try names(
      "  s: { from: n, chain: [ { flattenMap: { signal: { values: [x, y]\(chain) } } }, { map: meta.id } ] }",
      sources: "  n: { values: [a, b] }")
    #expect(
      names
        == [
          "n/values:0:s/flattenMap/values:0", "n/values:0:s/flattenMap/values:1", "n/values:1:s/flattenMap/values:0",
          "n/values:1:s/flattenMap/values:1",
        ].map { "\"\($0)\"" })
  }

  /// An event made from several events, or by time, has no name.
  @Test(arguments: [
    ("{ bufferWithCount: 2 }", "{ values: [a, b] }"), ("{ take: 1 }", "{ interval: 1s }"),
    ("{ window: { count: 2 } }", "{ values: [a, b] }"),
  ])
  func whatIsMadeOtherwiseHasNone(_ step: String, _ source: String) throws {
    #expect(
      try names(
        "  s: { from: n, chain: [ \(step), { map: \"meta.?id.orValue('none')\" } ] }", sources: "  n: \(source)")
        == [#""none""#])
  }

  /// A pipeline that does not read names has none.
  @Test func nobodyPaysForNamesThatNobodyReads() throws {
    let pipeline = try VirtualPipeline(
      "sources: { n: { values: [a] } }\nsinks: { out: { from: n, chain: [ { map: meta.offset } ], probe: {} } }")
    pipeline.run()
    #expect(!pipeline.execution.namesEvents)
  }

  /// Killed at any time: a repeated event has its old name, and no other event has that name.
  @Test func everyReplayGivesTheSameNames() throws {
    let yaml = """
      sources:
        n: { values: { list: [[1, 2], [3], [4, 5, 6], [7]], every: 1s } }
        m: { values: { list: [10, 20, 30, 40], every: 700ms } }
      signals:
        elements: { from: n, chain: [ { flattenMap: event } ] }
        made: { from: m, chain: [ { flattenMap: { signal: { values: [1, 2], chain: [ { map: outer + event }, { delay: 900ms } ] } } } ] }
        s: { merge: [elements, made], chain: [ { throttle: { quiet: 0s, when: 'false' } }, { delay: 300ms }, { map: '[meta.id, event]' } ] }
      sinks: { out: { from: s, probe: {} } }
      """
    let whole = try VirtualPipeline(yaml)
    whole.run(until: .seconds(20))
    let expected = whole.probe().events
    #expect(expected.count == 15 && Set(expected).count == 15)
    #expect(Set(expected.map { $0.split(separator: ",")[0] }).count == 15)
    // It is killed at some time, and continues from an earlier state.
    var generator = SplitMix(7)
    for _ in 0..<40 {
      let saved = Int64(generator.next() % 5000)
      let pipeline = try VirtualPipeline(yaml)
      pipeline.run(until: .milliseconds(saved))
      guard let state = pipeline.execution.saveState() else { continue }
      let before = pipeline.probe().events.count
      pipeline.run(until: .milliseconds(saved + Int64(generator.next() % 3000)))
      let sent = pipeline.probe().events
      let again = try VirtualPipeline(yaml, restoring: state)
      again.run(until: .seconds(20))
      #expect(again.execution.refusals.isEmpty)
      #expect(sent[..<before] + again.probe().events == expected[...])
    }
  }

  // MARK: Keys

  private static let shop = """
    sources: { n: { values: { list: [[1, 2], [3, 3], [4]], every: 1s } } }
    signals: { s: { from: n, chain: [ { flattenMap: event } ] } }
    sinks: { shop: { from: s, http: { url: 'http://h.example/', batch: BATCH } } }
    """

  private func keys(_ pipeline: VirtualPipeline) -> [String: [String]] {
    Dictionary(grouping: pipeline.http.exchanges) { $0.body }.mapValues {
      $0.compactMap { $0.header("Idempotency-Key") }
    }
  }

  /// Killed before the server has answered everything: a repeated request has the same key, in light delivery, too.
  @Test(arguments: [(1, false), (2, false), (1, true)])
  func aKilledSinkSendsTheSameKeys(_ batch: Int, _ isDurable: Bool) throws {
    let yaml = Self.shop.replacingOccurrences(of: "BATCH", with: "\(batch)")
    let store = MemoryStore(isImmediate: true)
    let first = try VirtualPipeline(
      yaml, random: 1, delivery: DeliveryOptions(store: store, isDurable: isDurable))
    // The server accepts the events of the first second, and then stops answering.
    first.http.script = { _, _ in
      first.executor.now < Instant(nanoseconds: 500_000_000) ? ScriptedHTTP.status(200) : nil
    }
    first.run(until: .milliseconds(2500))
    let sent = keys(first)
    let disk = store.disk
    let second = try VirtualPipeline(
      yaml, random: 2, restoring: disk.state,
      delivery: DeliveryOptions(store: MemoryStore(disk, isImmediate: true), isDurable: isDurable))
    second.http.script = { _, _ in ScriptedHTTP.status(200) }
    second.run(until: .seconds(10))
    let again = keys(second)
    let repeated = sent.filter { again[$0.key] != nil }
    #expect(!repeated.isEmpty)
    for (body, keys) in repeated { #expect(again[body]?.first == keys.first, "\(body)") }
    // No two requests of a run have the same key, even if their events are equal.
    let all = again.values.flatMap { $0 }
    #expect(Set(all).count == all.count && !all.isEmpty)
  }

  /// If one event may reach the sink twice, or has no name, keys are random: an equal key would lose an event.
  @Test(arguments: [
    "{ merge: [n, n] }", "{ from: n, chain: [ { sample: 1s } ] }", "{ from: n, chain: [ { repeat: 2 } ] }",
    "{ from: n, chain: [ { flattenMap: { signal: { values: [1] } } } ] }", "{ from: { interval: 1s } }",
    "{ from: n, chain: [ { bufferWithCount: 1 } ] }",
  ])
  func indistinguishableEventsHaveRandomKeys(_ signal: String) throws {
    let yaml = """
      sources: { n: { values: { list: [1, 2], every: 1s } } }
      signals: { s: \(signal), rest: { from: n } }
      sinks: { shop: { from: s, http: { url: 'http://h.example/', batch: 1 } }, out: { from: rest, discard: {} } }
      """
    func first(_ random: UInt64) throws -> String? {
      let pipeline = try VirtualPipeline(
        yaml, random: random, delivery: DeliveryOptions(store: MemoryStore(isImmediate: true), isDurable: false))
      pipeline.http.script = { _, _ in ScriptedHTTP.status(200) }
      pipeline.run(until: .milliseconds(3500))
      return pipeline.http.exchanges.first?.header("Idempotency-Key")
    }
    #expect(try first(1) != nil)
    #expect(try first(1) != first(2))
  }
}
