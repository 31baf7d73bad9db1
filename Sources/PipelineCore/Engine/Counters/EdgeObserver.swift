/// Watches an edge while the graph runs: sees each event that passes, and what becomes of it.
///
/// It is no subscriber: it keeps nothing running and changes nothing. While it is attached, batches are divided, so a
/// ``ParallelStage`` that sends over the edge leaves its work to the turns. Called in turns.
open class EdgeObserver: Downstream {
  /// A subscription begins, or one is there already when the observer is attached.
  open func began() {}
  /// An event passes. It is valid until the end of the turn.
  open override func receive(_ event: Event) {}
  /// What has become of the event that came last and has had no verdict yet: events that an event causes come, and are
  /// decided, before it is.
  open func decided(_ verdict: Verdict) {}
  /// A subscription was cancelled before its end.
  open func cancelled() {}
}

/// What becomes of an event at a step.
public enum Verdict: String, Sendable, CaseIterable {
  /// It went on, or was delivered to whoever writes.
  case passed
  /// The step keeps it, or has used it for what it makes.
  case kept
  /// Left out, as the step is there to do.
  case dropped
  /// A newer event took its place.
  case superseded
  /// Dropped because a condition, or another expression, failed.
  case undecided
  /// It went to the errors output.
  case rejected
  /// It ended the signal with an error.
  case failed
}

extension Execution {
  /// Shows `observer` all that passes the edge from now on. Call it in a turn.
  public func attach(_ observer: EdgeObserver, to edge: EdgeID) {
    meters.edge(edge).add(observer)
    if let entry = plan.edges[edge.number].entry { meters.edge(entry).watchedBy(1) }
  }

  /// Ends that. Call it in a turn.
  public func detach(_ observer: EdgeObserver, from edge: EdgeID) {
    guard meters.edge(edge).remove(observer) else { return }
    if let entry = plan.edges[edge.number].entry { meters.edge(entry).watchedBy(-1) }
  }
}
