extension Execution {
  /// Attaches an observer to an edge: it is notified of the events that pass later. Call it in a turn.
  package func attach(_ observer: EdgeObserver, to edge: EdgeID) {
    if let entry = plan.edges[edge.number].entry { meters.edge(entry).renew() }
    meters.edge(edge).add(observer)
    meters.watched(edge, 1)
    if let entry = plan.edges[edge.number].entry { meters.edge(entry).watchedBy(1) }
  }

  /// Ends the notifications; does nothing if `observer` is not attached to the edge. Call it in a turn.
  package func detach(_ observer: EdgeObserver, from edge: EdgeID) {
    if let entry = plan.edges[edge.number].entry { meters.edge(entry).renew() }
    guard meters.edge(edge).remove(observer) else { return }
    meters.watched(edge, -1)
    if let entry = plan.edges[edge.number].entry { meters.edge(entry).watchedBy(-1) }
  }

  /// Records stopped events from now on. Call it before the launch, or in a turn.
  package func keep(in events: StoppedEvents) { meters.stoppedEvents = events }
}
