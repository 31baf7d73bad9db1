import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@Suite struct HTTPSinkTests {
  /// A pipeline that sends `events`, one every `pace` (all at once if nil).
  private func pipeline(
    _ parameters: String, events: String = "[1, 2, 3]", pace: String? = nil, random: UInt64 = .max
  ) throws -> VirtualPipeline {
    try .sending(parameters, to: "http://h.example/in?key=secret", events: events, pace: pace, random: random)
  }

  private func complaints(_ parameters: String) -> [String] {
    PipelineText.complaints(
      """
      sources:
        events: { values: [1] }
      sinks:
        shop:
          from: events
          http: \(parameters)
      """)
  }

  private func seconds(_ pipeline: VirtualPipeline) -> [Double] {
    pipeline.http.times.map { Double($0.nanoseconds) / 1e9 }
  }

  @Test func sendsOneAtATimeInOrder() throws {
    let sending = try pipeline("")
    sending.settle()
    #expect(sending.http.bodies == ["1\n"])
    try sending.http.exchanges.item(0).answer(200)
    sending.settle()
    try sending.http.exchanges.item(1).answer(204)
    sending.settle()
    #expect(sending.counters.sent == 2)
    #expect(sending.outcome == nil)
    try sending.http.exchanges.item(2).answer(201)
    sending.run()
    #expect(sending.http.bodies == ["1\n", "2\n", "3\n"])
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 3)
    let first = try sending.http.exchanges.item(0)
    #expect(first.request.method == "POST")
    #expect(first.request.url == "http://h.example/in?key=secret")
    #expect(first.header("content-type") == "application/json")
    let keys = sending.http.exchanges.compactMap { $0.header("idempotency-key") }
    #expect(keys.count == 3)
    #expect(keys.allSatisfy { $0.utf8.count == 32 })
  }

  @Test func handsOnItsSettings() throws {
    let sending = try pipeline(
      "method: PUT, timeout: 3s, headers: { X: y, content-type: text/x }, auth: { basic: { user: u, password: p } }")
    sending.settle()
    let request = try sending.http.exchanges.item(0).request
    #expect(request.method == "PUT")
    #expect(request.options.timeout == .seconds(3))
    #expect(request.options.auth == .basic(user: "u", password: Secret("p")))
    #expect(request.headers.prefix(2) == [HTTPHeader("X", "y"), HTTPHeader("content-type", "text/x")])
    #expect(request.headers.filter { $0.name.lowercased() == "content-type" }.count == 1)
  }

  @Test func reportsWhatWaits() throws {
    let sending = try pipeline("queue: 2", events: "[1, 2, 3, 4]", pace: "1s")
    func sink() throws -> PipelineStatistics.Step {
      try #require(sending.execution.statistics.steps.first { $0.step == sending.execution.plan.sinks[0].step })
    }
    sending.run(until: .seconds(4))
    // One is outstanding; the input waits because three are more than `queue`.
    let waiting = try sink()
    #expect(waiting.queue == PipelineStatistics.Queue(events: 4, bytes: 6, inFlight: 1, oldest: .seconds(3)))
    #expect(waiting.holding == 4 && waiting.isPausing && waiting.retries == 0)
    try sending.http.exchanges.item(0).answer(503)
    sending.run(until: .seconds(10))
    #expect(try sink().retries == 1)
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    if sending.http.exchanges.count > 1 { try sending.http.exchanges.item(1).answer(200) }
    sending.run()
    let over = try sink()
    #expect(over.queue?.events == 0 && over.holding == 0 && !over.isPausing)
    #expect(over.paused > .zero && over.sent == 4)
  }

  /// The latency from arrival to delivery, including the time in the queue.
  @Test func reportsHowLongItTakes() throws {
    let sending = try pipeline("queue: 10", events: "[1, 2, 3, 4]", pace: "1s")
    func latency() throws -> Latency? {
      try #require(sending.execution.statistics.steps.first { $0.step == sending.execution.plan.sinks[0].step }).latency
    }
    sending.run(until: .seconds(4))
    #expect(try latency() == nil)
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    try sending.http.exchanges.item(0).answer(200)
    sending.run(until: .seconds(4))
    let taken = try #require(try latency())
    // The first event arrives at the start: 4, 3, 2 and 1 seconds.
    #expect(taken.count == 4 && taken.sum == 10_000_000_000)
    #expect(taken.bound(of: 0.5) == 2_500_000_000 && taken.bound(of: 0.99) == 5_000_000_000)
    var twice = taken
    twice.add(taken)
    #expect(twice.count == 8 && twice.sum == 20_000_000_000 && twice.bound(of: 0.5) == 2_500_000_000)
    #expect(Latency().bound(of: 0.5) == nil)
  }

  /// The time of an inner request runs from sending to its answer.
  @Test func reportsHowLongAnswersTake() throws {
    let asking = try VirtualPipeline(
      """
      sources: { numbers: { values: [1] } }
      signals: { some: { from: numbers, chain: [ { flattenMap: { signal: { http: 'http://h.example/' } } } ] } }
      sinks: { out: { from: some, discard: {} } }
      """)
    asking.run(until: .seconds(2))
    try asking.http.exchanges.item(0).answer(200, "{}")
    asking.run()
    let plan = asking.execution.plan
    let latencies = asking.execution.statistics.steps.filter { plan.steps[$0.step.number].keyword == "http" }.map(
      \.latency)
    #expect(latencies.map { $0?.sum } == [2_000_000_000])
  }

  // MARK: Batches

  @Test func batchesByCount() throws {
    let sending = try pipeline("batch: 2", events: "[1, 2, 3, 4, 5]")
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    sending.run()
    #expect(sending.http.bodies == ["1\n2\n", "3\n4\n", "5\n"])
    #expect(seconds(sending) == [0, 0, 0])
  }

  @Test func batchesByBytes() throws {
    let sending = try pipeline(
      "batch: { count: 100, bytes: 10B }", events: "[aaa, bbb, c, ddddddddddddddd, e]")
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    sending.run()
    #expect(sending.http.bodies == ["\"aaa\"\n", "\"bbb\"\n\"c\"\n", "\"ddddddddddddddd\"\n", "\"e\"\n"])
  }

  @Test func batchesByTime() throws {
    let sending = try pipeline(
      "batch: { count: 100, every: 1s }", events: "[1, 2, 3, 4, 5]", pace: "400ms")
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    sending.run()
    // The first waits from 0 s, the fourth from 1.2 s; the end flushes.
    #expect(sending.http.bodies == ["1\n2\n3\n", "4\n5\n"])
    #expect(seconds(sending) == [1, 1.6])
  }

  @Test func withoutATimeWhatWaitsGoesTogether() throws {
    let sending = try pipeline("batch: { count: 100, every: 0s }", events: "[1, 2, 3, 4]", pace: "1s")
    sending.run(until: .milliseconds(2500))
    #expect(sending.http.bodies == ["1\n"])
    try sending.http.exchanges.item(0).answer(200)
    sending.settle()
    #expect(sending.http.bodies == ["1\n", "2\n3\n"])
  }

  @Test func everyRequestBeginsWithTheHeader() throws {
    let sending = try pipeline(
      "batch: 2, encode: csv", events: "[{ a: 1, b: x }, { b: y, a: 2 }, { a: 3, b: z }, { a: 4, c: w }]")
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    sending.run()
    #expect(sending.http.bodies == ["a,b\n1,x\n2,y\n", "a,b\n3,z\n"])
    #expect(sending.counters.rejected == 1)
  }

  @Test func onlyTheStatusOfAnAnswerMatters() throws {
    let sending = try pipeline("")
    sending.settle()
    #expect(try sending.http.exchanges.item(0).request.options.cutsResponse)
  }

  @Test func makesArrays() throws {
    let sending = try pipeline("batch: { count: 3, form: array }, encode: json", events: "[1, { a: b }, x, y]")
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    sending.run()
    #expect(sending.http.bodies == [#"[1,{"a":"b"},"x"]"#, #"["y"]"#])
    #expect(try sending.http.exchanges.item(0).header("content-type") == "application/json")
  }

  // MARK: Answers

  @Test(arguments: [400, 422])
  func aBadEventIsFoundByHalving(_ status: Int) throws {
    let sending = try VirtualPipeline(
      """
      sources:
        events: { values: [1, 2, bad, 4, 5] }
      sinks:
        shop:
          from: events
          http: { url: 'http://h.example/in', batch: 5 }
      """)
    sending.http.script = { _, exchange in
      ScriptedHTTP.status(exchange.body.contains("bad") ? status : 200, "no \"bad\"")
    }
    sending.run()
    let accepted = sending.http.exchanges.map(\.body).filter { !$0.contains("bad") }
    #expect(accepted.joined() == "1\n2\n4\n5\n")
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 4)
    #expect(sending.counters.rejected == 1)
    #expect(sending.deadLetters.count == 1)
    let letter = try #require(sending.deadLetters.first)
    #expect(letter.contains("the server refused the event with \(status): no \\\"bad\\\""), "\(letter)")
    #expect(letter.contains(#""event":"bad""#))
    #expect(letter.contains(#""source":"events""#))
    #expect(letter.contains(#""offset":2"#))
  }

  @Test func tooLargeHalvesForGood() throws {
    let sending = try pipeline("batch: 4", events: "[1, 2, 3, 4, 5, 6, 7, 8]")
    sending.http.script = { _, exchange in
      ScriptedHTTP.status(exchange.body.utf8.count > 4 ? 413 : 200)
    }
    sending.run()
    #expect(sending.http.bodies == ["1\n2\n3\n4\n", "1\n2\n", "3\n4\n", "5\n6\n", "7\n8\n"])
    #expect(sending.counters.sent == 8)
    #expect(sending.counters.rejected == 0)
  }

  @Test func oneThatIsTooLargeAloneIsRefused() throws {
    let sending = try pipeline("", events: "[1, 2]")
    sending.http.script = { number, _ in ScriptedHTTP.status(number == 0 ? 413 : 200) }
    sending.run()
    #expect(sending.counters.rejected == 1)
    #expect(sending.counters.sent == 1)
    #expect(sending.outcome == .completed)
  }

  /// `Retry-After`, and when the second attempt is made, in seconds; by default after 100 ms.
  @Test(arguments: [
    ("1", 1.0), ("120", 120), ("600", 600), ("601", 600), ("315360000", 600),
    ("9223372036854775807", 600), ("99999999999999999999", 600), ("-1", 0.1), ("+5", 0.1),
    ("00000000000000000000009", 9), ("", 0.1), ("soon", 0.1),
    ("1.5", 0.1), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.1), ("0", 0.1), ("Thu, 01 Jan 2026 00:02:00 GMT", 120),
  ])
  func waitsAsRequested(_ value: String, _ expected: Double) throws {
    for status in [429, 503] {
      let sending = try pipeline("", events: "[1]")
      sending.http.script = { number, _ in
        number == 0
          ? ScriptedHTTP.status(status, "", [HTTPHeader("Retry-After", value)])
          : ScriptedHTTP.status(200)
      }
      sending.run()
      #expect(sending.http.exchanges.count == 2)
      #expect(abs(seconds(sending)[1] - expected) < 0.001, "\(value): \(seconds(sending))")
      #expect(sending.outcome == .completed)
    }
  }

  @Test func anImmediateRetryAfterDoesNotMakeAStorm() throws {
    let sending = try pipeline("", events: "[1]")
    sending.http.script = { _, _ in ScriptedHTTP.status(503, "", [HTTPHeader("Retry-After", "0")]) }
    sending.run(until: .seconds(3600))
    #expect(sending.http.exchanges.count < 140)
  }

  @Test(arguments: [408, 425, 429, 500, 502, 503, 504, 507, 599])
  func repeatsWithGrowingPausesUpToABound(_ status: Int) throws {
    let sending = try pipeline("retry: { delay: 100ms, maxDelay: 1s }", events: "[1]")
    sending.http.script = { _, _ in ScriptedHTTP.status(status) }
    sending.run(until: .milliseconds(5500))
    let rounded = seconds(sending).map { ($0 * 1000).rounded() / 1000 }
    #expect(rounded == [0, 0.1, 0.3, 0.7, 1.5, 2.5, 3.5, 4.5, 5.5])
    let keys = Set(sending.http.exchanges.compactMap { $0.header("idempotency-key") })
    #expect(keys.count == 1)
    #expect(sending.outcome == nil)
    #expect(sending.log.count == 1)
    #expect(sending.log.first?.contains("answered \(status)") == true, "\(sending.log)")
  }

  @Test func anHourWithoutServerThenEverythingInOrder() throws {
    let sending = try pipeline("batch: 2", events: "[1, 2, 3]")
    sending.http.script = { [time = sending.time] _, _ in
      time.now.nanoseconds < 3_600_000_000_000 ? ScriptedHTTP.status(503) : ScriptedHTTP.status(200)
    }
    sending.run()
    #expect(sending.outcome == .completed)
    #expect(sending.http.bodies.suffix(2) == ["1\n2\n", "3\n"])
    #expect(sending.http.exchanges.count < 140)
    let pauses = zip(seconds(sending).dropFirst(), seconds(sending)).map { $0 - $1 }
    #expect(pauses.allSatisfy { $0 <= 30.001 })
  }

  @Test func jitterTakesHalfOfThePauseAtMost() throws {
    let sending = try pipeline("retry: { delay: 100ms, maxDelay: 1s }", events: "[1]", random: 0)
    sending.http.script = { _, _ in ScriptedHTTP.status(500) }
    sending.run(until: .milliseconds(800))
    #expect(seconds(sending).map { ($0 * 1000).rounded() / 1000 } == [0, 0.05, 0.15, 0.35, 0.75])
  }

  @Test(arguments: [301, 302, 401, 403, 404, 405, 410, 418, 501, 505])
  func aWrongSettingEndsThePipeline(_ status: Int) throws {
    let sending = try pipeline("", events: "[1, 2]")
    sending.http.script = { _, _ in ScriptedHTTP.status(status) }
    sending.run()
    #expect(sending.http.exchanges.count == 1)
    let failure = try #require(sending.failure)
    #expect(failure.kind == .sink)
    #expect(failure.message.contains("answered \(status)"))
    #expect(!failure.message.contains("secret"))
    #expect(failure.location?.line == 5)
    #expect(failure.details == [.init("status", Int64(status))])
    #expect(sending.executor.pendingTimers == 0)
  }

  @Test func brokenConnectionsAreRepeatedWithTheSameKey() throws {
    let sending = try pipeline("batch: 3", events: "[1, 2, 3]")
    let kinds: [HTTPFailure.Kind] = [.resolve, .connect, .tls, .timeout, .protocolError]
    sending.http.script = { number, _ in
      number < kinds.count ? .failure(HTTPFailure(kinds[number], "no luck")) : ScriptedHTTP.status(200)
    }
    sending.run()
    #expect(sending.http.exchanges.count == 6)
    #expect(Set(sending.http.exchanges.compactMap { $0.header("idempotency-key") }).count == 1)
    #expect(Set(sending.http.bodies) == ["1\n2\n3\n"])
    #expect(sending.counters.sent == 3)
    #expect(sending.outcome == .completed)
  }

  @Test(arguments: [HTTPFailure.Kind.badRequest, .forbidden, .redirect])
  func whatNoRepetitionCuresEndsThePipeline(_ kind: HTTPFailure.Kind) throws {
    let sending = try pipeline("", events: "[1]")
    sending.http.script = { _, _ in .failure(HTTPFailure(kind, "that cannot be")) }
    sending.run()
    #expect(sending.failure?.message == "that cannot be")
    #expect(sending.http.exchanges.count == 1)
  }

  /// A missing library is a permanent failure.
  @Test func withoutTheLibraryThePipelineEnds() throws {
    let sending = try pipeline("", events: "[1, 2]")
    sending.http.script = { _, _ in .failure(HTTPFailure(.unavailable, "libcurl.so.4 is missing")) }
    sending.run()
    #expect(sending.failure?.message == "libcurl.so.4 is missing")
    #expect(sending.failure?.location?.line == 5)
    #expect(sending.http.exchanges.count == 1)
    #expect(sending.executor.pendingTimers == 0)
  }

  /// Every time limit of a request is a parameter of the component that sends it, and therefore on its page. The idle time of
  /// connections is the same for all components, which share them.
  @Test(arguments: [ComponentKind.source, .sink]) func thereAreNoHiddenLimits(_ kind: ComponentKind) throws {
    let entry = try #require(PipelineText.catalogue.component(kind, "http"))
    let limits = Mirror(reflecting: HTTPOptions()).children.filter { $0.label != "connectionLife" }.compactMap {
      child in
      (child.value as? TimeSpan).map { (name: child.label ?? "", span: $0) }
    }
    #expect(limits.map(\.name).sorted() == ["connectTimeout", "timeout"])
    for limit in limits {
      let parameter = try #require(entry.parameters.first { $0.name == limit.name })
      #expect(parameter.defaultText == limit.span.description, "\(limit.name)")
    }
  }

  @Test func handsOnItsLimits() throws {
    let sending = try pipeline("timeout: 2m, connectTimeout: 20s", events: "[1]")
    sending.settle()
    let options = try sending.http.exchanges.item(0).request.options
    #expect(options.timeout == .seconds(120) && options.connectTimeout == .seconds(20))
  }

  /// One log line when requests begin to fail, and one when that is over, whatever happens in between.
  @Test func troubleIsInTheLogOnce() throws {
    let sending = try pipeline("retry: { delay: 100ms, maxDelay: 1s }", events: "[1, 2, 3]")
    sending.http.script = { number, _ in
      switch number {
      case 0...4: .failure(HTTPFailure(.connect, "nobody listens"))
      case 5...7: ScriptedHTTP.status(503)
      case 10: ScriptedHTTP.status(500)
      default: ScriptedHTTP.status(200)
      }
    }
    sending.run()
    #expect(sending.outcome == .completed)
    #expect(
      sending.log == [
        "warning shop/http: nobody listens; trying again",
        "info shop/http: the server responds again, after 8 failed requests in 5s500ms",
        "warning shop/http: POST answered 500; trying again",
        "info shop/http: the server responds again, after 1 failed request in 100ms",
      ], "\(sending.log)")
  }

  /// The current problem of a sink is reported with its newest reason and its start.
  @Test func troubleIsSeenWhileItLasts() throws {
    let sending = try pipeline("retry: { delay: 100ms, maxDelay: 1s }", events: "[1, 2, 3]")
    sending.http.script = { number, _ in
      number == 0 ? .failure(HTTPFailure(.connect, "nobody listens")) : ScriptedHTTP.status(number < 3 ? 503 : 200)
    }
    let troubles = sending.execution.troubles
    sending.settle()
    let first = try #require(troubles.all["shop"])
    #expect(first.reason == "nobody listens")
    sending.run(until: .milliseconds(150))
    let second = try #require(troubles.all["shop"])
    #expect(second.reason == "POST answered 503" && second.since == first.since)
    sending.run()
    #expect(sending.outcome == .completed && troubles.all.isEmpty)
  }

  @Test func attemptsHaveALimit() throws {
    let sending = try pipeline("retry: 3", events: "[1, 2]")
    sending.http.script = { _, _ in ScriptedHTTP.status(503) }
    sending.run()
    #expect(sending.http.exchanges.count == 3)
    #expect(sending.failure?.message == "POST answered 503; gave up after 3 attempts")
    #expect(sending.executor.pendingTimers == 0)
    #expect(!sending.executor.isInputPaused)
  }

  // MARK: Flow

  @Test func aFullQueueHoldsBackTheInput() throws {
    let sending = try pipeline("queue: 4", events: "[1, 2, 3, 4, 5, 6]", pace: "1s")
    sending.run(until: .seconds(4))
    #expect(!sending.executor.isInputPaused)
    sending.run(until: .seconds(5))
    #expect(sending.executor.isInputPaused)
    for index in 0..<3 {
      #expect(sending.executor.isInputPaused)
      try sending.http.exchanges.item(index).answer(200)
      sending.settle()
    }
    #expect(!sending.executor.isInputPaused)
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    try sending.http.exchanges.item(3).answer(200)
    sending.run()
    #expect(sending.http.bodies == (1...6).map { "\($0)\n" })
  }

  @Test func bytesHoldBackTheInputToo() throws {
    // 40 events of half a megabyte: far fewer than the queue's limit, but too much memory.
    let sending = try VirtualPipeline(
      """
      sources:
        events: { values: ['\(String(repeating: "x", count: 1 << 15))'] }
      signals:
        large:
          from: events
          chain:
            - map: event + event + event + event
            - map: event + event + event + event
            - flattenMap: "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20].map(x, event)"
            - flattenMap: "[event, event]"
      sinks:
        shop: { from: large, http: 'http://h.example/' }
      """)
    sending.settle()
    #expect(sending.http.exchanges.count == 1)
    #expect(sending.executor.isInputPaused)
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    try sending.http.exchanges.item(0).answer(200)
    sending.run()
    #expect(!sending.executor.isInputPaused)
    #expect(sending.counters.sent == 40)
  }

  @Test func theEndFlushesWhatWaits() throws {
    let sending = try pipeline("batch: { count: 100, every: 1h }", events: "[1, 2]")
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    sending.run()
    #expect(sending.http.bodies == ["1\n2\n"])
    #expect(seconds(sending) == [0])
    #expect(sending.outcome == .completed)
    #expect(sending.executor.pendingTimers == 0)
  }

  @Test func theEndWaitsForRepetitions() throws {
    let sending = try pipeline("", events: "[1]")
    sending.http.script = { number, _ in ScriptedHTTP.status(number < 3 ? 503 : 200) }
    sending.run()
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 1)
  }

  @Test func anEventThatCannotBeWrittenIsSetAside() throws {
    let sending = try VirtualPipeline(
      """
      sources:
        events: { values: [1, 2, 3] }
      signals:
        broken:
          from: events
          chain: [ { map: "event == 2 ? {'a': double('nan')} : {'a': double(event)}" } ]
      sinks:
        shop: { from: broken, http: { url: 'http://h.example/', batch: 10 } }
      """)
    sending.http.script = { _, _ in ScriptedHTTP.status(200) }
    sending.run()
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent + sending.counters.rejected == 3)
  }

  @Test(arguments: [
    ("'http://h{{ event }}'", "the host of a URL must be written out"),
    ("{ urls: ['http://h.example/'], headers: { X: '{{ event }}' } }", "cannot hold {{ }}"),
    ("'ftp://h.example/'", "is neither"),
    ("{ url: 'http://h.example/', method: GET }", "GET"),
    ("{ url: 'http://h.example/', batch: 0 }", "count"),
    ("{ url: 'http://h.example/', batch: { count: 1, size: 2 } }", "size"),
    ("{ url: 'http://h.example/', encode: text, batch: { form: array } }", "array"),
    ("{ url: 'http://h.example/', retry: { attempts: 0 } }", "attempts"),
    (
      "{ url: 'http://h.example/', retry: { delay: 1m } }",
      "'delay' of 'retry' is 1m, longer than 'maxDelay', which is 30s"
    ),
    ("'http://u:secret@h.example/'", "contains a password"), ("'http://169.254.169.254/'", "link-local"),
    ("'http://h.example:99999/'", "port"),
    ("{ url: 'http://h.example/', headers: { Transfer-Encoding: chunked } }", "cannot be set"),
    ("{ url: 'http://h.example/', headers: { X: \"a\\r\\nb: c\" } }", "line break"),
  ])
  func refusesAtCheckTime(_ parameters: String, _ reason: String) {
    let found = complaints(parameters)
    #expect(found.count == 1, "\(found)")
    #expect(found.first?.contains(reason) == true, "\(found)")
    #expect(found.first?.hasPrefix("6:") == true, "\(found)")
  }
}
