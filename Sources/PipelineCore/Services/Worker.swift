/// Runs jobs off the pipeline thread, one after the other.
public protocol Worker: AnyObject, Sendable {
  /// Queues a job, which must not block. Never blocks. Jobs run in the order of the calls. Jobs that have not started
  /// when the worker is released may never run.
  func enqueue(_ work: @escaping @Sendable () -> Void)
}

/// Runs each job at once on the calling thread: for tests, where nothing happens off the pipeline thread.
public final class ImmediateWorker: Worker {
  public init() {}
  public func enqueue(_ work: @escaping @Sendable () -> Void) { work() }
}
