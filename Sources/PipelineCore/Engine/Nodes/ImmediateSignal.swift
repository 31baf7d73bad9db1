/// An inner signal that sends all it has as soon as it is subscribed and completes at once, run without being
/// subscribed: fixed values, and behind them steps that keep nothing.
///
/// Nobody can tell the difference: between the events of the node that it belongs to nothing of it is there.
final class ImmediateSignal {
  private unowned(unsafe) let node: OperatorNode
  private let source: SignalPlan
  private let values: OwnedValue
  private let plan: (run: FusedRunPlan, signal: SignalPlan)?
  private let outlet: Outlet
  private var run: FusedRun?
  /// Where the events of the source come from, and the origin of the event for which it was made.
  private var origin: Origin
  private var outerOrigin: Origin

  /// Nil if `signal` is one that must be subscribed.
  init?(_ signal: SignalPlan, in node: OperatorNode) {
    // An observer of subscriptions sees each.
    guard node.execution.subscriptionProbe == nil else { return nil }
    var source = signal
    var plan: (FusedRunPlan, SignalPlan)?
    if case .run(let run, let input) = signal.kind {
      guard run.parts.allSatisfy({ $0.steps.allSatisfy { type(of: $0.component).isPure } }) else { return nil }
      plan = (run, signal)
      source = input
    }
    guard case .source(var component, _) = source.kind else { return nil }
    if let filter = node.execution.sourceFilter { component = filter(component) }
    guard let values = component.immediateValues else { return nil }
    self.node = node
    self.source = source
    self.values = values
    self.plan = plan
    outlet = Outlet(node)
    outerOrigin = .none
    origin = Origin(source: node.execution.plan.steps[source.step.number].owner)
  }

  /// Sends what the signal has for `event`, as long as `goesOn` says so.
  func send(for event: Event, _ goesOn: () -> Bool) {
    if event.origin.toOpaque() != Unmanaged.passUnretained(outerOrigin).toOpaque() { setOrigin(event.origin) }
    let run = runningSteps()
    // While it sends, it may be entered again for another event.
    let origin = origin
    let list = values.value
    let count = list.is(.list) ? list.elements.count : 1
    for index in 0..<count where goesOn() {
      node.execution.tally.received &+= 1
      let sent = Event(list.is(.list) ? list.elements[index] : list, origin: origin, position: Int64(index))
      if let run {
        run.setOuter(event.value)
        run.receive(sent)
        if run.isClosed { break }
      } else {
        node.emit(sent)
      }
    }
    if origin.reply != nil { letGo() }
  }

  /// If no answer can come any more, a waiting request gets an error after this turn.
  private func letGo() {
    node.arena.keep(origin)
    outerOrigin = .none
    origin = Origin(source: origin.source)
  }

  private func setOrigin(_ outer: Unmanaged<Origin>) {
    node.arena.keep(origin)
    outerOrigin = outer.takeUnretainedValue()
    origin = Origin(source: origin.source, receivedAt: 0, reply: outerOrigin.reply)
  }

  private func runningSteps() -> FusedRun? {
    guard let plan else { return nil }
    if let run, !run.isClosed { return run }
    let nodeContext = node.execution.nodeContext(plan.signal, node.nodeContext.scope, .empty, [source])
    let made = FusedRun(plan.run, nodeContext, downstream: outlet)
    run = made
    return made
  }

  /// What the last step sends to.
  private final class Outlet: Downstream {
    private unowned(unsafe) let node: OperatorNode
    init(_ node: OperatorNode) {
      self.node = node
      super.init()
    }
    override func receive(_ event: Event) { node.emit(event) }
    override func fail(_ failure: SignalFailure) { node.finish(failing: failure) }
  }
}
