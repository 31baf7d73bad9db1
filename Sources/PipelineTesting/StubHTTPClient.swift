import PipelineCore

/// Answers HTTP requests from a list, on the executor's time.
final class StubHTTPClient: HTTPClient {
  let calls: StubCalls<HTTPRequest>

  init(_ calls: StubCalls<HTTPRequest>) { self.calls = calls }

  func send(
    _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable { calls.make(request, completion) }
}

extension HTTPRequest: StubbedCall {
  typealias Reply = HTTPResponse
  var timeout: TimeSpan { options.timeout }
  var noAnswer: HTTPFailure { HTTPFailure(.timeout, "no answer within \(options.timeout)") }
  var noStub: HTTPFailure {
    HTTPFailure(.connect, "the test has no stub for \(method) \(Printable.cut(shownURL))")
  }
}

extension StubCalls.Exchange where Call == HTTPRequest {
  /// The request as `{method, url, headers?, body?}`; headers that identify the client are left out.
  var value: TestValue {
    var members: [TestValue.Member] = [
      .init(Array("method".utf8), .text(call.method)), .init(Array("url".utf8), .text(call.shownURL)),
    ]
    if !call.headers.isEmpty {
      members.append(
        .init(
          Array("headers".utf8),
          .object(
            unsorted: call.headers.map {
              let name = $0.name.lowercased()
              return .init(Array(name.utf8), .text($0.shown))
            })))
    }
    if let body = call.shownBody { members.append(.init(Array("body".utf8), TestValue(body: body))) }
    return .object(unsorted: members)
  }
}
