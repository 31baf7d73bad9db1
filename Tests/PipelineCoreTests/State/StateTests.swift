import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// The guarantees of a saved state beyond the laws.
@Suite struct StateTests {
  private func run(
    _ yaml: String, later: String? = nil, _ marbles: [String: String], cutAfter turn: Int,
    _ change: (inout PipelineRun.Options) -> Void = { _ in }
  ) throws -> PipelineRun {
    var options = PipelineRun.Options()
    options.cutAfter = { $0 == turn }
    options.laterPlan = try later.map { try PipelineRun.compile($0) }
    change(&options)
    return try PipelineRun(
      yaml,
      sources: try marbles.mapValues { ScriptedSource(SignalHistory(try Marbles($0)).script) as any SourceComponent },
      options: options)
  }

  private func pipeline(_ chain: String, source: String = "scripted: {}") -> String {
    """
    name: t
    sources: { a: { \(source) } }
    signals: { s: { from: a, chain: [ \(chain) ] } }
    sinks: { out: { from: s, probe: {} } }
    """
  }

  private func events(_ run: PipelineRun) -> [String] { run.out.entries.map { "\($0.at) \($0.moment)" } }

  private let sum = "{ scan: { start: 0, next: running + event } }"

  // MARK: The catalogue

  /// Operators that keep only an inner signal, which the graph saves, or clients that wait for an answer of this process.
  static let keptByTheGraph: Set<String> = ["initially", "httpServer", "tcp", "unix", "syslog", "statsd", "webSocket"]

  /// Every component that keeps something documents what happens to it.
  @Test(arguments: CatalogueTests.entries.filter { $0.kind != .sink })
  func whatIsKeptIsCarried(_ entry: CatalogueEntry) {
    guard !entry.memory.isEmpty, !Self.keptByTheGraph.contains(entry.name) else { return }
    #expect(entry.persistence != .nothing, "'\(entry.name)' keeps: \(entry.memory)")
  }

  /// Components that an example alone cannot show, which have their own tests.
  static let shownElsewhere: Set<String> = ["execute", "exec"]

  /// A component that declares a state writes some in one of its examples, and others write none.
  @Test(arguments: Catalogue.operators.components.filter { !shownElsewhere.contains($0.name) })
  func whatIsCarriedIsWritten(_ entry: CatalogueEntry) throws {
    var written: Set<String> = []
    for example in entry.examples {
      guard case .marble = example.body else { continue }
      let marbles = try MarbleCase(example)
      var options = PipelineRun.Options()
      options.cutAfter = { _ in true }
      let run = try marbles.run(options: options)
      written.formUnion(run.savedSizes.keys)
    }
    let isState = if case .state = entry.persistence { true } else { false }
    #expect(
      written.contains(entry.name) == isState,
      "'\(entry.name)' says \(entry.persistence); override `save` and `restore`, and give it an example that uses them")
  }

  // MARK: Other pipelines

  @Test func stepsMayBeInsertedAndMoved() throws {
    let before = pipeline("{ filter: event > 0 }, \(sum), distinctUntilChanged")
    let after = pipeline("{ map: event * 1 }, \(sum), { filter: event > 0 }, distinctUntilChanged")
    let run = try run(before, later: after, ["a": "1-2-3|"], cutAfter: 2)
    #expect(events(run) == ["0s 1", "2ms 3", "4ms 6", "5ms the completion"])
    #expect(run.refusals.isEmpty)
  }

  @Test func aChangedStepStartsEmptyAlone() throws {
    let before = pipeline("\(sum), { skip: 1 }")
    let after = pipeline("{ scan: { start: 100, next: running + event } }, { skip: 1 }")
    let run = try run(before, later: after, ["a": "1-2-3-4|"], cutAfter: 2)
    #expect(events(run) == ["2ms 3", "4ms 103", "6ms 107", "7ms the completion"])
    #expect(run.refusals.count == 1)
    let refusal = try #require(run.refusals.first)
    #expect(refusal.code == .stateRefused)
    #expect(refusal.message == "the saved state of 's/scan' cannot be used: the step has changed since")
    #expect(refusal.location?.line == 3)
  }

  @Test func aStepThatIsGoneIsReported() throws {
    let run = try run(pipeline(sum), later: pipeline("{ skip: 1 }"), ["a": "1-2-3|"], cutAfter: 2)
    #expect(events(run) == ["0s 1", "2ms 3", "5ms the completion"])
    #expect(run.refusals.map(\.message) == ["the pipeline has no step 's/scan' any more, so its state is dropped"])
  }

  @Test func aNameHoldsAStepTogether() throws {
    let named = "{ scan: { start: 0, next: running + event }, name: total }"
    let before = pipeline("\(sum), \(named)")
    let after = pipeline(named)
    let run = try run(before, later: after, ["a": "1-2-3|"], cutAfter: 2)
    #expect(events(run).dropFirst(2) == ["4ms 7", "5ms the completion"])
  }

  /// Changes of order, quotes and comments do not matter.
  @Test func anotherSpellingIsNoChange() throws {
    let before = pipeline("{ scan: { start: 0, next: running + event } }")
    let after = pipeline("{ scan: { next: 'running + event', start: 0 } }")
    let run = try run(before, later: after, ["a": "1-2-3|"], cutAfter: 2)
    #expect(run.refusals.isEmpty)
    #expect(events(run).contains("4ms 6"))
  }

  // MARK: Time

  /// Timers continue while the process is down.
  @Test func timeGoesByWhileNothingRuns() throws {
    let run = try run(pipeline("{ delay: 10ms }"), ["a": "12|"], cutAfter: 3) { $0.pause = .milliseconds(30) }
    // Both are due, and fire in order.
    #expect(events(run) == ["32ms 1", "32ms 2", "32ms the completion"])
  }

  // MARK: Damage

  private let everything = """
    name: t
    sources: { a: { scripted: {} }, b: { scripted: {} } }
    signals:
      s:
        from: a
        chain:
          - scan: { start: '"é\\\\u0041"', next: 'string(event)' }
          - map: "{'n': [event, optional.of(event), now, duration('1s'), 1.5, null, true]}"
          - throttle: 3ms
          - delay: 5ms
          - flattenMap: { policy: concat, signal: { marbles: '-8-9|', chain: [ { map: '[outer, event]' }, { delay: 2ms } ] } }
      g: { from: a, chain: [ { groupBy: { key: event, idle: 7ms, chain: [ { bufferWithTime: 4ms }, { retry: 2 } ] } } ] }
      z: { zip: [s, g, b] }
      c: { combineLatest: [z, a], chain: [ { sample: 2ms }, { repeat: 2 }, { timeout: 50ms }, { take: 9 }, distinctUntilChanged ] }
    sinks: { out: { from: c, probe: {} }, other: { from: g, chain: [ collect ], probe: {} } }
    """

  private func states() throws -> (plan: Plan, states: [[UInt8]], sources: [String: any SourceComponent]) {
    let plan = try PipelineRun.compile(everything)
    let sources = try ["a": "1-2-3-1-2----4--(12)|", "b": "5-6-7-8-9|"].mapValues {
      ScriptedSource(SignalHistory(try Marbles($0)).script) as any SourceComponent
    }
    var options = PipelineRun.Options()
    options.cutAfter = { _ in true }
    let run = PipelineRun(plan, sources: sources, options: options)
    #expect(run.refusals.isEmpty)
    #expect(run.outcome != nil)
    return (plan, run.savedStates, sources)
  }

  /// With a valid checksum, so that the readers themselves are tested. Whatever the bytes, nothing traps; invalid
  /// state starts empty.
  @Test func damagedBytesAreHarmless() throws {
    let (plan, states, sources) = try states()
    var generator = GraphGenerator(seed: 7)
    let state = states[states.count / 2]
    var unnoticed = 0
    for round in 0..<600 {
      var bytes = state
      for _ in 0...generator.below(3) {
        let at = 5 + generator.below(bytes.count - 13)
        switch round % 4 {
        case 0: bytes[at] ^= UInt8(1 << generator.below(8))
        case 1: bytes[at] = generator.pick([0, 1, 0x7F, 0x80, 0xFF])
        case 2: bytes.remove(at: at)
        default: bytes.insert(UInt8(generator.below(256)), at: at)
        }
      }
      bytes = Self.checked(bytes)
      var options = PipelineRun.Options()
      options.cutAfter = { $0 == states.count / 2 }
      options.damage = { _ in bytes }
      options.until = .milliseconds(200)
      options.turnLimit = 2000
      let run = PipelineRun(plan, sources: sources, options: options)
      if run.refusals.isEmpty { unnoticed += 1 }
    }
    #expect(unnoticed < 600)
  }

  @Test func everyCutOffFileIsRefused() throws {
    let (plan, states, sources) = try states()
    let state = try #require(states.last)
    for length in stride(from: 0, to: state.count, by: max(1, state.count / 100)) {
      var options = PipelineRun.Options()
      options.cutAfter = { $0 == 1 }
      options.damage = { _ in Array(state[..<length]) }
      options.until = .milliseconds(5)
      let run = PipelineRun(plan, sources: sources, options: options)
      #expect(run.refusals.map(\.code) == [.stateRefused])
    }
  }

  @Test(arguments: [(4, 9, "its format is 9"), (0, 0x58, "it is none"), (30, 0xFF, "it is damaged")])
  func anUnknownFormIsRefused(_ at: Int, _ byte: UInt8, _ reason: String) throws {
    let run = try run(pipeline(sum), ["a": "1-2-3|"], cutAfter: 2) {
      $0.damage = { state in
        var state = state
        state[at] = byte
        return state
      }
    }
    #expect(run.refusals.count == 1)
    #expect(run.refusals.first?.message.contains(reason) == true)
    #expect(run.outcome == .completed)
  }

  /// A state written before its checksum was XXH3.
  @Test func anOlderFormIsRead() throws {
    var old: [UInt8] = []
    let run = try run(pipeline(sum), ["a": "1-2-3|"], cutAfter: 2) {
      $0.damage = { state in
        #expect(StateTable.Format(state[4])?.isXXH3 == true)
        var state = state
        state[4] -= 2
        old = Self.checked(state)
        return old
      }
    }
    #expect(!old.isEmpty && run.refusals.isEmpty)
    #expect(events(run) == ["0s 1", "2ms 3", "4ms 6", "5ms the completion"])
  }

  /// Corrects the checksum.
  static func checked(_ bytes: [UInt8]) -> [UInt8] {
    let content = bytes.dropLast(8)
    let sum = StateTable.Format(bytes[4])?.checksum(content) ?? 0
    return content + (0..<8).map { UInt8(truncatingIfNeeded: sum >> (8 * UInt64($0))) }
  }

  // MARK: Size

  /// The sizes in docs/decisions/0008-operator-state.md; this only checks that they stay close.
  @Test func statesAreSmall() throws {
    func size(_ chain: String) throws -> Int {
      try run(pipeline(chain), ["a": "1-2-3|"], cutAfter: 2).savedStates.first?.count ?? 0
    }
    let empty = try size("")
    let scan = try size(sum) - empty
    let throttle = try size("{ throttle: 5ms }") - empty
    #expect(empty < 180 && scan < 60 && throttle < 100)
    print("state: a source and a sink \(empty) bytes, scan \(scan), throttle \(throttle)")
  }

  @Test func manyGroupsCostLittle() throws {
    let count = 10_000
    let plan = try PipelineRun.compile(
      pipeline("{ groupBy: { key: event, chain: [ { scan: { start: 0, next: running + 1 } } ] } }"))
    var script = (0..<count).map { (at: TimeSpan.zero, moment: ScriptedSource.Moment.next(OwnedValue(.int($0)))) }
    script.append((.milliseconds(1), .next(OwnedValue(.int(7)))))
    script.append((.milliseconds(2), .complete))
    var options = PipelineRun.Options()
    options.cutAfter = { $0 == 1 }
    let run = PipelineRun(plan, sources: ["a": ScriptedSource(script)], options: options)
    #expect(run.out.entries.dropLast().last?.moment == .next(.int(2)))
    #expect(run.refusals.isEmpty && run.outcome == .completed)
    let size = (run.savedStates.first?.count ?? 0) / count
    #expect(size > 0 && size < 50)
    print("state: \(size) bytes a group; \(count) groups saved in \(run.saving), restored in \(run.restoring)")
  }
}
