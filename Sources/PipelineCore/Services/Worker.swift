/// Works beside the turns, one thing after the other.
public protocol Worker: AnyObject, Sendable {
  /// Hands over something to do, which must not wait for anything. Never waits. What is handed over first is done
  /// first. What has not begun when the worker is given up may never be done.
  func enqueue(_ work: @escaping @Sendable () -> Void)
}

/// Does what it is given at once, on the thread that hands it over: for tests, in which nothing happens beside the turns.
public final class ImmediateWorker: Worker {
  public init() {}
  public func enqueue(_ work: @escaping @Sendable () -> Void) { work() }
}
