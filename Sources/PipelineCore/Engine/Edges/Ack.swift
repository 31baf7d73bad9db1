import Synchronization

/// Tracks the outcome of events that were received together: those of one request, or those that a turn took from a
/// file.
///
/// The events are *acknowledged* when every holder has released: the turn in which they were received, each sink that
/// has taken resulting events and not written them yet, each request that an inner signal has sent for them. Events of
/// an errors output with a reader count as results. A dropped event or a dead letter holds nothing; neither does an
/// event that a step keeps (`throttle`, a window): it is part of the step's state.
///
/// `done` is called once, on the thread that releases last. A failure overrides success. If a holder goes away without
/// releasing, the events count as failed, never as written.
public final class Ack: Sendable {
  /// The outcome of the events.
  public enum Outcome: Sendable, Equatable {
    case acknowledged
    /// An effect of the events was not written, with the reason.
    case failed(String)
  }

  /// The reason why the outcome is tracked.
  enum Purpose: Sendable {
    /// A sender that is notified of a failure and sends the events again.
    case request
    /// The position of a source.
    case piece
    /// A row of the outbox, which is delivered again after a failure.
    case row
    /// All effects since the last checkpoint that no other acknowledgement tracks.
    case checkpoint
    /// Combines several other acknowledgements.
    case several
  }
  let purpose: Purpose
  /// The client that waits for the outcome, as one of an HTTP server does: it must not wait for long.
  private let client: (any ReplyTarget)?

  private struct State {
    /// The turn is a holder from the start.
    var holders = 1
    var outcome = Outcome.acknowledged
    var done: (@Sendable (Outcome) -> Void)?
    /// The acknowledgements that are released with this one.
    var members: [Ack] = []
    /// The checkpoint that waits for this acknowledgement too.
    var checkpoint: Ack?
    /// The number of holders that the next execution releases; negative: the members have been notified of that.
    var left = 0

    /// The members to notify that only the next execution decides the outcome; nil: not yet, or they have been
    /// notified.
    mutating func takeHandover() -> [Ack]? {
      guard left > 0, holders <= left, holders > 0 else { return nil }
      left = .min
      return members
    }

    /// Records an outcome; the first failure stays.
    mutating func note(_ outcome: Outcome) {
      if self.outcome == .acknowledged { self.outcome = outcome }
    }
  }
  private let state: Mutex<State>

  /// The acknowledgement of a request. `done` notifies the sender, which sends the events again if they have failed.
  package convenience init(_ done: @escaping @Sendable (Outcome) -> Void) { self.init(.request, done) }

  /// Like `init(_:)`, for a client that waits for an answer, which `answer` derives from the outcome. The client is
  /// notified if the next execution of the pipeline answers (``handOver()``).
  package static func ofClient(
    _ client: any ReplyTarget, _ answer: @escaping @Sendable (Outcome) -> ServerAnswer = ServerAnswer.after
  ) -> Ack {
    Ack(.request, client: client) { client.reply(answer($0)) }
  }

  private init(_ purpose: Purpose, client: (any ReplyTarget)?, _ done: (@Sendable (Outcome) -> Void)?) {
    self.purpose = purpose
    self.client = client
    state = Mutex(State(done: done))
  }

  convenience init(_ purpose: Purpose, _ done: @escaping @Sendable (Outcome) -> Void) {
    self.init(purpose, client: nil, done)
  }

  /// An acknowledgement that combines several others; see ``include(_:)``.
  convenience init() { self.init(.several, client: nil, nil) }

  deinit {
    let left = state.withLock { state -> State? in
      guard state.holders > 0 else { return nil }
      state.note(.failed("it was given up"))
      return state
    }
    if let left { report(left) }
  }

  /// Whether all senders are notified of a failure and send the events again: undelivered events are then neither saved
  /// nor dead letters.
  package var notifiesSender: Bool {
    switch purpose {
    case .request, .row: true
    case .piece, .checkpoint: false
    case .several: state.withLock(\.members).allSatisfy(\.notifiesSender)
    }
  }

  /// Whether a sender waits that must not be notified before the effects of its events are on the disk.
  var waitsForCommit: Bool {
    switch purpose {
    case .request: true
    case .piece, .checkpoint, .row: false
    case .several: state.withLock(\.members).contains(where: \.waitsForCommit)
    }
  }

  /// Whether a client waits for an answer to some of the events.
  var answersClient: Bool {
    purpose == .several ? state.withLock { $0.members.contains(where: \.answersClient) } : client != nil
  }

  /// Adds a holder, which will call ``release(_:)`` once. Called by a holder, such as a sink during the turn.
  package func hold() { state.withLock { $0.holders += 1 } }

  /// Takes over one hold of `other`, and releases it with its own outcome when it is done. Called by a holder. `other`
  /// must not wait for this acknowledgement, directly or through others: the two would wait for each other.
  func include(_ other: Ack) { state.withLock { $0.members.append(other) } }

  /// Makes a checkpoint wait for this acknowledgement, unless one does already. Called in a turn that holds both.
  func join(_ checkpoint: Ack) {
    guard purpose == .request || purpose == .piece else { return }
    let isNew = state.withLock { state in
      guard state.checkpoint == nil else { return false }
      state.checkpoint = checkpoint
      return true
    }
    if isNew { checkpoint.hold() }
  }

  /// Ends one hold. Ending more holds than there are is a programming error and traps.
  package func release(_ outcome: Outcome = .acknowledged) {
    let (ended, handover) = state.withLock { state -> (State?, [Ack]?) in
      precondition(state.holders > 0, "an acknowledgement was released more often than it was held")
      state.note(outcome)
      state.holders -= 1
      guard state.holders == 0 else { return (nil, state.takeHandover()) }
      let ended = state
      state.done = nil
      state.members = []
      state.checkpoint = nil
      return (ended, nil)
    }
    if let ended { report(ended) } else if let handover { announce(to: handover) }
  }

  /// Notes that the next execution releases one of the holds, because it takes over the events of that holder. Called
  /// once by the holder.
  func handOver() {
    let handover = state.withLock { state -> [Ack]? in
      guard state.left >= 0 else { return nil }
      state.left += 1
      return state.takeHandover()
    }
    if let handover { announce(to: handover) }
  }

  private func announce(to members: [Ack]) {
    client?.handOver()
    for member in members { member.handOver() }
  }

  private func report(_ ended: State) {
    ended.done?(ended.outcome)
    for member in ended.members { member.release(ended.outcome) }
    // Events that are sent again are no longer part of any state.
    ended.checkpoint?.release(purpose == .request ? .acknowledged : ended.outcome)
  }

  /// Marks the acknowledgement as failed; its holders still release it.
  package func fail(_ reason: String) { state.withLock { $0.note(.failed(reason)) } }
}
