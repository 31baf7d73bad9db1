import Transport

/// A running instance or program of a plugin, from its start to its end. The process waits for them before it exits.
final class PluginLife: Sendable {
  private static let count = Guarded(0)

  init() { Self.count.withLock { $0 += 1 } }

  deinit {
    Self.count.withLock { $0 -= 1 }
    Self.count.notify()
  }

  /// Waits until all have ended, or the time is over. Returns how many are left.
  ///
  /// - Parameter nanoseconds: The maximum wait.
  static func wait(_ nanoseconds: Int64) -> Int {
    _ = count.wait(until: monotonicNow() &+ nanoseconds) { $0 == 0 ? true : nil }
    return count.withLock { $0 }
  }
}
