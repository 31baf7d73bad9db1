/// The acknowledgement of the running turn's events, and the checkpoint that covers all other effects. Used in turns.
final class TurnAcks {
  /// The acknowledgement of this turn's events, if their source needs one.
  private(set) var current: Ack?
  /// The acknowledgement that a new call holds in place of `current`. Set while a queued event begins its call, and
  /// after this turn has given up the call of another event.
  var ofCall: Ack??
  /// Whether no input is acknowledged: a client is refused at the end of its turn, other senders when the sources end
  /// (``releaseWithheld()``). Set before the launch.
  var areWithheld = false
  private var withheld: [Ack] = []
  /// Whether the sources have ended, so that no sender keeps its events.
  private var refusesAll = false
  /// The reason why an event of a dry run is not acknowledged.
  private static let dryRun = "this is a dry run: nothing is delivered"
  /// Whether `current` includes several others.
  private var tracksSeveral = false
  /// Whether `current` covers the whole batch, so that the rest of the batch belongs to it too.
  private var tracksBatch = false
  private let checkpoints: CheckpointSequence
  /// The acknowledgement of all effects since the last checkpoint that no source tracks.
  private var checkpoint: Ack

  init() {
    checkpoints = CheckpointSequence()
    checkpoint = checkpoints.begin()
  }

  /// The acknowledgement that a sink holds for events of this turn that it writes later.
  var ofTurn: Ack { current ?? checkpoint }

  /// The acknowledgement of the whole batch, held once for the rest of the batch; nil: only pieces are acknowledged.
  func holdForRest() -> Ack? {
    let held = tracksBatch ? current : nil
    held?.hold()
    return held
  }

  func track(_ acks: [Ack]) {
    guard let first = acks.first else { return }
    for one in acks {
      one.join(checkpoint)
      if one.purpose != .piece { tracksBatch = true }
    }
    if current == nil, acks.count == 1 {
      current = first
      return
    }
    if !tracksSeveral {
      let all = Ack()
      // This turn may continue steps that an earlier turn deferred.
      if let current { all.include(current) }
      current = all
      tracksSeveral = true
    }
    for one in acks { current?.include(one) }
  }

  func setCheckpoint(_ done: @escaping @Sendable (Ack.Outcome) -> Void) {
    checkpoints.whenAcknowledged(done)
    let ended = checkpoint
    checkpoint = checkpoints.begin()
    ended.release()
  }

  /// Releases the acknowledgement of the turn, which has ended and has deferred nothing to the next.
  func turnEnded() {
    guard let ended = current else { return }
    current = nil
    tracksSeveral = false
    tracksBatch = false
    ofCall = nil
    if areWithheld, ended.waitsForCommit { withhold(ended) } else { ended.release() }
  }

  private func withhold(_ ack: Ack) {
    if refusesAll || ack.answersClient { ack.release(.failed(Self.dryRun)) } else { withheld.append(ack) }
  }

  /// Reports the events that were not acknowledged as failed to their senders.
  func releaseWithheld() {
    guard areWithheld else { return }
    refusesAll = true
    let left = withheld
    withheld = []
    for ack in left { ack.release(.failed(Self.dryRun)) }
  }
}

extension Executor {
  /// The acknowledgement of this turn's events, if their source needs one.
  package var ack: Ack? { acks.current }

  /// The acknowledgement that a sink holds for events taken in this turn and written later.
  @inline(__always)
  var turnAck: Ack { acks.ofTurn }

  /// Whether no input is acknowledged.
  var withholdsAcks: Bool {
    get { acks.areWithheld }
    set { acks.areWithheld = newValue }
  }

  /// Sets a checkpoint after everything so far: `done` is called once, on any thread, when all effects so far are
  /// acknowledged or have failed. Called between two turns, or at the start of a turn.
  func setCheckpoint(_ done: @escaping @Sendable (Ack.Outcome) -> Void) { acks.setCheckpoint(done) }

  /// Fails the effects of this turn.
  func failTurn(_ reason: String) { turnAck.fail(reason) }

  /// Adds the events of `acks` to this turn: all further effects of the turn, including those of work that it defers,
  /// belong to them. Then releases one hold of each. Called by the source of the events, or by a sink that held the
  /// events and now rejects them, at most once in a turn.
  package func track(_ acks: Ack...) { self.acks.track(acks) }

  package func track(_ acks: [Ack]) { self.acks.track(acks) }
}
