/// A part of a streamed response.
package enum HTTPStreamPart: Sendable {
  /// Status and headers, without a body; comes before all other parts.
  case head(HTTPResponse)
  case bytes([UInt8])
  /// The last part. Nil if the response is complete; otherwise why it is missing or incomplete.
  case end(HTTPFailure?)
}

/// A request with a streamed response.
package protocol HTTPStream: Cancellable {
  /// Reports that bytes of the response have been handled. The number of unhandled bytes is limited, so without this
  /// call the response stops.
  func handled(_ bytes: Int)
}

extension HTTPClient {
  /// Delivers the response when it is complete; `timeout` limits it.
  package func stream(
    _ request: HTTPRequest, _ receive: @escaping @Sendable (HTTPStreamPart) -> Void
  ) -> any HTTPStream {
    let call = send(request) { result in
      switch result {
      case .success(var response):
        let body = response.body
        response.body = []
        receive(.head(response))
        if !body.isEmpty { receive(.bytes(body)) }
        receive(.end(nil))
      case .failure(let failure): receive(.end(failure))
      }
    }
    return WholeAnswer(call)
  }
}

private final class WholeAnswer: HTTPStream {
  private let call: any Cancellable
  init(_ call: any Cancellable) { self.call = call }
  func cancel() { call.cancel() }
  func handled(_ bytes: Int) {}
}
