import PipelineRuntime
import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore

/// Reports about `delivery` and `require`.
@Suite struct DeliveryErrorTests {
  @Test(arguments: [
    ("delivery: light", "file: a.log", "file: { path: o, sync: batch }", "1:11", "Write 'delivery: durable'"),
    (
      "delivery: bestEffort", "file: a.log", "file: { path: o, sync: batch }", "1:11",
      "Write 'delivery: durable', or leave"
    ),
    ("", "file: a.log", "stdout: {}", "4:26", "Use a 'file' or 'http'"),
    ("", "stdin: {}", "discard: {}", "3:17", "Read a 'file', or let 'httpServer' receive the events"),
    (
      "", "httpServer: { address: 1, decode: json, answer: accepted }", "discard: {}", "3:17",
      "Answer when they are: 'answer: written'"
    ),
    ("", "file: a.log, delivery: bestEffort", "discard: {}", "3:40", "Remove it"),
    ("", "file: a.log", "discard: {}, delivery: bestEffort", "4:49", "Remove it"),
  ])
  func theLimitingLineSaysWhatToDo(_ top: String, _ source: String, _ sink: String, _ place: String, _ help: String)
    throws
  {
    let diagnostics = DeliveryTests.check(
      "\(top)\nrequire: durable\nsources: { a: { \(source) } }\nsinks: { out: { from: a, \(sink) } }"
    ).diagnostics
    let one = try #require(diagnostics.first)
    #expect(diagnostics.count == 1, "\(diagnostics.map(\.line))")
    #expect(one.code.name == "RX305" && one.severity == .error)
    #expect(one.location.map { "\($0.line):\($0.column)" } == place)
    #expect(
      one.help?.hasPrefix(help) == true && one.help?.hasSuffix("; or ask for less than 'require: durable'") == true)
    #expect(one.notes.map(\.message) == ["required here"])
  }

  /// One line of the file gives one error, however many paths it limits.
  @Test func oneErrorForEachLine() throws {
    let diagnostics = DeliveryTests.check(
      """
      require: durable
      sources: { a: { file: a.log }, b: { file: b.log }, c: { stdin: {} } }
      signals: { all: { merge: [a, b, c] } }
      sinks: { x: { from: all, stdout: {} }, y: { from: c, discard: {} } }
      """
    ).diagnostics
    #expect(diagnostics.map { "\($0.location?.line ?? 0):\($0.location?.column ?? 0)" } == ["2:57", "4:26"])
    #expect(
      diagnostics.map { $0.notes.map(\.message) } == [
        ["required here", "this limits 1 more path, too"], ["required here", "this limits 2 more paths, too"],
      ])
  }

  /// Without a state directory nothing is on disk, so a file that requires more cannot start.
  @Test func requirementsNeedAStateDirectory() throws {
    let plan = try DeliveryTests.plan(
      "require: atLeastOnce\nsources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {} } }")
    #expect(plan.deliveryShortfalls(hasStateDirectory: true) == [])
    #expect(
      plan.deliveryShortfalls(hasStateDirectory: false).map(\.line) == [
        "p.yaml:1:10: error[RX305]: the path from 'a' to 'out' is only best effort: a crash loses events under way, because there is no state directory; run it with '--state-dir DIR', or as a service with 'StateDirectory='; or ask for less than 'require: atLeastOnce'"
      ])
    let none = try DeliveryTests.plan("sources: { a: { stdin: {} } }\nsinks: { out: { from: a, stdout: {} } }")
    #expect(none.deliveryShortfalls(hasStateDirectory: false) == [])
    #expect(throws: Pipeline.Invalid.self) {
      try Pipeline("require: atLeastOnce\nsources: { a: { values: [1] } }\nsinks: { out: { from: a, discard: {} } }")
    }
  }

  private static let values: [(String, String, String)] = [
    (
      "delivery: durabel", "error[RX224]: 'delivery' cannot be 'durabel'",
      "Did you mean 'durable'?"
    ),
    (
      "delivery: best_effort", "error[RX224]: 'delivery' cannot be 'best_effort'",
      "Names are written in camelCase: 'bestEffort'"
    ),
    (
      "delivery: at_least_once", "error[RX224]: 'delivery' cannot be 'at_least_once'",
      "A guarantee is written 'require: atLeastOnce'; 'delivery' takes 'bestEffort', 'light' and 'durable'"
    ),
    (
      "delivery: exactlyOnce", "error[RX224]: 'delivery' cannot be 'exactlyOnce'",
      "The choices are 'bestEffort', 'light' and 'durable'"
    ),
    (
      "delivery: [durable]", "error[RX203]: 'delivery' takes one of 'bestEffort', 'light' and 'durable', not a list", ""
    ),
    ("delivery:", "error[RX203]: 'delivery' takes one of 'bestEffort', 'light' and 'durable', not nothing", ""),
    (
      "require: at-least-once", "error[RX224]: 'require' cannot be 'at-least-once'",
      "Names are written in camelCase: 'atLeastOnce'"
    ),
    (
      "require: light", "error[RX224]: 'require' cannot be 'light'",
      "A mode is written 'delivery: light'; 'require' takes 'atLeastOnce' and 'durable'"
    ),
    (
      "require: true", "error[RX224]: 'require' cannot be 'true'",
      "The choices are 'atLeastOnce' and 'durable'"
    ),
    ("delivry: durable", "error[RX201]: a pipeline file has no key 'delivry'", "Did you mean 'delivery'?"),
    ("requires: durable", "error[RX201]: a pipeline file has no key 'requires'", "Did you mean 'require'?"),
  ]

  @Test(arguments: values) func wrongValues(_ top: String, _ message: String, _ help: String) throws {
    let diagnostics = DeliveryTests.check(
      "\(top)\nsources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {} } }"
    )
    .diagnostics
    #expect(diagnostics.count == 1, "\(diagnostics.map(\.line))")
    let one = try #require(diagnostics.first)
    #expect("\(one.severity.rawValue)[\(one.code.name)]: \(one.message)" == message)
    #expect((one.help ?? "") == help)
    #expect(one.location?.line == 1)
  }

  private static let besides: [(String, String, String)] = [
    (
      "sources: { a: { file: a.log, delivery: durable } }\nsinks: { out: { from: a, discard: {} } }",
      "p.yaml:1:40: error[RX339]: 'file' cannot choose 'durable' for itself: the delivery mode applies to the whole pipeline",
      "Write 'delivery: durable' at the top of the file; here it can only be bestEffort"
    ),
    (
      "sources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {}, delivery: light } }",
      "p.yaml:2:49: error[RX339]: 'discard' cannot choose 'light' for itself: the delivery mode applies to the whole pipeline",
      "Write 'delivery: light' at the top of the file; here it can only be bestEffort"
    ),
    (
      "sources: { a: { file: a.log, delivery: bestefort } }\nsinks: { out: { from: a, discard: {} } }",
      "p.yaml:1:40: error[RX224]: 'delivery' cannot be 'bestefort'", "Did you mean 'bestEffort'?"
    ),
    (
      "sources: { a: { file: a.log } }\nsinks: { out: { from: a, chain: [ { flattenMap: { signal: { from: { values: [1], delivery: bestEffort } } } } ], discard: {} } }",
      "p.yaml:2:92: error[RX339]: 'values' starts an inner signal, whose events belong to the event that started it",
      "Remove 'delivery', or write it at the source of that event"
    ),
    (
      "sources: { a: { file: a.log } }\nsinks: { out: { from: a, chain: [ { map: event, delivery: bestEffort } ], discard: {} } }",
      "p.yaml:2:49: error[RX209]: an operator has no key 'delivery'", ""
    ),
    (
      "delivery: light\nsources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {}, whenFull: dropOldest } }",
      "p.yaml:3:39: error[RX341]: 'whenFull' concerns events that wait on disk, and with 'delivery: light' none do: the input waits for the sink",
      "Write 'delivery: durable' at the top of the file, or remove 'whenFull'"
    ),
    (
      "sources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {}, delivery: bestEffort, buffer: 2MiB } }",
      "p.yaml:2:61: error[RX341]: 'buffer' concerns events that wait on disk, and with 'delivery: bestEffort' none do",
      "Remove one of the two"
    ),
    (
      "sources: { a: { httpServer: 8080 } }\nsinks: { out: { from: a, reply: {}, whenFull: block } }",
      "p.yaml:2:37: error[RX341]: 'whenFull' concerns events that wait on disk, and 'reply' answers a client that waits",
      "Remove it"
    ),
    (
      "sources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {}, whenFull: dropoldest } }",
      "p.yaml:2:49: error[RX224]: 'whenFull' cannot be 'dropoldest'", "Did you mean 'dropOldest'?"
    ),
    (
      "sources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {}, buffer: 3kB } }",
      "p.yaml:2:47: error[RX223]: 'buffer' must be from 1 MiB to 1 TiB", "Write 'buffer: 256MiB'"
    ),
    (
      "sources: { a: { file: a.log } }\nsignals: { s: { from: a, delivery: bestEffort } }\nsinks: { out: { from: s, discard: {} } }",
      "p.yaml:2:26: error[RX201]: a signal has no key 'delivery'", ""
    ),
  ]

  @Test(arguments: besides) func besideComponents(_ yaml: String, _ message: String, _ help: String) throws {
    let diagnostics = DeliveryTests.check(yaml).diagnostics
    #expect(diagnostics.count == 1, "\(diagnostics.map(\.line))")
    let one = try #require(diagnostics.first)
    #expect(
      "\(one.location.map { "\($0)" } ?? ""): \(one.severity.rawValue)[\(one.code.name)]: \(one.message)" == message)
    if !help.isEmpty { #expect(one.help == help) }
  }

  /// A check without the environment has no values, and reports nothing.
  @Test func valuesOfTheEnvironment() throws {
    let yaml = """
      delivery: ${MODE}
      require: ${LEAST}
      sources: { a: { stdin: {}, delivery: "${OWN}" } }
      sinks: { out: { from: a, stdout: {} } }
      """
    let plan = try DeliveryTests.plan(yaml)
    #expect(plan.requestedDelivery == nil && plan.requirement == nil)
    #expect(plan.delivery(hasStateDirectory: true) == .durable)
    let front = FrontEnd(
      .builtIn, values: Interpolation(variables: ["MODE": "light", "LEAST": "durable", "OWN": "bestEffort"]))
    let codes = front.compile(yaml, name: "p.yaml").diagnostics.map { "\($0.code.name) \($0.location?.line ?? 0)" }
    #expect(codes == ["RX305 1", "RX305 3", "RX305 4"])
  }
}
