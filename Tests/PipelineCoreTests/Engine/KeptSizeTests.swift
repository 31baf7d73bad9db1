import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// State sizes are counted when state is added and removed: a query walks over nothing, and ended operators hold
/// nothing.
@Suite struct KeptSizeTests {
  /// Operators whose state is neither key nor event nor value: numbers, instants, and inner signals, which count for themselves.
  static let keepsNumbers: Set<String> = [
    "absence", "concat", "count", "exec", "finally", "if", "initially", "mapReplace", "merge", "race", "repeat",
    "retry", "skip", "skipUntil",
    "skipWhile", "startWith", "subscribeOn", "switch", "take", "takeUntil", "takeUntilReplacement", "takeWhile", "then",
    "timeout",
    "timeoutBetween", "eventTime", "switchToLatest", "all", "any", "log", "do", "execute", "catch",
  ]

  /// In their examples no state remains at the end of a turn.
  static let keepsWithinTurns: Set<String> = ["circuitBreaker", "deliverOn", "flattenMap"]

  /// The state sizes of a run after each of its turns, and of its executions after their ends.
  private typealias Kept = (keys: Int, events: Int, bytes: Int)

  private final class Looks {
    var running: Execution?
    var kept: [[Kept]] = []
    var left: [String] = []

    func look() {
      guard let statistics = running?.statistics else { return }
      kept.append(statistics.steps.map { ($0.keys ?? 0, $0.keptEvents ?? 0, $0.keptBytes ?? 0) })
    }

    /// The execution has been cancelled or has ended.
    func end() {
      guard let running else { return }
      for step in running.statistics.steps
      where step.keys ?? 0 != 0 || step.keptEvents ?? 0 != 0 || step.keptBytes ?? 0 != 0 {
        left.append(
          "\(running.plan.steps[step.step.number].label): \(step.keys ?? 0) keys, \(step.keptBytes ?? 0) bytes")
      }
    }
  }

  private func run(
    _ looks: Looks, cutting: @escaping (Int) -> Bool, start: (PipelineRun.Options) throws -> PipelineRun
  ) rethrows -> PipelineRun {
    var options = PipelineRun.Options()
    options.prepare = {
      looks.end()
      looks.running = $0
    }
    options.cutAfter = { turn in
      looks.look()
      return cutting(turn)
    }
    let run = try start(options)
    looks.end()
    return run
  }

  @Test(arguments: Catalogue.operators.components)
  func operatorsCountWhatTheyKeep(_ entry: CatalogueEntry) throws {
    guard case .state = entry.persistence else { return }
    var most: Kept = (0, 0, 0)
    for example in entry.examples {
      guard case .marble = example.body else { continue }
      let marbles = try MarbleCase(example)
      var kept: [[[Kept]]] = []
      for isCut in [false, true] {
        let looks = Looks()
        _ = try run(looks, cutting: { _ in isCut }, start: { try marbles.run(options: $0) })
        #expect(looks.left.isEmpty, "\(example.body), cut: \(isCut)")
        kept.append(looks.kept)
        guard let plan = looks.running?.plan else { continue }
        for look in looks.kept {
          for (number, step) in look.enumerated() where plan.steps[number].keyword == entry.name {
            #expect(step.keys >= 0 && step.events >= 0 && step.bytes >= 0)
            most = (max(most.keys, step.keys), max(most.events, step.events), max(most.bytes, step.bytes))
          }
        }
      }
      // The state restored after each turn equals that of a run without cuts; allocated memory may be larger.
      let (whole, cut) = (kept[0], kept[1])
      #expect(whole.count == cut.count)
      for (turn, (one, other)) in zip(whole, cut).enumerated() {
        #expect(
          one.map(\.keys) == other.map(\.keys) && one.map(\.events) == other.map(\.events)
            && one.map { $0.bytes > 0 } == other.map { $0.bytes > 0 },
          "\(example.body), turn \(turn): \(one) and \(other)")
      }
    }
    if Self.keepsWithinTurns.contains(entry.name) { return }
    #expect((most.bytes > 0) != Self.keepsNumbers.contains(entry.name), "'\(entry.name)' keeps \(most)")
    if ["distinct", "groupBy", "join"].contains(entry.name) { #expect(most.keys > 0) }
    // Events that are collected for a list, a pair or a window count as held.
    if ["bufferWithCount", "bufferWithTime", "collect", "join", "window", "zip"].contains(entry.name) {
      #expect(most.events > 0)
    }
  }

  private func pipeline(_ chain: String) -> String {
    """
    sources: { a: { marbles: '(123)-(456)-(123)- 100ms |' } }
    signals: { s: { from: a, chain: [ \(chain) ] } }
    sinks: { out: { from: s, probe: {} } }
    """
  }

  /// The maximum keys and bytes of a step, and those at the end of its input.
  private func most(_ chain: String, _ keyword: String) throws -> (keys: Int, bytes: Int) {
    let looks = Looks()
    _ = try run(looks, cutting: { _ in false }, start: { try PipelineRun(pipeline(chain), sources: [:], options: $0) })
    #expect(looks.left.isEmpty)
    let numbers = looks.running?.plan.steps.indices.filter { looks.running?.plan.steps[$0].keyword == keyword } ?? []
    let kept = looks.kept.flatMap { look in numbers.map { look[$0] } }
    return (kept.map(\.keys).max() ?? 0, kept.map(\.bytes).max() ?? 0)
  }

  @Test func keysAreThoseThatAreRemembered() throws {
    // An int as a key has nine bytes.
    for (chain, keyword, keys) in [
      ("distinct", "distinct", 6), ("{ distinct: { memory: 4 } }", "distinct", 4),
      ("{ distinct: { within: 1ms } }", "distinct", 3),
      ("{ groupBy: { key: event % 3, chain: [] } }", "groupBy", 3),
      ("{ groupBy: { key: event, idle: 1ms, chain: [] } }", "groupBy", 3),
      // The groups belong to one step.
      ("{ groupBy: { key: event % 3, chain: [ distinct ] } }", "distinct", 6),
    ] {
      let most = try most(chain, keyword)
      #expect(most == (keys, 9 * keys), "\(chain)")
    }
    // A group without events is removed, with the state of its steps.
    let windows = try most(
      "{ groupBy: { key: event, chain: [ { window: { every: 2ms, aggregate: { n: 'countDistinct(event)' } } } ] } }",
      "window")
    #expect(windows.keys >= 3 && windows.bytes > 0)
    #expect(try most("{ aggregate: { n: 'countDistinct(event)' } }", "aggregate").keys == 6)
  }

  @Test func bytesFollowTheEvents() throws {
    let one = try most("{ filter: event == 5 }, { map: 'string(event)' }, collect", "collect").bytes
    #expect(one > 0)
    let many = try most("{ map: 'string(event)' }, collect", "collect").bytes
    #expect(many == 9 * one)
  }

  /// Over random graphs, with commands, at every kind of end.
  @Test(arguments: 0..<4) func nothingIsLeft(_ part: Int) throws {
    var kept = 0
    for seed in stride(from: UInt64(part), to: RandomGraphTests.count, by: 4) {
      var generator = GraphGenerator(seed: seed)
      generator.hasCommands = seed % 3 == 0
      let graph = generator.graph()
      guard let plan = try? PipelineRun.compile(graph.yaml) else { continue }
      let looks = Looks()
      let sources = graph.scripts.mapValues { ScriptedSource($0.script) as any SourceComponent }
      _ = run(looks, cutting: { $0 % 7 == Int(seed % 7) }, start: { PipelineRun(plan, sources: sources, options: $0) })
      #expect(looks.left.isEmpty, "seed \(seed): \(looks.left)\n\(graph.yaml)")
      #expect(looks.kept.allSatisfy { $0.allSatisfy { $0.keys >= 0 && $0.bytes >= 0 } })
      kept += looks.kept.reduce(0) { $0 + $1.count { $0.bytes > 0 } }
    }
    #expect(kept > 100)
  }
}
