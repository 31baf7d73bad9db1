extension Window {
  /// Windows by event time.
  ///
  /// `kept` is ordered by event time; equal times are in the order of arrival. A window closes when the watermark
  /// reaches its end, and is sent immediately; an event belongs only to windows that are not closed.
  final class EventTimeStep: Step {
    /// The clock of the stream; in a group's chain, the clock of all groups.
    private var ownClock: EventClock?
    /// The same clock, unmanaged, to avoid retain and release.
    @exclusivity(unchecked) private var clockLink: Unmanaged<EventClock>?
    /// The lower bound of the watermark that this window has used since it was idle.
    @exclusivity(unchecked) private var lowerBound = Int64.min
    /// The end of the earliest open window with events; for a session, its earliest possible end.
    @exclusivity(unchecked) private var nextEnd = Int64.max
    /// Set exactly while there are events or `lowerBound` is ahead; fires when the watermark reaches `dueAt`, which is
    /// at most `nextEnd`.
    @exclusivity(unchecked) private var due = Wake.none
    @exclusivity(unchecked) private var dueAt = Int64.max
    @exclusivity(unchecked) private var serial: UInt64 = 0
    @exclusivity(unchecked) private var last = Instant(nanoseconds: 0)
    /// Set only with `idle`, while there are events.
    @exclusivity(unchecked) private var timer = Wake.none
    private static let idleToken = 0
    private static let dueToken = 1

    override var isFresh: Bool { kept.isEmpty && lowerBound <= watermarkOfStream }

    private var clock: EventClock? { clockLink?._withUnsafeGuaranteedRef { $0 } }
    private func advanceClock(to time: Int64) { clockLink?._withUnsafeGuaranteedRef { $0.advance(to: time) } }
    private var watermarkOfStream: Int64 { clockLink?._withUnsafeGuaranteedRef { $0.watermark } ?? .min }
    private var watermark: Int64 { max(lowerBound, watermarkOfStream) }

    override func attached() {
      if clockLink == nil {
        let clock = makeClock()
        ownClock = clock
        clockLink = .passUnretained(clock)
      }
      serial = clockLink?._withUnsafeGuaranteedRef { $0.nextSerial() } ?? 0
      lowerBound = .min
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      let time: Int64
      if let program = form.time {
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
      if isBetweenWindows(time) {
        if form.time != nil { advanceClock(to: time &- form.lateness) }
        return .drop
      }
      guard !isLate(time) else {
        return refused(event, .eventTooLate, "the event arrived after its window had closed", run)
      }
      var refusal: StepVerdict?
      if form.figures != nil {
        if let verdict = evaluate(event, frame, run) { return verdict }
        refusal = count(event, time, frame, run)
      } else {
        refusal = self.refusal(of: event, run)
        if refusal == nil { insert(Kept(at: time, wall: time, event: form.held(event))) }
      }
      if refusal == nil {
        last = now
        if let idle = form.idle, !timer.isSet { timer = wake(at: last + idle, Self.idleToken) }
      }
      if form.time != nil { advanceClock(to: time &- form.lateness) }
      return refusal ?? .keep
    }

    /// A window that uses the stream's time closes when that time has advanced.
    override func advance(to time: Int64) {
      if form.time == nil { advanceClock(to: time) }
    }

    /// Sends a window that ends at `end`, where the next one may begin. Its event time is the last time within the window.
    private func send(_ content: Content, from start: Int64, to last: Int64, endingAt end: Int64) {
      if form.time != nil { return send(content, from: start, to: last) }
      run.executor.withEventTime(end &- 1) { send(content, from: start, to: last) }
    }

    /// The end of the first open window that contains an event of this time.
    private func firstEnd(_ time: Int64) -> Int64 {
      form.grid.end(after: max(watermark, time))
    }

    /// Between windows that are shorter than their distance, an event belongs to none.
    private func isBetweenWindows(_ time: Int64) -> Bool {
      form.gap == 0 && form.length < form.every && form.grid.end(after: time) &- form.length > time
    }

    private func isLate(_ time: Int64) -> Bool {
      let watermark = watermark
      guard watermark > .min else { return false }
      // Late if the last window that contains the event has ended.
      if form.gap == 0 { return form.grid.lastEnd(of: time) <= watermark }
      if time &+ form.gap > watermark { return false }
      // The event may still belong to an open session.
      let at = position(after: time)
      if at < kept.count, kept[at].at &- time < form.gap { return false }
      return at == 0 || time &- kept[at - 1].wall >= form.gap
    }

    /// The index at which an event of this time is inserted: after all that are not later.
    private func position(after time: Int64) -> Int {
      // Most events arrive nearly in order.
      if !kept.isEmpty, kept[kept.count - 1].at <= time { return kept.count }
      var low = 0
      var high = kept.count
      while low < high {
        let middle = (low + high) / 2
        if kept[middle].at <= time { low = middle + 1 } else { high = middle }
      }
      return low
    }

    private func insert(_ entry: Kept) {
      let at = kept.isEmpty ? 0 : position(after: entry.at)
      keep(entry, at: at == kept.count ? nil : at)
      expect(entry.at)
    }

    /// Updates the earliest end for an event of this time.
    private func expect(_ time: Int64) {
      nextEnd = min(nextEnd, form.gap > 0 ? time &+ form.gap : firstEnd(time))
      ask()
    }

    /// Counts an event in the figures of its slice or session. If that is impossible, returns the verdict.
    private func count(_ event: Event, _ time: Int64, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict? {
      var at = kept.isEmpty ? 0 : position(after: time)
      var isNew = true
      if form.gap > 0 {
        if at > 0, time &- kept[at - 1].wall < form.gap {
          at -= 1
          isNew = false
        } else if at < kept.count, kept[at].at &- time < form.gap {
          isNew = false
        }
      } else if at > 0, form.grid.slice(of: kept[at - 1].at) == form.grid.slice(of: time) {
        at -= 1
        isNew = false
      } else if at < kept.count, form.grid.slice(of: kept[at].at) == form.grid.slice(of: time) {
        isNew = false
      }
      if isNew, let refusal = refusal(of: event, run) { return refusal }
      if let verdict = count(event, in: at, isNew: isNew, at: time, wall: time, frame, run) { return verdict }
      if form.gap > 0, !isNew {
        kept[at].at = min(kept[at].at, time)
        // The event may have bridged the gap between two sessions.
        if at + 1 < kept.count, kept[at + 1].at &- kept[at].wall < form.gap {
          countKept(kept[at], -1)
          countKept(kept[at + 1], -1)
          if let other = kept[at + 1].figures { kept[at].figures?.merge(other, Context(state: frame.evaluation)) }
          kept[at].wall = max(kept[at].wall, kept[at + 1].wall)
          kept.remove(at: at + 1)
          countKept(kept[at], 1)
        }
      }
      expect(time)
      return nil
    }

    /// Schedules the next wake-up. A step that is woken too early schedules another.
    private func ask() {
      guard let clockLink, !isStopped else { return }
      clockLink._withUnsafeGuaranteedRef { clock in
        let wanted = !kept.isEmpty ? nextEnd : lowerBound > clock.watermark ? lowerBound : .max
        if wanted < dueAt {
          clock.cancel(&due)
          due = clock.wake(at: wanted, serial, self, Self.dueToken)
          dueAt = wanted
        } else if wanted == .max, dueAt < .max {
          clock.cancel(&due)
          dueAt = .max
        }
      }
    }

    // MARK: Closing

    override func timeCame(_ token: Int) {
      if token == Self.dueToken {
        due = .none
        closeDue()
        return
      }
      timer = .none
      // The timer is not moved for each event; when it fires too early, it is set again.
      if let idle = form.idle, last + idle > now {
        timer = wake(at: last + idle, Self.idleToken)
      } else {
        closeAll()
      }
    }

    override var nextOutput: Due? {
      kept.isEmpty || dueAt == .max ? nil : Due(Instant(nanoseconds: dueAt), serial)
    }

    override func sendNextOutput() {
      clock?.cancel(&due)
      closeDue()
    }

    /// Closes windows that end at `dueAt`. Later windows must wait: the windows of all groups are sent in the order of their ends.
    private func closeDue() {
      let time = dueAt
      dueAt = .max
      close(upTo: time)
    }

    private func close(upTo time: Int64) {
      if form.gap > 0 { closeSessions(upTo: time) } else { closeWindows(upTo: time) }
      if isStopped { return }
      if kept.isEmpty { cancelWake(&timer) }
      ask()
    }

    private func closeWindows(upTo time: Int64) {
      while !kept.isEmpty, nextEnd <= time, !isStopped {
        let end = nextEnd
        let start = form.grid.start(ofWindowTo: end)
        let next = form.grid.end(behindWindowTo: end)
        let isWhole = kept[0].at >= start && kept[kept.count - 1].at < end
        let first = isWhole ? 0 : position(after: start &- 1)
        let window = first..<(isWhole ? kept.count : max(first, position(after: end &- 1)))
        let events = content(window)
        let isTumbling = isWhole && form.every >= form.length
        removeFirst(isTumbling ? kept.count : position(after: form.grid.start(ofWindowTo: next) &- 1))
        nextEnd = kept.isEmpty ? .max : max(form.grid.end(after: kept[0].at), next)
        if !window.isEmpty { send(events, from: start, to: end, endingAt: end) }
      }
    }

    private func closeSessions(upTo time: Int64) {
      while let first = kept.first, nextEnd <= time, !isStopped {
        var count = 1
        var end = first.wall
        while count < kept.count, kept[count].at &- end < form.gap {
          end = kept[count].wall
          count += 1
        }
        nextEnd = end &+ form.gap
        guard nextEnd <= time else { return }
        let whole = nextEnd
        let events = content(0..<count)
        removeFirst(count)
        nextEnd = kept.first.map { $0.at &+ form.gap } ?? .max
        send(events, from: first.at, to: end, endingAt: whole)
      }
    }

    /// Closes all windows, because no events are expected for now, or none at all.
    private func closeAll() {
      guard let newest = kept.last else { return }
      // The end of the last window that contains the newest event.
      let end = form.gap > 0 ? newest.wall &+ form.gap : form.grid.lastEnd(of: newest.wall)
      lowerBound = max(lowerBound, end)
      close(upTo: watermark)
    }

    override func complete(_ run: FusedRun) -> Value? {
      closeAll()
      return nil
    }

    override func stopped() {
      cancelWake(&timer)
      clock?.cancel(&due)
      super.stopped()
    }

    override func save(_ state: inout StateWriter) {
      saveKept(&state, isMonotonic: false)
      saveClock(clock, &state)
      state.write(serial)
      state.write(lowerBound)
      state.write(last)
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try restoreKept(&state, isMonotonic: false)
      clock?.restore(watermark: try state.read(), serial: try state.readSerial())
      serial = try state.readSerial()
      lowerBound = try state.read()
      last = try state.read()
      timer = try state.read()
      for entry in kept where !EventTime.range.contains(entry.at) {
        throw StateFault("the time of an event is out of range")
      }
      for index in kept.indices.dropFirst() where kept[index - 1].at > kept[index].at {
        throw StateFault("events are not in the order of their times")
      }
      nextEnd = kept.first.map { form.gap > 0 ? $0.at &+ form.gap : firstEnd($0.at) } ?? .max
      ask()
    }
  }
}

extension StateReader {
  /// Reads a serial number and checks that further ones fit after it.
  fileprivate mutating func readSerial() throws(StateFault) -> UInt64 {
    let serial: UInt64 = try read()
    guard serial < 1 << 62 else { throw StateFault("a number is too large") }
    return serial
  }
}
