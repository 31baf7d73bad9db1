extension Window {
  /// By what the events say of their time.
  ///
  /// `kept` is in the order of event time, of equal times in the order of coming.
  final class EventTimeNode: Node {
    private let program: Program
    private lazy var frame = makeFrame()
    private let every: Int64
    private let length: Int64
    /// 0 unless the windows are sessions.
    private let gap: Int64
    /// No event before this time is waited for any more.
    private var watermark = Int64.min
    /// The end of the last window of `every` that was closed.
    private var closed = Int64.min
    /// No session ends before the watermark has reached this.
    private var nextEnd = Int64.max
    private var last = Instant(nanoseconds: 0)
    /// Set only with `idle`, while there are events.
    private var timer = Wake.none
    /// Beyond that times are refused, so that sums with spans cannot overflow.
    private static let range = -(Int64(1) << 62)...(Int64(1) << 62)

    override init(_ parameters: Window, _ seat: Seat, _ downstream: Downstream) {
      program = parameters.time.required
      every = parameters.every?.nanoseconds ?? 1
      length = parameters.length?.nanoseconds ?? every
      gap = parameters.gap?.nanoseconds ?? 0
      super.init(parameters, seat, downstream)
    }

    override func receive(_ event: Event) {
      guard let value = evaluate(program, event, frame) else { return }
      guard let time = nanoseconds(value) else {
        refuse(
          event, .unexpectedValue,
          value.is(.timestamp)
            ? "the time of an event is not between 1824 and 2116"
            : "'time' of window must give a timestamp, not \(value.kindName)")
        return
      }
      guard !isLate(time) else {
        refuse(event, .eventTooLate, "the event came after its window was closed")
        return
      }
      watermark = max(watermark, time &- parameters.lateness.nanoseconds)
      if hasRoom(for: event) {
        insert(Kept(at: time, wall: time, event: OwnedEvent(event)))
        last = now
        if let idle = parameters.idle, !timer.isSet { timer = wake(after: idle) }
      }
      close(upTo: watermark)
    }

    private func nanoseconds(_ value: Value) -> Int64? {
      guard value.is(.timestamp) else { return nil }
      let (scaled, overflow) = value.asInt.multipliedReportingOverflow(by: 1_000_000_000)
      guard !overflow, Self.range.contains(scaled) else { return nil }
      return scaled &+ Int64(value.length)
    }

    /// The first multiple of `every` after `time`.
    private func boundary(after time: Int64) -> Int64 {
      let (quotient, rest) = time.quotientAndRemainder(dividingBy: every)
      return (quotient &+ (rest < 0 ? 0 : 1)) &* every
    }

    private func isLate(_ time: Int64) -> Bool {
      guard watermark > .min else { return false }
      if gap == 0 {
        // The last window that it belongs to.
        return boundary(after: time &+ length) &- every <= max(closed, watermark)
      }
      if time &+ gap > watermark { return false }
      // It may still belong to a session that is open.
      let at = position(after: time)
      if at < kept.count, kept[at].at &- time < gap { return false }
      return at == 0 || time &- kept[at - 1].at >= gap
    }

    /// Where an event of that time belongs: behind all that are not later.
    private func position(after time: Int64) -> Int {
      // Most events come nearly in order.
      if let newest = kept.last, newest.at <= time { return kept.count }
      var low = 0
      var high = kept.count
      while low < high {
        let middle = (low + high) / 2
        if kept[middle].at <= time { low = middle + 1 } else { high = middle }
      }
      return low
    }

    private func insert(_ entry: Kept) {
      kept.insert(entry, at: position(after: entry.at))
      if gap > 0 { nextEnd = min(nextEnd, entry.at &+ gap) }
    }

    // MARK: Closing

    private func close(upTo time: Int64) {
      if gap > 0 { closeSessions(upTo: time) } else { closeWindows(upTo: time) }
      if kept.isEmpty { cancelWake(&timer) }
    }

    private func closeWindows(upTo time: Int64) {
      while let first = kept.first, !isClosed {
        let end = max(boundary(after: first.at), closed > .min ? closed &+ every : .min)
        guard end <= time else { return }
        let events = kept.prefix { $0.at < end }.filter { $0.at >= end &- length }.map(\.event)
        closed = end
        while let oldest = kept.first, oldest.at < end &+ every &- length { kept.removeFirst() }
        if !events.isEmpty { send(events, from: end &- length, to: end) }
      }
    }

    private func closeSessions(upTo time: Int64) {
      while let first = kept.first, nextEnd <= time, !isClosed {
        var count = 1
        var end = first.at
        while count < kept.count, kept[count].at &- end < gap {
          end = kept[count].at
          count += 1
        }
        nextEnd = end &+ gap
        guard nextEnd <= time else { return }
        let events = kept.prefix(count).map(\.event)
        kept.removeFirst(count)
        nextEnd = kept.first.map { $0.at &+ gap } ?? .max
        send(events, from: first.at, to: end)
      }
    }

    /// Closes everything, because nothing comes (any more).
    private func closeAll() {
      guard let newest = kept.last else { return }
      // The end of the last window that the newest event belongs to.
      watermark = max(watermark, gap > 0 ? newest.at &+ gap : boundary(after: newest.at &+ length) &- every)
      close(upTo: watermark)
    }

    /// The timer is not moved for each event; one that is due too early is set again.
    override func woke(_ token: Int) {
      timer = .none
      guard let idle = parameters.idle, last + idle <= now else {
        if let idle = parameters.idle { timer = wake(at: last + idle) }
        return
      }
      closeAll()
    }

    override func complete() {
      closeAll()
      finish()
    }

    override func stop() {
      cancelWake(&timer)
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      saveKept(&state, isMonotonic: false)
      state.write(watermark)
      state.write(closed)
      state.write(nextEnd)
      state.write(last)
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try restoreKept(&state, isMonotonic: false)
      watermark = try state.read()
      closed = try state.read()
      nextEnd = try state.read()
      last = try state.read()
      timer = try state.read()
    }
  }
}
