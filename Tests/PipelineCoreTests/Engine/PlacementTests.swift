import Foundation
import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// Makes one signal as YAML, with every kind of step that starts, ends and restarts signals.
struct SignalGenerator {
  private var random: SplitMix
  /// Whether inner signals have names (`cold: true`) instead of being written inline.
  let names: Bool
  private(set) var definitions: [String] = []
  /// Whether steps may execute the command `work`.
  let hasCommands: Bool

  init(seed: UInt64, names: Bool, hasCommands: Bool) {
    random = SplitMix(seed &* 0x2545_F491_4F6C_DD1D &+ 0x1357_9BDF)
    self.names = names
    self.hasCommands = hasCommands
  }

  private mutating func below(_ bound: Int) -> Int { random.below(bound) }
  private mutating func pick<T>(_ choices: [T]) -> T { choices[below(choices.count)] }

  /// The signal, in braces.
  mutating func signal(_ depth: Int) -> String {
    let origin: String
    switch depth > 0 ? below(9) : below(4) {
    case 0: origin = "values: [\(pick(["", "1", "1, 2", "3, 0, 3"]))]"
    case 1: origin = "marbles: '\(pick(["|", "-1|", "1-2|", "-1-2-3|", "(12)|", "-#", "1#", "--4-(51)|"]))'"
    case 2, 3: origin = "from: \(pick(["shared", "timed", "cold"]))"
    case 4: origin = "if: { from: \(truth(depth)) }, then: \(input(depth)), else: \(input(depth))"
    default:
      let keyword = pick(["merge", "merge", "combineLatest", "settled", "zip", "concat", "race"])
      let inputs = (0...(1 + below(2))).map { _ in input(depth) }
      origin =
        keyword == "settled"
        ? "combineLatest: { \(inputs.enumerated().map { "i\($0): \($1)" }.joined(separator: ", ")), settle: true }"
        : "\(keyword): [ \(inputs.joined(separator: ", ")) ]"
    }
    let steps = (0..<below(4)).map { _ in step(depth) }.joined(separator: ", ")
    return "{ \(origin), chain: [ \(steps) ] }"
  }

  private mutating func truth(_ depth: Int) -> String { pick(["{ values: [true] }", "{ values: [false, true] }"]) }

  private mutating func input(_ depth: Int) -> String {
    below(3) == 0 ? pick(["shared", "timed", "cold"]) : signal(depth - 1)
  }

  /// A signal that a step subscribes to: a name or a text.
  private mutating func inner(_ depth: Int) -> String {
    guard depth > 0 else { return pick(["shared", "timed", "cold"]) }
    let text = signal(depth - 1)
    guard names else { return text }
    definitions.append("c\(definitions.count): \(text.dropLast()), cold: true }")
    return "c\(definitions.count - 1)"
  }

  private mutating func step(_ depth: Int) -> String {
    if hasCommands, below(4) == 0 { return "{ execute: work }" }
    switch below(24) {
    case 0, 1: return "{ startWith: \(below(5)) }"
    case 2: return "{ take: \(below(4)) }"
    case 3: return "{ take: 0 }, \(pick(["count", "collect", "{ aggregate: { start: 7, next: running } }"]))"
    case 4: return "{ takeUntil: \(inner(depth)) }"
    case 5: return "{ takeUntilReplacement: \(inner(depth)) }"
    case 6: return "{ skipUntil: { signal: \(inner(depth)) } }"
    case 7: return "{ withLatestFrom: \(inner(depth)) }"
    case 8: return "{ then: \(inner(depth)) }"
    case 9: return "{ catch: { with: \(inner(depth)) } }"
    case 10: return "{ repeat: { count: 2, delay: \(pick(["0s", "0s", "2ms"])) } }"
    case 11: return "{ retry: { count: 1, delay: \(pick(["0s", "0s", "2ms"])) } }"
    case 12:
      return "{ flattenMap: { policy: \(pick(["merge", "concat", "latest", "exhaust"])), signal: \(inner(depth)) } }"
    case 13: return "{ switchToLatest: { signal: \(inner(depth)) } }"
    case 14: return "{ do: { signal: \(inner(depth)), when: [\(pick(["next", "completed", "error"]))] } }"
    case 15: return "{ \(pick(["initially", "finally"])): \(inner(depth)) }"
    case 16: return "{ delay: \(1 + below(3))ms }"
    case 17: return "{ map: '[event]' }"
    case 18: return "{ filter: dyn(event) != \(below(3)) }"
    case 19:
      return
        "{ groupBy: { key: event, chain: [ \(pick(["{ take: 1 }", "{ take: 0 }, count", "{ startWith: 6 }", "{ delay: 1ms }, { take: 1 }"])) ] } }"
    case 20: return "{ try: dyn(event) != \(below(3)), onError: fail }"
    case 21: return "{ sample: { at: \(inner(depth)) } }"
    case 22:
      return "{ gate: { signal: { from: \(inner(depth)), chain: [ { map: dyn(event) == 1 } ] }, whileClosed: hold } }"
    default: return "count"
    }
  }
}

/// The position of a signal makes no difference to its events.
@Suite struct PlacementTests {
  /// The number of signals; a failure names the seed that reproduces it. RXD_RANDOM_GRAPHS sets a larger number.
  static let count =
    ProcessInfo.processInfo.environment["RXD_RANDOM_GRAPHS"].flatMap(UInt64.init) ?? 400

  private func run(
    _ signal: String, _ definitions: [String], _ commands: Bool, restarts: Bool = false
  ) throws -> PipelineRun {
    let yaml = """
      sources: { shared: { values: [1, 2] }, timed: { marbles: '1-2--3|' }, cold: { marbles: '-4-5|', cold: true } }
      signals: { signal: { \(signal) }\(definitions.map { ", " + $0 }.joined()) }
      \(commands ? "commands: { work: { run: { marbles: '-8|' }, whenBusy: queue } }" : "")
      sinks: { out: { from: signal, probe: {} }\(commands ? ", values: { from: work.values, probe: {} }, executing: { from: work.executing, probe: {} }" : "") }
      """
    var options = PipelineRun.Options()
    options.turnLimit = 20_000
    options.cutAfter = { _ in restarts }
    return try PipelineRun(yaml, sources: [:], options: options)
  }

  private static func shifted(_ history: SignalHistory, by span: TimeSpan) -> SignalHistory {
    SignalHistory(history.entries.map { .init(at: $0.at + span, $0.moment) })
  }

  /// At the launch, in inner signals, in later rounds.
  @Test(arguments: 0..<8) func theSameSignalEverywhere(_ part: Int) throws {
    var compared = 0
    for seed in stride(from: UInt64(part), to: Self.count, by: 8) {
      var generator = SignalGenerator(seed: seed, names: false, hasCommands: false)
      let signal = generator.signal(2)
      guard let launched = try? run(String(signal.dropFirst().dropLast()), [], false) else { continue }
      guard launched.isQuiet else {
        Issue.record("seed \(seed): it does not end: \(signal)")
        continue
      }
      let hasFailed = launched.out.entries.last.map { if case .error = $0.moment { true } else { false } } ?? false
      for (place, text) in SubscriptionOrderTests.places(signal) where place != "launch" {
        if place.hasSuffix("round"), hasFailed { continue }
        guard let other = try? run(text, [], false) else { continue }
        var expected = launched.out
        if place == "flattenMap, later" { expected = Self.shifted(expected, by: .milliseconds(2)) }
        if place.hasSuffix("round") {
          let end = (expected.entries.last?.at ?? .zero) + (place == "a later round" ? .milliseconds(1) : .zero)
          expected = SignalHistory(expected.entries.dropLast() + Self.shifted(expected, by: end).entries)
        }
        compared += 1
        if let difference = SignalHistory.difference(expected: expected, actual: other.out) {
          Issue.record("seed \(seed), \(place):\n\(difference)\n\(signal)")
        }
        if other.pendingTimers != 0 { Issue.record("seed \(seed), \(place): timers are left: \(signal)") }
      }
    }
    #expect(compared > 100)
  }

  /// A named signal behaves like its inlined text, commands included.
  @Test(arguments: 0..<8) func namesMakeNoDifference(_ part: Int) throws {
    var compared = 0
    for seed in stride(from: UInt64(part), to: Self.count, by: 8) {
      let commands = seed % 16 < 12
      var inline = SignalGenerator(seed: seed, names: false, hasCommands: commands)
      var named = SignalGenerator(seed: seed, names: true, hasCommands: commands)
      let text = String(inline.signal(2).dropFirst().dropLast())
      let reference = String(named.signal(2).dropFirst().dropLast())
      guard let first = try? run(text, [], commands),
        let second = try? run(reference, named.definitions, commands)
      else { continue }
      compared += 1
      for (name, history) in first.sinks {
        if let difference = SignalHistory.difference(expected: history, actual: second.sinks[name] ?? SignalHistory()) {
          Issue.record("seed \(seed), \(name):\n\(difference)\n\(text)\n\(reference) \(named.definitions)")
        }
      }
      let restarted = try run(reference, named.definitions, commands, restarts: true)
      for (name, history) in first.sinks {
        if let difference = SignalHistory.difference(
          expected: history, actual: restarted.sinks[name] ?? SignalHistory())
        {
          Issue.record("seed \(seed), \(name), with restarts:\n\(difference)\n\(reference) \(named.definitions)")
        }
      }
      // All values of an execution are received, and the command is idle at the end.
      guard commands, first.outcome == .completed else { continue }
      let executing = first.texts["executing"] ?? []
      #expect(executing.last != "true", "seed \(seed): \(text)")
      let begun = executing.filter { $0 == "true" }.count
      let values = first.texts["values"]?.count ?? 0
      #expect(values >= begun, "seed \(seed): \(text)")
    }
    #expect(compared > 20)
  }
}
