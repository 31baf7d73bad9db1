import PipelineCore

/// The base of sources that ask for their events, once or periodically: a server, a program.
class PolledSource: DecodingSource {
  struct Schedule {
    /// Nil: it asks once.
    var every: TimeSpan?
    /// The most by which each later call is put off at random.
    var jitter = TimeSpan.zero
    /// With `every`: whether the first call is made at once.
    var immediate = true
    /// How long a call under way may still take when the pipeline is stopped.
    var stopTimeout = TimeSpan.seconds(10)
  }

  private let schedule: Schedule
  /// The call and its missing answer, for messages: "a request", "no response came".
  private let words: (call: String, nothing: String)
  private var call: (any Cancellable)?
  /// Holds the acknowledgement of the event that this inner signal was made for until the answer.
  private var held: Ack?
  private var timer = Wake.none
  /// When the current period started: periods are counted from the first, so delays do not add up.
  private var period = Instant(nanoseconds: 0)
  private var isEnding = false
  /// The restored state has a call under way.
  private var wasAsking = false
  /// The restored state is that of other parameters.
  private var isRenewed = false
  /// The position after the last event that has been sent; for a source that knows it within an answer.
  var placeOfTurn: PollPlace { place }

  /// How far the answers go that have been sent.
  private let answers = PositionLedger(PollPlace())
  /// The position after the last answer that has been sent completely.
  final var place = PollPlace()
  /// Set while the server wants no call.
  private var pause = Wake.none
  /// Whether a call follows as soon as the pause is over.
  private var isDue = false
  private static let pauseEnds = 1
  /// The input was paused when another call was to follow.
  private var next = Wake.none
  private static let goesOn = 2
  /// When the call that is under way began.
  private var asked = Instant(nanoseconds: 0)

  init(
    _ schedule: Schedule, _ words: (call: String, nothing: String), _ nodeContext: NodeContext, _ downstream: Downstream
  ) {
    self.schedule = schedule
    self.words = words
    super.init(nodeContext, downstream: downstream)
  }

  // MARK: For subclasses

  /// Starts a call, which ends in a turn with ``take()``. Nil: there is none, and that has been reported.
  func ask() -> (any Cancellable)? { nil }

  /// All events of an answer have been sent: the time to move ``place``.
  func answerSent() {}

  /// Whether another call follows the answer that has been sent, without waiting for its period.
  var hasMore: Bool { false }

  /// Makes no call for that time; one that is due waits.
  final func pauseCalls(for span: TimeSpan) {
    cancelWake(&pause)
    pause = wake(after: span, Self.pauseEnds)
  }

  /// Whether calls wait for the end of a pause.
  final var hasPause: Bool { pause.isSet }

  /// Called in a turn with the answer of the call under way; false: it is no longer awaited. ``end()``, ``endFailed()`` or
  /// ``sendBody(_:_:_:)`` follows.
  final func take() -> Bool {
    guard !isClosed, call != nil else { return false }
    call = nil
    nodeContext.answered(since: asked)
    goOn(with: &held)
    return true
  }

  /// Sends the events of an answer's body; then the call is done.
  final func sendBody(_ body: consuming [UInt8], _ options: DecoderOptions, _ origin: Origin) {
    var options = options
    options.unit = .body
    guard let decoder = makeDecoder(options) else { return end() }
    let slab = Slab(body)
    body = []
    take(slab, offset: 0, isLast: true, by: decoder, origin: origin)
    if isBatchDone { end() } else { whenBatchIsDone { [unowned self] in end() } }
  }

  /// Sends the rows that a decoder makes without an input; then the call is done.
  final func sendRows(_ decoder: any EventDecoder, _ origin: Origin) {
    take(Slab(capacity: 0), offset: 0, isLast: true, by: decoder, origin: origin)
    if isBatchDone { end() } else { whenBatchIsDone { [unowned self] in end() } }
  }

  /// Sends one event that is the whole answer; then the call is done.
  final func sendAnswer(_ value: Value, _ origin: Origin) {
    beginPiece()
    produce(value, origin: origin)
    end()
  }

  /// Sends several events that are the whole answer; then the call is done.
  final func sendAnswers(_ values: [Value], _ origin: Origin) {
    beginPiece()
    for value in values where !isClosed { produce(value, origin: origin) }
    end()
  }

  /// The call is done, and all events of its answer have been sent.
  final func end() {
    guard !isClosed else { return }
    answerSent()
    guard !isClosed else { return }
    if hasMore, !isEnding { return callAgain() }
    if isEnding, hasMore { return completeEarly() }
    if schedule.every == nil || isEnding { finish() }
  }

  /// The call has failed, and that has been reported.
  ///
  /// - Parameter continues: Whether the same call is made again after a pause that the server asked for, rather than in its period.
  final func endFailed(continues: Bool = false) {
    guard !isClosed else { return }
    if isEnding || schedule.every == nil { return finish() }
    if continues, pause.isSet { isDue = true }
  }

  /// The call has failed. `body`: the received part of the answer, for the errors output.
  final func failed(
    _ code: Diagnostic.Code, _ failure: SignalFailure, _ body: [UInt8] = [], from origin: Origin? = nil
  ) {
    guard schedule.every != nil else { return finish(failing: failure) }
    let origin = origin ?? self.origin
    arena.keep(origin)
    body.withUnsafeBytes { rejectInput($0, code, because: failure, origin: origin) }
    finishEvent()
  }

  /// No call can be made of these values. `poll`: the code where no event is at fault.
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

  /// Makes the next call at once; while the input is paused, its timer waits.
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
    // The previous answer may still have events to send.
    if call == nil, isBatchDone, !next.isSet { makeCall() }
  }

  override func skipped(_ token: Int, _ late: Lateness) {
    if token == Self.pauseEnds || token == Self.goesOn { woke(token) } else { wait() }
  }

  override func beginPiece() { beginPiece(of: answers) { [self] in placeOfTurn } }

  // MARK: State

  override func save(_ state: inout StateWriter) {
    // An answer that has not been sent completely, or is not acknowledged if that counts, is asked for again.
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

  /// For a source whose calls depend on earlier answers: writes the place, and the pause that the server asked for.
  final func savePlace(_ state: inout StateWriter) {
    state.write(pause)
    state.write(isDue)
    state.write(savedPlace(state))
  }

  final func savedPlace(_ state: borrowing StateWriter) -> PollPlace {
    state.positions == .acknowledged ? answers.acknowledged : placeOfTurn
  }

  /// Reads what `savePlace` wrote.
  final func restorePlace(_ state: inout StateReader) throws(StateFault) {
    pause = try state.read()
    isDue = try state.read()
    goOn(from: try state.read())
  }

  final func goOn(from place: PollPlace) {
    self.place = place
    answers.reset(to: place)
  }

  /// The restored schedule is that of other parameters: the source begins anew, from that place.
  final func beginAnew(from place: PollPlace) {
    cancelWake(&timer)
    cancelWake(&pause)
    cancelWake(&next)
    isDue = false
    isRenewed = true
    self.place = place
    answers.reset(to: place)
  }

  override func resume() {
    if isRenewed { return begin() }
    if schedule.every != nil, !timer.isSet { wait() }
    if wasAsking { makeCall() }
  }

  // MARK: The end

  /// A call under way is still waited for.
  override func drain() {
    isEnding = true
    cancelWake(&timer)
    cancelWake(&pause)
    if next.isSet { return completeEarly() }
    if call == nil {
      // After the remaining events of the last answer, if any.
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
