import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

@testable import Transport

/// OAuth 2.0 for requests, without a network and on the test's clock.
@Suite struct AccessTokensTests {
  /// Answers requests as the test says; the test sets the clock.
  private final class World: Sendable {
    struct State {
      var now: Int64 = 0
      var sent: [HTTPRequest] = []
      var open: [AccessTokens.Completion?] = []
      var cancelled: [Int] = []
      var streams: [Int: AccessTokens.Receive] = [:]
    }
    let state = Mutex(State())

    private final class Exchange: HTTPStream {
      let cancels: @Sendable () -> Void
      init(_ cancels: @escaping @Sendable () -> Void) { self.cancels = cancels }
      func cancel() { cancels() }
      func handled(_ bytes: Int) {}
    }

    func tokens() -> AccessTokens {
      AccessTokens { request, completion in
        let number = self.state.withLock { state in
          state.sent.append(request)
          state.open.append(completion)
          return state.sent.count - 1
        }
        return Exchange { self.state.withLock { $0.cancelled.append(number) } }
      } stream: { request, receive in
        let number = self.state.withLock { state in
          state.sent.append(request)
          state.open.append(nil)
          state.streams[state.sent.count - 1] = receive
          return state.sent.count - 1
        }
        return Exchange { self.state.withLock { $0.cancelled.append(number) } }
      } now: {
        self.state.withLock(\.now)
      }
    }

    var sent: [HTTPRequest] { state.withLock(\.sent) }
    /// `POST token`, or the method and the token that was sent.
    var said: [String] {
      sent.map { request in
        if case .bearer(let token) = request.options.auth { return "\(request.method) \(token.revealed)" }
        return "\(request.method) \(request.url.split(separator: "/").last ?? "")"
      }
    }
    func pass(seconds: Int64) { state.withLock { $0.now += seconds * 1_000_000_000 } }

    func answer(_ number: Int, _ status: Int, _ body: String = "") {
      let completion = state.withLock { state in
        defer { state.open[number] = nil }
        return state.open[number]
      }
      completion?(.success(HTTPResponse(status: status, body: Array(body.utf8))))
    }
    func fail(_ number: Int, _ failure: HTTPFailure) { state.withLock { $0.open[number] }?(.failure(failure)) }
  }

  private final class Answers: Sendable {
    let all = Mutex<[String]>([])
    var list: [String] { all.withLock { $0 } }
    func take(_ name: String) -> AccessTokens.Completion {
      { result in
        self.all.withLock {
          switch result {
          case .success(let response): $0.append("\(name) \(response.status)")
          case .failure(let failure): $0.append("\(name) \(failure.kind): \(failure.message)")
          }
        }
      }
    }
  }

  private var credentials: HTTPOptions.OAuth2 {
    var credentials = HTTPOptions.OAuth2(
      tokenURL: "https://id.example/token", clientID: Secret("me:x"), clientSecret: Secret("p w"))
    credentials.scope = "read write"
    credentials.parameters = [.init("audience", "https://api")]
    return credentials
  }

  private func request(_ timeout: TimeSpan = .seconds(30)) -> HTTPRequest {
    var request = HTTPRequest(url: "https://api.example/x")
    request.options.timeout = timeout
    request.options.auth = .oauth2(credentials)
    return request
  }

  private static let grant = #"{"access_token":"T1","token_type":"bearer","expires_in":3600}"#

  @Test func oneTokenServesAllRequests() throws {
    let world = World()
    let tokens = world.tokens()
    let answers = Answers()
    _ = tokens.send(request(), credentials, answers.take("a"))
    _ = tokens.send(request(), credentials, answers.take("b"))
    #expect(world.said == ["POST token"])
    let asked = try world.sent.item(0)
    #expect(asked.options.auth == .basic(user: "me%3Ax", password: Secret("p%20w")))
    #expect(
      String(decoding: asked.body ?? [], as: UTF8.self)
        == "grant_type=client_credentials&scope=read%20write&audience=https%3A%2F%2Fapi")
    world.answer(0, 200, Self.grant)
    #expect(world.said == ["POST token", "GET T1", "GET T1"])
    world.answer(1, 200)
    world.answer(2, 204)
    _ = tokens.send(request(), credentials, answers.take("c"))
    #expect(world.said.count == 4 && world.said[3] == "GET T1")
    #expect(answers.list == ["a 200", "b 204"])
  }

  @Test func otherCredentialsHaveAnotherToken() throws {
    let world = World()
    let tokens = world.tokens()
    let answers = Answers()
    var other = credentials
    other.scope = "admin"
    other.sendsCredentialsInBody = true
    _ = tokens.send(request(), credentials, answers.take("a"))
    _ = tokens.send(request(), other, answers.take("b"))
    #expect(world.said == ["POST token", "POST token"])
    #expect(try world.sent.item(1).options.auth == .none)
    #expect(
      try String(decoding: world.sent.item(1).body ?? [], as: UTF8.self).hasSuffix(
        "&client_id=me%3Ax&client_secret=p%20w"))
    #expect(try world.sent.item(1).shownBody.map { String(decoding: $0, as: UTF8.self) } == "(secret)")
  }

  @Test func aTokenIsRenewedBeforeItExpires() {
    let world = World()
    let tokens = world.tokens()
    let answers = Answers()
    _ = tokens.send(request(), credentials, answers.take("a"))
    world.answer(0, 200, Self.grant)
    world.pass(seconds: 3539)
    _ = tokens.send(request(), credentials, answers.take("b"))
    #expect(world.said == ["POST token", "GET T1", "GET T1"])
    world.pass(seconds: 1)
    _ = tokens.send(request(), credentials, answers.take("c"))
    #expect(world.said.last == "POST token")
    world.answer(3, 200, #"{"access_token":"T2","expires_in":"60"}"#)
    #expect(world.said.last == "GET T2")
    world.pass(seconds: 53)
    _ = tokens.send(request(), credentials, answers.take("d"))
    #expect(world.said.last == "GET T2")
    world.pass(seconds: 1)
    _ = tokens.send(request(), credentials, answers.take("e"))
    #expect(world.said.last == "POST token")
  }

  @Test func aRefusedTokenIsRenewedOnce() {
    let world = World()
    let tokens = world.tokens()
    let answers = Answers()
    _ = tokens.send(request(), credentials, answers.take("a"))
    world.answer(0, 200, #"{"access_token":"T1"}"#)
    // Without `expires_in` the token is used until it is rejected.
    world.pass(seconds: 1_000_000)
    world.answer(1, 401)
    #expect(world.said == ["POST token", "GET T1", "POST token"])
    #expect(answers.list.isEmpty)
  }

  /// A streamed answer gets a token too; a rejected token is renewed once, and no part of the rejection is passed on.
  @Test func streamsHaveTokens() {
    let world = World()
    let tokens = world.tokens()
    let parts = Mutex<[String]>([])
    let call = tokens.stream(request(), credentials) { part in
      parts.withLock { parts in
        switch part {
        case .head(let response): parts.append("head \(response.status)")
        case .bytes(let bytes): parts.append(String(decoding: bytes, as: UTF8.self))
        case .end(let failure): parts.append("end \(failure?.message ?? "")")
        }
      }
    }
    func pass(_ number: Int, _ part: HTTPStreamPart) { world.state.withLock { $0.streams[number] }?(part) }
    world.answer(0, 200, #"{"access_token":"one"}"#)
    pass(1, .head(HTTPResponse(status: 401)))
    pass(1, .bytes(Array("no".utf8)))
    world.answer(2, 200, #"{"access_token":"two"}"#)
    pass(1, .end(nil))
    pass(3, .head(HTTPResponse(status: 200)))
    pass(3, .bytes(Array("yes".utf8)))
    #expect(world.said == ["POST token", "GET one", "POST token", "GET two"])
    #expect(parts.withLock { $0 } == ["head 200", "yes"])
    #expect(world.state.withLock { $0.cancelled } == [1])
    call.cancel()
    pass(3, .bytes(Array("late".utf8)))
    #expect(parts.withLock { $0 } == ["head 200", "yes"])
    #expect(world.state.withLock { $0.cancelled } == [1, 3])
    // A second stream uses the cached token; if no token can be fetched, the stream ends.
    _ = tokens.stream(request(), credentials) { _ in }
    #expect(world.said.last == "GET two")
    pass(4, .head(HTTPResponse(status: 401)))
    world.answer(5, 401, "")
  }

  @Test func aSecondRefusalIsTheAnswer() {
    let world = World()
    let tokens = world.tokens()
    let answers = Answers()
    _ = tokens.send(request(), credentials, answers.take("a"))
    _ = tokens.send(request(), credentials, answers.take("b"))
    world.answer(0, 200, Self.grant)
    world.answer(1, 401)
    // The other request was sent with the same token: it does not discard the new one.
    world.answer(3, 200, #"{"access_token":"T2","expires_in":3600}"#)
    world.answer(2, 401)
    #expect(world.said == ["POST token", "GET T1", "GET T1", "POST token", "GET T2", "GET T2"])
    world.answer(4, 401)
    world.answer(5, 200)
    #expect(answers.list == ["a 401", "b 200"])
  }

  @Test func waitingForTheTokenCountsTowardsTheTimeout() throws {
    let world = World()
    let tokens = world.tokens()
    let answers = Answers()
    _ = tokens.send(request(.seconds(10)), credentials, answers.take("a"))
    _ = tokens.send(request(.seconds(4)), credentials, answers.take("b"))
    world.pass(seconds: 4)
    world.answer(0, 200, Self.grant)
    #expect(answers.list == ["b timeout: no answer within 4s"])
    #expect(try world.sent.item(1).options.timeout == .seconds(6))
  }

  @Test func aCancelledRequestIsNotSent() {
    let world = World()
    let tokens = world.tokens()
    let answers = Answers()
    let first = tokens.send(request(), credentials, answers.take("a"))
    _ = tokens.send(request(), credentials, answers.take("b"))
    first.cancel()
    world.answer(0, 200, Self.grant)
    #expect(world.said == ["POST token", "GET T1"])
    let third = tokens.send(request(), credentials, answers.take("c"))
    third.cancel()
    #expect(world.state.withLock(\.cancelled) == [2])
    world.answer(1, 200)
    #expect(answers.list == ["b 200"])
  }

  @Test(arguments: [
    (
      400, #"{"error":"invalid_client","error_description":"p w is wrong"}"#, "forbidden",
      "answered 400 (invalid_client)"
    ),
    (401, #"{"error":"p w"}"#, "forbidden", "answered 401"), (503, "", "protocolError", "answered 503"),
    (429, "", "protocolError", "answered 429"), (200, "", "protocolError", "without an access token"),
    (200, #"{"access_token":"a\nb"}"#, "protocolError", "without an access token"),
    (200, #"{"access_token":""}"#, "protocolError", "without an access token"),
    (200, #"{"access_token":"T","token_type":"mac"}"#, "forbidden", "no tokens of the type Bearer"),
  ]) func aRefusalOfTheEndpointIsSaidWithoutSecrets(_ status: Int, _ body: String, _ kind: String, _ text: String) {
    let world = World()
    let tokens = world.tokens()
    let answers = Answers()
    _ = tokens.send(request(), credentials, answers.take("a"))
    world.answer(0, status, body)
    #expect(answers.list.count == 1)
    let said = answers.list.first ?? ""
    #expect(said.hasPrefix("a \(kind): the token endpoint https://id.example/token") && said.contains(text), "\(said)")
    #expect(!said.contains("p w") && !said.contains("p%20w"))
    // The next request tries again.
    _ = tokens.send(request(), credentials, answers.take("b"))
    #expect(world.said == ["POST token", "POST token"])
  }

  @Test func aBrokenConnectionFailsAllThatWait() {
    let world = World()
    let tokens = world.tokens()
    let answers = Answers()
    _ = tokens.send(request(), credentials, answers.take("a"))
    _ = tokens.send(request(), credentials, answers.take("b"))
    world.fail(0, HTTPFailure(.connect, "cannot connect to id.example:443"))
    #expect(
      answers.list == ["a", "b"].map { "\($0) connect: no access token: cannot connect to id.example:443" })
  }

  // MARK: A real client

  @Test func theClientFetchesAndRenewsTokens() async throws {
    let server = try ScriptedServer { connection in
      while let (head, body) = connection.message() {
        let isToken = head.hasPrefix("POST /token")
        let number =
          String(decoding: body, as: UTF8.self).contains("client_credentials") && head.contains("Basic bWU6cA==")
        let isCurrent = head.contains("Authorization: Bearer T2")
        let status = isToken ? (number ? "200 OK" : "400 No") : isCurrent ? "200 OK" : "401 Unauthorized"
        let issued = tokensIssued.add(isToken ? 1 : 0, ordering: .relaxed).newValue
        let text = isToken ? #"{"access_token":"T\#(issued)","expires_in":1000000}"# : "ok"
        connection.send("HTTP/1.1 \(status)\r\nContent-Length: \(text.utf8.count)\r\n\r\n\(text)")
      }
    }
    defer { server.stop() }
    let client = CurlClient()
    var request = HTTPRequest(url: "\(server.url)/data")
    request.options.auth = .oauth2(
      .init(tokenURL: "\(server.url)/token", clientID: Secret("me"), clientSecret: Secret("p")))
    let first = try await client.answer(request).get()
    #expect(first.status == 200)
    let second = try await client.answer(request).get()
    #expect(second.status == 200)
    #expect(tokensIssued.load(ordering: .relaxed) == 2)
  }

  private let tokensIssued = Counter()

  final class Counter: Sendable {
    private let value = Atomic<Int>(0)
    func add(_ more: Int, ordering: AtomicUpdateOrdering) -> (oldValue: Int, newValue: Int) {
      value.add(more, ordering: .relaxed)
    }
    func load(ordering: AtomicLoadOrdering) -> Int { value.load(ordering: .relaxed) }
  }
}
