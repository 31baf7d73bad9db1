import PipelineCore

/// A call to an outside service that tests answer from a list.
protocol StubbedCall: Sendable, Equatable {
  associatedtype Reply: Sendable
  associatedtype Failure: Error, Sendable
  /// How long the caller waits.
  var timeout: TimeSpan { get }
  /// The failure that the caller receives after `timeout`, or if no stub matches.
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
    /// The delay after the call.
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
/// Everything happens on the pipeline thread.
final class StubCalls<Call: StubbedCall>: TimerTarget, @unchecked Sendable {
  var timerKind: TimerKind { .output }
  typealias Outcome = Result<Call.Reply, Call.Failure>
  typealias Answer = Stub<Call.Reply, Call.Failure>.Answer

  /// One call.
  struct Exchange {
    var at: Instant
    var call: Call
    /// The index of the answering stub; nil: none matches.
    var stub: Int?
  }

  /// The calls that each stub answers, and its answers in turn; the last one repeats.
  private let stubs: [(matches: (Call) -> Bool, answers: [Answer])]
  private unowned var executor: Executor
  private var served: [Int]
  /// The calls in order.
  private(set) var exchanges: [Exchange] = []
  private var pending: [Int: Pending] = [:]
  private var next = 0
  /// Calls that were under way when the pipeline's state was saved; the restored pipeline makes them again.
  private var orphans: [Pending] = []
  private var isDetached = false
  /// An answer is on its way into the pipeline.
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

  /// The number of calls without an answer.
  var underWay: Int { pending.count }

  func make(_ call: Call, _ completion: @escaping @Sendable (Outcome) -> Void) -> any Cancellable {
    if let index = orphans.firstIndex(where: { $0.call == call }) {
      let old = orphans.remove(at: index)
      return wait(call, until: old.due, old.outcome, completion)
    }
    let (after, outcome) = serve(call)
    return wait(call, until: executor.now + after, outcome, completion)
  }

  /// Answers at once, whatever the stub says of the time.
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

  /// The pipeline's state was saved: calls cancelled from now on will be made again.
  func detach() { isDetached = true }

  /// The pipeline continues here. Calls are answered at their original times.
  func attach(_ executor: Executor) {
    self.executor = executor
    orphans.sort { $0.token < $1.token }
    isDetached = false
  }

  /// All repeated calls have been made.
  func forgetOrphans() { orphans = [] }

  func woke(_ token: Int) {
    guard let answered = pending.removeValue(forKey: token) else { return }
    isAnswering = true
    // After the work that the completion posts.
    defer { executor.post { [weak self] in self?.isAnswering = false } }
    answered.completion(answered.outcome)
  }

  /// Drops all calls without an answer.
  func stop() {
    for waiting in pending.values { executor.cancel(waiting.wake) }
    pending = [:]
  }
}
