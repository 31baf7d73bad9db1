/// Answers requests from a list, on the executor's time.
///
/// Everything happens on the thread that runs the turns.
public final class StubHTTPClient: HTTPClient, TimerTarget, @unchecked Sendable {
  /// One request that was made.
  public struct Exchange: Sendable {
    public var at: Instant
    public var request: HTTPRequest
    /// Which stub answered; nil: none fits.
    public var stub: Int?
  }

  private let stubs: [HTTPStub]
  private unowned var executor: Executor
  private var served: [Int]
  /// In the order in which they were made.
  public private(set) var exchanges: [Exchange] = []
  private var pending: [Int: Pending] = [:]
  private var next = 0
  /// Requests that were under way when the pipeline's state was saved: those who made them make them again.
  private var orphans: [Pending] = []
  private var isDetached = false
  /// An answer is on its way into the pipeline, which has not taken it yet.
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

  /// How many requests are waiting for their answers.
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

  /// The pipeline's state was saved: what is cancelled from now on is made again later.
  func detach() { isDetached = true }

  /// The pipeline goes on here. Requests are answered when they would have been.
  func attach(_ executor: Executor) {
    self.executor = executor
    orphans.sort { $0.token < $1.token }
    isDetached = false
  }

  /// Everything that was to be made again has been.
  func forgetOrphans() { orphans = [] }

  public func woke(_ token: Int) {
    guard let exchange = pending.removeValue(forKey: token) else { return }
    isAnswering = true
    // Behind what the completion posts.
    defer { executor.post { [weak self] in self?.isAnswering = false } }
    exchange.completion(exchange.outcome)
  }

  /// Gives up everything that is pending.
  func stop() {
    for exchange in pending.values { executor.cancel(exchange.wake) }
    pending = [:]
  }
}

extension StubHTTPClient.Exchange {
  /// `{method, url, headers?, body?}`; what identifies the client is left out.
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
