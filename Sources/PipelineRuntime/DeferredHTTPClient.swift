package import PipelineCore
import Synchronization
internal import Transport

/// Creates the real client at the first request: most pipelines send none, and libcurl costs milliseconds and
/// megabytes.
package final class DeferredHTTPClient: HTTPClient {
  private let client = Mutex<CurlClient?>(nil)
  private let memory: MemoryBudget?

  /// - Parameter memory: The memory budget of the process, against which answers are counted; nil: answers are not
  ///   counted.
  package init(memory: MemoryBudget? = nil) { self.memory = memory }

  package func send(
    _ request: HTTPRequest,
    _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    made.send(request, completion)
  }

  package func stream(
    _ request: HTTPRequest, _ receive: @escaping @Sendable (HTTPStreamPart) -> Void
  ) -> any HTTPStream {
    made.stream(request, receive)
  }

  package func accessToken(
    _ options: HTTPOptions, insteadOf refused: Secret?,
    _ completion: @escaping @Sendable (Result<Secret, HTTPFailure>) -> Void
  ) -> any Cancellable {
    made.accessToken(options, insteadOf: refused, completion)
  }

  private var made: CurlClient {
    client.withLock { client in
      if let client { return client }
      let made = CurlClient(memory: memory)
      client = made
      return made
    }
  }
}
