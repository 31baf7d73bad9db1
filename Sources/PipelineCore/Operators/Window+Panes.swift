extension Window {
  /// Windows whose results are sent before they close, or corrected afterwards.
  ///
  /// Each window has a content of its own, which is stored until it can no longer change: `allowedLateness` after it
  /// has closed. `panes` are in the order of their ends. By event time all times are nanoseconds since 1970, otherwise
  /// those of the pipeline's clock.
  final class PaneStep: LateStep {
    let form: Form
    private let byClock: Bool
    private var panes: [Open] = []
    /// The number of events kept, or of windows with figures.
    private var held = 0
    private var ownClock: EventClock?
    private var serial: UInt64 = 0
    /// The lower bound of the watermark since the window was idle.
    private var lowerBound = Int64.min
    /// The start of the first window by the clock.
    private var origin: Int64 = 0
    /// Fires when the earliest window closes.
    private var closing = Wake.none
    private var closingAt = Int64.max
    /// Fires when the watermark has passed the earliest closed window by `allowedLateness`.
    private var forgetting = Wake.none
    private var forgettingAt = Int64.max
    /// Fires when the earliest change must be sent.
    private var sending = Wake.none
    private var sendingAt = Instant.distantFuture
    /// No change must be sent before this time.
    private var nextDue = Instant.distantFuture
    private var last = Instant(nanoseconds: 0)
    /// Whether the input has completed, so that no window without events follows.
    private var isEnding = false
    /// Set only with `idle`, while there are open windows.
    private var idling = Wake.none

    private static let closingToken = 0
    private static let sendingToken = 1
    private static let idleToken = 2

    init(_ form: Form, byClock: Bool) {
      self.form = form
      self.byClock = byClock
      super.init()
    }

    private var emission: Emission { form.emission }
    /// Whether rows must be stored, because they may have to be retracted.
    private var keepsRows: Bool { emission.pairs || form.gap > 0 || form.takesBack }
    private var watermark: Int64 { byClock ? now.nanoseconds : max(lowerBound, ownClock?.watermark ?? .min) }

    override var isFresh: Bool { panes.isEmpty && (byClock || lowerBound <= (ownClock?.watermark ?? .min)) }

    override func attached() {
      if byClock {
        origin = (run.nodeContext.scope.time?.origin ?? now).nanoseconds
      } else {
        let clock = ownClock ?? makeClock()
        ownClock = clock
        serial = clock.nextSerial()
      }
      lowerBound = .min
    }

    override func started() { if form.sendsEmpty { openNext(boundary(after: now.nanoseconds)) } }

    // MARK: Events

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      // The timer of the current instant may not have fired yet.
      if byClock, closingAt <= now.nanoseconds {
        close(upTo: now.nanoseconds)
        if isStopped { return .drop }
        _ = frame.load(event)
      }
      let time: Int64
      if byClock {
        time = now.nanoseconds
      } else if let program = form.time {
        let value = program.evaluate(frame)
        if value.isError { return failed(event, value, program, frame, run) }
        guard let own = EventTime.nanoseconds(value) else {
          return refused(
            event, .unexpectedValue,
            value.is(.timestamp)
              ? "the time of an event is not between 1824 and 2116"
              : "'time' of window must be a timestamp, not \(value.kindName)", run)
        }
        time = own
      } else {
        time = run.executor.eventTime
        guard time != EventTime.unknown else {
          return refused(event, .unexpectedValue, "the event has no event time: no source or signal gave it one", run)
        }
      }
      if let figures = form.figures, let refusal = figures.evaluate(frame) {
        return refused(event, refusal, frame, run)
      }
      var touched: [Open] = []
      if let verdict = form.gap > 0
        ? addToSession(event, time, frame, run, &touched) : addToWindows(event, time, frame, run, &touched)
      {
        // An event between two windows is dropped, and moves the watermark all the same.
        if case .drop = verdict, form.time != nil { ownClock?.advance(to: time &- form.lateness) }
        return verdict
      }
      last = now
      if let idle = form.idle, !idling.isSet { idling = wake(at: last + idle, Self.idleToken) }
      for pane in touched { expect(pane) }
      for pane in touched where pane.due <= now && !isStopped { send(pane, pane.isClosed ? .late : .early) }
      for pane in touched { nextDue = min(nextDue, pane.due) }
      if !isStopped { ask() }
      if form.time != nil, !isStopped { ownClock?.advance(to: time &- form.lateness) }
      return .keep
    }

    override func advance(to time: Int64) {
      if form.time == nil, !byClock { ownClock?.advance(to: time) }
    }

    private func tooLate(_ event: Event, _ run: FusedRun) -> StepVerdict {
      refused(event, .eventTooLate, "the event arrived after its window had closed", run)
    }

    private func tooMany(_ event: Event, _ run: FusedRun) -> StepVerdict {
      run.rejectRow(event, .limitReached, "window has \(Printable.count(held, "event")), its limit `max`")
      return .gone
    }

    /// The first end of a window after `time`.
    private func boundary(after time: Int64) -> Int64 {
      guard byClock else { return form.grid.end(after: time) }
      return origin &+ (Calendar.floor(time &- origin, form.every).quotient &+ 1) &* form.every
    }

    private func addToWindows(
      _ event: Event, _ time: Int64, _ frame: EventFrame, _ run: FusedRun, _ touched: inout [Open]
    ) -> StepVerdict? {
      let watermark = watermark
      var ends: [Int64] = []
      var end = boundary(after: time)
      // Between windows that are shorter than their distance, an event belongs to none.
      if form.grid.start(ofWindowTo: end) > time { return .drop }
      while form.grid.start(ofWindowTo: end) <= time {
        if byClock || watermark == .min || end &+ form.allowedLateness > watermark { ends.append(end) }
        end = form.grid.end(behindWindowTo: end)
      }
      if ends.isEmpty { return tooLate(event, run) }
      let takesBack = form.takesBack && event.retracts
      var new: [Open] = []
      for end in ends {
        if let pane = pane(endingAt: end) {
          touched.append(pane)
        } else if takesBack {
          // The window never existed: the row that is retracted was late, too.
          return tooLate(event, run)
        } else {
          new.append(
            Open(
              from: form.grid.start(ofWindowTo: end), to: end, closing: end,
              wall: byClock ? run.executor.wallTime &- now.nanoseconds : 0))
        }
      }
      if !takesBack {
        guard held + (form.figures == nil ? ends.count : new.count) <= form.bound else { return tooMany(event, run) }
        if ends.count > 1, form.figures != nil {
          for pane in touched {
            if let refusal = pane.figures?.refusal(frame) { return refused(event, refusal, frame, run) }
          }
        }
      }
      let item = makeItem(event)
      let all = new + touched
      let last = all.max { $0.closing < $1.closing }
      for pane in all {
        if let refusal = add(item, to: pane, time, frame, takesBack, owns: pane === last) {
          return refused(event, refusal, frame, run)
        }
      }
      for pane in new {
        pane.isClosed = !byClock && pane.closing <= watermark
        insert(pane)
      }
      touched += new
      touched.sort { $0.closing < $1.closing }
      for pane in touched { count(pane) }
      return nil
    }

    private func addToSession(
      _ event: Event, _ time: Int64, _ frame: EventFrame, _ run: FusedRun, _ touched: inout [Open]
    ) -> StepVerdict? {
      let watermark = watermark
      let near = panes.indices.filter {
        byClock
          ? !panes[$0].isClosed : panes[$0].start &- time < form.gap && time &- panes[$0].end < form.gap
      }
      if near.isEmpty, !byClock, watermark > .min, time &+ form.gap &+ form.allowedLateness <= watermark {
        return tooLate(event, run)
      }
      let pane =
        near.first.map { panes[$0] }
        ?? Open(
          from: time, to: time, closing: endOfSession(from: time, to: time),
          wall: byClock ? run.executor.wallTime &- now.nanoseconds : 0)
      guard held + (form.figures == nil || near.isEmpty ? 1 : 0) <= form.bound else { return tooMany(event, run) }
      if let refusal = add(makeItem(event), to: pane, time, frame, false, owns: true) {
        return refused(event, refusal, frame, run)
      }
      // The event may have bridged the pause between two sessions.
      for index in near.dropFirst().reversed() {
        let other = panes.remove(at: index)
        if let figures = other.figures { pane.figures?.merge(figures, Context(state: frame.evaluation)) }
        pane.items = Self.merged(pane.items, other.items)
        pane.itemBytes += other.itemBytes
        pane.rows += other.rows
        pane.sentAt = [pane.sentAt, other.sentAt].compactMap { $0 }.max()
        pane.end = max(pane.end, other.end)
        uncount(other)
        if form.figures != nil { held -= 1 }
      }
      pane.start = min(pane.start, time)
      pane.end = max(pane.end, time)
      pane.closing = endOfSession(from: pane.start, to: pane.end)
      pane.isClosed = !byClock && watermark > .min && pane.closing <= watermark
      if near.isEmpty { insert(pane) }
      count(pane)
      touched.append(pane)
      return nil
    }

    /// Adds an event to a window, or subtracts it.
    ///
    /// - Parameter owns: Whether the item's bytes count for this window; true for the one that closes last.
    private func add(
      _ item: OwnedValue?, to pane: Open, _ time: Int64, _ frame: EventFrame, _ takesBack: Bool, owns: Bool
    ) -> FiguresForm.Refusal? {
      guard let form = form.figures else {
        guard let item else { return nil }
        let at =
          pane.items.last.map { $0.at <= time } ?? true
          ? pane.items.count : pane.items.firstIndex { $0.at > time } ?? pane.items.count
        pane.items.insert((time, item), at: at)
        pane.itemBytes += (owns ? item.byteCount : 0) + MemoryLayout<(Int64, OwnedValue)>.stride
        held += 1
        return nil
      }
      if let figures = pane.figures { return takesBack ? figures.takeBack(frame) : figures.add(frame, at: time) }
      let figures = Figures(form)
      if let refusal = figures.add(frame, at: time) { return refusal }
      pane.figures = figures
      held += 1
      return nil
    }

    private func pane(endingAt end: Int64) -> Open? {
      let at = position(of: end)
      return at < panes.count && panes[at].closing == end ? panes[at] : nil
    }

    /// The index of the first pane that does not close before this.
    private func position(of closing: Int64) -> Int {
      var (low, high) = (0, panes.count)
      while low < high {
        let middle = (low + high) / 2
        if panes[middle].closing < closing { low = middle + 1 } else { high = middle }
      }
      return low
    }

    /// With `empty`: opens a window before its first event.
    private func openNext(_ end: Int64) {
      if pane(endingAt: end) == nil {
        let pane = Open(
          from: form.grid.start(ofWindowTo: end), to: end, closing: end, wall: run.executor.wallTime &- now.nanoseconds)
        if let form = form.figures {
          pane.figures = Figures(form)
          held += 1
        }
        insert(pane)
        count(pane)
      }
      ask()
    }

    private func insert(_ pane: Open) { panes.insert(pane, at: position(of: pane.closing)) }

    private func count(_ pane: Open) {
      let size = pane.size
      keptSize.add(
        keys: size.keys - pane.counted.keys, events: size.events - pane.counted.events,
        bytes: size.bytes - pane.counted.bytes)
      pane.counted = size
    }

    private func uncount(_ pane: Open) {
      keptSize.add(keys: -pane.counted.keys, events: -pane.counted.events, bytes: -pane.counted.bytes)
      pane.counted = (0, 0, 0)
    }

    /// Forgets a pane, which has been removed.
    private func forget(_ pane: Open) {
      held -= form.figures == nil ? pane.items.count : 1
      uncount(pane)
    }

    // MARK: Sending

    /// The pane has changed.
    private func expect(_ pane: Open) {
      pane.due = min(pane.due, emission.due(now, sentAt: pane.sentAt, isLate: pane.isClosed))
    }

    /// Sends the result of a window as it is now.
    private func send(_ pane: Open, _ which: Pane) {
      pane.due = .distantFuture
      pane.sentAt = now
      let before = pane.rows
      var row: OwnedValue?
      if pane.count > 0 || form.sendsEmpty {
        guard
          let value = self.row(content(pane), form, from: pane.start &+ pane.wall, to: pane.end &+ pane.wall)
        else { return }
        row = OwnedValue(value)
      }
      pane.rows = row.map { [Row(start: pane.start, value: keepsRows ? $0 : OwnedValue())] } ?? []
      if pane.counted.bytes > 0 { count(pane) }
      let replaces = row != nil && !emission.pairs && before.contains { $0.start == pane.start }
      let (start, arena) = (pane.start, run.arena)
      let sendAll = { [self] in
        for old in before where row == nil || !replaces || old.start != start {
          old.value.keep(in: arena)
          send(old.value.value, which, .retracts)
        }
        if let row {
          row.keep(in: arena)
          send(row.value, which, replaces ? .replaces : .adds)
        }
      }
      if byClock || form.time != nil {
        sendAll()
      } else {
        run.executor.withEventTime(pane.closing &- 1, sendAll)
      }
    }

    /// Sends the changes that are due.
    private func sendDue() {
      while !isStopped, let pane = panes.first(where: { $0.due <= now }) {
        send(pane, pane.isClosed ? .late : .early)
      }
      nextDue = panes.lazy.map(\.due).min() ?? .distantFuture
      if !isStopped { ask() }
    }

    // MARK: Time

    /// The index of the first window that is open; as many as there are if all are closed.
    private var firstOpen: Int {
      var (low, high) = (0, panes.count)
      while low < high {
        let middle = (low + high) / 2
        if panes[middle].isClosed { low = middle + 1 } else { high = middle }
      }
      return low
    }

    /// The first window that is open.
    private var nextOpen: Open? {
      let index = firstOpen
      return index < panes.count ? panes[index] : nil
    }

    /// Schedules the next wake-ups.
    private func ask() {
      guard !isStopped else { return }
      if nextDue != sendingAt {
        cancelWake(&sending)
        if nextDue != .distantFuture { sending = wake(at: nextDue, Self.sendingToken) }
        sendingAt = nextDue
      }
      var close = nextOpen?.closing ?? .max
      guard let clock = ownClock, !byClock else {
        if close != closingAt {
          cancelWake(&closing)
          if close != .max { closing = wake(at: Instant(nanoseconds: close), Self.closingToken) }
          closingAt = close
        }
        return
      }
      if close == .max, lowerBound > clock.watermark { close = lowerBound }
      if close != closingAt {
        clock.cancel(&closing)
        if close != .max { closing = clock.wake(at: close, serial, self, Self.closingToken) }
        closingAt = close
      }
      let forget = panes.first.flatMap { $0.isClosed ? $0.closing &+ form.allowedLateness : nil } ?? .max
      if forget != forgettingAt {
        clock.cancel(&forgetting)
        if forget != .max { forgetting = clock.wake(at: forget, serial, self, EventClock.patientToken) }
        forgettingAt = forget
      }
    }

    override func timeCame(_ token: Int) {
      switch token {
      case EventClock.patientToken:
        forgetting = .none
        forgettingAt = .max
        forgetOld()
      case Self.closingToken:
        closing = .none
        closeDue()
      case Self.sendingToken:
        sending = .none
        sendingAt = .distantFuture
        sendDue()
      default:
        idling = .none
        if let idle = form.idle, last + idle > now {
          idling = wake(at: last + idle, Self.idleToken)
        } else {
          closeAll()
        }
      }
    }

    override func timeSkipped(_ token: Int, _ late: Lateness) {
      guard byClock, token == Self.closingToken else { return timeCame(token) }
      closing = .none
      closingAt = .max
      while let first = panes.first, first.closing <= late.restored.nanoseconds {
        countSkipped()
        forget(panes.removeFirst())
      }
      if form.sendsEmpty { openNext(boundary(after: late.restored.nanoseconds)) } else { ask() }
    }

    /// Closes windows that end at `closingAt`. Later windows must wait: the windows of all groups are sent in the order of their ends.
    private func closeDue() {
      let time = closingAt
      closingAt = .max
      close(upTo: time)
    }

    private func close(upTo time: Int64) {
      while !isStopped, let pane = nextOpen, pane.closing <= time {
        let index = firstOpen
        pane.isClosed = true
        if form.allowedLateness == 0 { forget(panes.remove(at: index)) }
        if form.sendsEmpty, !isEnding { openNext(pane.closing &+ form.every) }
        // With `update`, an unchanged result has already been sent.
        if emission.update == nil || pane.due != .distantFuture || pane.rows.isEmpty {
          if pane.count > 0 || !pane.rows.isEmpty || form.sendsEmpty && !isEnding { send(pane, .onTime) }
        }
      }
      forgetOld()
    }

    /// Forgets the windows that nothing can change any more.
    private func forgetOld() {
      guard !isStopped else { return }
      let watermark = watermark
      while let first = panes.first, first.isClosed, first.closing &+ form.allowedLateness <= watermark {
        if first.due != .distantFuture { send(first, .late) }
        if isStopped { return }
        if panes.first === first { forget(panes.removeFirst()) }
      }
      if firstOpen == panes.count { cancelWake(&idling) }
      ask()
    }

    /// Closes all windows, because no events are expected for now, or none at all.
    private func closeAll() {
      guard let newest = panes.last, !newest.isClosed else { return }
      if !byClock { lowerBound = max(lowerBound, newest.closing) }
      close(upTo: newest.closing)
    }

    override var nextOutput: Due? {
      if form.sendsEmpty, panes.allSatisfy({ $0.count == 0 }) { return nil }
      if byClock { return closingAt == .max ? nil : due(closing) }
      guard let next = nextOpen else { return nil }
      return Due(Instant(nanoseconds: next.closing), serial)
    }

    override func sendNextOutput() {
      guard let next = nextOpen else { return }
      close(upTo: next.closing)
    }

    override func complete(_ run: FusedRun) -> Value? {
      while !isStopped, let pane = panes.first(where: { $0.isClosed && $0.due != .distantFuture }) { send(pane, .late) }
      isEnding = true
      closeAll()
      return nil
    }

    override func stopped() {
      cancelWake(&sending)
      cancelWake(&idling)
      if byClock { cancelWake(&closing) } else { ownClock?.cancel(&closing) }
      ownClock?.cancel(&forgetting)
      for pane in panes { forget(pane) }
      panes = []
    }

    // MARK: State

    private func write(_ time: Int64, _ state: inout StateWriter) {
      if byClock { state.write(Instant(nanoseconds: time)) } else { state.write(time) }
    }

    private func readTime(_ state: inout StateReader) throws(StateFault) -> Int64 {
      if byClock { return try state.read(Instant.self).nanoseconds }
      let time: Int64 = try state.read()
      guard EventTime.range.contains(time) || form.gap > 0 else { throw StateFault("a time is out of range") }
      return time
    }

    override func save(_ state: inout StateWriter) {
      state.write(each: panes) { state, pane in
        write(pane.start, &state)
        write(pane.end, &state)
        write(pane.closing, &state)
        state.write(pane.start &+ pane.wall)
        state.write(pane.isClosed)
        state.write(pane.due)
        state.write(pane.sentAt)
        state.write(each: pane.rows) { state, row in
          write(row.start, &state)
          state.write(row.value)
        }
        state.write(each: pane.items) { state, item in
          write(item.at, &state)
          state.write(item.event)
        }
        pane.figures?.save(&state)
      }
      if byClock {
        write(origin, &state)
        state.write(closing)
      } else {
        saveClock(ownClock, &state)
        state.write(serial)
        state.write(lowerBound)
      }
      state.write(last)
      state.write(idling)
      state.write(sending)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      for _ in 0..<(try state.count()) {
        let (start, end, closing) = (try readTime(&state), try readTime(&state), try readTime(&state))
        let pane = Open(from: start, to: end, closing: closing, wall: try state.read(Int64.self) &- start)
        guard panes.last.map({ $0.closing <= closing }) ?? true else { throw StateFault("windows are not in order") }
        pane.isClosed = try state.read()
        pane.due = try state.read()
        pane.sentAt = try state.read()
        for _ in 0..<(try state.count()) {
          pane.rows.append(Row(start: try readTime(&state), value: try state.read()))
        }
        for _ in 0..<(try state.count()) {
          let item = (at: try readTime(&state), event: try state.read(OwnedValue.self))
          pane.items.append(item)
          pane.itemBytes += item.event.byteCount + MemoryLayout<(Int64, OwnedValue)>.stride
        }
        if let form = form.figures {
          let figures = Figures(form)
          try figures.restore(&state)
          pane.figures = figures
        }
        held += form.figures == nil ? pane.items.count : 1
        panes.append(pane)
        count(pane)
      }
      if byClock {
        origin = try readTime(&state)
        closing = try state.read()
        closingAt = panes.first?.closing ?? .max
      } else {
        let (watermark, serial): (Int64, UInt64) = (try state.read(), try state.read())
        self.serial = try state.read()
        guard serial < 1 << 62, self.serial < 1 << 62 else { throw StateFault("a number is too large") }
        ownClock?.restore(watermark: watermark, serial: serial)
        lowerBound = try state.read()
      }
      last = try state.read()
      idling = try state.read()
      sending = try state.read()
      nextDue = panes.map(\.due).min() ?? .distantFuture
      sendingAt = nextDue
      ask()
    }
  }
}
