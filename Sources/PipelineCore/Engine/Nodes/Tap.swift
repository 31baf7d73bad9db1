/// An observer of a named signal from outside the plan.
public final class Tap {
  public enum Target: Sendable, Equatable {
    case signal(Int)
    case errors(ErrorsOwner)
  }
  private let target: Target
  private let downstream: Downstream
  private let isPassive: Bool
  private var subscription: (any Subscription)?
  /// The subscribed signal, and the key in a saved state.
  private var signal: SignalPlan?
  private var reference = ""

  /// `isPassive`: a signal that anything else refers to is only watched, through all its runs; the tap is then no
  /// subscriber and does not keep the signal running.
  public init(_ target: Target, _ downstream: Downstream, isPassive: Bool = false) {
    self.target = target
    self.downstream = downstream
    self.isPassive = isPassive
  }

  func disconnect() {
    subscription?.cancel()
    subscription = nil
  }

  func connect(_ execution: Execution, _ number: Int) {
    let kind: SignalPlan.Kind
    switch target {
    case .signal(let index):
      if isPassive, execution.watch(index, downstream) { return }
      kind = .named(index)
    case .errors(let owner): kind = .errors(owner)
    }
    let signal = SignalPlan(kind, step: StepID(0), type: .dyn, reference: "taps.\(number).signal")
    self.signal = signal
    reference = "taps.\(number)"
    if execution.restoration?.hasEnded(reference) == true {
      subscription = NoSubscription.make()
      return
    }
    subscription = execution.subscribe(signal, execution.topScope, to: downstream)
  }

  /// Writes the subscription, so that the tap is the same subscriber after a restart.
  func record(_ execution: Execution, _ state: inout StateWriter) {
    guard let subscription, let signal else { return }
    state.record(.reference(reference)) { $0.write(subscription.isClosed) }
    execution.record(subscription, of: signal, &state)
  }
}

/// Stands between subscribers and the signals that they subscribe.
protocol SubscriptionProbe: AnyObject {
  /// Subscribes `signal`, or a replacement, by ``Execution/make(_:_:to:)``.
  func subscribe(
    _ signal: SignalPlan, _ scope: Scope, to downstream: Downstream, in execution: Execution
  ) -> any Subscription
}
