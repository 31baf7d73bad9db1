import Synchronization

/// Acknowledges events that came in together: those of one request, or of one stretch of a file.
///
/// The events are acknowledged when every holder has released the acknowledgement: the turn that they came in, and each
/// sink that has taken what the turn made of them and has not written it yet. An event that the pipeline made of a
/// rejection counts too if the errors output has a reader. An event that was dropped, or is a dead letter, has no
/// holder; neither has one that a step keeps for later (`throttle`, a window, an inner signal that waits).
///
/// `done` is called once, on the thread of the last release. A failure wins over success. A holder that goes away
/// without releasing fails the events, so lost events never count as written.
public final class Ack: Sendable {
  public enum Outcome: Sendable, Equatable {
    case acknowledged
    /// Some of the events were not written; the reason.
    case failed(String)
  }

  private struct State {
    /// The first holder is the turn.
    var holders = 1
    var outcome = Outcome.acknowledged
    var done: (@Sendable (Outcome) -> Void)?
    /// The acknowledgements that are released with this one.
    var members: [Ack] = []

    /// Keeps the first failure.
    mutating func note(_ outcome: Outcome) {
      if self.outcome == .acknowledged { self.outcome = outcome }
    }
  }
  private let state: Mutex<State>

  public init(_ done: @escaping @Sendable (Outcome) -> Void) {
    state = Mutex(State(done: done))
  }

  /// Acknowledges several others together, see ``include(_:)``.
  convenience init() { self.init { _ in } }

  deinit {
    let done = state.withLock { $0.done.take() }
    done?(.failed("it was given up"))
  }

  /// Adds a holder, which must call ``release(_:)`` once. Called by a holder, such as a sink during the turn.
  public func hold() { state.withLock { $0.holders += 1 } }

  /// Takes over one hold of `other` and releases it with this acknowledgement's outcome. Called by a holder. `other`
  /// must not include this acknowledgement, directly or through others: neither would ever be released.
  func include(_ other: Ack) { state.withLock { $0.members.append(other) } }

  /// Removes a holder.
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

  /// Fails the events. The holders still release.
  public func fail(_ reason: String) { state.withLock { $0.note(.failed(reason)) } }
}
