internal import DequeModule

extension Window {
  /// Count windows whose results are sent before they are full.
  ///
  /// Rows of such windows have no key by which one could replace another, so an earlier row is always retracted. Events
  /// are stored once for all overlapping windows, figures for each window.
  final class CountPaneStep: LateStep {
    private final class Open {
      /// The times of the window's first and last event.
      let start: Int64
      var end: Int64
      /// The number of events in the window.
      var events = 0
      var figures: Figures?
      /// The row that was sent and not retracted.
      var row: OwnedValue?
      var sentAt: Instant?
      /// When the next change is sent; distant: none is due before the window is full.
      var due = Instant.distantFuture

      init(_ start: Int64) { (self.start, end) = (start, start) }
    }

    let form: Form
    /// The windows, the earliest first.
    private var windows: Deque<Open> = []
    /// The events of the earliest window and all later ones; none with figures.
    private var items: Deque<OwnedValue> = []
    private var itemBytes = 0
    /// The number of events since a window last started, less than `step`; 0: the next event starts one.
    private var sinceStart = 0
    /// Fires when the earliest change must be sent.
    private var sending = Wake.none

    init(_ form: Form) {
      self.form = form
      super.init()
    }

    private var emission: Emission { form.emission }

    override var isFresh: Bool { windows.isEmpty && sinceStart == 0 }

    // MARK: Events

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      if windows.isEmpty, sinceStart > 0 {
        sinceStart = (sinceStart + 1) % form.step
        return .drop
      }
      let wall = run.executor.wallTime
      let new = sinceStart == 0 ? Open(wall) : nil
      if let figures = form.figures {
        if let refusal = figures.evaluate(frame) ?? addToFigures(new, figures, frame) {
          return refused(event, refusal, frame, run)
        }
        if let new { windows.append(new) }
      } else {
        if let new { windows.append(new) }
        let item = OwnedValue(form.countsOnly ? .null : event.value)
        items.append(item)
        itemBytes += item.byteCount
      }
      sinceStart = (sinceStart + 1) % form.step
      for window in windows {
        window.events += 1
        window.end = wall
        window.due = min(window.due, emission.due(now, sentAt: window.sentAt, isLate: false))
      }
      sendDue()
      return .keep
    }

    /// Counts an event in all windows, or in none.
    private func addToFigures(_ new: Open?, _ form: FiguresForm, _ frame: EventFrame) -> FiguresForm.Refusal? {
      for window in windows { if let refusal = window.figures?.refusal(frame) { return refusal } }
      if let new {
        let figures = Figures(form)
        if let refusal = figures.add(frame, at: 0) { return refusal }
        new.figures = figures
      }
      for window in windows { if let refusal = window.figures?.add(frame, at: 0) { return refusal } }
      return nil
    }

    private func countKept() {
      keptSize.set(
        keys: windows.reduce(0) { $0 &+ ($1.figures?.keys ?? 0) }, events: items.count,
        bytes: itemBytes &+ items.count &* MemoryLayout<OwnedValue>.stride
          &+ windows.reduce(0) {
            $0 &+ MemoryLayout<Int>.stride &* 12 &+ ($1.figures?.bytes ?? 0) &+ ($1.row?.byteCount ?? 0)
          })
    }

    // MARK: Sending

    /// Sends the windows that are full, and the changes that are due.
    private func sendDue() {
      if let first = windows.first, first.events == form.count { close(first) }
      for window in windows where window.due <= now && !isStopped { send(window, .early) }
      guard !isStopped else { return }
      countKept()
      let next = windows.lazy.map(\.due).min() ?? .distantFuture
      cancelWake(&sending)
      if next != .distantFuture { sending = wake(at: next) }
    }

    /// Sends the result of the earliest window and removes it.
    private func close(_ window: Open) {
      send(window, .onTime)
      guard !isStopped else { return }
      windows.removeFirst()
      guard form.figures == nil else { return }
      let gone = windows.isEmpty ? items.count : window.events - (windows.first?.events ?? 0)
      for item in items.prefix(gone) { itemBytes -= item.byteCount }
      items.removeFirst(gone)
    }

    private func send(_ window: Open, _ pane: Pane) {
      window.due = .distantFuture
      window.sentAt = now
      guard let value = row(content(window), form, from: window.start, to: window.end) else { return }
      let new = OwnedValue(value)
      let before = window.row
      window.row = new
      let arena = run.arena
      if let before {
        before.keep(in: arena)
        send(before.value, pane, .retracts)
      }
      new.keep(in: arena)
      send(new.value, pane, .adds)
    }

    private func content(_ window: Open) -> Content {
      if let figures = window.figures {
        let whole = Figures(figures.form)
        whole.merge(figures, Context(state: frame.evaluation))
        return Content(figures: whole)
      }
      let target = run.arena.elements(window.events)
      for (index, item) in items.suffix(window.events).enumerated() {
        item.keep(in: run.arena)
        target[index] = item.value
      }
      return Content(list: Value(kind: .list, pointer: target.baseAddress, length: target.count))
    }

    override func timeCame(_ token: Int) {
      sending = .none
      sendDue()
    }

    override func complete(_ run: FusedRun) -> Value? {
      cancelWake(&sending)
      while !isStopped, let window = windows.first {
        // With `update`, an unchanged result has already been sent.
        if emission.update == nil || window.due != .distantFuture || window.row == nil { send(window, .onTime) }
        if !isStopped { windows.removeFirst() }
      }
      return nil
    }

    override func stopped() {
      cancelWake(&sending)
      (windows, items, itemBytes) = ([], [], 0)
      keptSize.set(keys: 0, events: 0, bytes: 0)
    }

    // MARK: State

    override func save(_ state: inout StateWriter) {
      state.write(each: windows) { state, window in
        state.write(window.start)
        state.write(window.end)
        state.write(window.events)
        state.write(window.row)
        state.write(window.sentAt)
        state.write(window.due)
        window.figures?.save(&state)
      }
      state.write(each: items) { state, item in state.write(item) }
      state.write(sinceStart)
      state.write(sending)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      for _ in 0..<(try state.count()) {
        let window = Open(try state.read())
        window.end = try state.read()
        window.events = try state.read(in: 1...form.count)
        window.row = try state.read()
        window.sentAt = try state.read()
        window.due = try state.read()
        if let form = form.figures {
          let figures = Figures(form)
          try figures.restore(&state)
          window.figures = figures
        }
        if let last = windows.last, last.events <= window.events { throw StateFault("windows are not in order") }
        windows.append(window)
      }
      for _ in 0..<(try state.count()) {
        let item: OwnedValue = try state.read()
        items.append(item)
        itemBytes += item.byteCount
      }
      guard items.count == (form.figures == nil ? windows.first?.events ?? 0 : 0) else {
        throw StateFault("the number of events is wrong")
      }
      sinceStart = try state.read(in: 0...(form.step - 1))
      sending = try state.read()
      countKept()
    }
  }
}
