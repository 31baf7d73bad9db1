internal import CCurl
import PipelineCore

/// An HTTP client: one libcurl multi handle on a thread of its own.
///
/// libcurl is loaded with the first request. If it is not installed, requests fail with `unavailable`; if it cannot be
/// loaded at the moment, the next request tries again. The thread also starts with the first request, and sleeps
/// without waking while nothing is under way. Connections are kept and reused, with HTTP/2 if TLS negotiates it.
/// Completions are called on that thread, so they must be quick. If a kept connection turns out to be closed before the
/// first byte of the response, it is replaced and the request sent again, once. Requests with OAuth 2.0 share their tokens.
package final class CurlClient: HTTPClient {
  private let loop: CurlLoop
  private let library: @Sendable () -> HTTPFailure?
  private let tokens: AccessTokens

  /// - Parameter memory: The memory budget of the process, against which answers are counted; nil: they are not.
  package convenience init(memory: MemoryBudget? = nil) { self.init(memory: memory, library: Self.prepareLibrary) }

  /// For tests: a client whose library may be missing.
  init(memory: MemoryBudget? = nil, library: @escaping @Sendable () -> HTTPFailure?) {
    self.library = library
    let loop = CurlLoop(memory, library)
    self.loop = loop
    tokens = AccessTokens { request, completion in
      let exchange = CurlExchange(request, loop, completion)
      loop.add(exchange)
      return exchange
    } stream: { request, receive in
      let exchange = CurlExchange(streaming: request, loop, receive)
      loop.add(exchange)
      return exchange
    } now: {
      monotonicNow()
    }
  }

  package var fault: HTTPFailure? { library() }

  /// Loads libcurl; returns nil, or why loading failed: `unavailable` if it will never succeed.
  static func prepareLibrary() -> HTTPFailure? {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { reason in
      guard let start = reason.baseAddress else { return nil }
      start.initialize(repeating: 0, count: reason.count)
      let state = rx_curl_prepare(start, reason.count)
      return failure(state, HTTPSyntax.printable(String(cString: start)))
    }
  }

  static func failure(_ state: rx_curl_state, _ reason: String) -> HTTPFailure? {
    switch state {
    case RX_CURL_READY: nil
    case RX_CURL_MISSING:
      HTTPFailure(
        .unavailable,
        "requests need the library libcurl.so.4, which cannot be loaded (\(reason)): install the package libcurl4, or libcurl4t64 where there is one"
      )
    default: HTTPFailure(.protocolError, "libcurl cannot be started now: \(reason)")
    }
  }

  deinit { loop.close() }

  package func stream(
    _ request: HTTPRequest, _ receive: @escaping @Sendable (HTTPStreamPart) -> Void
  ) -> any HTTPStream {
    if case .oauth2(let credentials) = request.options.auth { return tokens.stream(request, credentials, receive) }
    let exchange = CurlExchange(streaming: request, loop, receive)
    loop.add(exchange)
    return exchange
  }

  package func accessToken(
    _ options: HTTPOptions, insteadOf refused: Secret?,
    _ completion: @escaping @Sendable (Result<Secret, HTTPFailure>) -> Void
  ) -> any Cancellable {
    guard case .oauth2(let credentials) = options.auth else {
      preconditionFailure("only OAuth 2.0 has tokens")
    }
    return tokens.token(options, credentials, insteadOf: refused, completion)
  }

  package func send(
    _ request: HTTPRequest,
    _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    if case .oauth2(let credentials) = request.options.auth { return tokens.send(request, credentials, completion) }
    let exchange = CurlExchange(request, loop, completion)
    loop.add(exchange)
    return exchange
  }
}
