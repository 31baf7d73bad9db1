extension Execution {
  /// Wires the graph and starts the sources. Call it in a turn; `onEnd` is called once, in a turn.
  ///
  /// - Parameters:
  ///   - state: The result of ``saveState(keeping:positions:)`` of the same pipeline, from which this execution
  ///     continues. A step whose state no longer fits starts empty, and ``refusals`` has the reason.
  ///   - isMoved: Whether the state comes from another version of the pipeline, which this one replaces: the pipeline
  ///     was not down, so ``Plan/whenLate`` does not apply.
  ///   - estates: The estates that sinks have handed over with the state (``LeftState/estates``).
  ///   - owners: The owners of the pages that a store already has for this state; nil: those of
  ///     ``PipelineStore/owners``.
  package func launch(
    restoring state: [UInt8]? = nil, estates: [String: any SinkEstate] = [:], isMoved: Bool = false,
    owners: Set<Int64>? = nil, onEnd: @escaping (Outcome) -> Void
  ) {
    life.onEnd = onEnd
    restored.inherited = estates
    if let state {
      let restoration = Restoration(state, plan, executor, isMoved: isMoved, spilling: commits.spilling)
      restored.restoration = restoration
      executor.restored(at: executor.now)
      restored.startOfPages = restoration.goOn(from: owners ?? commits.options?.store.owners ?? [])
    }
    wirings.lastSubscription = restoration?.lastSubscription ?? 0
    executor.lastTimer = restoration?.lastTimer ?? 0
    named = plan.named.indices.map { SharedSignal(self, $0) }
    errorsOutputs.named = plan.named.indices.map { _ in ErrorsSignal(self) }
    if let restoration { for shared in named { shared.restore(restoration) } }
    if let failure = pluginFailure { return unhandled(failure) }
    wirings.isLaunching = true
    let whole = enterWiring(topScope)
    sinkEnds.open = plan.sinks.count
    let comesAgain = restoration == nil ? [] : plan.sinksWhoseInputComesAgain
    for (index, sink) in plan.sinks.enumerated() {
      let nodeContext = NodeContext(
        execution: self, step: sink.step, location: sink.location, scope: topScope, plan: nil,
        edge: meters.edge(.none), segment: sink.segment, inputs: [])
      let component = replacements.sinks?(sink.name) ?? sink.sink
      let made = component.makeSink(nodeContext)
      made.index = index
      if let restoration {
        made.outputComesAgain = hasOutbox(made, component) || comesAgain[index]
        restore(made, sink, component, restoration)
      }
      let node = outbox(of: made, sink, component) ?? made
      node.index = index
      node.takesEvents = !plan.readsOnlyErrors(sink.input)
      let isDrained = restoration?.status(sink) == .drained
      let audit = settings.auditsSinks ? SinkAudit(node) : nil
      sinks.append(
        OpenSink(
          node: node, upstream: NoSubscription.make(), errors: ErrorsSignal(self), isOpen: !isDrained,
          audit: audit, persistence: component.persistence))
      if isDrained { sinkEnds.open -= 1 } else if isDryRun { node.dryRun() } else { node.open() }
      if outcome != nil {
        leaveWiring(whole)
        wirings.isLaunching = false
        return
      }
    }
    // Subscribe tables first: a table changes before other subscribers receive the event that changes it.
    let tables = plan.rootSubscribers.prefix { plan.named[$0].kind == .table }
    for index in tables { subscribeRoot(index) }
    for (index, sink) in plan.sinks.enumerated() {
      if let status = restoration?.status(sink), status != .open {
        // The sink is completed when everything is wired.
        let node = sinks[index].node
        if status == .ended { whenWired { node.complete() } }
        continue
      }
      var target: Downstream = sinks[index].audit ?? sinks[index].node
      if outputLimit.left != nil {
        let limited = LimitedInput(self, target, isExact: replacements.sinks?(sink.name) != nil)
        outputLimit.inputs.append(limited)
        target = limited
      }
      let upstream = subscribe(sink.input, topScope, to: target)
      if sinks[index].node.hasEnded { upstream.cancel() } else { sinks[index].upstream = upstream }
    }
    for index in plan.rootSubscribers.dropFirst(tables.count) { subscribeRoot(index) }
    for (number, tap) in taps.enumerated() { tap.connect(self, number) }
    for shared in named { shared.launched() }
    let deferred = restoration.map { goOn($0) } ?? []
    wirings.isLaunching = false
    loadTables(state) { [unowned self] in
      for step in deferred { step.node.later(step.token) }
      begin(whole)
      takeOver()
      completeErrors()
      endIfOver()
    }
  }

  private func subscribeRoot(_ index: Int) {
    let reference = RootSubscriber.reference(plan.named[index].name)
    let rootSubscriber = RootSubscriber(
      self, hasEnded: restoration?.hasEnded(reference) ?? false,
      isAwaited: plan.readsErrorsOfSinks(plan.named[index].body))
    rootSubscribers.append(rootSubscriber)
    if rootSubscriber.hasEnded { return }
    let signal = SignalPlan(.named(index), step: StepID(0), type: .dyn, reference: "\(reference).signal")
    rootSubscriber.signal = signal
    rootSubscriber.upstream = subscribe(signal, topScope, to: rootSubscriber)
  }

  /// The outbox of the sink of that name.
  func outbox(of sink: String) -> OutboxSink? {
    plan.sinks.firstIndex { $0.name == sink }.flatMap { sinks[$0].node as? OutboxSink }
  }

  /// The outbox of a sink; nil: the sink receives events directly.
  private func outbox(of sink: RunningSink, _ plan: SinkPlan, _ component: any SinkComponent) -> OutboxSink? {
    guard hasOutbox(sink, component), let committer, let options = commits.options else { return nil }
    return OutboxSink(sink, plan, component, committer, options)
  }

  private func hasOutbox(_ sink: RunningSink, _ component: any SinkComponent) -> Bool {
    committer != nil && commits.options?.isDurable == true && !component.answersEvents
      && !plan.isBestEffort(sink.nodeContext.step)
  }

  /// Ends the restoration; returns the steps that continue when everything runs again.
  private func goOn(_ restoration: Restoration) -> [(position: Int, node: OperatorNode, token: Int)] {
    restored.end(restoration)
    if let start = restored.startOfPages {
      saved.startOfPages = start
      saved.table = restoration.table
    }
    if isDryRun {
      restored.unreadable = restoration.unreadable
      return []
    }
    sources.sort()
    return restoration.deferred.sorted { $0.position < $1.position }
  }
}
