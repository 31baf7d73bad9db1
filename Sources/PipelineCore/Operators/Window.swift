internal import DequeModule

/// `window`: lists of events that belong together by time or number.
struct Window: FusableOperator {
  var every: TimeSpan?
  var length: TimeSpan?
  var count: Int?
  var step: Int?
  var gap: TimeSpan?
  var inclusive = false
  var maxLength: TimeSpan?
  var time = ExpressionParameter()
  var lateness = TimeSpan.zero
  var idle: TimeSpan?
  var to = MappingParameter()
  var aggregate = FiguresParameter()
  var empty = false
  var bound = 100_000

  static let changesValue = true
  var sendsLater: Bool { true }

  /// Spans of event time are at most about 36 years, so that sums of them and of times cannot overflow.
  private static let span = Int64(1)...(1 << 60)

  static let spec = ComponentSpec<Window>(
    "window",
    summary: "Sends the events of each window as one list: tumbling, sliding or by sessions.",
    details: """
      **By time**, `every`: windows follow each other from the subscription on. With a longer `length` they slide: \
      each `every`, the events of the last `length` are sent. An empty window is not sent, unless `empty` is true. \
      **By number**, `count`: a fixed number of events; with `step`, a window starts every `step` events. **By \
      session**, `gap`: events with less than `gap` between neighbours (with `inclusive`, at most `gap`), for at \
      most `maxLength`.

      **Event time**: with `time`, an expression that returns a timestamp, `every` and `gap` refer to the events' \
      times. Windows of `every` start at multiples of it since 1970. A window closes when an event comes whose time \
      is `lateness` past its end; until then events may come in any order, and are sent in the order of their times. \
      An event whose windows are all closed goes to the errors output. With `idle`, all windows close after that \
      time without events.

      **In `groupBy`** the groups are parts of one stream. An event of any group closes the windows of all groups \
      that end before its time, the earliest first, and the time of the stream decides whether an event is late. \
      Windows in pipeline time start together, counted from the subscription of `groupBy`. `idle` applies to each \
      group.

      **Figures**, `aggregate`: instead of the list, what [aggregate](aggregate.md) computes of the events: `{ n: \
      count(), top: max(event.price), at: start }`; the expressions around the aggregates may use `start` and `end`. \
      Events are then not kept: a window takes the memory of its figures. Sliding windows are composed of parts as \
      long as the common divisor, so 5 minutes every minute keep five sets of figures.

      The event is the list, or the result of `to` for `events`, `start` and `end` (by number and by session: the \
      times of the first and the last event). Completion sends the open windows; an error drops them. An event \
      beyond `max` goes to the errors output.
      """,
    parameters: [
      .init("every", \.every, primary: true, range: span, "The time from one window to the next."),
      .init("length", \.length, range: span, "How long a window is; as long as `every` if left out."),
      .init("count", \.count, range: 1...10_000_000, "How many events a window has."),
      .init(
        "step", \.step, range: 1...10_000_000,
        "The number of events from the start of one window to the next; `count` by default."),
      .init("gap", \.gap, range: span, "The pause that ends a session."),
      .init("inclusive", \.inclusive, "A pause of exactly `gap` does not end a session."),
      .init("maxLength", \.maxLength, range: span, "How long a session may last."),
      .init("time", \.time, "When an event happened."),
      .init("lateness", \.lateness, range: 0...(1 << 60), "How far events may be out of order."),
      .init("idle", \.idle, range: span, "Close all windows after this time without events."),
      .init(
        "to", \.to, variables: [("events", .list(.dyn)), ("start", .timestamp), ("end", .timestamp)],
        "The value to send; the list of events by default."),
      .init(
        "aggregate", \.aggregate, variables: [("start", .timestamp), ("end", .timestamp)],
        "The figures to send in place of the list."),
      .init("empty", \.empty, "Send windows without events too."),
      .init(
        "max", \.bound, range: 1...10_000_000,
        """
        The largest number of events to keep; with `aggregate`, of sets of figures, and of different values in \
        each `countDistinct`.
        """
      ),
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
        "figures", "window: { every: 4ms, aggregate: { n: count(), top: max(event) } }", in: "-1-2---3-|",
        out: "----p---q|", values: ["p": "{n: 2, top: 2}", "q": "{n: 1, top: 3}"]),
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
      .marble(
        "a pause of exactly the gap", "window: { gap: 10s, inclusive: true, time: timestamp(event) }", in: "-abc-|",
        out: "---p-(q|)", values: ["a": "3", "b": "13", "c": "24", "p": "[3, 13]", "q": "[24]"]),
    ],
    edges: EdgeCases(
      empty: "Completes too; with `empty: true`, empty windows are sent until then.",
      error: "Passed on at once; open windows are dropped.",
      completion: "Sends the open windows, then completes.",
      disposal: "Unsubscribes from the input; open windows are dropped and the timer freed."),
    memory: """
      The events of the open windows, at most `max`, until these are sent; one timer while there are events \
      (`count`: none). A group of `groupBy` without open windows is discarded if its other steps have no state, such \
      as `map`, `filter` and `set`.
      """,
    persistence: .state(version: 2),
    lateness: .leavesOut("Windows that were due are dropped.") { window, value in
      if window.count != nil { return "it goes by number" }
      guard window.time.isGiven else { return nil }
      if window.idle == nil { return "it goes by the times of events" }
      return value == .skip ? "the events of an idle stream are complete, however late" : nil
    },
    knownAs: [
      "RxJS bufferTime, bufferCount, windowTime", "Flink and Kafka Streams windows", "Benthos windowing buffer",
      "Vector reduce",
    ],
    useCases: [
      .init(
        .gathering, "have figures for each minute",
        "window: { every: 1m, aggregate: { n: count(), ms: avg(event.ms) } }"),
      .init(.gathering, "see the last five minutes each minute", "window: { every: 1m, length: 5m }"),
      .init(.gathering, "collect the events of one session", "window: { gap: 30m }"),
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
      ("maxLength", maxLength != nil, "gap", gap != nil), ("inclusive", inclusive, "gap", gap != nil),
      ("empty", empty, "every", every != nil),
      ("lateness", lateness > .zero, "time", time.isGiven), ("idle", idle != nil, "time", time.isGiven),
    ]
    for (name, isGiven, other, hasOther) in needs where isGiven && !hasOther {
      conflict("'\(name)' of 'window' has no effect without '\(other)'", "Add '\(other)', or remove it")
    }
    if time.isGiven {
      for (name, isGiven) in [("count", count != nil), ("maxLength", maxLength != nil), ("empty", empty)] where isGiven
      {
        conflict("'\(name)' of 'window' cannot go with 'time'", "Remove one of them")
      }
    }
    if aggregate.isGiven, to.isGiven {
      conflict(
        "'aggregate' and 'to' of 'window' both say what to send",
        "Compute around the aggregates: 'aggregate: { n: count(), at: start }'")
    }
    if let count, count > bound {
      conflict(
        "'window' cannot fill windows of \(Printable.count(count, "event")) while it keeps \(bound)", "Raise 'max'")
    }
  }

  func outputType(_ inputs: [EventType]) -> EventType {
    if aggregate.isGiven { return EventType(aggregate.type) }
    return EventType(to.isGiven ? to.type : .list(inputs.first?.type ?? .dyn))
  }

  func makeStep() -> FusedStep { makeStep(Form(self)) }

  func makeStep(beside first: FusedStep) -> FusedStep { makeStep(unsafeDowncast(first, to: Step.self).form) }

  private func makeStep(_ form: Form) -> FusedStep {
    if time.isGiven { return EventTimeStep(form) }
    if count != nil { return CountStep(form) }
    return gap != nil ? SessionStep(form) : TimeStep(form)
  }

  /// The common data of all windows of one step of the plan.
  final class Form {
    let every: Int64
    let length: Int64
    let count: Int
    let step: Int
    /// With `inclusive` one nanosecond more, so that a pause is always shorter than this.
    let gap: Int64
    let maxLength: TimeSpan?
    let time: Program?
    let lateness: Int64
    let idle: TimeSpan?
    let builder: ValueBuilder?
    let figures: FiguresForm?
    /// With figures: the length of the parts, in time or events, of which windows are composed.
    let slice: Int64
    let sendsEmpty: Bool
    let bound: Int
    /// Whether the result depends only on the number of events: their values are then not kept.
    let countsOnly: Bool

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
      sendsEmpty = parameters.empty
      bound = parameters.bound
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

  /// The base of all kinds of windows.
  class Step: LateStep {
    /// The contents of a window to be sent.
    struct Content {
      var list = Value.null
      var figures: Figures?
    }

    /// An event with the time that counts for its window, or the figures of several events of one slice.
    struct Kept {
      /// In nanoseconds, of the monotonic clock or of event time since 1970.
      var at: Int64
      /// Nanoseconds since 1970, for `start` and `end`.
      var wall: Int64
      var event: HeldValue
      /// Set instead of the event; `wall` is then the time of the newest event, and `at` that of any event of the
      /// slice, for sessions of the oldest.
      var figures: Figures?
    }

    final let form: Form
    // Steps run on one thread at a time, and no access outlasts a call of the container.
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
      guard state.version >= 2 else { throw StateFault("an older version of rxd wrote it in another form") }
      for _ in 0..<(try state.count()) {
        let at = isMonotonic ? try state.read(Instant.self).nanoseconds : try state.read(Int64.self)
        let wall: Int64 = try state.read()
        let event: OwnedValue = try state.read()
        // The copy is made before the value that was read is freed.
        withExtendedLifetime(event) { kept.append(Kept(at: at, wall: wall, event: HeldValue(event.value))) }
        guard let form = form.figures else { continue }
        let figures = Figures(form)
        kept[kept.count - 1].figures = figures
        try figures.restore(&state)
      }
    }

    /// The number of events kept or counted.
    final var eventCount: Int {
      form.figures == nil ? kept.count : kept.reduce(0) { $0 + ($1.figures?.events ?? 0) }
    }

    // MARK: Figures

    /// Evaluates an event for the figures, if any; returns the verdict if they cannot count it.
    final func evaluate(_ event: Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict? {
      guard let figures = form.figures, let refusal = figures.evaluate(frame) else { return nil }
      return refused(event, refusal, frame, run)
    }

    /// Counts the evaluated event in the figures at `index`, or in new figures inserted there; returns the verdict if
    /// that is impossible.
    final func count(
      _ event: Event, in index: Int, isNew: Bool, at: Int64, wall: Int64, _ frame: EventFrame, _ run: FusedRun
    ) -> StepVerdict? {
      guard let form = form.figures else { return nil }
      let figures = isNew ? Figures(form) : kept[index].figures ?? Figures(form)
      if let refusal = figures.add(frame, at: at) { return refused(event, refusal, frame, run) }
      if isNew {
        kept.insert(Kept(at: at, wall: wall, event: HeldValue(.null), figures: figures), at: index)
      } else {
        kept[index].wall = max(kept[index].wall, wall)
      }
      return nil
    }

    /// The events in this range, as a list that lives until the end of the turn, or their figures.
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
      for (index, entry) in kept[range].enumerated() { target[index] = entry.event.value }
      return Content(list: Value(kind: .list, pointer: target.baseAddress, length: range.count))
    }

    /// Removes the first events; sent values stay valid until the end of the turn.
    final func removeFirst(_ count: Int) {
      guard count > 0 else { return }
      let arena = run.arena
      for entry in kept.prefix(count) { entry.event.free(after: arena) }
      if count == kept.count { kept.removeAll(keepingCapacity: count <= 64) } else { kept.removeFirst(count) }
    }

    /// The verdict if there is no room for another event, which has then been rejected.
    final func refusal(of event: Event, _ run: FusedRun) -> StepVerdict? {
      if kept.count < form.bound { return nil }
      run.rejectRow(event, .limitReached, "window has \(Printable.count(kept.count, "event")), its limit `max`")
      return .gone
    }

    /// Sends a window; state must be consistent before.
    final func send(_ content: Content, from start: Int64, to end: Int64) {
      if form.builder == nil, content.figures == nil {
        send(content.list)
        return
      }
      let frame = frame
      var nothing = Event(.null)
      nothing.key = chain.key
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
        if failed(nothing, value, failing.takeUnretainedValue(), frame, run) == .pass {
          send(.null)
        } else {
          countMade()
        }
        return
      }
      send(value.is(.optional) ? value.wrapped ?? .null : value)
    }

    override var isFresh: Bool { kept.isEmpty }

    override func stopped() { removeFirst(kept.count) }
  }

  /// Windows by number.
  final class CountStep: Step {
    /// How many events to skip before the next window starts.
    private var skipped = 0
    /// How many events came since the last window was sent.
    private var fresh = 0
    /// How many events are kept or counted.
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
      } else {
        kept.append(Kept(at: 0, wall: wall, event: form.held(event)))
      }
      fresh += 1
      held += 1
      if held == form.count { flush() }
      return .keep
    }

    private func flush() {
      guard let first = kept.first, let last = kept.last else { return }
      let events = content(0..<kept.count)
      let count = held
      fresh = 0
      held = max(0, count - form.step)
      if form.step >= count { skipped = form.step - count }
      removeFirst(form.step >= count ? kept.count : form.figures == nil ? form.step : form.step / Int(form.slice))
      send(events, from: first.wall, to: last.wall)
    }

    override func complete(_ run: FusedRun) -> Value? {
      if fresh > 0 { flush() }
      return nil
    }

    override func save(_ state: inout StateWriter) {
      saveKept(&state, isMonotonic: false)
      state.write(skipped)
      state.write(fresh)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try restoreKept(&state, isMonotonic: false)
      skipped = try state.read(in: 0...form.step)
      fresh = try state.read(in: 0...form.count)
      held = eventCount
      guard held < form.count else { throw StateFault("there are too many events") }
    }
  }

  /// Windows by pipeline time.
  final class TimeStep: Step {
    private var origin: Int64 = 0
    /// Set while there are events, and always with `empty`.
    private var timer = Wake.none
    /// The end of the window that the timer is for.
    private var end: Int64 = 0
    /// How many events came since the last window was sent.
    private var fresh = 0

    override var isFresh: Bool { kept.isEmpty && !timer.isSet }

    override func attached() { origin = (run.nodeContext.scope.time?.origin ?? now).nanoseconds }

    /// The first end of a window after this instant.
    private var nextEnd: Int64 { origin &+ ((now.nanoseconds &- origin) / form.every &+ 1) &* form.every }

    override func started() { if form.sendsEmpty { setTimer(nextEnd) } }

    private func setTimer(_ end: Int64) {
      self.end = end
      timer = wake(at: Instant(nanoseconds: end))
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      // The timer of this very instant may still be due.
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
        kept.append(Kept(at: at, wall: wall, event: form.held(event)))
      }
      fresh += 1
      if !timer.isSet { setTimer(nextEnd) }
      return .keep
    }

    override func timeCame(_ token: Int) { close() }

    /// Goes on at the first window that ends after the start.
    override func timeSkipped(_ token: Int, _ late: Lateness) {
      cancelWake(&timer)
      while end <= late.restored.nanoseconds {
        let window = window(end)
        if form.sendsEmpty || !window.isEmpty { countSkipped() }
        removeFirst(kept.firstIndex { $0.at >= end &+ form.every &- form.length } ?? kept.count)
        // Windows without events need no round each.
        let rounds = kept.isEmpty ? (late.restored.nanoseconds &- end) / form.every : 0
        end = end &+ (rounds &+ 1) &* form.every
      }
      fresh = eventCount
      if form.sendsEmpty || !kept.isEmpty { setTimer(end) }
    }

    private func close(before event: Event, _ frame: EventFrame) {
      close()
      // The sent window has loaded the frame without an event.
      if form.figures != nil { _ = frame.load(event) }
    }

    /// The range of the events of the last `length` before `end`.
    private func window(_ end: Int64) -> Range<Int> {
      let first = kept.firstIndex { $0.at >= end &- form.length } ?? kept.count
      let last = kept.lastIndex { $0.at < end }.map { $0 + 1 } ?? 0
      return first..<max(first, last)
    }

    /// Ends the window and starts the next.
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

    override func complete(_ run: FusedRun) -> Value? {
      guard fresh > 0 else { return nil }
      let window = kept.firstIndex { $0.at >= end &- form.length }.map { $0..<kept.count } ?? 0..<0
      let events = content(window)
      let wall = run.executor.wallTime &+ (end &- now.nanoseconds)
      fresh = 0
      removeFirst(kept.count)
      if !window.isEmpty { send(events, from: wall &- form.length, to: wall) }
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

  /// Windows by pauses.
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
      // The timers of this very instant may still be due.
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
        kept.append(Kept(at: now.nanoseconds, wall: wall, event: form.held(event)))
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

    /// The timer is not moved for each event; a timer that fires too early is set again.
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
      // The sent window has loaded the frame without an event.
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
