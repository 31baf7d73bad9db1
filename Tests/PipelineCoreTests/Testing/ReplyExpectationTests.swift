import PipelineCore
import PipelineTesting
import Sinks
import Sources_
import Testing

/// The answers to clients of an `httpServer`, in `rxd test`.
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

  @Test func differencesAreReported() throws {
    let found = try failures(trigger("[ { at: 1ms, next: 202 }, { at: 3ms, next: { status: 200 } }, { next: 503 } ]"))
    #expect(found.count == 1)
    #expect(found.first?.hasPrefix("'clicks.replies': at 3ms: {\"status\":200} was expected, but") == true, "\(found)")
    #expect(try failures(trigger("[ { next: 202 }, { next: 409 } ]")).count == 1)
    #expect(try failures(trigger("[ { next: 202 }, { next: 409 }, { next: 503 }, { next: 503 } ]")).count == 1)
  }

  /// Executed in an inner signal, the command answers the request for which that signal was made.
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

  /// A `reply` sink answers in a test as in a run, and only once.
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
    #expect(
      complaints(
        """
        sources: { a: { stdin: {} } }
        sinks: { out: { from: a, discard: {} } }
        tests: [ { name: x, inputs: { a: "1" }, expect: { a.replies: [] } } ]
        """) == ["the events of 'a' have no answers"])
  }

  // MARK: What the server says by itself

  struct Served: Sendable, CustomTestStringConvertible {
    var server: String
    var chain: String
    var input: String
    var replies: String
    /// Further lines under `expect`.
    var others = ""
    var testDescription: String { "\(server), \(chain), \(input)" }
  }

  private static let served: [Served] = [
    // Nothing answers in time; a later answer is ignored.
    .init(
      server: "replyTimeout: 5ms", chain: "delay: 6ms", input: "-a--b|",
      replies: "[ { at: 6ms, next: 504 }, { at: 9ms, next: { request: 2, status: 504 } } ]"),
    // The server's time limit expires before the pipeline's timer of the same instant.
    .init(
      server: "replyTimeout: 5ms", chain: "delay: 5ms", input: "-a--b|",
      replies: "{ marbles: \"------x--x\", values: { x: 504 } }"),
    .init(
      server: "replyTimeout: 5ms", chain: "delay: 4ms", input: "-a--b|",
      replies: "{ marbles: \"-----x--x\", values: { x: 200 } }"),
    // Time advances when nothing else happens; here nothing sets a time.
    .init(
      server: "replyTimeout: 1h", chain: "flattenMap: { signal: { never: {} } }", input: "-a--b",
      replies: "[ { next: { request: 1, status: 504 } }, { next: { request: 2, status: 504 } } ]"),
    .init(
      server: "replyTimeout: 1h", chain: "flattenMap: { signal: { never: {} } }", input: "-a--b",
      replies: "[ { at: 3600001ms, next: 504 }, { at: 3600004ms, next: 504 } ]"),
    // Requests that the pipeline can no longer answer fail immediately: dropped events, and those held by a closed
    // signal.
    .init(
      server: "maxBody: 1MiB", chain: "filter: event.n > 1", input: "-a-b|",
      replies: "{ marbles: \"-x-y\", values: { x: 503, y: 200 } }"),
    .init(
      server: "maxBody: 1MiB", chain: "throttle: 3ms", input: "-ab|",
      replies: "[ { at: 2ms, next: { request: 1, status: 503 } }, { at: 3ms, next: { request: 2, status: 200 } } ]"),
    .init(
      server: "maxBody: 1MiB", chain: "switchToLatest: { from: { values: [1] }, chain: [ { delay: 3ms } ] }",
      input: "-ab---|",
      replies: "[ { at: 2ms, next: { request: 1, status: 503 } }, { at: 5ms, next: { request: 2, status: 200 } } ]"),
    .init(
      server: "maxBody: 1MiB", chain: "switchToLatest: { never: {} }", input: "-ab",
      replies: "[ { at: 2ms, next: { request: 1, status: 503 } }, { at: 30002ms, next: 504 } ]"),
    .init(
      server: "maxBody: 1MiB",
      chain: "flattenMap: { signal: { from: { values: [1, 2] }, chain: [ { filter: event > outer.n } ] } }",
      input: "-b-a-b|",
      replies: "{ marbles: \"-x-y-z\", values: { x: 503, y: 200, z: { request: 3, status: 503 } } }"),
    // The pipeline has ended.
    .init(
      server: "maxBody: 1MiB", chain: "take: 1", input: "-a-b-c|",
      replies:
        "[ { at: 1ms, next: 200 }, { at: 3ms, next: { status: 503, headers: { retry-after: '1' } } }, { at: 5ms, next: 503 } ]"
    ),
    // No request waits for the answers of inner signals then.
    .init(
      server: "maxBody: 1MiB",
      chain: "flattenMap: { signal: { from: { values: [1] }, chain: [ { delay: 5ms } ] } }, take: 1",
      input: "-ab----|",
      replies: "[ { at: 6ms, next: 200 }, { at: 6ms, next: { request: 2, status: 503 } } ]"),
    // Too many requests wait.
    .init(
      server: "maxConnections: 2", chain: "delay: 3ms", input: "-(abc)-d-e|",
      replies:
        "[ { at: 1ms, next: { request: 3, status: 503 } }, { at: 3ms, next: { request: 4, status: 503 } }, { at: 4ms, next: 200 }, { at: 4ms, next: 200 }, { at: 8ms, next: { request: 5, status: 200 } } ]"
    ),
    .init(
      server: "maxConnections: 1, replyTimeout: 3ms", chain: "delay: 9ms", input: "-a-b-c|",
      replies: "{ marbles: \"---ba---x\", values: { b: { request: 2, status: 503 }, a: 504, x: 504 } }"),
    // Requests that the server does not serve.
    .init(
      server: "path: /in, methods: [POST, PUT], maxBody: 4B", chain: "map: 1", input: "-a-p-q-r-s-t|",
      replies: "{ marbles: \"-x-n-m-x-l-n\", values: { x: 200, n: 404, m: 405, l: 413 } }"),
    .init(
      server: "auth: { bearer: tok }", chain: "map: 1", input: "-a-v-w|",
      replies:
        "{ marbles: \"-x-x-u\", values: { x: 200, u: { status: 401, headers: { www-authenticate: 'Bearer realm=\"rxd\"' } } } }"
    ),
    // Servers that ingest events.
    .init(
      server: "decode: json, path: /in, maxBody: 1B", chain: "filter: event.n > 1", input: "-a-b-p|",
      replies: "{ marbles: \"-x-x-x\", values: { x: 200 } }"),
    .init(
      server: "decode: json, answer: accepted", chain: "delay: 9ms", input: "-a-b|",
      replies: "{ marbles: \"-x-x\", values: { x: 202 } }"),
    .init(
      server: "decode: json, answer: reply", chain: "delay: 2ms", input: "-a-b|",
      replies: "{ marbles: \"---x-x\", values: { x: 200 } }"),
    .init(
      server: "answer: written", chain: "delay: 2ms", input: "-a-b|",
      replies: "{ marbles: \"-x-x\", values: { x: 200 } }"),
    // The event that ends the pipeline is not written; nor is anything accepted afterwards.
    .init(
      server: "decode: json", chain: "try: event.n > 1", input: "-b-a-b|",
      replies:
        "[ { next: 200 }, { at: 3ms, next: { status: 503, headers: { retry-after: '1' }, body: { error: not all events could be written } } }, { at: 5ms, next: 503 } ]",
      others: "out: { marbles: \"-b-#\", values: { b: { n: 2 } } }"),
    .init(
      server: "maxBody: 1MiB", chain: "delay: 9ms }, { timeout: 4ms", input: "-a---b|",
      replies: "[ { at: 4ms, next: 503 }, { at: 5ms, next: { status: 503, headers: { retry-after: '1' } } } ]",
      others: "out: \"----#\""),
    // A restarted server receives the requests again.
    .init(
      server: "maxBody: 1MiB", chain: "take: 1 }, { repeat: 2", input: "-a-b|",
      replies: "{ marbles: \"-xx-y\", values: { x: 200, y: { request: 2, status: 503 } } }"),
  ]

  @Test(arguments: served) func theServerAnswersByItself(_ row: Served) throws {
    let found = try failures(
      """
      sources: { r: { httpServer: { address: 127.0.0.1:0, \(row.server) } } }
      signals: { answers: { from: r, chain: [ { \(row.chain.replacing(", take:", with: " }, { take:")) } ] } }
      sinks:
        out: { from: answers, reply: {} }
      tests:
        - name: x
          inputs:
            r:
              marbles: "\(row.input)"
              values:
                a: { n: 1 }
                b: { n: 2 }
                p: { path: /out, method: POST }
                q: { path: /in, method: GET }
                r: { path: /in, method: PUT, body: 12345 }
                s: { path: /in, method: PUT, body: "12345" }
                t: { path: /out, method: GET, body: "1234" }
                v: { headers: { authorization: Bearer tok } }
                w: { headers: { authorization: Bearer tik } }
          expect:
            r.replies: \(row.replies)
            \(row.others)
      """)
    #expect(found == [])
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
