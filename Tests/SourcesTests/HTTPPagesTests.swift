import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Sources_

/// Pages, cursors, conditions and pauses of `http`.
@Suite struct HTTPPagesTests {
  private static func yaml(_ parameters: String, chain: String = "[]") -> String {
    """
    name: t
    sources:
      answers:
        http: \(parameters)
    signals:
      seen:
        from: answers
        chain: \(chain)
    sinks:
      out: { from: seen, probe: {} }
      lost: { from: answers.errors, chain: [ { map: '[event.code, event.error, event.event]' } ], probe: {} }
    """
  }

  private func pipeline(
    _ parameters: String, chain: String = "[]", restoring state: [UInt8]? = nil,
    _ script: ((Int, ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer?)? = nil
  ) throws -> VirtualPipeline {
    let asking = try VirtualPipeline(Self.yaml(parameters, chain: chain), restoring: state)
    asking.http.script = script
    return asking
  }

  private func urls(_ asking: VirtualPipeline) -> [String] { asking.http.exchanges.map(\.request.url) }

  private func complaints(_ parameters: String) -> [String] {
    PipelineText.complaints(
      "sources: { a: { http: \(parameters) } }\nsinks: { out: { from: a, discard: {} } }")
  }

  // MARK: Pages

  @Test func linksAreFollowedInOrder() throws {
    let asking = try pipeline("{ url: 'http://h.example/v1/items?q=1', pages: { next: link } }") { number, _ in
      let links = [
        #"<https://h.example/other>; rel="prev", </v1/items?page=2>; title="a, b"; rel="last NEXT""#,
        "<?page=3>;rel=next", "</v1/items>; rel=first",
      ]
      return ScriptedHTTP.status(200, "\(number)", [HTTPHeader("Link", links[number])])
    }
    asking.run()
    #expect(
      urls(asking) == [
        "http://h.example/v1/items?q=1", "http://h.example/v1/items?page=2", "http://h.example/v1/items?page=3",
      ])
    #expect(asking.out == ["0s 0", "0s 1", "0s 2", "0s |"])
    #expect(asking.outcome == .completed)
  }

  @Test func aPageIsRequestedOnceTheOneBeforeItHasBeenSent() throws {
    let asking = try pipeline("{ url: 'http://h.example/', decode: ndjson, pages: { next: link } }")
    asking.settle()
    #expect(asking.http.exchanges.count == 1)
    try asking.http.exchanges.item(0).answer(200, "1\n2\n", [HTTPHeader("Link", "</2>; rel=next")])
    asking.settle()
    #expect(asking.out == ["0s 1", "0s 2"])
    #expect(urls(asking) == ["http://h.example/", "http://h.example/2"])
    try asking.http.exchanges.item(1).answer(200, "3\n")
    asking.run()
    #expect(asking.out == ["0s 1", "0s 2", "0s 3", "0s |"])
  }

  @Test(arguments: [
    #"{"items":[1],"next":null}"#, #"{"items":[1]}"#, #"{"items":[1],"next":""}"#,
  ]) func aCursorEndsWhereThereIsNone(_ last: String) throws {
    let asking = try pipeline(
      "{ url: 'http://h.example/?n=5#f', pages: { cursor: 'response.body.?next', parameter: after } }"
    ) { number, _ in
      ScriptedHTTP.status(200, number == 0 ? #"{"items":[0],"next":"a b&ü"}"# : number == 1 ? #"{"next":1.50}"# : last)
    }
    asking.run()
    #expect(
      urls(asking) == [
        "http://h.example/?n=5#f", "http://h.example/?n=5&after=a%20b%26%C3%BC#f", "http://h.example/?n=5&after=1.50#f",
      ])
    #expect(asking.outcome == .completed)
  }

  @Test func numbersAreCountedUntilAPageIsTheLast() throws {
    let asking = try pipeline(
      """
      { url: 'http://h.example/', pages: { page: offset, from: 0, step: 50, until: 'size(response.body) == 0' } }
      """
    ) { number, _ in ScriptedHTTP.status(200, number < 2 ? "[\(number)]" : "[]") }
    asking.run()
    #expect(
      urls(asking) == ["http://h.example/?offset=0", "http://h.example/?offset=50", "http://h.example/?offset=100"])
    #expect(asking.out == ["0s [0]", "0s [1]", "0s []", "0s |"])
  }

  @Test func pagesSayWhichTheyAre() throws {
    let asking = try pipeline(
      "{ url: 'http://h.example/', pages: { page: p, until: 'response.page == 2 && response.status == 200' } }",
      chain: "[ { map: meta.page } ]"
    ) { _, _ in ScriptedHTTP.status(200, "{}") }
    asking.run()
    #expect(asking.out == ["0s 1", "0s 2", "0s |"])
  }

  @Test(arguments: [
    ("<https://h.example/2>; rel=next", "leads to another server, https://h.example:443"),
    ("<http://evil.example/2>; rel=next", "leads to another server, http://evil.example:80"),
    ("<//h.example:81/2>; rel=next", "leads to another server, http://h.example:81"),
    ("<http://u:p@h.example/2>; rel=next", "is not an http or https URL"),
    ("<file:///etc/passwd>; rel=next", "is not an http or https URL"),
    ("<http://h.example\\@evil.example/>; rel=next", ""),
    ("<a b>; rel=next", "contains a space"), ("</>; rel=next", "leads to the same page again"),
  ]) func credentialsGoNowhereElse(_ link: String, _ reason: String) throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s, pages: { next: link } }") { number, _ in
      ScriptedHTTP.status(200, "\(number)", [HTTPHeader("Link", link)])
    }
    asking.run(until: .seconds(11))
    if reason.isEmpty {
      // The host ends before the backslash, for libcurl as for rxd.
      #expect(urls(asking).allSatisfy { $0.hasPrefix("http://h.example") })
      return
    }
    // The page itself is valid; the next poll starts from the first page.
    #expect(asking.out == ["0s 0", "10s 1"])
    #expect(urls(asking) == ["http://h.example/", "http://h.example/"])
    let lost = asking.probe("lost").events
    #expect(lost.count == 2 && lost[0].hasPrefix(#"["RX525","#) && lost[0].contains(reason), "\(lost)")
  }

  @Test func aFailedPageIsRequestedAgainByTheNextPoll() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s, pages: { next: link } }") { number, _ in
      switch number {
      case 0: ScriptedHTTP.status(200, "0", [HTTPHeader("Link", "</2>; rel=next")])
      case 1: .failure(HTTPFailure(.timeout, "no answer"))
      case 2: ScriptedHTTP.status(503, "busy")
      default: ScriptedHTTP.status(200, "\(number)")
      }
    }
    asking.run(until: .seconds(31))
    #expect(
      urls(asking) == [
        "http://h.example/", "http://h.example/2", "http://h.example/2", "http://h.example/2", "http://h.example/",
      ])
    #expect(asking.out == ["0s 0", "20s 3", "30s 4"])
    #expect(
      asking.probe("lost").events == [
        #"["RX525","no answer",""]"#, #"["RX525","GET http://h.example/2 answered 503","busy"]"#,
      ])
  }

  @Test func aPageThatIsGoneStartsAnew() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s, pages: { next: link } }") { number, _ in
      number == 1
        ? ScriptedHTTP.status(410)
        : ScriptedHTTP.status(200, "\(number)", [HTTPHeader("Link", number == 0 ? "</2>; rel=next" : "")])
    }
    asking.run(until: .seconds(11))
    #expect(urls(asking) == ["http://h.example/", "http://h.example/2", "http://h.example/"])
    #expect(asking.probe("lost").events.first?.contains("answered 410; the next poll begins at the first page") == true)
  }

  @Test func aPollHasAtMostSoManyPages() throws {
    let script: (Int, ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer? = { number, _ in
      ScriptedHTTP.status(200, "\(number)", [HTTPHeader("Link", "</\(number + 2)>; rel=next")])
    }
    let endless = try pipeline("{ url: 'http://h.example/1', every: 10s, pages: { next: link, max: 2 } }", script)
    endless.run(until: .seconds(11))
    #expect(urls(endless) == (1...4).map { "http://h.example/\($0)" })
    #expect(endless.out == ["0s 0", "0s 1", "10s 2", "10s 3"])
    let once = try pipeline("{ url: 'http://h.example/1', pages: { next: link, max: 2 } }", script)
    once.run()
    #expect(once.failure?.message == "the answer has more than 2 pages: raise 'max' of 'pages'")
    #expect(once.out.count == 3, "\(once.out)")
  }

  @Test func anExpressionThatFailsKeepsThePage() throws {
    let asking = try pipeline(
      "{ url: 'http://h.example/', every: 10s, pages: { next: response.body.next } }"
    ) { _, _ in ScriptedHTTP.status(200, #"{"a":1}"#) }
    asking.run(until: .seconds(1))
    #expect(asking.out == [#"0s {"a":1}"#])
    #expect(asking.probe("lost").events.first?.contains("next") == true, "\(asking.probe("lost").events)")
    #expect(asking.outcome == nil)
  }

  @Test func anInnerSignalReadsAllPages() throws {
    let asking = try VirtualPipeline(
      """
      sources: { words: { values: [a, b] } }
      signals:
        found:
          from: words
          chain:
            - flattenMap:
                policy: concat
                signal: { from: { http: { url: 'http://h.example/{{ event }}', pages: { page: p, until: 'response.page == 2' } } } }
      sinks: { out: { from: found, probe: {} } }
      """)
    asking.http.script = { number, _ in ScriptedHTTP.status(200, "\(number)") }
    asking.run()
    #expect(
      urls(asking) == [
        "http://h.example/a?p=1", "http://h.example/a?p=2", "http://h.example/b?p=1", "http://h.example/b?p=2",
      ])
    #expect(asking.out == ["0s 0", "0s 1", "0s 2", "0s 3", "0s |"])
  }

  @Test func aSecretInALinkIsNotShown() throws {
    let asking = try VirtualPipeline(
      Self.yaml(
        "{ url: 'http://h.example/x?key=${secret:KEY}', every: 1s, pages: { next: link } }",
        chain: "[ { map: meta.path } ]"),
      secrets: ["KEY": "s3cr3t"])
    asking.http.script = { number, _ in
      number == 0
        ? ScriptedHTTP.status(200, "1", [HTTPHeader("Link", "</s3cr3t?key=s3cr3t&page=2>; rel=next")])
        : .failure(HTTPFailure(.timeout, "late"))
    }
    asking.settle()
    #expect(urls(asking) == ["http://h.example/x?key=s3cr3t", "http://h.example/s3cr3t?key=s3cr3t&page=2"])
    #expect(try asking.http.exchanges.item(1).request.shownURL == "http://h.example/(secret)")
  }

  // MARK: Cursors

  private let since = "cursor: { from: 'response.body.?newest', parameter: since, start: 2020-01-01 }"

  @Test func theCursorComesWithTheLastPage() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s, \(since), pages: { next: link } }") {
      number, _ in
      switch number {
      case 0: ScriptedHTTP.status(200, #"{"newest":7}"#, [HTTPHeader("Link", "</?since=2020-01-01&p=2>; rel=next")])
      case 1: ScriptedHTTP.status(503)
      case 2: ScriptedHTTP.status(200, #"{"newest":9}"#)
      case 3: ScriptedHTTP.status(200, "{}")
      default: ScriptedHTTP.status(200, #"{"newest":null}"#)
      }
    }
    asking.run(until: .seconds(31))
    #expect(
      urls(asking) == [
        "http://h.example/?since=2020-01-01", "http://h.example/?since=2020-01-01&p=2",
        "http://h.example/?since=2020-01-01&p=2", "http://h.example/?since=9", "http://h.example/?since=9",
      ])
  }

  @Test func theFirstPageMayHaveTheNewest() throws {
    let asking = try pipeline(
      """
      { url: 'http://h.example/', every: 10s, pages: { page: p, until: 'response.page == 2' },
        cursor: { from: 'response.page == 1 ? response.body : cursor', parameter: since } }
      """
    ) { number, _ in ScriptedHTTP.status(200, "\(number)") }
    asking.run(until: .seconds(11))
    #expect(
      urls(asking) == [
        "http://h.example/?p=1", "http://h.example/?p=2", "http://h.example/?since=0&p=1",
        "http://h.example/?since=0&p=2",
      ])
  }

  /// A restart continues with the cursor, at the page, after the events already sent.
  @Test func theCursorAndThePageAreSaved() throws {
    let parameters = "{ url: 'http://h.example/', every: 10s, \(since), pages: { next: link } }"
    let first = try pipeline(parameters) { number, _ in
      number == 0
        ? ScriptedHTTP.status(200, #"{"newest":7}"#)
        : number == 1
          ? ScriptedHTTP.status(200, #"{"newest":9}"#, [HTTPHeader("Link", "</?since=7&p=2>; rel=next")]) : nil
    }
    first.run(until: .seconds(12))
    #expect(first.http.open.map(\.request.url) == ["http://h.example/?since=7&p=2"])
    first.inTurn { _ in }
    first.settle()
    let state = try #require(first.execution.saveState())

    let second = try pipeline(parameters, restoring: state) { number, _ in ScriptedHTTP.status(200, "{}") }
    second.run(until: .seconds(9))
    #expect(second.execution.refusals.isEmpty)
    #expect(urls(second) == ["http://h.example/?since=7&p=2", "http://h.example/?since=9"])
  }

  /// Unacknowledged events are requested again, with the earlier cursor.
  @Test func theCursorWaitsForTheSinks() throws {
    let yaml = """
      name: t
      sources: { answers: { http: { url: 'http://h.example/', every: 10s, \(since) } } }
      sinks: { shop: { from: answers, http: 'http://shop.example/' } }
      """
    func restored(_ state: [UInt8]?) throws -> [String] {
      let state: [UInt8] = try #require(state)
      let second = try VirtualPipeline(yaml, restoring: state)
      second.run(until: .seconds(10))
      return Array(urls(second).filter { $0.contains("h.example") }.prefix(1))
    }
    let first = try VirtualPipeline(yaml)
    first.http.script = { _, exchange in
      exchange.request.url.contains("shop") ? nil : ScriptedHTTP.status(200, #"{"newest":7}"#)
    }
    first.run(until: .seconds(1))
    #expect(
      try restored(first.execution.saveState(keeping: { _ in false }, positions: .acknowledged)) == [
        "http://h.example/?since=2020-01-01"
      ])
    #expect(try restored(first.execution.saveState(keeping: { _ in false })) == ["http://h.example/?since=7"])
    first.http.open.first?.answer(200)
    first.settle()
    #expect(
      try restored(first.execution.saveState(keeping: { _ in false }, positions: .acknowledged)) == [
        "http://h.example/?since=7"
      ])
  }

  @Test(arguments: [
    ("{ url: 'http://h.example/?limit=5', every: 5s, ", "http://h.example/?limit=5&since=7"),
    ("{ url: 'http://h.example/other', every: 10s, ", "http://h.example/other?since=2020-01-01"),
  ]) func otherParametersKeepTheCursorOfTheSameURL(_ parameters: String, _ url: String) throws {
    let first = try pipeline("{ url: 'http://h.example/', every: 10s, \(since) }") { number, _ in
      ScriptedHTTP.status(200, #"{"newest":7}"#)
    }
    first.run(until: .seconds(1))
    let state = try #require(first.execution.saveState())
    let second = try pipeline("\(parameters)\(since) }", restoring: state)
    second.settle()
    #expect(second.execution.refusals.isEmpty)
    #expect(urls(second) == [url])
  }

  // MARK: Conditions

  @Test func anUnchangedAnswerIsNoEvent() throws {
    let parameters = "{ url: 'http://h.example/', every: 10s, conditional: true }"
    let asking = try pipeline(parameters) { number, _ in
      switch number {
      case 0:
        ScriptedHTTP.status(
          200, "1", [HTTPHeader("ETag", "\"a\""), HTTPHeader("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")])
      case 1: ScriptedHTTP.status(304)
      case 2: ScriptedHTTP.status(200, "2")
      default: ScriptedHTTP.status(304)
      }
    }
    asking.run(until: .seconds(11))
    asking.inTurn { _ in }
    asking.settle()
    let state = try #require(asking.execution.saveState())
    asking.run(until: .seconds(31))
    #expect(asking.http.exchanges.map { $0.header("If-None-Match") } == [nil, "\"a\"", "\"a\"", nil])
    #expect(try asking.http.exchanges.item(1).header("If-Modified-Since") == "Mon, 01 Jan 2024 00:00:00 GMT")
    #expect(asking.out == ["0s 1", "20s 2"])
    #expect(asking.probe("lost").events.isEmpty)

    let second = try pipeline(parameters, restoring: state)
    second.run(until: .seconds(10))
    #expect(second.http.exchanges.map { $0.header("If-None-Match") } == ["\"a\""])
  }

  @Test func withoutConditionsNoneAreSent() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s }") { number, _ in
      ScriptedHTTP.status(number == 0 ? 200 : 304, "1", [HTTPHeader("ETag", "\"a\"")])
    }
    asking.run(until: .seconds(11))
    #expect(try asking.http.exchanges.item(1).header("If-None-Match") == nil)
    #expect(asking.probe("lost").events.count == 1)
  }

  @Test func conditionsAreThoseOfTheSameURL() throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s, conditional: true, \(since) }") { number, _ in
      ScriptedHTTP.status(200, #"{"newest":\#(min(number, 1))}"#, [HTTPHeader("ETag", "\"\(number)\"")])
    }
    asking.run(until: .seconds(31))
    #expect(asking.http.exchanges.map { $0.header("If-None-Match") } == [nil, nil, nil, "\"2\""])
  }

  /// An unchanged page says nothing about the pages after it.
  @Test func pagesBehindAnUnchangedOneAreAskedFor() throws {
    let parameters = "{ url: 'http://h.example/items', every: 10s, conditional: true, pages: { next: link } }"
    let script: (Int, ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer? = { number, exchange in
      let page = exchange.request.url.last.flatMap { Int(String($0)) } ?? 1
      // In the second poll the third page has a new item, in the third poll nothing is new.
      let version = page == 3 && number >= 3 ? "b" : "a"
      if exchange.header("If-None-Match") == "\"\(version)\(page)\"" { return ScriptedHTTP.status(304) }
      var headers = [HTTPHeader("ETag", "\"\(version)\(page)\"")]
      if page < 3 { headers.append(HTTPHeader("Link", "</items?page=\(page + 1)>; rel=next")) }
      return ScriptedHTTP.status(200, "\"\(version)\(page)\"", headers)
    }
    let asking = try pipeline(parameters, script)
    asking.run(until: .seconds(11))
    asking.inTurn { _ in }
    asking.settle()
    let state = try #require(asking.execution.saveState())
    asking.run(until: .seconds(21))
    #expect(asking.http.exchanges.count == 9)
    #expect(asking.out == [#"0s "a1""#, #"0s "a2""#, #"0s "a3""#, #"10s "b3""#])
    #expect(asking.probe("lost").events.isEmpty)
    // The state has the validators of each page.
    let second = try pipeline(parameters, restoring: state) { number, exchange in script(number + 6, exchange) }
    second.run(until: .seconds(10))
    #expect(second.http.exchanges.map { $0.header("If-None-Match") } == ["\"a1\"", "\"a2\"", "\"b3\""])
    #expect(second.out.isEmpty)
  }

  // MARK: Pauses

  @Test(arguments: [
    (429, [HTTPHeader("Retry-After", "25")], "25s"),
    (503, [HTTPHeader("Retry-After", "Thu, 01 Jan 2026 00:00:25 GMT")], "25s"),
    (200, [HTTPHeader("Retry-After", "25")], "10s"),
    (200, [HTTPHeader("X-RateLimit-Remaining", "0"), HTTPHeader("X-RateLimit-Reset", "1767225625")], "25s"),
    (200, [HTTPHeader("x-ratelimit-remaining", "0"), HTTPHeader("x-ratelimit-reset", "25")], "25s"),
    (200, [HTTPHeader("RateLimit-Remaining", "1"), HTTPHeader("RateLimit-Reset", "25")], "10s"),
    (200, [HTTPHeader("RateLimit", "limit=9, remaining=0, reset=25")], "25s"),
    (200, [HTTPHeader("RateLimit", "\"default\";r=0;t=25")], "25s"),
    (200, [HTTPHeader("RateLimit", "\"default\";r=3;t=25")], "10s"),
    (429, [HTTPHeader("Retry-After", "soon")], "10s"), (429, [HTTPHeader("Retry-After", "0")], "10s"),
    (403, [HTTPHeader("RateLimit-Remaining", "0"), HTTPHeader("RateLimit-Reset", "99999999999999999999")], "3600s"),
  ]) func aPauseIsKept(_ status: Int, _ headers: [HTTPHeader], _ next: String) throws {
    let asking = try pipeline("{ url: 'http://h.example/', every: 10s }") { number, _ in
      number == 0 ? ScriptedHTTP.status(status, "0", headers) : ScriptedHTTP.status(200, "1")
    }
    asking.run(until: .seconds(3601))
    let second = try #require(asking.http.times.dropFirst().first)
    #expect("\(second.nanoseconds / 1_000_000_000)s" == next)
    // The period continues unchanged.
    if next == "25s" { #expect(try asking.http.times.item(2).nanoseconds == 30_000_000_000) }
  }

  @Test func pagesWaitForThePause() throws {
    let asking = try pipeline("{ url: 'http://h.example/', pages: { page: p, until: 'response.page == 3' } }") {
      number, _ in
      ScriptedHTTP.status(
        200, "\(number)",
        number == 0 ? [HTTPHeader("RateLimit-Remaining", "0"), HTTPHeader("RateLimit-Reset", "7")] : [])
    }
    asking.run()
    #expect(asking.out == ["0s 0", "7s 1", "7s 2", "7s |"])
  }

  @Test func aRefusedPageFollowsAfterThePause() throws {
    let asking = try pipeline(
      "{ url: 'http://h.example/', every: 1h, pages: { page: p, until: 'response.page == 3' } }"
    ) { number, _ in
      number == 1
        ? ScriptedHTTP.status(429, "", [HTTPHeader("Retry-After", "9")]) : ScriptedHTTP.status(200, "\(number)")
    }
    asking.run(until: .seconds(100))
    #expect(urls(asking) == ["1", "2", "2", "3"].map { "http://h.example/?p=\($0)" })
    #expect(asking.out == ["0s 0", "9s 2", "9s 3"])
  }

  @Test func aPauseIsSaved() throws {
    let parameters = "{ url: 'http://h.example/', every: 10s }"
    let first = try pipeline(parameters) { _, _ in
      ScriptedHTTP.status(
        200, "0",
        [
          HTTPHeader("RateLimit-Remaining", "0"), HTTPHeader("RateLimit-Reset", "25"),
        ])
    }
    first.run(until: .seconds(12))
    first.inTurn { _ in }
    first.settle()
    let state: [UInt8] = try #require(first.execution.saveState())
    let second = try pipeline(parameters, restoring: state) { _, _ in
      ScriptedHTTP.status(200, "1")
    }
    second.run(until: .seconds(14))
    #expect(second.out == ["13s 1"])
  }

  @Test func aStopDoesNotWaitForAPause() throws {
    let asking = try pipeline("{ url: 'http://h.example/', pages: { page: p, until: 'response.page == 3' } }") { _, _ in
      ScriptedHTTP.status(200, "0", [HTTPHeader("RateLimit", "r=0;t=60")])
    }
    asking.run(until: .seconds(1))
    asking.drain()
    #expect(asking.out == ["0s 0", "1s |"])
    #expect(asking.executor.pendingTimers == 0)
  }

  // MARK: The check

  @Test(arguments: [
    ("pages: {}", "has no way to the next page"),
    ("pages: { next: link, page: p, until: 'true' }", "both 'next' and 'page'"),
    ("pages: { page: p }", "'page' of 'pages' needs 'until'"),
    ("pages: { cursor: response.body.c }", "'cursor' of 'pages' needs 'parameter'"),
    ("pages: { next: link, parameter: p }", "'parameter' of 'pages' has no effect without 'cursor'"),
    ("pages: { next: link, step: 2 }", "'step' of 'pages' has no effect without 'page'"),
    ("pages: { page: '', until: 'true' }", "'page' of 'pages' is empty"),
    ("pages: { page: p, until: response.page }", "is needed here"),
    ("pages: { next: respons.body }", "respons"), ("pages: { next: response.header }", "header"),
    ("pages: { page: q, until: 'true' }", "the URL has the parameter 'q' already"),
    ("every: 1s, cursor: { from: response.page, parameter: p }, pages: { page: p, until: 'true' }", "two parameters"),
    ("cursor: { from: response.page, parameter: p }", "'cursor' of 'http' has no effect without 'every'"),
    ("conditional: true", "'conditional' of 'http' has no effect without 'every'"),
    ("every: 1s, cursor: { from: response.page }", "needs 'parameter'"), ("pages: { next: link, max: 0 }", "max"),
  ]) func mistakesAreFound(_ parameters: String, _ message: String) {
    let found = complaints("{ url: 'http://h.example/?q=1', \(parameters) }")
    #expect(found.contains { $0.contains(message) }, "\(found)")
  }

  @Test(
    arguments: [
      ("http://h/a/b?x=1", "c", "http://h/a/c"), ("http://h", "c", "http://h/c"), ("http://h?x", "?y", "http://h?y"),
      ("http://h/a", "HTTP://H:80/z#f", "HTTP://H:80/z"), ("https://[::1]:5/a", "//[::1]:5/b", "https://[::1]:5/b"),
      ("http://h/a", "x:y", nil), ("http://h/a", "./x:y", "http://h/./x:y"),
    ] as [(String, String, String?)]) func referencesAreResolved(_ base: String, _ reference: String, _ url: String?)
  {
    #expect((try? PageAddress.resolve(reference, against: base).get()) == url)
  }
}
