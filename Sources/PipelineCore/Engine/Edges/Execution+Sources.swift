extension Execution {
  // MARK: Sources

  func makeSource(_ component: any SourceComponent, _ nodeContext: NodeContext, _ edge: Edge) -> RunningSource {
    var replacement: (any SourceComponent)?
    if let ofName = replacements.sources {
      let owner = plan.steps[nodeContext.step.number].owner
      if let index = plan.index(ofNamed: owner),
        [.source, .table].contains(plan.named[index].kind)
          ? plan.named[index].ownSource === nodeContext.plan
          : plan.named[index].body === nodeContext.plan
      {
        replacement = ofName(owner)
      }
    }
    if let ofSignal = replacements.origins, let plan = nodeContext.plan { replacement = ofSignal(plan) }
    if replacement == nil, let others = replacements.others { replacement = others(component) }
    if replacement == nil, settings.runsOnce, !nodeContext.scope.isForSomething, nodeContext.scope.subject == nil {
      replacement = component.once
    }
    let node = edge.downstream._withUnsafeGuaranteedRef {
      (replacement ?? component).makeSource(nodeContext, downstream: $0)
    }
    node.replacement = replacement
    node.serial = nextSubscription()
    sources.add(node)
    return node
  }

  /// Removes an ended source at once; other ended sources are removed now and then.
  func forget(_ source: RunningSource) { sources.forget(source) }

  /// Starts a source, or defers the start until its subscription is wired and the nodes of that subscription have
  /// started. `resuming`: the source has restored state.
  func start(_ node: RunningSource, resuming: Bool = false) {
    if node.isClosed { return }
    if isDryRun, wirings.current == nil, wirings.beginning == nil { return node.dryRun() }
    // A source of an inner signal that a starting node subscribed starts with that inner signal.
    let scope = node.nodeContext.scope
    if let later = wirings.current ?? wirings.beginning,
      wirings.current != nil || scope === topScope || scope.isBeside(later.scope)
    {
      later.sources.append((node, resuming))
      return
    }
    guard isStopping else {
      if resuming { node.resume() } else { node.begin() }
      if life.suspension != nil, !node.isClosed { node.suspend() }
      return
    }
    // The effects of a held event or end still happen, once; no new input is read for them.
    if scope.isForSomething { node.begin() }
    if !node.isClosed { end(node) }
  }

  /// Ends a source as if it had completed, because the pipeline stops.
  func end(_ source: RunningSource) {
    guard let work = source.nodeContext.scope.work else {
      source.drain()
      return
    }
    // A source that ends early leaves work undone, so the command execution must not count as done.
    let wasCut = work.isCut
    work.isCut = true
    source.drain()
    if !source.isClosed { work.isCut = wasCut }
  }

  /// Notes that a source with a position, outside of inner signals, is being closed.
  func closed(_ source: RunningSource) {
    if settings.keepsStateOnFailure { sources.closed(source) }
  }

  /// Notes that a source has ended with its last piece; `isAcknowledged` returns whether everything that it sent has
  /// been acknowledged.
  func ended(_ isAcknowledged: @escaping () -> Bool) {
    if outcome == nil { sources.ended(isAcknowledged) }
  }

  /// Whether a source has ended and not everything that it sent is acknowledged.
  var hasUnacknowledgedEnd: Bool { sources.hasUnacknowledgedEnd }

  /// Calls `body` at the end of this turn, after all of its events.
  package func whenTurnEnds(_ body: @escaping () -> Void) { sources.pieceEnds.append(body) }

  /// Whether a source runs that never ends by itself.
  package var hasEndlessSource: Bool { sources.running.contains { !$0.isClosed && $0.isEndless } }
}
