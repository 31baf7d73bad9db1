extension Execution {
  // MARK: Subscribing

  /// Runs `signal` for `downstream`. Unless it is part of a larger wiring, events may come before the call returns.
  package func subscribe(_ signal: SignalPlan, _ scope: Scope, to downstream: Downstream) -> any Subscription {
    subscribe(signal, scope, to: Edge(meters.edge(signal.edge), to: downstream))
  }

  func subscribe(_ signal: SignalPlan, _ scope: Scope, to edge: Edge) -> any Subscription {
    edge.counters.began()
    guard let key = scope.key, signal.isShared else { return run(signal, scope, to: edge) }
    let input = KeyedInput(key, edge.downstream, executor)
    input.upstream = run(signal, scope, to: Edge(edge.counters, to: input))
    return input
  }

  /// Runs the signal without counting a subscription: the reference to a cold signal counts for its body.
  private func run(_ signal: SignalPlan, _ scope: Scope, to edge: Edge) -> any Subscription {
    if let restoration { return restore(signal, scope, to: edge, restoration) }
    guard wirings.current == nil else { return make(signal, scope, to: edge) }
    let wired = enterWiring(scope)
    let subscription = make(signal, scope, to: edge)
    executor.nested { begin(wired) }
    return subscription
  }

  /// Runs an instance of a cold signal. Its events pass the edge of the reference.
  func runCold(_ index: Int, _ scope: Scope, to edge: Edge) -> any Subscription {
    run(plan.named[index].body, scope.forColdSignal(topScope), to: edge)
  }

  private func make(_ signal: SignalPlan, _ scope: Scope, to edge: Edge) -> any Subscription {
    switch signal.origin {
    case .named(let index):
      return plan.named[index].isCold ? runCold(index, scope, to: edge) : named[index].subscribe(edge)
    case .errors(let owner): return errorsOutput(owner).subscribe(edge)
    case .input: return subscribeInput(scope, edge)
    case nil:
      let node = makeNode(signal, scope, edge)
      node.begin(restoring: nil)
      return node
    }
  }

  func subscribeInput(_ scope: Scope, _ edge: Edge) -> any Subscription {
    guard let subject = scope.subject else {
      preconditionFailure("a chain's input outside of the node that feeds it")
    }
    return subject.subscribe(edge)
  }

  /// Makes the node of a signal with steps.
  func makeNode(_ signal: SignalPlan, _ scope: Scope, _ edge: Edge) -> OperatorNode {
    guard let work = signal.work as? RunnableWork else { preconditionFailure("a reference has no node of its own") }
    return work.makeNode(nodeContext(signal, scope, over: edge), edge)
  }

  /// `edge`: the edge over which the node sends; nil: that of the plan.
  func nodeContext(_ signal: SignalPlan, _ scope: Scope, over edge: Edge? = nil) -> NodeContext {
    NodeContext(
      execution: self, step: signal.step, location: plan.steps[signal.step.number].location, scope: scope,
      plan: signal, edge: edge?.counters ?? meters.edge(signal.edge), segment: signal.work?.segment ?? .empty,
      inputs: signal.inputs)
  }

  func nextSubscription() -> UInt64 {
    wirings.nextSubscription()
  }

  /// Runs `start` of a node at once or, during the wiring of its subscription, after the wiring and before any of its
  /// sources starts: nothing is sent before every subscriber exists.
  func whenWired(_ start: @escaping () -> Void) {
    if let wiring = wirings.current { wiring.nodes.append(start) } else { executor.nested(start) }
  }
}
