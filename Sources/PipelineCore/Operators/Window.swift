internal import DequeModule

/// `window`: lists of events that belong together in time or number.
struct Window: OperatorComponent {
  var every: TimeSpan?
  var length: TimeSpan?
  var count: Int?
  var step: Int?
  var gap: TimeSpan?
  var maxLength: TimeSpan?
  var time = ExpressionParameter()
  var lateness = TimeSpan.zero
  var idle: TimeSpan?
  var to = MappingParameter()
  var empty = false
  var bound = 100_000

  /// Spans of event time are at most about 36 years, so that sums of them and of times cannot overflow.
  private static let span = Int64(1)...(1 << 60)

  static let spec = ComponentSpec<Window>(
    "window",
    summary: "Sends the events of each window as one list: tumbling, sliding or by sessions.",
    details: """
      **By time**, `every`: windows follow each other from the subscription on. With a longer `length` they \
      slide: after each `every` comes what the last `length` brought. A window without events sends nothing, \
      unless `empty` asks for it. **By number**, `count`: so many events; with `step` the next window begins \
      so many events after the last one did. **By session**, `gap`: events with less than `gap` between \
      neighbours, cut after `maxLength`.

      **Event time**: with `time`, an expression that gives a timestamp, `every` and `gap` go by what the \
      events say. Windows of `every` begin at multiples of it since 1970. A window is closed when an event \
      has come whose time is `lateness` past its end; until then events may come in any order, and they are \
      sent in the order of their times. An event whose windows are all closed goes to the errors output. \
      With `idle`, everything is closed when nothing has come for so long.

      The event is the list, or what `to` makes of `events`, `start` and `end` (by number and by session, \
      the times of the first and of the last event). Completion sends the windows that are being filled; an \
      error drops them. An event that would be one more than `max` goes to the errors output.
      """,
    parameters: [
      .init("every", \.every, primary: true, range: span, "The time from one window to the next."),
      .init("length", \.length, range: span, "How long a window is; as long as `every` if left out."),
      .init("count", \.count, range: 1...10_000_000, "How many events a window has."),
      .init(
        "step", \.step, range: 1...10_000_000,
        "How many events after the last window began the next one begins; `count` if left out."),
      .init("gap", \.gap, range: span, "The pause that ends a session."),
      .init("maxLength", \.maxLength, range: span, "How long a session may last."),
      .init("time", \.time, "When an event happened."),
      .init("lateness", \.lateness, range: 0...(1 << 60), "How far events may be out of order."),
      .init("idle", \.idle, range: span, "Close all windows when nothing has come for so long."),
      .init(
        "to", \.to, variables: [("events", .list(.dyn)), ("start", .timestamp), ("end", .timestamp)],
        "What to send; the list of events if left out."),
      .init("empty", \.empty, "Send windows without events too."),
      .init("max", \.bound, range: 1...10_000_000, "How many events to keep at most."),
    ],
    examples: [
      .marble(
        "tumbling", "window: 4ms", in: "-1-2---3-|", out: "----p---q|",
        values: ["p": "[1, 2]", "q": "[3]"]),
      .marble(
        "sliding", "window: { every: 2ms, length: 4ms }", in: "-1-2-----|", out: "--p-q-r--|",
        values: ["p": "[1]", "q": "[1, 2]", "r": "[2]"]),
      .marble(
        "counted", "window: { every: 4ms, empty: true, to: size(events) }", in: "-1-2-----|",
        out: "----2---0|"),
      .marble(
        "by number", "window: { count: 3, step: 1 }", in: "-1-2-3-4-|", out: "-----p-q-|",
        values: ["p": "[1, 2, 3]", "q": "[2, 3, 4]"]),
      .marble(
        "sessions", "window: { gap: 3ms }", in: "-1-2-----3-|", out: "------p----(q|)",
        values: ["p": "[1, 2]", "q": "[3]"]),
      .marble(
        "event time, out of order", "window: { every: 10s, time: timestamp(event), lateness: 5s }",
        in: "-abcd-|", out: "----p-(q|)",
        values: ["a": "3", "b": "12", "c": "7", "d": "15", "p": "[3, 7]", "q": "[12, 15]"]),
      .marble(
        "sessions by event time", "window: { gap: 10s, time: timestamp(event) }", in: "-abc-|",
        out: "---p-(q|)", values: ["a": "3", "b": "9", "c": "30", "p": "[3, 9]", "q": "[30]"]),
    ],
    edges: EdgeCases(
      empty: "Completes too; with `empty: true` windows go on until it does.",
      error: "Passed on at once; open windows are dropped.",
      completion: "Sends the windows that are being filled, then completes.",
      disposal: "Leaves the input; open windows are dropped and the timer freed."),
    keeps: """
      The events of the windows that are open, at most `max`, until those are sent; one timer, while there \
      are events (`count`: none).
      """,
    carries: .state(version: 1),
    rivals: [
      "RxJS bufferTime, bufferCount, windowTime", "Flink and Kafka Streams windows", "Benthos windowing buffer",
      "Vector reduce",
    ],
    wants: [
      .init(.gathering, "have figures for each minute", "window: { every: 1m, to: \"{'n': size(events)}\" }"),
      .init(.gathering, "look at the last five minutes again each minute", "window: { every: 1m, length: 5m }"),
      .init(.gathering, "bring together what belongs to one session", "window: { gap: 30m }"),
      .init(.gathering, "have overlapping lists of events", "window: { count: 10, step: 5 }"),
      .init(
        .time, "go by the time in the events, late ones included",
        "window: { every: 1m, time: timestamp(event.at), lateness: 10s }"),
      .init(
        .time, "have a figure for each minute, empty ones too", "window: { every: 1m, empty: true, to: size(events) }"),
    ],
    seeAlso: ["bufferWithTime", "bufferWithCount", "aggregate", "groupBy"])

  func validate(_ context: inout DecodingContext) {
    func conflict(_ message: String, _ help: String) {
      context.diagnostics.report(
        Diagnostic(.conflictingParameters, message, at: context.location, help: help))
    }
    let kinds = [every != nil, count != nil, gap != nil].filter { $0 }.count
    if kinds != 1 {
      conflict(
        kinds == 0
          ? "'window' needs 'every', 'count' or 'gap'"
          : "'window' goes by time, by number or by session, not by several",
        "Write 'window: 1m', 'window: { count: 100 }' or 'window: { gap: 30s }'")
      return
    }
    let needs: [(String, Bool, String, Bool)] = [
      ("length", length != nil, "every", every != nil), ("step", step != nil, "count", count != nil),
      ("maxLength", maxLength != nil, "gap", gap != nil), ("empty", empty, "every", every != nil),
      ("lateness", lateness > .zero, "time", time.isGiven), ("idle", idle != nil, "time", time.isGiven),
    ]
    for (name, isGiven, other, hasOther) in needs where isGiven && !hasOther {
      conflict("'\(name)' of 'window' has no meaning without '\(other)'", "Add '\(other)', or remove it")
    }
    if time.isGiven {
      for (name, isGiven) in [("count", count != nil), ("maxLength", maxLength != nil), ("empty", empty)] where isGiven
      {
        conflict("'\(name)' of 'window' cannot go with 'time'", "Remove one of them")
      }
    }
    if let count, count > bound {
      conflict(
        "'window' cannot fill windows of \(Printable.count(count, "event")) while it keeps \(bound)", "Raise 'max'")
    }
  }

  func outputType(_ inputs: [EventType]) -> EventType {
    EventType(to.isGiven ? to.type : .list(inputs.first?.type ?? .dyn))
  }

  func makeNode(_ seat: Seat, downstream: Downstream) -> OperatorNode {
    if time.isGiven { return EventTimeNode(self, seat, downstream) }
    if let count { return CountNode(count, step ?? count, self, seat, downstream) }
    if let gap { return SessionNode(gap, self, seat, downstream) }
    guard let every else { preconditionFailure("window was not checked") }
    return TimeNode(every, length ?? every, self, seat, downstream)
  }

  /// What all kinds of windows share.
  class Node: OperatorNode {
    /// An event with the time that counts for its window.
    struct Kept {
      /// Nanoseconds: of the monotonic clock, or of event time since 1970.
      var at: Int64
      /// Nanoseconds since 1970, for `start` and `end`.
      var wall: Int64
      var event: OwnedEvent
    }

    let parameters: Window
    private let builder: ValueBuilder?
    private lazy var frame = makeFrame()
    var kept = Deque<Kept>()

    init(_ parameters: Window, _ seat: Seat, _ downstream: Downstream) {
      self.parameters = parameters
      builder = parameters.to.makeBuilder()
      super.init(seat, downstream: downstream)
    }

    /// `isMonotonic`: `at` is of the monotonic clock.
    final func saveKept(_ state: inout StateWriter, isMonotonic: Bool) {
      state.write(each: kept) {
        if isMonotonic { $0.write(Instant(nanoseconds: $1.at)) } else { $0.write($1.at) }
        $0.write($1.wall)
        $0.write($1.event)
      }
    }

    final func restoreKept(_ state: inout StateReader, isMonotonic: Bool) throws(StateFault) {
      for _ in 0..<(try state.count()) {
        let at = isMonotonic ? try state.read(Instant.self).nanoseconds : try state.read(Int64.self)
        kept.append(Kept(at: at, wall: try state.read(), event: try state.read()))
      }
    }

    /// Whether there is room for one more; if not, the event has been given up.
    final func hasRoom(for event: Event) -> Bool {
      if kept.count < parameters.bound { return true }
      reject(event, .limitReached, "window keeps \(Printable.count(kept.count, "event")), its bound `max`")
      return false
    }

    /// Sends a window; the state must be in order before.
    final func send(_ events: [OwnedEvent], from start: Int64, to end: Int64) {
      let list = arena.list(of: events)
      guard let builder else {
        emit(Event(list))
        return
      }
      frame.set(0, list)
      frame.set(1, .timestamp(wallTime: start))
      frame.set(2, .timestamp(wallTime: end))
      if let value = build(builder, Event(.null), frame) { emit(Event(value)) }
    }

    override func stop() { kept.removeAll() }
  }

  /// By number.
  final class CountNode: Node {
    private let count: Int
    private let step: Int
    /// How many events to leave out before the next window begins.
    private var skipped = 0
    /// How many events came since the last window was sent.
    private var fresh = 0

    init(_ count: Int, _ step: Int, _ parameters: Window, _ seat: Seat, _ downstream: Downstream) {
      self.count = count
      self.step = step
      super.init(parameters, seat, downstream)
    }

    override func receive(_ event: Event) {
      if skipped > 0 {
        skipped -= 1
        return
      }
      kept.append(Kept(at: 0, wall: executor.wallTime, event: OwnedEvent(event)))
      fresh += 1
      if kept.count == count { flush() }
    }

    private func flush() {
      guard let first = kept.first, let last = kept.last else { return }
      let events = kept.map(\.event)
      fresh = 0
      if step < kept.count {
        kept.removeFirst(step)
      } else {
        skipped = step - kept.count
        kept.removeAll(keepingCapacity: true)
      }
      send(events, from: first.wall, to: last.wall)
    }

    override func complete() {
      if fresh > 0 { flush() }
      finish()
    }

    override func save(_ state: inout StateWriter) {
      saveKept(&state, isMonotonic: false)
      state.write(skipped)
      state.write(fresh)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try restoreKept(&state, isMonotonic: false)
      skipped = try state.read(in: 0...step)
      fresh = try state.read(in: 0...count)
      guard kept.count < count else { throw StateFault("there are too many events") }
    }
  }

  /// By the pipeline's time.
  final class TimeNode: Node {
    private let every: Int64
    private let length: Int64
    private var origin: Int64
    /// Set while there are events, and always with `empty`.
    private var timer = Wake.none
    /// The end of the window that the timer is for.
    private var end: Int64 = 0
    /// How many events came since the last window was sent.
    private var fresh = 0

    init(_ every: TimeSpan, _ length: TimeSpan, _ parameters: Window, _ seat: Seat, _ downstream: Downstream) {
      self.every = every.nanoseconds
      self.length = length.nanoseconds
      origin = seat.execution.executor.now.nanoseconds
      super.init(parameters, seat, downstream)
    }

    override func start() {
      if parameters.empty { setTimer(origin &+ every) }
      super.start()
    }

    private func setTimer(_ end: Int64) {
      self.end = end
      timer = wake(at: Instant(nanoseconds: end))
    }

    override func receive(_ event: Event) {
      // The timer of this very instant may still be to come.
      if timer.isSet, end <= now.nanoseconds { close() }
      guard !isClosed, hasRoom(for: event) else { return }
      kept.append(Kept(at: now.nanoseconds, wall: executor.wallTime, event: OwnedEvent(event)))
      fresh += 1
      if !timer.isSet { setTimer(origin &+ ((now.nanoseconds &- origin) / every &+ 1) &* every) }
    }

    override func woke(_ token: Int) { close() }

    /// Ends the window and begins the next.
    private func close() {
      cancelWake(&timer)
      let closed = end
      let wall = executor.wallTime &- (now.nanoseconds &- closed)
      let events = kept.filter { $0.at >= closed &- length && $0.at < closed }.map(\.event)
      fresh = 0
      while let first = kept.first, first.at < closed &+ every &- length { kept.removeFirst() }
      if parameters.empty || !kept.isEmpty { setTimer(closed &+ every) }
      if parameters.empty || !events.isEmpty { send(events, from: wall &- length, to: wall) }
    }

    override func complete() {
      if fresh > 0 {
        let events = kept.filter { $0.at >= end &- length }.map(\.event)
        let wall = executor.wallTime &+ (end &- now.nanoseconds)
        kept.removeAll()
        if !events.isEmpty { send(events, from: wall &- length, to: wall) }
      }
      finish()
    }

    override func stop() {
      cancelWake(&timer)
      super.stop()
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
      fresh = try state.read(in: 0...kept.count)
    }
  }

  /// By pauses.
  final class SessionNode: Node {
    private let gap: TimeSpan
    private var last = Instant(nanoseconds: 0)
    /// Set exactly while there are events; `deadline` only with `maxLength`.
    private var timer = Wake.none
    private var deadline = Wake.none
    private var latest = Instant.distantFuture

    init(_ gap: TimeSpan, _ parameters: Window, _ seat: Seat, _ downstream: Downstream) {
      self.gap = gap
      super.init(parameters, seat, downstream)
    }

    override func receive(_ event: Event) {
      // The timers of this very instant may still be to come.
      if !kept.isEmpty, last + gap <= now || latest <= now { close() }
      guard !isClosed, hasRoom(for: event) else { return }
      last = now
      kept.append(Kept(at: now.nanoseconds, wall: executor.wallTime, event: OwnedEvent(event)))
      guard kept.count == 1 else { return }
      timer = wake(after: gap)
      if let maxLength = parameters.maxLength {
        latest = now + maxLength
        deadline = wake(at: latest)
      }
    }

    /// The timer is not moved for each event; one that is due too early is set again.
    override func woke(_ token: Int) {
      if last + gap <= now || latest <= now { close() } else { timer = wake(at: last + gap) }
    }

    private func close() {
      cancelWake(&timer)
      cancelWake(&deadline)
      latest = .distantFuture
      guard let first = kept.first, let last = kept.last else { return }
      let events = kept.map(\.event)
      kept.removeAll(keepingCapacity: true)
      send(events, from: first.wall, to: last.wall)
    }

    override func complete() {
      close()
      finish()
    }

    override func stop() {
      cancelWake(&timer)
      cancelWake(&deadline)
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      saveKept(&state, isMonotonic: true)
      state.write(last)
      state.write(timer)
      state.write(deadline)
      state.write(latest)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try restoreKept(&state, isMonotonic: true)
      last = try state.read()
      timer = try state.read()
      deadline = try state.read()
      latest = try state.read()
    }
  }
}
