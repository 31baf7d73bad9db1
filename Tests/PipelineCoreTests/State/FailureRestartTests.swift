import Foundation
import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// A pipeline that fails and is restarted unchanged, several times in one process or from a store: no step loses its state (RX507).
@Suite struct FailureRestartTests {
  /// One execution on virtual time.
  private final class Run {
    let time = VirtualTime()
    let executor: Executor
    let execution: Execution
    let store: MemoryStore?

    /// - Parameter disk: A store, which commits immediately.
    init(
      _ plan: Plan, _ scripts: [String: SignalHistory], from state: [UInt8]?, disk: MemoryStore.Disk?, isDurable: Bool
    ) {
      executor = Executor(clock: time)
      execution = Execution(
        plan: plan, executor: executor,
        services: Services(http: NoHTTPClient(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 1 }))
      store = disk.map { MemoryStore($0, isImmediate: true) }
      if let store {
        execution.commit(with: DeliveryOptions(store: store, isDurable: isDurable))
      } else {
        execution.settings.keepsStateOnFailure = true
      }
      execution.replacements.sinks = { _ in ProbeSink(ProbeSink.Recording()) }
      execution.replacements.sources = { name in scripts[name].map { ScriptedSource($0.script) } }
      let execution = execution
      nonisolated(unsafe) let running = execution
      executor.post { running.launch(restoring: state) { _ in running.finishCommits {} } }
    }

    /// Runs to the end, but at most so many turns.
    func advance(_ turns: Int = 2000) {
      for _ in 0..<turns {
        if executor.runOne() { continue }
        guard execution.outcome == nil, let next = executor.nextDeadline else { break }
        time.advance(to: max(next, time.now))
      }
    }

    /// Drops everything, as a crash does.
    func drop() {
      nonisolated(unsafe) let running = execution
      executor.post { running.cancel() }
      while executor.runOne() {}
    }

    var hasFailed: Bool { if case .failed = execution.outcome { true } else { false } }
  }

  private enum Keeping: CaseIterable { case failure, light, durable }

  private enum Way {
    case fails(Keeping)
    case crashes
  }

  /// One restart mode for each shape, so that the shapes of an example cover all modes; RXD_RANDOM_GRAPHS selects all.
  private static func ways(_ number: Int) -> [Way] {
    let all = Keeping.allCases.map(Way.fails) + [.crashes]
    return isThorough ? all : [all[number % all.count]]
  }

  private static let isThorough = ProcessInfo.processInfo.environment["RXD_RANDOM_GRAPHS"] != nil

  /// Fails and restarts twice; returns how many restarts continued from a state. `compiled`: the plan of the first start.
  private func restart(
    _ yaml: String, _ scripts: [String: SignalHistory], _ keeping: Keeping, crashAfter: Int? = nil,
    compiled: Plan? = nil,
    _ location: Testing.SourceLocation = #_sourceLocation
  ) throws -> Int {
    var state: [UInt8]?
    var disk: MemoryStore.Disk? = keeping == .failure ? nil : .init()
    var restarts = 0
    var compiled = compiled
    for round in 0..<3 {
      // A new process compiles the file again.
      let plan = try compiled ?? PipelineRun.compile(yaml)
      compiled = nil
      let run = Run(plan, scripts, from: state ?? disk?.state, disk: disk, isDurable: keeping == .durable)
      _ = run.executor.runOne()
      if round > 0 {
        restarts += 1
        let found = run.execution.refusals.map(\.message)
        #expect(found == [], "round \(round), \(keeping):\n\(yaml)", sourceLocation: location)
        if !found.isEmpty { break }
      }
      run.advance(crashAfter ?? 2000)
      let hasFailed = run.hasFailed
      if let store = run.store {
        disk = store.disk
        state = nil
        if disk?.state == nil { break }
      } else {
        guard hasFailed, let saved = run.execution.savedState else { break }
        state = saved
      }
      if run.execution.outcome == nil { run.drop() }
      if !hasFailed, crashAfter == nil { break }
    }
    return restarts
  }

  /// Fails at its `count`th event.
  private func failing(_ count: Int) -> String {
    "{ name: nth, scan: { start: 0, next: running + 1 } }, { map: '6 / (event - \(count))', onError: fail }"
  }

  /// The contexts in which a step can be used.
  private func shapes(_ example: MarbleCase) -> [String] {
    let read = "  out: { from: result, probe: {} }\n"
    var shapes = [example.yaml]
    for count in 1...3 {
      shapes.append(
        example.yaml.replacing(read, with: "  out: { from: result, chain: [ \(failing(count)) ], probe: {} }\n"))
    }
    guard !example.isSignal, !example.text.contains("\n") else { return shapes }
    let step = example.text.contains(":") && !example.text.hasPrefix("{") ? "{ \(example.text) }" : example.text
    let outer = "      - \(example.text)\n"
    for count in 1...2 {
      for nested in [
        "groupBy: { key: \"'k'\", chain: [ \(step), \(failing(count)) ] }",
        "groupBy: { key: \"'k'\", chain: [ { groupBy: { key: \"'l'\", chain: [ \(step), \(failing(count)) ] } } ] }",
        "flattenMap: { signal: { values: [1, 2, 3], chain: [ \(step), { delay: 1ms }, \(failing(count)) ] } }",
        "flattenMap: { policy: concat, signal: { values: [1, 2], chain: [ \(step) ] } }\n      - \(failing(count).replacing("}, {", with: "}\n      - {"))",
        "groupBy: { key: \"'k'\", chain: [ \(step) ] }\n      - \(failing(count).replacing("}, {", with: "}\n      - {"))",
      ] {
        shapes.append(example.yaml.replacing(outer, with: "      - \(nested)\n"))
      }
    }
    shapes.append(
      example.yaml.replacing(
        read,
        with: read + "  lost: { from: result.errors, chain: [ { delay: 1ms }, \(failing(1)) ], probe: {} }\n"))
    return shapes
  }

  @Test(arguments: CatalogueExample.marbles) func examples(_ example: CatalogueExample) throws {
    let whole = try MarbleCase(example.example)
    let scripts = Dictionary(uniqueKeysWithValues: whole.inputs.map { ($0.name, $0.history) })
    for (number, yaml) in shapes(whole).enumerated() {
      // A step is not allowed in every context.
      guard let plan = try? PipelineRun.compile(yaml) else { continue }
      for way in Self.ways(number &+ Int(example.location.line)) {
        switch way {
        case .fails(let keeping): _ = try restart(yaml, scripts, keeping, compiled: plan, example.location)
        case .crashes: _ = try restart(yaml, scripts, .durable, crashAfter: 5, compiled: plan, example.location)
        }
      }
    }
    // An input that fails in the middle.
    let plan = try? PipelineRun.compile(whole.yaml)
    for input in whole.inputs.indices {
      var entries = whole.inputs[input].history.entries
      guard entries.count > 1 else { continue }
      entries.removeLast(entries.count / 2)
      entries.append(.init(at: entries.last?.at ?? .zero, .error("broken")))
      var broken = scripts
      broken[whole.inputs[input].name] = SignalHistory(entries)
      for keeping in Keeping.allCases {
        _ = try restart(whole.yaml, broken, keeping, compiled: plan, example.location)
      }
    }
  }

  /// The restarts that the laws check do occur.
  @Test(arguments: [0, 1, 2]) func restartsHappen(_ number: Int) throws {
    let yaml = """
      name: t
      sources: { a: { scripted: {} } }
      sinks: { out: { from: a, chain: [ { delay: 2ms }, \(failing(2)) ], probe: {} } }
      """
    let script = SignalHistory(try Marbles("-1-2-3-4|"))
    #expect(try restart(yaml, ["a": script], Keeping.allCases[number]) > 0)
  }

  @Test(arguments: 0..<(isThorough ? 400 : 40) as Range<UInt64>) func randomGraphs(_ seed: UInt64) throws {
    var generator = GraphGenerator(seed: seed &+ 7_000)
    generator.hasCommands = seed % 2 == 0
    let graph = generator.graph()
    var broken = graph.scripts
    for name in broken.keys.sorted() where generator.below(2) == 0 {
      var entries = broken[name]?.entries ?? []
      guard entries.count > 1 else { continue }
      entries.removeLast(generator.below(entries.count))
      entries.append(.init(at: entries.last?.at ?? .zero, .error("broken")))
      broken[name] = SignalHistory(entries)
    }
    let plan = try PipelineRun.compile(graph.yaml)
    for scripts in [graph.scripts, broken] {
      for keeping in Keeping.allCases { _ = try restart(graph.yaml, scripts, keeping, compiled: plan) }
      _ = try restart(graph.yaml, scripts, .light, crashAfter: 1 + generator.below(12), compiled: plan)
      _ = try restart(graph.yaml, scripts, .durable, crashAfter: 1 + generator.below(12), compiled: plan)
    }
  }
}
