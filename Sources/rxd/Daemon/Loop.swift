import Glibc
import PipelineCore

/// A thread that runs the turns of the executors assigned to it, and sleeps when there is nothing to do:
/// an idle loop wakes for nothing but the next timer.
final class Loop: @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private let condition: UnsafeMutablePointer<pthread_cond_t>
  // Guarded by `mutex`.
  private var members: [Member] = []
  private var leaving: [(executor: Executor, done: @Sendable () -> Void)] = []
  private var isSignalled = false
  private var isStopped = false
  private var asked: UInt64 = 0
  private var answered: UInt64 = 0
  /// The thread waits for something to do, perhaps until `waking`.
  private var isAsleep = false
  private var waking: Instant?
  /// Another thread runs turns in place of the one that sleeps.
  private var isLent = false

  private struct Member {
    var executor: Executor
    /// What the executor's turns need alive.
    var owner: AnyObject
  }

  init() {
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

  /// How many executors run here.
  var load: Int { locked { members.count } }

  /// Adds an executor; its turns run on this loop's thread from now on, and `owner` lives until it is
  /// removed.
  func add(_ executor: Executor, owner: AnyObject) {
    executor.setNeedsTurn = { [weak self] in self?.signal() }
    executor.runHere = { [weak self, unowned executor] in self?.lend(executor, $0, $1) ?? false }
    locked { members.append(Member(executor: executor, owner: owner)) }
    signal()
  }

  /// Removes an executor between two turns. `done` is called on the loop's thread once none of its
  /// turns runs any more and none ever will.
  func remove(_ executor: Executor, _ done: @escaping @Sendable () -> Void = {}) {
    locked { leaving.append((executor, done)) }
    signal()
  }

  /// Has the loop look again whether there is something to do. From any thread.
  func signal() {
    locked {
      isSignalled = true
      pthread_cond_signal(condition)
    }
  }

  /// Has the calling thread run turns of an executor if this loop's thread sleeps; whether it took the batch.
  private func lend(_ executor: Executor, _ batch: Executor.Work, _ isInner: Bool) -> Bool {
    let isFree = locked {
      guard isAsleep, !isLent, !isSignalled, !isStopped, members.contains(where: { $0.executor === executor })
      else { return false }
      isLent = true
      return true
    }
    guard isFree else { return false }
    let lent = executor.runLent(inner: isInner, batch)
    let next = executor.nextDeadline
    locked {
      isLent = false
      if let next, waking.map({ next < $0 }) ?? true { isSignalled = true }
      if lent.isBusy { isSignalled = true }
      if isSignalled || isStopped { pthread_cond_signal(condition) }
    }
    for errand in lent.errands { errand() }
    return lent.isTaken
  }

  func stop() {
    locked {
      isStopped = true
      pthread_cond_signal(condition)
    }
  }

  /// Whether the loop has come round since the last call; asks it to come round again.
  func hasTurned() -> Bool {
    locked {
      let turned = answered == asked
      asked &+= 1
      isSignalled = true
      pthread_cond_signal(condition)
      return turned
    }
  }

  /// Runs turns on the calling thread until `stop()`.
  func run() {
    while true {
      let round = look()
      if !round.leaving.isEmpty {
        for entry in round.leaving {
          entry.executor.discard()
          entry.done()
        }
        continue
      }
      if round.isStopped { return }
      var isBusy = false
      var deadline: Instant?
      for member in round.members {
        if member.executor.run() { isBusy = true }
        if let next = member.executor.nextDeadline { deadline = min(deadline ?? next, next) }
      }
      if !isBusy { sleep(until: deadline) }
    }
  }

  private struct Round {
    var leaving: [(executor: Executor, done: @Sendable () -> Void)]
    var members: [Member]
    var isStopped: Bool
  }

  /// What there is to do. The signal is taken together with all that it may stand for, so that what comes later
  /// finds the loop signalled again. The members that leave are dropped; what they own is released outside of the
  /// lock.
  private func look() -> Round {
    var released: [Member] = []
    let round = locked {
      let gone = leaving
      leaving = []
      for entry in gone {
        released += members.filter { $0.executor === entry.executor }
        members.removeAll { $0.executor === entry.executor }
      }
      isSignalled = false
      if gone.isEmpty { answered = asked }
      return Round(leaving: gone, members: members, isStopped: isStopped)
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
    while isLent || !isSignalled && !isStopped {
      // Woken while another thread runs turns, by whatever: it has to look for itself behind them.
      if isLent { isSignalled = true }
      guard let deadline, !isLent else {
        pthread_cond_wait(condition, mutex)
        continue
      }
      var until = timespec(
        tv_sec: Int(deadline.nanoseconds / 1_000_000_000),
        tv_nsec: Int(deadline.nanoseconds % 1_000_000_000))
      if pthread_cond_timedwait(condition, mutex, &until) == ETIMEDOUT {
        if !isLent { return }
      }
    }
  }

  private func locked<T>(_ body: () -> T) -> T {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body()
  }
}
