/// Runs jobs off the pipeline thread, one after the other.
package protocol Worker: AnyObject, Sendable {
  /// Queues a job, which must not block. Never blocks. Jobs run in the order of the calls. Jobs that have not started
  /// when the worker is released may never run.
  func enqueue(_ work: @escaping @Sendable () -> Void)
}

/// Runs each job at once on the calling thread: for tests, where nothing happens off the pipeline thread.
package final class ImmediateWorker: Worker {
  package init() {}
  package func enqueue(_ work: @escaping @Sendable () -> Void) { work() }
}
