import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing
import Transport

/// `httpServer` and `reply` together, used by the real client on loopback.
@Suite struct ReplyTests {
  private func port(_ pipeline: RealPipeline) throws -> Int {
    try #require(pipeline.port(), "\(pipeline.log) \(String(describing: pipeline.outcome))")
  }

  /// Sends a request and runs the pipeline's turns until the answer arrives.
  private func ask(_ pipeline: RealPipeline, _ client: CurlClient, _ request: HTTPRequest) throws
    -> HTTPResponse
  {
    final class Box: @unchecked Sendable { var result: Result<HTTPResponse, HTTPFailure>? }
    let box = Box()
    let ring = pipeline.ring
    let exchange = client.send(request) { result in
      pipelineQueue.sync { box.result = result }
      ring()
    }
    #expect(pipeline.run { pipelineQueue.sync { box.result != nil } })
    withExtendedLifetime(exchange) {}
    return try #require(pipelineQueue.sync { box.result }).get()
  }

  private func text(_ response: HTTPResponse) -> String { String(decoding: response.body, as: UTF8.self) }

  private func server(_ parameters: String, map: String = "event", reply: String = "{}") throws -> RealPipeline {
    try RealPipeline(
      """
      sources:
        requests:
          httpServer: \(parameters)
      signals:
        answers: { from: requests, chain: [ { map: "\(map)" } ] }
      sinks:
        visitors: { from: answers, reply: \(reply) }
      """)
  }

  @Test func theRequestIsTheEvent() throws {
    let serving = try server("127.0.0.1:0", map: "{'e': event, 'p': meta.path, 'm': meta.method}")
    let client = CurlClient()
    var request = HTTPRequest(
      method: "POST", url: "http://127.0.0.1:\(try port(serving))/a%20b?q=x+y&q=second&e=%C3%BC&empty",
      headers: [HTTPHeader("X-Thing", "One"), HTTPHeader("X-Thing", "two")], body: Array("bödy".utf8))
    request.options.timeout = .seconds(60)
    let response = try ask(serving, client, request)
    #expect(response.status == 200)
    #expect(response.header("content-type")?.hasPrefix("application/json") == true)
    let answer = try #require(
      JSONSerialization.jsonObject(with: Data(response.body)) as? [String: Any])
    let event = try #require(answer["e"] as? [String: Any])
    #expect(event["method"] as? String == "POST")
    #expect(event["path"] as? String == "/a%20b")
    #expect(event["query"] as? [String: String] == ["q": "x y", "e": "ü", "empty": ""])
    let headers = try #require(event["headers"] as? [String: String])
    #expect(headers["x-thing"] == "One, two")
    #expect(event["body"] as? String == "bödy")
    #expect(answer["p"] as? String == "/a%20b")
    #expect(answer["m"] as? String == "POST")
    #expect(serving.counters.sent == 1)
  }

  @Test func repliesWithStatusAndHeaders() throws {
    let serving = try server(
      "127.0.0.1:0", map: "event.query",
      reply: "{ encode: text, status: int(event.s), headers: { X-Was: '<{{ event.s }}>', Content-Type: text/x } }")
    let client = CurlClient()
    let base = "http://127.0.0.1:\(try port(serving))/"
    let made = try ask(serving, client, HTTPRequest(url: base + "?s=201"))
    #expect(made.status == 201)
    #expect(made.header("x-was") == "<201>")
    #expect(made.headers.filter { $0.name.lowercased() == "content-type" }.map(\.value) == ["text/x"])
    #expect(text(made) == #"{"s":"201"}"#)
    for bad in ["99", "100", "600", "x", ""] {
      #expect(try ask(serving, client, HTTPRequest(url: base + "?s=\(bad)")).status == 500, "\(bad)")
    }
    #expect(try ask(serving, client, HTTPRequest(url: base)).status == 500)
    #expect(try ask(serving, client, HTTPRequest(url: base + "?s=204")).status == 204)
    #expect(serving.counters.rejected == 6)
    #expect(serving.deadLetters.count == 6)
  }

  @Test func headersCannotBeSplit() throws {
    let serving = try server(
      "127.0.0.1:0", map: "event.query", reply: "{ headers: { X-Was: '{{ event.s }}' } }")
    let response = try ask(
      serving, CurlClient(), HTTPRequest(url: "http://127.0.0.1:\(try port(serving))/?s=a%0d%0aEvil:%201"))
    #expect(response.status == 500)
    #expect(response.header("evil") == nil)
  }

  @Test func eachCSVAnswerHasItsHeader() throws {
    let serving = try server("127.0.0.1:0", map: "event.query", reply: "csv")
    let client = CurlClient()
    let base = "http://127.0.0.1:\(try port(serving))/"
    #expect(text(try ask(serving, client, HTTPRequest(url: base + "?a=1"))).hasPrefix("a\n1"))
    #expect(text(try ask(serving, client, HTTPRequest(url: base + "?b=2"))).hasPrefix("b\n2"))
  }

  /// A request that executes a command is answered with 202, 409 while it is busy, and 503 while it is disabled.
  @Test func requestsExecuteCommands() throws {
    let serving = try RealPipeline(
      """
      sources:
        requests: { httpServer: { address: '127.0.0.1:0', answer: reply } }
      signals:
        works:
          from: requests
          chain: [ { filter: "meta.path == '/work'" }, { execute: { command: work, answer: all } } ]
        others:
          from: requests
          chain: [ { filter: "meta.path == '/closed'" }, { execute: closed } ]
      commands:
        work: { run: { never: {} } }
        closed: { run: { values: [1] }, enabled: { from: { values: [false] } } }
      sinks:
        out: { from: { merge: [works, others] }, probe: {} }
        refused: { from: { merge: [works.errors, others.errors] }, chain: [ { map: event.code } ], probe: {} }
      """)
    let client = CurlClient()
    let base = "http://127.0.0.1:\(try port(serving))"
    func post(_ path: String) throws -> HTTPResponse {
      var request = HTTPRequest(method: "POST", url: base + path, body: Array("{}".utf8))
      request.options.timeout = .seconds(60)
      return try ask(serving, client, request)
    }
    let accepted = try post("/work")
    #expect(accepted.status == 202)
    #expect(text(accepted) == "{\"status\":\"accepted\"}")
    let busy = try post("/work")
    #expect(busy.status == 409)
    #expect(text(busy) == "{\"status\":\"busy\"}")
    let disabled = try post("/closed")
    #expect(disabled.status == 503)
    #expect(text(disabled) == "{\"status\":\"disabled\"}")
  }

  @Test func serversTakeEventsIn() throws {
    let taking = try RealPipeline(
      """
      sources:
        events:
          httpServer: { address: '127.0.0.1:0', path: /in, methods: [POST], decode: ndjson, maxBody: 1KiB, auth: { bearer: tok } }
      signals:
        seen: { from: events, chain: [ { map: "[event.n, meta.method, meta.offset]" } ] }
      sinks:
        out: { from: seen, probe: {} }
        bad: { from: events.errors, probe: {} }
        unseen: { from: seen.errors, probe: {} }
      """)
    let client = CurlClient()
    let base = "http://127.0.0.1:\(try port(taking))"
    func post(_ body: String, path: String = "/in", method: String = "POST", token: String? = "tok") throws
      -> HTTPResponse
    {
      var request = HTTPRequest(method: method, url: base + path, body: method == "GET" ? nil : Array(body.utf8))
      if let token { request.headers = [HTTPHeader("Authorization", "Bearer \(token)")] }
      return try ask(taking, client, request)
    }
    #expect(try post("{\"n\":1}\n{\"n\":2}\n").status == 200)
    #expect(taking.events == [#"[1,"POST",0]"#, #"[2,"POST",8]"#])
    // A single valid event suffices.
    #expect(try post("oops\n{\"n\":3}\n").status == 200)
    let refused = try post("oops\nagain")
    #expect(refused.status == 400)
    #expect(text(refused).contains("no event of the body could be decoded"))
    // Errors in the pipeline's processing are not the client's fault.
    #expect(try post("{\"m\":1}\n").status == 200)
    #expect(try post("").status == 200)
    #expect(try post("{\"n\":4}", path: "/other").status == 404)
    #expect(try post("", method: "GET").status == 405)
    let unauthorized = try post("{\"n\":5}", token: nil)
    #expect(unauthorized.status == 401)
    #expect(unauthorized.header("www-authenticate")?.hasPrefix("Bearer") == true)
    for token in ["", "to", "tok2", "TOK"] { #expect(try post("{\"n\":6}", token: token).status == 401) }
    #expect(try post(String(repeating: "x", count: 1025)).status == 413)
    #expect(taking.events == [#"[1,"POST",0]"#, #"[2,"POST",8]"#, #"[3,"POST",5]"#])
    #expect(taking.probe("bad").events.count == 3)
    #expect(taking.probe("bad").events.allSatisfy { $0.contains(#""path":"/in""#) })
    #expect(taking.probe("unseen").events.count == 1)
    #expect(taking.outcome == nil)
  }

  @Test(arguments: [("ndjson", 200), ("ndjson, answer: written", 200), ("ndjson, answer: accepted", 202)])
  func answersByItself(_ decode: String, _ status: Int) throws {
    let taking = try RealPipeline(
      """
      sources: { events: { httpServer: { address: '127.0.0.1:0', decode: \(decode) } } }
      sinks: { out: { from: events, discard: {} } }
      """)
    let request = HTTPRequest(
      method: "POST", url: "http://127.0.0.1:\(try port(taking))/", body: Array("{}\n".utf8))
    #expect(try ask(taking, CurlClient(), request).status == status)
  }

  /// After an answer the events are in the file, for any number of concurrent clients.
  @Test(arguments: ["", "chain: [ { filter: 'event.n >= 0' } ], "])
  func theEventsAreInTheFileWhenTheAnswerComes(_ chain: String) throws {
    let scratch = Scratch()
    let taking = try RealPipeline(
      """
      sources: { events: { httpServer: { address: '127.0.0.1:0', decode: ndjson } } }
      sinks: { out: { from: events, \(chain)file: { path: '\(scratch("out"))', encode: ndjson } } }
      """)
    let url = "http://127.0.0.1:\(try port(taking))/"
    let client = CurlClient()
    final class Seen: @unchecked Sendable {
      var answers = 0
      var early: [Int] = []
      var others: [String] = []
    }
    let seen = Seen()
    let ring = taking.ring
    let count = 64
    let exchanges = (0..<count).map { number in
      // Some are large enough to be passed through unchanged.
      let line = "{\"n\":\(number),\"text\":\"" + String(repeating: "x", count: number % 8 == 0 ? 2000 : 10) + "\"}\n"
      let body = String(repeating: line, count: 20)
      let request = HTTPRequest(method: "POST", url: url, body: Array(body.utf8))
      return client.send(request) { result in
        let isThere = scratch.read("out").contains(body)
        pipelineQueue.sync {
          seen.answers += 1
          if !isThere { seen.early.append(number) }
          if (try? result.get())?.status != 200 { seen.others.append("\(result)") }
        }
        ring()
      }
    }
    #expect(taking.run { pipelineQueue.sync { seen.answers == count } })
    withExtendedLifetime(exchanges) {}
    #expect(pipelineQueue.sync { seen.early } == [])
    #expect(pipelineQueue.sync { seen.others } == [])
    #expect(taking.counters.received == UInt64(20 * count))
  }

  @Test func aFullDiskIsNoSuccess() throws {
    let taking = try RealPipeline(
      """
      sources: { events: { httpServer: { address: '127.0.0.1:0', decode: ndjson, replyTimeout: 100ms } } }
      sinks: { out: { from: events, file: /dev/full } }
      """)
    let request = HTTPRequest(
      method: "POST", url: "http://127.0.0.1:\(try port(taking))/", body: Array("{}\n".utf8))
    #expect(try ask(taking, CurlClient(), request).status == 504)
    #expect(taking.log.contains { $0.contains("waiting until it can be written") })
  }

  /// Waiting events are written when the pipeline is stopped, then answered.
  @Test func drainingWritesBeforeItAnswers() throws {
    let scratch = Scratch()
    let taking = try RealPipeline(
      """
      sources: { events: { httpServer: { address: '127.0.0.1:0', decode: ndjson } } }
      sinks: { out: { from: events, file: { path: '\(scratch("out"))', encode: ndjson } } }
      """)
    let url = "http://127.0.0.1:\(try port(taking))/"
    final class Box: @unchecked Sendable {
      var status: Int?
      var text = ""
    }
    let box = Box()
    let ring = taking.ring
    let client = CurlClient()
    let exchange = client.send(HTTPRequest(method: "POST", url: url, body: Array("{}\n".utf8))) { result in
      let text = scratch.read("out")
      pipelineQueue.sync {
        box.status = (try? result.get())?.status
        box.text = text
      }
      ring()
    }
    #expect(taking.run { taking.counters.received == 1 })
    taking.inTurn { $0.execution.drain() }
    #expect(taking.runToEnd() == .completed)
    #expect(taking.run { pipelineQueue.sync { box.status != nil } })
    #expect(pipelineQueue.sync { box.status } == 200)
    #expect(pipelineQueue.sync { box.text } == "{}\n")
    withExtendedLifetime(exchange) {}
  }

  @Test func basicAuthentication() throws {
    let serving = try server("{ address: '127.0.0.1:0', auth: { basic: { user: u, password: 'p:w' } } }", map: "1")
    let client = CurlClient()
    var request = HTTPRequest(url: "http://127.0.0.1:\(try port(serving))/")
    let refused = try ask(serving, client, request)
    #expect(refused.status == 401)
    #expect(refused.header("www-authenticate")?.hasPrefix("Basic") == true)
    request.options.auth = .basic(user: "u", password: Secret("p:w"))
    #expect(try ask(serving, client, request).status == 200)
    request.options.auth = .basic(user: "u", password: Secret("p:W"))
    #expect(try ask(serving, client, request).status == 401)
  }

  @Test func nobodyRepliesInTime() throws {
    let serving = try RealPipeline(
      """
      sources:
        requests: { httpServer: { address: '127.0.0.1:0', replyTimeout: 100ms } }
      signals:
        late: { from: requests, chain: [ { delay: 1h } ] }
      sinks:
        visitors: { from: late, reply: {} }
      """)
    let response = try ask(serving, CurlClient(), HTTPRequest(url: "http://127.0.0.1:\(try port(serving))/"))
    #expect(response.status == 504)
  }

  /// A client that has received 504 sends the event again, so the pipeline must not accept the first one later.
  @Test(arguments: ["decode: json", "decode: json, answer: accepted", "answer: reply"])
  func whatWasAnswered504IsNotTakenIn(_ parameters: String) throws {
    let serving = try RealPipeline(
      """
      sources:
        requests: { httpServer: { address: '127.0.0.1:0', replyTimeout: 100ms, \(parameters) } }
      sinks:
        out: { from: requests, probe: {} }
      """)
    let url = "http://127.0.0.1:\(try port(serving))/"
    let heard = Mutex<Int?>(nil)
    let reported = DispatchSemaphore(value: 0)
    let client = CurlClient()
    // No turns run: the pipeline is busy, or its input is paused.
    let exchange = client.send(HTTPRequest(method: "POST", url: url, body: Array("{}".utf8))) { result in
      heard.withLock { $0 = (try? result.get())?.status }
      reported.signal()
    }
    #expect(reported.wait(timeout: .now() + 90) == .success)
    #expect(heard.withLock { $0 } == 504)
    serving.executor.run()
    #expect(serving.events == [])
    #expect(serving.counters.received == 0)
    // The next request is accepted.
    let next = client.send(HTTPRequest(method: "POST", url: url, body: Array("{}".utf8))) { _ in }
    #expect(serving.run { serving.counters.received == 1 })
    withExtendedLifetime((exchange, next)) {}
  }

  @Test func aSecondReplyIsSetAside() throws {
    let serving = try server("127.0.0.1:0", map: "[1, 2]")
    let twice = try RealPipeline(
      """
      sources:
        requests: { httpServer: { address: '127.0.0.1:0' } }
      signals:
        answers: { from: requests, chain: [ { flattenMap: "[1, 2]" } ] }
      sinks:
        visitors: { from: answers, reply: {} }
        lost: { from: answers.errors, probe: {} }
      """)
    let response = try ask(twice, CurlClient(), HTTPRequest(url: "http://127.0.0.1:\(try port(twice))/"))
    #expect(text(response) == "1")
    #expect(twice.counters.sent >= 1)
    #expect(twice.counters.rejected == 1)
    withExtendedLifetime(serving) {}
  }

  @Test func eventsWithoutARequestAreSetAside() throws {
    let replying = try VirtualPipeline(
      """
      sources:
        events: { values: [1] }
      sinks:
        visitors: { from: events, reply: {} }
      """)
    replying.run()
    #expect(replying.outcome == .completed)
    #expect(replying.counters.rejected == 1)
    #expect(replying.deadLetters.first?.contains("the event does not come from an HTTP request") == true)
  }

  @Test func aPortInUseIsAFailureThatNamesIt() throws {
    let first = try server("127.0.0.1:0")
    let taken = try port(first)
    let second = try server("127.0.0.1:\(taken)")
    second.runToEnd()
    let failure = try #require(second.failure)
    #expect(failure.kind == .source)
    #expect(failure.message.contains("127.0.0.1:\(taken)"))
    #expect(failure.message.contains("another program listens there"))
    #expect(failure.location?.line == 3)
    // Once the first pipeline has ended, its port is free.
    first.inTurn { $0.execution.drain() }
    #expect(first.runToEnd() == .completed)
    let third = try server("127.0.0.1:\(taken)")
    #expect(try port(third) == taken)
  }

  @Test func drainingAnswersWhatIsUnderWay() throws {
    let serving = try RealPipeline(
      """
      sources:
        requests: { httpServer: '127.0.0.1:0' }
      signals:
        late: { from: requests, chain: [ { map: "'done'" }, { delay: 50ms } ] }
      sinks:
        visitors: { from: late, reply: text }
      """)
    let url = "http://127.0.0.1:\(try port(serving))/"
    final class Box: @unchecked Sendable { var result: Result<HTTPResponse, HTTPFailure>? }
    let box = Box()
    let ring = serving.ring
    let client = CurlClient()
    let exchange = client.send(HTTPRequest(url: url)) { result in
      pipelineQueue.sync { box.result = result }
      ring()
    }
    #expect(serving.run { serving.counters.received == 1 })
    serving.inTurn { $0.execution.drain() }
    #expect(serving.runToEnd() == .completed)
    #expect(serving.run { pipelineQueue.sync { box.result != nil } })
    #expect(try pipelineQueue.sync { box.result }?.get().body == Array("done".utf8))
    withExtendedLifetime(exchange) {}
  }

  @Test(arguments: [
    ("0.0.0.0:80", true), ("'[::]:80'", true), ("example.com:80", true), ("127.0.0.1.example.com:80", true),
    ("127.example:80", true), ("10.0.0.1:80", true), ("127.0.0.1:80", false), ("127.8.8.8:80", false),
    ("'[::1]:80'", false), ("localhost:80", false), ("80", false), ("':80'", false),
    ("{ address: 0.0.0.0:80, auth: { bearer: x } }", false),
    ("{ address: 0.0.0.0:80, allowUnauthenticated: true }", false),
  ])
  func servingEverybodyMustBeExplicit(_ parameters: String, _ isRefused: Bool) {
    let complaints = PipelineText.complaints(
      """
      sources:
        requests:
          httpServer: \(parameters)
      sinks:
        out: { from: requests, discard: {} }
      """)
    #expect(complaints.isEmpty == !isRefused, "\(complaints)")
    if isRefused { #expect(complaints.first?.contains("would serve every client") == true, "\(complaints)") }
  }

  @Test(arguments: [
    "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "'[::1]'", "-1", "127.0.0.1:+80", "127.0.0.1:", "'::1:80'", "'::1'",
    "256.1.1.1:80", "1.2.3:80", "'*:80'", "'http://127.0.0.1:80'", "'127.0.0.1:80/in'", "'a b:80'", "'-a:80'",
    "'a..b:80'",
    "'[127.0.0.1]:80'", "'[a]:80'", "'[]:80'", "'ü:80'", "\"127.0.0.1\\0:80\"",
  ])
  func refusesWhatIsNoAddress(_ address: String) {
    #expect(
      PipelineText.complaints(
        "sources: { requests: { httpServer: \(address) } }\nsinks: { out: { from: requests, discard: {} } }"
      ).count == 1)
  }

  @Test(arguments: ["in", "'/a?b'", "'/a#b'", "'/a b'", "/ü", "''"])
  func refusesPathsThatNoRequestHas(_ path: String) {
    let complaints = PipelineText.complaints(
      "sources: { requests: { httpServer: { address: 80, path: \(path) } } }\nsinks: { out: { from: requests, discard: {} } }"
    )
    #expect(complaints.count == 1)
    #expect(complaints.first?.contains("no request has the path") == true, "\(complaints)")
  }

  @Test(arguments: ["get", "Post", "'A B'", "''"]) func refusesMethodsThatNobodySends(_ method: String) {
    let complaints = PipelineText.complaints(
      "sources: { requests: { httpServer: { address: 80, methods: [\(method)] } } }\nsinks: { out: { from: requests, discard: {} } }"
    )
    #expect(complaints.count == 1, "\(complaints)")
  }

  @Test func aBodyFitsIntoTheBudget() {
    func complaints(_ parameters: String) -> [String] {
      PipelineText.complaints(
        "sources: { requests: { httpServer: { address: 80, \(parameters) } } }\nsinks: { out: { from: requests, discard: {} } }"
      )
    }
    #expect(complaints("maxBody: 2MiB, maxBuffered: 1MiB").first?.contains("would never fit") == true)
    #expect(complaints("maxBody: 2MiB, maxBuffered: 2MiB") == [])
    #expect(complaints("maxBody: 1GiB") == [])
  }

  static let twice: [(String, String, Bool)] = [
    ("8080", "8080", true), ("8080", "8081", false), ("127.0.0.1:0", "127.0.0.1:0", false),
    ("8080", "localhost:8080", true), ("'[::1]:8080'", "localhost:8080", true), ("8080", "'[::1]:8080'", false),
    ("8080", "127.0.0.2:8080", false), ("8080", "{ address: 0.0.0.0:8080, auth: { bearer: x } }", true),
    ("'[::1]:8080'", "{ address: 0.0.0.0:8080, auth: { bearer: x } }", false),
    ("8080", "{ address: '[::]:8080', auth: { bearer: x } }", true),
    ("'[::1]:8080'", "{ address: '[::]:8080', auth: { bearer: x } }", true),
  ]

  @Test(arguments: twice) func onlyOneListensOnAnAddress(_ first: String, _ second: String, _ isRefused: Bool) {
    for (one, other) in [(first, second), (second, first)] {
      let complaints = PipelineText.complaints(
        """
        sources:
          a: { httpServer: \(one) }
        sinks:
          out: { from: a, reply: {} }
          other: { from: { httpServer: \(other) }, discard: {} }
        """)
      #expect(complaints.isEmpty == !isRefused, "\(one) and \(other): \(complaints)")
      if isRefused {
        #expect(complaints.count == 1)
        #expect(complaints.first?.contains("only one source or sink of a process can") == true, "\(complaints)")
      }
    }
  }

  @Test func aServerThatIsMadeAnewListensTwice() {
    func complaints(_ options: String) -> [String] {
      PipelineText.complaints(
        """
        sources: { a: { httpServer: 8080\(options) } }
        sinks: { one: { from: a, discard: {} }, two: { from: a, discard: {} } }
        """)
    }
    #expect(complaints("") == [])
    #expect(complaints(", cold: true").first?.contains("creates it again") == true)
  }

  @Test(arguments: [
    "{}", "{ bearer: '' }", "{ bearer: x, basic: { user: u, password: p } }", "{ basic: { user: 'u:v', password: p } }",
    "{ bearer: \"a\\nb\" }", "{ basic: { user: '', password: p } }",
  ])
  func authWithoutCredentialsIsNone(_ auth: String) {
    let complaints = PipelineText.complaints(
      "sources: { a: { httpServer: { address: 0.0.0.0:80, auth: \(auth) } } }\nsinks: { out: { from: a, reply: {} } }")
    #expect(complaints.count == 1, "\(complaints)")
    #expect(complaints.first?.contains("'auth'") == true, "\(complaints)")
  }

  @Test(arguments: ["Content-Length", "transfer-encoding", "A B", "''", "'a:b'"])
  func refusesHeadersThatCannotBeSent(_ name: String) {
    let complaints = PipelineText.complaints(
      "sources: { a: { httpServer: 80 } }\nsinks: { out: { from: a, reply: { headers: { \(name): x } } } }")
    #expect(complaints.count == 1, "\(complaints)")
  }

  @Test func warnsOfRequestsThatNothingAnswers() {
    func codes(_ yaml: String) -> [String] {
      FrontEnd(PipelineText.catalogue).compile(yaml).diagnostics.map(\.code.name)
    }
    #expect(codes("sources: { a: { httpServer: 80 } }\nsinks: { out: { from: a, discard: {} } }") == ["RX327"])
    #expect(codes("sources: { a: { httpServer: 80 } }\nsinks: { out: { from: a, reply: {} } }") == [])
    #expect(
      codes("sources: { a: { httpServer: { address: 80, decode: json } } }\nsinks: { out: { from: a, discard: {} } }")
        == [])
    #expect(
      codes(
        "sources: { a: { httpServer: { address: 80, answer: accepted } } }\nsinks: { out: { from: a, discard: {} } }")
        == [])
  }

  @Test func theBookshopAnswersTheSearch() throws {
    let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("pipelines")
    let shop = try RealPipeline(
      String(contentsOf: folder.appendingPathComponent("bookshop.yaml"), encoding: .utf8),
      name: "bookshop.yaml", environment: ["BOOKSHOP_ADDRESS": "127.0.0.1:0", "BOOKSHOP_DELAY": "1ms"])
    let port = try port(shop)
    let asking = try RealPipeline(
      """
      sources:
        typed: { values: [Lighthouse, "dune & more", dune] }
      signals:
        books:
          from: typed
          chain:
            - flattenMap:
                policy: concat
                signal:
                  from: { http: { url: "http://127.0.0.1:\(port)/search.json?q={{ urlEncode(event) }}" } }
            - flattenMap: event.docs
            - map: "[event.title, event.author_name[0]]"
      sinks:
        out: { from: books, probe: {} }
      """, http: CurlClient())
    nonisolated(unsafe) let serving = shop
    nonisolated(unsafe) var isOver = false
    let thread = try OwnThread("shop") {
      serving.run(within: .seconds(30)) { pipelineQueue.sync { isOver } }
    }
    asking.runToEnd()
    pipelineQueue.sync { isOver = true }
    shop.ring()
    thread.join()
    #expect(asking.outcome == .completed, "\(String(describing: asking.outcome))")
    #expect(
      asking.events == [
        #"["To the Lighthouse","Virginia Woolf"]"#, #"["Dune","Frank Herbert"]"#,
        #"["Dune Messiah","Frank Herbert"]"#, #"["Children of Dune","Frank Herbert"]"#,
      ])
    #expect(shop.counters.sent == 3)
  }
}

/// Protects the answers that are passed to the thread of a test.
private let pipelineQueue = DispatchQueue(label: "answers")
