import PipelineCore
import Sinks
import Sources_
import Testing

/// What the clients of an `httpServer` hear, in `rxd test`.
@Suite struct ReplyExpectationTests {
  private func failures(_ yaml: String) throws -> [String] {
    try TestSuite(SourceText(name: "t.yaml", text: yaml)).run().flatMap { $0.failures.map(\.diagnostic.message) }
  }

  private func complaints(_ yaml: String) -> [String] {
    var diagnostics = Diagnostics()
    _ = TestSuite.read(SourceText(name: "t.yaml", text: yaml), &diagnostics)
    return diagnostics.all.map(\.message)
  }

  /// A trigger for a command: accepted, busy, disabled.
  private static let trigger = """
    sources:
      clicks: { httpServer: 127.0.0.1:0 }
      permission: { stdin: {} }
    signals: { results: { from: clicks, chain: [ { execute: { command: work, answer: all } } ] } }
    commands: { work: { enabled: permission, run: { from: { values: [done] }, chain: [ { delay: 3ms } ] } } }
    sinks: { out: { from: results, discard: {} } }
    tests:
      - name: accepted, busy, disabled
        inputs: { clicks: "-a-b---c-|", permission: "------n-|" }
        expect:
          clicks.replies: REPLIES
          out: "----d----|"

    """

  private func trigger(_ replies: String) -> String {
    Self.trigger.replacing("REPLIES", with: replies)
      .replacing("permission: \"------n-|\"", with: "permission: { marbles: \"------n-|\", values: { n: false } }")
      .replacing("out: \"----d----|\"", with: "out: { marbles: \"----d----|\", values: { d: done } }")
  }

  @Test(arguments: [
    "[ { at: 1ms, next: 202 }, { at: 3ms, next: 409 }, { at: 7ms, next: 503 } ]",
    "[ { next: { request: 1, status: 202 } }, { next: { request: 2, body: { status: busy } } }, { next: 503 } ]",
    "{ marbles: \"-a-b---c\", values: { a: 202, b: { status: 409 }, c: { headers: { content-type: application/json }, status: 503 } } }",
    "{ events: [ { next: 409 } ], more: true }",
  ])
  func statesOfACommand(_ replies: String) throws {
    #expect(try failures(trigger(replies)) == [])
  }

  @Test func whatDiffersIsTold() throws {
    let found = try failures(trigger("[ { at: 1ms, next: 202 }, { at: 3ms, next: { status: 200 } }, { next: 503 } ]"))
    #expect(found.count == 1)
    #expect(found.first?.hasPrefix("'clicks.replies': at 3ms: {\"status\":200} was expected, but") == true, "\(found)")
    #expect(try failures(trigger("[ { next: 202 }, { next: 409 } ]")).count == 1)
    #expect(try failures(trigger("[ { next: 202 }, { next: 409 }, { next: 503 }, { next: 503 } ]")).count == 1)
  }

  /// Executed in an inner signal, the command answers the request for which that was made.
  @Test func fromAnInnerSignal() throws {
    #expect(
      try failures(
        """
        sources: { clicks: { httpServer: 127.0.0.1:0 } }
        signals:
          results:
            from: clicks
            chain:
              - flattenMap: { signal: { from: { values: [go] }, chain: [ { execute: { command: work, answer: all } } ] } }
        commands: { work: { run: { from: { values: [done] }, chain: [ { delay: 3ms } ] } } }
        sinks: { out: { from: results, discard: {} } }
        tests:
          - name: accepted, busy, accepted
            inputs: { clicks: "-a-b---c-|" }
            expect:
              clicks.replies: { marbles: "-a-b---c", values: { a: 202, b: 409, c: 202 } }
        """) == [])
  }

  /// A `reply` sink answers in a test as it does in a run, and only once.
  @Test func fromAReplySink() throws {
    let text = """
      sources: { requests: { httpServer: 127.0.0.1:0 } }
      signals:
        answers: { from: requests, chain: [ { flattenMap: "event.path == '/twice' ? [event, event] : [event]" }, { delay: 2ms } ] }
      sinks:
        out:
          from: answers
          chain: [ { map: "{'you asked': event.path}" } ]
          reply: { status: "event['you asked'] == '/none' ? 404 : 200", headers: { X-Who: me } }
      tests:
        - name: answers
          inputs:
            requests: { marbles: "-a-b-c", values: { a: { path: /x }, b: { path: /none }, c: { path: /twice } } }
          expect:
            requests.replies:
              - { at: 3ms, next: { status: 200, headers: { x-who: me }, body: { "you asked": /x } } }
              - { at: 5ms, next: { request: 2, status: 404 } }
              - { at: 7ms, next: 200 }
            out: { events: [ { next: { "you asked": /x } } ], more: true }
      """
    #expect(try failures(text) == [])
  }

  @Test func onlyWhereSomebodyWaits() {
    for source in ["stdin: {}", "httpServer: { address: 127.0.0.1:0, decode: json }"] {
      #expect(
        complaints(
          """
          sources: { a: { \(source) } }
          sinks: { out: { from: a, discard: {} } }
          tests: [ { name: x, inputs: { a: "1" }, expect: { a.replies: [] } } ]
          """) == ["nobody waits for an answer to the events of 'a'"])
    }
  }

  // MARK: Rewriting

  private func updated(_ text: String) throws -> String? {
    let source = SourceText(name: "t.yaml", text: text)
    let suite = try TestSuite(source)
    var update = ExpectationUpdate(source)
    for (test, result) in zip(suite.tests, suite.run()) {
      for failure in result.failures {
        guard let index = failure.expectation else { continue }
        if let refusal = update.rewrite(test.expectations[index], of: test, to: failure.history) {
          Issue.record("\(refusal.message)")
        }
      }
    }
    return update.text().map { String(decoding: $0, as: UTF8.self) }
  }

  @Test(arguments: [
    (
      "[ { at: 1ms, next: 200 }, { at: 2ms, next: { status: 409, body: { status: free } } }, { at: 7ms, next: { status: 500 } } ]",
      "[ { at: 1ms, next: 202 }, { at: 3ms, next: { status: 409, body: { status: busy } } }, { at: 7ms, next: { status: 503 } } ]"
    ),
    (
      "[ { at: 1ms, next: 202 }, { at: 7ms, next: 503 } ]",
      "[ { at: 1ms, next: 202 }, { at: 3ms, next: { body: { status: busy }, status: 409 } }, { at: 7ms, next: 503 } ]"
    ),
    (
      "{ marbles: \"-a-b---c\", values: { a: 200, b: { status: 409 }, c: 503 } }",
      "{ marbles: \"-a-b---c\", values: { a: 202, b: { status: 409 }, c: 503 } }"
    ),
    (
      "{ marbles: \"-a--b--c\", values: { a: 202, b: 409, c: 503 } }",
      "{ marbles: \"-a-b---c\", values: { a: 202, b: 409, c: 503 } }"
    ),
  ])
  func repliesAreRewritten(_ written: String, _ wanted: String) throws {
    let after = try #require(try updated(trigger(written)))
    #expect(after == trigger(wanted))
    #expect(try failures(after) == [])
  }
}
