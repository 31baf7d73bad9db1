import Synchronization

/// Receives the outcome of a batch, or of opening, from a connector. The sink that waits for the outcome gets it: after
/// a reload that may be another sink than the one that delivered the batch.
public final class DeliveryAnswer: Sendable {
  private struct State {
    var outcomes: [DeliveryOutcome] = []
    var notify: (@Sendable () -> Void)?
  }
  private let state = Mutex(State())

  init() {}

  /// Reports an outcome, from any thread. Later outcomes are ignored after one for the whole batch.
  public func put(_ outcome: DeliveryOutcome) {
    let notify = state.withLock { state -> (@Sendable () -> Void)? in
      if case .passed(let more) = outcome, case .passed(let before)? = state.outcomes.last {
        state.outcomes[state.outcomes.count - 1] = .passed(before + more)
        return nil
      }
      state.outcomes.append(outcome)
      // One notification covers all outcomes that arrive before they are taken.
      return state.outcomes.count == 1 ? state.notify : nil
    }
    notify?()
  }

  /// Whether all outcomes so far have been handled.
  package var isFollowed: Bool { state.withLock(\.outcomes.isEmpty) }

  /// Calls `notify`, in place of an earlier closure, when outcomes arrive; at once if some have arrived and were not taken.
  func lead(_ notify: @escaping @Sendable () -> Void) {
    let haveCome = state.withLock { state in
      state.notify = notify
      return !state.outcomes.isEmpty
    }
    if haveCome { notify() }
  }

  /// Removes and returns the outcomes that have arrived.
  func take() -> [DeliveryOutcome] {
    state.withLock { state in
      defer { state.outcomes = [] }
      return state.outcomes
    }
  }
}
