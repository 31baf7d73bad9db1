import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Several concurrent requests of one `http` sink.
@Suite struct HTTPSinkConcurrencyTests {
  private func pipeline(
    _ parameters: String, events: String = "[1, 2, 3, 4, 5, 6]", pace: String? = nil
  ) throws -> VirtualPipeline {
    try .sending(parameters, events: events, pace: pace)
  }

  private let accept: (Int, ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer? = { _, _ in ScriptedHTTP.status(200) }

  private func answer(_ pipeline: VirtualPipeline, _ number: Int, _ status: Int, retryAfter: Int? = nil) {
    let headers = retryAfter.map { [HTTPHeader("Retry-After", "\($0)")] } ?? []
    do { try pipeline.http.exchanges.item(number).answer(status, "", headers) } catch { Issue.record(error) }
    pipeline.settle()
  }

  private func bodies(_ pipeline: VirtualPipeline, from first: Int = 0) -> [String] {
    pipeline.http.bodies.dropFirst(first).map { $0.split(separator: "\n").joined(separator: " ") }
  }

  // MARK: How many

  @Test func asManyAsAllowedAreUnderWay() throws {
    let sending = try pipeline("maxConcurrent: 3")
    sending.settle()
    #expect(bodies(sending) == ["1", "2", "3"])
    answer(sending, 1, 200)
    #expect(bodies(sending) == ["1", "2", "3", "4"])
    #expect(sending.counters.sent == 1)
    answer(sending, 3, 204)
    answer(sending, 2, 200)
    #expect(bodies(sending, from: 4) == ["5", "6"])
    #expect(sending.http.open.count == 3)
    answer(sending, 4, 200)
    answer(sending, 5, 200)
    #expect(sending.outcome == nil, "the first one is still under way")
    answer(sending, 0, 200)
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 6)
    #expect(sending.executor.pendingTimers == 0)
  }

  @Test func whatDoesNotFillABatchWaitsThoughThereIsRoom() throws {
    let sending = try pipeline(
      "batch: { count: 2, every: 1s }, maxConcurrent: 2", events: "[1, 2, 3, 4, 5]", pace: "400ms")
    sending.run(until: .milliseconds(1700))
    #expect(bodies(sending) == ["1 2", "3 4"])
    sending.run(until: .milliseconds(2000))
    answer(sending, 1, 200)
    sending.run(until: .milliseconds(2100))
    #expect(bodies(sending, from: 2) == ["5"], "the end of the input sends what waits")
    answer(sending, 0, 200)
    answer(sending, 2, 200)
    #expect(sending.outcome == .completed)
  }

  @Test func settlesEachRequestWhenItsOwnAnswerComes() throws {
    let sending = try VirtualPipeline(
      """
      sources: { in: { never: {} } }
      sinks: { shop: { from: in, http: { url: 'http://h.example/in', maxConcurrent: 4 } } }
      """)
    let source = TrackedSource()
    sending.execution.replacements.sources = { $0 == "in" ? source : nil }
    sending.settle()
    for number in 1...3 { source.feed.send(number, [Int64(number)]) }
    source.feed.send(4, [5, 6])
    sending.settle()
    #expect(sending.http.open.count == 4)
    answer(sending, 2, 200)
    #expect(source.feed.outcomes == [3: .acknowledged])
    answer(sending, 0, 503)
    #expect(source.feed.outcomes == [3: .acknowledged])
    answer(sending, 1, 200)
    answer(sending, 3, 200)
    #expect(source.feed.outcomes == [2: .acknowledged, 3: .acknowledged], "half of the fourth is not enough")
    sending.http.script = accept
    for exchange in sending.http.open { exchange.answer(200) }
    sending.run()
    #expect(source.feed.outcomes == [1: .acknowledged, 2: .acknowledged, 3: .acknowledged, 4: .acknowledged])
  }

  @Test func whatIsUnderWayIsNotCountedAsWaiting() throws {
    let sending = try pipeline("queue: 2, maxConcurrent: 3", pace: "1s")
    sending.run(until: .seconds(4))
    #expect(!sending.executor.isInputPaused)
    sending.run(until: .seconds(5))
    #expect(sending.executor.isInputPaused, "three are under way, three wait")
    answer(sending, 2, 200)
    #expect(sending.executor.isInputPaused)
    answer(sending, 0, 200)
    #expect(!sending.executor.isInputPaused)
    sending.http.script = accept
    answer(sending, 1, 200)
    for exchange in sending.http.open { exchange.answer(200) }
    sending.run()
    #expect(sending.counters.sent == 6)
  }

  // MARK: A server in trouble

  @Test(arguments: [429, 503, 500, 408])
  func aFailureHoldsBackWhatHasNotBegun(_ status: Int) throws {
    let sending = try pipeline("maxConcurrent: 3")
    sending.settle()
    answer(sending, 1, status, retryAfter: 10)
    answer(sending, 0, 200)
    answer(sending, 2, 200)
    sending.run(until: .milliseconds(9_999))
    #expect(bodies(sending) == ["1", "2", "3"], "what was under way has succeeded, and nothing else is begun")
    sending.run(until: .seconds(10))
    #expect(bodies(sending, from: 3) == ["2"], "one request tries")
    sending.run(until: .seconds(15))
    #expect(bodies(sending, from: 3) == ["2"])
    answer(sending, 3, 200)
    #expect(bodies(sending, from: 4) == ["4", "5"], "two at once, then one more with each answer")
    answer(sending, 4, 200)
    #expect(bodies(sending, from: 6) == ["6"])
    #expect(Set([1, 3].compactMap { sending.http.exchanges[$0].header("idempotency-key") }).count == 1)
    #expect(sending.log.count == 2, "\(sending.log)")
    sending.http.script = accept
    for exchange in sending.http.open { exchange.answer(200) }
    sending.run()
    #expect(sending.outcome == .completed)
    #expect(sending.executor.pendingTimers == 0)
  }

  /// A server that has recovered gets its load gradually.
  @Test func requestsGrowInNumberAfterTrouble() throws {
    let sending = try pipeline("maxConcurrent: 8", events: "[\((1...60).map(String.init).joined(separator: ", "))]")
    sending.settle()
    #expect(sending.http.open.count == 8)
    for exchange in sending.http.open { exchange.answer(503) }
    var most: [Int] = []
    for _ in 0..<6 {
      sending.run(until: TimeSpan(nanoseconds: sending.time.now.nanoseconds + 10_000_000_000))
      most.append(sending.http.open.count)
      for exchange in sending.http.open { exchange.answer(200) }
    }
    #expect(most == [1, 2, 4, 8, 8, 8])
    sending.http.script = accept
    sending.settle()
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 60)
  }

  @Test func aBurstOfFailuresIsTriedAgainOneByOne() throws {
    let sending = try pipeline("maxConcurrent: 3, retry: { delay: 100ms, maxDelay: 1s }")
    sending.http.script = { _, _ in .failure(HTTPFailure(.connect, "nobody listens")) }
    sending.run(until: .milliseconds(5500))
    // Three at once, then the oldest alone, with growing pauses.
    let times = sending.http.times.map { ($0.nanoseconds + 500_000) / 1_000_000 }
    #expect(times == [0, 0, 0, 100, 300, 700, 1500, 2500, 3500, 4500, 5500])
    #expect(bodies(sending, from: 3).allSatisfy { $0 == "1" })
    #expect(sending.log.count == 1, "\(sending.log)")
    sending.http.script = accept
    sending.run()
    #expect(bodies(sending, from: 11) == ["1", "2", "3", "4", "5", "6"])
    #expect(sending.outcome == .completed)
  }

  @Test func theLongestPauseThatWasAskedForHolds() throws {
    let sending = try pipeline("maxConcurrent: 3")
    sending.settle()
    answer(sending, 2, 503, retryAfter: 60)
    sending.run(until: .seconds(1))
    answer(sending, 0, 500)
    sending.run(until: .seconds(2))
    answer(sending, 1, 429, retryAfter: 100)
    sending.run(until: .milliseconds(101_999))
    #expect(bodies(sending).count == 3)
    sending.http.script = accept
    sending.run()
    #expect(sending.http.times.dropFirst(3).first == Instant(nanoseconds: 102_000_000_000))
    #expect(bodies(sending, from: 3) == ["1", "2", "3", "4", "5", "6"], "the oldest first")
  }

  @Test func onlyTheProbeShowsThatTheTroubleIsOver() throws {
    let sending = try pipeline("maxConcurrent: 4")
    sending.settle()
    answer(sending, 0, 503, retryAfter: 1)
    sending.run(until: .seconds(1))
    #expect(bodies(sending, from: 4) == ["1"])
    answer(sending, 1, 200)
    #expect(bodies(sending, from: 4) == ["1"], "that one was begun before")
    answer(sending, 2, 503, retryAfter: 1)
    answer(sending, 4, 200)
    #expect(bodies(sending, from: 5) == [], "there is a pause again")
    sending.run(until: .seconds(2))
    #expect(bodies(sending, from: 5) == ["3"], "the probe has shown that the server works, so two are under way")
    answer(sending, 5, 502)
    sending.run(until: .seconds(3))
    #expect(bodies(sending, from: 6) == ["3"])
    answer(sending, 6, 422)
    #expect(sending.counters.rejected == 1, "a refusal is an answer, too")
    #expect(bodies(sending, from: 7) == ["5"])
    sending.http.script = accept
    for exchange in sending.http.open { exchange.answer(200) }
    sending.run()
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 5)
  }

  // MARK: Refusals and the end

  @Test func aBadEventIsFoundWhileOthersContinue() throws {
    let sending = try pipeline("batch: 4, maxConcurrent: 2", events: "[1, 2, bad, 4, 5, 6, 7, 8, 9]")
    sending.settle()
    #expect(sending.http.open.count == 2)
    answer(sending, 0, 400)
    #expect(bodies(sending, from: 2) == ["1 2"])
    answer(sending, 2, 200)
    #expect(bodies(sending, from: 3) == ["\"bad\" 4"])
    answer(sending, 3, 400)
    answer(sending, 4, 400)
    #expect(bodies(sending, from: 4) == ["\"bad\"", "4"])
    #expect(sending.counters.rejected == 1)
    answer(sending, 5, 200)
    #expect(bodies(sending, from: 6) == ["9"])
    answer(sending, 6, 200)
    answer(sending, 1, 200)
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 8)
    let keys = sending.http.exchanges.compactMap { $0.header("idempotency-key") }
    #expect(keys.count == 7)
  }

  @Test func whatATooLargeBatchHasTaughtStays() throws {
    let sending = try pipeline("batch: 4, maxConcurrent: 2", events: "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]")
    sending.settle()
    answer(sending, 0, 413)
    answer(sending, 2, 413)
    #expect(bodies(sending, from: 3) == ["1"])
    // Its result is outdated.
    answer(sending, 1, 413)
    #expect(bodies(sending, from: 4) == ["2"])
    sending.http.script = { _, exchange in ScriptedHTTP.status(exchange.body.utf8.count > 4 ? 413 : 200) }
    answer(sending, 3, 200)
    answer(sending, 4, 200)
    sending.run()
    #expect(sending.counters.sent == 12)
    #expect(bodies(sending).suffix(4) == ["9", "10", "11", "12"])
  }

  @Test(arguments: [401, 404, 503])
  func aFinalFailureEndsAllOnce(_ status: Int) throws {
    let sending = try pipeline("maxConcurrent: 4, retry: 1")
    sending.settle()
    try sending.http.exchanges.item(2).answer(status)
    try sending.http.exchanges.item(3).answer(status)
    sending.settle()
    #expect(sending.failure?.message.contains("answered \(status)") == true)
    #expect(sending.http.exchanges.count == 4)
    #expect(sending.http.open.isEmpty)
    #expect(try sending.http.exchanges.item(0).isCancelled && sending.http.exchanges.item(1).isCancelled)
    #expect(sending.executor.pendingTimers == 0)
    #expect(sending.log.filter { $0.contains("had not acknowledged 6 events") }.count == 1, "\(sending.log)")
  }

  @Test func attemptsAreCountedForEachRequest() throws {
    let sending = try pipeline("maxConcurrent: 3, retry: 3")
    sending.http.script = { _, _ in ScriptedHTTP.status(503) }
    sending.run()
    #expect(sending.failure?.message == "POST answered 503; gave up after 3 attempts")
    #expect(bodies(sending) == ["1", "2", "3", "1", "1"])
    #expect(sending.executor.pendingTimers == 0)
  }

  @Test func aCancelledPipelineKeepsNothing() throws {
    for step in 0..<4 {
      let sending = try pipeline("maxConcurrent: 2, queue: 1, batch: { count: 1, every: 1h }")
      sending.settle()
      if step > 0 { answer(sending, 0, 503, retryAfter: 100) }
      if step > 1 { sending.run(until: .seconds(100)) }
      if step > 2 { answer(sending, 1, 200) }
      sending.inTurn { $0.execution.cancel() }
      sending.settle()
      #expect(sending.http.open.isEmpty)
      #expect(sending.executor.pendingTimers == 0)
      #expect(!sending.executor.isInputPaused)
      #expect(sending.log.last?.contains("had not acknowledged \(step > 2 ? 5 : 6) events") == true, "\(sending.log)")
    }
  }

  @Test func aDrainedPipelineHasSentAll() throws {
    let sending = try pipeline("maxConcurrent: 2, batch: { count: 4, every: 1h }", pace: "1s")
    sending.run(until: .milliseconds(4500))
    #expect(bodies(sending) == ["1 2 3 4"])
    sending.drain()
    #expect(bodies(sending, from: 1) == ["5"])
    answer(sending, 1, 200)
    #expect(sending.outcome == nil)
    answer(sending, 0, 503, retryAfter: 5)
    sending.http.script = accept
    sending.run()
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 5)
    #expect(!sending.log.contains { $0.contains("acknowledged") })
  }

  @Test(arguments: ["0", "1001", "many"])
  func refusesAtCheckTime(_ value: String) {
    let found = PipelineText.complaints(
      """
      sources: { events: { values: [1] } }
      sinks: { shop: { from: events, http: { url: 'http://h.example/', maxConcurrent: \(value) } } }
      """)
    #expect(found.count == 1 && found[0].contains("maxConcurrent"), "\(found)")
  }

  // MARK: Anything goes

  /// A server that gives any answer, at any time, in any order.
  @Test(arguments: 0..<300)
  func eachEventIsDeliveredOnceOrRejectedOrThePipelineEnds(_ seed: Int) throws {
    var chance = Chance(state: UInt64(seed) &* 0x9E37_79B9_7F4A_7C15 &+ 1)
    let most = 1 + chance(8)
    let batch = 1 + chance(5)
    let every = ["0s", "5ms", "1s"][chance(3)]
    let format = ["none", "gzip", "zstd"][chance(3)]
    let worker = HandWorker()
    let attempts = chance(4) == 0 ? "retry: { attempts: 4, maxDelay: 1s }" : "retry: { maxDelay: 1s }"
    let sending = try VirtualPipeline(
      """
      sources: { in: { never: {} } }
      sinks:
        shop:
          from: in
          chain: [ { map: "'\(String(repeating: "x", count: 600)) ' + string(event)" } ]
          http:
            url: 'http://h.example/in'
            encode: text
            compress: \(format)
            maxConcurrent: \(most)
            queue: \(1 + chance(20))
            batch: { count: \(batch), every: \(every) }
            \(attempts)
      """, random: UInt64(seed) << 32, worker: worker)
    let source = TrackedSource()
    sending.execution.replacements.sources = { $0 == "in" ? source : nil }
    sending.settle()

    var next: Int64 = 1
    var feeds = 0
    var accepted: [Int64] = []
    var seen = 0
    /// No request may be made before this time; when failures began, and which requests are younger.
    var quietUntil: Int64 = 0
    var trouble: Int?
    let endsBadly = chance(6) == 0

    func look() {
      #expect(sending.http.open.count <= most, "seed \(seed)")
      while seen < sending.http.exchanges.count {
        #expect(sending.http.times[seen].nanoseconds >= quietUntil, "seed \(seed): \(seen)")
        seen += 1
      }
      if let trouble {
        let young = sending.http.exchanges[trouble...].count { $0.isOpen }
        #expect(young <= 1, "seed \(seed): \(young) requests to a server in trouble")
      }
    }
    func answer(_ exchange: ScriptedHTTP.Exchange, wellOnly: Bool) {
      let number = sending.http.exchanges.firstIndex { $0 === exchange } ?? 0
      let events = Inflated.text(exchange).split(separator: "\n").compactMap {
        Int64($0.drop { $0 == "x" || $0 == " " })
      }
      func fail(_ answer: ScriptedHTTP.Answer, seconds: Int64 = 0) {
        trouble = trouble ?? sending.http.exchanges.count
        quietUntil = max(quietUntil, sending.time.now.nanoseconds + seconds * 1_000_000_000)
        exchange.answer(answer)
      }
      func works() {
        if let since = trouble, number >= since { trouble = nil }
      }
      switch wellOnly ? 9 : chance(12) {
      case 0: fail(.failure(HTTPFailure(.timeout, "too late")))
      case 1: fail(ScriptedHTTP.status(503))
      case 2:
        let seconds = 1 + chance(3)
        fail(ScriptedHTTP.status(429, "", [HTTPHeader("Retry-After", "\(seconds)")]), seconds: Int64(seconds))
      case 3 where endsBadly && chance(4) == 0: exchange.answer(401)
      case 4 where events.count > 2:
        works()
        exchange.answer(413)
      default:
        works()
        if events.contains(where: { $0 % 7 == 0 }) {
          exchange.answer(chance(2) == 0 ? 400 : 422)
        } else {
          accepted += events
          exchange.answer(200)
        }
      }
      sending.settle()
      look()
    }

    for _ in 0..<80 where sending.outcome == nil {
      switch chance(5) {
      case 4:
        worker.work()
        sending.settle()
      case 0:
        let count = chance(6)
        source.feed.send(feeds, (0..<Int64(count)).map { next + $0 })
        feeds += 1
        next += Int64(count)
        sending.settle()
      case 1: sending.run(until: TimeSpan(nanoseconds: sending.time.now.nanoseconds + Int64(chance(1000)) * 1_000_000))
      default:
        let open = sending.http.open
        if !open.isEmpty { answer(open[chance(open.count)], wellOnly: false) }
      }
      look()
    }
    // The server has recovered; held input arrives too.
    for _ in 0..<10_000 where sending.outcome == nil {
      if worker.work() {
        sending.settle()
        look()
      } else if let exchange = sending.http.open.first {
        answer(exchange, wellOnly: true)
      } else if sending.executor.nextDeadline != nil {
        sending.run(until: TimeSpan(nanoseconds: sending.time.now.nanoseconds + 500_000_000))
        look()
      } else {
        sending.drain()
      }
    }
    #expect(sending.executor.pendingTimers == 0)
    #expect(sending.http.open.isEmpty)
    #expect(Set(accepted).count == accepted.count, "seed \(seed): some were delivered twice")
    if most == 1 { #expect(accepted == accepted.sorted(), "seed \(seed)") }
    let letters = sending.deadLetters.count
    #expect(letters == Int(sending.counters.rejected))
    if sending.outcome == .completed {
      #expect(accepted.sorted() == (1..<next).filter { $0 % 7 != 0 }, "seed \(seed)")
      #expect(letters == (1..<next).count { $0 % 7 == 0 })
      #expect(source.feed.outcomes.count == feeds)
      #expect(source.feed.outcomes.values.allSatisfy { $0 == .acknowledged }, "seed \(seed)")
    } else {
      let failure = try #require(sending.failure, "seed \(seed): it goes on")
      #expect(failure.message.contains("401") || failure.message.contains("gave up after 4 attempts"))
    }
  }

  private struct Chance {
    var state: UInt64
    mutating func callAsFunction(_ bound: Int) -> Int {
      state ^= state << 13
      state ^= state >> 7
      state ^= state << 17
      return Int(state % UInt64(bound))
    }
  }
}
