import Synchronization

/// Where a connector reports the outcome of a batch, or of opening. The sink that waits for the outcome gets it: after a reload that may be
/// another sink than the one that delivered the batch.
public final class DeliveryAnswer: Sendable {
  private struct State {
    var outcomes: [DeliveryOutcome] = []
    var notify: (@Sendable () -> Void)?
  }
  private let state = Mutex(State())

  init() {}

  /// Reports an outcome, from any thread. What comes after an outcome for the whole batch is ignored.
  public func put(_ outcome: DeliveryOutcome) {
    let notify = state.withLock { state -> (@Sendable () -> Void)? in
      if case .passed(let more) = outcome, case .passed(let before)? = state.outcomes.last {
        state.outcomes[state.outcomes.count - 1] = .passed(before + more)
        return nil
      }
      state.outcomes.append(outcome)
      // One call is for all that come before it is followed.
      return state.outcomes.count == 1 ? state.notify : nil
    }
    notify?()
  }

  /// Whether all that has come has been followed.
  package var isFollowed: Bool { state.withLock(\.outcomes.isEmpty) }

  /// Calls `notify`, in place of an earlier closure, when outcomes come; at once if some have come and were not taken.
  func lead(_ notify: @escaping @Sendable () -> Void) {
    let haveCome = state.withLock { state in
      state.notify = notify
      return !state.outcomes.isEmpty
    }
    if haveCome { notify() }
  }

  /// The outcomes that have come and were not taken.
  func take() -> [DeliveryOutcome] {
    state.withLock { state in
      defer { state.outcomes = [] }
      return state.outcomes
    }
  }
}
