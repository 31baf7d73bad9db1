import PipelineCore
import PipelineHost
import Testing

@Suite struct HTTPSourceTests {
  private func pipeline(_ parameters: String, chain: String = "[]", random: UInt64 = 0) throws
    -> VirtualPipeline
  {
    try VirtualPipeline(
      """
      sources:
        answers:
          http: \(parameters)
      signals:
        seen:
          from: answers
          chain: \(chain)
      sinks:
        out: { from: seen, probe: {} }
      """, random: random)
  }

  private func complaints(_ parameters: String) -> [String] {
    PipelineText.complaints(
      """
      sources:
        answers:
          http: \(parameters)
      sinks:
        out: { from: answers, discard: {} }
      """)
  }

  @Test func asksOnceAndCompletes() throws {
    let asking = try pipeline(
      "http://127.0.0.1:1/status?key=secret", chain: "[ { map: '[event.a, meta.status, meta.path]' } ]")
    asking.settle()
    #expect(asking.http.exchanges.count == 1)
    let exchange = try #require(asking.http.exchanges.first)
    #expect(exchange.request.method == "GET")
    #expect(exchange.request.url == "http://127.0.0.1:1/status?key=secret")
    #expect(exchange.request.body == nil)
    exchange.answer(200, #"{"a":1}"#)
    asking.run()
    #expect(asking.out == [#"0s [1,200,"http://127.0.0.1:1/status"]"#, "0s |"])
    #expect(asking.outcome == .completed)
    #expect(asking.counters.received == 1)
  }

  @Test func handsOnItsLimits() throws {
    let asking = try pipeline(
      """
      { url: 'https://h.example/', method: HEAD, timeout: 2s, connectTimeout: 1s, redirects: 3,
        maxResponse: 5KiB, proxy: 'http://p.example:1', auth: { bearer: t }, tls: { ca: /ca.pem } }
      """)
    asking.settle()
    let request = try #require(asking.http.exchanges.first).request
    #expect(request.method == "HEAD")
    #expect(request.options.timeout == .seconds(2))
    #expect(request.options.connectTimeout == .seconds(1))
    #expect(request.options.maxRedirects == 3)
    #expect(request.options.maxResponseBytes == 5 << 10)
    #expect(request.options.proxy == "http://p.example:1")
    #expect(request.options.auth == .bearer(Secret("t")))
    #expect(request.options.tls.caFile == "/ca.pem")
  }

  @Test func asksAgainAndAgain() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s }")
    asking.http.script = { number, _ in ScriptedHTTP.status(200, "\(number)") }
    asking.run(until: .seconds(35))
    #expect(asking.out == ["0s 0", "10s 1", "20s 2", "30s 3"])
  }

  @Test func canWaitOnePeriodFirst() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s, immediate: false }")
    asking.http.script = { number, _ in ScriptedHTTP.status(200, "\(number)") }
    asking.run(until: .seconds(25))
    #expect(asking.out == ["10s 0", "20s 1"])
  }

  @Test func jitterIsLateWithoutDrift() throws {
    // Half of the range.
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s, jitter: 4s }", random: 1 << 63)
    asking.http.script = { number, _ in ScriptedHTTP.status(200, "\(number)") }
    asking.run(until: .seconds(33))
    #expect(asking.out == ["0s 0", "12s 1", "22s 2", "32s 3"])
  }

  @Test func isNotOvertaken() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s }")
    asking.run(until: .seconds(25))
    #expect(asking.http.exchanges.count == 1)
    asking.http.exchanges[0].answer(200, "1")
    asking.run(until: .seconds(45))
    #expect(asking.http.times.map(\.nanoseconds) == [0, 30_000_000_000])
  }

  @Test(arguments: [199, 204, 299, 300, 304, 404, 503])
  func onlySuccessIsAnAnswer(_ status: Int) throws {
    let asking = try pipeline("{ url: 'http://h.example/x?key=1', decode: text }")
    asking.http.script = { _, _ in ScriptedHTTP.status(status, "t") }
    asking.run()
    if (200..<300).contains(status) {
      #expect(asking.out == [#"0s "t""#, "0s |"])
    } else {
      #expect(asking.failure?.message == "GET http://h.example/x answered \(status)")
      #expect(asking.failure?.details == [.init("status", Int64(status))])
      #expect(asking.failure?.location?.line == 3)
    }
  }

  @Test func anEmptyAnswerHasNoEvents() throws {
    let asking = try pipeline("http://h.example/")
    asking.http.script = { _, _ in ScriptedHTTP.status(204) }
    asking.run()
    #expect(asking.out == ["0s |"])
    #expect(asking.counters.rejected == 0)
  }

  @Test func theStatusIsThereToCatch() throws {
    let asking = try pipeline(
      "http://h.example/", chain: "[ { catch: { value: '[error.kind, error.status]' } } ]")
    asking.http.script = { _, _ in ScriptedHTTP.status(418) }
    asking.run()
    #expect(asking.out == [#"0s ["source",418]"#, "0s |"])
  }

  @Test func aBrokenConnectionFailsTheSignal() throws {
    let asking = try pipeline("http://h.example/")
    asking.http.script = { _, _ in .failure(HTTPFailure(.connect, "cannot connect to h.example")) }
    asking.run()
    #expect(asking.failure?.message == "cannot connect to h.example")
    #expect(asking.failure?.location?.line == 3)
  }

  @Test func retryAsksAgain() throws {
    let asking = try pipeline("http://h.example/", chain: "[ { retry: { count: 2, delay: 1s } } ]")
    asking.http.script = { number, _ in ScriptedHTTP.status(number < 2 ? 503 : 200, "7") }
    asking.run()
    #expect(asking.out == ["2s 7", "2s |"])
    #expect(asking.http.exchanges.count == 3)
  }

  @Test func cancellingEndsTheRequest() throws {
    let asking = try pipeline("http://h.example/", chain: "[ { timeout: 5s }, { catch: { value: '0' } } ]")
    asking.run()
    #expect(asking.out == ["5s 0", "5s |"])
    #expect(asking.http.exchanges[0].isCancelled)
  }

  @Test func drainingWaitsForWhatIsUnderWay() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s }")
    asking.run(until: .seconds(1))
    asking.drain()
    #expect(asking.out == [])
    #expect(asking.outcome == nil)
    asking.http.exchanges[0].answer(200, "1")
    asking.run()
    #expect(asking.out == ["1s 1", "1s |"])
    #expect(asking.http.exchanges.count == 1)
    #expect(asking.executor.pendingTimers == 0)
  }

  @Test func drainingBetweenRequestsEndsAtOnce() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s }")
    asking.http.script = { _, _ in ScriptedHTTP.status(200, "1") }
    asking.run(until: .seconds(1))
    asking.drain()
    #expect(asking.out == ["0s 1", "1s |"])
  }

  // MARK: Templates

  private func inner(_ parameters: String, events: String) throws -> VirtualPipeline {
    let asking = try VirtualPipeline(
      """
      sources:
        words: { values: \(events) }
      signals:
        answers:
          from: words
          chain:
            - flattenMap:
                signal:
                  from:
                    http: \(parameters)
      sinks:
        out: { from: answers, probe: {} }
      """)
    asking.http.script = { _, _ in ScriptedHTTP.status(200, "1") }
    asking.run()
    return asking
  }

  @Test func fillsInURLHeadersAndBody() throws {
    let asking = try inner(
      """
      { url: 'http://h.example/find/{{ urlEncode(event.q) }}?n={{ event.n }}', method: POST,
                              headers: { X-Query: '<{{ event.q }}>', Fixed: f }, body: '{"q":"{{ event.q }}"}' }
      """, events: "[ { q: 'a b/ü&', n: 2 } ]")
    let request = try #require(asking.http.exchanges.first).request
    #expect(request.url == "http://h.example/find/a%20b%2F%C3%BC%26?n=2")
    #expect(request.headers == [HTTPHeader("X-Query", "<a b/ü&>"), HTTPHeader("Fixed", "f")])
    #expect(asking.http.exchanges[0].body == #"{"q":"a b/ü&"}"#)
  }

  @Test(arguments: [
    (#"["a b"]"#, "space or control character"), (#"["a\nb"]"#, "space or control character"),
    (#"["a\u007fb"]"#, "space or control character"), (#"[".."]"#, "climbs up"),
    (#"["x/../../etc"]"#, "climbs up"), (#"["%2e%2E"]"#, "climbs up"), (#"[".%2e"]"#, "climbs up"),
  ])
  func refusesURLsThatEventsBend(_ events: String, _ reason: String) throws {
    let asking = try inner("'http://h.example/base/{{ event }}'", events: events)
    #expect(asking.http.exchanges.isEmpty)
    #expect(asking.failure?.message.contains(reason) == true, "\(String(describing: asking.failure))")
    #expect(asking.failure?.location?.line == 10)
  }

  @Test(arguments: ["a..b", "...", "..a", "q?x=/../"])
  func dotsAreNoHarmElsewhere(_ word: String) throws {
    let asking = try inner("'http://h.example/base/{{ event }}'", events: "['\(word)']")
    #expect(asking.http.exchanges.first?.request.url == "http://h.example/base/\(word)")
  }

  @Test func refusesHeadersWithLineBreaks() throws {
    let asking = try inner(
      "{ url: 'http://h.example/', headers: { X: '{{ event }}' } }", events: #"["a\r\nEvil: 1"]"#)
    #expect(asking.http.exchanges.isEmpty)
    #expect(asking.failure?.message.contains("'X' would hold a line break") == true)
  }

  @Test(arguments: [
    ("'http://{{ event.host }}/x'", "the host of a URL must be written out"),
    ("'http://h{{ event }}'", "the host of a URL must be written out"),
    ("'{{ event }}'", "the scheme and host of a URL must be written out"),
    ("'ftp://h.example/'", "is neither"), ("'file:///etc/passwd'", "is neither"),
    ("'h.example/x'", "is neither"), ("'http:///x'", "the URL has no host"),
    ("{ url: 'http://h.example/', every: 0s }", "every"),
    ("{ url: 'http://h.example/', method: TRACE }", "TRACE"),
    ("{ url: 'http://h.example/', decode: jsno }", "there is no decoder 'jsno'"),
    ("{ url: 'http://h.example/', redirects: 99 }", "redirects"),
    ("{ method: GET }", "url"),
    ("{ url: 'http://h.example/{{ event. }}' }", ""),
  ])
  func refusesAtCheckTime(_ parameters: String, _ reason: String) {
    let found = complaints(parameters)
    #expect(found.count == 1, "\(found)")
    #expect(found.first?.contains(reason) == true || reason.isEmpty, "\(found)")
    #expect(found.first?.hasPrefix("3:") == true, "\(found)")
  }

  // MARK: Bodies

  @Test(arguments: [
    ("json", #"{"a":1}"#, [#"{"a":1}"#]),
    ("json", "{\"a\":1}\n{\"a\":2}\n", [#"{"a":1}"#, #"{"a":2}"#]),
    ("json", " [1,\n 2] ", ["[1,2]"]),
    ("ndjson", "1\n\"b\"\n", ["1", #""b""#]),
    ("csv", "a,b\r\n1,\"x\ny\"\r\n", [#"{"a":"1","b":"x\ny"}"#]),
    ("{ csv: { header: false, types: infer } }", "1,2\n", ["[1,2]"]),
    ("text", "one\ntwo\n", [#""one\ntwo\n""#]), ("lines", "one\ntwo", [#""one""#, #""two""#]),
    ("logfmt", "a=1 b=\"c d\"\n", [#"{"a":"1","b":"c d"}"#]),
  ])
  func decodesBodies(_ decode: String, _ body: String, _ expected: [String]) throws {
    let asking = try pipeline("{ url: 'http://h.example/', decode: \(decode) }")
    asking.http.script = { _, _ in ScriptedHTTP.status(200, body) }
    asking.run()
    let compact = asking.probe().events.map { $0.replacing(",\n ", with: ",") }
    #expect(compact == expected)
    #expect(asking.counters.received == UInt64(expected.count))
  }

  @Test func badDocumentsAreSetAsideAlone() throws {
    let asking = try VirtualPipeline(
      """
      sources:
        answers:
          http: { url: 'http://h.example/list', decode: ndjson }
      sinks:
        out: { from: answers, probe: {} }
        bad: { from: answers.errors, probe: {} }
      """)
    asking.http.script = { _, _ in ScriptedHTTP.status(200, "{\"a\":1}\n{\"a\":\n{\"a\":3}\n") }
    asking.run()
    #expect(asking.probe().events == [#"{"a":1}"#, #"{"a":3}"#])
    let bad = asking.probe("bad").events
    #expect(bad.count == 1)
    for part in [#""offset":8"#, #""path":"http://h.example/list""#, #""source":"answers""#, #""event":"{\"a\":""#] {
      #expect(bad.first?.contains(part) == true, "\(bad)")
    }
    #expect(
      asking.counters
        == {
          var c = Execution.Counters()
          c.received = 3
          c.rejected = 1
          c.sent = 3
          return c
        }())
    #expect(asking.outcome == .completed)
  }
}
