import Glibc

/// A value behind a lock, with a way to wait for changes. Waits use the monotonic clock.
package final class Guarded<Value>: @unchecked Sendable {
  private let value: UnsafeMutablePointer<Value>
  private let lock: UnsafeMutablePointer<pthread_mutex_t>
  private let changed: UnsafeMutablePointer<pthread_cond_t>

  package init(_ initial: consuming Value) {
    value = .allocate(capacity: 1)
    value.initialize(to: initial)
    lock = .allocate(capacity: 1)
    changed = .allocate(capacity: 1)
    pthread_mutex_init(lock, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(changed, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  deinit {
    pthread_cond_destroy(changed)
    pthread_mutex_destroy(lock)
    changed.deallocate()
    lock.deallocate()
    value.deinitialize(count: 1)
    value.deallocate()
  }

  package func withLock<Result>(_ body: (inout Value) -> Result) -> Result {
    pthread_mutex_lock(lock)
    defer { pthread_mutex_unlock(lock) }
    return body(&value.pointee)
  }

  /// Calls `attempt`, and again after each `notify`, until it returns a value.
  /// - Parameter deadline: On the monotonic clock, in nanoseconds; nil waits forever.
  /// - Returns: The result of `attempt`; nil if the deadline passed first.
  package func wait<Result>(until deadline: Int64?, _ attempt: (inout Value) -> Result?) -> Result? {
    pthread_mutex_lock(lock)
    defer { pthread_mutex_unlock(lock) }
    while true {
      if let result = attempt(&value.pointee) { return result }
      guard let deadline else {
        pthread_cond_wait(changed, lock)
        continue
      }
      if monotonicNow() >= deadline { return nil }
      var time = timespec(
        tv_sec: Int(deadline / 1_000_000_000), tv_nsec: Int(deadline % 1_000_000_000))
      pthread_cond_timedwait(changed, lock, &time)
    }
  }

  /// Wakes all waiters after a change.
  package func notify() { pthread_cond_broadcast(changed) }
}

/// Nanoseconds on the monotonic clock.
package func monotonicNow() -> Int64 {
  var time = timespec()
  clock_gettime(CLOCK_MONOTONIC, &time)
  return Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
}
