/// Counts the events that a sink receives and checks that the sink acknowledges every event exactly once, at once or on
/// a ``Receipt``.
package final class SinkAudit: Downstream {
  private unowned let sink: RunningSink
  /// The step of the sink.
  package var step: StepID { sink.nodeContext.step }
  /// How many events the sink received.
  private var received = 0

  init(_ sink: RunningSink) {
    self.sink = sink
    super.init()
  }

  package override func receive(_ event: Event) {
    received += 1
    sink.receive(event)
  }
  package override func accepts(_ batch: Batch) -> Bool { sink.accepts(batch) }
  package override func receive(_ batch: Batch) {
    received += batch.events(for: step)
    sink.receive(batch)
  }
  package override func complete() { sink.complete() }
  package override func fail(_ failure: SignalFailure) { sink.fail(failure) }

  private var name: String { sink.execution.plan.steps[sink.nodeContext.step.number].label }

  /// The fault at the end of a turn; nil: there is none.
  func fault() -> String? {
    let difference = received - sink.accounted
    // Each fault is reported once.
    received = sink.accounted
    if difference == 0 { return nil }
    return difference > 0
      ? "\(name) took \(difference) events in a turn and neither acknowledged them nor has a receipt for them"
      : "\(name) acknowledged \(-difference) events that it did not receive"
  }

  /// The fault after the sink has reported that everything is written; nil: there is none.
  func finalFault() -> String? {
    sink.hasAcknowledgedAll ? nil : "\(name) has ended and holds receipts of events that it has not acknowledged"
  }
}
