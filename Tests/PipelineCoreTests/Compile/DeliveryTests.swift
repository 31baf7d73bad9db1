import Foundation
import PipelineRuntime
import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore

/// `delivery` and `require`: the mode of a pipeline, and the guarantee of each path from a source to a sink.
@Suite struct DeliveryTests {
  static func check(_ yaml: String, _ catalogue: Catalogue = .builtIn) -> (
    plan: Plan?, diagnostics: [Diagnostic]
  ) {
    let result = FrontEnd(catalogue).compile(yaml, name: "p.yaml")
    return (result.plan, result.diagnostics)
  }

  static func plan(_ yaml: String) throws -> Plan {
    let checked = check(yaml)
    return try #require(checked.plan, "\(DiagnosticRenderer().text(checked.diagnostics))")
  }

  private func plan(_ yaml: String) throws -> Plan { try Self.plan(yaml) }

  private func lines(_ yaml: String) throws -> [String] { try plan(yaml).deliveryLines() }

  private func levels(_ yaml: String, hasStateDirectory: Bool = true) throws -> [String] {
    try plan(yaml).deliveryPaths(hasStateDirectory: hasStateDirectory)
      .map { "\($0.source) -> \($0.sink): \($0.level.name)" }
  }

  // MARK: The mode

  @Test(arguments: [
    ("", "file: in.log", Delivery.light), ("", "values: [1]", .light), ("", "interval: 1s", .light),
    ("", "empty: {}", .light), ("", "never: {}", .light), ("", "error: no", .light),
    ("", "http: 'http://127.0.0.1:1/'", .light), ("", "file: { path: in.log, follow: true }", .light),
    ("", "stdin", .durable), ("", "httpServer: { address: 8080, decode: json }", .durable),
    ("", "httpServer: { address: 8080, decode: json, answer: accepted }", .durable),
    ("delivery: durable", "file: in.log", .durable), ("delivery: light", "stdin", .light),
    ("delivery: bestEffort", "file: in.log", .bestEffort), ("require: durable", "file: in.log", .durable),
    ("require: atLeastOnce", "file: in.log", .light),
    ("delivery: ${MODE:-durable}", "file: in.log", .durable),
  ])
  func modeFollowsTheSources(_ top: String, _ source: String, _ mode: Delivery) throws {
    let plan = try plan(
      "\(top)\nsources: { s: { \(source == "stdin" ? "stdin: {}" : source) } }\nsinks: { out: { from: s, file: { path: o, sync: batch } } }"
    )
    #expect(plan.delivery(hasStateDirectory: true) == mode)
    #expect(plan.delivery(hasStateDirectory: false) == .bestEffort)
  }

  /// One source that cannot repeat events determines the mode, unless it is excluded from the guarantee.
  @Test func modeFollowsTheWeakestSource() throws {
    func mode(_ stdin: String) throws -> Delivery {
      try plan(
        """
        sources: { a: { file: in.log }, b: { stdin: {}\(stdin) } }
        sinks: { x: { from: a, discard: {} }, y: { from: b, discard: {} } }
        """
      ).delivery(hasStateDirectory: true)
    }
    #expect(try mode("") == .durable)
    #expect(try mode(", delivery: bestEffort") == .light)
    // A source of an inner signal counts like any other source.
    let inner =
      "sources: { a: { file: in.log } }\nsinks: { x: { from: a, chain: [ { flattenMap: { signal: { from: { %: {} } } } } ], discard: {} } }"
    #expect(try plan(inner.replacing("%", with: "stdin")).delivery(hasStateDirectory: true) == .durable)
    #expect(try plan(inner.replacing("%", with: "empty")).delivery(hasStateDirectory: true) == .light)
  }

  @Test func componentsAreTakenOutOneByOne() throws {
    let plan = try plan(
      """
      sources: { a: { file: in.log, delivery: bestEffort }, b: { values: [1] } }
      sinks: { x: { from: a, discard: {} }, y: { from: b, delivery: bestEffort, discard: {} } }
      """)
    let out = plan.steps.indices.filter { plan.isBestEffort(StepID($0)) }.map { plan.steps[$0].label }
    #expect(out == ["a/file", "y/discard"])
    #expect(plan.sinks.map { plan.isBestEffort($0.step) } == [false, true])
  }

  // MARK: What components say

  @Test func everySinkSaysWhatItConfirms() throws {
    let expected: [String: (yaml: String, confirmation: SinkConfirmation)] = [
      "discard": ("discard: {}", .dropped), "stdout": ("stdout: {}", .system), "stderr": ("stderr: {}", .system),
      "reply": ("reply: {}", .client), "http": ("http: 'http://127.0.0.1:1/'", .receiver), "file": ("file: x", .disk),
      "tcp": ("tcp: 5170", .nothing), "udp": ("udp: 5170", .nothing), "unix": ("unix: /run/a", .nothing),
      "syslog": ("syslog: 5514", .nothing), "journald": ("journald: {}", .nothing),
      "exec": ("exec: [cat]", .nothing), "prometheusExporter": ("prometheusExporter: 9464", .nothing),
      "sse": ("sse: 8080", .nothing), "webSocket": ("webSocket: 'ws://127.0.0.1:1/'", .nothing),
      "sqlite": ("sqlite: { path: a.db, table: t, columns: { v: event } }", .disk),
      "prometheusRemoteWrite": ("prometheusRemoteWrite: 'http://127.0.0.1:1/'", .receiver),
      "file2": ("file: { path: x, sync: batch }", .disk),
      "file3": ("file: { path: x, sync: interval, syncInterval: 5s }", .disk),
    ]
    #expect(Set(expected.keys).subtracting(["file2", "file3"]) == Set(Catalogue.builtIn.names(.sink)))
    for (name, entry) in expected {
      let plan = try plan("sources: { s: { values: [1] } }\nsinks: { out: { from: s, \(entry.yaml) } }")
      #expect(plan.sinks.map(\.component.confirmation) == [entry.confirmation], "\(name)")
    }
  }

  // MARK: Paths, in words

  @Test func checkpoints() throws {
    #expect(
      try lines(
        """
        sources: { lines: { file: in.log } }
        sinks:
          copy: { from: lines, file: copy.ndjson }
          late: { from: lines, file: { path: late.ndjson, sync: interval } }
          safe: { from: lines, file: { path: safe.ndjson, sync: batch } }
          sent: { from: lines, http: 'http://127.0.0.1:1/' }
          seen: { from: lines, stdout: {} }
        """) == [
          "delivery: light, because every source can repeat its events",
          "  lines -> copy: at least once: after a crash, events since the last checkpoint are delivered again",
          "  lines -> late: at least once: after a crash, events since the last checkpoint are delivered again",
          "  lines -> safe: at least once: after a crash, events since the last checkpoint are delivered again",
          "  lines -> sent: at least once: after a crash, events since the last checkpoint are delivered again",
          "  lines -> seen: at least once: after a crash, events since the last checkpoint are delivered again; a power cut can lose data that is not yet on a disk (p.yaml:7: 'stdout' leaves its data to the system)",
          "  without a state directory: best effort: a crash loses events under way",
        ])
  }

  @Test func everyTurn() throws {
    #expect(
      try lines(
        """
        sources:
          typed: { stdin: {} }
          sent: { httpServer: { address: 8080, decode: json } }
          taken: { httpServer: { address: 8081, decode: json, answer: accepted } }
        sinks:
          a: { from: typed, file: { path: a.ndjson, sync: batch } }
          b: { from: sent, http: 'http://127.0.0.1:1/' }
          c: { from: sent, stdout: {} }
          d: { from: taken, http: 'http://127.0.0.1:1/' }
        """) == [
          "delivery: durable, because 'stdin' cannot repeat its events (p.yaml:2)",
          "  typed -> a: at least once from the commit on: events that were read and not yet committed are lost with the process (p.yaml:2: 'stdin' cannot be read again)",
          "  sent -> b: durable: neither a crash nor a power cut loses an event; those under way are delivered again",
          "  sent -> c: at least once: a power cut can lose data that is not yet on a disk (p.yaml:8: 'stdout' leaves its data to the system)",
          "  taken -> d: at least once from the commit on: events that were read and not yet committed are lost with the process (p.yaml:4: 'httpServer' answers its clients before their events are safe)",
          "  without a state directory: best effort: a crash loses events under way",
        ])
  }

  @Test func theFileDecides() throws {
    let rest = "sources: { a: { file: in.log } }\nsinks: { out: { from: a, file: { path: o, sync: batch } } }"
    #expect(
      try lines("delivery: durable\n" + rest) == [
        "delivery: durable, as the file says (p.yaml:1)",
        "  a -> out: durable: neither a crash nor a power cut loses an event; those under way are delivered again",
        "  without a state directory: best effort: a crash loses events under way",
      ])
    #expect(
      try lines("require: durable\n" + rest) == [
        "delivery: durable, because the file requires it (p.yaml:1)",
        "  a -> out: durable: neither a crash nor a power cut loses an event; those under way are delivered again",
        "  without a state directory: it does not start",
      ])
    #expect(
      try lines("delivery: bestEffort\n" + rest) == [
        "delivery: bestEffort, as the file says (p.yaml:1)",
        "  a -> out: best effort: a crash loses events under way (p.yaml:1: 'delivery: bestEffort')",
      ])
    #expect(
      try lines("delivery: light\n" + rest.replacing("file: in.log", with: "stdin: {}")) == [
        "delivery: light, as the file says (p.yaml:1)",
        "  a -> out: best effort: a crash loses events since the last checkpoint (p.yaml:2: 'stdin' cannot be read again)",
        "  without a state directory: best effort: a crash loses events under way",
      ])
  }

  @Test func componentsOutsideOfThePromise() throws {
    #expect(
      try lines(
        """
        sources: { a: { file: in.log, delivery: bestEffort }, b: { file: b.log } }
        sinks:
          x: { from: a, http: 'http://127.0.0.1:1/' }
          y:
            from: b
            stdout: {}
            delivery: bestEffort
        """) == [
          "delivery: light, because every source can repeat its events",
          "  a -> x: best effort: a crash loses events that were acknowledged at once (p.yaml:1: 'file' has 'delivery: bestEffort')",
          "  b -> y: best effort: a crash loses events that count as delivered at once (p.yaml:7: 'stdout' has 'delivery: bestEffort')",
          "  without a state directory: best effort: a crash loses events under way",
        ])
  }

  /// With checkpoints a client is answered before an event held by a step is in a checkpoint.
  @Test func answeredAndKept() throws {
    func level(_ chain: String) throws -> [String] {
      try lines(
        """
        delivery: light
        sources: { a: { httpServer: { address: 8080, decode: json } } }
        sinks: { out: { from: a, chain: [ \(chain) ], http: 'http://127.0.0.1:1/' } }
        """)
    }
    #expect(
      try level("{ filter: event.n > 1 }")[1]
        == "  a -> out: at least once: after a crash, events since the last checkpoint are delivered again (p.yaml:1: 'delivery: light')"
    )
    #expect(
      try level("{ filter: event.n > 1 }, { throttle: 5s }")[1]
        == "  a -> out: best effort: a crash loses what 'throttle' keeps since the last checkpoint (p.yaml:1: the senders of 'httpServer' do not send answered requests again)"
    )
  }

  // MARK: The graph

  @Test func pathsLeadThroughTheGraph() throws {
    #expect(
      try levels(
        """
        sources: { a: { file: a.log }, b: { file: b.log }, c: { stdin: {} }, unread: { values: [1] } }
        signals:
          both: { merge: [a, b] }
          late: { from: both, chain: [ { delay: 1s } ] }
          timed: { from: late, chain: [ { sample: { at: c } } ] }
        sinks:
          x: { from: a, http: 'http://127.0.0.1:1/' }
          y: { from: both, http: 'http://127.0.0.1:1/' }
          z: { from: timed, http: 'http://127.0.0.1:1/' }
          w: { from: { values: [2] }, http: 'http://127.0.0.1:1/' }
        """) == [
          "a -> x: durable", "a -> y: durable", "b -> y: durable", "a -> z: durable", "b -> z: durable",
          "c -> z: at least once from the commit on", "values in w -> w: durable",
        ])
  }

  @Test func pathsLeadThroughErrorsOutputs() throws {
    #expect(
      try levels(
        """
        sources: { a: { file: a.log }, b: { stdin: {} } }
        signals: { s: { from: a, chain: [ { map: event / 2 } ] } }
        sinks:
          out: { from: b, http: 'http://127.0.0.1:1/' }
          broken: { from: s.errors, http: 'http://127.0.0.1:1/' }
          unread: { from: a.errors, http: 'http://127.0.0.1:1/' }
          refused: { from: out.errors, http: 'http://127.0.0.1:1/' }
          good: { from: s, http: 'http://127.0.0.1:1/' }
        """) == [
          "b -> out: at least once from the commit on", "a -> broken: durable", "a -> unread: durable",
          "b -> refused: at least once from the commit on", "a -> good: durable",
        ])
  }

  /// A step that executes a command sends only the values of its own executions; outputs send those of all.
  @Test func pathsLeadThroughCommands() throws {
    #expect(
      try levels(
        """
        sources: { a: { file: a.log }, b: { stdin: {} }, c: { interval: 1s } }
        signals:
          one: { from: a, chain: [ { execute: ask } ] }
          two: { from: b, chain: [ { flattenMap: { signal: { from: { values: [1] }, chain: [ { execute: ask } ] } } } ] }
          on: { from: c, chain: [ { map: "true" } ] }
        commands:
          ask: { run: { from: { http: 'http://127.0.0.1:1/' } }, enabled: on }
        sinks:
          own: { from: one, discard: {} }
          inner: { from: two, discard: {} }
          values: { from: ask.values, discard: {} }
          failed: { from: ask.errors, discard: {} }
        """) == [
          "a -> own: durable", "c -> own: durable", "b -> inner: at least once from the commit on",
          "c -> inner: durable",
          "a -> values: durable", "b -> values: at least once from the commit on", "c -> values: durable",
          "a -> failed: durable", "b -> failed: at least once from the commit on", "c -> failed: durable",
        ])
  }

  /// A request or an event made in an inner signal belongs to the event that started it; events that it reads do not.
  @Test(arguments: [
    ("http: 'http://127.0.0.1:1/'", ["a -> out: at least once"]), ("values: [1]", ["a -> out: at least once"]),
    ("file: b.log", ["a -> out: at least once", "file in out -> out: at least once"]),
  ])
  func innerSources(_ source: String, _ expected: [String]) throws {
    #expect(
      try levels(
        """
        sources: { a: { file: a.log } }
        sinks: { out: { from: a, chain: [ { flattenMap: { signal: { from: { \(source) } } } } ], discard: {} } }
        """) == expected)
  }

  @Test func withoutAStateDirectory() throws {
    let plan = try plan("sources: { a: { file: in.log } }\nsinks: { out: { from: a, discard: {} } }")
    let path = try #require(plan.deliveryPaths(hasStateDirectory: false).first)
    #expect(
      path.line
        == "a -> out: best effort: a crash loses events under way (there is no state directory)")
    #expect(
      plan.deliveryNote(hasStateDirectory: false)
        == "delivery is best effort, because there is no state directory: a crash loses events under way; with --state-dir DIR it is light: at least once on the weakest path"
    )
    #expect(plan.deliveryNote(hasStateDirectory: true) == "delivery is light: at least once on the weakest path")
    let never = try self.plan(
      "delivery: bestEffort\nsources: { a: { file: in.log } }\nsinks: { out: { from: a, discard: {} } }")
    for has in [true, false] {
      #expect(
        never.deliveryNote(hasStateDirectory: has)
          == "delivery is best effort, as the file says: a crash loses events under way")
    }
  }

  @Test func manyPathsAreSummedUp() throws {
    let sinks = (0..<103).map { "  o\($0): { from: \($0 == 102 ? "b" : "a"), discard: {} }\n" }.joined()
    let lines = try lines("sources: { a: { file: in.log }, b: { stdin: {} } }\nsinks:\n\(sinks)")
    #expect(lines.count == 103)
    #expect(
      lines.suffix(2).first == "  and 3 more paths, the weakest of them at least once from the commit on")
  }

  /// The first example of docs/reliability.md, and the output shown below it.
  @Test func thePageShowsWhatIsPrinted() throws {
    let page = try String(contentsOf: packageRoot.appending(path: "docs/reliability.md"), encoding: .utf8)
    let parts = page.components(separatedBy: "```")
    let yaml = String(try #require(parts.first { $0.hasPrefix("yaml\n") }).dropFirst(5))
    let shown = try #require(parts.first { $0.hasPrefix("\ndelivery:") }).dropFirst().split(separator: "\n").map(
      String.init)
    let plan = try #require(FrontEnd(.builtIn).compile(yaml, name: "shop.yaml").plan)
    #expect(plan.deliveryLines() == shown)
  }

  /// Thousands of signals in a chain, and millions of paths, are handled in time.
  @Test(.timeLimit(.minutes(5))) func largeGraphs() throws {
    let deep = (0..<2000).map { "  g\($0): { from: \($0 == 0 ? "a" : "g\($0 - 1)"), chain: [ { delay: 1s } ] }\n" }
      .joined()
    #expect(
      try lines("sources: { a: { stdin: {} } }\nsignals:\n\(deep)sinks: { out: { from: g1999, discard: {} } }")[1]
        .hasPrefix("  a -> out: at least once from the commit on"))
    let count = 200
    let wide = """
      sources:
      \((0..<count).map { "  s\($0): { file: '\($0).log' }\n" }.joined())
      signals: { all: { merge: [ \((0..<count).map { "s\($0)" }.joined(separator: ", ")) ] } }
      sinks:
      \((0..<count).map { "  o\($0): { from: all, chain: [ { delay: 1s } ], discard: {} }\n" }.joined())
      """
    #expect(try lines(wide).contains("  and \(count * count - 100) more paths, the weakest of them at least once"))
    let refused = Self.check("require: durable\ndelivery: light\n" + wide).diagnostics
    #expect(
      refused.map { $0.notes.map(\.message) } == [
        ["required here", "this limits \(count * count - 1) more paths, too"]
      ])
  }

  // MARK: Steps that cannot save their state

  /// A step with state that it cannot save.
  private struct Forgetful: OperatorComponent {
    static let spec = ComponentSpec<Forgetful>("forgetful", summary: "Keeps events.", memory: "All events.")
    func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
      preconditionFailure("never run")
    }
  }

  @Test func aStepThatCannotSaveItsState() throws {
    let catalogue = Catalogue.builtIn.adding(Catalogue([.init(operator: Forgetful.self)]))
    let yaml = """
      sources: { a: { file: in.log } }
      sinks:
        out:
          from: a
          chain: [ forgetful ]
          discard: {}
      """
    let plan = try #require(Self.check(yaml, catalogue).plan)
    #expect(
      plan.deliveryPaths(hasStateDirectory: true).map(\.line) == [
        "a -> out: best effort: what 'forgetful' keeps is lost with the process (p.yaml:5: its state cannot be saved)"
      ])
    let refused = Self.check("require: atLeastOnce\n" + yaml, catalogue).diagnostics
    #expect(refused.map(\.code.name) == ["RX305"] && refused.first?.location?.line == 6)
  }

  /// Every built-in operator can save its state, so none limits a path.
  @Test func builtInStepsSaveTheirState() {
    for entry in Catalogue.builtIn.components where entry.kind == .operator && entry.persistence == .nothing {
      let hasInner = entry.parameters.contains { $0.shape.acceptsSignal || $0.shape == .chain }
      #expect(entry.memory.isEmpty || hasInner, "\(entry.name)")
    }
  }
}
