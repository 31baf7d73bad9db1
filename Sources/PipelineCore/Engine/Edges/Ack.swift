import Synchronization

/// What becomes of the events that came in together: of one request, or one stretch of a file.
///
/// They are *settled* when everybody who holds them has let go: the turn that they came in, and each sink that
/// has taken what the turn made of them and has not written it yet. That includes what was made of a rejection, where
/// somebody reads the errors. An event that was dropped, or is a dead letter, holds nothing; neither does one that a step keeps for later (`throttle`, a window, an inner signal that waits).
///
/// `done` is called once, on whichever thread lets go last. Failures win over success. If somebody goes
/// away without letting go, they count as failed: an accident never counts as written.
public final class Ack: Sendable {
  public enum Outcome: Sendable, Equatable {
    case acknowledged
    /// Something of it was not written, and why.
    case failed(String)
  }

  private struct State {
    /// The turn holds it from the start.
    var holders = 1
    var outcome = Outcome.acknowledged
    var done: (@Sendable (Outcome) -> Void)?
    /// What is let go of with it.
    var members: [Ack] = []

    /// The first failure stays.
    mutating func note(_ outcome: Outcome) {
      if self.outcome == .acknowledged { self.outcome = outcome }
    }
  }
  private let state: Mutex<State>

  public init(_ done: @escaping @Sendable (Outcome) -> Void) {
    state = Mutex(State(done: done))
  }

  /// Of several others, see ``include(_:)``.
  convenience init() { self.init { _ in } }

  deinit {
    let done = state.withLock { $0.done.take() }
    done?(.failed("it was given up"))
  }

  /// One more holder, who will call ``release(_:)`` once. Called by a holder, such as a sink during the turn.
  public func hold() { state.withLock { $0.holders += 1 } }

  /// Takes over one hold of `other`, and lets go of it with its own outcome when it is done. Called by a holder, and not
  /// for what waits for this one, be it through others: the two would wait for each other.
  func include(_ other: Ack) { state.withLock { $0.members.append(other) } }

  /// Lets go.
  public func release(_ outcome: Outcome = .acknowledged) {
    let reported = state.withLock {
      state -> (done: @Sendable (Outcome) -> Void, outcome: Outcome, members: [Ack])? in
      state.note(outcome)
      state.holders -= 1
      guard state.holders == 0, let done = state.done.take() else { return nil }
      defer { state.members = [] }
      return (done, state.outcome, state.members)
    }
    guard let reported else { return }
    reported.done(reported.outcome)
    for member in reported.members { member.release(reported.outcome) }
  }

  /// It cannot succeed any more; its holders still let go.
  public func fail(_ reason: String) { state.withLock { $0.note(.failed(reason)) } }
}
