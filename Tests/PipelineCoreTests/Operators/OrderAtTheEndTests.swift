import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// Events that wait for their time when a stream ends are sent in the order of that time, whichever group holds them.
@Suite struct OrderAtTheEndTests {
  private struct Item {
    var at: Int64
    var key: Int
    var time: Int
  }

  private static func source(_ items: [Item], end: Int64) -> ScriptedSource {
    var entries = items.map { item in
      SignalHistory.Entry(
        at: .milliseconds(item.at), .next((try? MarbleCase.value("{k: \(item.key), t: \(item.time)}")) ?? .null))
    }
    entries.append(.init(at: .milliseconds(end), .complete))
    return ScriptedSource(SignalHistory(entries).script)
  }

  private static func pipeline(_ step: String, _ more: String) -> String {
    """
    name: t
    sources: { a: { scripted: {} } }
    sinks:
      out: { from: a, chain: [ { groupBy: { key: event.k, chain: [ \(step)\(more) ] } }, { map: '[meta.key, event]' } ], probe: {} }
    """
  }

  /// Steps that send by time, each with whether it uses event time.
  private static let steps: [(text: String, isByEvents: Bool)] = [
    ("{ window: { every: 10s, time: timestamp(event.t), to: int(start) } }", true),
    ("{ window: { every: 10s, time: timestamp(event.t), lateness: 25s, to: int(start) } }", true),
    ("{ window: { every: 4s, length: 10s, time: timestamp(event.t), lateness: 9s, to: int(start) } }", true),
    (
      "{ window: { every: 4s, length: 10s, time: timestamp(event.t), aggregate: { n: count(), at: int(start) } } }",
      true
    ),
    ("{ window: { gap: 7s, time: timestamp(event.t), to: int(end) } }", true),
    ("{ window: { gap: 7s, time: timestamp(event.t), lateness: 20s, aggregate: { n: count(), at: int(end) } } }", true),
    ("{ window: { every: 10ms, to: 'events.map(e, e.t)' } }", false),
    ("{ window: { gap: 7ms, to: 'events.map(e, e.t)' } }", false),
    ("{ window: { gap: 9ms, maxLength: 12ms, aggregate: { n: count() } } }", false),
    ("{ bufferWithTime: 9ms }, { map: 'event.map(e, e.t)' }", false),
    ("{ throttle: 9ms }", false),
    ("{ throttle: { quiet: 9ms, maxWait: 15ms } }", false),
    ("{ filter: event.t >= 0 }, { window: { every: 10s, time: timestamp(event.t), to: int(start) } }", true),
  ]

  /// At the end each step sends, over all groups, in the order in which it would send if time went on. The chain is either one of fused steps or,
  /// with `timeout`, one with its own node.
  @Test(arguments: steps.indices, ["", ", { timeout: 9h }"])
  func theEndIsTimeGoingOn(_ step: Int, _ more: String) throws {
    let (text, isByEvents) = Self.steps[step]
    for seed in 0..<12 {
      var random = SplitMix(UInt64(seed))
      var now = 100
      var at: Int64 = 0
      let items = (0..<(2 + random.below(14))).map { _ in
        now += random.below(8)
        at += Int64(random.below(5))
        return Item(at: at, key: random.below(4), time: max(0, now - random.below(6)))
      }
      let yaml = Self.pipeline(text, more)
      let later: [Item] = isByEvents ? [Item(at: at + 1, key: 9, time: 100_000)] : []
      let ended = try PipelineRun(yaml, sources: ["a": Self.source(items, end: at + 1)])
      let wentOn = try PipelineRun(yaml, sources: ["a": Self.source(items + later, end: at + 100_000)])
      func said(_ run: PipelineRun) -> [String] {
        run.out.entries.map { "\($0.moment)" }.filter { !$0.hasPrefix("[9,") }
      }
      #expect(said(ended) == said(wentOn), "\(yaml), seed \(seed)")
      #expect(ended.deadLetters == wentOn.deadLetters)
      var options = PipelineRun.Options()
      options.cutAfter = { _ in true }
      let cut = try PipelineRun(yaml, sources: ["a": Self.source(items, end: at + 1)], options: options)
      #expect(said(cut) == said(ended), "restored: \(yaml), seed \(seed)")
      #expect(cut.refusals.isEmpty)
      options = PipelineRun.Options()
      options.drainAt = .milliseconds(at)
      let stopped = try PipelineRun(
        yaml, sources: ["a": Self.source(items, end: at + 100)], options: options)
      #expect(said(stopped) == said(ended), "stopped: \(yaml), seed \(seed)")
    }
  }

  /// The most frequent key of each window, by a second window after the first: it rejects nothing and is correct, also at the end.
  @Test(arguments: ["", ", { timeout: 9h }"]) func aSecondWindowSeesTimesInOrder(_ more: String) throws {
    let yaml = """
      name: t
      sources: { a: { scripted: {} } }
      sinks:
        out:
          from: a
          chain:
            - groupBy:
                key: event.k
                chain: [ { window: { every: 10s, time: timestamp(event.t), aggregate: { n: count(), at: start, k: meta.key } } }\(more) ]
            - window:
                every: 10s
                time: event.at
                to: "{'at': int(events[0].at), 'top': events.filter(e, e.n == events.map(x, x.n).max())[0].k}"
          probe: {}
      """
    let items = [Item(at: 0, key: 1, time: 1), Item(at: 1, key: 2, time: 2), Item(at: 2, key: 2, time: 3)]
    for lateness in [0, 60] {
      let run = try PipelineRun(
        yaml.replacing("timestamp(event.t), ", with: "timestamp(event.t), lateness: \(lateness)s, "),
        sources: ["a": Self.source(items + [Item(at: 3, key: 1, time: 11), Item(at: 4, key: 2, time: 25)], end: 5)])
      #expect(run.deadLetters.isEmpty)
      #expect(
        run.out.entries.map { "\($0.moment)" } == [
          #"{"at":0,"top":2}"#, #"{"at":10,"top":1}"#, #"{"at":20,"top":2}"#, "the completion",
        ])
    }
  }

  /// A chain that ends early while others still send, and windows that a group sends after the end.
  @Test func aChainMayEndMeanwhile() throws {
    let items = [Item(at: 0, key: 1, time: 31), Item(at: 1, key: 2, time: 12), Item(at: 2, key: 1, time: 3)]
    let run = try PipelineRun(
      Self.pipeline(
        "{ window: { every: 10s, time: timestamp(event.t), lateness: 60s, to: int(start) } }", ", { take: 1 }"),
      sources: ["a": Self.source(items, end: 3)])
    #expect(run.out.entries.map { "\($0.moment)" } == ["[1,0]", "[2,10]", "the completion"])
  }

  @Test(arguments: [
    ("count: 3, step: 1", 3, ["[1,2,3]", "[2,3]", "[3]"]), ("count: 3, step: 1", 2, ["[1,2]", "[2]"]),
    ("count: 3, step: 2", 4, ["[1,2,3]", "[3,4]"]), ("count: 3, step: 2", 5, ["[1,2,3]", "[3,4,5]", "[5]"]),
    ("count: 2, step: 3", 4, ["[1,2]", "[4]"]), ("count: 2, step: 3", 3, ["[1,2]"]), ("count: 2", 3, ["[1,2]", "[3]"]),
    ("count: 4, step: 2", 6, ["[1,2,3,4]", "[3,4,5,6]", "[5,6]"]),
  ]) func openWindowsByNumberAreSent(_ form: String, _ count: Int, _ expected: [String]) throws {
    let items = (1...count).map { Item(at: Int64($0), key: 1, time: $0) }
    func said(_ form: String) throws -> [String] {
      var options = PipelineRun.Options()
      options.cutAfter = { $0 > 2 }
      let yaml = Self.pipeline("{ window: { \(form) } }", "")
      let whole = try PipelineRun(yaml, sources: ["a": Self.source(items, end: 99)])
      let cut = try PipelineRun(yaml, sources: ["a": Self.source(items, end: 99)], options: options)
      #expect(whole.out == cut.out)
      return whole.out.entries.dropLast().map { "\($0.moment)" }
    }
    #expect(try said(form + ", to: 'events.map(e, e.t)'") == expected.map { "[1,\($0)]" })
    let sums = try said(form + ", aggregate: sum(event.t)")
    #expect(sums.count == expected.count)
    #expect(sums.last == "[1,\(expected.last?.split { !$0.isNumber }.compactMap { Int($0) }.reduce(0, +) ?? 0)]")
  }
}
