import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Sinks

/// The destinations of the `http` sink: several servers, URLs of events, and answers that accept a part of them.
@Suite struct HTTPSinkRoutingTests {
  private func pipeline(
    _ parameters: String, events: String = "[1, 2, 3]", pace: String? = nil, errors: Bool = true,
    restoring state: [UInt8]? = nil, secrets: [String: String] = [:],
    _ script: ((Int, ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer?)? = nil
  ) throws -> VirtualPipeline {
    let values = pace.map { "{ list: \(events), every: \($0) }" } ?? events
    let sending = try VirtualPipeline(
      """
      name: t
      sources: { events: { values: \(values) } }
      sinks:
        shop: { from: events, http: { \(parameters) } }
        \(errors ? "lost: { from: shop.errors, chain: [ { map: '[event.event, event.error]' } ], probe: {} }" : "")
      """, random: .max, restoring: state, secrets: secrets)
    sending.http.script = script
    return sending
  }

  private func complaints(_ parameters: String) -> [String] {
    PipelineText.complaints(
      "sources: { events: { values: [1] } }\nsinks: { shop: { from: events, http: { \(parameters) } } }")
  }

  private func sent(_ sending: VirtualPipeline) -> [String] {
    zip(sending.http.exchanges, sending.http.times).map { exchange, time in
      let host = exchange.request.url.split(separator: "/")[1].prefix { $0 != "." }
      return
        "\(time.nanoseconds / 1_000_000_000)s \(host) \(exchange.body.split(separator: "\n").joined(separator: ","))"
    }
  }

  private let two = "urls: ['http://a.example/in', 'http://b.example:81/in']"

  // MARK: Servers

  @Test func theNextServerTakesWhatOneDoesNot() throws {
    let sending = try pipeline(two, pace: "4s") { number, exchange in
      exchange.request.url.hasPrefix("http://a") && number < 3 ? ScriptedHTTP.status(503) : ScriptedHTTP.status(200)
    }
    sending.run()
    // The first server is tried again after ten seconds.
    #expect(sent(sending) == ["0s a 1", "0s b 1", "4s b 2", "8s b 3"])
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 3)
    #expect(sending.log.count == 1)
    #expect(
      sending.log.first?.contains("POST http://a.example answered 503; http://a.example gets no request for 10s")
        == true, "\(sending.log)")
  }

  @Test func aServerThatIsBackIsUsedAgain() throws {
    let sending = try pipeline(two, events: "[1, 2, 3, 4]", pace: "6s") { number, _ in
      number == 0 ? .failure(HTTPFailure(.connect, "cannot connect to a.example:80")) : ScriptedHTTP.status(200)
    }
    sending.run()
    #expect(sent(sending) == ["0s a 1", "0s b 1", "6s b 2", "12s a 3", "18s a 4"])
    #expect(sending.log.last?.contains("http://a.example accepts requests again") == true, "\(sending.log)")
  }

  @Test func serversTakeTurns() throws {
    let sending = try pipeline("\(two), balance: roundRobin", events: "[1, 2, 3, 4, 5]", pace: "1s") { number, _ in
      ScriptedHTTP.status(number == 2 ? 500 : 200)
    }
    sending.run()
    #expect(sent(sending) == ["0s a 1", "1s b 2", "2s a 3", "2s b 3", "3s b 4", "4s b 5"])
  }

  @Test func eventsWaitIfNoServerTakesThem() throws {
    let sending = try pipeline(two, events: "[1]") { number, _ in ScriptedHTTP.status(number < 3 ? 503 : 200) }
    sending.run()
    #expect(sent(sending) == ["0s a 1", "0s b 1", "10s a 1", "10s b 1"])
    #expect(sending.outcome == .completed)
    #expect(sending.probe("lost").events.isEmpty)
  }

  @Test func attemptsAreCountedOverAllServers() throws {
    let sending = try pipeline("\(two), retry: 3", events: "[1]") { _, _ in ScriptedHTTP.status(503) }
    sending.run()
    #expect(sent(sending) == ["0s a 1", "0s b 1", "10s a 1"])
    #expect(sending.probe("lost").events.first?.contains("gave up after 3 attempts") == true)
  }

  @Test func aPauseThatAServerAsksForIsItsOwn() throws {
    let sending = try pipeline(two, events: "[1, 2, 3]", pace: "10s") { number, _ in
      number == 0 ? ScriptedHTTP.status(429, "", [HTTPHeader("Retry-After", "15")]) : ScriptedHTTP.status(200)
    }
    sending.run()
    #expect(sent(sending) == ["0s a 1", "0s b 1", "10s b 2", "20s a 3"])
  }

  @Test func theBreakerOpensAfterFailuresInARow() throws {
    let sending = try pipeline(
      "url: 'http://a.example/', retry: { delay: 1s, maxDelay: 1s }, circuitBreaker: { failures: 3, pause: 1m }",
      events: "[1]"
    ) { number, _ in ScriptedHTTP.status(number < 4 ? 503 : 200) }
    sending.run()
    // A failed trial blocks the server for another minute.
    #expect(sent(sending) == ["0s a 1", "1s a 1", "2s a 1", "62s a 1", "122s a 1"])
    #expect(sending.log.contains { $0.contains("the server gets no request for 1m") }, "\(sending.log)")
    #expect(sending.outcome == .completed)
  }

  @Test func aSuccessStartsTheCountAgain() throws {
    let sending = try pipeline(
      "url: 'http://a.example/', retry: { delay: 1s, maxDelay: 1s }, circuitBreaker: { failures: 2, pause: 1m }",
      events: "[1, 2]"
    ) { number, _ in ScriptedHTTP.status(number % 2 == 0 ? 503 : 200) }
    sending.run()
    #expect(sent(sending) == ["0s a 1", "1s a 1", "1s a 2", "2s a 2"])
  }

  // MARK: URLs of events

  @Test func eventsOfOneURLShareARequest() throws {
    let sending = try pipeline(
      "url: 'http://a.example/{{ event.u }}', headers: { X: 'v{{ event.u }}' }, encode: { json: {} }, batch: { count: 3, every: 1s }",
      events: "[ { u: x, n: 1 }, { u: y, n: 2 }, { u: x, n: 3 }, { u: y, n: 4 }, { u: x, n: 5 } ]"
    ) { _, _ in ScriptedHTTP.status(200) }
    sending.run()
    #expect(sending.http.exchanges.map(\.request.url) == ["http://a.example/x", "http://a.example/y"])
    #expect(sending.http.exchanges.map { $0.header("X") } == ["vx", "vy"])
    #expect(
      sending.http.bodies == [
        "{\"u\":\"x\",\"n\":1}\n{\"u\":\"x\",\"n\":3}\n{\"u\":\"x\",\"n\":5}\n",
        "{\"u\":\"y\",\"n\":2}\n{\"u\":\"y\",\"n\":4}\n",
      ])
    #expect(sending.counters.sent == 5)
  }

  @Test func whatIsDueGoesToAllURLs() throws {
    let sending = try pipeline(
      "url: 'http://a.example/{{ event }}', batch: { count: 10, every: 1s }, maxConcurrent: 4", events: "[x, y, z, w]",
      pace: "600ms"
    ) { _, _ in ScriptedHTTP.status(200) }
    sending.run(until: .seconds(3))
    #expect(sending.http.exchanges.map(\.request.url.last) == ["x", "y", "z", "w"])
    // Each a second after its event, or when no further event can arrive.
    #expect(sending.http.times.map(\.nanoseconds) == [1_000_000_000, 1_600_000_000, 1_800_000_000, 1_800_000_000])
  }

  /// A batch for each URL: as many requests as the events of each need, in any order of arrival.
  @Test func eachURLHasItsOwnBatch() throws {
    let events = (0..<120).map { "{ p: \($0 % 6), n: \($0) }" }.joined(separator: ", ")
    let sending = try pipeline(
      "url: 'http://a.example/{{ event.p }}', encode: ndjson, batch: { count: 20, every: 1h }", events: "[ \(events) ]"
    ) { _, _ in ScriptedHTTP.status(200) }
    sending.run()
    #expect(sending.http.exchanges.map(\.request.url).sorted() == (0..<6).map { "http://a.example/\($0)" })
    #expect(sending.http.bodies.allSatisfy { $0.split(separator: "\n").count == 20 })
    #expect(sending.counters.sent == 120)
  }

  @Test func openBatchesAreBounded() throws {
    let sending = try pipeline(
      "url: 'http://a.example/{{ event }}', batch: { count: 10, every: 1h, open: 2 }", events: "[x, y, x, z, y, w]",
      pace: "1s"
    ) { _, _ in ScriptedHTTP.status(200) }
    sending.run(until: .seconds(20))
    // z sends x, w sends y; the rest is sent at the end.
    #expect(sending.http.exchanges.map(\.request.url.last) == ["x", "y", "z", "w"])
    #expect(sending.http.bodies.map { $0.split(separator: "\n").count } == [2, 2, 1, 1])
  }

  /// If the input waits, the oldest batch is sent, because only that makes room.
  @Test func aFullQueueSendsTheOldest() throws {
    let sending = try pipeline(
      "url: 'http://a.example/{{ event }}', batch: { count: 10, every: 1h }, queue: 3", events: "[a, b, c, d, e]",
      pace: "1s"
    ) { _, _ in ScriptedHTTP.status(200) }
    sending.run(until: .seconds(30))
    #expect(sending.http.exchanges.map(\.request.url.last) == ["a", "b", "c", "d", "e"])
  }

  @Test(arguments: [
    (#"["a b"]"#, "space or control character"), (#"["../x"]"#, "leaves its directory"),
    (#"["a?b=1"]"#, "'?' would end the path"),
  ]) func anEventThatLeavesItsPlaceIsRefused(_ events: String, _ reason: String) throws {
    let sending = try pipeline(
      "url: 'http://a.example/in/{{ raw(event) }}'", events: "[one, \(events.dropFirst().dropLast()), two]"
    ) {
      _, _ in ScriptedHTTP.status(200)
    }
    sending.run()
    #expect(sending.http.exchanges.map(\.request.url) == ["http://a.example/in/one", "http://a.example/in/two"])
    let lost = sending.probe("lost").events
    #expect(lost.count == 1 && lost[0].contains(reason), "\(lost)")
    #expect(sending.outcome == .completed)
  }

  @Test func waitingEventsKeepTheirURLs() throws {
    let parameters = "url: 'http://a.example/{{ event }}', batch: { count: 2, every: 1h }, queue: 100"
    let first = try pipeline(parameters, events: "{ list: [x, y, x], every: 1s }", errors: false)
    first.run(until: .seconds(4))
    let state = try #require(first.suspend())
    let second = try pipeline(parameters, events: "{ list: [x, y, x], every: 1s }", errors: false, restoring: state) {
      _, _ in
      ScriptedHTTP.status(200)
    }
    second.run()
    #expect(second.http.exchanges.map(\.request.url) == ["x", "y"].map { "http://a.example/\($0)" })
    #expect(second.http.bodies == ["\"x\"\n\"x\"\n", "\"y\"\n"])
  }

  // MARK: Partial answers

  private let bulk =
    "url: 'http://a.example/', batch: { count: 3, every: 1s, form: array }, partial: \"response.body.map(i, i == 201 ? 'ok' : i == 429 ? 'retry' : string(i))\""

  @Test func refusedEventsGoAndOthersAreSentAgain() throws {
    let sending = try pipeline(bulk, events: "[a, b, c]") { number, _ in
      ScriptedHTTP.status(200, number == 0 ? "[201, 429, 400]" : "[201]")
    }
    sending.run()
    #expect(sending.http.bodies == [#"["a","b","c"]"#, #"["b"]"#])
    #expect(sending.probe("lost").events == [#"["c","the server refused the event: 400"]"#])
    #expect(sending.counters.sent == 2)
    // After a pause.
    #expect(try sending.http.times.item(1).nanoseconds == sending.http.times.item(0).nanoseconds + 100_000_000)
    #expect(sending.outcome == .completed)
  }

  @Test func mapsNameWhatWasNotTaken() throws {
    let sending = try pipeline(
      "url: 'http://a.example/', batch: { count: 3, every: 1s }, partial: 'response.status == 200 ? [] : response.body.failed'",
      events: "[a, b, c]"
    ) { number, _ in
      number == 0
        ? ScriptedHTTP.status(207, #"{"failed":[{"index":2,"retry":true},{"index":0,"reason":"to\u006f long"}]}"#)
        : ScriptedHTTP.status(200)
    }
    sending.run()
    #expect(sending.http.bodies == ["\"a\"\n\"b\"\n\"c\"\n", "\"c\"\n"])
    #expect(sending.probe("lost").events == [#"["a","the server refused the event: too long"]"#])
    #expect(sending.counters.sent == 2)
  }

  @Test(arguments: [
    ("[201]", "'partial' has 1 verdicts, and the request had 3 events"), ("not JSON", ""), ("", ""),
    ("[{\"a\":1}]", ""),
  ]) func whatIsNotClearIsNotLost(_ body: String, _ reason: String) throws {
    let sending = try pipeline(bulk, events: "[a, b, c]") { _, _ in ScriptedHTTP.status(200, body) }
    sending.run()
    let lost = sending.probe("lost").events
    #expect(lost.count == 3, "\(lost)")
    #expect(
      lost.allSatisfy {
        $0.contains("it is not clear which events it took") && (reason.isEmpty || $0.contains(reason))
      }, "\(lost)"
    )
    #expect(sending.http.exchanges.count == 1)
    #expect(sending.counters.sent == 0)
  }

  @Test func indexesAreThoseOfTheRequest() {
    let arena = Arena()
    func verdicts(_ index: Value) -> HTTPSink.Verdicts {
      HTTPSink.Verdicts(arena.list([arena.map(["index": index])]), 2)
    }
    guard case .each(let each) = verdicts(.int(1)) else { return #expect(Bool(false)) }
    #expect(each == [.accepted, .refused("the server refused the event")])
    for index in [Value.int(2), .int(-1), .null, .double(1)] {
      guard case .unclear = verdicts(index) else {
        #expect(Bool(false), "\(index)")
        continue
      }
    }
  }

  @Test func attemptsOfPartialAnswersEnd() throws {
    let sending = try pipeline("\(bulk), retry: 2", events: "[a, b, c]") { _, exchange in
      ScriptedHTTP.status(200, exchange.body.count > 6 ? "[201, 429, 201]" : "[429]")
    }
    sending.run()
    #expect(sending.http.bodies.count == 2)
    #expect(sending.counters.sent == 2)
    #expect(
      sending.probe("lost").events.first?.contains("gave up after 2 attempts") == true,
      "\(sending.probe("lost").events)")
  }

  // MARK: The check

  @Test(arguments: [
    ("urls: ['http://a/'], url: 'http://b/'", "both 'url' and 'urls'"), ("method: PUT", "needs 'url' or 'urls'"),
    ("url: 'http://a/', balance: roundRobin", "'balance' of 'http' has no effect without 'urls'"),
    ("urls: ['http://a/{{ event }}']", "with 'urls' all events go to the same servers"),
    ("urls: ['http://a/', 'ftp://b/']", "neither"),
    ("url: 'http://{{ event }}/'", "the host of a URL must be written out"),
    ("url: 'http://a/', circuitBreaker: { failures: 0 }", "failures"),
    ("url: 'http://a/', partial: responses.body", "responses"),
    (
      "url: 'http://a/', auth: { oauth2: { tokenURL: 'ftp://x', clientID: a, clientSecret: b } }",
      "not an http or https URL"
    ),
    (
      "url: 'http://a/', auth: { oauth2: { tokenURL: 'http://u:p@x/', clientID: a, clientSecret: b } }",
      "'tokenURL' of 'oauth2': the URL contains a password"
    ),
    ("url: 'http://a/', auth: { oauth2: { tokenURL: 'http://x/', clientID: a } }", "needs 'clientSecret'"),
    (
      "url: 'http://a/', auth: { oauth2: { tokenURL: 'http://x/', clientID: '', clientSecret: b } }",
      "'clientID' of 'auth' is empty"
    ),
    (
      "url: 'http://a/', auth: { awsSigV4: { region: 'a/b', service: s3, accessKey: a, secretKey: b } }",
      "'region' of 'awsSigV4'"
    ),
    (
      "url: 'http://a/', auth: { bearer: t, awsSigV4: { region: r, service: s3, accessKey: a, secretKey: b } }",
      "is 'bearer' or 'awsSigV4', not both"
    ),
  ]) func mistakesAreFound(_ parameters: String, _ message: String) {
    let found = complaints(parameters)
    #expect(found.contains { $0.contains(message) }, "\(found)")
  }

  @Test func credentialsReachTheClient() throws {
    let sending = try pipeline(
      "url: 'http://a.example/', auth: { oauth2: { tokenURL: 'http://id/', clientID: me, clientSecret: '${secret:S}', scope: w, parameters: { audience: x } } }",
      events: "[1]", secrets: ["S": "hidden"])
    sending.settle()
    var wanted = HTTPOptions.OAuth2(tokenURL: "http://id/", clientID: Secret("me"), clientSecret: Secret("hidden"))
    wanted.scope = "w"
    wanted.parameters = [.init("audience", "x")]
    #expect(sending.http.exchanges.first?.request.options.auth == .oauth2(wanted))
  }
}
