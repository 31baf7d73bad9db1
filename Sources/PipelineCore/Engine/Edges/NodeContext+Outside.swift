/// Services from outside of the pipeline, for components.
extension NodeContext {
  /// A worker that runs jobs off the pipeline's thread, for calls that block. In tests it runs them at once.
  ///
  /// - Parameter purpose: One word, which names the worker's thread.
  public func worker(_ purpose: String) -> any Worker { execution.services.worker(purpose) }

  /// Writes one line to the log of the pipeline, with the component's name.
  public func log(_ level: Services.Level, _ message: String) {
    execution.services.log(level, execution.plan.steps[step.number].label, message)
  }

  /// A failure of the sink, at its location in the pipeline file.
  ///
  /// - Parameter message: One sentence without a full stop.
  public func sinkFailure(_ message: String) -> SignalFailure { SignalFailure(.sink, message, at: location) }
}
