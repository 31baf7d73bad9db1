/// `window`: lists of events that belong together by time or by number.
struct Window: FusableOperator, TimedOperator, ChangingOperator {
  var every: TimeSpan?
  var timezone: String?
  var length: TimeSpan?
  var count: Int?
  var step: Int?
  var gap: TimeSpan?
  var inclusive = false
  var maxLength: TimeSpan?
  var time = ExpressionParameter()
  var byClock = false
  /// Whether the window uses the event time of the stream; set when it is bound.
  private(set) var followsStream = false
  var lateness = TimeSpan.zero
  var idle: TimeSpan?
  var to = MappingParameter()
  var aggregate = FiguresParameter()
  var emit: EmitParameter?
  var allowedLateness: TimeSpan?
  /// Whether rows of its input are taken back; set when it is bound.
  private(set) var takesBack = false
  var empty = false
  var bound = 100_000

  static let changesValue = true
  var sendsLater: Bool { true }
  var endsByTime: Bool { count == nil }

  /// Spans of event time are limited to about 36 years, so that sums of spans and times cannot overflow.
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
      times. Windows of `every` start at multiples of it since 1970, also those with another `length`. With `timezone`, a window of `every: 1d` is a day \
      of that zone, which has 23 or 25 hours where clocks are set. A window closes when an event comes whose time \
      is `lateness` past its end; until then events may come in any order, and are sent in the order of their times. \
      An event whose windows are all closed goes to the errors output. With `idle`, all windows close after that \
      time without events.

      **Event time of the stream**: without `time`, a window of `every` or `gap` goes by the time that `time` beside \
      a source or signal gives its events, if one does: see [event time](../../event-time.md). It then closes when the \
      watermark has reached its end. With `clock` it goes by the clock nevertheless.

      **In `groupBy`** the groups are parts of one stream. An event of any group closes the windows of all groups \
      that end before its time, the earliest first, and the time of the stream decides whether an event is late. \
      Windows in pipeline time start together, counted from the subscription of `groupBy`. `idle` applies to each \
      group.

      **Figures**, `aggregate`: instead of the list, what [aggregate](aggregate.md) computes of the events: `{ n: \
      count(), top: max(event.price), at: start }`; the expressions around the aggregates may use `start` and `end`. \
      Events are then not kept: a window takes the memory of its figures. Sliding windows are composed of parts as \
      long as the common divisor, so 5 minutes every minute keep five sets of figures.

      **When results are sent**: by default when the window closes. With `emit: { early: 10s }` also before, that long after a change; with `emit: update` each time the \
      result changes, with `{ update: 1s }` at most once a second. With `allowedLateness`, a window by event time takes late events for that long after it has \
      closed, and each sends a correction (with `update`, at most once in that time). Each row says which it is: `meta.pane` is `early`, `on-time` or `late`, and `meta.replaces` whether a \
      row of the same window was sent before, whose place it takes. Windows by number have no such key: the earlier row is sent again with `meta.retracts`, then \
      the new one. A window without events is sent only when it closes. See [results that change](../../event-time.md#results-that-change).

      The event is the list, or the result of `to` for `events`, `start` and `end` (by number and by session: the \
      times of the first and the last event). Completion sends the open windows, also those that overlap, the \
      earliest first; of windows that slide by the clock only the next, because later ones would repeat a part of it, but \
      with `emit` all, because their rows may have been sent. An error drops them. An event beyond `max` goes to the errors output.
      """,
    parameters: [
      .init("every", \.every, primary: true, range: span, "The time from one window to the next."),
      .init(
        "length", \.length, range: span, applies: .with("every"),
        "How long a window is; as long as `every` if left out."),
      .init(
        "timezone", \.timezone, applies: .with("every"),
        "By event time: the time zone whose days the windows are, an IANA name; `every` is a number of days then."),
      .init("count", \.count, range: 1...10_000_000, "How many events a window has."),
      .init(
        "step", \.step, range: 1...10_000_000,
        applies: .with("count"), "The number of events from the start of one window to the next; `count` by default."),
      .init("gap", \.gap, range: span, "The pause that ends a session."),
      .init("inclusive", \.inclusive, applies: .with("gap"), "A pause of exactly `gap` does not end a session."),
      .init("maxLength", \.maxLength, range: span, applies: .with("gap"), "How long a session may last."),
      .init(
        "time", \.time,
        "When an event happened; by default, the time that its source gives it, or else that of its arrival."),
      .init("clock", \.byClock, "Go by the clock, although the events have a time."),
      .init(
        "lateness", \.lateness, range: 0...(1 << 60), applies: .with("time"), "How far events may be out of order."),
      .init("idle", \.idle, range: span, applies: .with("time"), "Close all windows after this time without events."),
      .init(
        "to", \.to, variables: [("events", .list(.dyn)), ("start", .timestamp), ("end", .timestamp)],
        typing: { _, event in ["events": .list(event)] },
        "The value to send; the list of events by default."),
      .init(
        "aggregate", \.aggregate, variables: [("start", .timestamp), ("end", .timestamp)],
        "The figures to send in place of the list."),
      .init("emit", \.emit, "When results are sent."),
      .init(
        "allowedLateness", \.allowedLateness, range: 1...(1 << 60),
        "By event time: for how long after its end a window takes late events, which correct what was sent."),
      .init("empty", \.empty, applies: .with("every"), "Send windows without events too."),
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
        "by number", "window: { count: 3, step: 1 }", in: "-1-2-3-4-|", out: "-----p-q-(rs|)",
        values: ["p": "[1, 2, 3]", "q": "[2, 3, 4]", "r": "[3, 4]", "s": "[4]"]),
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
      .marble(
        "each change, and a late event",
        "window: { every: 10s, time: timestamp(event), allowedLateness: 1m, aggregate: sum(event), emit: update }",
        in: "-abcd-|", out: "-pqrs-|",
        values: ["a": "3", "b": "4", "c": "12", "d": "6", "p": "3", "q": "7", "r": "12", "s": "13"]),
      .marble(
        "before the end", "window: { every: 9ms, to: size(events), emit: { early: 2ms } }", in: "-a-b---c-|",
        out: "---2-----(3|)"),
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
      if window.followsStream { return "it goes by the times of events" }
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
        .time, "count per day of a time zone, also where clocks are set",
        "window: { every: 1d, timezone: Europe/Berlin, time: timestamp(event.at), aggregate: { day: start, n: count() } }"
      ),
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
          : "'window' works by time, by number or by session, not by several of them",
        "Write 'window: 1m', 'window: { count: 100 }' or 'window: { gap: 30s }'")
      return
    }
    if byClock, time.isGiven || count != nil {
      conflict(
        "'clock' of 'window' cannot go with '\(time.isGiven ? "time" : "count")'", "Remove one of them")
    }
    if time.isGiven {
      for (name, isGiven) in [("count", count != nil), ("maxLength", maxLength != nil), ("empty", empty)] where isGiven
      {
        conflict("'\(name)' of 'window' cannot be combined with 'time'", "Remove one of them")
      }
    }
    if count != nil || maxLength != nil || empty {
      let other = count != nil ? "count" : maxLength != nil ? "maxLength" : "empty"
      if allowedLateness != nil {
        conflict("'allowedLateness' of 'window' cannot go with '\(other)'", "Remove one of them")
      }
    }
    if count != nil, emit?.pairs == true {
      conflict(
        "'pairs' of 'window' has no effect with 'count': a row always retracts the earlier one, because windows by number have no key",
        "Remove it")
    }
    if let timezone, every != nil {
      if !CronSchedule.isTimeZone(timezone) {
        context.badValue(
          at: context.node(of: "timezone")?.location ?? context.location, "there is no time zone '\(timezone)'",
          help: "Use a name such as Europe/Berlin or UTC")
      } else if days < 1 {
        conflict("'timezone' of 'window' needs 'every' in whole days", "Write 'every: 1d', or remove 'timezone'")
      } else if length != nil {
        conflict("'timezone' of 'window' cannot go with 'length'", "Remove one of them")
      }
    }
    if aggregate.isGiven, to.isGiven {
      conflict(
        "'aggregate' and 'to' of 'window' exclude each other",
        "Compute around the aggregates: 'aggregate: { n: count(), at: start }'")
    }
    if let count, count > bound {
      conflict(
        "'window' cannot fill windows of \(Printable.count(count, "event")) while it keeps \(bound)", "Raise 'max'")
    }
  }

  mutating func bind(_ binder: inout Binder) {
    bindTime(&binder)
    takesBack = binder.inputs.first?.changes == .pairs && understands(.pairs)
    if takesBack { aggregate.checkTakingBack(&binder) }
    guard !goesByEvents, count == nil else { return }
    // With these, it has been reported already that nothing is late.
    let hasReported = maxLength != nil || empty
    for (name, isWrong) in [
      ("allowedLateness", allowedLateness != nil && !hasReported), ("timezone", timezone != nil),
    ] where isWrong {
      binder.diagnostics.report(
        Diagnostic(
          .conflictingParameters, "'\(name)' of 'window' needs event time", at: binder.location,
          help: "Give the events a time: 'time: event.at' at the source or in 'window'"))
    }
  }

  private var goesByEvents: Bool { time.isGiven || followsStream }

  /// With `timezone`, how many days a window has; 0: not whole days.
  var days: Int64 {
    let (days, rest) = (every?.nanoseconds ?? 1).quotientAndRemainder(dividingBy: TimeSpan.seconds(86_400).nanoseconds)
    return rest == 0 ? days : 0
  }

  private mutating func bindTime(_ binder: inout Binder) {
    guard !time.isGiven, !byClock, count == nil, let input = binder.inputs.first else { return }
    followsStream = input.isTimed
    if followsStream {
      for (name, isGiven) in [("maxLength", maxLength != nil), ("empty", empty)] where isGiven {
        binder.diagnostics.report(
          Diagnostic(
            .conflictingParameters, "'\(name)' of 'window' cannot go with the event time of the stream",
            at: binder.location, help: "Remove it, or write 'clock: true' for a window by the clock"))
      }
    }
    binder.warnOfLostTime("window")
  }

  var timeNote: String? {
    followsStream ? "closes by the event time of the stream, when the watermark has reached its end" : nil
  }

  var timing: Timing { followsStream ? .passes : .ends }

  func outputType(_ inputs: [EventType]) -> EventType {
    if aggregate.isGiven { return EventType(aggregate.type) }
    return EventType(to.isGiven ? to.type : .list(inputs.first?.type ?? .dyn))
  }

  func makeStep() -> FusedStep { makeStep(Form(self)) }

  func makeStep(beside first: FusedStep) -> FusedStep {
    makeStep(
      !hasPanes
        ? unsafeDowncast(first, to: Step.self).form
        : count != nil
          ? unsafeDowncast(first, to: CountPaneStep.self).form : unsafeDowncast(first, to: PaneStep.self).form)
  }

  func changes(_ input: Changes) -> Changes {
    let changes = emit.changes(corrected: allowedLateness != nil)
    return changes == .rows && count != nil ? .pairs : changes
  }

  func understands(_ input: Changes) -> Bool {
    input == .pairs && count == nil && maxLength == nil && !empty && aggregate.isGiven && gap == nil
      && (goesByEvents || length.map { $0 == every } ?? true)
  }

  /// Whether its windows are sent more than once, or lose events again.
  private var hasPanes: Bool { emit != nil || allowedLateness != nil || takesBack }

  private func makeStep(_ form: Form) -> FusedStep {
    if hasPanes, count != nil { return CountPaneStep(form) }
    if hasPanes { return PaneStep(form, byClock: !goesByEvents) }
    if time.isGiven || followsStream { return EventTimeStep(form) }
    if count != nil { return CountStep(form) }
    return gap != nil ? SessionStep(form) : TimeStep(form)
  }
}
