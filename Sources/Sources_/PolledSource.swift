import PipelineCore

/// The base of sources that request their events, once or periodically, from a server or a program.
class PolledSource: DecodingSource {
  struct Schedule {
    /// Nil: one call only.
    var every: TimeSpan?
    /// The maximum random delay of each later call.
    var jitter = TimeSpan.zero
    /// With `every`: whether the first call is made immediately.
    var immediate = true
    /// How long the current call may still take when the pipeline is stopped.
    var stopTimeout = TimeSpan.seconds(10)
  }

  private let schedule: Schedule
  /// The call and its missing response, for messages: "a request", "no response came".
  private let words: (call: String, nothing: String)
  private var call: (any Cancellable)?
  /// Until the response, holds the acknowledgement of the event that this inner signal was created for.
  private var held: Ack?
  private var timer = Wake.none
  /// When the current period started: periods are counted from the first, so delays do not add up.
  private var period = Instant(nanoseconds: 0)
  private var isEnding = false
  /// Whether the restored state has an unfinished call.
  private var wasAsking = false
  /// Whether the restored state was saved with other parameters.
  private var isRenewed = false
  /// The position after the last event that has been sent, for sources with positions within a response.
  var positionOfTurn: PollPosition { position }

  /// The positions of the responses that have been sent.
  private let answers = PositionLedger(PollPosition())
  /// The position after the last response that has been sent completely.
  final var position = PollPosition()
  /// Set while the server asks for no calls.
  private var pause = Wake.none
  /// Whether a call must be made as soon as the pause ends.
  private var isDue = false
  private static let pauseEnds = 1
  /// Set if the input was paused when the next call was due.
  private var next = Wake.none
  private static let goesOn = 2
  /// When the current call began.
  private var asked = Instant(nanoseconds: 0)

  init(
    _ schedule: Schedule, _ words: (call: String, nothing: String), _ nodeContext: NodeContext, _ downstream: Downstream
  ) {
    self.schedule = schedule
    self.words = words
    super.init(nodeContext, downstream: downstream)
  }

  // MARK: For subclasses

  /// Starts a call, which ends in a turn with ``take()``. Nil if no call could be made, which has been reported.
  func ask() -> (any Cancellable)? { nil }

  /// Called when all events of a response have been sent: the time to move ``position``.
  func answerSent() {}

  /// Whether another call follows the response that was just sent, without waiting for the next period.
  var hasMore: Bool { false }

  /// Makes no calls for this long; a call that falls due meanwhile waits.
  final func pauseCalls(for span: TimeSpan) {
    cancelWake(&pause)
    pause = wake(after: span, Self.pauseEnds)
  }

  /// Whether a pause delays calls.
  final var hasPause: Bool { pause.isSet }

  /// Must be called in a turn with the response of the current call. False: the response is no longer awaited.
  /// Otherwise ``end()``, ``endFailed()`` or ``sendBody(_:_:_:)`` must follow.
  final func take() -> Bool {
    guard !isClosed, call != nil else { return false }
    call = nil
    nodeContext.answered(since: asked)
    goOn(with: &held)
    return true
  }

  /// Sends the events of a response's body; the call then ends.
  final func sendBody(_ body: consuming [UInt8], _ options: DecoderOptions, _ origin: Origin) {
    var options = options
    options.unit = .body
    guard let decoder = makeDecoder(options) else { return end() }
    let slab = Slab(body)
    body = []
    take(slab, offset: 0, isLast: true, by: decoder, origin: origin)
    if isBatchDone { end() } else { whenBatchIsDone { [unowned self] in end() } }
  }

  /// Sends the rows that a decoder makes without an input; the call then ends. `bytes`: the memory of the rows.
  final func sendRows(_ decoder: any EventDecoder, bytes: Int, _ origin: Origin) {
    take(Slab(capacity: 0), offset: 0, isLast: true, by: decoder, bytes: bytes, origin: origin)
    if isBatchDone { end() } else { whenBatchIsDone { [unowned self] in end() } }
  }

  /// Sends one event, which is the whole response; the call then ends.
  final func sendAnswer(_ value: Value, _ origin: Origin) {
    beginPiece()
    produce(value, origin: origin)
    end()
  }

  /// Sends several events, which are the whole response; the call then ends.
  final func sendAnswers(_ values: [Value], _ origin: Origin) {
    beginPiece()
    for value in values where !isClosed { produce(value, origin: origin) }
    end()
  }

  /// Ends the call after all events of its response have been sent.
  final func end() {
    guard !isClosed else { return }
    answerSent()
    guard !isClosed else { return }
    if hasMore, !isEnding { return callAgain() }
    if isEnding, hasMore { return completeEarly() }
    if schedule.every == nil || isEnding { finish() }
  }

  /// Ends a call that has failed, after the failure was reported.
  ///
  /// - Parameter continues: Whether the same call is repeated after the pause that the server asked for, instead of in
  ///   its period.
  final func endFailed(continues: Bool = false) {
    guard !isClosed else { return }
    if isEnding || schedule.every == nil { return finish() }
    if continues, pause.isSet { isDue = true }
  }

  /// Reports that the call has failed. `body`: the part of the response that was received, for the errors output.
  final func failed(
    _ code: Diagnostic.Code, _ failure: SignalFailure, _ body: [UInt8] = [], from origin: Origin? = nil
  ) {
    guard schedule.every != nil else { return finish(failing: failure) }
    let origin = origin ?? self.origin
    arena.keep(origin)
    body.withUnsafeBytes { rejectInput($0, code, because: failure, origin: origin) }
    finishEvent()
  }

  /// Reports that no call can be made with these values. `poll`: the code if no event is at fault.
  final func refused(_ code: Diagnostic.Code, poll: Diagnostic.Code, _ failure: SignalFailure) {
    if rejectOuter(failure.kind == .expression ? .expressionFailed : code, because: failure) {
      if schedule.every == nil { finish() }
    } else {
      failed(poll, failure)
    }
  }

  // MARK: The schedule

  override var isEndless: Bool { schedule.every != nil }

  override func begin() {
    period = now
    if schedule.every != nil { wait() }
    if schedule.every == nil || schedule.immediate { makeCall() }
  }

  /// Makes the next call at once or, if the input is paused, when it resumes.
  private func callAgain() {
    if executor.isInputPaused { next = wake(after: .zero, Self.goesOn) } else { makeCall() }
  }

  private func makeCall() {
    cancelWake(&next)
    if pause.isSet {
      isDue = true
      if !hasPieces, held == nil { held = holdAck() }
      return
    }
    isDue = false
    asked = executor.now
    call = ask()
    if call != nil, !hasPieces { held = holdAck() }
  }

  private func wait() {
    guard let every = schedule.every else { return }
    let behind = (now - period).nanoseconds / every.nanoseconds
    period = period + TimeSpan(nanoseconds: every.nanoseconds &* (behind &+ 1))
    var due = period
    if schedule.jitter > .zero {
      let share = Double(execution.services.random() >> 11) / Double(1 << 53)
      due = due + schedule.jitter.scaled(by: share)
    }
    timer = wake(at: due)
  }

  override func woke(_ token: Int) {
    if isEnding {
      breakOff()
      return
    }
    if token == Self.goesOn {
      next = .none
      if call == nil { makeCall() }
      return
    }
    if token == Self.pauseEnds {
      pause = .none
      goOn(with: &held)
      if isDue, call == nil, isBatchDone { makeCall() }
      return
    }
    wait()
    // The previous response may still have events to send.
    if call == nil, isBatchDone, !next.isSet { makeCall() }
  }

  override func skipped(_ token: Int, _ late: Lateness) {
    if token == Self.pauseEnds || token == Self.goesOn { woke(token) } else { wait() }
  }

  override func beginPiece() { beginPiece(of: answers) { [self] in positionOfTurn } }

  // MARK: State

  override func save(_ state: inout StateWriter) {
    // A response that was not sent completely is requested again; so is one that is not acknowledged, if the source waits for that.
    state.write(
      call != nil || next.isSet || !isBatchDone || state.positions == .acknowledged && answers.outstanding > 0)
    state.write(period)
    state.write(timer)
  }

  override func restore(_ state: inout StateReader) throws(StateFault) {
    wasAsking = try state.read()
    period = try state.read()
    timer = try state.read()
  }

  /// Saves the position of a source whose calls depend on earlier responses, and the pause that the server asked for.
  final func savePosition(_ state: inout StateWriter) {
    state.write(pause)
    state.write(isDue)
    state.write(savedPosition(state))
  }

  final func savedPosition(_ state: borrowing StateWriter) -> PollPosition {
    state.positions == .acknowledged ? answers.acknowledged : positionOfTurn
  }

  /// Restores what `savePosition` saved.
  final func restorePosition(_ state: inout StateReader) throws(StateFault) {
    pause = try state.read()
    isDue = try state.read()
    goOn(from: try state.read())
  }

  final func goOn(from position: PollPosition) {
    self.position = position
    answers.reset(to: position)
  }

  /// The restored schedule belongs to other parameters: the source starts again at this position.
  final func beginAnew(from position: PollPosition) {
    cancelWake(&timer)
    cancelWake(&pause)
    cancelWake(&next)
    isDue = false
    isRenewed = true
    self.position = position
    answers.reset(to: position)
  }

  override func resume() {
    if isRenewed { return begin() }
    if schedule.every != nil, !timer.isSet { wait() }
    if wasAsking { makeCall() }
  }

  // MARK: The end

  /// Makes no further call; `stopTimeout` limits how long the current one may still take.
  override func drain() {
    isEnding = true
    cancelWake(&timer)
    cancelWake(&pause)
    if next.isSet { return completeEarly() }
    if call == nil {
      // The remaining events of the last response, if any, are sent first.
      if isBatchDone { isDue && schedule.every == nil ? completeEarly() : finish() }
    } else if schedule.stopTimeout == .zero {
      breakOff()
    } else {
      timer = wake(after: schedule.stopTimeout)
    }
  }

  private func breakOff() {
    execution.services.log(
      .warning, execution.plan.steps[nodeContext.step.number].label,
      "\(words.call) was cancelled: \(words.nothing) within \(schedule.stopTimeout) after the pipeline was stopped")
    held?.fail("\(words.call) was not answered in time")
    completeEarly()
  }

  override func stop() {
    cancelWake(&timer)
    cancelWake(&next)
    cancelWake(&pause)
    goOn(with: &held, isGivenUp: true)
    let running = call
    call = nil
    running?.cancel()
  }
}
