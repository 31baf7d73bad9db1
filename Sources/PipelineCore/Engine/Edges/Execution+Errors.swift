extension Execution {
  // MARK: Errors outputs

  func errorsOutput(_ owner: ErrorsOwner) -> ErrorsSignal {
    switch owner {
    case .named(let index): errorsOutputs.named[index]
    case .sink(let index): sinks[index].errors
    }
  }

  /// The errors outputs of the named signals; a sink owns its own.
  struct ErrorsOutputs {
    var named: [ErrorsSignal] = []
    /// All errors outputs by the names of their owners; built at the first rejection.
    fileprivate var byName: [String: ErrorsSignal]?
    /// The named signals that may still run; built when the first of them ends.
    fileprivate var reach: SignalReach?
    /// Checks the JSON text of rejected events.
    fileprivate lazy var checker = JSONParser()
  }

  private func errorsOutput(ofName owner: String) -> ErrorsSignal? {
    if let known = errorsOutputs.byName { return known[owner] }
    var outputs: [String: ErrorsSignal] = [:]
    for (named, output) in zip(plan.named, errorsOutputs.named) { outputs[named.name] = output }
    for (sink, open) in zip(plan.sinks, sinks) { outputs[sink.name] = open.errors }
    errorsOutputs.byName = outputs
    return outputs[owner]
  }

  private var reach: SignalReach {
    if let known = errorsOutputs.reach { return known }
    let reach = SignalReach(plan)
    errorsOutputs.reach = reach
    return reach
  }

  /// Called when a named signal has ended or lost its last subscriber.
  func namedStopped(_ index: Int) {
    guard !wirings.isLaunching else { return }
    for stopped in reach.run(by: index) where !isOver { completeErrors(stopped) }
  }

  /// Completes the errors outputs of signals that can never run again and of sinks that have ended.
  func completeErrors() {
    for index in plan.named.indices where !isOver { completeErrors(index) }
    for index in sinks.indices where !isOver && !sinks[index].isOpen { sinks[index].errors.complete() }
  }

  private func completeErrors(_ index: Int) {
    guard !named[index].isConnected else { return }
    let state = SignalReach.State(isOpen: { self.sinks[$0].isOpen }, isRunning: { self.named[$0].isConnected })
    if !reach.mayRun(index, state) { errorsOutputs.named[index].complete() }
  }

  /// Called when the pipeline is about to end before its sinks have: rejects the events that they hold, to the readers
  /// of their errors outputs while those still run, or to the dead letters if these are kept. A sink that reads errors
  /// may have to reject some in turn, hence the loop; no two sinks read each other's errors.
  func rejectRemaining() {
    var goesOn = true
    while goesOn {
      goesOn = false
      for sink in sinks where sink.isOpen && (sink.errors.isClaimed || services.keepsDeadLetters) {
        if sink.node.rejectRemaining() { goesOn = true }
      }
    }
  }

  // MARK: Rejections

  package func reject(_ rejection: Rejection, at nodeContext: NodeContext) { reject(rejection, step: nodeContext.step) }

  /// Whether a rejection of this step reaches a reader of the errors output, or the dead letters.
  func keepsRejections(of step: StepID) -> Bool {
    services.keepsDeadLetters || errorsOutput(ofName: plan.steps[step.number].owner)?.isClaimed == true
  }

  func reject(_ rejection: Rejection, step: StepID) {
    tally.rejected &+= 1
    meters.step(step).pointee.rejected &+= 1
    meters.offer(
      rejection.event, .rejected, at: step,
      .init(code: rejection.code.name, message: rejection.message, location: rejection.location))
    let info = plan.steps[step.number]
    let arena = executor.arena
    var members: [(key: Value, value: Value)] = [
      // The message is rxd's own, so it shows no secret; the event is carried unchanged.
      (.literal("error"), arena.string(SecretMask.process.masked(rejection.message))),
      (.literal("code"), arena.string(rejection.code.name)),
      (.literal("step"), arena.string(info.label)),
      (.literal("at"), arena.string("\(rejection.location ?? info.location)")),
    ]
    let origin = rejection.event.origin.takeUnretainedValue()
    if !origin.source.isEmpty { members.append((.literal("source"), arena.string(origin.source))) }
    if let path = origin.path { members.append((.literal("path"), arena.string(path))) }
    if rejection.event.position >= 0 {
      members.append((.literal("offset"), .int(rejection.event.position)))
    }
    members.append((.literal("event"), part(rejection.event.value, arena)))
    let letter = rejection.event.with(arena.map(members))
    if let output = errorsOutput(ofName: info.owner), output.isClaimed {
      output.send(letter)
      return
    }
    meters.step(step).pointee.deadLetters &+= 1
    let text = OutputBuffer()
    // The event has been checked, and the other members are rxd's own.
    _ = JSONWriter.appendUnchecked(letter.value, to: text)
    if let committer {
      committer.add(
        StoredDeadLetter(
          time: executor.wallTime, code: rejection.code.name, step: info.label, document: Array(text.bytes)))
    } else {
      services.deadLetter(text.bytes)
    }
  }

  /// The event as a part of a document; malformed JSON becomes its text.
  private func part(_ value: Value, _ arena: Arena) -> Value {
    let isText = value.is(.jsonMap) || value.is(.jsonList)
    // The common case: checking the text writes nothing.
    if isText, value.isChecked || errorsOutputs.checker.validate(value.rawBytes) == nil { return value }
    guard isText || value.is(.map) || value.is(.list) else { return value }
    let text = OutputBuffer()
    guard JSONWriter.append(value, to: text) == .malformed else { return value }
    text.clear()
    return JSONWriter.appendUnchecked(value, to: text) == nil ? .string(arena.copy(text.bytes)) : value
  }

  /// The subjects of log messages about dropped events: the first where a condition fails, the second where another
  /// expression fails under `onError: drop`.
  static let undecidedEvent = "an event, because its condition could not be decided"
  static let failedEvent = "an event, because an expression failed"

  /// Logs a warning of a step, at most one a minute; the next one gives the number of those suppressed.
  func warn(_ step: StepID, _ message: @autoclosure () -> String) {
    guard let hidden = shared.warnings.hidden(of: step, at: executor.now) else { return }
    services.log(
      .warning, plan.steps[step.number].label, hidden == 0 ? message() : "\(message()) (and \(hidden) times before)")
  }

  /// Counts an event that was dropped because its condition could not be evaluated, and logs the first of each kind.
  func undecided(
    _ message: @autoclosure () -> String, at step: StepID, location: SourceLocation?,
    what: String = Execution.undecidedEvent
  ) {
    tally.undecided &+= 1
    meters.step(step).pointee.undecided &+= 1
    guard !shared.warnings.isFull else { return }
    let text = message()
    let info = plan.steps[step.number]
    if shared.warnings.isNew("\(step.number) \(text)") {
      services.log(
        .warning, info.label,
        "\(location ?? info.location): dropped \(what): \(text) (further ones of this kind are only counted)")
    }
  }
}

extension Execution {
  /// Applies the error policy of a step, or `standard` if the file gives none, to an event that the step cannot
  /// process.
  @inline(never)
  func outcome(
    of event: Event, at step: StepID, standard: ErrorPolicy = .route, because problem: () -> EventProblem
  ) -> ProblemOutcome {
    let policy = plan.steps[step.number].onError ?? standard
    if policy == .keep { return .pass }
    let problem = problem()
    let location = problem.location ?? plan.steps[step.number].location
    switch policy {
    case .drop:
      undecided(problem.message, at: step, location: location, what: problem.dropped)
      meters.offer(event, .undecided, at: step, problem.reason)
    case .fail:
      meters.step(step).pointee.failed &+= 1
      meters.offer(event, .failed, at: step, problem.reason)
      return .fail(SignalFailure(problem.kind, problem.message, at: location))
    case .route, .keep: reject(Rejection(event, problem.code, problem.message, at: location), step: step)
    }
    return .gone
  }
}
