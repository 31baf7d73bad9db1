import PipelineCore
import PipelineHost
import PipelineTestSupport
import PipelineTesting
import Testing

/// Stubs of Docker in the tests of a pipeline: the source `docker` runs against them, in virtual time.
@Suite struct DockerStubTests {
  private func results(_ text: String, isRestored: Bool = false) throws -> [TestResult] {
    let compiled = FrontEnd(PipelineText.catalogue).compile(SourceText(name: "test.yaml", text: text))
    let plan = try #require(compiled.plan, "\(DiagnosticRenderer().text(compiled.diagnostics))")
    var diagnostics = Diagnostics()
    let tests = compiled.tests(into: &diagnostics) { _ in nil }
    try #require(!diagnostics.hasErrors, "\(DiagnosticRenderer().text(diagnostics.all))")
    var runner = TestRunner(plan)
    runner.restoresAfterEachTurn = isRestored
    return tests.map { runner.run($0) }
  }

  private static let logs = """
    name: t
    sources: { web: { docker: { containers: ['shop-*'], labels: [env=prod, paid] } } }
    sinks:
      out: { from: web, chain: [ { map: '[event.container.id, event.container.image, event.stream, event.message, event.time]' } ], discard: {} }
    tests:
      - name: lines of those that are selected
        stubs:
          docker:
            - { container: shop-a, id: c1, image: 'nginx:1', labels: { env: prod, paid: "yes" }, lines: [ "now, ü", { text: later, stream: stderr, at: 1500ms } ] }
            - { container: shop-b, id: c2, labels: { env: prod, paid: "" }, starts: 1s, ends: 3s, lines: [ started, { text: "{\\"a\\":1}", at: 2s } ] }
            - { container: shop-c, labels: { env: test, paid: "" }, lines: [ left out ] }
            - { container: mail, labels: { env: prod, paid: "" }, lines: [ left out ] }
        expect:
          out:
            - { at: 0ms, next: [c1, "nginx:1", stdout, "now, ü", "2026-01-01T00:00:00Z"] }
            - { at: 1s, next: [c2, "", stdout, started, "2026-01-01T00:00:01Z"] }
            - { at: 1500ms, next: [c1, "nginx:1", stderr, later, "2026-01-01T00:00:01.5Z"] }
            - { at: 2s, next: [c2, "", stdout, '{"a":1}', "2026-01-01T00:00:02Z"] }
    """

  @Test(arguments: [false, true]) func linesComeAtTheirTimes(_ isRestored: Bool) throws {
    for result in try results(Self.logs, isRestored: isRestored) {
      #expect(result.passed, "\(result.failures.map(\.diagnostic.message)) \(result.failures.flatMap(\.picture))")
    }
  }

  @Test(arguments: [false, true]) func eventsCome(_ isRestored: Bool) throws {
    let text = """
      name: t
      sources: { docker: { docker: { emit: events } } }
      sinks: { out: { from: docker, chain: [ { map: '[event.type, event.action, event.id, event.attributes, event.time]' } ], discard: {} } }
      tests:
        - name: two
          stubs:
            docker:
              - { event: pull, type: image, id: nginx, at: 20ms }
              - { event: die, id: c1, attributes: { exitCode: "137" }, at: 10ms }
          expect:
            out:
              - { at: 10ms, next: [container, die, c1, { exitCode: "137" }, "2026-01-01T00:00:00.01Z"] }
              - { at: 20ms, next: [image, pull, nginx, {}, "2026-01-01T00:00:00.02Z"] }
      """
    for result in try results(text, isRestored: isRestored) {
      #expect(result.passed, "\(result.failures.map(\.diagnostic.message)) \(result.failures.flatMap(\.picture))")
    }
  }

  /// A wrong expectation fails, and without a stub the source is silent.
  @Test func aTestCanFail() throws {
    let wrong = Self.logs.replacing("at: 2s, next", with: "at: 1s, next")
    #expect(try results(wrong).contains { !$0.passed })
    let silent = """
      name: t
      sources: { web: { docker: {} } }
      sinks: { out: { from: web, discard: {} } }
      tests: [ { name: nothing, until: 1h, expect: { out: [] } } ]
      """
    #expect(try results(silent).allSatisfy(\.passed))
  }

  @Test(arguments: [
    ("docker: { container: web }", "'docker' takes a list of containers and events"),
    ("docker: [ { name: web } ]", "a stub of Docker is a container or an event"),
    ("docker: [ { container: web, line: [a] } ]", "line"),
    ("docker: [ { container: web, lines: a } ]", "'lines' takes a list"),
    ("docker: [ { container: web, lines: [ { text: a, stream: out } ] } ]", "'stream' is stdout or stderr, not 'out'"),
    ("docker: [ { container: web }, { container: web } ]", "two containers have the id 'web'"),
    ("docker: [ { event: die, labels: [a] } ]", "labels"),
    ("docker: [ { container: web, labels: [a] } ]", "'labels' takes a mapping"),
    ("docker: [ { container: web, starts: soon } ]", "'soon' is not a duration"),
  ])
  func mistakesAreReported(_ stubs: String, _ message: String) throws {
    let text = """
      name: t
      sources: { web: { docker: {} } }
      sinks: { out: { from: web, discard: {} } }
      tests: [ { name: a, stubs: { \(stubs) }, expect: { out: [] } } ]
      """
    let compiled = FrontEnd(PipelineText.catalogue).compile(SourceText(name: "test.yaml", text: text))
    var diagnostics = Diagnostics()
    _ = compiled.tests(into: &diagnostics) { _ in nil }
    #expect(diagnostics.all.contains { $0.message.contains(message) }, "\(diagnostics.all.map(\.message))")
  }
}
