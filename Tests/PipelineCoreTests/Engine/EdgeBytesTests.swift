import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// The bytes of an edge are estimated from the sizes of sampled events.
@Suite struct EdgeBytesTests {
  // MARK: Totals

  @Test func aTotalIsTheMeanTimesTheEvents() {
    var total = SampledTotal()
    #expect(total.total(of: 1000) == nil)
    total.add(30, of: 3)
    #expect(total.total(of: 1000) == 10_000)
    // Other events have passed since.
    total.add(1)
    #expect(total.total(of: 1100) == 10_100)
    // Without a new sample, the last sizes are used.
    #expect(total.total(of: 1200) == 10_200)
    #expect(total.samples == 4)
    // The total does not overflow.
    total.add(.max, of: 1)
    #expect(total.total(of: .max) == .max)
  }

  /// Counters of metrics must not fall: that would be interpreted as a restart.
  @Test func aTotalNeverFalls() {
    var dice = SplitMix(7)
    var total = SampledTotal()
    var (events, last) = (UInt64(0), UInt64(0))
    for _ in 0..<10_000 {
      let size = UInt64(dice.below(dice.below(2) == 0 ? 10 : 1_000_000))
      if dice.below(3) == 0 { total.add(size) }
      events += UInt64(dice.below(5))
      let now = total.total(of: events) ?? 0
      #expect(now >= last)
      last = now
    }
    #expect(last > 0)
  }

  /// The same for the time of a step: slow events first, then many fast ones.
  @Test func timeNeverFalls() throws {
    let plan = try PipelineRun.compile(
      "sources: { a: { scripted: {} } }\nsinks: { out: { from: a, chain: [ { map: event } ], probe: {} } }")
    let step = StepID(try #require(plan.steps.firstIndex { $0.keyword == "map" }))
    let execution = Execution(
      plan: plan, executor: Executor(clock: VirtualTime()),
      services: Services(http: NoHTTPClient(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 0 }))
    let counters = execution.meters.step(step)
    counters.pointee.time.add(1_000_000, of: 2)
    #expect(execution.statistics.steps[step.number].nanoseconds == 1_000_000)
    counters.pointee.time.add(10, of: 10)
    #expect(execution.statistics.steps[step.number].nanoseconds == 1_000_010)
    #expect(execution.statistics.steps[step.number].samples == 12)
  }

  // MARK: Sizes

  private func written(_ value: Value) -> Int {
    let buffer = OutputBuffer()
    JSONWriter.append(value, to: buffer)
    return buffer.count
  }

  @Test func sizesAreThoseOfTheText() throws {
    let arena = Arena()
    let (size, parser) = (JSONSize(), JSONParser())
    let texts = [
      "1", "-17", "2.50", "true", "null", #""""#, #""a\nb\"ü""#, "[]", "{}", "[1,[2,{}],\"x\"]",
      #"{"a":1,"b":{"c":[null,"d"]}}"#,
    ]
    for text in texts {
      let value = Array(text.utf8).withUnsafeBytes { parser.parse(arena.copy($0), into: arena) }
      #expect(size.size(of: value) == written(value), "\(text)")
    }
    let made: [Value] = [
      .absent, .null, .bool(false), .int(Int64.min), .double(7), .double(.nan), arena.string("a\"\u{1}\nß"),
      arena.list([]),
      arena.map([]), arena.optional(.int(12)), .duration(nanoseconds: 1_500_000_000),
      .timestamp(wallTime: 1_700_000_000_000_000_000),
      arena.list([
        .int(1), arena.map([(key: arena.string("k\""), value: .null), (key: .int(3), value: .bool(true))]),
        arena.string("é"),
      ]),
    ]
    for value in made { #expect(size.size(of: value) == written(value), "\(value)") }
  }

  /// What is large is not walked, and the size is near all the same.
  @Test func largeValuesAreLookedAtInPart() {
    let arena = Arena()
    let size = JSONSize()
    let long = arena.string(String(repeating: "say \"so\" ", count: 100_000))
    let list = arena.list((0..<100_000).map { Value.int(Int64(100_000) + Int64($0)) as Value })
    for value in [long, list] {
      let exact = Double(written(value))
      #expect(abs(Double(size.size(of: value)) - exact) < exact / 100)
    }
  }

  // MARK: Edges

  /// The exact sizes of what passes an edge.
  private final class Sizes: EdgeObserver {
    var sizes: [Int] = []
    private let buffer = OutputBuffer()
    override func receive(_ event: Event) {
      buffer.clear()
      JSONWriter.append(event.value, to: buffer)
      sizes.append(buffer.count)
    }
  }

  private struct Measured {
    var plan: Plan
    var statistics: PipelineStatistics
    var sizes: [Sizes]
  }

  private func measure(_ plan: Plan, _ sources: [String: any SourceComponent], observes: Bool = true) -> Measured {
    let sizes = plan.edges.map { _ in Sizes() }
    var options = PipelineRun.Options()
    options.prepare = { execution in
      guard observes else { return }
      for (number, observer) in sizes.enumerated().dropFirst() { execution.attach(observer, to: EdgeID(number)) }
    }
    let run = PipelineRun(plan, sources: sources, options: options)
    return Measured(plan: plan, statistics: run.statistics, sizes: sizes)
  }

  /// Over random graphs: between the smallest and the largest of all events, so exact where all have one size.
  @Test(arguments: 0..<4) func estimatesLieBetweenTheSizes(_ part: Int) throws {
    var (exact, near) = (0, 0)
    for seed in stride(from: UInt64(part), to: RandomGraphTests.count, by: 4) {
      var generator = GraphGenerator(seed: seed)
      generator.hasCommands = seed % 3 == 0
      let graph = generator.graph()
      guard let plan = try? PipelineRun.compile(graph.yaml) else { continue }
      let measured = measure(plan, graph.scripts.mapValues { ScriptedSource($0.script) as any SourceComponent })
      for (edge, seen) in zip(measured.statistics.edges, measured.sizes) {
        guard let bytes = edge.bytes, edge.bytesAreEstimated, let least = seen.sizes.min(), let most = seen.sizes.max()
        else { continue }
        let bounds = UInt64(least) * edge.events...UInt64(most) * edge.events
        #expect(
          bounds.contains(bytes),
          "seed \(seed), \(plan.id(of: edge.plan.to)): \(bytes) of \(seen.sizes)\n\(graph.yaml)")
        if least == most { exact += 1 } else { near += 1 }
      }
    }
    #expect(exact > 20 && near > 20, "\(exact) \(near)")
  }

  private static let chains = """
    sources: { a: { scripted: {} } }
    signals:
      texts: { from: a, chain: [ { map: 'string(event) + "xy"' }, { filter: size(event) > 0 }, { map: '{"t": event}' } ] }
      groups: { from: texts, chain: [ { groupBy: { key: event.t, chain: [ { filter: 'true' }, { take: 290 } ] } } ] }
      late: { from: groups, chain: [ { delay: 3ms } ] }
    sinks:
      out: { from: late, probe: {} }
      other: { from: texts, probe: {} }
    """

  /// Events of one size, in fused steps, groups and elsewhere, watched and not.
  @Test(arguments: [false, true]) func eventsOfOneSizeAreCountedExactly(_ observes: Bool) throws {
    let plan = try PipelineRun.compile(Self.chains)
    let marbles = SignalHistory(try Marbles((0..<3000).map { "\($0 % 10)-" }.joined() + "|"))
    let measured = measure(plan, ["a": ScriptedSource(marbles.script)], observes: observes)
    var seen = 0
    for edge in measured.statistics.edges.dropFirst() where edge.events > 0 {
      let from = plan.id(of: edge.plan.from)
      let size: UInt64 =
        from == "a/scripted" || from == "a"
        ? 1 : from.hasPrefix("texts/map") && !from.hasSuffix("#2") || from == "texts/filter" ? 5 : 11
      #expect(edge.bytes == size * edge.events && edge.bytesAreEstimated, "\(from) to \(plan.id(of: edge.plan.to))")
      seen += 1
    }
    #expect(seen > 8)
  }

  /// Events of random sizes: within a tenth, from samples of few of them.
  @Test func randomSizesAreNear() throws {
    let plan = try PipelineRun.compile(
      "sources: { a: { scripted: {} } }\nsignals: { s: { from: a, chain: [ { map: event }, { delay: 1ms } ] } }\nsinks: { out: { from: s, probe: {} } }"
    )
    var dice = SplitMix(3)
    let letters = (0..<26).map { String(Unicode.Scalar(UInt8(97 + $0))) }
    let table = Dictionary(
      uniqueKeysWithValues: letters.map { ($0, TestValue.text(Array(repeating: 0x78, count: dice.below(2000)))) })
    let marbles = (0..<20_000).map { _ in letters[dice.below(26)] + "-" }.joined() + "|"
    let measured = measure(plan, ["a": ScriptedSource(SignalHistory(try Marbles(marbles), values: table).script)])
    let edges = zip(measured.statistics.edges, measured.sizes).dropFirst().filter { $0.0.events > 0 }
    #expect(!edges.isEmpty)
    for (edge, seen) in edges {
      let (exact, bytes) = (Double(seen.sizes.reduce(0, +)), Double(try #require(edge.bytes)))
      #expect(
        abs(bytes - exact) < exact / 10,
        "\(plan.id(of: edge.plan.from)) to \(plan.id(of: edge.plan.to)): \(bytes) of \(exact)")
      let counters = measured.statistics.steps
      #expect(counters.allSatisfy { $0.samples < 20_000 })
    }
  }
}
