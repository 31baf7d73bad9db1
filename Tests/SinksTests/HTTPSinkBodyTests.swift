import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Sinks

/// The expressions of the `http` sink: bodies, envelopes, names of requests, interpretation of answers.
@Suite struct HTTPSinkBodyTests {
  private func pipeline(
    _ parameters: String, events: String = "[{ n: 1 }, { n: 2 }, { n: 3 }]", url: String = "http://h.example/in",
    pace: String? = nil, errors: Bool = true, restoring state: [UInt8]? = nil,
    _ script: ((Int, ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer?)? = nil
  ) throws -> VirtualPipeline {
    let values = pace.map { "{ list: \(events), every: \($0) }" } ?? events
    let sending = try VirtualPipeline(
      """
      name: t
      sources: { events: { values: \(values) } }
      sinks:
        shop: { from: events, http: { url: "\(url)", \(parameters) } }
        \(errors ? "lost: { from: shop.errors, chain: [ { map: '[event.event, event.error]' } ], probe: {} }" : "")
      """, random: .max, restoring: state)
    sending.http.script = script
    return sending
  }

  private func complaints(_ parameters: String) -> [String] {
    PipelineText.complaints(
      "sources: { events: { values: [1] } }\nsinks: { shop: { from: events, http: { url: 'http://h.example/', \(parameters) } } }"
    )
  }

  private let taken: (Int, ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer? = { _, _ in ScriptedHTTP.status(200) }

  // MARK: Bodies

  @Test func theBodySeesTheEventAndSoDoTheURLAndErrors() throws {
    let sending = try pipeline(
      "headers: { X-N: '{{ event.n }}' }, body: { id: event.n, text: \"'n' + string(event.n)\", none: event.?m }",
      url: "http://h.example/{{ event.n }}"
    ) { number, _ in ScriptedHTTP.status(number == 1 ? 422 : 200, number == 1 ? "bad" : "") }
    sending.run()
    #expect(
      sending.http.bodies == [
        "{\"id\":1,\"text\":\"n1\"}\n", "{\"id\":2,\"text\":\"n2\"}\n", "{\"id\":3,\"text\":\"n3\"}\n",
      ])
    #expect(sending.http.exchanges.map(\.request.url).last == "http://h.example/3")
    #expect(sending.http.exchanges.map { $0.header("x-n") } == ["1", "2", "3"])
    // The refused event is the event itself, not the part of it that was sent.
    #expect(sending.probe("lost").events == ["[{\"n\":2},\"the server refused the event with 422: bad\"]"])
  }

  @Test func anEventWithoutABodyIsRejectedAlone() throws {
    let sending = try pipeline("body: event.n + 1, batch: 3", events: "[{ n: 1 }, { m: 2 }, { n: 3 }]", taken)
    sending.run()
    #expect(sending.http.bodies == ["2\n4\n"])
    #expect(sending.probe("lost").events.count == 1)
    #expect(sending.probe("lost").events.first?.hasPrefix("[{\"m\":2},\"") == true)
    #expect(sending.outcome == .completed)
  }

  @Test func formsAndPointsAreBodies() throws {
    let form = try pipeline("encode: form, body: { q: \"'a b'\", n: event.n }", events: "[{ n: 1 }]", taken)
    form.run()
    #expect(form.http.bodies == ["q=a+b&n=1"])
    #expect(form.http.exchanges.first?.header("content-type") == "application/x-www-form-urlencoded")
    let points = try pipeline(
      "encode: { influx: { precision: s } }, batch: 3, body: { measurement: \"'m'\", fields: event, timestamp: now }",
      events: "[{ n: 1 }, {}, { n: 2.5 }]", taken)
    points.run()
    #expect(points.http.bodies == ["m n=1i 1767225600\nm n=2.5 1767225600\n"])
    #expect(
      points.probe("lost").events == [
        "[{},\"the event cannot be written: it has no field; a point needs one in 'fields' that is not null\"]"
      ])
  }

  @Test func contradictingParametersAreRefused() {
    #expect(complaints("encode: form, batch: 5").first?.contains("a form is one event") == true)
    #expect(complaints("encode: form, batch: 5, envelope: { all: toJson(events) }").isEmpty)
    #expect(complaints("encode: csv, envelope: events").first?.contains("'envelope' makes the whole body") == true)
    #expect(complaints("batch: { count: 2, form: array }, envelope: events").count == 1)
    // An envelope does not belong to a single event.
    #expect(complaints("envelope: request.n").first?.contains("n") == true)
    #expect(complaints("encode: { influx: { precision: h } }").first?.contains("precision") == true)
  }

  // MARK: Envelopes

  @Test func anEnvelopeHoldsTheValuesOfARequest() throws {
    let sending = try pipeline(
      "batch: 2, body: { v: event.n }, envelope: { all: events, count: size(events), key: request.key, number: request.number }",
      taken)
    sending.run()
    let keys = sending.http.exchanges.map { $0.header("idempotency-key") ?? "" }
    #expect(
      try sending.http.bodies == [
        "{\"all\":[{\"v\":1},{\"v\":2}],\"count\":2,\"key\":\"\(keys.item(0))\",\"number\":1}\n",
        "{\"all\":[{\"v\":3}],\"count\":1,\"key\":\"\(keys.item(1))\",\"number\":2}\n",
      ])
    #expect(sending.http.exchanges.first?.header("content-type") == "application/json")
    #expect(sending.counters.sent == 3)
  }

  @Test func numbersInAnEnvelopeKeepTheirText() throws {
    let sending = try pipeline(
      "batch: 2, envelope: events", events: "[{ a: 1.50, b: 12345678901234567890123, c: \"\\u00e9\\n\" }]", taken)
    sending.run()
    #expect(sending.http.bodies == ["[{\"a\":1.50,\"b\":12345678901234567890123,\"c\":\"é\\n\"}]\n"])
  }

  @Test func anEnvelopeThatFailsIsHalvedDownToTheCause() throws {
    let sending = try pipeline(
      "batch: 4, envelope: 'events.map(e, 10 / e.n)'", events: "[{ n: 1 }, { n: 2 }, { n: 0 }, { n: 5 }]", taken)
    sending.run()
    #expect(sending.http.bodies == ["[10,5]\n", "[2]\n"])
    #expect(sending.probe("lost").events.count == 1)
    #expect(sending.probe("lost").events.first?.contains("{\"n\":0},\"") == true)
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 3)
  }

  @Test func partialAnswersOfAnEnvelopeAreOfItsEvents() throws {
    let sending = try pipeline(
      "batch: 3, envelope: { all: 'events.transformList(i, e, e.merge({\"id\": i}))' }, partial: 'response.body.failed.map(f, {\"index\": f.id, \"retry\": f.again, \"reason\": \"no\"})'"
    ) { number, _ in
      ScriptedHTTP.status(
        200, number == 0 ? #"{"failed":[{"id":0,"again":true},{"id":2,"again":false}]}"# : #"{"failed":[]}"#)
    }
    sending.run()
    #expect(
      sending.http.bodies == [
        "{\"all\":[{\"n\":1,\"id\":0},{\"n\":2,\"id\":1},{\"n\":3,\"id\":2}]}\n", "{\"all\":[{\"n\":1,\"id\":0}]}\n",
      ])
    #expect(sending.probe("lost").events == ["[{\"n\":3},\"the server refused the event: no\"]"])
  }

  @Test func aRestoredEventGetsItsBodyAgain() throws {
    let parameters = "batch: 2, body: { v: event.n }, envelope: { all: events }"
    let first = try pipeline(parameters, errors: false) { _, _ in nil }
    first.settle()
    let state = try #require(first.suspend())
    let second = try pipeline(parameters, events: "[{ n: 9 }]", errors: false, restoring: state, taken)
    second.run()
    #expect(second.http.bodies.first == first.http.bodies.first)
    #expect(
      second.http.exchanges.first?.header("idempotency-key") == first.http.exchanges.first?.header("idempotency-key"))
  }

  // MARK: Names of requests

  @Test func theURLNamesTheRequestAndStaysTheSame() throws {
    let sending = try pipeline(
      "batch: 2, headers: { X-Number: '{{ request.number }}' }",
      url: "http://h.example/{{ formatTime(request.time, '%H%M%S') }}-{{ request.number }}-{{ request.key }}"
    ) { number, _ in ScriptedHTTP.status(number == 0 ? 503 : 200) }
    sending.run()
    let urls = sending.http.exchanges.map(\.request.url)
    let keys = sending.http.exchanges.map { $0.header("idempotency-key") ?? "" }
    #expect(urls.count == 3)
    #expect(try urls.item(0) == "http://h.example/000000-1-\(keys.item(0))")
    // The time is that of the first attempt.
    #expect(try urls.item(1) == urls.item(0))
    #expect(try urls.item(2) == "http://h.example/000000-2-\(keys.item(2))")
    #expect(sending.http.exchanges.map { $0.header("x-number") } == ["1", "1", "2"])
    #expect(try sending.http.bodies.item(0) == "{\"n\":1}\n{\"n\":2}\n")
  }

  @Test func aURLOfEventAndRequestGroupsByTheEvent() throws {
    let sending = try pipeline(
      "batch: { count: 4, every: 10s }", events: "[{ k: a }, { k: b }, { k: a }, { k: b }]",
      url: "http://h.example/{{ event.k }}/{{ formatTime(now, '%M%S') }}/{{ request.number }}", pace: "1s", taken)
    sending.run()
    // `now` is the arrival of the event, so here each event has its own URL.
    #expect(
      sending.http.exchanges.map(\.request.url) == [
        "http://h.example/a/0000/1", "http://h.example/b/0001/2", "http://h.example/a/0002/3",
        "http://h.example/b/0003/4",
      ])
    let grouped = try pipeline(
      "batch: { count: 4, every: 10s }", events: "[{ k: a }, { k: b }, { k: a }, { k: b }]",
      url: "http://h.example/{{ event.k }}/{{ request.number }}", pace: "1s", taken)
    grouped.run()
    #expect(grouped.http.exchanges.map(\.request.url) == ["http://h.example/a/1", "http://h.example/b/2"])
    #expect(grouped.http.bodies.first == "{\"k\":\"a\"}\n{\"k\":\"a\"}\n")
  }

  // MARK: Meanings

  @Test func anAnswerMeansWhatTheExpressionSays() throws {
    let meanings = [
      #"{"m":"retry"}"#, #"{"m":"refuse"}"#, #"{"m":"ok"}"#, #"{"m":""}"#, #"{"other":1}"#, "no json",
    ]
    let sending = try pipeline("answer: response.body.m", events: "[1, 2, 3, 4, 5]") { number, _ in
      ScriptedHTTP.status(number < 3 ? 200 : 418, meanings[number])
    }
    // The sixth is a repetition of one of the five.
    sending.run()
    #expect(sending.http.bodies.map { $0.first } == ["1", "1", "2", "3", "4", "5"])
    #expect(sending.outcome == .completed)
    let lost = sending.probe("lost").events
    #expect(lost.count == 4)
    #expect(try lost.item(0).hasPrefix("[1,\"the server refused the event with 200"))
    // If the expression gives no result or fails, the status decides.
    #expect(try lost.item(1).contains("answered 418 at http://h.example, which will not change for other events"))
    #expect(lost[2...].allSatisfy { $0.contains("answered 418") })
    #expect(sending.counters.sent == 1)
  }

  @Test func aFailingMeaningEndsThePipelineOrGoesToErrors() throws {
    let alone = try pipeline("answer: '\"fail\"'", errors: false) { _, _ in ScriptedHTTP.status(200, "AccessDenied") }
    alone.run()
    #expect(alone.failure?.message == "POST answered 200: AccessDenied")
    let unknown = try pipeline("answer: '\"perhaps\"'", errors: false) { _, _ in ScriptedHTTP.status(200) }
    unknown.run()
    #expect(unknown.failure?.message.contains("'answer' gave 'perhaps'") == true)
    // Only events that the answer names as accepted count as accepted.
    let partial = try pipeline("answer: '\"partial\"'", errors: false) { _, _ in ScriptedHTTP.status(200) }
    partial.run()
    #expect(partial.failure?.message.contains("add 'partial'") == true)
    #expect(partial.counters.sent == 0)
  }

  @Test func aPartialMeaningIsTakenApartWhateverTheStatus() throws {
    let sending = try pipeline(
      "batch: 3, answer: 'response.status == 400 ? \"partial\" : \"\"', partial: 'response.status == 400 ? [\"ok\", \"bad\", \"retry\"] : [\"ok\"]'"
    ) { number, _ in ScriptedHTTP.status(number == 0 ? 400 : 200) }
    sending.run()
    #expect(sending.http.bodies == ["{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n", "{\"n\":3}\n"])
    #expect(sending.probe("lost").events == ["[{\"n\":2},\"the server refused the event: bad\"]"])
    #expect(sending.counters.sent == 2)
  }

  @Test(arguments: ["response.body.wait", "duration('40s')", "40.0"]) func theBodySaysHowLongToWait(_ after: String)
    throws
  {
    let sending = try pipeline("retry: { after: \"\(after)\" }", events: "[1]") { number, _ in
      ScriptedHTTP.status(number == 0 ? 429 : 200, #"{"wait":40}"#, [HTTPHeader("Retry-After", "5")])
    }
    sending.run()
    #expect(sending.http.times.map(\.nanoseconds) == [0, 40_000_000_000])
  }

  @Test func withoutAPauseInTheBodyTheHeaderCounts() throws {
    for body in ["no json", #"{"wait":null}"#, #"{"wait":-3}"#, #"{"wait":"soon"}"#] {
      let sending = try pipeline("retry: { after: response.body.wait }", events: "[1]") { number, _ in
        ScriptedHTTP.status(number == 0 ? 429 : 200, body, [HTTPHeader("Retry-After", "5")])
      }
      sending.run()
      #expect(sending.http.times.map(\.nanoseconds) == [0, 5_000_000_000], "\(body)")
    }
    let long = try pipeline("retry: { after: '1e30' }", events: "[1]") { number, _ in
      ScriptedHTTP.status(number == 0 ? 429 : 200)
    }
    long.run()
    #expect(long.http.times.map(\.nanoseconds) == [0, 600_000_000_000])
  }

  @Test func smallBodiesAreCompressedWhereAsked() throws {
    let sending = try pipeline("compress: { format: gzip, least: 1B }", events: "[1]", taken)
    sending.run()
    #expect(sending.http.exchanges.first?.header("content-encoding") == "gzip")
    #expect(sending.http.exchanges.first?.request.body?.starts(with: [0x1F, 0x8B]) == true)
    let usual = try pipeline("compress: gzip", events: "[1]", taken)
    usual.run()
    #expect(usual.http.exchanges.first?.header("content-encoding") == nil)
  }
}
