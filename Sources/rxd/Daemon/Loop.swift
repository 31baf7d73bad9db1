import Glibc
import PipelineCore

/// A thread that runs the turns of the executors assigned to it, and sleeps when there is nothing to do:
/// an idle loop wakes for nothing but the next timer.
final class Loop: @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private let condition: UnsafeMutablePointer<pthread_cond_t>
  // Guarded by `mutex`.
  private var executors: [Executor] = []
  private var isSignalled = false
  private var isStopped = false
  private var thread = pthread_t()

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

  /// Adds an executor; its turns run on this loop's thread from now on.
  func add(_ executor: Executor) {
    executor.setNeedsTurn = { [weak self] in self?.signal() }
    locked { executors.append(executor) }
    signal()
  }

  func remove(_ executor: Executor) {
    locked { executors.removeAll { $0 === executor } }
  }

  /// Has the loop look again whether there is something to do. From any thread.
  func signal() {
    locked {
      isSignalled = true
      pthread_cond_signal(condition)
    }
  }

  func stop() {
    locked {
      isStopped = true
      pthread_cond_signal(condition)
    }
  }

  /// Runs turns on the calling thread until `stop()`.
  func run() {
    while true {
      let (current, stopped) = locked {
        isSignalled = false
        return (executors, isStopped)
      }
      if stopped { return }
      var isBusy = false
      var deadline: Instant?
      for executor in current {
        if executor.run() { isBusy = true }
        if let next = executor.nextDeadline { deadline = min(deadline ?? next, next) }
      }
      if !isBusy { sleep(until: deadline) }
    }
  }

  private func sleep(until deadline: Instant?) {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while !isSignalled, !isStopped {
      guard let deadline else {
        pthread_cond_wait(condition, mutex)
        continue
      }
      var until = timespec(
        tv_sec: Int(deadline.nanoseconds / 1_000_000_000),
        tv_nsec: Int(deadline.nanoseconds % 1_000_000_000))
      if pthread_cond_timedwait(condition, mutex, &until) == ETIMEDOUT { return }
    }
  }

  private func locked<T>(_ body: () -> T) -> T {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body()
  }
}
