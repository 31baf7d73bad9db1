/// The subscriber of a signal that has no reader but must run: it executes a command, or its errors output is read.
final class RootSubscriber: Downstream {
  private unowned let execution: Execution
  var upstream: (any Subscription)?
  /// The subscribed signal.
  var signal: SignalPlan?
  private(set) var hasEnded = false
  /// Whether the pipeline waits for the end of the signal, because the signal reads undelivered events of sinks.
  let isAwaited: Bool

  init(_ execution: Execution, hasEnded: Bool, isAwaited: Bool) {
    self.execution = execution
    self.hasEnded = hasEnded
    self.isAwaited = isAwaited
  }

  override func complete() {
    hasEnded = true
    execution.rootEnded()
  }

  override func fail(_ failure: SignalFailure) {
    hasEnded = true
    execution.unhandled(failure)
  }
}
