import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Events that a sink gives up permanently go to its errors output.
@Suite struct SinkErrorsTests {
  // MARK: http

  /// `shop` sends `events` at once; `sinks` read its errors.
  private func sending(
    _ parameters: String, events: String = "[1, 2, 3]", signals: String = "",
    sinks: String = "lost: { from: shop.errors, chain: [ { map: '[event.event, event.error]' } ], probe: {} }"
  ) throws -> VirtualPipeline {
    try VirtualPipeline(
      """
      sources: { events: { values: \(events) } }
      signals: { \(signals) }
      sinks:
        shop: { from: events, http: { url: 'http://h.example/in', \(parameters) } }
        \(sinks.replacing("\n", with: "\n  "))
      """, random: .max)
  }

  private func answer(_ pipeline: VirtualPipeline, _ status: Int, _ body: String = "") {
    pipeline.http.open.first?.answer(status, body)
    pipeline.settle()
  }

  @Test(arguments: [400, 422, 413])
  func whatAServerRefuses(_ status: Int) throws {
    let pipeline = try sending("batch: 3", sinks: "lost: { from: shop.errors, probe: {} }")
    pipeline.http.script = { _, exchange in ScriptedHTTP.status(exchange.body.contains("2") ? status : 200, "no 2") }
    pipeline.run()
    #expect(
      pipeline.probe("lost").events == [
        #"{"error":"the server refused the event with \#(status): no 2","code":"RX504","step":"shop/http","#
          + #""at":"test.yaml:4:3","source":"events","offset":1,"event":2}"#
      ])
    #expect(pipeline.counters.sent == 2, "the error is none of them")
    #expect(pipeline.counters.rejected == 1)
    #expect(pipeline.deadLetters.isEmpty)
    #expect(pipeline.outcome == .completed)
  }

  @Test func theEndWaitsForRequestsUnderWay() throws {
    let pipeline = try sending("maxConcurrent: 3")
    pipeline.run()
    #expect(pipeline.probe("lost").events.isEmpty)
    for number in [0, 2] {
      try pipeline.http.exchanges.item(number).answer(422, "no")
      pipeline.run()
    }
    #expect(pipeline.probe("lost").timeline.count == 2)
    #expect(pipeline.outcome == nil)
    try pipeline.http.exchanges.item(1).answer(200)
    pipeline.run()
    #expect(
      pipeline.probe("lost").timeline == [
        #"0s [1,"the server refused the event with 422: no"]"#, #"0s [3,"the server refused the event with 422: no"]"#,
        "0s |",
      ])
    #expect(pipeline.outcome == .completed)
  }

  /// Nothing else happens while the server prepares its answer, but signals that depend on the answer have not ended.
  @Test func errorsOfWhatReadsThemStay() throws {
    let pipeline = try sending(
      "", events: "[1]", signals: "half: { from: shop.errors, chain: [ { map: event.event.no } ] }",
      sinks: "lost: { from: half, probe: {} }\nhopeless: { from: half.errors, probe: {} }")
    pipeline.run()
    answer(pipeline, 422)
    pipeline.run()
    #expect(pipeline.probe("lost").timeline == ["0s |"])
    #expect(pipeline.probe("hopeless").events.count == 1)
    #expect(pipeline.deadLetters.isEmpty)
    #expect(pipeline.outcome == .completed)
  }

  @Test func usedUpAttempts() throws {
    let pipeline = try sending("retry: 2, batch: 2")
    pipeline.http.script = { number, _ in ScriptedHTTP.status(number < 2 ? 503 : 200) }
    pipeline.run()
    #expect(pipeline.http.bodies == ["1\n2\n", "1\n2\n", "3\n"])
    #expect(
      pipeline.probe("lost").events == [
        #"[1,"POST answered 503; gave up after 2 attempts"]"#, #"[2,"POST answered 503; gave up after 2 attempts"]"#,
      ])
    #expect(pipeline.outcome == .completed)
    #expect(pipeline.executor.pendingTimers == 0)
  }

  /// If nothing reads the errors, the pipeline ends, as before.
  @Test func usedUpAttemptsThatNobodyReads() throws {
    let pipeline = try sending(
      "retry: 2", sinks: "lost: { from: shop.errors, chain: [ { take: 1 } ], probe: {} }")
    pipeline.http.script = { _, _ in ScriptedHTTP.status(503) }
    pipeline.run()
    #expect(pipeline.probe("lost").events.count == 1)
    #expect(pipeline.failure?.message == "POST answered 503; gave up after 2 attempts")
    #expect(pipeline.http.bodies == ["1\n", "1\n", "2\n", "2\n"])
    #expect(pipeline.counters.rejected == 1)
    #expect(pipeline.counters.undelivered == 2, "the one that nobody reads, and the last one, which never went out")
  }

  @Test func whatIsLeftWhenTheTimeIsOver() throws {
    let pipeline = try sending("maxConcurrent: 2")
    pipeline.drain()
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run()
    let why = "the server had not acknowledged the event when the pipeline ended"
    #expect(pipeline.probe("lost").events == ["[1,\"\(why)\"]", "[2,\"\(why)\"]", "[3,\"\(why)\"]"])
    #expect(pipeline.counters.rejected == 3)
    #expect(pipeline.log.isEmpty)
    #expect(pipeline.http.open.isEmpty)
  }

  /// Each given-up event has its reason.
  @Test func whatIsLeftWhenThePipelineFails() throws {
    let pipeline = try sending("batch: 2")
    pipeline.http.script = { _, _ in .failure(HTTPFailure(.unavailable, "no library")) }
    pipeline.run()
    #expect(pipeline.failure?.message == "no library")
    let left = "the server had not acknowledged the event when the pipeline ended: no library"
    #expect(pipeline.probe("lost").events == [#"[1,"no library"]"#, #"[2,"no library"]"#, "[3,\"\(left)\"]"])
    #expect(pipeline.counters.rejected == 3)
  }

  @Test func whatIsLeftWhileItIsTriedAgain() throws {
    let pipeline = try sending("")
    pipeline.http.script = { _, _ in ScriptedHTTP.status(503) }
    pipeline.run(until: .seconds(5))
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.settle()
    let left = "the server had not acknowledged the event when the pipeline ended"
    #expect(
      pipeline.probe("lost").events == [
        "[1,\"\(left): POST answered 503\"]", "[2,\"\(left)\"]", "[3,\"\(left)\"]",
      ])
  }

  /// A setting that the server rejects concerns single events only if the errors are read.
  @Test(arguments: [301, 401, 403, 404, 415])
  func aWrongSettingWhoseErrorsAreRead(_ status: Int) throws {
    let pipeline = try sending("batch: 2, maxConcurrent: 2", events: "[1, 2, 3, 4, 5, 6, 7]")
    pipeline.http.script = { number, _ in ScriptedHTTP.status(number < 2 ? status : 200) }
    pipeline.run()
    #expect(pipeline.outcome == .completed)
    let reason =
      "POST answered \(status) at http://h.example, which will not change for other events: check the URL and 'auth'"
    #expect(pipeline.probe("lost").events == (1...4).map { "[\($0),\"\(reason)\"]" })
    #expect(pipeline.http.bodies == ["1\n2\n", "3\n4\n", "5\n6\n", "7\n"])
    #expect(
      pipeline.log == ["warning shop/http: \(reason); events go to the errors output until the server accepts some"])
    #expect(pipeline.counters.sent == 3 && pipeline.counters.rejected == 4)
  }

  @Test(arguments: [HTTPFailure.Kind.badRequest, .forbidden, .redirect])
  func anAddressThatCannotBeUsedAndWhoseErrorsAreRead(_ kind: HTTPFailure.Kind) throws {
    let pipeline = try sending("", events: "[1, 2]")
    pipeline.http.script = { number, _ in
      number == 0 ? .failure(HTTPFailure(kind, "not there")) : ScriptedHTTP.status(200)
    }
    pipeline.run()
    #expect(pipeline.outcome == .completed)
    #expect(pipeline.probe("lost").events == [#"[1,"not there"]"#])
  }

  @Test func unreadLeftoversAreCounted() throws {
    let pipeline = try VirtualPipeline(
      """
      sources: { events: { values: [1, 2, 3] } }
      sinks: { shop: { from: events, http: 'http://h.example/in' } }
      """)
    pipeline.settle()
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run()
    #expect(pipeline.counters.rejected == 0)
    #expect(pipeline.counters.undelivered == 3)
    #expect(
      pipeline.log == ["warning shop/http: the server had not acknowledged 3 events when the pipeline ended"])
  }

  private let spare = """
    lost: { from: shop.errors, chain: [ { map: event.event } ], http: 'http://spare.example/' }
    hopeless: { from: lost.errors, probe: {} }
    """

  /// Events that one server rejects go to another; those that the second rejects go on.
  @Test func errorsOfErrors() throws {
    let pipeline = try sending("", sinks: spare)
    pipeline.http.script = { _, exchange in
      ScriptedHTTP.status(exchange.request.url.contains("spare") && exchange.body.contains("1") ? 200 : 422)
    }
    pipeline.run()
    #expect(pipeline.http.exchanges.count == 6)
    #expect(pipeline.probe("hopeless").events.count == 2)
    #expect(pipeline.counters.rejected == 5)
    #expect(pipeline.deadLetters.isEmpty)
    #expect(pipeline.outcome == .completed)
  }

  /// Both sinks give up their remaining events, the second also those that it has just received from the first.
  @Test func whatIsLeftGoesThroughToTheLast() throws {
    let pipeline = try sending("", sinks: spare)
    pipeline.settle()
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run()
    #expect(pipeline.probe("hopeless").events.count == 3)
    #expect(pipeline.counters.rejected == 6)
    #expect(pipeline.log.isEmpty)
  }

  // MARK: file

  @Test func whatAFileCannotHold() throws {
    let scratch = Scratch()
    let pipeline = try RealPipeline(
      """
      sources: { events: { values: [ { a: 1 }, no row, { a: 2 }, { b: 3 } ] } }
      sinks:
        rows: { from: events, file: { path: '\(scratch("rows.csv"))', encode: csv } }
        lost: { from: rows.errors, file: '\(scratch("lost.ndjson"))' }
      """)
    #expect(pipeline.runToEnd() == .completed)
    #expect(scratch.read("rows.csv") == "a\n1\n2\n")
    let lines = scratch.read("lost.ndjson").split(separator: "\n")
    #expect(lines.count == 2)
    #expect(lines.first?.contains("the event cannot be written") == true)
    #expect(lines.map { $0.suffix(10) } == [#"":"no row"}"#.suffix(10), #"t":{"b":3}}"#.suffix(10)])
    #expect(pipeline.counters.sent == 2 && pipeline.counters.rejected == 2)
    #expect(pipeline.deadLetters.isEmpty)
  }

  // MARK: Who waits for the events

  /// `in` is tracked; `lost` holds the errors of `shop` that it accepts.
  private func tracked(
    _ parameters: String
  ) throws -> (VirtualPipeline, TrackedSource.Feed, HoldingSink.Held) {
    let pipeline = try VirtualPipeline(
      """
      sources: { in: { never: {} } }
      sinks:
        shop: { from: in, http: { url: 'http://h.example/in', \(parameters) } }
        lost: { from: shop.errors, chain: [ { map: event.event } ], discard: {} }
      """, random: .max)
    let source = TrackedSource()
    let lost = HoldingSink()
    pipeline.execution.replacements.sources = { $0 == "in" ? source : nil }
    pipeline.execution.replacements.sinks = { $0 == "lost" ? lost : nil }
    pipeline.settle()
    return (pipeline, source.feed, lost.held)
  }

  @Test func isSettledWhenTheErrorIsWritten() throws {
    let (pipeline, feed, lost) = try tracked("")
    feed.send(1, [1])
    feed.send(2, [2])
    pipeline.settle()
    answer(pipeline, 422)
    #expect(lost.events == [1])
    #expect(feed.outcomes.isEmpty)
    answer(pipeline, 200)
    #expect(feed.outcomes == [2: .acknowledged])
    lost.release()
    #expect(feed.outcomes == [1: .acknowledged, 2: .acknowledged])
  }

  @Test func isLostIfTheErrorIs() throws {
    let (pipeline, feed, lost) = try tracked("")
    feed.send(1, [1])
    pipeline.settle()
    answer(pipeline, 422)
    lost.receipts[0].acknowledgeAll(.failed("no room"))
    #expect(feed.outcomes == [1: .failed("no room")])
  }

  /// Several batches that arrived at different times are given up in one turn.
  @Test func allOfABatchWaitForTheErrors() throws {
    let (pipeline, feed, lost) = try tracked("retry: 1, batch: { count: 4, every: 1s }")
    for number in 1...4 { feed.send(number, [Int64(number)]) }
    feed.send(5, [])
    pipeline.settle()
    answer(pipeline, 503)
    #expect(lost.events == [1, 2, 3, 4])
    #expect(feed.outcomes == [5: .acknowledged])
    #expect(lost.receipts.count == 1)
    lost.release()
    #expect(feed.outcomes.count == 5 && feed.outcomes.values.allSatisfy { $0 == .acknowledged })
  }

  @Test func whatCannotBeEncodedWaitsWithItsTurn() throws {
    let (pipeline, feed, lost) = try tracked("encode: csv")
    feed.send(1, [1])
    pipeline.settle()
    #expect(pipeline.http.exchanges.isEmpty)
    #expect(lost.events == [1])
    #expect(feed.outcomes.isEmpty)
    lost.release()
    #expect(feed.outcomes == [1: .acknowledged])
  }

  /// A waiting sender is told of the failure and sends the event again: that loss is not reported elsewhere.
  @Test func waitersAreNotifiedOfTheEnd() throws {
    let (pipeline, feed, lost) = try tracked("")
    feed.send(1, [1])
    pipeline.settle()
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.settle()
    #expect(lost.events.isEmpty)
    #expect(feed.outcomes == [1: .failed("the server had not acknowledged it when the pipeline ended")])
    #expect(pipeline.counters.rejected == 0)
    #expect(pipeline.log.count == 1)
  }

  // MARK: Anything goes

  /// A server that gives any answers in any order, and a sink for errors that finishes at any time: each event is
  /// accepted or reported once, none is acknowledged earlier, and the pipeline ends when both have finished.
  @Test(arguments: 0..<200)
  func eachEventIsAcceptedOrReported(_ seed: UInt64) throws {
    var random = SplitMix(seed)
    let most = 1 + random.below(5)
    let (pipeline, feed, lost) = try tracked(
      """
      maxConcurrent: \(most), batch: { count: \(1 + random.below(5)), every: \(random.pick(["0s", "5ms"])) },
          retry: { attempts: \(1 + random.below(3)), maxDelay: 1s }
      """)
    var sent: [Int: [Int64]] = [:]
    var next: Int64 = 1
    var accepted: [Int64] = []
    var written: [Int64] = []

    func look() {
      let safe = Set(accepted + written)
      for (number, outcome) in feed.outcomes {
        #expect(outcome == .acknowledged, "seed \(seed)")
        #expect(sent[number]?.allSatisfy(safe.contains) == true, "seed \(seed): \(number) is acknowledged too early")
      }
      #expect(pipeline.deadLetters.isEmpty)
    }
    func write() {
      written = lost.events
      lost.release()
      lost.receipts = []
    }
    func answer() {
      let open = pipeline.http.open
      guard !open.isEmpty else { return }
      let exchange = random.pick(open)
      let events = exchange.body.split(separator: "\n").compactMap { Int64($0) }
      switch random.below(8) {
      case 0: exchange.answer(503)
      case 1: exchange.answer(.failure(HTTPFailure(.timeout, "too late")))
      case 2 where events.count > 1: exchange.answer(413)
      default:
        if events.contains(where: { $0 % 5 == 0 }) {
          exchange.answer(422)
        } else {
          accepted += events
          exchange.answer(200)
        }
      }
    }

    for _ in 0..<60 {
      switch random.below(5) {
      case 0:
        sent[sent.count] = (0..<Int64(random.below(5))).map { next + $0 }
        next += Int64(sent[sent.count - 1]?.count ?? 0)
        feed.send(sent.count - 1, sent[sent.count - 1] ?? [])
      case 1:
        pipeline.run(
          until: TimeSpan(nanoseconds: pipeline.time.now.nanoseconds + Int64(random.below(1000)) * 1_000_000))
      case 2: write()
      default: answer()
      }
      pipeline.settle()
      look()
    }
    pipeline.drain()
    for _ in 0..<10_000 where pipeline.outcome == nil {
      if pipeline.http.open.isEmpty {
        pipeline.run()
        write()
      } else {
        answer()
      }
      pipeline.settle()
      look()
    }
    #expect(pipeline.outcome == .completed, "seed \(seed)")
    write()
    look()
    #expect((accepted + written).sorted() == (1..<next).map { $0 }, "seed \(seed)")
    #expect(feed.outcomes.count == sent.count, "seed \(seed)")
    #expect(Int(pipeline.counters.rejected) == written.count)
    #expect(pipeline.executor.pendingTimers == 0 && !pipeline.executor.isInputPaused)
  }
}
