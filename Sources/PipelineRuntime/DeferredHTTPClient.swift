package import PipelineCore
import Synchronization
internal import Transport

/// Makes the real client at the first request: most pipelines send none, and libcurl takes milliseconds and megabytes.
package final class DeferredHTTPClient: HTTPClient {
  private let client = Mutex<CurlClient?>(nil)

  package init() {}

  package func send(
    _ request: HTTPRequest,
    _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    let made = client.withLock { client in
      if let client { return client }
      let made = CurlClient()
      client = made
      return made
    }
    return made.send(request, completion)
  }
}
