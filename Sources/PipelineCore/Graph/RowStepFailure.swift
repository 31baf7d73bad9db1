extension RowStep {
  /// Applies the step's error policy to an event for which `program` gave `error`.
  final func failed(
    _ event: Event, _ error: Value, _ program: Program, _ frame: EventFrame, _ run: RowRun,
    _ step: StepPlan, otherwise standard: ErrorPolicy = .route
  ) -> RowVerdict {
    let location = program.failureLocation(error)
    switch step.onError ?? standard {
    case .keep: return .pass
    case .drop:
      run.execution.undecided(
        program.failureMessage(error, frame.frame), at: run.currentStep, location: location)
      return .drop
    case .route:
      run.rejectRow(
        event, .expressionFailed, program.failureMessage(error, frame.frame), at: location)
      return .drop
    case .fail:
      run.finish(
        failing: SignalFailure(
          .expression, program.failureMessage(error, frame.frame), at: location))
      return .drop
    }
  }
}

extension OperatorNode {
  /// Applies the step's error policy to an event for which `program` gave `error`; returns whether the
  /// event goes on as it is.
  final func failed(_ event: Event, _ error: Value, _ program: Program, _ frame: EventFrame) -> Bool {
    let step = execution.plan.steps[seat.step.number]
    let location = program.failureLocation(error)
    let message = program.failureMessage(error, frame.frame)
    switch step.onError ?? .route {
    case .keep: return true
    case .drop: execution.undecided(message, at: seat.step, location: location)
    case .route: reject(event, .expressionFailed, message, at: location)
    case .fail: finish(failing: SignalFailure(.expression, message, at: location))
    }
    return false
  }
}
