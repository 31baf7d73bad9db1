import PipelineCore

/// A call to an outside service that tests answer from a list.
protocol StubbedCall: Sendable, Equatable {
  associatedtype Reply: Sendable
  associatedtype Failure: Error, Sendable
  /// The time limit of the call.
  var timeout: TimeSpan { get }
  /// The failure that the caller receives after `timeout`. `noStub`: the failure if no stub matches.
  var noAnswer: Failure { get }
  var noStub: Failure { get }
}

/// The stubbed answers to some calls.
package struct Stub<Reply: Sendable, Failure: Error & Sendable>: Sendable {
  /// The answer to one call.
  package struct Answer: Sendable {
    /// The kind of an answer.
    package enum What: Sendable {
      case reply(Reply)
      case failure(Failure)
      /// No answer: the call times out.
      case silence
    }
    /// The time from the call to the answer.
    package var after = TimeSpan.zero
    package var what: What

    package init(after: TimeSpan = .zero, _ what: What) {
      self.after = after
      self.what = what
    }
  }
}

/// Answers calls from a list, on the executor's time.
///
/// Must be used on the pipeline thread.
final class StubCalls<Call: StubbedCall>: TimerTarget, @unchecked Sendable {
  var timerKind: TimerKind { .output }
  typealias Outcome = Result<Call.Reply, Call.Failure>
  typealias Answer = Stub<Call.Reply, Call.Failure>.Answer

  /// One call.
  struct Exchange {
    var at: Instant
    var call: Call
    /// The index of the stub that answers; nil if none matches.
    var stub: Int?
  }

  /// For each stub, the calls that it answers, and its answers in order; the last one is repeated.
  private let stubs: [(matches: (Call) -> Bool, answers: [Answer])]
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

  init(_ stubs: [(matches: (Call) -> Bool, answers: [Answer])], _ executor: Executor) {
    self.stubs = stubs
    self.executor = executor
    served = Array(repeating: 0, count: stubs.count)
  }

  /// The number of calls that have no answer yet.
  var underWay: Int { pending.count }

  func make(_ call: Call, _ completion: @escaping @Sendable (Outcome) -> Void) -> any Cancellable {
    if let index = orphans.firstIndex(where: { $0.call == call }) {
      let old = orphans.remove(at: index)
      return wait(call, until: old.due, old.outcome, completion)
    }
    let (after, outcome) = serve(call)
    return wait(call, until: executor.now + after, outcome, completion)
  }

  /// Answers at once, ignoring the delay that the stub specifies.
  func answer(_ call: Call) -> Outcome { serve(call).outcome }

  private func serve(_ call: Call) -> (after: TimeSpan, outcome: Outcome) {
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

  /// Must be called when the pipeline's state was saved: calls that are cancelled from then on will be repeated.
  func detach() { isDetached = true }

  /// Continues with the restored pipeline's executor. Calls are answered at their original times.
  func attach(_ executor: Executor) {
    self.executor = executor
    orphans.sort { $0.token < $1.token }
    isDetached = false
  }

  /// Must be called when all repeated calls have been made.
  func forgetOrphans() { orphans = [] }

  func woke(_ token: Int) {
    guard let answered = pending.removeValue(forKey: token) else { return }
    isAnswering = true
    // Reset after the work that the completion posts.
    defer { executor.post { [weak self] in self?.isAnswering = false } }
    answered.completion(answered.outcome)
  }

  /// Drops all calls that have no answer yet.
  func stop() {
    for waiting in pending.values { executor.cancel(waiting.wake) }
    pending = [:]
  }
}
