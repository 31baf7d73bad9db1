/// Why a step or a source cannot process an event.
struct EventProblem {
  /// A code of the RX5xx range.
  var code: Diagnostic.Code
  /// One sentence without a full stop.
  var message: String
  /// The part of the pipeline file that failed; nil: the step.
  var location: SourceLocation?
  /// The kind of the signal's failure under `onError: fail`.
  var kind = SignalFailure.Kind.user
  /// The object of the log message "dropped ..." under `onError: drop`.
  var dropped = "an event"

  /// The reason for ``StoppedEvents``.
  var reason: StoppedEvent.Problem { .init(code: code.name, message: message, location: location) }

  /// The problem that a condition or another expression of the step gave `error`.
  static func expression(
    _ error: Value, _ program: Program, _ frame: EventFrame, standard: ErrorPolicy = .route
  ) -> EventProblem {
    EventProblem(
      code: .expressionFailed, message: program.failureMessage(error, frame.frame),
      location: program.failureLocation(error), kind: .expression,
      dropped: standard == .drop ? Execution.undecidedEvent : Execution.failedEvent)
  }
}

/// How the error policy handles the event.
enum ProblemOutcome {
  /// The event passes unchanged.
  case pass
  /// The event was counted, or went to the errors output.
  case gone
  /// The signal fails.
  case fail(SignalFailure)
}

extension OperatorNode {
  /// Applies the error policy to an event; returns whether the event passes unchanged.
  final func passesOn(_ event: Event, because problem: () -> EventProblem) -> Bool {
    switch execution.outcome(of: event, at: nodeContext.step, because: problem) {
    case .pass: return true
    case .gone: break
    case .fail(let failure): finish(failing: failure)
    }
    return false
  }

  /// Applies the error policy to an event for which `program` gave `error`.
  @inline(never)
  final func failed(_ event: Event, _ error: Value, _ program: Program, _ frame: EventFrame) -> Bool {
    passesOn(event) { .expression(error, program, frame) }
  }

  /// Applies the error policy to an event that the step cannot process; `keep` passes the event on.
  final func refuse(_ event: Event, _ code: Diagnostic.Code, _ message: String) {
    if passesOn(event, because: { EventProblem(code: code, message: message) }) { emit(event) }
  }

  /// The outcome of a condition for `event`; nil if the condition failed, and the error policy has been applied.
  ///
  /// `kept`: The outcome under `onError: keep`; nil: the event is emitted.
  final func decide(_ event: Event, _ program: Program, _ frame: EventFrame, kept: Bool? = nil) -> Bool? {
    guard isReadable(event, frame) else { return nil }
    switch program.evaluateBool(frame) {
    case .yes: return true
    case .no: return false
    case .failed: break
    }
    guard failed(event, frame.frame.lastError, program, frame) else { return nil }
    if kept == nil { emit(event) }
    return kept
  }

  /// The result of an expression for `event`; nil if it failed, and the error policy has been applied.
  final func evaluate(_ program: Program, _ event: Event, _ frame: EventFrame) -> Value? {
    guard isReadable(event, frame) else { return nil }
    let value = program.evaluate(frame)
    guard value.isError else { return value }
    if failed(event, value, program, frame) { emit(event) }
    return nil
  }

  /// The result of a mapping for `event`, with the frame's own variables set before; nil if it failed, and the error
  /// policy has been applied.
  ///
  /// `seen`: The value that the mapping sees as the event.
  final func build(
    _ builder: ValueBuilder, _ event: Event, seeing seen: Value? = nil, _ frame: EventFrame
  ) -> Value? {
    guard isReadable(event, seeing: seen, frame) else { return nil }
    var failing: Unmanaged<Program>?
    let value = builder.build(frame, &failing)
    if value.isError, let failing = failing?.takeUnretainedValue() {
      if failed(event, value, failing, frame) { emit(event) }
      return nil
    }
    return value.is(.optional) ? value.wrapped ?? .null : value
  }

  /// Loads the frame with the event, and rejects an event that cannot be read. Consecutive fused steps load theirs in
  /// ``FusedSteps``; no other code fills slots while events flow.
  ///
  /// `seen`: The value that expressions see as the event.
  @inline(__always)
  final func isReadable(_ event: Event, seeing seen: Value? = nil, _ frame: EventFrame) -> Bool {
    let failure = if let seen { frame.load(event.with(seen)) } else { frame.load(event) }
    guard let failure else { return true }
    refuseUnreadable(event, failure)
    return false
  }

  @inline(never)
  private func refuseUnreadable(_ event: Event, _ failure: Value) {
    reject(event, .eventNotReadable, EventFrame.message(of: failure))
  }
}
