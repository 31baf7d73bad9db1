/// `eventTime`: gives events their time; `time` beside a source or a signal is this step at its start.
struct EventTimeStep: OperatorComponent, TimedOperator {
  var time = ExpressionParameter()
  var lateness = TimeSpan.zero
  var idle: TimeSpan?
  var maxAhead: TimeSpan?
  /// Whether its input waits for others, rather than being read as a whole. Set by the compiler.
  var isLive = false

  /// The options of a source or signal that are parameters of this step.
  static let options = ReservedKeys.eventTime
  /// How far ahead of the clock events of live sources may be by default.
  private static let standardMaxAhead = TimeSpan.seconds(86_400)

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
      goes on with its other inputs. An event that is more than `maxAhead` ahead of the clock goes to the errors \
      output and does not move the watermark, and the first one is logged.
      """,
    parameters: [
      .init("time", \.time, primary: true, required: true, "When an event happened: a timestamp, or RFC 3339 text."),
      .init("lateness", \.lateness, range: 0...(1 << 60), "How far events may be out of order."),
      .init(
        "idle", \.idle, range: 1...(1 << 60), "After how long without events the signal holds nothing up."),
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
    memory: "The time of the newest event; with `idle`, one timer.", persistence: .state(version: 1),
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
    /// The time of the newest event.
    @exclusivity(unchecked) private var newest = EventTime.unknown
    @exclusivity(unchecked) private var isIdle = false
    /// When the last event came; before any, the subscription.
    @exclusivity(unchecked) private var last: Instant
    /// Set only with `idle`, while the signal is not idle.
    @exclusivity(unchecked) private var timer = Wake.none
    private var hasWarned = false

    init(_ parameters: EventTimeStep, _ nodeContext: NodeContext, _ downstream: Downstream) {
      program = parameters.time.required
      lateness = parameters.lateness.nanoseconds
      idle = parameters.idle
      let standard =
        parameters.isLive && nodeContext.execution.settings.boundsEventTime ? EventTimeStep.standardMaxAhead : nil
      maxAhead = (parameters.maxAhead ?? standard)?.nanoseconds
      last = nodeContext.execution.executor.now
      super.init(nodeContext, downstream: downstream)
    }

    /// No event earlier than this is waited for.
    private var watermark: Int64 { newest == EventTime.unknown ? newest : newest &- lateness }

    override func start() {
      // An input that never sends anything holds nothing up either.
      if let idle { timer = wake(after: idle) }
      super.start()
    }

    override func receive(_ event: Event) {
      guard let value = evaluate(program, event, frame) else { return }
      guard let time = EventTime.nanoseconds(value) ?? Self.parsed(value) else { return refuse(event, value) }
      if let maxAhead, time &- executor.wallTime > maxAhead { return refuse(event, ahead: time &- executor.wallTime) }
      if let idle {
        last = now
        if !timer.isSet { timer = wake(after: idle) }
      }
      executor.withEventTime(time) { emit(event) }
      guard !isClosed, time > newest || isIdle else { return }
      newest = max(newest, time)
      isIdle = false
      sendAdvance(to: watermark)
    }

    /// The watermark of the input gives way to the one of this step.
    override func advance(to time: Int64) {}

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
      let message =
        "the event's time is \(TimeSpan(nanoseconds: ahead)) ahead of the clock, more than 'maxAhead', \(TimeSpan(nanoseconds: maxAhead ?? 0))"
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
      guard let idle else { return }
      guard last + idle <= now else {
        timer = wake(at: last + idle)
        return
      }
      isIdle = true
      sendAdvance(to: EventTime.idle)
    }

    override func skipped(_ token: Int, _ late: Lateness) {
      last = late.restored
      woke(token)
    }

    /// An input that only waits holds up no stop.
    override var mayGoOn: Bool { !execution.isStopping }

    override func stop() { cancelWake(&timer) }

    override func save(_ state: inout StateWriter) {
      state.write(newest)
      state.write(isIdle)
      state.write(last)
      state.write(timer)
      state.write(hasWarned)
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
    }

    /// Steps downstream do not save what their inputs have sent.
    override func restored() {
      guard isIdle || newest != EventTime.unknown else { return }
      execution.whenWired { [self] in sendAdvance(to: isIdle ? EventTime.idle : watermark) }
    }
  }
}
