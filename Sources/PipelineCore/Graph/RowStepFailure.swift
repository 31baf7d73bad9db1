extension RowStep {
  /// Applies the step's error policy to an event for which `program` gave `error`.
  @inline(never)
  final func failed(
    _ event: Event, _ error: Value, _ program: Program, _ frame: EventFrame, _ run: RowRun,
    otherwise standard: ErrorPolicy = .route
  ) -> RowVerdict {
    let location = program.failureLocation(error)
    switch run.step.onError ?? standard {
    case .keep: return .pass
    case .drop:
      run.execution.undecided(
        program.failureMessage(error, frame.frame), at: run.currentStep, location: location,
        what: standard == .drop ? Execution.undecidedEvent : Execution.failedEvent)
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
  @inline(never)
  final func failed(_ event: Event, _ error: Value, _ program: Program, _ frame: EventFrame) -> Bool {
    let step = execution.plan.steps[seat.step.number]
    let location = program.failureLocation(error)
    let message = program.failureMessage(error, frame.frame)
    switch step.onError ?? .route {
    case .keep: return true
    case .drop:
      execution.undecided(message, at: seat.step, location: location, what: Execution.failedEvent)
    case .route: reject(event, .expressionFailed, message, at: location)
    case .fail: finish(failing: SignalFailure(.expression, message, at: location))
    }
    return false
  }
}

extension RowStep {
  /// Applies the step's error policy to an event that it cannot or will not take.
  final func refused(
    _ event: Event, _ code: Diagnostic.Code, _ message: String, _ run: RowRun,
    otherwise standard: ErrorPolicy = .route
  ) -> RowVerdict {
    switch run.step.onError ?? standard {
    case .keep: return .pass
    case .drop:
      run.execution.undecided(
        message, at: run.currentStep, location: run.step.location, what: "an event")
      return .drop
    case .route:
      run.rejectRow(event, code, message)
      return .drop
    case .fail:
      run.finish(failing: SignalFailure(.user, message, at: run.step.location))
      return .drop
    }
  }
}

extension OperatorNode {
  /// What a condition says of `event`; nil if it cannot be decided, and the event has been dealt with.
  ///
  /// `keeping`: under `onError: keep` the event goes on as it is; else it is left out.
  final func decide(
    _ event: Event, _ program: Program, _ frame: EventFrame, keeping: Bool = true
  ) -> Bool? {
    guard let value = evaluate(program, event, frame, keeping: keeping) else { return nil }
    if value.is(.bool) { return value.asBool }
    refuse(event, .unexpectedValue, "a condition is \(value.kindName), not a boolean")
    return nil
  }

  /// What an expression gives for `event`; nil if it fails, and the event has been dealt with.
  final func evaluate(
    _ program: Program, _ event: Event, _ frame: EventFrame, keeping: Bool = true
  ) -> Value? {
    if let failure = frame.load(event) {
      reject(event, .eventNotReadable, EventFrame.message(of: failure))
      return nil
    }
    let value = program.evaluate(frame)
    guard value.isError else { return value }
    if failed(event, value, program, frame), keeping { emit(event) }
    return nil
  }

  /// What a mapping gives for `event`, with the frame's own variables set before; nil if it fails, and
  /// the event has been dealt with.
  final func build(_ builder: ValueBuilder, _ event: Event, _ frame: EventFrame) -> Value? {
    if let failure = frame.load(event) {
      reject(event, .eventNotReadable, EventFrame.message(of: failure))
      return nil
    }
    var failing: Unmanaged<Program>?
    let value = builder.build(frame, &failing)
    if value.isError, let failing = failing?.takeUnretainedValue() {
      if failed(event, value, failing, frame) { emit(event) }
      return nil
    }
    return value.is(.optional) ? value.wrapped ?? .null : value
  }

  /// Applies the step's error policy to an event that the step cannot take; `keep` passes it on.
  final func refuse(_ event: Event, _ code: Diagnostic.Code, _ message: String) {
    switch execution.plan.steps[seat.step.number].onError ?? .route {
    case .keep: emit(event)
    case .drop: execution.undecided(message, at: seat.step, location: seat.location, what: "an event")
    case .route: reject(event, code, message)
    case .fail: finish(failing: SignalFailure(.user, message, at: seat.location))
    }
  }
}
