/// The progress of the parts of a source's input in event time.
///
/// A part counts from its first event on, or from when it is known to have unread events, until its end. A part that
/// has been read and is silent for too long does not count. The watermark of the whole is the smallest of those that
/// count.
final class PartMarks {
  final class Mark {
    fileprivate(set) var part: InputPart
    /// The time of the newest event; unknown: there is none yet.
    fileprivate(set) var newest = EventTime.unknown
    /// The arrival time of the last event.
    fileprivate(set) var last: Instant
    fileprivate(set) var counts = false
    /// Whether the part has unread events, and is waited for however long that takes.
    fileprivate var isBehind = false
    /// Whether the part has ended, so that it is no longer waited for.
    fileprivate var isOver = false
    /// Whether the part is known from a saved state only.
    fileprivate var isUnseen = false

    fileprivate init(_ part: InputPart, _ now: Instant) { (self.part, last) = (part, now) }
  }

  private var marks: [String: Mark] = [:]
  /// The part with the smallest time of those that count; nil: not computed.
  private var slowest: Mark?
  /// The origin of the last event, and its part.
  private var origin = Origin.none
  private var current: Mark?

  /// Whether the input has no parts at the moment.
  var isEmpty: Bool { marks.isEmpty }

  /// The part of an event; nil: its origin has none.
  @inline(__always)
  func mark(of event: Event, at now: Instant) -> Mark? {
    if event.origin.toOpaque() == Unmanaged.passUnretained(origin).toOpaque() { return current }
    return changed(to: event.origin.takeUnretainedValue(), now)
  }

  @inline(never)
  private func changed(to next: Origin, _ now: Instant) -> Mark? {
    origin = next
    guard let part = next.part else {
      current = nil
      return nil
    }
    if current?.part !== part { current = mark(of: part, now) }
    return current
  }

  private func mark(of part: InputPart, _ now: Instant) -> Mark {
    if let known = marks[part.name] {
      if known.isUnseen { (known.part, known.last, known.isUnseen) = (part, now, false) }
      return known
    }
    let mark = Mark(part, now)
    marks[part.name] = mark
    return mark
  }

  /// Records an event with this time.
  func came(_ time: Int64, of mark: Mark, at now: Instant) {
    mark.last = now
    if mark.isOver || mark.counts && time <= mark.newest { return }
    mark.newest = max(mark.newest, time)
    if !mark.counts || slowest === mark && marks.count > 1 { slowest = nil }
    mark.counts = true
  }

  func opened(_ part: InputPart, isBehind: Bool, at now: Instant) {
    let mark = mark(of: part, now)
    if isBehind { mark.counts = true }
    if mark.isBehind { mark.last = now }
    mark.isBehind = isBehind
    slowest = nil
  }

  func ended(_ part: InputPart) {
    guard let mark = marks.removeValue(forKey: part.name) else { return }
    mark.isOver = true
    if current === mark { (origin, current) = (.none, nil) }
    slowest = nil
  }

  /// Excludes parts that have been silent for `span`. Returns when the next one may be excluded.
  func leaveOut(silentFor span: TimeSpan, at now: Instant) -> Instant? {
    var next: Instant?
    for mark in marks.values where mark.counts && !mark.isBehind {
      let end = mark.last + span
      if end <= now { mark.counts = false } else { next = min(next ?? end, end) }
    }
    slowest = nil
    return next
  }

  /// Removes the parts of a saved state that have not come back: connections that are over, files that are gone.
  func forgetUnseen() {
    marks = marks.filter { !$0.value.isUnseen }
    slowest = nil
  }

  /// The part with the smallest time of those that count; nil: none counts.
  func behind() -> Mark? {
    if let slowest { return slowest }
    for mark in marks.values where mark.counts {
      guard let found = slowest, (found.newest, found.part.name) < (mark.newest, mark.part.name) else {
        slowest = mark
        continue
      }
    }
    return slowest
  }

  func save(_ state: inout StateWriter) {
    state.write(each: marks.sorted { $0.key < $1.key }) { state, entry in
      state.write(entry.key)
      state.write(entry.value.newest)
      state.write(entry.value.counts)
    }
  }

  func restore(_ state: inout StateReader, at now: Instant) throws(StateFault) {
    for _ in 0..<(try state.count()) {
      let name: String = try state.read()
      let mark = Mark(InputPart(name), now)
      (mark.newest, mark.counts, mark.isUnseen) = (try state.read(), try state.read(), true)
      guard mark.newest == EventTime.unknown || EventTime.range.contains(mark.newest) else {
        throw StateFault("the time of an event is out of range")
      }
      marks[name] = mark
    }
  }
}
