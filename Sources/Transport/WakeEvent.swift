import CLinux
import Glibc
import Synchronization

/// Wakes a thread that waits in `poll`: an eventfd. Any number of wakes before the next poll count as one.
public final class WakeEvent: Sendable {
  /// Readable while there are wakes that were not cleared; for `poll` only.
  public let descriptor: Int32
  private let awake = Atomic(false)

  public init() throws(PosixError) {
    descriptor = rx_eventfd()
    if descriptor < 0 { throw PosixError("create", "an eventfd") }
  }

  deinit { close(descriptor) }

  /// Wakes the waiter, now or when it next waits. May be called on any thread.
  public func wake() {
    awake.store(true, ordering: .releasing)
    var one: UInt64 = 1
    // EAGAIN means that the counter is full, so the waiter will wake anyway.
    _ = uninterrupted { write(descriptor, &one, 8) }
  }

  /// Whether there are wakes that were not cleared; costs no system call.
  public var isAwake: Bool { awake.load(ordering: .acquiring) }

  /// Clears all wakes so far; returns whether there were any.
  @discardableResult
  public func clear() -> Bool {
    awake.store(false, ordering: .releasing)
    var count: UInt64 = 0
    return uninterrupted { read(descriptor, &count, 8) } == 8
  }
}
