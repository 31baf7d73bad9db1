import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// Counters and observers of edges: the sums agree, observers see exactly the counted events, and observing changes
/// nothing.
@Suite struct CounterTests {
  private final class Watcher: EdgeObserver {
    var events: UInt64 = 0
    var open = 0
    /// The events without a verdict so far, and the verdicts.
    var undecided = 0
    var verdicts: [Verdict: Int] = [:]
    override func receive(_ event: Event) {
      events += 1
      undecided += 1
    }
    override func decided(_ verdict: Verdict) {
      undecided -= 1
      verdicts[verdict, default: 0] += 1
    }
    override func began() { open += 1 }
    override func complete() { open -= 1 }
    override func fail(_ failure: SignalFailure) { open -= 1 }
    override func cancelled() { open -= 1 }
  }

  private func sources(_ graph: GraphGenerator.Graph) -> [String: any SourceComponent] {
    graph.scripts.mapValues { ScriptedSource($0.script) as any SourceComponent }
  }

  /// A random graph whose first sink has fused steps.
  private func graph(_ seed: UInt64) -> GraphGenerator.Graph {
    var generator = GraphGenerator(seed: seed)
    generator.hasCommands = seed % 3 == 0
    var graph = generator.graph()
    let chain =
      "[ { filter: dyn(event) != 3 }, { map: '[event]' }, { skip: 1 }, { scan: { start: 0, next: running + 1 } } ]"
    graph.yaml.replace(", probe: {} }\n  other", with: ", chain: \(chain), probe: {} }\n  other")
    return graph
  }

  @Test(arguments: 0..<8) func sumsAgree(_ part: Int) throws {
    var exact = 0
    for seed in stride(from: UInt64(part), to: RandomGraphTests.count, by: 8) {
      let graph = graph(seed)
      guard let plan = try? PipelineRun.compile(graph.yaml) else { continue }
      let run = PipelineRun(plan, sources: sources(graph))
      guard run.isQuiet else { continue }
      let faults = run.statistics.faults(plan, received: run.counters.received)
      if !faults.isEmpty { Issue.record("seed \(seed): \(faults.joined(separator: "\n"))\n\(graph.yaml)") }
      // Sinks count their received events themselves.
      for sink in plan.sinks {
        let step = run.statistics.steps[sink.step.number]
        let events = run.texts[sink.name, default: []].count
        if step.received != UInt64(events) {
          Issue.record("seed \(seed): \(sink.name) got \(events), and \(step.received) were counted\n\(graph.yaml)")
        }
      }
      exact += run.statistics.steps.count { $0.isExact && $0.received > 0 }
    }
    #expect(exact > 50)
  }

  /// At any moment of a run, each received event has a verdict or is held: if everything is cancelled then, as many are given up, and a run
  /// that continues from the saved state no longer has them.
  @Test(arguments: 0..<8) func whatIsHeldIsCounted(_ part: Int) throws {
    var holding: UInt64 = 0
    var restored: UInt64 = 0
    for seed in stride(from: UInt64(part), to: RandomGraphTests.count, by: 8) {
      let graph = graph(seed)
      guard let plan = try? PipelineRun.compile(graph.yaml) else { continue }
      var running: Execution?
      var before: PipelineStatistics?
      var options = PipelineRun.Options()
      var faults: [String] = []
      options.prepare = { execution in
        if let running, let before {
          for (was, now) in zip(before.steps, running.statistics.steps) where was.isExact && plan.isInFile(was.step) {
            holding += was.holding
            if now.held &- was.held != was.holding || now.holding != 0 || now.sent != was.sent {
              faults.append("\(plan.steps[was.step.number].label): \(was), and after the end \(now)")
            }
          }
        }
        running = execution
      }
      options.cutAfter = { turn in
        before = running?.statistics
        let received = running?.counters.received ?? 0
        faults += before?.faults(plan, received: received) ?? []
        return turn % 5 == Int(seed % 5)
      }
      let run = PipelineRun(plan, sources: sources(graph), options: options)
      guard run.isQuiet else { continue }
      faults += run.statistics.faults(plan, received: run.counters.received)
      restored += run.statistics.steps.reduce(0) { $0 + $1.restored }
      if !faults.isEmpty { Issue.record("seed \(seed): \(faults.joined(separator: "\n"))\n\(graph.yaml)") }
    }
    #expect(holding > 5)
    #expect(restored > 0)
  }

  /// An observer that has seen enough gets no further events, at edges between fused steps too; the events that it saw and those reported as
  /// missed are all events, and nothing else changes.
  @Test(arguments: 0..<8) func aSatedObserverGetsTheNumberOfTheRest(_ part: Int) throws {
    final class Sated: EdgeObserver {
      let limit: UInt64
      var seen: UInt64 = 0
      var unseen: UInt64 = 0
      init(_ limit: UInt64) { self.limit = limit }
      override func receive(_ event: Event) { seen += 1 }
      override var isSated: Bool { seen >= limit }
      override func missed(_ events: Int) { unseen += UInt64(events) }
    }
    var unseen: UInt64 = 0
    for seed in stride(from: UInt64(part), to: RandomGraphTests.count, by: 8) {
      let graph = graph(seed)
      guard let plan = try? PipelineRun.compile(graph.yaml) else { continue }
      let alone = PipelineRun(plan, sources: sources(graph))
      guard alone.isQuiet else { continue }
      var observers: [Int: Sated] = [:]
      var running: Execution?
      var options = PipelineRun.Options()
      options.prepare = { execution in
        running = execution
        for edge in plan.edges.indices.dropFirst() {
          let observer = Sated(UInt64(edge) % 3)
          observers[edge] = observer
          execution.attach(observer, to: EdgeID(edge))
        }
      }
      let run = PipelineRun(plan, sources: sources(graph), options: options)
      #expect(
        run.texts == alone.texts && run.statistics.counts == alone.statistics.counts, "seed \(seed)\n\(graph.yaml)")
      for (edge, observer) in observers { running?.detach(observer, from: EdgeID(edge)) }
      for (edge, counted) in run.statistics.edges.enumerated().dropFirst() {
        guard let observer = observers[edge] else { continue }
        unseen += observer.unseen
        if observer.seen + observer.unseen != counted.events {
          Issue.record(
            "seed \(seed): edge \(edge): \(observer.seen) and \(observer.unseen) of \(counted.events)\n\(graph.yaml)")
        }
      }
    }
    #expect(unseen > 100)
  }

  /// The events and timers of a step, in the middle of a run.
  @Test func whatThereIsNow() throws {
    let yaml = """
      sources: { a: { marbles: '-1-2-3-4-5-6 10ms |' } }
      signals:
        late: { from: a, chain: [ { delay: { by: 4ms, limit: 2 } } ] }
        inner: { from: a, chain: [ { flattenMap: { policy: concat, signal: { from: { marbles: '---- ---- ---- #' }, chain: [ { retry: { count: 1 } } ] } } } ] }
        closing: { from: a, chain: [ { window: { every: 25ms } } ] }
        shared: { from: a, chain: [ { groupBy: { key: event % 4, chain: [ { scan: { start: 0, next: running + 1 } } ] } } ] }
        apart: { from: a, chain: [ { groupBy: { key: event % 4, chain: [ { delay: 1ms } ] } } ] }
        over: { from: a, chain: [ { groupBy: { key: event % 4, chain: [ { scan: { start: 0, next: running + 1 } }, { take: 1 } ] } } ] }
      sinks:
        out: { from: late, probe: {} }
        other: { from: inner, probe: {} }
        third: { from: closing, probe: {} }
        fourth: { from: { merge: [shared, apart, over] }, probe: {} }
      """
    let plan = try PipelineRun.compile(yaml)
    var running: Execution?
    var seen: [PipelineStatistics] = []
    var options = PipelineRun.Options()
    options.prepare = { running = $0 }
    options.cutAfter = { _ in
      if let running { seen.append(running.statistics) }
      return false
    }
    let run = try PipelineRun(yaml, sources: [:], options: options)
    func steps(_ keyword: String) -> [PipelineStatistics.Step] {
      seen.flatMap(\.steps).filter { plan.steps[$0.step.number].keyword == keyword }
    }
    let delay = steps("delay")
    #expect(delay.map(\.holding).max() ?? 0 >= 2)
    #expect(delay.contains { $0.timers == 1 && $0.nextTimer == .milliseconds(4) })
    #expect(delay.last.map { $0.holding == 0 && !$0.isPausing } == true)
    // A delaying step among fused ones, too.
    #expect(steps("window").contains { $0.timers == 1 && ($0.nextTimer ?? .zero) > .zero })
    let flatten = steps("flattenMap")
    #expect(flatten.contains { $0.inner == 1 && $0.holding >= 3 })
    #expect(flatten.last?.holding == 0 || run.outcome != .completed)
    // Groups, whether they share a run or not; ended groups are not counted.
    let groups = plan.steps.indices.filter { plan.steps[$0].keyword == "groupBy" }.map { number in
      seen.map { $0.steps[number].inner }.max()
    }
    #expect(groups == [4, 4, 0], "\(groups)")
    let retry = steps("retry")
    #expect(retry.map(\.retries).max() == 1)
    #expect(seen.map(\.turns) == seen.map(\.turns).sorted())
  }

  @Test func agesOfAQueue() {
    var ages = QueueAges()
    let start = Instant(nanoseconds: 0)
    #expect(ages.oldest == nil)
    ages.add(2, at: start)
    ages.add(3, at: start + .milliseconds(500))
    ages.add(1, at: start + .seconds(2))
    #expect(ages.oldest == start)
    ages.remove(4)
    #expect(ages.oldest == start)
    ages.remove(1)
    #expect(ages.oldest == start + .seconds(2))
    ages.remove(1)
    #expect(ages.oldest == nil)
    // A day of one event a second: the memory is bounded, and the oldest age is exact to a few minutes.
    for second in 0..<86_400 { ages.add(1, at: start + .seconds(Int64(second))) }
    ages.remove(43_200)
    let oldest = ages.oldest.map { ($0 - start).nanoseconds / 1_000_000_000 } ?? 0
    #expect(oldest > 43_200 - 300 && oldest <= 43_200)
  }

  @Test(arguments: 0..<8) func watchersSeeWhatIsCounted(_ part: Int) throws {
    var seen: UInt64 = 0
    var fused = 0
    for seed in stride(from: UInt64(part), to: RandomGraphTests.count, by: 8) {
      let graph = graph(seed)
      guard let plan = try? PipelineRun.compile(graph.yaml) else { continue }
      let plain = PipelineRun(plan, sources: sources(graph))
      guard plain.isQuiet else { continue }
      var watchers: [Watcher] = []
      var options = PipelineRun.Options()
      options.prepare = { execution in
        watchers = plan.edges.indices.map { _ in Watcher() }
        for number in plan.edges.indices.dropFirst() { execution.attach(watchers[number], to: EdgeID(number)) }
      }
      let watched = PipelineRun(plan, sources: sources(graph), options: options)
      if watched.sinks != plain.sinks
        || watched.statistics.counts != plain.statistics.counts || watched.deadLetters != plain.deadLetters
      {
        Issue.record("seed \(seed): watching gives\n\(watched.sinks)\nnot\n\(plain.sinks)\n\(graph.yaml)")
      }
      for (number, edge) in plain.statistics.edges.enumerated().dropFirst() {
        seen += edge.events
        if plan.edges[number].isBetweenFusedSteps { fused += Int(edge.events) }
        if watchers[number].events != edge.events {
          Issue.record(
            "seed \(seed): \(plan.id(of: edge.plan.from)) to \(plan.id(of: edge.plan.to)): \(edge.events) counted, \(watchers[number].events) seen\n\(graph.yaml)"
          )
        }
        if watchers[number].undecided != 0 { Issue.record("seed \(seed): events have no verdict\n\(graph.yaml)") }
      }
    }
    #expect(seen > 1000)
    #expect(fused > 50)
  }

  /// An observer of an edge into a step that holds events is notified of each replaced event, and of the replacement.
  @Test(arguments: [
    ("throttle: 5ms", ["1", "2", "3"]), ("throttle: { quiet: 5ms, when: event < 4 }", ["1", "2", "3"]),
    ("rateLimit: { per: 1s, mode: both }", ["2", "3"]), ("takeLast: 2", ["1", "2"]),
    ("gate: { signal: b, whileClosed: latest }", ["1", "2", "3"]),
    ("delay: 5ms", []),
  ])
  func replacedEventsAreReported(_ step: String, _ expected: [String]) throws {
    final class Replaced: EdgeObserver {
      var values: [String] = []
      var order: [String] = []
      override func receive(_ event: Event) { order.append("\(event.value.asInt) comes") }
      override func superseded(_ event: Event) {
        values.append("\(event.value.asInt)")
        order.append("\(event.value.asInt) goes")
      }
      override func decided(_ verdict: Verdict) { order.append(verdict.rawValue) }
    }
    let yaml = """
      sources: { a: { marbles: '-1234|' }, b: { marbles: '---------1|' } }
      sinks: { out: { from: a, chain: [ { \(step) } ], probe: {} } }
      """
    let plan = try PipelineRun.compile(yaml)
    let number = try #require(plan.steps.indices.first { plan.id(of: .step(StepID($0))).hasPrefix("out/") })
    let edge = try #require(
      plan.edges.indices.first {
        if case .step(StepID(number)) = plan.edges[$0].to { plan.edges[$0].input != nil } else { false }
      })
    let observer = Replaced()
    let gone = Replaced()
    var options = PipelineRun.Options()
    options.prepare = { execution in
      execution.attach(observer, to: EdgeID(edge))
      execution.attach(gone, to: EdgeID(edge))
      execution.detach(gone, from: EdgeID(edge))
    }
    let run = PipelineRun(plan, sources: [:], options: options)
    #expect(observer.values == expected, "\(observer.order)")
    #expect(run.statistics.steps[number].superseded == UInt64(expected.count))
    #expect(gone.order.isEmpty)
    if step == "throttle: 5ms" {
      #expect(Array(observer.order.prefix(5)) == ["1 comes", "kept", "2 comes", "1 goes", "kept"])
    }
  }

  /// An edge between fused steps, observed from the middle of a run and not to its end.
  @Test func anObserverComesAndGoes() throws {
    let yaml = """
      sources: { a: { marbles: '-1-2-3-4-5-6|' } }
      sinks: { out: { from: a, chain: [ { filter: event != 2 }, { map: event * 10 }, { filter: event != 40 } ], probe: {} } }
      """
    let plan = try PipelineRun.compile(yaml)
    let edge = try #require(plan.edges.indices.first { plan.id(of: plan.edges[$0].from).hasSuffix("map") })
    final class Values: EdgeObserver {
      var lines: [String] = []
      override func receive(_ event: Event) { lines.append("\(event.value.asInt)") }
      override func decided(_ verdict: Verdict) { lines.append(verdict.rawValue) }
    }
    let observer = Values()
    var running: Execution?
    var options = PipelineRun.Options()
    options.prepare = { running = $0 }
    // The first turn is the launch.
    options.cutAfter = { turn in
      if turn == 3 { running?.attach(observer, to: EdgeID(edge)) }
      if turn == 6 { running?.detach(observer, from: EdgeID(edge)) }
      return false
    }
    let run = try PipelineRun(yaml, sources: [:], options: options)
    #expect(run.texts["out"] == ["10", "30", "50", "60"])
    #expect(observer.lines == ["30", "passed", "40", "dropped", "50", "passed"])
    let steps = Dictionary(uniqueKeysWithValues: run.statistics.steps.map { (plan.steps[$0.step.number].label, $0) })
    let first = try #require(steps["out/filter"])
    #expect(first.received == 6 && first.dropped == 1 && first.sent == 5)
  }

  @Test func verdictsHaveNames() throws {
    let yaml = """
      sources: { a: { marbles: '-1-2-3-4|' } }
      sinks:
        out:
          from: a
          chain: [ { filter: 6 / (dyn(event) - 2) > 0 }, { map: 6 / (dyn(event) - 3) }, { throttle: 1ms }, { takeLast: 1 } ]
          probe: {}
      """
    let run = try PipelineRun(yaml, sources: [:])
    let plan = try PipelineRun.compile(yaml)
    func step(_ keyword: String) -> PipelineStatistics.Step? {
      run.statistics.steps.first { plan.steps[$0.step.number].keyword == keyword }
    }
    // 1 is dropped, 2 cannot be decided, 3 is rejected.
    let filter = try #require(step("filter"))
    #expect((filter.received, filter.dropped, filter.undecided, filter.sent) == (4, 1, 1, 2))
    let map = try #require(step("map"))
    #expect((map.received, map.rejected, map.sent) == (2, 1, 1))
    #expect(run.statistics.faults(plan, received: run.counters.received) == [])
  }
}
