import PipelineCore
import PipelineHost
import PipelineTestSupport
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
    // Jitter of half the range.
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s, jitter: 4s }", random: 1 << 63)
    asking.http.script = { number, _ in ScriptedHTTP.status(200, "\(number)") }
    asking.run(until: .seconds(33))
    #expect(asking.out == ["0s 0", "12s 1", "22s 2", "32s 3"])
  }

  @Test func isNotOvertaken() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s }")
    asking.run(until: .seconds(25))
    #expect(asking.http.exchanges.count == 1)
    try asking.http.exchanges.item(0).answer(200, "1")
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
    #expect(try asking.http.exchanges.item(0).isCancelled)
  }

  @Test func drainingWaitsForWhatIsUnderWay() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s }")
    asking.run(until: .seconds(1))
    asking.drain()
    #expect(asking.out == [])
    #expect(asking.outcome == nil)
    try asking.http.exchanges.item(0).answer(200, "1")
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

  // Makes a request for each of `events`; `lost` receives code, reason and event of refused ones.

  /// An event before it and one after it are requested.
  private func inner(_ parameters: String, events: String, onError: String = "") throws -> VirtualPipeline {
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
                    \(onError)
      sinks:
        out: { from: answers, probe: {} }
        lost: { from: answers.errors, chain: [ { map: '[event.code, event.error, event.event, event.at]' } ], probe: {} }
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
    #expect(try asking.http.exchanges.item(0).body == #"{"q":"a b/ü&"}"#)
  }

  @Test(arguments: [
    (#"["a b"]"#, "space or control character"), (#"["a\nb"]"#, "space or control character"),
    (#"["a\u007fb"]"#, "space or control character"), (#"[".."]"#, "leaves its directory"),
    (#"["x/../../etc"]"#, "leaves its directory"), (#"["%2e%2E"]"#, "leaves its directory"),
    (#"[".%2e"]"#, "leaves its directory"),
    (#"["%2e%2e%2f"]"#, "leaves its directory"), (#"["..%2fetc"]"#, "leaves its directory"),
    (#"["a%2F.%2e%2Fb"]"#, "leaves its directory"),
    (#"["%252e%252e%252f"]"#, "leaves its directory"), (#"["..%5Cetc"]"#, "leaves its directory"),
    (#"["..\\\\etc"]"#, "leaves its directory"),
    (#"["..;x=1/etc"]"#, "leaves its directory"), (#"["a?admin=1"]"#, "'?' would end the path"),
    (#"["a#b"]"#, "'#' would end the path"), (#"["a?x=/../"]"#, "'?' would end the path"),
  ])
  func anEventThatBendsTheURLIsRejectedAlone(_ events: String, _ reason: String) throws {
    // Without a path, event data can be neither host nor path.
    let asking = try inner(
      "'http://h.example/base/{{ raw(event) }}'", events: "[one, " + events.dropFirst().dropLast() + ", two]")
    #expect(asking.http.exchanges.map(\.request.url) == ["http://h.example/base/one", "http://h.example/base/two"])
    let lost = asking.probe("lost").events
    #expect(lost.count == 1)
    #expect(lost.first?.hasPrefix(#"["RX524","#) == true && lost.first?.contains(reason) == true, "\(lost)")
    #expect(lost.first?.contains("test.yaml:10:") == true, "\(lost)")
    #expect(asking.probe().events == ["1", "1"])
    #expect(asking.outcome == .completed)
    #expect(asking.counters.rejected == 1)
  }

  @Test(arguments: [
    ("a..b", "{{ event }}"), ("...", "{{ event }}"), ("..a", "{{ event }}"), ("a/b", "{{ event }}"),
    ("a%3Fb%23c", "{{ event }}"), ("/../?x=..", "?q={{ event }}"), ("", "{{ event }}/../x"), ("b", "../{{ event }}"),
    ("a&b=c", "x?q={{ event }}"), ("#..", "x?q=1#{{ event }}"),
  ])
  func whatStaysInItsPlaceIsSent(_ word: String, _ template: String) throws {
    let asking = try inner(
      "'http://h.example/base/\(template.replacing("{{ event }}", with: "{{ raw(event) }}"))'", events: "['\(word)']")
    #expect(
      asking.http.exchanges.first?.request.url
        == "http://h.example/base/\(template.replacing("{{ event }}", with: word))")
  }

  @Test func aQueryStaysAQuery() throws {
    let asking = try inner("'http://h.example/?q={{ raw(event) }}'", events: "['a#b']")
    #expect(asking.http.exchanges.isEmpty)
    #expect(asking.probe("lost").events.first?.contains("'#' would end the query") == true)
    // An inserted expression is one value, unless the file says otherwise.
    let bare = try inner("'http://h.example?q={{ raw(event) }}'", events: "['/x?y/../z']")
    #expect(bare.http.exchanges.map(\.request.url) == ["http://h.example?q=/x?y/../z"])
  }

  /// Dot segments formed by the file and the event together.
  @Test(arguments: [
    ("?q={{ event }}", "a&admin=1", "?q=a%26admin%3D1"), ("?q={{ raw(event) }}", "a&admin=1", "?q=a&admin=1"),
    ("?q={{ urlEncode(event) }}", "a&admin=1", "?q=a%26admin%3D1"), ("?q=x&{{ event }}=1", "a=b c", "?q=x&a%3Db%20c=1"),
    ("{{ event }}/x", "a/b?c#d", "a%2Fb%3Fc%23d/x"), ("{{ event }}", "50%", "50%25"), ("{{ event }}", "ü", "%C3%BC"),
    ("{{ formatTime(timestamp(event), '%Y/%m/%d') }}", "2026-11-27T00:00:00Z", "2026/11/27"),
    ("?t={{ formatTime(timestamp(event), '%F %T') }}", "2026-11-27T00:00:00Z", "?t=2026-11-27%2000%3A00%3A00"),
    ("{{ event == 'a' ? 'x/y' : urlEncode(event) }}", "b/c", "b%2Fc"),
    ("{{ event == 'a' ? 'x/y' : urlEncode(event) }}", "a", "x/y"),
    ("?q={{ event }}#{{ event }}", "a#b", "?q=a%23b#a%23b"), ("{{ size(event) }}", "abc", "3"),
    ("?q={{ [event, '&'] }}", "x", "?q=%5B%22x%22%2C%22%26%22%5D"),
  ])
  func whatIsInsertedIsEncodedForItsPlace(_ template: String, _ word: String, _ url: String) throws {
    let asking = try inner("\"http://h.example/\(template)\"", events: "[\"\(word)\"]")
    #expect(asking.http.exchanges.map(\.request.url) == ["http://h.example/\(url)"], "\(asking.probe("lost").events)")
  }

  @Test func whatWouldBeEncodedTwiceIsAWarning() {
    func warnings(_ url: String) -> [String] {
      PipelineText.remarks(
        "sources: { a: { stdin: {} } }\nsinks: { out: { from: a, http: { url: \"http://h/\(url)\" } } }")
    }
    #expect(warnings("{{ urlEncode(event) + '-' + event }}").contains { $0.contains("is encoded again") })
    for url in ["{{ urlEncode(event) }}", "{{ urlEncode(event) + '-x' }}", "{{ event }}", "{{ raw(event) }}"] {
      #expect(warnings(url) == [], "\(url)")
    }
  }

  /// Dots that the file and the event make together.
  @Test(arguments: [
    (".{{ event }}", "."), ("{{ event }}{{ event }}", "."), ("%2{{ event }}", "e%2e"), (".{{ event }}/x", "%2e"),
  ])
  func dotsThatBothMake(_ template: String, _ word: String) throws {
    let asking = try inner(
      "'http://h.example/base/\(template.replacing("{{ event }}", with: "{{ raw(event) }}"))'", events: "['\(word)']")
    #expect(asking.http.exchanges.isEmpty)
    #expect(asking.probe("lost").events.count == 1)
  }

  /// Random texts in a path: every requested URL is below the part that the file writes.
  @Test(arguments: 1...8, ["event", "raw(event)"]) func noEventLeavesItsPlace(_ seed: UInt64, _ form: String) throws {
    var random = SplitMix(seed)
    let pieces = [
      "..", ".", "/", "%2e", "%2E", "%2f", "%5c", "\\\\", "%25", "2e", "2f", ";", "?", "#", "a", "%", "%3f", "//",
    ]
    let words = (0..<60).map { _ in (0..<(1 + random.below(5))).map { _ in random.pick(pieces) }.joined() }
    let asking = try inner(
      "'http://h.example/base/{{ \(form) }}/end?fixed=1'",
      events: "[\(words.map { "\"\($0)\"" }.joined(separator: ", "))]")
    for url in asking.http.exchanges.map(\.request.url) {
      #expect(url.hasPrefix("http://h.example/base/") && url.hasSuffix("/end?fixed=1"))
      #expect(url.count { $0 == "?" } == 1 && !url.contains("#"), "\(url)")
      var path = String(url.dropFirst("http://h.example".count).prefix { $0 != "?" })
      for _ in 0..<6 {
        var depth = 0
        for segment in path.split(whereSeparator: { $0 == "/" || $0 == "\\" }) {
          depth += segment.prefix { $0 != ";" } == ".." ? -1 : segment == "." ? 0 : 1
          #expect(depth > 0, "\(url)")
        }
        path.replace(/%([0-9a-fA-F]{2})/) { String(UnicodeScalar(UInt8($0.1, radix: 16) ?? 0)) }
      }
    }
    #expect(asking.http.exchanges.count + asking.probe("lost").events.count == words.count)
    #expect(!asking.http.exchanges.isEmpty && asking.outcome == .completed)
  }

  @Test func anEventWithoutTheFieldIsRejectedAlone() throws {
    let asking = try inner("'http://h.example/{{ event.id }}'", events: "[ { id: 1 }, { no: 2 }, { id: 3 } ]")
    #expect(asking.http.exchanges.map(\.request.url) == ["http://h.example/1", "http://h.example/3"])
    #expect(asking.probe("lost").events.first?.hasPrefix(#"["RX503","#) == true, "\(asking.probe("lost").events)")
    #expect(asking.outcome == .completed)
  }

  @Test func anEventMayEndTheSignalOnRequest() throws {
    let asking = try inner("'http://h.example/{{ raw(event) }}'", events: "['a b', c]", onError: "onError: fail")
    #expect(asking.failure?.message.contains("space") == true, "\(String(describing: asking.outcome))")
    #expect(asking.failure?.location?.line == 10)
  }

  @Test func refusesHeadersWithLineBreaks() throws {
    let asking = try inner(
      "{ url: 'http://h.example/', headers: { X: '{{ event }}' } }", events: #"["a\r\nEvil: 1"]"#)
    #expect(asking.http.exchanges.isEmpty)
    #expect(asking.probe("lost").events.first?.contains("'X' would contain a line break") == true)
    #expect(asking.outcome == .completed)
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
    ("{ url: 'http://h.example/{{ event. }}' }", "expected the name of a field or method"),
    ("'http://h example/'", "contains a space"), ("'http://u:secret@h.example/'", "contains a password"),
    ("'http://u@h.example/'", "contains a user name"), ("'http://h.example:0/'", "port"),
    ("'http://h.example:65536/'", "port"), ("'http://h.example:8o/{{ event }}'", "port"),
    ("'http://[::1/'", "no closing ]"), ("'http://[::g]/'", "not an IPv6 address"),
    ("'http://[::1]x/'", "other than a port"),
    ("'http://a..b/'", "not a host name"), ("'http://h|x/'", "not a host name"), ("'http://.h/'", "not a host name"),
    ("'http://169.254.169.254/'", "link-local"), ("'http://[fe80::1]/'", "link-local"),
    ("'http://2852039166/{{ event }}'", "link-local"), ("'http://0xa9.0xfe.0251.254/'", "link-local"),
    ("'http://169.254.169.254./'", "link-local"), ("'http://256.1.1.1/'", "not an IPv4 address"),
    ("'http://-a.example/'", "not a host name"), ("'http://bücher.example/'", "outside ASCII"),
    ("'http://h.example/%zz'", "hexadecimal"), ("{ url: 'http://h.example/', proxy: 'ftp://p:1' }", "http://"),
    ("{ url: 'http://h.example/', proxy: 'http://u:secret@p:1' }", "password"),
    ("{ url: 'http://h.example/', proxy: 'http://p:99999' }", "port"),
    ("{ url: 'http://h.example/', proxy: 'http://169.254.1.1:1' }", "link-local"),
    ("'http://[::ffff:169.254.169.254]/'", "link-local"), ("'http://0.0.0.0/'", "link-local"),
    ("{ url: 'http://h.example/', headers: { Content-Length: '5' } }", "cannot be set"),
    ("{ url: 'http://h.example/', headers: { 'X Y': a } }", "not a valid header name"),
    ("{ url: 'http://h.example/', headers: { 'X': \"a\\nb\" } }", "line break"),
    ("{ url: 'http://h.example/', headers: { authorization: a }, auth: { bearer: b } }", "'auth' sets"),
  ])
  func refusesAtCheckTime(_ parameters: String, _ reason: String) {
    // A top-level source has no event, which is reported too.
    let found = complaints(parameters).filter { !$0.hasSuffix("there is nothing called 'event' here") }
    #expect(found.count == 1, "\(found)")
    #expect(found.first?.contains(reason) == true, "\(found)")
    #expect(found.first?.hasPrefix("3:") == true, "\(found)")
    #expect(!"\(found)".contains("secret"), "\(found)")
  }

  @Test(arguments: [
    "http://h.example", "http://h.example:/x", "https://h_1.example.:8443/?a=b#c", "http://[::1]:80/",
    "http://127.0.0.1:1",
    "http://2130706433/", "http://xn--bcher-kva.example/ü", "http://h.example/%C3%BC", "http://10.0.0.1?x",
    "http://1.example/", "http://a/@b:c",
    "HTTP://H/",
  ])
  func acceptsURLs(_ url: String) { #expect(complaints("'\(url)'").isEmpty) }

  // MARK: Failures

  private let down = HTTPFailure(.connect, "cannot connect to h.example:80: Connection refused")

  @Test func aFailedPollGoesToTheErrorsAndTheNextOneComes() throws {
    let asking = try VirtualPipeline(
      """
      sources: { answers: { http: { url: 'http://h.example/x?key=1', every: 10s } } }
      sinks:
        out: { from: answers, probe: {} }
        lost:
          from: answers.errors
          chain: [ { map: '[event.code, event.error, event.event, event.path, event.at, meta.?status.orValue(0)]' } ]
          probe: {}
      """)
    asking.http.script = { [down] number, _ in
      switch number {
      case 1: ScriptedHTTP.status(500, "out of order")
      case 2: .failure(down)
      default: ScriptedHTTP.status(200, "\(number)")
      }
    }
    asking.run(until: .seconds(35))
    #expect(asking.out == ["0s 0", "30s 3"])
    #expect(
      asking.probe("lost").timeline == [
        #"10s ["RX525","GET http://h.example/x answered 500","out of order","http://h.example/x","test.yaml:1:23",500]"#,
        #"20s ["RX525","cannot connect to h.example:80: Connection refused","","http://h.example/x","test.yaml:1:23",0]"#,
      ])
    #expect(asking.counters.received == 4 && asking.counters.rejected == 2)
    asking.drain()
    #expect(asking.outcome == .completed)
  }

  @Test func aPollThatFailsWhileItIsStoppedEnds() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s }")
    asking.settle()
    asking.drain()
    try asking.http.exchanges.item(0).answer(500)
    asking.settle()
    #expect(asking.outcome == .completed)
    #expect(asking.deadLetters.count == 1)
    #expect(asking.executor.pendingTimers == 0)
  }

  @Test func aFailedPollMayEndTheSignal() throws {
    let asking = try VirtualPipeline(
      """
      sources: { answers: { http: { url: 'http://h.example/', every: 10s }, onError: fail } }
      signals: { seen: { from: answers, chain: [ { catch: { value: error.status } } ] } }
      sinks: { out: { from: seen, probe: {} } }
      """)
    asking.http.script = { _, _ in ScriptedHTTP.status(503) }
    asking.run()
    #expect(asking.out == ["0s 503", "0s |"])
  }

  /// Neither `retry` nor `every` repeats it.
  @Test(arguments: ["http://h.example/", "{ url: 'http://h.example/', every: 1s }"])
  func withoutTheLibraryThePipelineEnds(_ parameters: String) throws {
    let asking = try pipeline(parameters, chain: "[ { retry: { delay: 1s } }, { catch: { value: '0' } } ]")
    asking.http.script = { _, _ in .failure(HTTPFailure(.unavailable, "libcurl.so.4 is missing")) }
    asking.run()
    #expect(asking.failure?.message == "libcurl.so.4 is missing")
    #expect(asking.failure?.location?.line == 3)
    #expect(asking.http.exchanges.count == 1)
  }

  @Test func aRetryOfADeadEndpointIsInTheLog() throws {
    let asking = try pipeline("http://h.example/", chain: "[ { retry: { delay: 1s } } ]")
    asking.http.script = { [down] number, _ in number < 100 ? .failure(down) : ScriptedHTTP.status(200, "1") }
    asking.run()
    #expect(asking.out == ["1m40s 1", "1m40s |"])
    let line = "warning seen/retry: cannot connect to h.example:80: Connection refused; trying again"
    #expect(asking.log == [line, line + " (and 59 times before)"])
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
          c.sent = 2
          return c
        }())
    #expect(asking.outcome == .completed)
  }
}
