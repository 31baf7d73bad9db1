internal import DequeModule

extension Window {
  /// The settings shared by all windows of one step of the plan.
  final class Form {
    let every: Int64
    let length: Int64
    /// The boundaries of windows by event time.
    let grid: Grid
    /// Kept alive for `grid`.
    private let days: ZonedDays?
    let count: Int
    let step: Int
    /// With `inclusive`, one nanosecond more than the parameter, so that a pause within a session is always shorter
    /// than this.
    let gap: Int64
    let maxLength: TimeSpan?
    let time: Program?
    let lateness: Int64
    let idle: TimeSpan?
    let builder: ValueBuilder?
    let figures: FiguresForm?
    /// With figures: the length, in time or events, of the slices that windows are composed of.
    let slice: Int64
    let sendsEmpty: Bool
    let bound: Int
    /// Whether the result depends only on the number of events, so that their values are not kept.
    let countsOnly: Bool
    let emission: Emission
    let allowedLateness: Int64
    let takesBack: Bool

    init(_ parameters: Window) {
      every = parameters.every?.nanoseconds ?? 1
      length = parameters.length?.nanoseconds ?? every
      count = parameters.count ?? 1
      step = parameters.step ?? count
      gap = parameters.gap.map { $0.nanoseconds &+ (parameters.inclusive ? 1 : 0) } ?? 0
      maxLength = parameters.maxLength
      time = parameters.time.program
      lateness = parameters.lateness.nanoseconds
      idle = parameters.idle
      builder = parameters.to.makeBuilder()
      figures = FiguresForm(
        parameters.aggregate, firstVariable: 2, limit: parameters.bound,
        isSentOnce: parameters.count != nil ? step >= count : length <= every || gap > 0)
      slice =
        parameters.count == nil ? Self.divisor(every, length) : Self.divisor(Int64(count), Int64(step))
      days = parameters.timezone.map { ZonedDays(count: max(1, parameters.days), in: $0) }
      grid = Grid(every: every, length: length, slice: slice, days: days)
      sendsEmpty = parameters.empty
      bound = parameters.bound
      emission = Emission(parameters.emit)
      allowedLateness = parameters.allowedLateness?.nanoseconds ?? 0
      takesBack = parameters.takesBack
      countsOnly = parameters.to.isGiven && parameters.to.readsOnlySize(of: "events")
    }

    /// The kept part of an event.
    func held(_ event: Event) -> HeldValue { HeldValue(countsOnly ? .null : event.value) }

    /// The greatest common divisor.
    private static func divisor(_ a: Int64, _ b: Int64) -> Int64 {
      var (a, b) = (a, b)
      while b != 0 { (a, b) = (b, a % b) }
      return max(1, a)
    }
  }

  /// The base class of all kinds of windows.
  class Step: LateStep {
    /// An event and the time that decides its window, or the figures of several events of one slice.
    struct Kept {
      /// In nanoseconds: on the monotonic clock, or of event time since 1970.
      var at: Int64
      /// Nanoseconds since 1970, for `start` and `end`.
      var wall: Int64
      var event: HeldValue
      /// Set instead of the event. `wall` is then the time of the slice's newest event, and `at` that of any of its
      /// events; in sessions, of the oldest.
      var figures: Figures?

      var byteCount: Int { MemoryLayout<Kept>.stride &+ event.byteCount &+ (figures?.bytes ?? 0) }
    }

    final let form: Form
    // Steps run on one thread at a time, and no access lasts longer than a call of the container.
    @exclusivity(unchecked) final var kept = Deque<Kept>()

    init(_ form: Form) {
      self.form = form
      super.init()
    }

    deinit { for entry in kept { entry.event.free() } }

    /// `isMonotonic`: `at` refers to the monotonic clock.
    final func saveKept(_ state: inout StateWriter, isMonotonic: Bool) {
      state.write(each: kept) {
        if isMonotonic { $0.write(Instant(nanoseconds: $1.at)) } else { $0.write($1.at) }
        $0.write($1.wall)
        $0.write(value: $1.event.value)
        $1.figures?.save(&$0)
      }
    }

    final func restoreKept(_ state: inout StateReader, isMonotonic: Bool) throws(StateFault) {
      guard state.version >= 2 else { throw StateFault("an older version of rxd wrote it in another format") }
      for _ in 0..<(try state.count()) {
        let at = isMonotonic ? try state.read(Instant.self).nanoseconds : try state.read(Int64.self)
        let wall: Int64 = try state.read()
        let event: OwnedValue = try state.read()
        // The copy must be made before the value that was read is freed.
        withExtendedLifetime(event) { kept.append(Kept(at: at, wall: wall, event: HeldValue(event.value))) }
        if let form = form.figures {
          let figures = Figures(form)
          kept[kept.count - 1].figures = figures
          try figures.restore(&state)
        }
        countKept(kept[kept.count - 1], 1)
      }
    }

    /// Keeps an event.
    @inline(__always)
    final func keep(_ entry: Kept, at index: Int? = nil) {
      if let index { kept.insert(entry, at: index) } else { kept.append(entry) }
      countKept(entry, 1)
    }

    /// Updates the counts of stored entries, for one more (`sign` 1) or less (-1).
    @inline(__always)
    final func countKept(_ entry: Kept, _ sign: Int) {
      keptSize.add(
        keys: sign &* (entry.figures?.keys ?? 0), events: sign &* (entry.figures?.events ?? 1),
        bytes: sign &* entry.byteCount)
    }

    /// The number of events that are kept or counted.
    final var eventCount: Int {
      form.figures == nil ? kept.count : kept.reduce(0) { $0 + ($1.figures?.events ?? 0) }
    }

    // MARK: Figures

    /// Evaluates an event for the figures, if there are any. If they cannot count it, returns the verdict.
    final func evaluate(_ event: Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict? {
      guard let figures = form.figures, let refusal = figures.evaluate(frame) else { return nil }
      return refused(event, refusal, frame, run)
    }

    /// Counts the evaluated event in the figures at `index`, or in new figures inserted there. If that is impossible,
    /// returns the verdict.
    final func count(
      _ event: Event, in index: Int, isNew: Bool, at: Int64, wall: Int64, _ frame: EventFrame, _ run: FusedRun
    ) -> StepVerdict? {
      guard let form = form.figures else { return nil }
      let figures = isNew ? Figures(form) : kept[index].figures ?? Figures(form)
      let before = (keys: figures.keys, events: figures.events, bytes: figures.bytes)
      if let refusal = figures.add(frame, at: at) { return refused(event, refusal, frame, run) }
      if isNew {
        keep(Kept(at: at, wall: wall, event: HeldValue(.null), figures: figures), at: index)
      } else {
        kept[index].wall = max(kept[index].wall, wall)
        keptSize.add(
          keys: figures.keys &- before.keys, events: figures.events &- before.events,
          bytes: figures.bytes &- before.bytes)
      }
      return nil
    }

    /// The events in this range as a list, or their figures; valid until the end of the turn.
    final func content(_ range: Range<Int>) -> Content {
      if let form = form.figures {
        if range.count == 1, let only = kept[range.lowerBound].figures, form.isSentOnce {
          return Content(figures: only)
        }
        let whole = Figures(form)
        let context = Context(state: frame.evaluation)
        for entry in kept[range] { if let part = entry.figures { whole.merge(part, context) } }
        return Content(figures: whole)
      }
      let target = run.arena.elements(range.count)
      for index in 0..<range.count { target[index] = kept[range.lowerBound + index].event.value }
      return Content(list: Value(kind: .list, pointer: target.baseAddress, length: range.count))
    }

    /// Removes the first events; emitted values stay valid until the end of the turn.
    final func removeFirst(_ count: Int) {
      guard count > 0 else { return }
      // A slice would retain the queue.
      for index in 0..<count {
        countKept(kept[index], -1)
        kept[index].event.free(after: run.arena)
      }
      if count == kept.count { kept.removeAll(keepingCapacity: count <= 64) } else { kept.removeFirst(count) }
    }

    /// The verdict if there is no room for another event, which has then been rejected; otherwise nil.
    final func refusal(of event: Event, _ run: FusedRun) -> StepVerdict? {
      if kept.count < form.bound { return nil }
      run.rejectRow(event, .limitReached, "window has \(Printable.count(kept.count, "event")), its limit `max`")
      return .gone
    }

    /// Sends a window. The state must be consistent before the call.
    final func send(_ content: Content, from start: Int64, to end: Int64) {
      if let row = row(content, form, from: start, to: end) { send(row) }
    }

    override var isFresh: Bool { kept.isEmpty }

    override func stopped() { removeFirst(kept.count) }
  }

  /// The contents of a window to be sent.
  struct Content {
    var list = Value.null
    var figures: Figures?
  }

  /// Windows by number.
  final class CountStep: Step {
    /// The number of events to skip before the next window starts.
    private var skipped = 0
    /// The number of events that are kept or counted.
    private var held = 0

    override var isFresh: Bool { kept.isEmpty && skipped == 0 }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      if skipped > 0 {
        skipped -= 1
        return .drop
      }
      let wall = run.executor.wallTime
      if form.figures != nil {
        if let verdict = evaluate(event, frame, run) { return verdict }
        let isNew = (kept.last?.figures?.events ?? 0) % Int(form.slice) == 0
        if let verdict = count(
          event, in: isNew ? kept.count : kept.count - 1, isNew: isNew, at: 0, wall: wall, frame, run)
        {
          return verdict
        }
        // The time of the slice's first event, because `wall` becomes that of its newest.
        if isNew { kept[kept.count - 1].at = wall }
      } else {
        keep(Kept(at: 0, wall: wall, event: form.held(event)))
      }
      held += 1
      if held == form.count { flush() }
      return .keep
    }

    private func flush() {
      guard let first = kept.first, let last = kept.last else { return }
      let events = content(0..<kept.count)
      let count = held
      held = max(0, count - form.step)
      if form.step >= count { skipped = form.step - count }
      removeFirst(form.step >= count ? kept.count : form.figures == nil ? form.step : form.step / Int(form.slice))
      // Older states have no time of a slice's first event.
      send(events, from: first.at == 0 ? first.wall : first.at, to: last.wall)
    }

    override func complete(_ run: FusedRun) -> Value? {
      if form.figures != nil {
        while !kept.isEmpty, !isStopped { flush() }
        return nil
      }
      // The lists of all windows are ends of one list.
      let events = run.arena.elements(kept.count)
      for (index, entry) in kept.enumerated() { events[index] = entry.event.value }
      let walls = kept.map(\.wall)
      held = 0
      removeFirst(kept.count)
      var first = 0
      while first < walls.count, !isStopped {
        let rest = UnsafeMutableBufferPointer(rebasing: events[first...])
        let list = Value(kind: .list, pointer: rest.baseAddress, length: rest.count)
        send(Content(list: list), from: walls[first], to: walls[walls.count - 1])
        first += form.step
      }
      return nil
    }

    override func save(_ state: inout StateWriter) {
      saveKept(&state, isMonotonic: false)
      state.write(skipped)
      state.write(held)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try restoreKept(&state, isMonotonic: false)
      skipped = try state.read(in: 0...form.step)
      // Once the number of events since the last window.
      _ = try state.read(in: 0...form.count)
      held = eventCount
      guard held < form.count else { throw StateFault("there are too many events") }
    }
  }

  /// Windows by pipeline time.
  final class TimeStep: Step {
    private var origin: Int64 = 0
    /// Set while there are events; with `empty`, always.
    private var timer = Wake.none
    /// The end of the window that the timer is for.
    private var end: Int64 = 0
    /// The number of events since the last window was sent.
    private var fresh = 0

    override var isFresh: Bool { kept.isEmpty && !timer.isSet }

    override func attached() { origin = (run.nodeContext.scope.time?.origin ?? now).nanoseconds }

    /// The earliest end of a window after the current instant.
    private var nextEnd: Int64 { origin &+ ((now.nanoseconds &- origin) / form.every &+ 1) &* form.every }

    override func started() { if form.sendsEmpty { setTimer(nextEnd) } }

    private func setTimer(_ end: Int64) {
      self.end = end
      timer = wake(at: Instant(nanoseconds: end))
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      // The timer of the current instant may not have fired yet.
      if timer.isSet, end <= now.nanoseconds { close(before: event, frame) }
      if isStopped { return .drop }
      let at = now.nanoseconds
      let wall = run.executor.wallTime
      if form.figures != nil {
        if let verdict = evaluate(event, frame, run) { return verdict }
        let isNew = kept.last.map { (at &- origin) / form.slice != ($0.at &- origin) / form.slice } ?? true
        if isNew, let refusal = refusal(of: event, run) { return refusal }
        if let verdict = count(
          event, in: isNew ? kept.count : kept.count - 1, isNew: isNew, at: at, wall: wall, frame, run)
        {
          return verdict
        }
      } else {
        if let refusal = refusal(of: event, run) { return refusal }
        keep(Kept(at: at, wall: wall, event: form.held(event)))
      }
      fresh += 1
      if !timer.isSet { setTimer(nextEnd) }
      return .keep
    }

    override func timeCame(_ token: Int) { close() }

    /// Continues with the first window that ends after the restart.
    override func timeSkipped(_ token: Int, _ late: Lateness) {
      cancelWake(&timer)
      while end <= late.restored.nanoseconds {
        let window = window(end)
        if form.sendsEmpty || !window.isEmpty { countSkipped() }
        removeFirst(kept.firstIndex { $0.at >= end &+ form.every &- form.length } ?? kept.count)
        // Skips all windows without events at once.
        let rounds = kept.isEmpty ? (late.restored.nanoseconds &- end) / form.every : 0
        end = end &+ (rounds &+ 1) &* form.every
      }
      fresh = eventCount
      if form.sendsEmpty || !kept.isEmpty { setTimer(end) }
    }

    private func close(before event: Event, _ frame: EventFrame) {
      close()
      // Sending the window has loaded the frame without an event.
      if form.figures != nil { _ = frame.load(event) }
    }

    /// The range of the events in the last `length` before `end`.
    private func window(_ end: Int64) -> Range<Int> {
      let first = kept.firstIndex { $0.at >= end &- form.length } ?? kept.count
      let last = kept.lastIndex { $0.at < end }.map { $0 + 1 } ?? 0
      return first..<max(first, last)
    }

    /// Ends the window and starts the next one.
    private func close() {
      cancelWake(&timer)
      let closed = end
      let wall = run.executor.wallTime &- (now.nanoseconds &- closed)
      let window = window(closed)
      let events = content(window)
      fresh = 0
      removeFirst(kept.firstIndex { $0.at >= closed &+ form.every &- form.length } ?? kept.count)
      if form.sendsEmpty || !kept.isEmpty { setTimer(closed &+ form.every) }
      if form.sendsEmpty || !window.isEmpty { send(events, from: wall &- form.length, to: wall) }
    }

    override var nextOutput: Due? { fresh > 0 ? due(timer) : nil }

    override func sendNextOutput() { close() }

    /// Sends the events since the last window as the next one would; later windows would only repeat a part of these.
    override func complete(_ run: FusedRun) -> Value? {
      if fresh > 0 { close() }
      removeFirst(kept.count)
      return nil
    }

    override func stopped() {
      cancelWake(&timer)
      super.stopped()
    }

    override func save(_ state: inout StateWriter) {
      saveKept(&state, isMonotonic: true)
      state.write(Instant(nanoseconds: origin))
      state.write(timer)
      state.write(Instant(nanoseconds: end))
      state.write(fresh)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try restoreKept(&state, isMonotonic: true)
      origin = try state.read(Instant.self).nanoseconds
      timer = try state.read()
      end = try state.read(Instant.self).nanoseconds
      fresh = try state.read(in: 0...eventCount)
    }
  }

  /// Windows that are separated by pauses.
  final class SessionStep: Step {
    private var last = Instant(nanoseconds: 0)
    /// Set exactly while there are events; `deadline` only with `maxLength`.
    private var timer = Wake.none
    private var deadline = Wake.none
    private var latest = Instant.distantFuture
    /// With figures: when the session started, in wall-clock time.
    private var began: Int64 = 0

    private var end: Instant { last + TimeSpan(nanoseconds: form.gap) }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      // The timers of the current instant may not have fired yet.
      if !kept.isEmpty, end <= now || latest <= now { close(before: event, frame) }
      if isStopped { return .drop }
      let isFirst = kept.isEmpty
      let wall = run.executor.wallTime
      if form.figures != nil {
        if let verdict = evaluate(event, frame, run) { return verdict }
        if let verdict = count(event, in: 0, isNew: isFirst, at: now.nanoseconds, wall: wall, frame, run) {
          return verdict
        }
        if isFirst { began = wall }
      } else {
        if let refusal = refusal(of: event, run) { return refusal }
        keep(Kept(at: now.nanoseconds, wall: wall, event: form.held(event)))
      }
      last = now
      guard isFirst else { return .keep }
      timer = wake(at: end)
      if let maxLength = form.maxLength {
        latest = now + maxLength
        deadline = wake(at: latest)
      }
      return .keep
    }

    /// The timer is not moved for each event; when it fires too early, it is set again.
    override func timeCame(_ token: Int) {
      if end <= now || latest <= now { close() } else { timer = wake(at: end) }
    }

    override func timeSkipped(_ token: Int, _ late: Lateness) {
      guard end <= late.restored || latest <= late.restored else {
        timeCame(token)
        return
      }
      cancelWake(&timer)
      cancelWake(&deadline)
      latest = .distantFuture
      if !kept.isEmpty { countSkipped() }
      removeFirst(kept.count)
    }

    private func close(before event: Event, _ frame: EventFrame) {
      close()
      // Sending the window has loaded the frame without an event.
      if form.figures != nil { _ = frame.load(event) }
    }

    private func close() {
      cancelWake(&timer)
      cancelWake(&deadline)
      latest = .distantFuture
      guard let first = kept.first, let last = kept.last else { return }
      let events = content(0..<kept.count)
      removeFirst(kept.count)
      send(events, from: form.figures == nil ? first.wall : began, to: last.wall)
    }

    override var nextOutput: Due? { [timer, deadline].compactMap(due).min() }

    override func sendNextOutput() {
      guard let due = nextOutput else { return }
      if end <= due.time || latest <= due.time { return close() }
      cancelWake(&timer)
      timer = wake(at: end)
    }

    override func complete(_ run: FusedRun) -> Value? {
      close()
      return nil
    }

    override func stopped() {
      cancelWake(&timer)
      cancelWake(&deadline)
      super.stopped()
    }

    override func save(_ state: inout StateWriter) {
      saveKept(&state, isMonotonic: true)
      state.write(last)
      state.write(timer)
      state.write(deadline)
      state.write(latest)
      state.write(began)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try restoreKept(&state, isMonotonic: true)
      last = try state.read()
      timer = try state.read()
      deadline = try state.read()
      latest = try state.read()
      began = try state.read()
    }
  }
}

extension LateStep {
  /// The value of a window to be sent; nil: its expression failed, and it was given up.
  final func row(_ content: Window.Content, _ form: Window.Form, from start: Int64, to end: Int64) -> Value? {
    if form.builder == nil, content.figures == nil { return content.list }
    let frame = frame
    let nothing = Event(.null, key: chain.key)
    _ = frame.load(nothing)
    var failing: Unmanaged<Program>?
    var value = Value.null
    if let figures = content.figures {
      frame.set(0, .timestamp(wallTime: start))
      frame.set(1, .timestamp(wallTime: end))
      run.arena.keep(figures)
      value = figures.form.build(figures, frame, &failing)
    } else if let builder = form.builder {
      frame.set(0, content.list)
      frame.set(1, .timestamp(wallTime: start))
      frame.set(2, .timestamp(wallTime: end))
      value = builder.build(frame, &failing)
    }
    if value.isError, let failing {
      if failed(nothing, value, failing.takeUnretainedValue(), frame, run) == .pass { return .null }
      countMade()
      return nil
    }
    return value.is(.optional) ? value.wrapped ?? .null : value
  }
}
