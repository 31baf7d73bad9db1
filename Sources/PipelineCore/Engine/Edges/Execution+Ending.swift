/// The ends of an execution: docs/contracts.md, "How things end".
extension Execution {
  /// Ends the sources as if they had completed, so that operators flush the events that they hold; work under way is
  /// finished.
  package func drain() {
    stopsForGood()
    tables.cancel()
    life.isDraining = true
    for source in sources.running where !source.isClosed { end(source) }
    life.isDraining = false
    endPauses()
    executor.acks.releaseWithheld()
  }

  private func endPauses() {
    for node in life.pauses.nodes where !node.isClosed { node.endPause() }
  }

  /// Ends the sources, each after the last event that it has sent, and completes the effects of these events.
  /// ``drain()`` would also send the input that was read with the last event. Where state is kept, the pipeline is
  /// suspended instead, and the next execution continues after that event.
  func cutShort() {
    guard outcome == nil, !isStopping, life.suspension == nil else { return }
    if keepsState {
      life.suspension = Suspension()
      return freeze()
    }
    stopsForGood()
    life.isDraining = true
    for source in sources.running where !source.isClosed {
      if source.nodeContext.scope.isForSomething { end(source) } else { source.completeEarly() }
    }
    life.isDraining = false
    endPauses()
    executor.acks.releaseWithheld()
  }

  /// Registers a node whose pause a stop must end; the node reports the end of the pause.
  func pauseBegins(_ node: any Pausing) { life.pauses.begin(node) }

  func pauseEnds(_ node: any Pausing) { life.pauses.end(node) }

  /// Cancels everything at once. `done` is called in this turn or a later one, when the writers of the sinks have
  /// ended; `onEnd` is not called.
  package func cancel(_ done: @escaping () -> Void = {}) {
    let isRunning = outcome == nil
    if isRunning { life.outcome = .failed(SignalFailure(.user, "cancelled")) }
    executor.failTurn("cancelled")
    executor.dropRemainders("cancelled")
    life.onEnd = { _ in }
    if isRunning { rejectRemaining() }
    teardown()
    if sinkEnds.closing == 0 { done() } else { sinkEnds.onCancelled = done }
  }

  /// Whether the execution and the writers of its sinks have ended.
  package var hasClosed: Bool { outcome != nil && sinkEnds.closing == 0 }

  /// Counts a sink as closed, now that its writer has finished.
  func sinkClosed() {
    sinkEnds.closing -= 1
    guard sinkEnds.closing == 0 else { return }
    sinkEnds.onCancelled.take()?()
    reportEnd()
  }

  func end(_ outcome: Outcome) {
    guard self.outcome == nil else { return }
    if case .failed = outcome, settings.keepsStateOnFailure, hasBegun, let draft = draftState() {
      // Sources know their positions only when they have finished the failed event.
      saved.draft = draft
      life.holds += 1
    }
    life.outcome = outcome
    if case .failed(let failure) = outcome {
      executor.failTurn(failure.message)
      if saved.draft != nil { for sink in sinks where sink.isOpen && sink.isPersistent { sink.node.suspend() } }
      executor.dropRemainders(failure.message)
      rejectRemaining()
    } else {
      executor.dropRemainders()
    }
    teardown()
    reportEnd()
  }

  /// Keeps the pipeline from ending while something outside the graph, such as an answer on its way to a client, is
  /// unfinished. Called in a turn; each `hold` needs one `release`, also in a turn.
  package func hold() { life.holds += 1 }

  package func release() {
    life.holds -= 1
    if life.holds == 0, life.suspension != nil { freeze() }
    reportEnd()
  }

  // MARK: Suspending

  /// Ends the pipeline so that another execution continues from ``savedState``. Like ``drain()`` and ``cancel()`` it is
  /// one of the verbs of docs/contracts.md, "How things end":
  ///
  /// 1. Sources return input that no turn has taken (``RunningSource/suspend()``): their positions point before it.
  /// Input that cannot be given back is sent first: clients of a server that wait for an answer get it. Sinks wait for
  /// answers, too (``RunningSink/willSuspend()``). ``freeze()`` cuts that short.
  /// 2. The state is saved, with the events that operators hold, their timers and the calls under way. Nothing is
  /// flushed; the graph is cancelled.
  /// 3. Sinks finish the events that they hold, or release those that the state holds (``RunningSink/suspend()``), and
  /// acknowledge their receipts. A sink that delivers nothing for a while is given up (``FinishingSinks``). Then
  /// `onEnd` of ``launch(restoring:onEnd:)`` is called.
  ///
  /// - Parameters:
  ///   - successor: The plan of an execution that follows at once in this process: sources leave it their open inputs.
  ///   - isFinal: Whether the next execution reads the state from the store. What has not changed since the last commit
  ///     is then not saved again (``LeftState/isInStore``).
  ///   - keeping: Whether the next execution has the sink too; its undelivered events are then part of the state, if
  ///     the component saves them.
  package func suspend(
    for successor: Plan? = nil, isFinal: Bool = false, keeping: @escaping (SinkPlan) -> Bool = { _ in true }
  ) {
    guard outcome == nil, !isStopping, life.suspension == nil else { return }
    life.suspension = Suspension(successor: successor, isFinal: isFinal, keeping: keeping)
    // The next execution reads the sources of tables again; the present rows stay until the end.
    tables.cancel()
    for source in sources.running where !source.isClosed { source.suspend() }
    for (index, sink) in sinks.enumerated() where sink.isOpen && keeping(plan.sinks[index]) {
      if sink.isPersistent || sink.node is OutboxSink {
        sink.node.willSuspend()
      } else if sink.node.handOverQueue() {
        life.suspension?.leaving.insert(index)
      }
    }
    for sink in sinks where sink.isOpen { sink.node.takeRest() }
    if life.holds == 0 { return freeze() }
    // A client may wait for events that a sink holds back for its next batch.
    for sink in sinks where sink.isOpen { sink.node.hurry() }
  }

  /// Whether the pipeline is being suspended and waits for answers under way.
  package var awaitsAnswers: Bool {
    life.suspension != nil && !isSuspended && !isStopping && outcome == nil && life.holds > 0
  }

  /// Saves the state of a pipeline that is being suspended without waiting any longer for answers under way.
  package func freeze() {
    guard let keeping = life.suspension?.keeping, !isSuspended, !isStopping, outcome == nil else { return }
    saved.parts = draftState(keeping: keeping, paging: pagingOfEnd).map(finishState)
    // Steps that wait for tables have changed nothing: the launch state is still valid, and a store still has it.
    if tables.areLoading, committer == nil { saved.parts = tables.state.map { SavedState($0) } }
    life.isSuspended = true
    stopsForGood()
    executor.dropRemainders("the pipeline was suspended")
    for sink in sinks { sink.upstream.cancel() }
    for rootSubscriber in rootSubscribers { rootSubscriber.upstream?.cancel() }
    tables.cancel()
    for tap in taps { tap.disconnect() }
    for shared in named { shared.disconnect() }
    for source in sources.running { source.cancel() }
    _ = sources.takeAll()
    var finishing: [(index: Int, isKept: Bool)] = []
    for (index, sink) in sinks.enumerated() where outcome == nil && sink.isOpen {
      if let outbox = sink.node as? OutboxSink {
        outbox.suspend()
      } else if sink.isPersistent && keeping(plan.sinks[index]) || life.suspension?.leaving.contains(index) == true {
        sink.node.suspend()
        sink.node.drained()
      } else {
        sink.node.complete()
        if sinks[index].isOpen { finishing.append((index, keeping(plan.sinks[index]))) }
      }
    }
    if outcome == nil, !finishing.isEmpty { sinkEnds.finishing = FinishingSinks(self, finishing) }
    endIfOver()
  }

  /// How the last state of a suspended pipeline is saved; nil: as a whole. Sinks other than outboxes may leave events
  /// to another execution of this process, which needs the whole state.
  private var pagingOfEnd: StatePaging? {
    guard let committer, committer.isDurable, life.suspension?.isFinal == true,
      sinks.allSatisfy({ !$0.isOpen || $0.node is OutboxSink })
    else { return nil }
    return committer.pagingOfEnd
  }

  struct Suspension {
    var successor: Plan?
    var isFinal = false
    /// Whether a sink's undelivered events are part of the state.
    var keeping: (SinkPlan) -> Bool = { _ in true }
    /// The indexes of sinks that save nothing and hand over their events to the successor.
    var leaving: Set<Int> = []
  }

  /// The plan that runs in this process after the suspended pipeline; nil: none, as far as known.
  package var successor: Plan? { life.suspension?.successor }

  /// The name of a step among all pipelines of the process, which stays the same over a reload.
  package func name(of step: StepID) -> String { "\(plan.name)/\(plan.steps[step.number].key)" }

  /// The names of a step that takes over: its present one, then its former ones (`movedFrom`).
  package func names(ofHeir step: StepID) -> [String] {
    [name(of: step)] + plan.steps[step.number].formerKeys.map { "\(plan.name)/\($0)" }
  }

  /// The component of the successor that has the name of a step; nil: there is none.
  package func successor(of step: StepID) -> (any Component)? {
    let key = plan.steps[step.number].key
    guard let successor,
      let number = successor.steps.firstIndex(where: { $0.key == key || $0.formerKeys.contains(key) })
    else { return nil }
    return successor.components[number] ?? successor.sinks.first { $0.step.number == number }?.component
  }

  /// Whether a component of the successor meets the condition, whatever the name of its step.
  package func successorHas(_ condition: (any Component) -> Bool) -> Bool {
    successor?.components.values.contains(where: condition) ?? false
  }

  /// A sink of a pipeline that is ending, which has not delivered everything.
  package struct Left: Sendable {
    package var sink: String
    /// The events that it has, in memory and on the disk.
    package var events: Int
    package var trouble: SinkTrouble?
  }

  /// The sinks that have not finished. Called between two turns.
  package var left: [Left] {
    guard outcome == nil else { return [] }
    let troubles = troubles.all
    return zip(plan.sinks, sinks).compactMap { sink, open in
      guard open.isOpen else { return nil }
      open.node.countDelivered()
      let events = max(open.node.queued?.events ?? 0, (open.node as? OutboxSink)?.outboxed.events ?? 0)
      return events > 0 || open.node.hasEnded
        ? Left(sink: sink.name, events: events, trouble: troubles[sink.name]) : nil
    }
  }

  private func reportEnd() {
    guard life.holds == 0, sinkEnds.closing == 0, let outcome else { return }
    let report = life.onEnd
    life.onEnd = { _ in }
    report(outcome)
  }

  private func teardown() {
    executor.needsNoTurn()
    sinkEnds.finishing?.cancel()
    for sink in sinks { sink.upstream.cancel() }
    for rootSubscriber in rootSubscribers { rootSubscriber.upstream?.cancel() }
    tables.cancel()
    for tap in taps { tap.disconnect() }
    for sink in sinks where sink.isOpen {
      sink.node.cancel()
      sink.node.left()
    }
    for shared in named { shared.disconnect() }
    for source in sources.running { source.cancel() }
    _ = sources.takeAll()
  }

  func rootEnded() {
    endIfOver()
    if !wirings.isLaunching, outcome == nil { completeErrors() }
  }

  /// Ends the pipeline after its last sink and the root subscribers that read undelivered events; a pipeline without
  /// sinks, after its root subscribers.
  func endIfOver() {
    guard sinkEnds.open == 0,
      isSuspended || rootSubscribers.allSatisfy({ $0.hasEnded || !plan.sinks.isEmpty && !$0.isAwaited })
    else { return }
    end(.completed)
  }

  // MARK: Quiescence

  /// Whether nothing can happen any more: no source runs, no step waits for a time, nothing is deferred, and no sink
  /// can still reject an event. Writing sinks do not matter.
  private var isExhausted: Bool {
    !sources.running.contains { !$0.isClosed } && !executor.mayGoOn
      && !sinks.contains { $0.isOpen && $0.errors.isClaimed && $0.node.awaitsAnswers }
  }

  /// When nothing can happen any more, a subscriber that waits for an errors output or for the end of a command would
  /// wait forever: it may be part of the output's own signal, or execute the command because of the command's values.
  /// Completes these outputs and commands; returns whether there were any. Further subscribers may then wait in the
  /// same way.
  func becameQuiet() -> Bool {
    if isOver { return false }
    guard isExhausted else { return endCircularWaits() }
    var causesMore = false
    if errorsOutputs.named.contains(where: \.isClaimed) {
      causesMore = true
      for signal in errorsOutputs.named { signal.completeWaitedFor() }
    }
    for (_, command) in commands.sorted(by: { $0.key < $1.key }) where !isOver && isExhausted {
      causesMore = true
      command.finish()
    }
    return causesMore && !isOver
  }

  /// Ends circular waits while the rest of the pipeline continues, if nothing upstream of them can act any more.
  /// Returns whether it ended any.
  private func endCircularWaits() -> Bool {
    if life.circularWaits == nil { life.circularWaits = plan.circularWaits }
    guard let waits = life.circularWaits, !waits.isEmpty, !isStopping, life.suspension == nil else { return false }
    for wait in waits where isAwaited(wait.waited) && !mayAct(wait) {
      switch wait.waited {
      case .errors(let index): errorsOutputs.named[index].completeWaitedFor()
      case .command(let index): commands[index]?.finish()
      }
      // The end of this wait may cause an event upstream of the others.
      return !isOver
    }
    return false
  }

  private func isAwaited(_ waited: CircularWait.Waited) -> Bool {
    switch waited {
    case .errors(let index): errorsOutputs.named[index].isClaimed
    case .command(let index): commands[index] != nil
    }
  }

  /// Whether a source, a timer or a sink upstream of the wait may cause another event.
  private func mayAct(_ wait: CircularWait) -> Bool {
    func isUpstream(_ step: StepID) -> Bool { wait.isUpstream[step.number] }
    if sources.running.contains(where: { !$0.isClosed && isUpstream($0.nodeContext.step) }) { return true }
    if wait.sinks.contains(where: { sinks[$0].isOpen && sinks[$0].errors.isClaimed && sinks[$0].node.awaitsAnswers }) {
      return true
    }
    var found = false
    let seesAll = executor.visitTimers(limit: 10_000) { _, target in
      if !found, target.mayGoOn, target.step.map(isUpstream) ?? true { found = true }
    }
    return found || !seesAll
  }
}

extension TimerTarget {
  /// The step of the timer's target; nil: unknown.
  var step: StepID? {
    switch self {
    case let node as OperatorNode: node.nodeContext.step
    case let step as LateStep: step.id
    case let skipped as SkippedTimer: skipped.target.step
    default: nil
    }
  }
}
