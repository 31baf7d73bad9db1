/// Runs jobs off the pipeline thread, one after another.
public protocol Worker: AnyObject, Sendable {
  /// Queues a job, which may block, and returns at once. Jobs run in the order of the calls; those that have not started when the worker is released may
  /// never run.
  func enqueue(_ work: @escaping @Sendable () -> Void)
}

/// Runs each job immediately on the calling thread: for tests, where nothing runs off the pipeline thread.
package final class ImmediateWorker: Worker {
  package init() {}
  package func enqueue(_ work: @escaping @Sendable () -> Void) { work() }
}
