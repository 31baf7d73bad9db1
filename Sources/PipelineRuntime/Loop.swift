import Glibc
package import PipelineCore

/// A thread that runs the turns of its executors and sleeps when there is nothing to do: an idle loop wakes only for
/// the next timer.
///
/// Executors share the thread fairly by time: of those with work, the one that has used the least time runs next, for a
/// quantum (``TurnLimits/quantum``), or until a timer of an idle one is due. An idle executor does not accumulate
/// unused time, but it runs soon.
package final class Loop: @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private let condition: UnsafeMutablePointer<pthread_cond_t>
  // Guarded by `mutex`.
  private var members: [Member] = []
  private var leaving: [(executor: Executor, done: @Sendable () -> Void)] = []
  private var isSignalled = false
  private var isStopped = false
  private var asked: UInt64 = 0
  private var answered: UInt64 = 0
  /// The thread sleeps, perhaps until `waking`.
  private var isAsleep = false
  private var waking: Instant?
  /// Another thread runs turns while the loop's thread sleeps.
  private var isRunInline = false
  private var inlineRunCount = 0

  private final class Member: @unchecked Sendable {
    let executor: Executor
    /// The object that the executor's turns need alive.
    let owner: AnyObject
    /// The executor received work since the last check. Guarded by `mutex`.
    var isSignalled = true
    // Used by the thread that runs turns, or under `mutex` while that thread sleeps: work is left.
    var isBusy = false
    /// The deadline of the next timer.
    var deadline: Instant?
    /// The time used by its turns, as far as it counts.
    var used = TimeSpan.zero

    init(_ executor: Executor, owner: AnyObject) {
      self.executor = executor
      self.owner = owner
    }
  }

  package init() {
    mutex = .allocate(capacity: 1)
    condition = .allocate(capacity: 1)
    pthread_mutex_init(mutex, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(condition, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  deinit {
    pthread_cond_destroy(condition)
    pthread_mutex_destroy(mutex)
    condition.deallocate()
    mutex.deallocate()
  }

  /// The number of executors.
  package var load: Int { locked { members.count } }

  /// How many batches had an inline run.
  package var inlineRuns: Int { locked { inlineRunCount } }

  /// Adds an executor; its turns run on this loop's thread from now on. `owner` lives until the executor is removed.
  package func add(_ executor: Executor, owner: AnyObject) {
    let member = Member(executor, owner: owner)
    executor.setNeedsTurn = { [weak self, weak member] in self?.signal(member) }
    executor.runInline = { [weak self, weak member] in
      guard let self, let member else { return false }
      return runOnCaller(member, $0, $1)
    }
    locked { members.append(member) }
    signal()
  }

  /// Removes an executor between two turns. `done` is called on the loop's thread after the executor's last turn.
  package func remove(_ executor: Executor, _ done: @escaping @Sendable () -> Void = {}) {
    locked { leaving.append((executor, done)) }
    signal()
  }

  /// Makes `run` call `isDone` again. Callable from any thread.
  package func wake() { signal() }

  /// Reports that there may be work, for `member`. Callable from any thread.
  private func signal(_ member: Member? = nil) {
    let mustWake = locked {
      member?.isSignalled = true
      defer { isSignalled = true }
      return isAsleep && !isSignalled
    }
    // Signalled without the lock, which the thread takes as soon as it is awake.
    if mustWake { pthread_cond_signal(condition) }
  }

  /// Runs turns of an executor on the calling thread if this loop's thread sleeps; returns whether the batch had its
  /// turn.
  private func runOnCaller(_ member: Member, _ batch: Executor.Work, _ isInner: Bool) -> Bool {
    let (isFree, limit) = locked { () -> (Bool, Instant?) in
      guard isAsleep, !isRunInline, !isSignalled, !isStopped, members.contains(where: { $0 === member })
      else { return (false, nil) }
      isRunInline = true
      return (true, waking)
    }
    guard isFree else { return false }
    let outcome = member.executor.runOnCaller(inner: isInner, until: limit, batch)
    let next = member.executor.nextDeadline
    locked {
      isRunInline = false
      if outcome.isTaken { inlineRunCount += 1 }
      member.deadline = next
      member.isBusy = outcome.isBusy
      if let next, waking.map({ next < $0 }) ?? true { isSignalled = true }
      if outcome.isBusy { isSignalled = true }
      if isSignalled || isStopped { pthread_cond_signal(condition) }
    }
    for work in outcome.afterTurn { work() }
    return outcome.isTaken
  }

  package func stop() {
    locked {
      isStopped = true
      pthread_cond_signal(condition)
    }
  }

  /// Whether the loop has completed a round since the last call; requests another round.
  package func hasTurned() -> Bool {
    locked {
      let turned = answered == asked
      asked &+= 1
      isSignalled = true
      pthread_cond_signal(condition)
      return turned
    }
  }

  /// Runs turns on the calling thread until `stop()`, until `limit`, or until `isDone`, which is called on this thread
  /// between turns, returns true.
  package func run(until limit: Instant = .distantFuture, _ isDone: () -> Bool = { false }) {
    while !isDone() {
      let round = nextRound()
      if !round.leaving.isEmpty {
        for entry in round.leaving {
          entry.executor.discard()
          entry.done()
        }
        continue
      }
      if round.isStopped { return }
      if let next = round.next {
        run(next, others: round.deadline)
      } else {
        let deadline = min(round.deadline ?? .distantFuture, limit)
        sleep(until: deadline == .distantFuture ? nil : deadline)
      }
      if limit != .distantFuture, SystemClock.shared.now >= limit { return }
    }
  }

  /// Runs turns of `member`; the timer of an idle member is due at `others`.
  private func run(_ member: Member, others: Instant?) {
    let begin = SystemClock.shared.now
    member.isBusy = member.executor.run(for: TurnLimits.quantum, until: others)
    member.deadline = member.executor.nextDeadline
    member.used = member.used + (SystemClock.shared.now - begin)
  }

  private struct Round {
    var leaving: [(executor: Executor, done: @Sendable () -> Void)] = []
    /// The pipeline to run now: of those with work, the one that has used the least time.
    var next: Member?
    /// The next timer of the idle members.
    var deadline: Instant?
    var isStopped = false
  }

  /// The least time used by a member with work at the last run.
  private var reached = TimeSpan.zero

  /// Determines what to do. Takes the signal together with everything it may stand for, so that later work signals the
  /// loop again. Members that leave are removed; their owners are released outside the lock.
  private func nextRound() -> Round {
    var released: [Member] = []
    let now = SystemClock.shared.now
    let round = locked {
      var round = Round()
      round.leaving = leaving
      leaving = []
      for entry in round.leaving {
        released += members.filter { $0.executor === entry.executor }
        members.removeAll { $0.executor === entry.executor }
      }
      isSignalled = false
      round.isStopped = isStopped
      if !round.leaving.isEmpty { return round }
      answered = asked
      for member in members {
        if !member.isBusy {
          guard member.isSignalled || member.deadline.map({ $0 <= now }) ?? false else {
            if let deadline = member.deadline { round.deadline = min(round.deadline ?? deadline, deadline) }
            continue
          }
          member.isBusy = true
          // The member was idle: it is ahead of the others by a quantum at most.
          member.used = max(member.used, TimeSpan(nanoseconds: reached.nanoseconds &- TurnLimits.quantum.nanoseconds))
        }
        member.isSignalled = false
        if round.next.map({ member.used < $0.used }) ?? true { round.next = member }
      }
      if let next = round.next { reached = max(reached, next.used) }
      return round
    }
    return withExtendedLifetime(released) { round }
  }

  private func sleep(until deadline: Instant?) {
    pthread_mutex_lock(mutex)
    isAsleep = true
    waking = deadline
    defer {
      isAsleep = false
      pthread_mutex_unlock(mutex)
    }
    while isRunInline || !isSignalled && !isStopped {
      // Woken while another thread runs turns: the loop must check for work after them.
      if isRunInline { isSignalled = true }
      guard let deadline, !isRunInline else {
        pthread_cond_wait(condition, mutex)
        continue
      }
      var until = timespec(
        tv_sec: Int(deadline.nanoseconds / 1_000_000_000),
        tv_nsec: Int(deadline.nanoseconds % 1_000_000_000))
      if pthread_cond_timedwait(condition, mutex, &until) == ETIMEDOUT {
        if !isRunInline { return }
      }
    }
  }

  private func locked<T>(_ body: () -> T) -> T {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body()
  }
}
