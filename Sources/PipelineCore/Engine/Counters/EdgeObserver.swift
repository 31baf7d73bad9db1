/// Observes an edge while the graph runs: receives each event that passes, and its verdict.
///
/// An observer is no subscriber: it keeps no signal running and changes no result. While it is attached, events pass the edge
/// one by one, so a ``ParallelStage`` that sends over the edge leaves its work to the turns; while it is sated, and where it wants no event of
/// a block, events pass unseen. All methods are called in turns.
open class EdgeObserver: Downstream {
  /// Called when a subscription begins, and for each one that exists when the observer is attached.
  open func began() {}
  /// An event passes. It is valid until the end of the turn.
  open override func receive(_ event: Event) {}
  /// Receives the verdict on the newest event without one. Events caused by an event are received and decided before it.
  open func decided(_ verdict: Verdict) {}
  /// A newer event has replaced one that the downstream step had kept. Called at the edges into that step, before the
  /// verdict of the newer event; `event` is valid until the end of the call.
  open func superseded(_ event: Event) {}
  /// A subscription was cancelled before its end.
  open func cancelled() {}
  /// Whether the observer has seen enough for the moment: events may pass unseen. A few are shown nevertheless.
  open var isSated: Bool { false }
  /// Whether the observer wants to see this event. Called, in no order, for the events of a block that passes the edge as they are: if none is
  /// wanted, the block passes unseen, as a whole.
  open func wants(_ event: Event) -> Bool { true }
  /// Whether the observer has looked at this event, counts it, and needs neither it nor its verdict. Called, before ``receive(_:)`` of the same
  /// event, only where no other observer has the edge: such an event costs little more than an unobserved one.
  open func ignores(_ event: Event) -> Bool { false }
  /// Reports how many events have passed unseen since the last call.
  open func missed(_ events: Int) {}
}
