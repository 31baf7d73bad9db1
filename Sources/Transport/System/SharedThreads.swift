internal import DequeModule
import Glibc
import PipelineCore

/// A few threads for the blocking work of a whole process: for all stores and all files that are written.
///
/// Work waits for a free thread. Threads are started as they are needed, up to `usual`, and end when they have been
/// idle for a while. Work that blocks for long, as on a device that hangs, does not delay the rest: if work waits and
/// no thread has taken any for ``patience``, one more is started, up to `most`. If the system refuses a thread, another
/// attempt is made while work waits.
package final class SharedThreads: @unchecked Sendable {
  /// How long work waits, while no thread takes any, before one more is started, in nanoseconds.
  static let patience: Int64 = 20_000_000
  /// How long a thread waits for work before it ends.
  private static let idleTime: Int64 = 5_000_000_000
  /// The pause after the system has refused a thread, in nanoseconds.
  private static let refusalPause: Int64 = 100_000_000

  private let name: String
  private let usual: Int
  private let most: Int
  private let stackBytes: Int
  private let lock: UnsafeMutablePointer<pthread_mutex_t>
  /// Signalled when an idle thread has something to do.
  private let hasWork: UnsafeMutablePointer<pthread_cond_t>
  /// Signalled when the keeper has something to do: a timer, or work that waits.
  private let hasDuty: UnsafeMutablePointer<pthread_cond_t>

  // Guarded by the lock.
  private var queue = Deque<(work: SerialWork, since: Int64)>()
  /// Work that waits for its time, the earliest first: a binary heap.
  private var timers: [SerialWork] = []
  /// When a thread last took work.
  private var lastTaken: Int64 = 0
  private var threads = 0
  private var idle = 0
  /// The number of threads that have been woken and do not run yet.
  private var signals = 0
  private var hasKeeper = false
  /// The time until which the keeper sleeps.
  private var keeperSleepsUntil = Int64.max
  /// The time until which no new thread is requested from the system.
  private var refusedUntil: Int64 = 0

  /// - Parameters:
  ///   - name: Shows in `top -H`, its first 15 bytes.
  ///   - usual: The number of threads while no work blocks for long.
  ///   - most: The maximum number of threads.
  package init(_ name: String, usual: Int, most: Int, stackBytes: Int = 512 << 10) {
    self.name = name
    self.usual = usual
    self.most = most
    self.stackBytes = stackBytes
    lock = .allocate(capacity: 1)
    pthread_mutex_init(lock, nil)
    hasWork = Self.condition()
    hasDuty = Self.condition()
  }

  /// The threads of a process are never released; those of a test must have no work left.
  deinit {
    pthread_cond_destroy(hasWork)
    pthread_cond_destroy(hasDuty)
    pthread_mutex_destroy(lock)
    hasWork.deallocate()
    hasDuty.deallocate()
    lock.deallocate()
  }

  private static func condition() -> UnsafeMutablePointer<pthread_cond_t> {
    let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(condition, &attributes)
    pthread_condattr_destroy(&attributes)
    return condition
  }

  /// The number of threads, without the keeper.
  package var count: Int {
    pthread_mutex_lock(lock)
    defer { pthread_mutex_unlock(lock) }
    return threads
  }

  /// Makes sure that there is a thread to do work.
  /// - Throws: The system refuses the first thread.
  package func prepare() throws(PosixError) {
    pthread_mutex_lock(lock)
    defer { pthread_mutex_unlock(lock) }
    if hasKeeper { return }
    _ = try OwnThread(name, stackBytes: stackBytes) { [self] in keep() }
    hasKeeper = true
  }

  // MARK: Work

  func wake(_ work: SerialWork) {
    pthread_mutex_lock(lock)
    var mustStart = false
    switch work.phase {
    case .resting: mustStart = add(work)
    case .running: work.phase = .runningAndWoken
    case .queued, .runningAndWoken, .over: break
    }
    pthread_mutex_unlock(lock)
    if mustStart { startThread() }
  }

  /// Queues resting work; returns whether a thread must be started, which is already counted.
  private func add(_ work: SerialWork) -> Bool {
    work.phase = .queued
    cancelTimer(of: work)
    let now = monotonicNow()
    queue.append((work, now))
    if idle > 0 {
      // The woken thread no longer counts as idle, so that the next work wakes another one.
      idle -= 1
      signals += 1
      pthread_cond_signal(hasWork)
      return false
    }
    if threads < usual, now >= refusedUntil {
      threads += 1
      return true
    }
    if keeperSleepsUntil > now &+ Self.patience { pthread_cond_signal(hasDuty) }
    return false
  }

  private func startThread() {
    do throws(PosixError) {
      _ = try OwnThread(name, stackBytes: stackBytes) { [self] in run() }
    } catch {
      pthread_mutex_lock(lock)
      threads -= 1
      refusedUntil = monotonicNow() &+ Self.refusalPause
      pthread_cond_signal(hasDuty)
      pthread_mutex_unlock(lock)
    }
  }

  private func run() {
    pthread_mutex_lock(lock)
    while true {
      guard let work = queue.popFirst()?.work else {
        idle += 1
        let end = monotonicNow() &+ Self.idleTime
        while signals == 0, monotonicNow() < end { Self.wait(hasWork, lock, until: end) }
        if signals > 0 {
          signals -= 1
          continue
        }
        idle -= 1
        threads -= 1
        break
      }
      perform(work)
    }
    pthread_mutex_unlock(lock)
  }

  /// Runs a turn. The lock is held before and after it.
  private func perform(_ work: SerialWork) {
    work.phase = .running
    if !queue.isEmpty { lastTaken = monotonicNow() }
    pthread_mutex_unlock(lock)
    let next = work.turn()
    pthread_mutex_lock(lock)
    var released: SerialWork.Body?
    switch (work.phase, next) {
    case (_, .over):
      work.phase = .over
      released = work.body.take()
    case (.runningAndWoken, _):
      work.phase = .queued
      queue.append((work, monotonicNow()))
    case (_, .at(let time)):
      work.phase = .resting
      setTimer(of: work, time)
      if time < keeperSleepsUntil { pthread_cond_signal(hasDuty) }
    case (_, .whenWoken): work.phase = .resting
    }
    guard released != nil else { return }
    // Releasing the captures of the body may take other locks.
    pthread_mutex_unlock(lock)
    released = nil
    pthread_mutex_lock(lock)
  }

  private static func wait(
    _ condition: UnsafeMutablePointer<pthread_cond_t>, _ lock: UnsafeMutablePointer<pthread_mutex_t>, until end: Int64
  ) {
    guard end < .max else {
      pthread_cond_wait(condition, lock)
      return
    }
    var time = timespec(tv_sec: Int(end / 1_000_000_000), tv_nsec: Int(end % 1_000_000_000))
    pthread_cond_timedwait(condition, lock, &time)
  }

  // MARK: Timers

  /// The keeper's thread: queues work that has become due, and starts threads for work that waits too long.
  private func keep() {
    pthread_mutex_lock(lock)
    while true {
      let now = monotonicNow()
      var starts = 0
      while let first = timers.first, first.due <= now {
        if add(first) { starts += 1 }
      }
      var next = timers.first?.due ?? .max
      if let first = queue.first {
        let due = max(max(first.since, lastTaken) &+ Self.patience, refusedUntil)
        if due <= now, starts == 0, threads < most {
          threads += 1
          starts += 1
        }
        next = min(next, max(due, now &+ Self.patience))
      }
      if starts > 0 {
        pthread_mutex_unlock(lock)
        for _ in 0..<starts { startThread() }
        pthread_mutex_lock(lock)
        continue
      }
      // If the system refuses every thread, the keeper does the work; timers wait meanwhile.
      if threads == 0, refusedUntil > now, let work = queue.popFirst()?.work {
        perform(work)
        continue
      }
      keeperSleepsUntil = next
      Self.wait(hasDuty, lock, until: next)
      keeperSleepsUntil = 0
    }
  }

  private func setTimer(of work: SerialWork, _ time: Int64) {
    work.due = time
    work.timer = timers.count
    timers.append(work)
    moveUp(work.timer)
  }

  /// Does nothing if the work has no timer.
  private func cancelTimer(of work: SerialWork) {
    let index = work.timer
    guard index >= 0 else { return }
    work.timer = -1
    let last = timers.removeLast()
    guard last !== work else { return }
    timers[index] = last
    last.timer = index
    moveUp(index)
    moveDown(index)
  }

  private func moveUp(_ start: Int) {
    var child = start
    while child > 0, timers[child].due < timers[(child - 1) / 2].due {
      swapTimers(child, (child - 1) / 2)
      child = (child - 1) / 2
    }
  }

  private func moveDown(_ start: Int) {
    var parent = start
    while true {
      var least = parent
      for child in [2 * parent + 1, 2 * parent + 2]
      where child < timers.count && timers[child].due < timers[least].due {
        least = child
      }
      if least == parent { return }
      swapTimers(parent, least)
      parent = least
    }
  }

  private func swapTimers(_ one: Int, _ other: Int) {
    timers.swapAt(one, other)
    timers[one].timer = one
    timers[other].timer = other
  }
}

/// Blocking work that is done in turns, one at a time: on a thread of ``SharedThreads``, or on one of its own.
package final class SerialWork: @unchecked Sendable {
  /// The next step after a turn.
  package enum Next: Sendable {
    /// The next turn comes after a call of ``wake()``.
    case whenWoken
    /// The next turn comes at this time of the monotonic clock, or after a call of ``wake()``.
    case at(Int64)
    /// There is no further turn; the body is released.
    case over
  }
  package typealias Body = @Sendable () -> Next
  enum Phase { case resting, queued, running, runningAndWoken, over }

  private enum Carrier {
    case shared(SharedThreads)
    /// Whether the work has been woken.
    case own(Guarded<Bool>)
  }
  private let carrier: Carrier
  // Guarded by the lock of the shared threads.
  var phase = Phase.resting
  /// The time of its timer.
  var due: Int64 = 0
  /// The index of its timer in the threads' heap; -1: it has none.
  var timer = -1
  var body: Body?

  /// Work for shared threads. Nothing is done before ``wake()``.
  /// - Throws: The system refuses the first of the threads.
  package init(on threads: SharedThreads, _ body: @escaping Body) throws(PosixError) {
    try threads.prepare()
    carrier = .shared(threads)
    self.body = body
  }

  /// Work with a thread of its own, because it may block for as long as another process decides, such as writing to a
  /// pipe.
  package init(onThread name: String, _ body: @escaping Body) throws(PosixError) {
    let woken = Guarded(false)
    carrier = .own(woken)
    _ = try OwnThread(name) {
      var next = Next.whenWoken
      while true {
        let end: Int64? = if case .at(let time) = next { time } else { nil }
        _ = woken.wait(until: end) { isWoken -> Bool? in
          defer { isWoken = false }
          return isWoken ? true : nil
        }
        next = body()
        if case .over = next { return }
      }
    }
  }

  /// Requests a turn, soon and after the current one. Callable from any thread.
  package func wake() {
    switch carrier {
    case .shared(let threads): threads.wake(self)
    case .own(let woken):
      woken.withLock { $0 = true }
      woken.notify()
    }
  }

  func turn() -> Next { body?() ?? .over }
}
