import PipelineCore

/// One launch of one pipeline on a loop.
final class PipelineRun: @unchecked Sendable {
  enum Report: Sendable {
    /// The graph is wired and the sources have begun.
    case launched
    case ended(Execution.Outcome, Execution.Counters)
    /// Cancelled: nothing more will come.
    case cancelled(Execution.Counters)
  }

  let plan: Plan
  let loop: Loop
  private let executor: Executor
  /// Touched only in turns of `executor`.
  private let execution: Execution

  init(_ plan: Plan, loop: Loop, services: Services) {
    self.plan = plan
    self.loop = loop
    executor = Executor(clock: SystemClock.shared)
    execution = Execution(plan: plan, executor: executor, services: services)
  }

  /// `report` is called on the loop's thread: `launched` at most once, then one of the others once.
  func start(_ report: @escaping @Sendable (Report) -> Void) {
    loop.add(executor, owner: self)
    executor.post { [self] in
      if execution.outcome != nil { return }
      execution.launch { [unowned self] outcome in
        report(.ended(outcome, execution.counters))
      }
      if execution.outcome == nil { report(.launched) }
    }
  }

  /// Ends the sources; what they have sent so far is seen through.
  func drain() {
    executor.post { [self] in
      if execution.outcome == nil { execution.drain() }
    }
  }

  /// Lets go of everything at once, unless it has ended already.
  func cancel(_ report: @escaping @Sendable (Report) -> Void) {
    executor.post { [self] in
      guard execution.outcome == nil else { return }
      execution.cancel()
      report(.cancelled(execution.counters))
    }
  }

  /// Takes the run off its loop; called once, after the last report.
  func retire() { loop.remove(executor) }
}
