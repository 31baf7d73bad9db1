import PipelineCore
import Synchronization

/// An HTTP client that answers as a test says, without any network. For one thread, that of the test.
public final class ScriptedHTTP: HTTPClient, @unchecked Sendable {
  public typealias Answer = Result<HTTPResponse, HTTPFailure>

  /// A request that nobody has answered yet.
  public final class Exchange: Cancellable, @unchecked Sendable {
    public let request: HTTPRequest
    public private(set) var isCancelled = false
    private var completion: (@Sendable (Answer) -> Void)?

    init(_ request: HTTPRequest, _ completion: @escaping @Sendable (Answer) -> Void) {
      self.request = request
      self.completion = completion
    }

    public func cancel() {
      isCancelled = true
      completion = nil
    }

    public var isOpen: Bool { completion != nil }

    public func answer(_ answer: Answer) {
      let completion = completion
      self.completion = nil
      completion?(answer)
    }

    public func answer(_ status: Int, _ body: String = "", _ headers: [HTTPHeader] = []) {
      answer(.success(HTTPResponse(status: status, headers: headers, body: Array(body.utf8))))
    }

    public var body: String { String(decoding: request.body ?? [], as: UTF8.self) }

    public func header(_ name: String) -> String? {
      request.headers.first { $0.name.lowercased() == name.lowercased() }?.value
    }
  }

  /// All requests, in their order.
  public private(set) var exchanges: [Exchange] = []
  /// When each request was made.
  public private(set) var times: [Instant] = []
  /// Answers at once, by the number of the request; nil leaves it open.
  public var script: ((Int, Exchange) -> Answer?)?
  var now: () -> Instant = { Instant(nanoseconds: 0) }
  /// Runs when the present turn is over: a client never answers inside of `send`.
  public var later: (@escaping @Sendable () -> Void) -> Void = { _ in }

  public init() {}

  public var open: [Exchange] { exchanges.filter(\.isOpen) }
  public var bodies: [String] { exchanges.map(\.body) }

  public func send(_ request: HTTPRequest, _ completion: @escaping @Sendable (Answer) -> Void)
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

  public static func status(_ status: Int, _ body: String = "", _ headers: [HTTPHeader] = []) -> Answer {
    .success(HTTPResponse(status: status, headers: headers, body: Array(body.utf8)))
  }
}
