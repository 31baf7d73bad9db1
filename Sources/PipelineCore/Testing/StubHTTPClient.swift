/// Answers requests from a list, on the executor's time.
///
/// Everything happens on the pipeline thread.
public final class StubHTTPClient: HTTPClient, TimerTarget, @unchecked Sendable {
  /// One request.
  public struct Exchange: Sendable {
    public var at: Instant
    public var request: HTTPRequest
    /// The index of the answering stub; nil: none matches.
    public var stub: Int?
  }

  private let stubs: [HTTPStub]
  private unowned var executor: Executor
  private var served: [Int]
  /// The requests in order.
  public private(set) var exchanges: [Exchange] = []
  private var pending: [Int: Pending] = [:]
  private var next = 0
  /// Requests that were under way when the pipeline's state was saved; the restored pipeline sends them again.
  private var orphans: [Pending] = []
  private var isDetached = false
  /// A response is on its way into the pipeline.
  private(set) var isAnswering = false

  private final class Pending: Cancellable, @unchecked Sendable {
    let client: StubHTTPClient
    let token: Int
    let request: HTTPRequest
    let due: Instant
    let outcome: Result<HTTPResponse, HTTPFailure>
    let completion: @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
    var wake = Wake.none

    init(
      _ client: StubHTTPClient, _ token: Int, _ request: HTTPRequest, due: Instant,
      _ outcome: Result<HTTPResponse, HTTPFailure>,
      _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
    ) {
      self.client = client
      self.token = token
      self.request = request
      self.due = due
      self.outcome = outcome
      self.completion = completion
    }

    func cancel() {
      guard let cancelled = client.pending.removeValue(forKey: token) else { return }
      client.executor.cancel(wake)
      if client.isDetached { client.orphans.append(cancelled) }
    }
  }

  public init(_ stubs: [HTTPStub], _ executor: Executor) {
    self.stubs = stubs
    self.executor = executor
    served = Array(repeating: 0, count: stubs.count)
  }

  /// The number of requests without a response.
  public var pendingRequests: Int { pending.count }

  public func send(
    _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    if let index = orphans.firstIndex(where: { $0.request == request }) {
      let old = orphans.remove(at: index)
      return wait(request, until: old.due, old.outcome, completion)
    }
    let stub = stubs.firstIndex { $0.matches(request) }
    exchanges.append(Exchange(at: executor.now, request: request, stub: stub))
    var after = TimeSpan.zero
    var outcome: Result<HTTPResponse, HTTPFailure> = .failure(
      HTTPFailure(.connect, "the test has no stub for \(request.method) \(Printable.cut(request.shownURL))"))
    let timeout = Result<HTTPResponse, HTTPFailure>.failure(
      HTTPFailure(.timeout, "no answer within \(request.options.timeout)"))
    if let stub {
      let answers = stubs[stub].answers
      let answer = answers[min(served[stub], answers.count - 1)]
      served[stub] += 1
      after = answer.after
      switch answer.what {
      case .reply(let response): outcome = .success(response)
      case .failure(let failure): outcome = .failure(failure)
      case .silence:
        after = request.options.timeout
        outcome = timeout
      }
      if after > request.options.timeout {
        after = request.options.timeout
        outcome = timeout
      }
    }
    return wait(request, until: executor.now + after, outcome, completion)
  }

  private func wait(
    _ request: HTTPRequest, until due: Instant, _ outcome: Result<HTTPResponse, HTTPFailure>,
    _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    next += 1
    let exchange = Pending(self, next, request, due: due, outcome, completion)
    pending[next] = exchange
    exchange.wake = executor.wake(at: due, self, next)
    return exchange
  }

  // MARK: Restarts

  /// The pipeline's state was saved: requests cancelled from now on will be sent again.
  func detach() { isDetached = true }

  /// The pipeline continues here. Requests are answered at their original times.
  func attach(_ executor: Executor) {
    self.executor = executor
    orphans.sort { $0.token < $1.token }
    isDetached = false
  }

  /// All repeated requests have been sent.
  func forgetOrphans() { orphans = [] }

  public func woke(_ token: Int) {
    guard let exchange = pending.removeValue(forKey: token) else { return }
    isAnswering = true
    // After the work that the completion posts.
    defer { executor.post { [weak self] in self?.isAnswering = false } }
    exchange.completion(exchange.outcome)
  }

  /// Drops all pending requests.
  func stop() {
    for exchange in pending.values { executor.cancel(exchange.wake) }
    pending = [:]
  }
}

extension StubHTTPClient.Exchange {
  /// `{method, url, headers?, body?}`; headers that identify the client are left out.
  var value: TestValue {
    var members: [TestValue.Member] = [
      .init(Array("method".utf8), .text(request.method)), .init(Array("url".utf8), .text(request.shownURL)),
    ]
    if !request.headers.isEmpty {
      members.append(
        .init(
          Array("headers".utf8),
          .object(
            unsorted: request.headers.map {
              let name = $0.name.lowercased()
              return .init(Array(name.utf8), .text($0.shown))
            })))
    }
    if let body = request.shownBody { members.append(.init(Array("body".utf8), TestValue(body: body))) }
    return .object(unsorted: members)
  }
}
