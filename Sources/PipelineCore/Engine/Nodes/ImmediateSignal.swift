/// An inner signal that sends everything as soon as it is subscribed and completes at once, run without a subscription:
/// fixed values, followed by steps without state.
///
/// The difference cannot be observed, because the signal has no state between the events of its node.
final class ImmediateSignal {
  private unowned(unsafe) let node: OperatorNode
  private let signal: SignalPlan
  private let source: SignalPlan
  private let values: OwnedValue
  private let plan: (run: FusedRunPlan, signal: SignalPlan)?
  private let outlet: Outlet
  /// The edge over which the source sends.
  private let edge: UnsafeMutablePointer<EdgeCounters>
  private var run: FusedRun?
  /// The origin of the source's events, with the reply target of the event for which the signal was made.
  private var origin: Origin
  private var outerOrigin: Origin

  /// Nil if `signal` must be subscribed.
  init?(_ signal: SignalPlan, in node: OperatorNode) {
    var source = signal
    var plan: (FusedRunPlan, SignalPlan)?
    if let run = signal.run {
      guard run.parts.allSatisfy({ $0.steps.allSatisfy { type(of: $0.component).isPure } }) else { return nil }
      plan = (run, signal)
      source = signal.inputs[0]
    }
    guard var component = source.sourceComponent else { return nil }
    if let filter = node.execution.replacements.others { component = filter(component) }
    guard let values = component.immediateValues else { return nil }
    self.node = node
    self.signal = signal
    self.source = source
    self.values = values
    self.plan = plan
    outlet = Outlet(node)
    edge = node.execution.meters.edge(source.edge)
    outerOrigin = .none
    origin = Origin(source: node.execution.plan.steps[source.step.number].owner)
  }

  /// Sends the signal's events for `event` while `goesOn` returns true.
  func send(for event: Event, _ goesOn: () -> Bool) {
    if event.origin.toOpaque() != Unmanaged.passUnretained(outerOrigin).toOpaque() { setOrigin(event.origin) }
    let run = runningSteps()
    let edge = Edge(edge, to: run ?? outlet)
    edge.counters.began()
    let last = run == nil ? edge.counters : node.execution.meters.edge(signal.edge)
    if run != nil { last.began() }
    // The node may call `send` again, for another event, during this call.
    var origin = origin
    if let id = event.id {
      origin = origin.with(.origin("\(id):\(node.execution.plan.steps[source.step.number].key)"))
      node.arena.keep(origin)
    }
    let list = values.value
    let count = list.is(.list) ? list.elements.count : 1
    for index in 0..<count where goesOn() {
      node.execution.tally.received &+= 1
      let sent = Event(
        list.is(.list) ? list.elements[index] : list, key: event.key, origin: origin, position: Int64(index))
      if let run {
        run.setOuter(event.value)
        edge.pass(sent)
        if run.isClosed { break }
      } else {
        edge.pass(sent)
      }
    }
    edge.counters.completed()
    if let run, !run.isClosed { last.completed() }
    if origin.reply != nil { releaseOrigin() }
  }

  /// Releases the request: the client gets an error after this turn if no answer is possible any more.
  private func releaseOrigin() {
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
    let nodeContext = node.execution.nodeContext(plan.signal, node.nodeContext.scope)
    let made = FusedRun(plan.run, nodeContext, downstream: outlet)
    run = made
    return made
  }

  /// The downstream of the last step.
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
