import Foundation
import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// The allowed uses of `SINK.errors`, and when that output ends.
@Suite struct SinkErrorsTests {
  private func run(
    _ yaml: String, _ marbles: String = "1-x-3|", closing: [String: Int] = [:], drainAt: TimeSpan? = nil
  ) throws -> PipelineRun {
    var options = PipelineRun.Options()
    options.closeAfter = closing
    options.drainAt = drainAt
    options.until = .seconds(10)
    return try PipelineRun(
      "name: t\nsources: { a: { scripted: {} } }\n" + yaml,
      sources: ["a": ScriptedSource(SignalHistory(try Marbles(marbles)).script)], options: options)
  }

  private func check(_ yaml: String) -> String {
    let bytes = Array(("name: t\nsources: { a: { stdin: {} } }\n" + yaml).utf8)
    return DiagnosticRenderer().text(CheckingTests.check(bytes, "t.yaml").diagnostics)
  }

  /// The sink rejects events that its chain cannot double.
  private let out = "out: { from: a, chain: [ { map: event * 2 } ], probe: {} }"

  // MARK: While it runs

  @Test func whatASinkRejectsIsAnEvent() throws {
    let run = try run("sinks: { \(out), lost: { from: out.errors, probe: {} } }")
    #expect(run.out.entries.map(\.moment) == [.next(.int(2)), .next(.int(6)), .complete])
    #expect(run.sinks["lost"]?.entries.map(\.at) == [.milliseconds(2), .milliseconds(5)])
    let letter = try #require(run.texts["lost"]?.first)
    for part in [#""error":"#, #""code":"RX503""#, #""step":"out/map""#, #""at":"test.yaml:3"#, #""source":"a""#] {
      #expect(letter.contains(part), "\(letter)")
    }
    #expect(letter.hasSuffix(#""event":"x"}"#))
    #expect(run.deadLetters.isEmpty)
    #expect(run.counters.rejected == 1)
    #expect(run.outcome == .completed)
  }

  @Test func unreadItIsADeadLetter() throws {
    let run = try run("sinks: { \(out) }")
    #expect(run.deadLetters.count == 1)
    #expect(run.counters.rejected == 1)
  }

  @Test func theEndWaitsForWhatHangsOnIt() throws {
    let run = try run(
      """
      signals: { later: { from: out.errors, chain: [ { map: event.event }, { delay: 5s } ] } }
      sinks: { \(out), lost: { from: later, probe: {} } }
      """)
    #expect(run.outcome == .completed)
    #expect(
      run.sinks["lost"] == SignalHistory(try Marbles("-- 5s x--|")), "\(String(describing: run.sinks["lost"]))")
  }

  /// Nothing else keeps the pipeline running, not even a sink, because no sink reads these errors.
  @Test func theEndWaitsForACommand() throws {
    let run = try run(
      """
      commands: { mend: { run: { marbles: "--8|" } } }
      signals: { mended: { from: out.errors, chain: [ { execute: mend } ] } }
      sinks: { \(out) }
      """, "1-x|")
    #expect(run.outcome == .completed)
    #expect(run.counters.received == 3, "two and that of the command")
  }

  @Test func errorsOfErrors() throws {
    let run = try run(
      """
      sinks:
        \(out)
        lost: { from: out.errors, chain: [ { map: event.event * 2 } ], probe: {} }
        hopeless: { from: lost.errors, chain: [ { map: event.event.event } ], probe: {} }
      """)
    #expect(run.sinks["lost"]?.entries.map(\.moment) == [.complete])
    #expect(run.texts["hopeless"] == ["\"x\""])
    #expect(run.counters.rejected == 2)
    #expect(run.deadLetters.isEmpty)
    #expect(run.outcome == .completed)
  }

  /// The reader is gone, so later errors are dead letters, and nothing waits.
  @Test func aReaderThatGoesAwayClaimsNothing() throws {
    let run = try run(
      "sinks: { \(out), lost: { from: out.errors, probe: {} } }", "x-y-z|", closing: ["lost": 2])
    #expect(run.deadLetters.count == 1)
    #expect(run.deadLetters.first?.contains(#""event":"z""#) == true)
    #expect(run.outcome == .completed)
  }

  /// The sink's own reader is gone, so the reader of its errors ends too.
  @Test func aClosedSinkRejectsNothingMore() throws {
    let run = try run(
      "sinks: { \(out), lost: { from: out.errors, probe: {} }, all: { from: a, probe: {} } }", "1-x-3-4-y|",
      closing: ["out": 2])
    #expect(run.texts["lost"]?.count == 1)
    #expect(run.sinks["lost"]?.entries.last?.at == .milliseconds(4))
    #expect(run.outcome == .completed)
  }

  @Test func aReaderOfItMayEndThePipeline() throws {
    let run = try run(
      """
      sinks:
        \(out)
        lost: { from: out.errors, chain: [ { map: event.event * 2, onError: fail } ], probe: {} }
      """)
    guard case .failed = run.outcome else {
      Issue.record("\(String(describing: run.outcome))")
      return
    }
    #expect(run.out.entries.map(\.moment) == [.next(.int(2))])
  }

  /// A signal that waits for its own errors ends when no event can occur; errors of a sink are not its own.
  @Test func endsBesideASignalThatReadsItsOwnErrors() throws {
    let run = try run(
      """
      signals:
        all: { merge: [a, again] }
        doubled: { from: all, chain: [ { map: event * 2 } ] }
        again: { from: doubled.errors, chain: [ { map: size(event.event) } ] }
      sinks:
        out: { from: doubled, chain: [ { filter: event != 2 }, { map: 12 / (event - 6) } ], probe: {} }
        lost: { from: out.errors, chain: [ { map: event.event } ], probe: {} }
      """)
    #expect(run.texts["lost"] == ["6"])
    #expect(run.outcome == .completed)
  }

  @Test func stoppingEndsIt() throws {
    let run = try run(
      "sinks: { \(out), lost: { from: out.errors, probe: {} } }", "x----------------", drainAt: .milliseconds(4))
    #expect(run.outcome == .completed)
    #expect(run.sinks["lost"]?.entries.last?.at == .milliseconds(4))
  }

  // MARK: In tests of pipelines

  private func failures(_ yaml: String) throws -> [String] {
    try TestSuite(SourceText(name: "t.yaml", text: yaml)).run().flatMap { $0.failures.map(\.diagnostic.message) }
  }

  private func complaints(_ yaml: String) -> String {
    var diagnostics = Diagnostics()
    _ = TestSuite.read(SourceText(name: "t.yaml", text: yaml), &diagnostics)
    return DiagnosticRenderer().text(diagnostics.all)
  }

  private func suite(_ expect: String) -> String {
    """
    sources: { a: { stdin: json } }
    sinks:
      out: { from: a, chain: [ { ignore: event == 0 } ], file: { path: out.csv, encode: csv } }
      lost: { from: out.errors, chain: [ { map: event.event } ], file: lost.ndjson }
    tests:
      - name: what is no row is lost
        inputs: { a: { events: [ { next: { id: 1 } }, { at: 2ms, next: no row }, { at: 4ms, next: { other: 1 } } ] } }
        expect: { \(expect) }
    """
  }

  /// Sinks do not run in tests, but events that they could not write are rejected there too.
  @Test func testsSeeWhatCannotBeWritten() throws {
    #expect(try failures(suite("lost: [ { at: 2ms, next: no row } ]")) == [])
    #expect(complaints(suite("ot.errors: []")).contains("Did you mean 'out.errors'?"))
    #expect(complaints(suite("out.values: []")).contains("the sink 'out' has no output 'values'"))
    #expect(try failures(suite("out.errors: []")).first?.contains("'out.errors'") == true)
    #expect(
      try failures(suite("out: { events: [ { next: { id: 1 } }, { next: no row } ], more: true }")) == [],
      "what comes to the sink is told as before")
  }

  /// An invalid answer is reported to the reader of the errors before the client is answered, so that the reader may
  /// answer.
  @Test func anotherReplyAnswers() throws {
    let suite = """
      sources: { clicks: { httpServer: 127.0.0.1:0 } }
      sinks:
        answer: { from: clicks, chain: [ { map: event.body } ], reply: { status: int(event) } }
        sorry:
          from: answer.errors
          chain: [ { map: { why: event.code, what: event.event } } ]
          reply: { status: '418' }
      tests:
        - name: what is no status
          inputs: { clicks: { events: [ { next: { body: '201' } }, { next: { body: '99' } }, { next: { body: '9' } } ] } }
          expect:
            clicks.replies:
              - { next: { request: 1, status: 201, body: '201' } }
              - { next: { request: 2, status: 418, body: { why: RX504, what: '99' } } }
              - { next: { request: 3, status: 418, body: { why: RX504, what: '9' } } }
      """
    #expect(try failures(suite) == [])
  }

  private func shop(_ stubs: String, _ expect: String) -> String {
    """
    sources: { a: { stdin: json } }
    sinks:
      shop: { from: a, http: { url: 'http://h.example/in', batch: { count: 2, every: 10ms }, retry: 2 } }
      lost: { from: shop.errors, chain: [ { map: event.event } ], file: lost.ndjson }
    tests:
      - name: what the server takes
        inputs: { a: "-1-2-3|" }
        stubs: { http: [ \(stubs) ] }
        expect: { \(expect) }
    """
  }

  /// A sink named by a stub runs.
  @Test func testsAnswerTheRequestsOfASink() throws {
    let refusal =
      "{ sink: shop, sequence: [ { reply: {}, after: 5ms }, { reply: { status: 422, text: no }, after: 5ms } ] }"
    #expect(try failures(shop(refusal, "shop: '-1-2-3|', lost: '-------------(3|)'")) == [])
    #expect(
      try failures(
        shop(
          refusal,
          #"http.requests: [ { at: 3ms, next: { method: POST, body: "1\n2\n" } }, { at: 8ms, next: { body: 3 } } ]"#
        )) == [])
    // All attempts are used up.
    #expect(
      try failures(
        shop(
          "{ sink: shop, fail: connect }",
          "lost: { events: [ { next: 1 }, { next: 2 }, { next: 3 }, { complete: true } ] }")) == [])
    // A stub for sources does not answer sinks, nor vice versa, and without a stub the sink does not run.
    #expect(try failures(shop("{ url: '*', reply: {} }", "http.requests: [], lost: '------|', shop: '-1-2-3|'")) == [])
    #expect(
      try failures(shop("{ sink: shop, url: '*other', reply: {} }", "lost: { events: [], more: true }")).first?
        .contains("no stub answers the request POST http://h.example/in") == true)
  }

  @Test func stubsNameSinksThatSend() {
    #expect(complaints(shop("{ sink: shp, reply: {} }", "lost: []")).contains("Did you mean 'shop'?"))
    #expect(complaints(shop("{ sink: lost, reply: {} }", "lost: []")).contains("the sink 'lost' sends no requests"))
    #expect(complaints(shop("{ reply: {} }", "lost: []")).contains("or 'sink:' for the requests of an http sink"))
  }

  @Test func coverageCountsIt() throws {
    let plan = try PipelineRun.compile(
      "name: t\nsources: { a: { scripted: {} } }\nsinks: { \(out), lost: { from: out.errors, probe: {} } }")
    let places = TestCoverage(plan).points.filter { $0.category == .errors }
    #expect(places.map(\.message) == ["'out.errors' sends nothing"])
    #expect(places.first?.location.line == 3)
  }

  // MARK: In words and pictures

  @Test func isDrawnAndExplained() throws {
    let plan = try PipelineRun.compile(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals: { renamed: { from: out.errors } }
      sinks: { out: { from: a, probe: {} }, lost: { from: renamed, probe: {} } }
      """)
    #expect(PlanExplanation.text(plan).contains("from out.errors"))
    let drawing = PlanDrawing(plan)
    let arrow = try #require(drawing.arrows.first { $0.line == .errors })
    #expect(drawing.boxes.first { $0.id == arrow.from }?.owner == "out")
    #expect(drawing.boxes.first { $0.id == arrow.to }?.owner == "lost")
    #expect(drawing.mermaid.contains("-. errors .->"))
  }

  // MARK: Mistakes

  @Test func anUnknownNameIsNotASink() {
    let sinks = "sinks: { screen: { from: a, stdout: {} }, lost: { from: NAME, stderr: {} } }"
    #expect(
      check(sinks.replacing("NAME", with: "scren.errors")).contains(
        """
        error[RX301]: there is no source, signal or sink 'scren'
         --> t.yaml:3:57
          |
        3 | sinks: { screen: { from: a, stdout: {} }, lost: { from: scren.errors, stderr: {} } }
          |                                                         ^^^^^
          = help: Did you mean 'screen'?
        """), "\(check(sinks.replacing("NAME", with: "scren.errors")))")
    // A sink has no events, so it is not suggested where events are expected.
    #expect(check(sinks.replacing("NAME", with: "scren")).contains("There are: a"))
    #expect(check(sinks.replacing("NAME", with: "screen")).contains("'screen' is a sink, where events end"))
    #expect(check(sinks.replacing("NAME", with: "screen.values")).contains("the sink 'screen' has no output 'values'"))
  }

  @Test func aSinkThatReadsItsOwnErrors() {
    let text = check("sinks:\n  out: { from: { merge: [a, out.errors] }, stdout: {} }")
    #expect(
      text.contains(
        """
        error[RX303]: the sink 'out' reads its own errors
         --> t.yaml:4:29
          |
        4 |   out: { from: { merge: [a, out.errors] }, stdout: {} }
          |                             ^^^^^^^^^^
          = help: Events that it cannot deliver would return to it forever: let another sink read these errors
        """), "\(text)")
  }

  @Test func theWayOfACircleIsReported() {
    let text = check(
      """
      signals:
        lost: { from: out.errors, chain: [ { map: event.event } ] }
        all: { merge: [a, lost] }
      sinks:
        out: { from: all, stdout: {} }
      """)
    #expect(
      text.contains(
        """
        error[RX303]: the sink 'out' reads its own errors, by way of 'all' and 'lost'
         --> t.yaml:7:16
          |
        7 |   out: { from: all, stdout: {} }
          |                ^^^
          = note: 'all' reads 'lost' here
         --> t.yaml:5:21
          |
        5 |   all: { merge: [a, lost] }
          |                     ----
          = note: 'lost' reads 'out.errors' here
         --> t.yaml:4:17
          |
        4 |   lost: { from: out.errors, chain: [ { map: event.event } ] }
          |                 ----------
          = help: Events that it cannot deliver would return to it forever: let another sink read these errors
        """), "\(text)")
  }

  @Test(arguments: [
    // Two sinks that read each other's errors are reported once.
    ("sinks: { out: { from: { merge: [a, b.errors] }, stdout: {} }, b: { from: out.errors, stderr: {} } }", ["'b'"]),
    // Errors of a signal are made from its events.
    (
      "signals: { s: { from: out.errors, chain: [ { map: event.a } ] } }\n"
        + "sinks: { out: { from: { merge: [a, s.errors] }, stdout: {} } }", ["'s'"]
    ),
    // Also in an inner signal.
    ("sinks: { out: { from: a, chain: [ { flattenMap: { signal: { from: out.errors } } } ], stdout: {} } }", []),
    (
      "commands: { work: { run: { values: [1] } } }\n"
        + "signals: { s: { from: out.errors, chain: [ { execute: work } ] } }\n"
        + "sinks: { out: { from: { merge: [a, work.values] }, stdout: {} } }", ["'work'", "'s'"]
    ),
  ])
  func circles(_ yaml: String, _ way: [String]) {
    let text = check(yaml)
    #expect(text.components(separatedBy: "error[RX303]").count == 2, "\(text)")
    let between = way.isEmpty ? "" : ", by way of " + way.joined(separator: " and ")
    #expect(text.contains("the sink 'out' reads its own errors\(between)\n"), "\(text)")
  }

  @Test func aSignalThatHasTwoReadersIsNoCircle() {
    let text = check(
      """
      signals: { doubled: { from: a, chain: [ { map: event + 1 } ] } }
      sinks:
        out: { from: doubled, stdout: {} }
        lost: { from: { merge: [out.errors, doubled, doubled.errors] }, stderr: {} }
        more: { from: { merge: [lost.errors, out.errors] }, stderr: {} }
      """)
    #expect(!text.contains("error"), "\(text)")
  }
}
