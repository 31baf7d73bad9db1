import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// The presets that notify people, against answers in the format that their servers document.
@Suite struct AlertPresetTests {
  private func sending(_ use: String, events: String, secrets: [String: String] = [:]) throws -> VirtualPipeline {
    try VirtualPipeline(
      """
      sources: { events: { values: \(events) } }
      sinks:
        shop: { from: events, \(use) }
        refused: { from: shop.errors, chain: [ { map: '[event.event, event.error]' } ], probe: {} }
      """, random: .max, secrets: secrets)
  }

  @Test func slackSaysWhenToContinue() throws {
    let sending = try sending(
      "use: slack, with: { url: 'https://hooks.slack.com/services/T/B/x', message: \"'n is ' + string(event.n)\" }",
      events: "[{ n: 1 }]")
    sending.settle()
    #expect(try sending.http.exchanges.item(0).body == "{\"text\":\"n is 1\"}\n")
    try sending.http.exchanges.item(0).answer(429, "rate_limited", [HTTPHeader("Retry-After", "30")])
    sending.run(until: .seconds(29))
    #expect(sending.http.exchanges.count == 1)
    sending.run(until: .seconds(31))
    #expect(sending.http.exchanges.count == 2)
    try sending.http.exchanges.item(1).answer(200, "ok")
    sending.run()
    #expect(sending.outcome == .completed)
  }

  @Test func aTextOrAnythingElseIsAMessage() throws {
    let sending = try sending(
      "use: slack, with: { url: 'https://hooks.slack.com/x' }", events: "[hello, { n: 1 }]")
    sending.http.script = { _, _ in ScriptedHTTP.status(200, "ok") }
    sending.run()
    #expect(sending.http.bodies == ["{\"text\":\"hello\"}\n", "{\"text\":\"{\\\"n\\\":1}\"}\n"])
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

  // MARK: Telegram

  @Test func telegramSaysInItsBodyWhenToContinue() throws {
    let sending = try sending(
      "use: telegram, with: { token: '${secret:bot}', chat: -100123, text: \"'n is ' + string(event.n)\", parseMode: \"'HTML'\" }",
      events: "[{ n: 1 }, { n: 2 }]", secrets: ["bot": "12:ABC"])
    sending.settle()
    let first = try #require(sending.http.exchanges.first)
    #expect(first.request.url == "https://api.telegram.org/bot12:ABC/sendMessage")
    #expect(first.request.shownURL == "https://api.telegram.org/bot(secret)/sendMessage")
    #expect(first.body == "{\"chat_id\":-100123,\"text\":\"n is 1\",\"parse_mode\":\"HTML\"}\n")
    first.answer(
      429,
      #"{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 35","parameters":{"retry_after":35}}"#
    )
    sending.run(until: .seconds(34))
    #expect(sending.http.exchanges.count == 1)
    sending.run(until: .seconds(36))
    #expect(sending.http.exchanges.count == 2)
    #expect(try sending.http.exchanges.item(1).body == first.body)
    try sending.http.exchanges.item(1).answer(200, #"{"ok":true,"result":{"message_id":1}}"#)
    sending.settle()
    #expect(sending.http.exchanges.count == 3)
    try sending.http.exchanges.item(2).answer(
      400, #"{"ok":false,"error_code":400,"description":"Bad Request: message is too long"}"#)
    sending.run()
    #expect(sending.outcome == .completed)
    let refused = sending.probe("refused").events
    #expect(refused.count == 1)
    #expect(refused.first?.hasPrefix("[{\"n\":2},") == true)
    #expect(refused.first?.contains("Bad Request: message is too long") == true)
    #expect(!sending.log.joined().contains("ABC"))
  }

  // MARK: PagerDuty

  @Test func pagerdutyOpensAndClosesAnIncident() throws {
    let sending = try sending(
      """
      use: pagerduty, with: { key: '${secret:pd}', dedupKey: "event.host + '/' + event.check", source: event.host, \
      action: "event.ok ? 'resolve' : 'trigger'", summary: "event.check + ' of ' + event.host", severity: "'critical'", component: event.check }
      """, events: "[{ host: a, check: disk, ok: false }, { host: a, check: disk, ok: true }]",
      secrets: ["pd": "R0UT1NG"])
    sending.settle()
    let first = try #require(sending.http.exchanges.first)
    #expect(first.request.url == "https://events.pagerduty.com/v2/enqueue")
    #expect(
      first.body == """
        {"routing_key":"R0UT1NG","event_action":"trigger","dedup_key":"a/disk","payload":{"summary":"disk of a","source":"a",\
        "severity":"critical","timestamp":"2026-01-01T00:00:00Z","component":"disk",\
        "custom_details":{"host":"a","check":"disk","ok":false}}}

        """)
    // Too many requests: the same event again.
    first.answer(
      429, "{\"status\":\"throttle exceeded\",\"message\":\"Requests for this service are arriving too quickly\"}")
    sending.run(until: .seconds(30))
    #expect(sending.http.exchanges.count == 2)
    #expect(try sending.http.exchanges.item(1).body == first.body)
    try sending.http.exchanges.item(1).answer(
      202, #"{"status":"success","message":"Event processed","dedup_key":"a/disk"}"#)
    sending.settle()
    #expect(sending.http.exchanges.count == 3)
    #expect(try sending.http.exchanges.item(2).body.contains("\"event_action\":\"resolve\",\"dedup_key\":\"a/disk\""))
    try sending.http.exchanges.item(2).answer(
      400, #"{"status":"invalid event","message":"Event object is invalid","errors":["'payload.severity' is invalid"]}"#
    )
    sending.run()
    #expect(sending.outcome == .completed)
    let refused = sending.probe("refused").events
    #expect(refused.count == 1)
    #expect(refused.first?.contains("\"ok\":true") == true)
    #expect(refused.first?.contains("payload.severity") == true)
  }
}
