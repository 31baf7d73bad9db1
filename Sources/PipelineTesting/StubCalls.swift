import PipelineCore

/// Answers calls from a list, on the executor's time.
///
/// Everything happens on the pipeline thread.
final class StubCalls<Call: StubbedCall>: TimerTarget, RunningStubs, @unchecked Sendable {
  var timerKind: TimerKind { .output }
  typealias Outcome = Result<Call.Reply, Call.Failure>

  /// One call.
  struct Exchange {
    var at: Instant
    var call: Call
    /// The index of the stub that answers; nil if none matches.
    var stub: Int?
  }

  let stubs: [Stub<Call>]
  private unowned var executor: Executor
  private var served: [Int]
  /// The calls in order.
  private(set) var exchanges: [Exchange] = []
  private var pending: [Int: Pending] = [:]
  private var next = 0
  /// Calls that had no answer when the pipeline's state was saved; the restored pipeline repeats them.
  private var orphans: [Pending] = []
  private var isDetached = false
  /// Whether an answer is on its way into the pipeline.
  private(set) var isAnswering = false

  private final class Pending: Cancellable, @unchecked Sendable {
    let calls: StubCalls
    let token: Int
    let call: Call
    let due: Instant
    let outcome: Outcome
    let completion: @Sendable (Outcome) -> Void
    var wake = Wake.none

    init(
      _ calls: StubCalls, _ token: Int, _ call: Call, due: Instant, _ outcome: Outcome,
      _ completion: @escaping @Sendable (Outcome) -> Void
    ) {
      self.calls = calls
      self.token = token
      self.call = call
      self.due = due
      self.outcome = outcome
      self.completion = completion
    }

    func cancel() {
      guard let cancelled = calls.pending.removeValue(forKey: token) else { return }
      calls.executor.cancel(wake)
      if calls.isDetached { calls.orphans.append(cancelled) }
    }
  }

  init(_ stubs: [Stub<Call>], _ executor: Executor) {
    self.stubs = stubs
    self.executor = executor
    served = Array(repeating: 0, count: stubs.count)
  }

  var isConnected: Bool { false }

  func serve(_ services: inout Services) { Call.serve(self, &services) }

  func make(_ call: Call, _ completion: @escaping @Sendable (Outcome) -> Void) -> any Cancellable {
    if let index = orphans.firstIndex(where: { $0.call == call }) {
      let old = orphans.remove(at: index)
      return wait(call, until: old.due, old.outcome, completion)
    }
    let (after, outcome) = serve(call)
    return wait(call, until: executor.now + after, outcome, completion)
  }

  func serve(_ call: Call) -> (after: TimeSpan, outcome: Outcome) {
    let stub = stubs.firstIndex { $0.matches(call) }
    exchanges.append(Exchange(at: executor.now, call: call, stub: stub))
    var after = TimeSpan.zero
    var outcome: Outcome = .failure(call.noStub)
    if let stub {
      let answers = stubs[stub].answers
      let answer = answers[min(served[stub], answers.count - 1)]
      served[stub] += 1
      after = answer.after
      switch answer.what {
      case .reply(let reply): outcome = .success(reply)
      case .failure(let failure): outcome = .failure(failure)
      case .silence:
        after = call.timeout
        outcome = .failure(call.noAnswer)
      }
      if after > call.timeout {
        after = call.timeout
        outcome = .failure(call.noAnswer)
      }
    }
    return (after, outcome)
  }

  private func wait(
    _ call: Call, until due: Instant, _ outcome: Outcome, _ completion: @escaping @Sendable (Outcome) -> Void
  ) -> any Cancellable {
    next += 1
    let waiting = Pending(self, next, call, due: due, outcome, completion)
    pending[next] = waiting
    waiting.wake = executor.wake(at: due, self, next)
    return waiting
  }

  // MARK: Restarts

  func detach() { isDetached = true }

  func attach(_ executor: Executor) {
    self.executor = executor
    orphans.sort { $0.token < $1.token }
    isDetached = false
  }

  func forgetOrphans() { orphans = [] }

  func woke(_ token: Int) {
    guard let answered = pending.removeValue(forKey: token) else { return }
    isAnswering = true
    // Reset after the work that the completion posts.
    defer { executor.post { [weak self] in self?.isAnswering = false } }
    answered.completion(answered.outcome)
  }

  func stop() {
    for waiting in pending.values { executor.cancel(waiting.wake) }
    pending = [:]
  }
  // MARK: The verdict

  func unanswered(at location: SourceLocation) -> [Diagnostic] {
    var reported: Set<String> = []
    return exchanges.filter {
      $0.stub == nil && reported.insert($0.call.unanswered(.zero)).inserted
    }.map { exchange in
      let nearest = stubs.filter { $0.receiver == exchange.call.receiver }.min {
        Glob.distance($0.pattern, exchange.call.line)
          < Glob.distance($1.pattern, exchange.call.line)
      }
      return Diagnostic(
        .requestWithoutStub,
        exchange.call.unanswered(TimeSpan(nanoseconds: exchange.at.nanoseconds)),
        at: nearest?.location ?? location,
        help: nearest.map { "The nearest stub is for \(Call.shown($0))" } ?? Call.form.first)
    }
  }
}
