import Foundation
import PipelineTestSupport
import Testing

@testable import PipelineCore

@Suite struct PipelineFileTests {
  @Test func theExampleOfTheReadme() throws {
    let text = try String(contentsOf: packageRoot.appending(path: "pipelines/search.yaml"), encoding: .utf8)
    let file = try #require(readPipeline(text, name: "pipelines/search.yaml").file)
    #expect(file.name.value == "search")
    #expect(file.sources.map(\.name.value) == ["typed"])
    #expect(try file.sources.item(0).node.keyword.value == "stdin")
    #expect(try file.sources.item(0).node.arguments?["decode"]?.string == "text")
    #expect(file.signals.map(\.name.value) == ["query", "books"])
    let chain = try file.signals.item(0).node.chain
    #expect(chain.map(\.keyword.value) == ["map", "filter", "throttle", "distinctUntilChanged", "log"])
    #expect(try chain.item(2).arguments?.string == "300ms")
    #expect(try chain.item(3).arguments == nil)
    #expect(try file.sinks.item(0).node.component.keyword.value == "stdout")
    #expect(try file.tests.item(0).inputs.map(\.name.value) == ["typed"])
    #expect(try file.tests.item(0).stubs.map(\.name.value) == ["http"])

    let inner = try #require(file.signals.item(1).node.chain.item(0).arguments?["signal"])
    var diagnostics = Diagnostics()
    let signal = try #require(PipelineFileParser.parseSignal(inner, into: &diagnostics))
    #expect(diagnostics.all.isEmpty)
    guard case .inline(let source) = signal.origin else {
      Issue.record("not inline")
      return
    }
    #expect(source.keyword.value == "http")
    #expect(signal.chain.map(\.keyword.value) == ["timeout", "retry", "log", "catch"])
  }

  private func signal(_ yaml: String) throws -> SignalNode {
    let reading = readPipeline("signals:\n  x: \(yaml)\n")
    #expect(reading.found.isEmpty)
    return try #require(reading.file?.signals.first?.node)
  }

  @Test func references() throws {
    let node = try signal("{ from: a-b.errors }")
    guard case .reference(let reference) = node.origin else {
      Issue.record("no reference")
      return
    }
    #expect(reference.name.value == "a-b")
    #expect(reference.output?.value == "errors")
    #expect(reference.name.location.column == 14)
    #expect(reference.output?.location.column == 18)
    #expect(reference.text == "a-b.errors")
  }

  @Test func threads() {
    #expect(readPipeline("threads: 3\nsources: { a: stdin }\n").file?.threads?.value == 3)
    #expect(readPipeline("sources: { a: stdin }\n").file?.threads == nil)
    #expect(readPipeline("threads: 256\nsources: { a: stdin }\n").found == [])
    // The value of the environment is not known yet.
    #expect(readPipeline("threads: ${THREADS}\nsources: { a: stdin }\n").found == [])
    for (text, code) in [
      ("0", "RX223"), ("257", "RX223"), ("-1", "RX223"), ("99999999999999999999", "RX223"), ("1.5", "RX203"),
      ("many", "RX203"), ("[2]", "RX203"), ("~", "RX203"),
    ] {
      let reading = readPipeline("sources: { a: stdin }\nthreads: \(text)\n")
      #expect(reading.found == ["\(code) 2:10"], "\(text): \(reading.diagnostics.map(\.message))")
      #expect(reading.file?.threads == nil)
    }
  }

  @Test func combiningForms() throws {
    func inputs(_ yaml: String) throws -> [String?] {
      guard case .combining(let node) = try signal(yaml).origin else { return [] }
      return node.inputs.map { $0.name?.value }
    }
    #expect(
      try inputs("{ merge: [a, b.errors, { from: c }, { interval: 1s }] }") == [
        "a", "b_errors", nil, nil,
      ])
    #expect(try inputs("{ combineLatest: { user: a, pass: { from: b } } }") == ["user", "pass"])
    #expect(try inputs("{ zip: { signals: { x: a, y: b }, limit: 5 } }") == ["x", "y"])
    #expect(
      try inputs("{ if: { condition: a, then: b, else: c } }") == ["condition", "then", "else"])
    #expect(
      try inputs("{ switch: { by: a, cases: { 1: b, x y: c }, default: d } }") == [
        "by", "1", "x y", "default",
      ])
    guard case .combining(let node) = try signal("{ zip: { signals: [a], limit: 5 } }").origin
    else {
      Issue.record("not combining")
      return
    }
    #expect(node.arguments["limit"]?.int == 5)
  }

  @Test func reduceBesideCombineLatestComesFirst() throws {
    let node = try signal("{ combineLatest: [a, b], reduce: a + b, chain: [ { take: 1 } ] }")
    #expect(node.chain.map(\.keyword.value) == ["reduce", "take"])
  }

  @Test func inlineSourcesAndOptions() throws {
    let node = try signal(
      "{ interval: 1s, chain: [ { name: n, onError: fail, map: event } ], cold: true }")
    guard case .inline(let source) = node.origin else {
      Issue.record("not inline")
      return
    }
    #expect(source.keyword.value == "interval")
    #expect(node.options["cold"]?.bool == true)
    #expect(try node.chain.item(0).keyword.value == "map")
    #expect(try node.chain.item(0)["name"]?.string == "n")
    #expect(try node.chain.item(0).options.map(\.key.value) == ["name", "onError"])
  }

  /// An absent value is not a parameter; a written null is one.
  @Test func nullIsAnArgument() throws {
    let chain = try signal("{ from: a, chain: [ { collect: }, { ignore: null }, { skip: ~ } ] }")
      .chain
    #expect(chain.map { $0.arguments == nil } == [true, false, false])
  }

  @Test func commandsSinksAndTests() throws {
    let reading = readPipeline(
      """
      commands:
        login:
          run: { from: { http: { url: x } }, chain: [ { timeout: 1s } ] }
          enabled: valid
          whenBusy: queue
      sinks:
        out:
          from: login.errors
          chain: [ { map: event } ]
          stdout:
          whenFull: block
      tests:
        - name: a test
          tick: 10ms
          inputs: { login: "a|" }
          expect: { login.executing: [], http.requests: [] }
      plugins: [ ./a.so ]
      defaults: { buffer: 10 }
      """)
    #expect(reading.found.isEmpty)
    let file = try #require(reading.file)
    #expect(try file.commands.item(0).node.run.chain.count == 1)
    #expect(try file.commands.item(0).node.arguments["whenBusy"]?.string == "queue")
    guard case .reference(let enabled) = try file.commands.item(0).node.enabled else {
      Issue.record("no reference")
      return
    }
    #expect(enabled.name.value == "valid")
    #expect(try file.sinks.item(0).node.component.keyword.value == "stdout")
    #expect(try file.sinks.item(0).node.component["whenFull"]?.string == "block")
    #expect(try file.tests.item(0).expect.map(\.name.value) == ["login.executing", "http.requests"])
    #expect(try file.tests.item(0).options["tick"]?.string == "10ms")
    #expect(file.plugins.map(\.name.value) == ["./a.so"])
    #expect(file.defaults.map(\.name.value) == ["buffer"])
    #expect(file.name.value == "test")
  }

  @Test(arguments: [
    ("pipelines/search.yaml", "search"), ("/etc/rxd/01-a b.yml", "01-a_b"), (".hidden", "_.hidden"),
    ("<stdin>", "_stdin_"), ("a.b.yaml", "a.b"), ("/", "_"), ("-x.yaml", "_-x"),
  ])
  func defaultNames(_ path: String, _ name: String) {
    #expect(PipelineFileParser.defaultName(path) == name)
  }

  @Test func allMistakesAreReported() throws {
    let reading = readPipeline(
      """
      sorces: { a: { stdin: {} } }
      signals:
        x: { form: a }
        y: { from: [a] }
        x y: { from: a }
      sinks:
        s: { from: a }
      """)
    #expect(
      reading.found == [
        "RX201 1:1", "RX201 3:8", "RX203 4:14", "RX206 5:3", "RX204 7:6",
      ])
    #expect(try reading.diagnostics.item(0).fixIts.first?.replacement == "sources")
    #expect(try reading.diagnostics.item(1).help == "Did you mean 'from'?")
  }

  @Test func reportsAreBounded() {
    let text = (0..<5_000).map { "k\($0): 1\n" }.joined()
    #expect(readPipeline(text).diagnostics.count == PipelineFileParser.maximumErrors)
  }
}
