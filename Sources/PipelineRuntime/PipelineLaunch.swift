package import PipelineCore

/// One launch of one pipeline on a loop.
package final class PipelineLaunch: @unchecked Sendable {
  package enum Report: Sendable {
    /// The graph is wired and the sources have started.
    case launched
    /// `state`: the state from which the next run can continue, after a failure.
    case ended(Execution.Outcome, Execution.Counters, state: LeftState?)
    /// The run was suspended: the next run continues from the state.
    case suspended(state: LeftState, Execution.Counters)
    /// The run was cancelled: no further report comes. `state`: set if the run was being suspended.
    case cancelled(Execution.Counters, state: LeftState?)
  }

  package let plan: Plan
  package let loop: Loop
  private let executor: Executor
  /// Used only in turns of `executor`.
  private let execution: Execution
  /// The sinks whose destinations are unreachable; may be read on any thread.
  package let troubles: SinkTroubles
  private var state: LeftState?
  private let isMoved: Bool
  private let commits: Bool
  /// Called in the turn of the launch, before anything is wired. Set before ``start(_:)``.
  package var prepare: @Sendable (Execution) -> Void = { _ in }
  /// The final statistics; set after the last report.
  package private(set) var statistics: PipelineStatistics?
  /// The outcome of restoring the state.
  package struct Restored: Sendable {
    /// The names of the steps that continue from the state.
    package var kept: [String]
    /// The parts that could not be used, with the reasons.
    package var refusals: [Diagnostic]
  }
  /// The outcome of restoring the state; nil: the run began without a state. Set after the first report.
  package private(set) var restored: Restored?

  /// - Parameters:
  ///   - state: The state of an earlier run, from which this run continues.
  ///   - values: A hash of the values and files that the plan's file refers to.
  ///   - isMoved: Whether this run immediately replaces the earlier one, as in a reload.
  ///   - isRestarted: Whether another run follows a failure.
  ///   - delivery: How the run keeps its state; nil: it keeps none.
  ///   - placement: The threads on which its blocks are processed.
  package init(
    _ plan: Plan, loop: Loop, services: Services, restoring state: LeftState? = nil, values: Int = 0,
    isMoved: Bool = false,
    isRestarted: Bool = false, delivery: DeliveryOptions? = nil, placement: Placement = .auto
  ) {
    self.plan = plan
    commits = delivery != nil
    self.loop = loop
    self.state = state
    self.isMoved = isMoved
    executor = Executor(clock: SystemClock.shared)
    executor.graceOfTimers = Executor.grace
    execution = Execution(plan: plan, executor: executor, services: services)
    troubles = execution.troubles
    execution.settings.keepsStateOnFailure = isRestarted
    execution.settings.insertedValues = values
    execution.reading.placement = placement
    if let delivery { execution.commit(with: delivery) }
  }

  /// Starts the run. `report` is called on the loop's thread: `launched` at most once, then exactly one other report.
  package func start(_ report: @escaping @Sendable (Report) -> Void) {
    loop.add(executor, owner: self)
    executor.post { [self] in
      if execution.outcome != nil { return }
      prepare(execution)
      let state = state.take()
      execution.launch(restoring: state?.bytes, estates: state?.estates ?? [:], isMoved: isMoved) {
        [unowned self] outcome in
        noteRestored()
        whenCommitted { [unowned self] in
          if outcome == .completed, let state = leftState {
            report(.suspended(state: state, execution.counters))
          } else if outcome == .completed, execution.isSuspended {
            // A sink was given up, so the next run continues from an older commit.
            report(.cancelled(execution.counters, state: nil))
          } else {
            report(.ended(outcome, execution.counters, state: leftState))
          }
        }
      }
      noteRestored()
      if execution.outcome == nil { report(.launched) }
      for move in execution.renamed {
        execution.services.log(
          .info, plan.name, "the \(move.kind) '\(move.name)' continues from the state of '\(move.former)'")
      }
      for refusal in execution.refusals { execution.services.log(.warning, plan.name, refusal.line) }
    }
  }

  /// The state to continue from; nil: there is none, or only that of an older commit.
  private var leftState: LeftState? {
    guard execution.hasLostEvents else { return execution.leftState }
    // The sources read the events in this state again.
    execution.leftState?.discard()
    return nil
  }

  /// Calls `report` in this turn or, if state is kept, in a turn after the last commit.
  private func whenCommitted(_ report: @escaping @Sendable () -> Void) {
    count()
    guard commits else { return report() }
    let executor = executor
    execution.finishCommits { executor.post(report) }
  }

  private func noteRestored() {
    if restored == nil { restored = execution.restoredSteps.map { Restored(kept: $0, refusals: execution.refusals) } }
  }

  private func count() { statistics = execution.statistics }

  /// Ends the sources; the events that they have sent are processed to the end.
  package func drain() {
    executor.post { [self] in
      if execution.outcome == nil { execution.drain() }
    }
  }

  /// Ends the run so that another one, of `plan`, can continue from its state; in a reload, at once.
  package func suspend(for plan: Plan, isReload: Bool) {
    let names = plan.sinks.flatMap { sink in
      [sink.name, plan.formerName(ofSink: sink.name)].compactMap { name in name.map { "\($0) \(sink.keyword)" } }
    }
    let sinks = Set(names)
    executor.post { [self] in
      execution.suspend(for: isReload ? plan : nil, isFinal: !isReload) { sinks.contains("\($0.name) \($0.keyword)") }
    }
  }

  /// Passes a copy of the current state, without the events that sinks hold, to `done`, in a turn; nil: the run has
  /// ended or is about to.
  package func snapshot(_ done: @escaping @Sendable ([UInt8]?) -> Void) {
    executor.post { [self] in done(execution.outcome == nil ? execution.saveState { _ in false } : nil) }
  }

  /// Suspends without waiting for outstanding answers.
  package func freeze() {
    executor.post { [self] in
      if execution.awaitsAnswers {
        execution.services.log(
          .warning, plan.name, "answers have not arrived in time, so the pipeline is suspended without them")
      }
      execution.freeze()
    }
  }

  /// Reports that the wall clock was set.
  package func clockWasSet() {
    executor.post { [self] in executor.clockWasSet() }
  }

  /// Cancels everything at once, unless the run has ended.
  package func cancel(_ report: @escaping @Sendable (Report) -> Void) {
    executor.post { [self] in
      guard execution.outcome == nil else { return }
      execution.cancel { [unowned self] in
        whenCommitted { [unowned self] in report(.cancelled(execution.counters, state: leftState)) }
      }
    }
  }

  /// Calls `body` with the execution between two turns, on the thread that runs them, unless the run is retired first.
  package func inspect(_ body: @escaping @Sendable (Execution) -> Void) {
    executor.inspect { [self] in body(execution) }
  }

  /// Removes the run from its loop; called once, after the last report.
  package func retire() { loop.remove(executor) }
}
