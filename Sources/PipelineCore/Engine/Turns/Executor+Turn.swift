extension Executor {
  // MARK: During a turn

  /// Runs the steps that an event of a batch has deferred before the next event of the batch comes, so that it makes no
  /// difference whether events share a turn.
  ///
  /// `yielding`: the next event may wait for another turn (``spend()``).
  @inline(__always)
  func finishEvent(yielding: Bool = false) {
    guard deferred.head < deferred.steps.count else { return }
    if deferred.depth == 0 {
      runDeferred(yielding: yielding)
    } else if deferred.nestedHead < deferred.steps.count {
      runNested(yielding: yielding)
    }
  }

  func runStep(of node: OperatorNode, _ token: Int) {
    if node.isClosed { return }
    deferred.resuming.append(node)
    node.resumed(token)
    deferred.resuming.removeLast()
  }

  /// Runs the steps that the innermost start of sources has deferred, after an event of one of these sources, so that
  /// it makes no difference whether sources start at the launch or within an outer event. Two kinds of steps wait for
  /// the outer event: steps of a node that is on the stack, so that a `repeat` does not nest its rounds, and steps that
  /// wait for a step upstream that the outer event has deferred.
  ///
  /// `yielding`: as in ``runDeferred(yielding:)``. The next event of a source that cannot stop comes in this turn,
  /// however long the turn lasts.
  @inline(never)
  func runNested(yielding: Bool) {
    if deferred.isLonger { return }
    var next = max(deferred.nestedHead, deferred.head)
    var (steps, idle) = (0, 0)
    while next < deferred.steps.count, steps < Self.deferredLimit {
      let (node, token) = deferred.steps[next]
      if deferred.resuming.contains(where: { $0 === node }) {
        next += 1
        continue
      }
      deferred.steps.remove(at: next)
      let before = (deferred.deferrals, deferred.waits)
      runStep(of: node, token)
      steps += 1
      idle = deferred.waits != before.1 && deferred.deferrals == before.0 &+ 1 ? idle + 1 : 0
      let mustYield = spend() && yielding && steps >= Self.deferredLeast
      // All remaining steps wait for a step of the outer event.
      if idle > 0, idle >= deferred.steps.count - next { next = deferred.steps.count }
      if mustYield { break }
    }
    // These steps belong to the outer event, so they are not tried again after each event.
    deferred.nestedHead = min(next, deferred.steps.count)
    // The remaining steps run before the rest of the batch.
    if yielding, steps >= Self.deferredLimit { endTurn() }
  }

  /// Starts sources from inside a node. Steps that their events defer run after each event (``runNested(yielding:)``).
  func nested(_ start: () -> Void) {
    deferred.depth += 1
    let outer = deferred.nestedHead
    deferred.nestedHead = deferred.steps.count
    start()
    deferred.nestedHead = outer
    deferred.depth -= 1
  }

  /// Calls `resumed` of `node` with an empty stack, later in this turn or, if the turn is spent, in the next one.
  func `defer`(_ node: OperatorNode, _ token: Int) {
    deferred.deferrals &+= 1
    deferred.steps.append((node, token))
  }

  /// Calls `resumed` of `node` again later, because the node ran before a step upstream of it.
  func waitLonger(_ node: OperatorNode) {
    deferred.waits &+= 1
    self.defer(node, 0)
  }

  /// The deferred steps of `node`: positions in the queue and tokens.
  func deferrals(of node: OperatorNode) -> [(position: Int, token: Int)] {
    guard deferred.head < deferred.steps.count else { return [] }
    return (deferred.head..<deferred.steps.count).compactMap {
      deferred.steps[$0].node === node ? ($0 - deferred.head, deferred.steps[$0].token) : nil
    }
  }

  /// Wakes `target` in its own turn. Nodes use `OperatorNode.wake`, which cancels timers at their end.
  package func schedule(at deadline: Instant, _ target: any TimerTarget, _ token: Int) -> Wake {
    timers.schedule(at: deadline, target, token)
  }

  package func unschedule(_ wake: Wake) { timers.cancel(wake) }

  package func wake(at deadline: Instant, _ target: any TimerTarget, _ token: Int = 0) -> Wake {
    timers.schedule(at: deadline, target, token)
  }

  package func cancel(_ wake: Wake) { timers.cancel(wake) }

  func pending(_ wake: Wake) -> TimerQueue.Pending? { timers.pending(wake) }

  /// Schedules a timer of a saved state under its former number.
  func reschedule(at deadline: Instant, _ number: UInt64, _ target: any TimerTarget, _ token: Int) -> Wake {
    timers.schedule(at: deadline, number, target, token)
  }

  /// The number of the last scheduled timer; it only grows.
  var lastTimer: UInt64 {
    get { timers.last }
    set { timers.last = newValue }
  }

  /// Reports that the wall clock was set, to sources that wait for a time of day. Call it in a turn.
  package func clockWasSet() {
    for source in clockWatchers.sources { source.clockWasSet() }
    clockWatchers.sweep()
  }

  /// Notifies `source` from now on when the wall clock is set.
  func watchClock(_ source: RunningSource) { clockWatchers.add(source) }

  /// The clock's current reading, not the turn's instant; for measuring only.
  var instant: Instant { clock.now }

  func releaseLater(_ object: AnyObject) { deferredReleases.append(object) }

  /// Pauses the input; nests. Each call needs one ``resumeInput(_:)``.
  package func pauseInput(_ pressure: Pressure) { inputPause.begin(pressure, at: now) }

  package func resumeInput(_ pressure: Pressure) {
    inputPause.end(pressure, at: now)
    if inputPause.outputs == 0, timers.holdsSome { releaseTimers() }
  }

  /// Lets held timers fire. They do not wait again as late timers: they were held, and the process was not stopped.
  func releaseTimers() {
    timers.releaseHeld()
    lateTimers.end = nil
    lateTimers.given = now
  }

  /// How long the input has been paused in total, until `time`.
  func timePaused(until time: Instant) -> TimeSpan { inputPause.time(until: time) }

  /// Calls `body` with the deadline and the target of at most `limit` pending timers; returns whether these are all.
  func visitTimers(limit: Int, _ body: (Instant, any TimerTarget) -> Void) -> Bool {
    timers.visit(limit: limit, body)
  }
}
