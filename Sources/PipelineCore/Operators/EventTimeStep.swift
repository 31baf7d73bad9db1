/// `eventTime`: assigns event times to events; `time` alongside a source or a signal is this step at its start.
struct EventTimeStep: OperatorComponent, TimedOperator {
  var time = ExpressionParameter()
  var lateness = TimeSpan.zero
  var idle: TimeSpan?
  var maxAhead: TimeSpan?
  /// Whether its input waits for others, rather than being read as a whole. Set by the compiler.
  var isLive = false

  /// The options of a source or signal that are parameters of this step.
  static let options = ReservedKeys.eventTime
  /// The default for how far ahead of the clock events of live sources may be.
  private static let standardMaxAhead = TimeSpan.seconds(86_400)
  /// The default time without events after which a file or connection of a live source no longer holds back the
  /// watermark.
  private static let standardPartIdle = TimeSpan.seconds(60)

  var timing: Timing { .begins }

  var timeNote: String? {
    let bound = maxAhead ?? (isLive ? Self.standardMaxAhead : nil)
    return "event time begins here: the watermark is the time of the newest event"
      + (lateness > .zero ? " less \(lateness)" : "") + (idle.map { ", idle after \($0)" } ?? "")
      + (bound.map { ", at most \($0) ahead of the clock" } ?? "")
  }

  static let spec = ComponentSpec<EventTimeStep>(
    "eventTime",
    summary: "Gives the events a time of their own, by which steps downstream go.",
    details: """
      `time` beside a source or a signal is this step at its start; as a step it serves where the time is known only \
      after other steps. The **watermark** is the time of the newest event, less `lateness`: the signal waits for no \
      earlier event. It travels with the events, and windows downstream close when it has reached their ends: see \
      [event time](../../event-time.md).

      With `idle`, a signal that has had no event for that time holds nothing up: what is open closes, and a `merge` \
      goes on with its other inputs. Of a source that reads several files or connections, the watermark is that of the \
      one that is furthest behind. An event that is more than `maxAhead` ahead of the clock goes to the errors \
      output and does not move the watermark, and the first one is logged.
      """,
    parameters: [
      .init("time", \.time, primary: true, required: true, "When an event happened: a timestamp, or RFC 3339 text."),
      .init("lateness", \.lateness, range: 0...(1 << 60), "How far events may be out of order."),
      .init(
        "idle", \.idle, range: 1...(1 << 60),
        """
        After how long without events the signal holds nothing up, and a file or connection does not hold up the \
        others; the latter is `1m` by default for what is not read once.
        """),
      .init(
        "maxAhead", \.maxAhead, range: 0...(1 << 60),
        """
        How far ahead of the clock events may be; `1d` by default, and unlimited for what is read once, such as a file \
        without `follow`. In tests of a pipeline the default needs `now`.
        """),
    ],
    examples: [
      .marble(
        "a window by it", "eventTime: timestamp(event)", in: "-abc-|", out: "-abc-|",
        values: ["a": "3", "b": "12", "c": "7"]),
      .marble(
        "too far ahead", "eventTime: { time: timestamp(event), maxAhead: 1h }", in: "-ab-|", out: "-a--|",
        values: ["a": "1767225600", "b": "1767312000"]),
    ],
    edges: EdgeCases(
      completion: "Everything that waits for its time is sent, the earliest first; then it is passed on.",
      disposal: "Unsubscribes from the input and frees its timer."),
    memory: "The time of the newest event, and of each file and connection that is open; one timer.",
    persistence: .state(version: 2),
    lateness: .leavesOut("An idle signal is noticed only after the restart.") { step, value in
      step.idle == nil || value == .skip ? "it keeps no time that could be left out" : nil
    },
    knownAs: ["Flink assignTimestampsAndWatermarks", "Beam WithTimestamps", "RisingWave WATERMARK FOR"],
    useCases: [
      .init(.time, "go by the time in the events, across several sources and steps", "eventTime: event.at"),
      .init(
        .time, "bound how far a wrong clock can put events ahead", "eventTime: { time: event.at, maxAhead: 5m }"),
    ],
    seeAlso: ["window", "merge", "groupBy"])

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let program: Program
    private lazy var frame = makeFrame()
    private let lateness: Int64
    private let idle: TimeSpan?
    private let maxAhead: Int64?
    /// The time without events after which a part of the input no longer holds back the watermark; nil: never.
    private let partIdle: TimeSpan?
    private let parts = PartMarks()
    /// The time of the newest event.
    @exclusivity(unchecked) private var newest = EventTime.unknown
    /// The last watermark sent. It may be lower than the newest event's, because a part of the input lags behind.
    @exclusivity(unchecked) private var sent = EventTime.unknown
    @exclusivity(unchecked) private var isIdle = false
    /// The arrival time of the last event; before the first, the time of the subscription. Excludes pauses, as
    /// ``unpaused`` does.
    @exclusivity(unchecked) private var last: Instant
    /// Set only with `idle` or parts, while something may become idle.
    @exclusivity(unchecked) private var timer = Wake.none
    private var hasWarned = false

    init(_ parameters: EventTimeStep, _ nodeContext: NodeContext, _ downstream: Downstream) {
      program = parameters.time.required
      lateness = parameters.lateness.nanoseconds
      idle = parameters.idle
      partIdle = parameters.idle ?? (parameters.isLive ? EventTimeStep.standardPartIdle : nil)
      let standard =
        parameters.isLive && nodeContext.execution.settings.boundsEventTime ? EventTimeStep.standardMaxAhead : nil
      maxAhead = (parameters.maxAhead ?? standard)?.nanoseconds
      last = nodeContext.execution.executor.now
      super.init(nodeContext, downstream: downstream)
      last = unpaused
    }

    /// The time without pauses of the input: silence while the input is paused does not count.
    private var unpaused: Instant { now + TimeSpan(nanoseconds: -executor.timePaused(until: now).nanoseconds) }

    /// No event earlier than this is waited for.
    private var watermark: Int64 { sent == EventTime.unknown ? sent : sent &- lateness }

    override func start() {
      // An input that never sends anything holds nothing up either.
      if let idle { timer = wake(after: idle) }
      super.start()
    }

    override func receive(_ event: Event) {
      let mark = parts.mark(of: event, at: last)
      guard let value = evaluate(program, event, frame) else { return }
      guard let time = EventTime.nanoseconds(value) ?? Self.parsed(value) else { return refuse(event, value) }
      if let maxAhead, time &- executor.wallTime > maxAhead { return refuse(event, ahead: time &- executor.wallTime) }
      if let span = mark == nil ? idle : partIdle {
        last = unpaused
        if !timer.isSet { timer = wake(after: span) }
      }
      executor.withEventTime(time) { emit(event) }
      if isClosed { return }
      newest = max(newest, time)
      if let mark { parts.came(time, of: mark, at: last) }
      advance()
    }

    /// Sends the watermark, if it has moved.
    @inline(__always)
    private func advance() {
      let behind = parts.isEmpty ? nil : parts.behind()
      counters.pointee.behind = behind.flatMap { $0.newest < newest ? .passUnretained($0.part) : nil }
      let next = behind?.newest ?? newest
      guard next > sent || isIdle else { return }
      isIdle = false
      sent = max(sent, next)
      sendAdvance(to: watermark)
    }

    /// The watermark of this step replaces that of the input.
    override func advance(to time: Int64) {}

    override func note(_ change: InputPart.Change, of part: InputPart) {
      switch change {
      case .opened(let isBehind):
        parts.opened(part, isBehind: isBehind, at: unpaused)
        if let partIdle, !timer.isSet { timer = wake(after: partIdle) }
      case .ended: parts.ended(part)
      }
      // A silent signal stays silent until an event arrives.
      if !isIdle { advance() }
      super.note(change, of: part)
    }

    private static func parsed(_ value: Value) -> Int64? {
      guard value.is(.string), let time = TimeText.timestamp(value.rawBytes) else { return nil }
      return EventTime.nanoseconds(.timestamp(seconds: time.seconds, nanoseconds: time.nanoseconds))
    }

    @inline(never)
    private func refuse(_ event: Event, _ value: Value) {
      let message =
        value.is(.timestamp)
        ? "the time of the event is not between 1824 and 2116"
        : value.is(.string)
          ? "the time of the event is not RFC 3339 text, such as 2026-01-31T12:00:00Z"
          : "the time of the event must be a timestamp, not \(value.kindName)"
      reject(event, .unexpectedValue, message)
    }

    @inline(never)
    private func refuse(_ event: Event, ahead: Int64) {
      let shown = TimeSpan(nanoseconds: ahead >= 10_000_000_000 ? ahead / 1_000_000_000 * 1_000_000_000 : ahead)
      let bound = TimeSpan(nanoseconds: maxAhead ?? 0)
      let message = "the event's time is \(shown) ahead of the clock, more than 'maxAhead', \(bound)"
      if !hasWarned {
        hasWarned = true
        let step = execution.plan.steps[nodeContext.step.number]
        execution.services.log(
          .warning, step.label, "\(step.location): \(message); such events go to the errors output")
      }
      reject(event, .unexpectedValue, message)
    }

    /// The timer is not moved for each event; when it fires too early, it is set again.
    override func woke(_ token: Int) {
      timer = .none
      let now = unpaused
      parts.forgetUnseen()
      var next = partIdle.flatMap { parts.leaveOut(silentFor: $0, at: now) }
      if let idle, !isIdle {
        let end = last + idle
        if end <= now {
          isIdle = true
          sendAdvance(to: EventTime.idle)
        } else {
          next = min(next ?? end, end)
        }
      }
      if let next { timer = wake(after: next - now) }
      if !isIdle { advance() }
    }

    override func skipped(_ token: Int, _ late: Lateness) {
      last = late.restored
      timer = .none
      woke(token)
    }

    /// An input that only waits holds up no stop.
    override var mayGoOn: Bool { !execution.isStopping }

    override func stop() {
      cancelWake(&timer)
      counters.pointee.behind = nil
    }

    override func save(_ state: inout StateWriter) {
      state.write(newest)
      state.write(isIdle)
      state.write(last + executor.timePaused(until: now))
      state.write(timer)
      state.write(hasWarned)
      state.write(sent)
      parts.save(&state)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      newest = try state.read()
      guard newest == EventTime.unknown || EventTime.range.contains(newest) else {
        throw StateFault("the time of an event is out of range")
      }
      isIdle = try state.read()
      last = try state.read()
      timer = try state.read()
      hasWarned = try state.read()
      sent = newest
      if state.version >= 2 {
        sent = try state.read()
        guard sent == EventTime.unknown || EventTime.range.contains(sent), sent <= newest else {
          throw StateFault("the watermark is ahead of all events")
        }
        try parts.restore(&state, at: unpaused)
      }
    }

    /// Steps downstream do not save what their inputs have sent.
    override func restored() {
      if !parts.isEmpty, !timer.isSet { timer = wake(after: partIdle ?? EventTimeStep.standardPartIdle) }
      guard isIdle || sent != EventTime.unknown else { return }
      execution.whenWired { [self] in sendAdvance(to: isIdle ? EventTime.idle : watermark) }
    }
  }
}
