import PipelineCore
import Synchronization

/// Sends requests that authenticate with OAuth 2.0: fetches access tokens by client credentials (RFC 6749, 4.4), caches
/// them in memory and shares them between all requests with the same credentials.
///
/// A token is renewed before it expires, and once for a request that is answered 401. While it is being fetched,
/// requests wait for it; the wait counts towards a request's `timeout`. Callable from any thread.
final class AccessTokens: Sendable {
  typealias Completion = @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  typealias Receive = @Sendable (HTTPStreamPart) -> Void
  typealias Stream = @Sendable (HTTPRequest, @escaping Receive) -> any HTTPStream
  typealias Send = @Sendable (HTTPRequest, @escaping Completion) -> any Cancellable

  /// The cache key of a token: over other connections, the same client may have another identity.
  private struct Key: Hashable {
    var credentials: HTTPOptions.OAuth2
    var proxy: String?
    var caFile: String?
    var verify: Bool
    var allowPrivate: Bool
  }

  private struct Entry {
    var token: Secret?
    /// When the token is renewed, in nanoseconds of the clock.
    var renewAt: Int64 = 0
    var waiting: [any TokenUser] = []
    var isFetching = false
  }

  private let entries = Mutex<[Key: Entry]>([:])
  private let sendNow: Send
  private let streamNow: Stream
  private let now: @Sendable () -> Int64

  /// - Parameters:
  ///   - send: sends a request without OAuth 2.0.
  ///   - stream: sends a request with a streamed answer without OAuth 2.0.
  ///   - now: nanoseconds of a clock that is never set.
  init(send: @escaping Send, stream: @escaping Stream, now: @escaping @Sendable () -> Int64) {
    self.now = now
    streamNow = stream
    sendNow = send
  }

  /// A request or connection that waits for a token.
  private protocol TokenUser: AnyObject, Sendable {
    var request: HTTPRequest { get }
    var credentials: HTTPOptions.OAuth2 { get }
    var isOver: Bool { get }
    func proceed(_ token: Secret, _ tokens: AccessTokens)
    func give(up failure: HTTPFailure)
  }

  /// A request under way: it waits for its token, then is sent, perhaps twice.
  private final class Call: Cancellable, TokenUser {
    let request: HTTPRequest
    let credentials: HTTPOptions.OAuth2
    let deadline: Int64
    private let completion: Mutex<Completion?>
    private let step = Mutex<(call: (any Cancellable)?, attempt: Int, isOver: Bool)>((nil, 0, false))
    /// The number of times it has been sent: a second time after a 401, with another token.
    let attempts = Atomic<Int>(0)

    init(_ request: HTTPRequest, _ credentials: HTTPOptions.OAuth2, deadline: Int64, _ completion: @escaping Completion)
    {
      self.request = request
      self.credentials = credentials
      self.deadline = deadline
      self.completion = Mutex(completion)
    }

    var isOver: Bool { step.withLock(\.isOver) }
    func proceed(_ token: Secret, _ tokens: AccessTokens) { tokens.send(self, token) }
    func give(up failure: HTTPFailure) { complete(.failure(failure)) }

    /// Notes that this attempt is under way, unless a later one already is.
    func follows(_ call: any Cancellable, _ attempt: Int) {
      let isOver = step.withLock { step in
        if attempt > step.attempt { (step.call, step.attempt) = (step.isOver ? nil : call, attempt) }
        return step.isOver
      }
      if isOver { call.cancel() }
    }

    func complete(_ result: Result<HTTPResponse, HTTPFailure>) {
      let completion = completion.withLock { completion in
        defer { completion = nil }
        return completion
      }
      step.withLock { $0 = (nil, $0.attempt, true) }
      completion?(result)
    }

    func cancel() {
      completion.withLock { $0 = nil }
      let call = step.withLock { step in
        defer { step = (nil, step.attempt, true) }
        return step.call
      }
      call?.cancel()
    }
  }

  /// A request with a streamed answer. If the first attempt is answered 401, that answer is not passed on.
  private final class StreamCall: HTTPStream, TokenUser {
    private struct State {
      var stream: (any HTTPStream)?
      var attempt = 0
      var isOver = false
      var receive: Receive?
    }
    let request: HTTPRequest
    let credentials: HTTPOptions.OAuth2
    private let state: Mutex<State>

    init(_ request: HTTPRequest, _ credentials: HTTPOptions.OAuth2, _ receive: @escaping Receive) {
      self.request = request
      self.credentials = credentials
      state = Mutex(State(receive: receive))
    }

    var isOver: Bool { state.withLock(\.isOver) }

    func proceed(_ token: Secret, _ tokens: AccessTokens) {
      var request = request
      request.options.auth = .bearer(token)
      let attempt = state.withLock { state -> Int? in
        guard !state.isOver else { return nil }
        state.attempt += 1
        return state.attempt
      }
      guard let attempt else { return }
      let stream = tokens.streamNow(request) { [self] part in
        guard state.withLock({ $0.attempt == attempt }) else { return }
        if attempt == 1, case .head(let response) = part, response.status == 401 {
          // From now on parts of the first attempt are ignored, even if its stream has not been stored yet.
          let stream = state.withLock { state in
            state.attempt = 2
            return state.stream.take()
          }
          stream?.cancel()
          tokens.forget(token, of: tokens.key(of: self))
          return tokens.withToken(self)
        }
        pass(part)
      }
      let isWanted = state.withLock { state in
        guard state.attempt == attempt, !state.isOver else { return false }
        state.stream = stream
        return true
      }
      if !isWanted { stream.cancel() }
    }

    func give(up failure: HTTPFailure) { pass(.end(failure)) }

    private func pass(_ part: HTTPStreamPart) {
      let receive = state.withLock { state -> Receive? in
        guard case .end = part else { return state.receive }
        defer { (state.isOver, state.receive, state.stream) = (true, nil, nil) }
        return state.receive
      }
      receive?(part)
    }

    func handled(_ bytes: Int) { state.withLock(\.stream)?.handled(bytes) }

    func cancel() {
      let stream = state.withLock { state in
        defer { (state.isOver, state.receive, state.stream) = (true, nil, nil) }
        return state.stream
      }
      stream?.cancel()
    }
  }

  /// A caller that needs the token itself.
  private final class TokenCall: TokenUser, Cancellable {
    let request: HTTPRequest
    let credentials: HTTPOptions.OAuth2
    private let completion: Mutex<(@Sendable (Result<Secret, HTTPFailure>) -> Void)?>

    init(
      _ options: HTTPOptions, _ credentials: HTTPOptions.OAuth2,
      _ completion: @escaping @Sendable (Result<Secret, HTTPFailure>) -> Void
    ) {
      var request = HTTPRequest(url: credentials.tokenURL)
      request.options = options
      self.request = request
      self.credentials = credentials
      self.completion = Mutex(completion)
    }

    var isOver: Bool { completion.withLock { $0 == nil } }
    func proceed(_ token: Secret, _ tokens: AccessTokens) { completion.withLock { $0.take() }?(.success(token)) }
    func give(up failure: HTTPFailure) { completion.withLock { $0.take() }?(.failure(failure)) }
    func cancel() { completion.withLock { $0 = nil } }
  }

  /// A token for a connection with these options, other than `refused`.
  func token(
    _ options: HTTPOptions, _ credentials: HTTPOptions.OAuth2, insteadOf refused: Secret?,
    _ completion: @escaping @Sendable (Result<Secret, HTTPFailure>) -> Void
  ) -> any Cancellable {
    let call = TokenCall(options, credentials, completion)
    if let refused { forget(refused, of: key(of: call)) }
    withToken(call)
    return call
  }

  /// Starts a request with a streamed answer whose `auth` are these credentials.
  func stream(
    _ request: HTTPRequest, _ credentials: HTTPOptions.OAuth2, _ receive: @escaping Receive
  ) -> any HTTPStream {
    let call = StreamCall(request, credentials, receive)
    withToken(call)
    return call
  }

  /// Sends a request whose `auth` are these credentials.
  func send(
    _ request: HTTPRequest, _ credentials: HTTPOptions.OAuth2, _ completion: @escaping Completion
  ) -> any Cancellable {
    let call = Call(
      request, credentials, deadline: now() &+ max(request.options.timeout.nanoseconds, 1_000_000), completion)
    withToken(call)
    return call
  }

  private func key(of call: any TokenUser) -> Key {
    let options = call.request.options
    return Key(
      credentials: call.credentials, proxy: options.proxy, caFile: options.tls.caFile, verify: options.tls.verify,
      allowPrivate: options.allowPrivate)
  }

  private func withToken(_ call: any TokenUser) {
    let key = key(of: call)
    let now = now()
    let (token, fetches) = entries.withLock { entries -> (Secret?, Bool) in
      var entry = entries[key] ?? Entry()
      defer { entries[key] = entry }
      if let token = entry.token, now < entry.renewAt { return (token, false) }
      entry.token = nil
      entry.waiting.removeAll(where: \.isOver)
      entry.waiting.append(call)
      defer { entry.isFetching = true }
      return (nil, !entry.isFetching)
    }
    if let token { return call.proceed(token, self) }
    if fetches { fetch(key, call) }
  }

  private func send(_ call: Call, _ token: Secret) {
    guard !call.isOver else { return }
    var request = call.request
    request.options.auth = .bearer(token)
    let left = call.deadline &- now()
    guard left > 0 else {
      return call.complete(.failure(HTTPFailure(.timeout, "no answer within \(request.options.timeout)")))
    }
    request.options.timeout = TimeSpan(nanoseconds: left)
    let attempt = call.attempts.add(1, ordering: .acquiringAndReleasing).newValue
    call.follows(
      sendNow(request) { [self] result in
        if attempt == 1, case .success(let response) = result, response.status == 401, !call.isOver {
          forget(token, of: key(of: call))
          return withToken(call)
        }
        call.complete(result)
      }, attempt)
  }

  /// The server no longer accepts the token, which may already have been replaced.
  private func forget(_ token: Secret, of key: Key) {
    entries.withLock { if $0[key]?.token == token { $0[key]?.token = nil } }
  }

  // MARK: The token endpoint

  /// A token and its lifetime in seconds; nil: until the server refuses it.
  struct Grant: Equatable {
    var token: Secret
    var seconds: Int64?
  }

  private func fetch(_ key: Key, _ call: any TokenUser) {
    // The fetch serves all waiting requests, so it continues if the first of them is cancelled.
    _ = sendNow(Self.tokenRequest(key.credentials, call.request.options)) { [self] result in
      let grant = Self.grant(result, of: key.credentials)
      let now = now()
      let waiting = entries.withLock { entries -> [any TokenUser] in
        var entry = entries[key] ?? Entry()
        defer { entries[key] = entry }
        entry.isFetching = false
        if case .success(let grant) = grant {
          entry.token = grant.token
          entry.renewAt = grant.seconds.map { now &+ Self.used(of: $0) } ?? .max
        }
        defer { entry.waiting = [] }
        return entry.waiting
      }
      for call in waiting {
        switch grant {
        case .success(let grant): call.proceed(grant.token, self)
        case .failure(let failure): call.give(up: failure)
        }
      }
    }
  }

  /// How long a token is used, in nanoseconds: its lifetime without the last tenth, or without the last minute if that
  /// is shorter.
  private static func used(of seconds: Int64) -> Int64 {
    let seconds = min(max(seconds, 1), 100_000_000)
    return max(seconds * 1_000_000_000 - min(seconds * 100_000_000, 60_000_000_000), 100_000_000)
  }

  static func tokenRequest(_ credentials: HTTPOptions.OAuth2, _ options: HTTPOptions) -> HTTPRequest {
    var pairs = [("grant_type", "client_credentials")]
    if !credentials.scope.isEmpty { pairs.append(("scope", credentials.scope)) }
    pairs += credentials.parameters.map { ($0.name, $0.value) }
    var request = HTTPRequest(method: "POST", url: credentials.tokenURL)
    request.options = options
    request.options.maxResponseBytes = 64 << 10
    request.options.cutsResponse = false
    request.options.maxRedirects = 0
    request.options.tls.certificateFile = nil
    request.options.tls.keyFile = nil
    request.options.auth = .none
    if credentials.sendsCredentialsInBody {
      pairs += [("client_id", credentials.clientID.revealed), ("client_secret", credentials.clientSecret.revealed)]
    } else {
      // Escaped first (RFC 6749, 2.3.1), so a ':' in the name does no harm.
      request.options.auth = .basic(
        user: FormText.escaped(credentials.clientID.revealed),
        password: Secret(FormText.escaped(credentials.clientSecret.revealed)))
    }
    request.headers = [
      HTTPHeader("Content-Type", "application/x-www-form-urlencoded"), HTTPHeader("Accept", "application/json"),
    ]
    request.body = Array(pairs.map { "\(FormText.escaped($0))=\(FormText.escaped($1))" }.joined(separator: "&").utf8)
    request.maskedBody = Array(LocatedText.mask.utf8)
    return request
  }

  /// The grant in an answer of the token endpoint. A failure of kind `forbidden` is permanent.
  static func grant(
    _ result: Result<HTTPResponse, HTTPFailure>, of credentials: HTTPOptions.OAuth2
  ) -> Result<Grant, HTTPFailure> {
    let endpoint = "the token endpoint \(HTTPSyntax.printable(credentials.tokenURL))"
    switch result {
    case .failure(let failure):
      return .failure(HTTPFailure(failure.kind, "no access token: \(failure.message)"))
    case .success(let response):
      let arena = Arena()
      let json = JSONParser()
      return response.body.withUnsafeBytes { body in
        let document = json.parse(body, into: arena)
        guard (200..<300).contains(response.status) else {
          // Reports the code alone: a description may quote the credentials.
          let code = text("error", of: document).flatMap { isErrorCode($0) ? $0 : nil }.map { " (\($0))" } ?? ""
          let isRefusal = (400..<500).contains(response.status) && ![408, 425, 429].contains(response.status)
          return .failure(
            HTTPFailure(isRefusal ? .forbidden : .protocolError, "\(endpoint) answered \(response.status)\(code)"))
        }
        guard let token = text("access_token", of: document), !token.isEmpty,
          token.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F })
        else {
          return .failure(HTTPFailure(.protocolError, "\(endpoint) answered without an access token that can be sent"))
        }
        if let type = text("token_type", of: document), type.lowercased() != "bearer" {
          return .failure(HTTPFailure(.forbidden, "\(endpoint) gives no tokens of the type Bearer"))
        }
        return .success(Grant(token: Secret(token), seconds: seconds(member("expires_in", of: document))))
      }
    }
  }

  private static func member(_ name: StaticString, of document: Value) -> Value {
    guard document.is(.map) else { return .absent }
    return name.withUTF8Buffer { name in
      document.entries.first { $0.key.rawBytes.elementsEqual(name) }?.value ?? .absent
    }
  }

  private static func text(_ name: StaticString, of document: Value) -> String? {
    let value = member(name, of: document)
    // Tokens, types and codes need no escapes.
    return value.is(.string) && !value.isEscaped ? String(decoding: value.rawBytes, as: UTF8.self) : nil
  }

  /// Some servers send the number as a text.
  private static func seconds(_ value: Value) -> Int64? {
    switch value.what {
    case .int: value.asInt
    case .uint: .max
    case .double: value.asDouble.isFinite && value.asDouble.magnitude < 1e15 ? Int64(value.asDouble) : nil
    case .string: Int64(String(decoding: value.rawBytes, as: UTF8.self))
    default: nil
    }
  }

  private static func isErrorCode(_ text: String) -> Bool {
    text.utf8.count <= 64 && text.utf8.allSatisfy { (0x61...0x7A).contains($0) || $0 == UInt8(ascii: "_") }
  }
}
