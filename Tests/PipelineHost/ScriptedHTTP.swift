import PipelineCore
import Synchronization

/// An HTTP client that gives the answers that a test specifies, without any network. Used on the thread of the test
/// only.
package final class ScriptedHTTP: HTTPClient, @unchecked Sendable {
  package typealias Answer = Result<HTTPResponse, HTTPFailure>

  /// A request that has not been answered yet.
  package final class Exchange: Cancellable, @unchecked Sendable {
    package let request: HTTPRequest
    package private(set) var isCancelled = false
    private var completion: (@Sendable (Answer) -> Void)?

    init(_ request: HTTPRequest, _ completion: @escaping @Sendable (Answer) -> Void) {
      self.request = request
      self.completion = completion
    }

    package func cancel() {
      isCancelled = true
      completion = nil
    }

    package var isOpen: Bool { completion != nil }

    package func answer(_ answer: Answer) {
      let completion = completion
      self.completion = nil
      completion?(answer)
    }

    package func answer(_ status: Int, _ body: String = "", _ headers: [HTTPHeader] = []) {
      answer(.success(HTTPResponse(status: status, headers: headers, body: Array(body.utf8))))
    }

    package var body: String { String(decoding: request.body ?? [], as: UTF8.self) }

    package func header(_ name: String) -> String? {
      request.headers.first { $0.name.lowercased() == name.lowercased() }?.value
    }
  }

  /// All requests, in order.
  package private(set) var exchanges: [Exchange] = []
  /// When each request was made.
  package private(set) var times: [Instant] = []
  /// Gives the immediate answer to a request, by its number; nil leaves it unanswered.
  package var script: ((Int, Exchange) -> Answer?)?
  var now: () -> Instant = { Instant(nanoseconds: 0) }
  /// Runs a closure after the current turn: a client never answers within `send`.
  package var later: (@escaping @Sendable () -> Void) -> Void = { _ in }

  package init() {}

  package var open: [Exchange] { exchanges.filter(\.isOpen) }
  package var bodies: [String] { exchanges.map(\.body) }

  package func send(_ request: HTTPRequest, _ completion: @escaping @Sendable (Answer) -> Void)
    -> any Cancellable
  {
    let exchange = Exchange(request, completion)
    exchanges.append(exchange)
    times.append(now())
    if let answer = script?(exchanges.count - 1, exchange) {
      later { exchange.answer(answer) }
    }
    return exchange
  }

  package static func status(_ status: Int, _ body: String = "", _ headers: [HTTPHeader] = []) -> Answer {
    .success(HTTPResponse(status: status, headers: headers, body: Array(body.utf8)))
  }
}
