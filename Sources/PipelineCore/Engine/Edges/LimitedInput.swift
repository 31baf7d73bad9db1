/// Counts the events of a sink in an execution that ends after a number of events (``Execution/outputLimit``).
///
/// The last event ends the sources (``Execution/cutShort()``), after the input event that caused it. Further effects of
/// that input event, and events that steps hold, are delivered, so that no event that was taken from a source is lost;
/// only a sink that just shows events drops them.
final class LimitedInput: Downstream {
  private unowned let execution: Execution
  private let target: Downstream
  /// Whether no event may follow the last one, because the sink only shows the events that it receives.
  private let isExact: Bool

  init(_ execution: Execution, _ target: Downstream, isExact: Bool) {
    self.execution = execution
    self.target = target
    self.isExact = isExact
  }

  override func receive(_ event: Event) {
    if isExact, execution.outputLimit.isReached { return }
    target.receive(event)
    execution.countOutput()
  }
  override func complete() { target.complete() }
  override func fail(_ failure: SignalFailure) { target.fail(failure) }
}

extension Execution {
  func countOutput() {
    guard let left = outputLimit.left, left > 0 else { return }
    outputLimit.left = left - 1
    guard left == 1 else { return }
    outputLimit.isReached = true
    executor.endTurn()
    let execution = Weak(self)
    executor.post { execution.object?.cutShort() }
  }
}
