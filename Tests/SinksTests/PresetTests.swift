import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// The presets of stores, against answers in the format that their servers document.
@Suite struct PresetTests {
  private func sending(_ use: String, events: String = "[{ n: 1 }, { n: 2 }, { n: 3 }]") throws -> VirtualPipeline {
    try VirtualPipeline(
      """
      sources: { events: { values: \(events) } }
      sinks:
        shop: { from: events, \(use) }
        refused: { from: shop.errors, chain: [ { map: '[event.event, event.error]' } ], probe: {} }
      """, random: .max)
  }

  /// The help for a password in a URL names parameters that the preset has.
  @Test(arguments: [
    ("use: slack, with: { url: 'http://u:pw@h.example/' }", "slack"),
    (
      "use: influxdb, with: { url: 'http://u:pw@h.example', bucket: b, token: t, measurement: \"'m'\", fields: event }",
      "influxdb"
    ),
    ("use: clickhouse, with: { url: 'http://u:pw@h.example', table: t }", "clickhouse"),
  ])
  func passwordsInURLs(_ use: String, _ preset: String) throws {
    do {
      _ = try sending(use)
      Issue.record("it compiles")
    } catch {
      #expect("\(error)".contains("the URL contains a password"), "\(error)")
      #expect("\(error)".contains("'rxd describe preset \(preset)'"), "\(error)")
      #expect(!"\(error)".contains("auth: { basic"), "\(error)")
    }
  }

  @Test(arguments: ["create", "index"]) func elasticsearchTakesTheAnswerApart(_ action: String) throws {
    let sending = try sending(
      "use: elasticsearch, with: { url: 'http://127.0.0.1:9200', index: \"'logs'\", id: 'string(event.n)', count: 3, action: \(action) }",
      events: "[{ n: 1 }, { n: 2 }, { n: 3 }]")
    sending.settle()
    let first = try #require(sending.http.exchanges.first)
    #expect(first.request.url == "http://127.0.0.1:9200/_bulk")
    #expect(first.header("content-type") == "application/x-ndjson")
    #expect(
      first.body == (1...3).map { "{\"\(action)\":{\"_index\":\"logs\",\"_id\":\"\($0)\"}}\n{\"n\":\($0)}\n" }.joined())
    first.answer(
      200,
      """
      {"took":3,"errors":true,"items":[{"\(action)":{"_index":"logs","_id":"1","status":201,"result":"created"}},\
      {"\(action)":{"_index":"logs","_id":"2","status":429,"error":{"type":"es_rejected_execution_exception","reason":"full"}}},\
      {"\(action)":{"_index":"logs","_id":"3","status":400,"error":{"type":"document_parsing_exception","reason":"bad n"}}}]}
      """)
    sending.run(until: .seconds(60))
    #expect(sending.http.exchanges.count == 2)
    let second = try #require(sending.http.exchanges.last)
    #expect(second.body == "{\"\(action)\":{\"_index\":\"logs\",\"_id\":\"2\"}}\n{\"n\":2}\n")
    // The document already exists, because an earlier answer was lost.
    second.answer(
      200,
      """
      {"took":1,"errors":true,"items":[{"\(action)":{"_index":"logs","_id":"2","status":409,\
      "error":{"type":"version_conflict_engine_exception","reason":"exists"}}}]}
      """)
    sending.run(until: .seconds(120))
    #expect(sending.outcome == .completed)
    #expect(sending.http.exchanges.count == 2)
    #expect(sending.probe("refused").events.count == 1)
    #expect(sending.probe("refused").events.first?.contains("document_parsing_exception") == true)
    // The event itself, not the lines of the request.
    #expect(sending.probe("refused").events.first?.hasPrefix("[{\"n\":3},") == true)
  }

  @Test func elasticsearchTakesTheIndexFromTheEvent() throws {
    let sending = try sending(
      "use: elasticsearch, with: { url: 'http://127.0.0.1:9200', index: \"'l-' + string(event.n)\", every: 1s }",
      events: "[{ n: 1 }, { n: 2 }]")
    sending.run(until: .seconds(2))
    #expect(
      sending.http.bodies == [
        "{\"create\":{\"_index\":\"l-1\"}}\n{\"n\":1}\n{\"create\":{\"_index\":\"l-2\"}}\n{\"n\":2}\n"
      ])
  }

  /// Changing results: a retracted row deletes its document, which may already be gone.
  @Test func elasticsearchFollowsResultsThatChange() throws {
    let sending = try sending(
      """
      use: elasticsearch, with: { url: 'http://127.0.0.1:9200', index: "'tops'", id: 'string(event.n)', action: upsert, count: 4 }, \
      chain: [ { topN: { by: event.n, count: 1 } } ]
      """, events: "[{ n: 1 }, { n: 2 }, { n: 3 }]")
    sending.settle()
    let first = try #require(sending.http.exchanges.first)
    let lines = [
      #"{"index":{"_index":"tops","_id":"1"}}"#, #"{"n":1}"#, #"{"delete":{"_index":"tops","_id":"1"}}"#,
      #"{"index":{"_index":"tops","_id":"2"}}"#, #"{"n":2}"#, #"{"delete":{"_index":"tops","_id":"2"}}"#,
    ]
    #expect(first.body == lines.map { $0 + "\n" }.joined())
    first.answer(
      200,
      """
      {"errors":true,"items":[{"index":{"_id":"1","status":201}},{"delete":{"_id":"1","status":404,"result":"not_found"}},\
      {"index":{"_id":"2","status":503,"error":{"type":"unavailable"}}},{"delete":{"_id":"2","status":404,"result":"not_found"}}]}
      """)
    sending.run(until: .seconds(60))
    // The deletion succeeded before the write that it should follow: both are repeated, in order.
    let second = try #require(sending.http.exchanges.last)
    #expect(second.body == lines.dropFirst(3).map { $0 + "\n" }.joined())
    second.answer(
      200, #"{"errors":false,"items":[{"index":{"_id":"2","status":201}},{"delete":{"_id":"2","status":200}}]}"#)
    sending.run(until: .seconds(90))
    let third = try #require(sending.http.exchanges.last)
    #expect(third.body == #"{"index":{"_index":"tops","_id":"3"}}"# + "\n{\"n\":3}\n", "\(third.body)")
    third.answer(
      200,
      #"{"errors":true,"items":[{"index":{"_id":"3","status":400,"error":{"type":"document_parsing_exception"}}}]}"#)
    sending.run(until: .seconds(120))
    #expect(sending.outcome == .completed)
    #expect(sending.http.exchanges.count == 3)
    #expect(sending.probe("refused").events.count == 1, "\(sending.probe("refused").events)")
  }

  @Test func clickhouseHalvesWhatItRefuses() throws {
    let sending = try sending("use: clickhouse, with: { url: 'http://127.0.0.1:8123', table: shop.orders, count: 3 }")
    sending.settle()
    let first = try #require(sending.http.exchanges.first)
    #expect(
      first.request.url
        == "http://127.0.0.1:8123/?query=INSERT%20INTO%20shop.orders%20FORMAT%20JSONEachRow&date_time_input_format=best_effort"
    )
    #expect(first.body == "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n")
    first.answer(400, "Code: 27. DB::Exception: Cannot parse input")
    sending.settle()
    #expect(try #require(sending.http.exchanges.last).body.utf8.count < first.body.utf8.count)
  }

  // MARK: Loki

  @Test func lokiGetsEachStreamOnceInTheOrderOfTime() throws {
    let sending = try sending(
      "use: loki, with: { url: 'http://127.0.0.1:3100', tenant: t, labels: { job: \"'web'\", level: event.?l }, line: string(event.n), time: timestamp(event.t) }",
      events:
        "[{ n: 1, l: info, t: 20 }, { n: 2, t: 30 }, { n: 3, l: info, t: 10 }, { n: 4, l: info, t: 20 }]")
    sending.settle()
    sending.run(until: .seconds(2))
    let first = try #require(sending.http.exchanges.first)
    #expect(first.request.url == "http://127.0.0.1:3100/loki/api/v1/push")
    #expect(first.header("x-scope-orgid") == "t")
    #expect(
      first.body == """
        {"streams":[{"stream":{"job":"web","level":"info"},"values":[["10000000000","3"],["20000000000","1"],["20000000000","4"]]},\
        {"stream":{"job":"web"},"values":[["30000000000","2"]]}]}

        """)
    first.answer(429, "Ingestion rate limit exceeded")
    sending.run(until: .seconds(30))
    #expect(sending.http.exchanges.count == 2)
    #expect(try sending.http.exchanges.item(1).body == first.body)
    // An entry is too old: the request is halved until that entry is alone.
    sending.http.script = { _, exchange in
      exchange.body.contains("10000000000")
        ? ScriptedHTTP.status(400, "entry with timestamp 1970-01-01 00:00:10 ignored, reason: 'entry too far behind'")
        : ScriptedHTTP.status(204)
    }
    try sending.http.exchanges.item(1).answer(400, "entry too far behind")
    sending.run()
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 3)
    #expect(sending.probe("refused").events.count == 1)
    #expect(sending.probe("refused").events.first?.contains("\"n\":3") == true)
  }

  /// As many streams as events: the request is not halved.
  @Test func lokiGetsManyStreams() throws {
    let events = "[" + (0..<500).map { "{ n: \($0) }" }.joined(separator: ", ") + "]"
    let sending = try sending(
      "use: loki, with: { url: 'http://127.0.0.1:3100', labels: { n: string(event.n) } }", events: events)
    sending.http.script = { _, _ in ScriptedHTTP.status(204) }
    sending.run()
    #expect(sending.http.exchanges.count == 1)
    #expect(sending.http.bodies.first?.components(separatedBy: "\"stream\"").count == 501)
    #expect(sending.counters.sent == 500)
  }

  @Test func lokiTakesTheTimeAtWhichAnEventCame() throws {
    let sending = try sending(
      "use: loki, with: { url: 'http://127.0.0.1:3100', labels: { job: \"'web'\" }, count: 1 }", events: "[{ n: 1 }]")
    sending.settle()
    #expect(
      sending.http.bodies == [
        "{\"streams\":[{\"stream\":{\"job\":\"web\"},\"values\":[[\"1767225600000000000\",\"{\\\"n\\\":1}\"]]}]}\n"
      ])
  }

  // MARK: InfluxDB

  @Test func influxdbGetsPointsAndHalvesWhatItRefuses() throws {
    let sending = try sending(
      "use: influxdb, with: { url: 'http://127.0.0.1:8086', org: o, bucket: b, token: t, measurement: \"'weather'\", tags: { place: event.p }, fields: { temp: event.c }, time: timestamp(1000), precision: ms, count: 4 }",
      events: "[{ p: a b, c: 1.5 }, { p: b, c: hot }, { p: c }, { p: d, c: 2 }, { p: e, c: null }]")
    sending.http.script = { _, exchange in
      exchange.body.contains("\"hot\"")
        ? ScriptedHTTP.status(
          400,
          #"{"code":"invalid","message":"partial write: field type conflict: input field \"temp\" on measurement \"weather\" is type string, already exists as type float dropped=1"}"#
        ) : ScriptedHTTP.status(204)
    }
    sending.run()
    let first = try #require(sending.http.exchanges.first)
    #expect(first.request.url == "http://127.0.0.1:8086/api/v2/write?org=o&bucket=b&precision=ms")
    #expect(first.header("authorization") == "Token t")
    #expect(
      first.body
        == "weather,place=a\\ b temp=1.5 1000000\nweather,place=b temp=\"hot\" 1000000\nweather,place=d temp=2i 1000000\n"
    )
    #expect(sending.outcome == .completed)
    let refused = sending.probe("refused").events
    #expect(refused.count == 3)
    // A missing field, a null field, and the one that the server refuses.
    #expect(refused.contains { $0.hasPrefix("[{\"p\":\"c\"},") })
    #expect(refused.contains { $0.hasPrefix("[{\"p\":\"e\",\"c\":null},") && $0.contains("it has no field") })
    #expect(refused.contains { $0.hasPrefix("[{\"p\":\"b\",\"c\":\"hot\"},") && $0.contains("field type conflict") })
    #expect(sending.counters.sent == 2)
  }

  @Test func influxdbSaysWhenToContinue() throws {
    let sending = try sending(
      "use: influxdb, with: { url: 'http://127.0.0.1:8086', bucket: b, token: t, measurement: event.name, tags: event.labels, fields: { value: event.value } }",
      events: "[{ name: load, labels: { host: a }, value: 1.25 }]")
    sending.http.script = { number, _ in
      number == 0 ? ScriptedHTTP.status(429, "", [HTTPHeader("Retry-After", "20")]) : ScriptedHTTP.status(204)
    }
    sending.run()
    #expect(sending.http.bodies.last == "load,host=a value=1.25 1767225600000000000\n")
    #expect(sending.http.times.count == 2)
    #expect(sending.http.times.last?.nanoseconds == 20_000_000_000)
  }

  // MARK: Splunk

  private func splunk(
    _ answers: [ScriptedHTTP.Answer], events: String = "[{ n: 1 }, { n: 2 }, { n: 3 }]"
  ) throws -> VirtualPipeline {
    let sending = try sending(
      "use: splunk, with: { url: 'https://splunk.example:8088', token: t, sourcetype: \"'_json'\", host: event.?h, count: 3 }",
      events: events)
    sending.http.script = { number, _ in answers[min(number, answers.count - 1)] }
    sending.run()
    return sending
  }

  @Test func splunkNamesTheEventThatIsNoEvent() throws {
    let sending = try splunk([
      ScriptedHTTP.status(400, #"{"text":"Event field cannot be blank","code":13,"invalid-event-number":1}"#),
      ScriptedHTTP.status(200, #"{"text":"Success","code":0}"#),
    ])
    let first = try #require(sending.http.exchanges.first)
    #expect(first.request.url == "https://splunk.example:8088/services/collector/event")
    #expect(first.header("authorization") == "Splunk t")
    #expect(first.header("content-type") == "application/json")
    func line(_ n: Int) -> String { "{\"time\":1767225600.0,\"sourcetype\":\"_json\",\"event\":{\"n\":\(n)}}\n" }
    #expect(sending.http.bodies == [line(1) + line(2) + line(3), line(1) + line(3)])
    #expect(
      sending.probe("refused").events == ["[{\"n\":2},\"the server refused the event: Event field cannot be blank\"]"])
    #expect(sending.counters.sent == 2)
  }

  @Test func splunkWithoutAUsableNumberIsHalved() throws {
    let refusal = ScriptedHTTP.status(400, #"{"text":"Incorrect index","code":7,"invalid-event-number":1}"#)
    let sending = try splunk([refusal, ScriptedHTTP.status(200, #"{"text":"Success","code":0}"#)])
    #expect(sending.http.bodies.map { $0.split(separator: "\n").count } == [3, 1, 2])
    #expect(sending.probe("refused").events.isEmpty)
    let beyond = try splunk([
      ScriptedHTTP.status(400, #"{"text":"Invalid data format","code":6,"invalid-event-number":9}"#),
      ScriptedHTTP.status(200, #"{"text":"Success","code":0}"#),
    ])
    #expect(beyond.http.bodies.map { $0.split(separator: "\n").count } == [3, 1, 2])
  }

  @Test func splunkRepeatsWhatItHasNoRoomForAndNotWhatIsWrong() throws {
    let busy = try splunk([
      ScriptedHTTP.status(503, #"{"text":"Server is busy","code":9}"#),
      ScriptedHTTP.status(200, #"{"text":"Success","code":0}"#),
    ])
    #expect(busy.http.bodies.count == 2)
    #expect(try busy.http.bodies.item(0) == busy.http.bodies.item(1))
    let wrong = try splunk([ScriptedHTTP.status(400, #"{"text":"Data channel is missing","code":10}"#)])
    // Everything at once, and never in halves.
    #expect(wrong.http.bodies.count == 1)
    #expect(wrong.probe("refused").events.count == 3)
    #expect(wrong.probe("refused").events.allSatisfy { $0.contains("Data channel is missing") })
  }
}
