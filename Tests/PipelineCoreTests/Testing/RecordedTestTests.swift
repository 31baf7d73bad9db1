import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// Tests made from recordings of the edges of a running pipeline.
@Suite struct RecordedTestTests {
  private static let search = """
    name: search
    sources: { typed: { stdin: {} } }
    signals:
      query:
        from: typed
        chain: [ { filter: size(event) > 2 }, { throttle: 300ms } ]
      books:
        from: query
        chain:
          - flattenMap:
              policy: latest
              signal: { http: { url: "http://127.0.0.1:1/?q={{ urlEncode(event) }}" } }
          - map: event.title
    sinks: { out: { from: books, stdout: { encode: json } } }

    """

  private struct Seen {
    var from: String
    var to: String
    var milliseconds: Double
    var moment: SignalHistory.Moment
  }

  /// A time of the monotonic clock, far from zero.
  private static let start: Int64 = 3_894_672_963_154

  private func recorded(_ yaml: String, _ step: String, end: Double, _ seen: [Seen]) throws -> RecordedTest {
    let plan = try TestSuite(SourceText(name: "t.yaml", text: yaml)).plan
    return try RecordedTest(
      plan, step: #require(plan.step(named: step)), name: "as seen",
      end: Self.start + Int64(end * 1_000_000),
      try seen.map {
        RecordedTest.Sighting(
          edge: try #require(plan.edge(from: $0.from, to: $0.to), "\($0.from) \($0.to)"),
          nanoseconds: Self.start + Int64($0.milliseconds * 1_000_000), $0.moment)
      })
  }

  private func typed(_ texts: (Double, String)...) -> [Seen] {
    texts.map { Seen(from: "typed/stdin", to: "typed", milliseconds: $0.0, moment: .next(.text($0.1))) }
  }

  /// Timers of a running pipeline fire a little late; the test expects them when they are due.
  @Test func passesThoughTimersWereLate() throws {
    let seen =
      typed((0, "du"), (104.4, "dun"), (209.7, "dune"))
      + [Seen(from: "query/throttle", to: "query", milliseconds: 512.9, moment: .next(.text("dune")))]
    let outcome = try recorded(Self.search, "query/throttle", end: 700, seen).make()
    #expect(outcome.problem == nil, "\(outcome.problem ?? "")\n\(outcome.text)")
    #expect(outcome.text.contains("query: { marbles: \"510ms A\", values: { A: dune } }"), "\(outcome.text)")
    let results = try TestSuite(SourceText(name: "t.yaml", text: Self.search + outcome.text)).run()
    #expect(results.count == 1 && results.allSatisfy(\.passed))
    // The test distinguishes a wrong pipeline from the right one.
    let other = Self.search.replacing("300ms", with: "200ms")
    #expect(try !TestSuite(SourceText(name: "t.yaml", text: other + outcome.text)).run().allSatisfy(\.passed))
  }

  /// Answers to inner requests become stubs, one for each event that made a request.
  @Test func requestsAreAnsweredAsTheyWere() throws {
    let reply = TestValue.object([.init(Array("title".utf8), .text("Dune"))])
    let seen =
      typed((0, "sea"), (400, "dune")) + [
        Seen(from: "query", to: "books/flattenMap", milliseconds: 300.2, moment: .next(.text("sea"))),
        Seen(from: "query", to: "books/flattenMap", milliseconds: 700.4, moment: .next(.text("dune"))),
        Seen(from: "books/flattenMap/http", to: "books/flattenMap", milliseconds: 720.9, moment: .next(reply)),
        Seen(from: "books/map", to: "books", milliseconds: 721, moment: .next(.text("Dune"))),
      ]
    let outcome = try recorded(Self.search, "books/map", end: 900, seen).make()
    #expect(outcome.problem == nil, "\(outcome.problem ?? "")\n\(outcome.text)")
    #expect(outcome.text.contains("- { hang: true }") && outcome.text.contains("reply: { json: { title: Dune } }"))
    let results = try TestSuite(SourceText(name: "t.yaml", text: Self.search + outcome.text)).run()
    #expect(results.count == 1 && results.allSatisfy(\.passed))
  }

  /// State from before the recording is not in the test, which says so.
  @Test func whatWasKeptBeforeIsNamed() throws {
    let seen =
      [Seen(from: "query/throttle", to: "query", milliseconds: 20, moment: .next(.text("before")))]
      + typed((100, "dune"))
    let outcome = try recorded(Self.search, "query/throttle", end: 700, seen).make()
    #expect(outcome.problem?.contains("the recorded pipeline may have had some") == true, "\(outcome.problem ?? "")")
    #expect(outcome.problem?.contains("before") == true)
  }

  /// A shift of more than the tolerance is a difference.
  @Test func aLateEventIsADifference() throws {
    let seen =
      typed((0, "dune")) + [Seen(from: "query/throttle", to: "query", milliseconds: 450, moment: .next(.text("dune")))]
    #expect(try recorded(Self.search, "query/throttle", end: 700, seen).make().problem != nil)
  }

  @Test func manyValuesAreAListOfTheirOwn() throws {
    let texts = (0..<60).map {
      Seen(from: "typed/stdin", to: "typed", milliseconds: Double($0), moment: .next(.text("t\($0)${x}")))
    }
    let outcome = try recorded(Self.search, "query/filter", end: 100, texts).make()
    #expect(outcome.problem == nil, "\(outcome.problem ?? "")\n\(outcome.text)")
    #expect(outcome.text.contains("- { at: 59ms, next: \"t59$${x}\" }"), "\(outcome.text)")
  }

  @Test func whatMakesNoTestIsRefused() throws {
    #expect(throws: RecordedTest.Refusal.self) { try recorded(Self.search, "query/filter", end: 1, []) }
    let output = [Seen(from: "query/throttle", to: "query", milliseconds: 20, moment: .next(.text("x")))]
    #expect(throws: RecordedTest.Refusal.self) { try recorded(Self.search, "query/filter", end: 1, output) }
    let many = (0...RecordedTest.mostEvents).map {
      Seen(from: "typed/stdin", to: "typed", milliseconds: Double($0), moment: .next(.int(Int64($0))))
    }
    #expect(throws: RecordedTest.Refusal.self) { try recorded(Self.search, "query/filter", end: 500, many) }
  }
}
