import PipelineCore
import PipelineTestSupport
import Testing

/// The language of users' tests.
@Suite struct TestLanguageTests {
  private func suite(_ text: String) throws -> TestSuite { try TestSuite(SourceText(name: "t.yaml", text: text)) }

  /// The failures of the tests in `text`, one sentence each.
  private func failures(_ text: String) throws -> [String] {
    try suite(text).run().flatMap { $0.failures.map(\.diagnostic.message) }
  }

  /// The errors in the file, one sentence each.
  private func complaints(_ text: String) -> [String] {
    do {
      _ = try suite(text)
      return []
    } catch {
      var diagnostics = Diagnostics()
      _ = TestSuite.read(SourceText(name: "t.yaml", text: text), &diagnostics)
      return diagnostics.all.map(\.message)
    }
  }

  // MARK: The environment and the time of day

  @Test func aTestHasItsOwnEnvironment() throws {
    let text = """
      sources: { a: { stdin: {} } }
      sinks:
        out: { from: a, chain: [ { map: "[event * ${FACTOR:-1}, env.?NAME.orValue('nobody')]" } ], discard: {} }
      tests:
        - name: without
          inputs: { a: "2|" }
          expect: { out: [ { next: [2, nobody] }, { complete: true } ] }
        - name: with
          env: { FACTOR: 10, NAME: Ann }
          inputs: { a: "2|" }
          expect: { out: [ { next: [20, Ann] }, { complete: true } ] }
        - name: without again
          inputs: { a: "2|" }
          expect: { out: [ { next: [2, nobody] }, { complete: true } ] }
      """
    #expect(try failures(text) == [])
    #expect(
      complaints(text.replacing("{ FACTOR: 10, NAME: Ann }", with: "[a]")).contains { $0.hasPrefix("'env' takes") })
    #expect(complaints(text.replacing("FACTOR: 10", with: "FACTOR: -")).count == 1)
  }

  /// Facts that a source adds to its events, such as the file, are part of what a pipeline is written for.
  @Test func anInputHasMeta() throws {
    let text = """
      sources: { a: { file: { path: "/var/log/*.log" } } }
      sinks:
        out: { from: a, chain: [ { map: "[event, meta.?path, meta.?offset, meta.?topic, meta.source]" } ], discard: {} }
      tests:
        - name: of each event
          inputs:
            a:
              - { next: x, meta: { path: /var/log/a.log, offset: 7 } }
              - { next: y, meta: { topic: { name: orders } } }
              - { next: z }
              - { complete: true }
          expect:
            out:
              - { next: [x, /var/log/a.log, 7, null, a] }
              - { next: [y, null, null, { name: orders }, a] }
              - { next: [z, null, null, null, a] }
              - { complete: true }
        - name: of all
          inputs: { a: { marbles: "xy|", meta: { path: /var/log/b.log } } }
          expect:
            out: [ { next: [x, /var/log/b.log, null, null, a] }, { next: [y, /var/log/b.log, null, null, a] }, { complete: true } ]
      """
    #expect(try failures(text) == [])
    for (meta, part) in [
      ("7", "'meta' takes a mapping"), ("{ offset: -1 }", "'offset' is a whole number"),
      ("{ time: 1 }", "cannot set 'time'"),
      ("{ path: [] }", "'path'"), ("{ id: x }", "cannot set 'id'"),
    ] {
      let changed = text.replacing("{ path: /var/log/a.log, offset: 7 }", with: meta)
      #expect(complaints(changed).count { $0.contains(part) } == 1, "\(meta): \(complaints(changed))")
    }
    let late = text.replacing("- { next: z }", with: "- { error: z, meta: {} }")
    #expect(complaints(late).contains { $0.contains("belongs to an event") }, "\(complaints(late))")
  }

  @Test func aTestHasItsOwnTimeOfDay() throws {
    let text = """
      sources: { clock: { interval: { cron: "0 9 * * *", timezone: Europe/Berlin } } }
      sinks: { out: { from: clock, chain: [ { map: "[string(event.time), string(now)]" } ], discard: {} } }
      tests:
        - name: nine in Berlin is seven in summer
          now: 2026-07-01T06:59:30Z
          expect:
            out: { events: [ { at: 30s, next: ["2026-07-01T07:00:00Z", "2026-07-01T07:00:00Z"] } ], more: true }
        - name: and eight in winter
          now: 2026-12-24T07:00:00Z
          expect:
            out: { events: [ { at: 1h, next: ["2026-12-24T08:00:00Z", "2026-12-24T08:00:00Z"] } ], more: true }
      """
    #expect(try failures(text) == [])
    #expect(complaints(text.replacing("2026-07-01T06:59:30Z", with: "yesterday")).count == 1)
  }

  // MARK: Inputs

  /// For every source, a test can define what it sends: no file, socket or clock is used.
  @Test(arguments: [
    "stdin: {}", "file: /nonexistent", "file: { path: /nonexistent, follow: true }", "http: 'http://127.0.0.1:1/'",
    "http: { url: 'http://127.0.0.1:1/', every: 1s }", "httpServer: { address: '127.0.0.1:0', decode: ndjson }",
    "interval: 1s",
    "interval: { cron: '* * * * *' }", "values: [1, 2]", "empty: {}", "never: {}", "error: it failed",
  ])
  func everySourceCanBeReplaced(_ source: String) throws {
    #expect(
      try failures(
        """
        sources: { a: { \(source) } }
        signals: { s: { from: { \(source) }, chain: [ { map: event } ] } }
        sinks: { out: { from: a, discard: {} }, other: { from: s, discard: {} } }
        tests:
          - name: by name, and inline in a signal
            inputs: { a: { marbles: "-x-y|", values: { x: { n: 1 } } }, s: "--z|" }
            expect:
              out: { marbles: "-x-y|", values: { x: { n: 1 } } }
              other: "--z|"
        """) == [])
  }

  @Test func aSignalWithoutASourceOfItsOwnHasNoInput() {
    let complaint = complaints(
      """
      sources: { a: { stdin: {} } }
      signals: { s: { from: a, chain: [ { map: event } ] } }
      sinks: { out: { from: s, discard: {} } }
      tests: [ { name: x, inputs: { s: "1" }, expect: { out: "1" } } ]
      """)
    #expect(complaint == ["'s' does not begin with a source of its own"])
  }

  // MARK: Expectations

  private let login = """
    sources: { clicks: { stdin: {} } }
    signals: { logins: { from: clicks, chain: [ { execute: work } ] } }
    commands: { work: { run: { from: { values: [ok] }, chain: [ { delay: 2ms } ] } } }
    sinks: { out: { from: logins, discard: {} } }
    tests:
    """

  /// The initial state is reported, even if the first event arrives immediately and no sink subscribes.
  @Test func commandStatesBeginWithWhatHolds() throws {
    #expect(
      try failures(
        login + """

            - name: at once
              inputs: { clicks: "a|" }
              expect:
                work.executing: { marbles: "(FT)-(F|)", values: { F: false, T: true } }
                work.enabled: { marbles: "(TF)-(T|)", values: { F: false, T: true } }
                work.values: { marbles: "--(o|)", values: { o: ok } }
                out: [ { at: 2ms, next: ok }, { complete: true } ]
          """) == [])
  }

  @Test func aColdSignalCannotBeLookedAt() {
    let text = """
      sources: { a: { stdin: {} } }
      signals:
        s: { from: a, cold: true, chain: [ { map: event } ] }
        t: { merge: [ { from: s }, { from: s } ] }
      sinks: { out: { from: t, discard: {} } }
      tests: [ { name: x, inputs: { a: "1" }, expect: { s: "1" } } ]
      """
    #expect(
      complaints(text) == ["'s' is cold: it is created for each reference, so there is no single signal to observe"])
  }

  @Test func subscriptionsAreMarked() throws {
    let text = """
      sources: { a: { stdin: {} }, b: { file: b } }
      signals:
        first: { from: a, chain: [ { take: 2 } ] }
        both: { concat: [first, b] }
      sinks: { out: { from: both, discard: {} } }
      tests:
        - name: one after the other
          inputs: { a: "-1-2-3", b: "-4|" }
          expect:
            a: "^-1-(2!)"
            b: "---^-4|"
            first: "^-1-(2|)"
        - name: in full
          inputs: { a: "-1-2-3", b: "-4|" }
          expect:
            a: [ { at: 0s, subscribe: true }, { next: 1 }, { next: 2 }, { at: 3ms, cancel: true } ]
            b: [ { at: 3ms, subscribe: true }, { next: 4 }, { complete: true } ]
        - name: not spoken of
          inputs: { a: "-1-2-3", b: "-4|" }
          expect: { a: "-1-2" }
      """
    #expect(try failures(text) == [])
    let late = try failures(text.replacing("b: \"---^-4|\"", with: "b: \"--^--4|\""))
    #expect(late == ["'b': the subscription came at 3ms, not at 2ms"])
    #expect(
      complaints(text.replacing("first: \"^-1-(2|)\"", with: "out: \"^\"")) == [
        "the subscriptions of 'out' cannot be observed"
      ])
    #expect(complaints(text.replacing("b: \"-4|\" }", with: "b: \"^-4|\" }")).first?.contains("no meaning") == true)
  }

  /// The error that ended the pipeline is named if events are missing because of it.
  @Test func theErrorThatEndedThePipelineIsNamed() throws {
    let results = try suite(
      """
      sources: { a: { stdin: {} }, b: { file: b } }
      sinks: { one: { from: a, discard: {} }, two: { from: b, discard: {} } }
      tests:
        - name: x
          inputs: { a: { marbles: "--#", error: the cable was pulled }, b: "1---2" }
          expect: { two: "1---2", one: "--#" }
      """
    ).run()
    let failure = try #require(results.first?.failures.first)
    #expect(failure.diagnostic.message == "'two': 2 was expected at 4ms, but did not come")
    #expect(
      failure.diagnostic.notes.map(\.message) == ["the pipeline ended at 2ms with an error: the cable was pulled"])
  }

  // MARK: HTTP

  private let asking = """
    sources: { ids: { stdin: { decode: json } } }
    signals:
      answers:
        from: ids
        chain:
          - flattenMap:
              policy: concat
              signal:
                from:
                  http:
                    url: "http://127.0.0.1:1/{{ event.id }}"
                    method: POST
                    headers: { X-Id: "{{ event.id }}", Content-Type: application/json }
                    body: "{{ toJson(event) }}"
                    timeout: 1s
                chain: [ { retry: { count: 2, delay: 100ms } } ]
    sinks: { out: { from: answers, discard: {} } }
    tests:
    """

  @Test func stubsFailAnswerLateAndHang() throws {
    #expect(
      try failures(
        asking + """

            - name: fail twice, then answer
              inputs: { ids: { marbles: "a|", values: { a: { id: 7 } } } }
              stubs:
                http:
                  - url: "*/7"
                    method: POST
                    sequence:
                      - { fail: connection refused, after: 5ms }
                      - { reply: { status: 503 } }
                      - { reply: { json: { n: 7 } }, after: 20ms }
              expect:
                out: [ { at: 225ms, next: { n: 7 } }, { complete: true } ]
                http.requests:
                  - at: 0s
                    next:
                      url: "http://127.0.0.1:1/7"
                      method: POST
                      headers: { X-Id: "7", content-type: application/json }
                      body: { id: 7 }
                  - { at: 105ms, next: { body: { id: 7 } } }
                  - { at: 205ms, next: "POST */7" }
            - name: a server that hangs, and then answers
              inputs: { ids: { marbles: "a|", values: { a: { id: 8 } } } }
              stubs: { http: [ { url: "*", sequence: [ { hang: true }, { reply: { text: "9" } } ] } ] }
              expect: { out: [ { at: 1100ms, next: 9 }, { complete: true } ] }
            - name: an answer that comes too late is none
              inputs: { ids: { marbles: "a|", values: { a: { id: 8 } } } }
              stubs: { http: [ { url: "*", reply: { text: "9" }, after: 2s } ] }
              expect: { out: [ { at: 3200ms, error: no answer within } ] }
          """) == [])
  }

  @Test func whatAStubWasAskedIsCompared() throws {
    func failure(_ expected: String) throws -> [String] {
      try failures(
        asking + """

            - name: x
              inputs: { ids: { marbles: "a|", values: { a: { id: 7 } } } }
              stubs: { http: [ { url: "*", reply: { text: "9" } } ] }
              expect: { http.requests: [ { next: \(expected) } ] }
          """)
    }
    for right in ["'*/7'", "'POST */7'", "{ method: POST }", "{ headers: { x-id: '7' } }", "{ body: { id: 7.0 } }"] {
      #expect(try failure(right) == [], "\(right)")
    }
    for wrong in ["'*/8'", "'GET */7'", "{ method: GET }", "{ headers: { x-id: '8' } }", "{ body: { id: 8 } }"] {
      #expect(try failure(wrong).count == 1, "\(wrong)")
    }
  }

  // MARK: Ends

  /// A clock in an inner signal runs forever, and the test still ends.
  @Test func endlessInnerSignalsDoNotHoldATestUp() throws {
    #expect(
      try failures(
        """
        sources: { a: { stdin: {} } }
        signals:
          s: { from: a, chain: [ { flattenMap: { policy: latest, signal: { interval: 1s, chain: [ { map: event.tick } ] } } } ] }
        sinks: { out: { from: s, discard: {} } }
        tests:
          - { name: timed, inputs: { a: "a" }, expect: { out: { marbles: "-12", tick: 1s } } }
          - { name: at any time, inputs: { a: "a" }, expect: { out: [ { next: 1 }, { next: 2 }, { next: 3 } ] } }
          - { name: later, inputs: { a: "5s a" }, expect: { out: [ { at: 6s, next: 1 } ] } }
        """) == [])
  }

  /// A test over thirty virtual days with few events takes little time.
  @Test func daysPassWithoutAnythingHappening() throws {
    let suite = try suite(
      """
      sources: { a: { stdin: {} } }
      signals: { s: { from: a, chain: [ { throttle: 720h } ] } }
      sinks: { out: { from: s, discard: {} } }
      tests: [ { name: x, inputs: { a: "1 240h 2" }, expect: { out: [ { at: 960h1ms, next: 2 } ] } } ]
      """)
    let start = threadTime()
    let results = suite.run()
    let passed = threadTime() - start
    #expect(results.map(\.passed) == [true])
    #expect(results.first?.virtualTime == TimeSpan.seconds(960 * 3600) + TimeSpan.milliseconds(1))
    // A wide margin for a debug build.
    #expect(passed < .seconds(1))
    print("test: forty virtual days in \(passed)")
  }
}
