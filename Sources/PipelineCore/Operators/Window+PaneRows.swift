extension Window.PaneStep {
  /// A window, or a session.
  final class Open {
    /// For a session, the time of its first event.
    var start: Int64
    /// For a session, the time of its last event.
    var end: Int64
    /// The time at which the window closes.
    var closing: Int64
    /// The time of day at `start`, less `start`; 0 by event time. Fixed when it opens, so that all its rows have one `start`.
    let wall: Int64
    /// Its events in the order of their times, equal ones in that of arrival.
    var items: [(at: Int64, event: OwnedValue)] = []
    var figures: Figures?
    /// The rows sent for this window and not retracted: several, where sessions have been merged.
    var rows: [Row] = []
    var isClosed = false
    /// When its change is sent; distant: no change is to be sent before the window closes.
    var due = Instant.distantFuture
    var sentAt: Instant?
    /// The amounts of this window in the step's counters.
    var counted = (keys: 0, events: 0, bytes: 0)

    init(from start: Int64, to end: Int64, closing: Int64, wall: Int64) {
      (self.start, self.end, self.closing, self.wall) = (start, end, closing, wall)
    }

    var count: Int { figures?.events ?? items.count }
    var itemBytes = 0
    var size: (keys: Int, events: Int, bytes: Int) {
      (
        figures?.keys ?? 0, count,
        MemoryLayout<Int>.stride * 16 + itemBytes + (figures?.bytes ?? 0)
          + rows.reduce(0) { $0 + $1.value.byteCount }
      )
    }
  }

  /// A row that was sent.
  struct Row {
    /// The `start` that it had: rows of one window replace each other by it.
    var start: Int64
    /// Stored only where it may have to be retracted.
    var value = OwnedValue()
  }

  /// The time at which a session closes.
  func endOfSession(from start: Int64, to end: Int64) -> Int64 {
    let closing = end &+ form.gap
    return form.maxLength.map { min(closing, start &+ $0.nanoseconds) } ?? closing
  }

  /// The items of two windows in the order of their times.
  static func merged(
    _ one: [(at: Int64, event: OwnedValue)], _ other: [(at: Int64, event: OwnedValue)]
  ) -> [(at: Int64, event: OwnedValue)] {
    var all = one
    for item in other { all.insert(item, at: all.firstIndex { $0.at > item.at } ?? all.count) }
    return all
  }

  /// What is kept of an event; nil with figures. All windows that it belongs to share it.
  func makeItem(_ event: Event) -> OwnedValue? {
    form.figures == nil ? OwnedValue(form.countsOnly ? .null : event.value) : nil
  }

  func content(_ pane: Open) -> Window.Content {
    if let figures = pane.figures {
      let whole = Figures(figures.form)
      whole.merge(figures, Context(state: frame.evaluation))
      return Window.Content(figures: whole)
    }
    let target = run.arena.elements(pane.items.count)
    for (index, item) in pane.items.enumerated() { target[index] = item.event.value }
    return Window.Content(list: Value(kind: .list, pointer: target.baseAddress, length: target.count))
  }
}
