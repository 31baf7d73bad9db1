/// A node with a trigger: a second signal beside its input. The trigger is subscribed first, so what it sends at once
/// comes before the first event.
class TriggeredNode: MultiInletNode {
  private let trigger: SignalPlan?

  init(trigger: SignalPlan?, _ nodeContext: NodeContext, _ downstream: Downstream) {
    self.trigger = trigger
    super.init(nodeContext, downstream: downstream)
  }

  override func start() {
    if let trigger { open(trigger) }
    if !isClosed { subscribe(nodeContext.inputs[0]) }
  }
}
