import PipelineCore
import Synchronization
import Transport

extension Services {
  /// The real ones: libcurl, the log, the system's random numbers, threads.
  static func real(_ log: LogWriter) -> Services {
    Services(
      http: DeferredHTTPClient(),
      log: { level, component, message in log.write(level.logLevel, component, message) },
      deadLetter: { letter in log.reject(letter) },
      random: {
        var generator = SystemRandomNumberGenerator()
        return generator.next()
      },
      worker: { WorkThread("rxd \($0)") })
  }
}

/// Makes the real client for the first request: most pipelines make none, and libcurl takes
/// milliseconds and megabytes.
final class DeferredHTTPClient: HTTPClient {
  private let client = Mutex<CurlClient?>(nil)

  func send(
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
