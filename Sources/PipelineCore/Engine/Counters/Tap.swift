/// An observer of a named signal or of an errors output, attached from the launch on.
///
/// A tap observes the edge of the signal. If nothing in the plan runs that signal, the tap also subscribes it, and
/// observes the edge of that subscription.
package final class Tap {
  /// The observed signal.
  package enum Target: Sendable, Equatable {
    case signal(Int)
    case errors(ErrorsOwner)
  }
  private let target: Target
  private let observer: EdgeObserver
  private let isPassive: Bool
  /// Subscribes and ignores all events.
  private let reader = Downstream()
  private var edge: UnsafeMutablePointer<EdgeCounters>?
  private var subscription: (any Subscription)?
  /// The subscribed signal, and the key in a saved state.
  private var signal: SignalPlan?
  private var reference = ""

  /// - Parameter isPassive: A signal that has a reader is only observed, through all of its runs: the tap does not
  ///   subscribe it and does not keep it running.
  package init(_ target: Target, _ observer: EdgeObserver, isPassive: Bool = false) {
    self.target = target
    self.observer = observer
    self.isPassive = isPassive
  }

  deinit {
    edge?.free()
    edge?.deallocate()
  }

  func disconnect() {
    subscription?.cancel()
    subscription = nil
  }

  func connect(_ execution: Execution, _ number: Int) {
    let origin: SignalPlan.Origin
    switch target {
    case .signal(let index):
      let named = execution.plan.named[index]
      if isPassive, !named.isCold, named.references > 0 {
        execution.attach(observer, to: named.body.edge)
        return
      }
      origin = .named(index)
    case .errors(let owner): origin = .errors(owner)
    }
    let signal = SignalPlan(origin, step: StepID(0), type: .dyn, reference: "taps.\(number).signal")
    self.signal = signal
    reference = "taps.\(number)"
    if execution.restoration?.hasEnded(reference) == true {
      subscription = NoSubscription.make()
      return
    }
    let edge = UnsafeMutablePointer<EdgeCounters>.allocate(capacity: 1)
    edge.initialize(to: EdgeCounters(execution.meters, to: -1))
    edge.add(observer)
    self.edge = edge
    subscription = execution.subscribe(signal, execution.topScope, to: Edge(edge, to: reader))
  }

  /// Writes the subscription, so that the tap is the same subscriber after a restart.
  func record(_ execution: Execution, _ state: inout StateWriter) {
    guard let subscription, let signal else { return }
    state.record(.reference(reference)) { $0.write(subscription.isClosed) }
    execution.record(subscription, of: signal, &state)
  }
}
