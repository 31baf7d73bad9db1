import Foundation
import PipelineRuntime
import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore

/// `delivery` and `require`: in which mode a pipeline runs, and what each path from a source to a sink promises.
@Suite struct DeliveryTests {
  private static func check(_ yaml: String, _ catalogue: Catalogue = .builtIn) -> (
    plan: Plan?, diagnostics: [Diagnostic]
  ) {
    let result = FrontEnd(catalogue).compile(yaml, name: "p.yaml")
    return (result.plan, result.diagnostics)
  }

  private func plan(_ yaml: String) throws -> Plan {
    let checked = Self.check(yaml)
    return try #require(checked.plan, "\(DiagnosticRenderer().text(checked.diagnostics))")
  }

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

  /// One source that cannot repeat decides for all, but not one that is out of the promise.
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
    // A source of an inner signal counts like any other.
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
    #expect(out == ["a file", "y discard"])
    #expect(plan.sinks.map { plan.isBestEffort($0.step) } == [false, true])
  }

  // MARK: What components say

  @Test func everySourceSaysHowItsEventsComeAgain() throws {
    let expected: [String: (yaml: String, recovery: SourceRecovery)] = [
      "empty": ("empty: {}", .made), "error": ("error: no", .made), "never": ("never: {}", .made),
      "values": ("values: [1]", .made), "interval": ("interval: 1s", .made), "file": ("file: x", .position),
      "http": ("http: 'http://127.0.0.1:1/'", .request), "httpServer": ("httpServer: 8080", .sender),
      "stdin": ("stdin: {}", .never), "tcp": ("tcp: 5170", .never), "udp": ("udp: 5170", .never),
      "exec": ("exec: { command: [a] }", .request), "unix": ("unix: /run/a", .never),
      "syslog": ("syslog: 5514", .never), "journald": ("journald: {}", .position),
      "host": ("host: 10s", .request), "statsd": ("statsd: 8125", .never),
      "sse": ("sse: 'http://127.0.0.1:1/'", .position), "docker": ("docker: {}", .position),
      "directory": ("directory: /srv/inbox", .position),
      "webSocket": ("webSocket: 'ws://127.0.0.1:1/'", .never),
      "sqlite": ("sqlite: { path: a.db, query: SELECT 1 }", .request),
    ]
    #expect(Set(expected.keys) == Set(Catalogue.builtIn.names(.source)))
    for (name, entry) in expected {
      let plan = try plan("sources: { s: { \(entry.yaml) } }\nsinks: { out: { from: s, discard: {} } }")
      #expect(plan.sources.map(\.component.recovery) == [entry.recovery], "\(name)")
    }
  }

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
          "  lines -> seen: at least once: after a crash, events since the last checkpoint are delivered again; a power cut can lose what is not yet on a disk (p.yaml:7: 'stdout' leaves its data to the system)",
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
          "  typed -> a: at least once from the commit on: what was read and not yet committed goes with the process (p.yaml:2: 'stdin' cannot be read again)",
          "  sent -> b: durable: neither a crash nor a power cut loses an event; those under way are delivered again",
          "  sent -> c: at least once: a power cut can lose what is not yet on a disk (p.yaml:8: 'stdout' leaves its data to the system)",
          "  taken -> d: at least once from the commit on: what was read and not yet committed goes with the process (p.yaml:4: 'httpServer' answers its clients before their events are safe)",
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
        "  a -> out: best effort: a crash loses what came since the last checkpoint (p.yaml:2: 'stdin' cannot be read again)",
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

  /// Under checkpoints a client has its answer before what a step keeps for later is in one.
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
        == "  a -> out: best effort: a crash loses what 'throttle' keeps since the last checkpoint (p.yaml:1: the senders of 'httpServer' do not send again what was answered)"
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

  /// A step that executes a command sends the values of its own executions only; outputs send those of all.
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

  /// What an inner signal asks or makes belongs to the event that it is made for; what it reads does not.
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

  /// The first example of docs/reliability.md, and what the page prints below it.
  @Test func thePageShowsWhatIsPrinted() throws {
    let page = try String(contentsOf: packageRoot.appending(path: "docs/reliability.md"), encoding: .utf8)
    let parts = page.components(separatedBy: "```")
    let yaml = String(try #require(parts.first { $0.hasPrefix("yaml\n") }).dropFirst(5))
    let shown = try #require(parts.first { $0.hasPrefix("\ndelivery:") }).dropFirst().split(separator: "\n").map(
      String.init)
    let plan = try #require(FrontEnd(.builtIn).compile(yaml, name: "shop.yaml").plan)
    #expect(plan.deliveryLines() == shown)
  }

  /// Thousands of signals in a row, and millions of paths, are no trouble.
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

  /// A step that keeps what it cannot save.
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
        "a -> out: best effort: what 'forgetful' keeps goes with the process (p.yaml:5: its state cannot be saved)"
      ])
    let refused = Self.check("require: atLeastOnce\n" + yaml, catalogue).diagnostics
    #expect(refused.map(\.code.name) == ["RX305"] && refused.first?.location?.line == 6)
  }

  /// No built-in operator keeps what it cannot save, so none limits a path.
  @Test func builtInStepsSaveTheirState() {
    for entry in Catalogue.builtIn.components where entry.kind == .operator && entry.persistence == .nothing {
      let hasInner = entry.parameters.contains { $0.shape.acceptsSignal || $0.shape == .chain }
      #expect(entry.memory.isEmpty || hasInner, "\(entry.name)")
    }
  }

  // MARK: Errors

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
    let diagnostics = Self.check(
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

  /// One line of the file is one error, however many paths it limits.
  @Test func oneErrorForEachLine() throws {
    let diagnostics = Self.check(
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

  /// Nothing is on disk without a state directory, so a file that requires more cannot start there.
  @Test func requirementsNeedAStateDirectory() throws {
    let plan = try plan(
      "require: atLeastOnce\nsources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {} } }")
    #expect(plan.deliveryShortfalls(hasStateDirectory: true) == [])
    #expect(
      plan.deliveryShortfalls(hasStateDirectory: false).map(\.line) == [
        "p.yaml:1:10: error[RX305]: the path from 'a' to 'out' is only best effort: a crash loses events under way, because there is no state directory; run it with '--state-dir DIR', or as a service with 'StateDirectory='; or ask for less than 'require: atLeastOnce'"
      ])
    let none = try self.plan("sources: { a: { stdin: {} } }\nsinks: { out: { from: a, stdout: {} } }")
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
    let diagnostics = Self.check("\(top)\nsources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {} } }")
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
      "p.yaml:1:40: error[RX339]: 'file' cannot be 'durable' by itself: all events of a pipeline are kept alike",
      "Write 'delivery: durable' at the top of the file; here it can only be bestEffort"
    ),
    (
      "sources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {}, delivery: light } }",
      "p.yaml:2:49: error[RX339]: 'discard' cannot be 'light' by itself: all events of a pipeline are kept alike",
      "Write 'delivery: light' at the top of the file; here it can only be bestEffort"
    ),
    (
      "sources: { a: { file: a.log, delivery: bestefort } }\nsinks: { out: { from: a, discard: {} } }",
      "p.yaml:1:40: error[RX224]: 'delivery' cannot be 'bestefort'", "Did you mean 'bestEffort'?"
    ),
    (
      "sources: { a: { file: a.log } }\nsinks: { out: { from: a, chain: [ { flattenMap: { signal: { from: { values: [1], delivery: bestEffort } } } } ], discard: {} } }",
      "p.yaml:2:92: error[RX339]: 'values' starts an inner signal, whose events belong to the event it is made for",
      "Remove 'delivery', or write it at the source of that event"
    ),
    (
      "sources: { a: { file: a.log } }\nsinks: { out: { from: a, chain: [ { map: event, delivery: bestEffort } ], discard: {} } }",
      "p.yaml:2:49: error[RX209]: an operator has no key 'delivery'", ""
    ),
    (
      "delivery: light\nsources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {}, whenFull: dropOldest } }",
      "p.yaml:3:39: error[RX341]: 'whenFull' says what happens to events that wait on disk, and with 'delivery: light' none do: the input waits for the sink",
      "Write 'delivery: durable' at the top of the file, or remove 'whenFull'"
    ),
    (
      "sources: { a: { file: a.log } }\nsinks: { out: { from: a, discard: {}, delivery: bestEffort, buffer: 2MiB } }",
      "p.yaml:2:61: error[RX341]: 'buffer' says what happens to events that wait on disk, and with 'delivery: bestEffort' none do",
      "Remove one of the two"
    ),
    (
      "sources: { a: { httpServer: 8080 } }\nsinks: { out: { from: a, reply: {}, whenFull: block } }",
      "p.yaml:2:37: error[RX341]: 'whenFull' says what happens to events that wait on disk, and 'reply' answers a client that waits",
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
    let diagnostics = Self.check(yaml).diagnostics
    #expect(diagnostics.count == 1, "\(diagnostics.map(\.line))")
    let one = try #require(diagnostics.first)
    #expect(
      "\(one.location.map { "\($0)" } ?? ""): \(one.severity.rawValue)[\(one.code.name)]: \(one.message)" == message)
    if !help.isEmpty { #expect(one.help == help) }
  }

  /// A check without the environment knows no value, and reports nothing.
  @Test func valuesOfTheEnvironment() throws {
    let yaml = """
      delivery: ${MODE}
      require: ${LEAST}
      sources: { a: { stdin: {}, delivery: "${OWN}" } }
      sinks: { out: { from: a, stdout: {} } }
      """
    let plan = try plan(yaml)
    #expect(plan.requestedDelivery == nil && plan.requirement == nil)
    #expect(plan.delivery(hasStateDirectory: true) == .durable)
    let front = FrontEnd(
      .builtIn, values: Interpolation(variables: ["MODE": "light", "LEAST": "durable", "OWN": "bestEffort"]))
    let codes = front.compile(yaml, name: "p.yaml").diagnostics.map { "\($0.code.name) \($0.location?.line ?? 0)" }
    #expect(codes == ["RX305 1", "RX305 3", "RX305 4"])
  }
}
