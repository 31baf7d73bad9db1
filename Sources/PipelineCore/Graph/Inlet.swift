/// One of several inputs of a node: forwards to the node with its number.
///
/// Ends by itself when it is told so, and says nothing afterwards.
public final class Inlet: Downstream, Subscription {
  private unowned(unsafe) let node: MultiInletNode
  public let number: Int
  public fileprivate(set) var hasEnded = false
  fileprivate var upstream: (any Subscription)?

  init(_ node: MultiInletNode, _ number: Int) {
    self.node = node
    self.number = number
    super.init()
  }

  public override func receive(_ event: Event) {
    if !hasEnded { node.receive(event, from: self) }
  }

  public override func complete() {
    guard !hasEnded else { return }
    end()
    node.completed(self)
  }

  public override func fail(_ failure: SignalFailure) {
    guard !hasEnded else { return }
    end()
    node.failed(self, failure)
  }

  public func cancel() {
    guard !hasEnded else { return }
    end()
  }

  private func end() {
    hasEnded = true
    node.executor.bury(self)
    let above = upstream
    upstream = nil
    above?.cancel()
  }
}

/// A node with numbered inlets, or with inner signals that come and go.
open class MultiInletNode: OperatorNode {
  public private(set) var inlets: [Inlet] = []

  open func receive(_ event: Event, from inlet: Inlet) { emit(event) }
  open func completed(_ inlet: Inlet) {}
  open func failed(_ inlet: Inlet, _ failure: SignalFailure) { finish(failing: failure) }

  /// Subscribes `signal` into a new inlet, which is in `inlets` from before the first event on.
  @discardableResult
  public final func open(_ signal: SignalPlan, number: Int = 0, _ scope: Scope? = nil) -> Inlet {
    let inlet = Inlet(self, number)
    inlets.append(inlet)
    let subscription = execution.subscribe(signal, scope ?? seat.scope, to: inlet)
    if inlet.hasEnded { subscription.cancel() } else { inlet.upstream = subscription }
    return inlet
  }

  /// Takes an inlet out of `inlets`; cancels it unless it has ended.
  public final func drop(_ inlet: Inlet) {
    if let index = inlets.firstIndex(where: { $0 === inlet }) { inlets.remove(at: index) }
    inlet.cancel()
  }

  /// Subclasses that override this call `super.stop()`.
  open override func stop() {
    let open = inlets
    inlets = []
    for inlet in open { inlet.cancel() }
  }
}
