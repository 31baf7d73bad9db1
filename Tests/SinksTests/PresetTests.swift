import PipelineCore
import PipelineHost
import Testing

/// The presets, against answers of the form that their servers document.
@Suite struct PresetTests {
  private func sending(_ use: String, events: String = "[{ n: 1 }, { n: 2 }, { n: 3 }]") throws -> VirtualPipeline {
    try VirtualPipeline(
      """
      sources: { events: { values: \(events) } }
      sinks:
        shop: { from: events, \(use) }
        refused: { from: shop.errors, chain: [ { map: event.error } ], probe: {} }
      """, random: .max)
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
    // It is there already, because an earlier answer was lost.
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

  @Test func lokiGetsAStreamWithNanoseconds() throws {
    let sending = try sending(
      "use: loki, with: { url: 'http://127.0.0.1:3100', tenant: t, labels: { job: \"'web'\" } }", events: "[{ n: 1 }]")
    sending.settle()
    let first = try #require(sending.http.exchanges.first)
    #expect(first.request.url == "http://127.0.0.1:3100/loki/api/v1/push")
    #expect(first.header("x-scope-orgid") == "t")
    #expect(
      first.body
        == "{\"streams\":[{\"stream\":{\"job\":\"web\"},\"values\":[[\"1767225600000000000\",\"{\\\"n\\\":1}\"]]}]}\n")
    first.answer(429, "Ingestion rate limit exceeded")
    sending.run(until: .seconds(30))
    #expect(sending.http.exchanges.count == 2)
    sending.http.exchanges[1].answer(204)
    sending.run(until: .seconds(60))
    #expect(sending.outcome == .completed)
  }

  @Test func slackSaysWhenToGoOn() throws {
    let sending = try sending(
      "use: slack, with: { url: 'https://hooks.slack.com/services/T/B/x', message: \"'n is ' + string(event.n)\" }",
      events: "[{ n: 1 }]")
    sending.settle()
    #expect(sending.http.exchanges[0].body == "{\"text\":\"n is 1\"}\n")
    sending.http.exchanges[0].answer(429, "rate_limited", [HTTPHeader("Retry-After", "30")])
    sending.run(until: .seconds(29))
    #expect(sending.http.exchanges.count == 1)
    sending.run(until: .seconds(31))
    #expect(sending.http.exchanges.count == 2)
    sending.http.exchanges[1].answer(200, "ok")
    sending.run()
    #expect(sending.outcome == .completed)
  }

  @Test func ntfySendsOnlyWhatIsGiven() throws {
    let sending = try sending(
      "use: ntfy, with: { topic: alarms, title: event.room, message: \"'it is hot'\", priority: 4 }",
      events: "[{ room: hall }]")
    sending.settle()
    let first = try #require(sending.http.exchanges.first)
    #expect(first.request.url == "https://ntfy.sh")
    #expect(first.body == "{\"topic\":\"alarms\",\"message\":\"it is hot\",\"title\":\"hall\",\"priority\":4}\n")
    first.answer(200, "{\"id\":\"x\",\"event\":\"message\",\"topic\":\"alarms\"}")
    sending.run(until: .seconds(60))
    #expect(sending.outcome == .completed)
  }
}
