/// Stands before a sink of an execution that ends after a number of events (``Execution/outputLimit``), and counts them.
///
/// With the last of them the sources end (``Execution/cutShort()``), behind the event that it came of. What that event still causes, and what
/// steps hold, is delivered, so that nothing is lost that was taken from a source; only where nothing is delivered it is left out.
final class LimitedInput: Downstream {
  private unowned let execution: Execution
  private let target: Downstream
  /// Whether no event comes after the last one: the sink only shows what it receives.
  private let isExact: Bool

  init(_ execution: Execution, _ target: Downstream, isExact: Bool) {
    self.execution = execution
    self.target = target
    self.isExact = isExact
  }

  override func receive(_ event: Event) {
    if isExact, execution.hasReachedLimit { return }
    target.receive(event)
    execution.countOutput()
  }
  override func complete() { target.complete() }
  override func fail(_ failure: SignalFailure) { target.fail(failure) }
}

extension Execution {
  func countOutput() {
    guard let left = outputLimit, left > 0 else { return }
    outputLimit = left - 1
    guard left == 1 else { return }
    hasReachedLimit = true
    executor.endTurn()
    let execution = Weak(self)
    executor.post { execution.object?.cutShort() }
  }
}
