import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Chains that start at one signal share the reading of each event. Each chain has the results that it has alone,
/// whatever the others read, and whatever cannot be read.
@Suite struct SharedReadingTests {
  let scratch = Scratch()

  private static let chains = [
    "{ filter: event.a > 1 }, { map: event.a }", "{ filter: has(event.b.c) }, { map: event.b.c }",
    "{ map: \"[event.?a.orValue(0), event.?b.d.orValue(null)]\" }", "{ filter: \"event.k == 'x'\" }",
    "{ set: { n: event.b.c } }, { filter: event.n != 0 }", "{ filter: event.a == event.b.d }",
    "{ take: 20 }, { map: event.k }", "{ filter: \"event.b.d in [1, 2, 3]\" }, { map: event.b }",
    "{ scan: { start: 0, next: running + event.a } }",
  ]

  /// The outline is valid, so that the source accepts all of them; the content of a field may be invalid JSON.
  private static func line(_ random: inout SplitMix) -> String {
    let values = [
      "1", "2", "3.5", "\"x\"", "\"y\"", "null", "true", "tru", "1e", "[1,2]", "{\"c\":1,\"d\":2}",
      "{\"c\":nul,\"d\":3}",
    ]
    let fields = ["a", "b", "k", "z"].filter { _ in random.below(4) > 0 }.map { key in
      "\"\(key)\":\(values[random.below(values.count)])"
    }
    return "{" + fields.joined(separator: ",") + "}"
  }

  /// The events that each chain sends and gives up.
  private func run(_ chains: [String], _ path: String, threads: Int) throws -> (sent: [[String]], given: [[String]]) {
    var yaml = "threads: \(threads)\nsources: { in: { file: { path: '\(path)', decode: ndjson } } }\nsignals:\n"
    for (index, chain) in chains.enumerated() { yaml += "  s\(index): { from: in, chain: [ \(chain) ] }\n" }
    yaml += "sinks:\n"
    for index in chains.indices {
      yaml += "  o\(index): { from: s\(index), probe: {} }\n"
      yaml += "  e\(index): { from: s\(index).errors, chain: [ { map: \"[event.error, event.event]\" } ], probe: {} }\n"
    }
    let pipeline = try RealPipeline(yaml)
    #expect(pipeline.runToEnd() == .completed)
    return (
      chains.indices.map { pipeline.probe("o\($0)").events }, chains.indices.map { pipeline.probe("e\($0)").events }
    )
  }

  @Test(arguments: [1, 2]) func eachChainIsWhatItIsAlone(_ threads: Int) throws {
    var random = SplitMix(UInt64(threads))
    let lines = (0..<400).map { _ in Self.line(&random) }
    scratch.append(lines.joined(separator: "\n") + "\n", to: "in")
    let together = try run(Self.chains, scratch("in"), threads: threads)
    for (index, chain) in Self.chains.enumerated() {
      let alone = try run([chain], scratch("in"), threads: threads)
      #expect(together.sent[index] == alone.sent[0], "\(chain)")
      #expect(together.given[index] == alone.given[0], "\(chain)")
    }
    #expect(together.sent.contains { $0.count > 50 } && together.given.contains { $0.count > 10 })
  }

  /// An event that arrives in the middle of another one, through its error, is read separately.
  @Test func anEventInTheMiddleOfAnotherIsReadAnew() throws {
    scratch.append((0..<50).map { "{\"a\":\($0),\"b\":\($0 * 2)}" }.joined(separator: "\n") + "\n", to: "in")
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: { path: '\(scratch("in"))', decode: ndjson } } }
      signals:
        strict: { from: in, chain: [ { set: { c: 100 / (event.a % 2) } } ] }
        all: { merge: [in, strict.errors] }
        first: { from: all, chain: [ { map: "[event.?a.orValue(-1), event.?b.orValue(-1)]" } ] }
        second: { from: all, chain: [ { filter: has(event.b) }, { map: "[event.b, event.a]" } ] }
      sinks:
        s: { from: strict, probe: {} }
        x: { from: first, probe: {} }
        y: { from: second, probe: {} }
      """)
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.probe("y").events == (0..<50).map { "[\($0 * 2),\($0)]" })
    let first = pipeline.probe("x").events
    #expect(first.count == 75 && first.count { $0 == "[-1,-1]" } == 25)
    #expect(first.filter { $0 != "[-1,-1]" } == (0..<50).map { "[\($0),\($0 * 2)]" })
  }
}
