/// A node behind its input that listens to another signal beside it, its trigger. The trigger is subscribed first:
/// what it says at once comes before the first event.
open class TriggeredNode: MultiInletNode {
  private let trigger: SignalPlan?

  init(trigger: SignalPlan?, _ nodeContext: NodeContext, _ downstream: Downstream) {
    self.trigger = trigger
    super.init(nodeContext, downstream: downstream)
  }

  open override func start() {
    if let trigger { open(trigger) }
    if !isClosed { subscribe(nodeContext.inputs[0]) }
  }
}
