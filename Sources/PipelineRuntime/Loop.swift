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
  private var members: [LoopMember] = []
  private var leaving: [(executor: Executor, done: @Sendable () -> Void)] = []
  private var isSignalled = false
  private var isStopped = false
  private var asked: UInt64 = 0
  private var answered: UInt64 = 0
  /// Whether the thread sleeps; until `waking` if that is set.
  private var isAsleep = false
  private var waking: Instant?
  /// Whether another thread runs turns while the loop's thread sleeps.
  private var isRunInline = false
  private var inlineRunCount = 0

  /// Members that received work since the last check, each once.
  private var signalled: [LoopMember] = []
  // The rankings are used by the thread that runs turns, or under `mutex` while that thread sleeps. A member is in at
  // most one of them; while it runs, in neither.
  /// Members with work, by the time that they have used.
  private var busy = LoopRanking(0)
  /// Members without work that have timers, by the next deadline.
  private var timed = LoopRanking(1)

  private let clock: any Clock

  /// - Parameter clock: Measures the executors' shares and decides which timers are due. The thread sleeps by the machine's.
  package init(clock: any Clock = SystemClock.shared) {
    self.clock = clock
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

  /// The number of batches whose turn was run inline.
  package var inlineRuns: Int { locked { inlineRunCount } }

  /// Adds an executor, whose turns run on this loop's thread from now on. `owner` lives until the executor is removed.
  package func add(_ executor: Executor, owner: AnyObject) {
    let member = LoopMember(executor, owner: owner)
    executor.setNeedsTurn = { [weak self, weak member] in self?.signal(member) }
    executor.runInline = { [weak self, weak member] in
      guard let self, let member else { return false }
      return runOnCaller(member, $0, $1)
    }
    locked { members.append(member) }
    signal(member)
  }

  /// Removes an executor between two turns. `done` is called on the loop's thread after the executor's last turn.
  package func remove(_ executor: Executor, _ done: @escaping @Sendable () -> Void = {}) {
    locked { leaving.append((executor, done)) }
    signal()
  }

  /// Makes `run` call `isDone` again. Callable from any thread.
  package func wake() { signal() }

  /// Notes that there may be work, for `member` if it is given, and wakes the thread. Callable from any thread.
  private func signal(_ member: LoopMember? = nil) {
    let mustWake = locked {
      if let member, !member.isSignalled {
        member.isSignalled = true
        signalled.append(member)
      }
      defer { isSignalled = true }
      return isAsleep && !isSignalled
    }
    // Signalled after the lock is released, because the woken thread takes it at once.
    if mustWake { pthread_cond_signal(condition) }
  }

  /// Runs turns of an executor on the calling thread if this loop's thread sleeps; returns whether the batch had its
  /// turn.
  private func runOnCaller(_ member: LoopMember, _ batch: Executor.Work, _ isInner: Bool) -> Bool {
    let (isFree, limit) = locked { () -> (Bool, Instant?) in
      guard isAsleep, !isRunInline, !isSignalled, !isStopped, member.isMember
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
      settle(member, isBusy: outcome.isBusy, next)
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
      if limit != .distantFuture, clock.now >= limit { return }
    }
  }

  /// Runs turns of `member`; the timer of an idle member is due at `others`.
  private func run(_ member: LoopMember, others: Instant?) {
    let begin = clock.now
    let isBusy = member.executor.run(for: TurnLimits.quantum, until: others)
    member.used = member.used + (clock.now - begin)
    settle(member, isBusy: isBusy, member.executor.nextDeadline)
  }

  /// Updates the rankings for a member that has run, according to its remaining work.
  private func settle(_ member: LoopMember, isBusy: Bool, _ deadline: Instant?) {
    takeOut(member)
    if isBusy {
      busy.insert(member, by: member.used.nanoseconds)
    } else if let deadline {
      timed.insert(member, by: deadline.nanoseconds)
    }
  }

  private func takeOut(_ member: LoopMember) {
    if busy.has(member) { busy.remove(member) } else if timed.has(member) { timed.remove(member) }
  }

  /// Moves an idle member that now has work to `busy`. Its used time is raised, so that it is ahead of the others by
  /// one quantum at most.
  private func begin(_ member: LoopMember) {
    guard !busy.has(member) else { return }
    takeOut(member)
    member.used = max(member.used, TimeSpan(nanoseconds: reached.nanoseconds &- TurnLimits.quantum.nanoseconds))
    busy.insert(member, by: member.used.nanoseconds)
  }

  private struct Round {
    var leaving: [(executor: Executor, done: @Sendable () -> Void)] = []
    /// The pipeline to run now: of those with work, the one that has used the least time.
    var next: LoopMember?
    /// The deadline of the next timer of the idle members.
    var deadline: Instant?
    var isStopped = false
  }

  /// The used time of the member that was chosen last, never decreasing.
  private var reached = TimeSpan.zero

  /// Determines the next step, in a time that depends on the number of members with work, not of all members. Clears
  /// the signal and takes all signalled work in one step, so that later work signals the loop again. Removes leaving
  /// members; their owners are released outside the lock.
  private func nextRound() -> Round {
    var released: [LoopMember] = []
    let now = clock.now
    let round = locked {
      var round = Round()
      round.leaving = leaving
      leaving = []
      for entry in round.leaving {
        for member in members where member.executor === entry.executor {
          takeOut(member)
          member.isMember = false
          released.append(member)
        }
        members.removeAll { !$0.isMember }
      }
      isSignalled = false
      round.isStopped = isStopped
      if !round.leaving.isEmpty { return round }
      answered = asked
      for member in signalled {
        member.isSignalled = false
        if member.isMember { begin(member) } else { released.append(member) }
      }
      signalled.removeAll(keepingCapacity: true)
      while let first = timed.first, first.key <= now.nanoseconds { begin(first.member) }
      round.deadline = timed.first.map { Instant(nanoseconds: $0.key) }
      if let next = busy.first?.member {
        busy.remove(next)
        reached = max(reached, next.used)
        round.next = next
      }
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
      // Woken while another thread runs turns: the loop must check for work when these are over.
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
