/// Observes an edge while the graph runs: receives each event that passes, and its verdict.
///
/// An observer is not a subscriber: it keeps no signal running and changes no result. While it is attached, events pass
/// the edge one by one, so a ``ParallelStage`` that sends over the edge runs in turns. While the observer is sated, and
/// for a block of which it wants no event, events pass unseen. All methods are called in turns.
open class EdgeObserver: Downstream {
  /// Called when a subscription begins, and for each one that exists when the observer is attached.
  open func began() {}
  /// An event passes. It is valid until the end of the turn.
  open override func receive(_ event: Event) {}
  /// Receives the verdict on the newest undecided event. Events that an event causes are received and decided earlier.
  open func decided(_ verdict: Verdict) {}
  /// A newer event has replaced one that the downstream step had kept. Called at the edges into that step, before the
  /// verdict of the newer event; `event` is valid until the end of the call.
  open func superseded(_ event: Event) {}
  /// A subscription was cancelled before its end.
  open func cancelled() {}
  /// Whether the observer has seen enough for the moment: events may pass unseen. A few are shown nevertheless.
  open var isSated: Bool { false }
  /// Whether the observer wants to see this event. Called in any order for the events of a block that passes the edge
  /// unchanged; if no event is wanted, the whole block passes unseen.
  open func wants(_ event: Event) -> Bool { true }
  /// Whether the observer has examined and counted this event and needs neither the event nor its verdict. Called
  /// before ``receive(_:)`` of the same event, and only on the edge's sole observer: such an event costs little more
  /// than an unobserved one.
  open func ignores(_ event: Event) -> Bool { false }
  /// Reports how many events have passed unseen since the last call.
  open func missed(_ events: Int) {}
}
