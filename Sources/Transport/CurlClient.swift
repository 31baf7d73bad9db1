public import PipelineCore

/// HTTP requests through one libcurl multi handle on one thread of its own.
///
/// The thread starts with the first request and sleeps without waking while nothing is under way.
/// Connections are kept and used again, with HTTP/2 where TLS agrees on it. Completions are called on
/// that thread, so they must be quick. A kept connection that turns out to be closed before any byte
/// of the answer is replaced and the request sent again, once.
public final class CurlClient: HTTPClient {
  private let loop = CurlLoop()

  public init() {}

  deinit { loop.close() }

  public func send(
    _ request: HTTPRequest,
    _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    let exchange = CurlExchange(request, loop, completion)
    loop.add(exchange)
    return exchange
  }
}
