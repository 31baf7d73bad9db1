import CLinux
import Glibc
import Synchronization

/// Wakes a thread that waits in `poll`: an eventfd. Any number of wakes before the next poll count as one.
package final class WakeEvent: Sendable {
  /// Readable while there are wakes that were not cleared; for `poll` only.
  package let descriptor: Int32
  private let awake = Atomic(false)

  package init() throws(PosixError) {
    descriptor = rx_eventfd()
    if descriptor < 0 { throw PosixError("create", "an eventfd") }
  }

  deinit { close(descriptor) }

  /// Wakes the waiter, now or when it next waits. May be called on any thread.
  package func wake() {
    awake.store(true, ordering: .releasing)
    var one: UInt64 = 1
    // EAGAIN means that the counter is full, so the waiter will wake anyway.
    _ = uninterrupted { write(descriptor, &one, 8) }
  }

  /// Whether there are wakes that were not cleared; costs no system call.
  package var isAwake: Bool { awake.load(ordering: .acquiring) }

  /// Clears all wakes so far; returns whether there were any.
  @discardableResult
  package func clear() -> Bool {
    awake.store(false, ordering: .releasing)
    var count: UInt64 = 0
    return uninterrupted { read(descriptor, &count, 8) } == 8
  }
}
