/// `join`: pairs of events of two signals that belong together by key and time.
struct Join: OperatorComponent, TimedOperator, ChangingOperator, SpillingOperator {
  enum Unmatched: String, ChoiceParameter {
    case drop, left, right, full
    var help: String {
      switch self {
      case .drop: "it is dropped"
      case .left: "`event` is sent with null in place of `other`, as soon as no partner can come; `other` is dropped"
      case .right: "`other` is sent with null in place of `event`, as soon as no partner can come; `event` is dropped"
      case .full: "both are sent"
      }
    }

    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Unmatched? {
      if let scalar = node.scalar, scalar.string == "send" {
        context.diagnostics.report(.renamed(scalar, to: left.rawValue, of: "'unmatched' of '\(context.component)'"))
        return .left
      }
      let known = allCases.map(\.rawValue)
      guard let text = context.word(node, among: known) else { return nil }
      if let value = Unmatched(rawValue: text) { return value }
      if node.scalar?.isPlaceholder == true { return .drop }
      context.unknownWord(text, at: node, among: known)
      return nil
    }

    var sendsLeft: Bool { self == .left || self == .full }
    var sendsRight: Bool { self == .right || self == .full }
  }

  /// How far apart two paired events may be.
  struct Bounds: ParameterValue {
    /// How much earlier than `event` the other one may be, and how much later.
    var before = TimeSpan.zero
    var after = TimeSpan.zero

    /// The limit in event time, about 36 years, so that sums of spans and times cannot overflow.
    fileprivate static let longestByTime = Int64(1) << 60

    private struct Sides: RecordParameter {
      var before = TimeSpan.zero
      var after = TimeSpan.zero
      static var fields: [RecordField<Sides>] {
        [
          .init("before", \.before, range: 0...Int64.max, "How much earlier than `event` the other event may be."),
          .init("after", \.after, range: 0...Int64.max, "How much later than `event` the other event may be."),
        ]
      }
    }

    static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .oneOf([.duration, Sides.shape(range: nil)]) }

    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Bounds? {
      var bounds = Bounds()
      if node.entries == nil {
        guard let span = TimeSpan.decode(node, &context) else { return nil }
        (bounds.before, bounds.after) = (span, span)
      } else {
        guard let sides = Sides.decode(node, &context) else { return nil }
        (bounds.before, bounds.after) = (sides.before, sides.after)
      }
      guard max(bounds.before, bounds.after).nanoseconds > 0 else {
        // A mapping with other keys has been reported.
        if node.entries == nil || node.entries?.isEmpty == true || node["before"] != nil || node["after"] != nil {
          context.badValue(node, "'within' of 'join' must be longer than 0")
        }
        return nil
      }
      return bounds
    }

    fileprivate var text: String {
      before == after ? "at most \(after) apart" : "the other event at most \(before) earlier and \(after) later"
    }
  }

  var signal = SignalParameter()
  /// Nil only with `asOf`.
  var within: Bounds?
  var asOf = false
  var key = ExpressionParameter()
  var otherKey = ExpressionParameter()
  var reduce = MappingParameter()
  var unmatched = Unmatched.drop
  var emit: EmitParameter?
  var byClock = false
  var limit = 1_000_000
  /// The event time of the input, if the join can use it.
  private var inputTime = EventType.Time.none
  private var isInGroup = false

  static let spec = ComponentSpec<Join>(
    "join",
    summary: "Sends a pair for each two events of two signals that have equal keys and are close in time.",
    details: """
      Two events are paired if `key` of the one equals `otherKey` of the other (without keys, all are) and not more \
      than `within` lies between them, whichever comes first; `within: { before: 5m, after: 1h }` lets the other \
      event be 5 minutes earlier to an hour later. The event is the list of both, or the result of `reduce` \
      for `event` and `other`. It completes when both signals have, or when no pair is possible any more; an error \
      of either ends it. When a pipeline is stopped, events whose partner could still have come are not sent as \
      unmatched; the log gives their number.

      **Event time**: where both signals have [event time](../../event-time.md), `join` goes by it. Events may come \
      in any order down to the watermark of their own signal, and the pairs do not depend on the speed at which the \
      signals are read. An event is kept until the watermark of the other signal has passed all partners that it can \
      have; at this moment it is sent as unmatched. An event earlier than the watermark of its own signal goes to the \
      errors output. A pair has the later of the two times, so joins and windows can follow. While one signal is \
      idle, `join` goes by the watermark of the other; when both are, what would be sent as unmatched is sent. With \
      `clock` it goes by the clock nevertheless: exactly `within` is then too late.

      **Versions of a table**, `asOf`: the other signal sends new versions of what belongs to a key, such as the rates \
      of currencies. Each event is paired with the newest version that is not later than the event, whatever comes \
      first. It waits until the watermark of the other signal has passed its time, or that signal is idle; a version \
      is kept until no event can need it. With `unmatched: left`, an event without a version is sent with null. When a pipeline is \
      stopped, events that wait are sent with the version known by then.

      **When unmatched events are sent**: by default once no partner can come. With `emit: update` at once, with \
      `emit: { early: 10s }` if no partner has come within 10 seconds of the clock. A partner that comes later takes \
      such a row back: the row is sent again with `meta.retracts`, then the pair. When no partner can come any more, \
      the row stays, and is not sent again. With `emit`, `meta.pane` says which result a row is: `early` for a row \
      that a partner can retract, and for its retraction, `on-time` for all others. The event times of a row and \
      its retraction are equal, and neither is late for a window. See \
      [results that change](../../event-time.md#results-that-change).

      **More signals**: a pair has event time, so a `join` behind a `join` adds a third signal.

      Each event is kept for `within`, so `limit` must be at least what one signal sends in that time: for two \
      files by the clock, the number of lines. By the clock, a kept event costs about 200 bytes beside its text. If more \
      come, the oldest go to the errors output; if that has no reader, the log has one warning and, at the end, their number.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The other signal."),
      .init(
        "within", \.within, range: 1...Int64.max, applies: .off("asOf"),
        """
        The largest time between two paired events: one for both directions, or `before` and `after`. Required without \
        `asOf`.
        """),
      .init("asOf", \.asOf, "Pair each event with the version of the other signal that was valid at its time."),
      .init("key", \.key, "The key of `event`."),
      .init(
        "otherKey", \.otherKey, variables: [("other", .dyn)], typing: { join, _ in ["other": join.signal.type] },
        "The key of `other`."),
      .init(
        "reduce", \.reduce, variables: [("other", .dyn)], typing: { $0.typesOfPairs($1) },
        "The result for `event` and `other`; without it, a list of both."),
      .init("unmatched", \.unmatched, "What happens to an event without a partner in the other signal."),
      .init("emit", \.emit, "When events without a partner are sent. Only with `unmatched`."),
      .init("clock", \.byClock, "Go by the clock, although the events of both signals have a time."),
      .init("limit", \.limit, range: 1...100_000_000, "The largest number of events to keep of each signal."),
    ],
    examples: [
      .marbles(
        "near in time", "{ from: a, chain: [ { join: { signal: b, within: 3ms } } ] }",
        in: ["a": "-1-----2-|", "b": "--x---y--|"], out: "--p----q-|", values: ["p": "[1, x]", "q": "[2, y]"]),
      .marbles(
        "by a key",
        """
        { from: a, chain: [ { join: { signal: b, within: 9ms, key: event.id, otherKey: other.of, \
        reduce: event.n + other.n } } ] }
        """, in: ["a": "-p-q---|", "b": "--u--v-|"], out: "--3--8-|",
        values: ["p": "{id: a, n: 1}", "q": "{id: b, n: 3}", "u": "{of: a, n: 2}", "v": "{of: b, n: 5}"]),
      .marbles(
        "what finds no partner",
        "{ from: a, chain: [ { join: { signal: b, within: 3ms, unmatched: left } } ] }",
        in: ["a": "-1-------|", "b": "-----x---|"], out: "----p----|", values: ["p": "[1, null]"]),
      .marbles(
        "only what comes later",
        "{ from: a, chain: [ { join: { signal: b, within: { after: 4ms } } } ] }",
        in: ["a": "--1---2--|", "b": "-x--yz---|"], out: "----pq---|", values: ["p": "[1, y]", "q": "[1, z]"]),
      .marbles(
        "a retracted row",
        "{ from: a, chain: [ { join: { signal: b, within: 4ms, unmatched: left, emit: update } } ] }",
        in: ["a": "-1----2--|", "b": "--x------|"], out: "-p(pq)---r--|",
        values: ["p": "[1, null]", "q": "[1, x]", "r": "[2, null]"]),
      .marbles(
        "event time, out of order",
        """
        { from: a, chain: [ { eventTime: { time: timestamp(event), lateness: 9s } }, { join: { signal: { from: b, \
        chain: [ { eventTime: timestamp(event) } ] }, within: 3s, unmatched: full } } ] }
        """, in: ["a": "-pq---|", "b": "---uv-|"], out: "---xy-(z|)",
        values: [
          "p": "20", "q": "12", "u": "10", "v": "30", "x": "[12, 10]", "y": "[20, null]", "z": "[null, 30]",
        ]),
      .marbles(
        "the rate of that time",
        """
        { from: a, chain: [ { eventTime: timestamp(event.t) }, { join: { signal: { from: b, \
        chain: [ { eventTime: timestamp(event.t) } ] }, asOf: true, reduce: event.n * other.rate } } ] }
        """, in: ["a": "-pq----|", "b": "u--vw--|"], out: "---xy--|",
        values: [
          "p": "{t: 12, n: 1}", "q": "{t: 25, n: 1}", "u": "{t: 10, rate: 3}", "v": "{t: 20, rate: 4}",
          "w": "{t: 30, rate: 5}", "x": "3", "y": "4",
        ]),
    ],
    edges: EdgeCases(
      error: "Passed on at once, from either signal; kept events are dropped.",
      completion: """
        Completes when both have, or when no pair is possible any more. When one has, no partner can come any more for \
        events of the other.
        """,
      disposal: """
        Unsubscribes from both signals, drops kept events and frees the timer. Nothing is sent as unmatched.
        """),
    memory: """
      By the clock, the events of both signals that came less than `within` ago, and one timer. By event time, the \
      events for which the watermark of the other signal lets a partner come; with `asOf`, the events that wait, and \
      of each key the newest version and those that events can still need. At most `limit` of each signal. With \
      `emit`, also the result of `reduce` for each unmatched event that was sent and can be retracted. With \
      `state: { memory: SIZE }` at the top of the file, a join with `within` and `key` by event time keeps the keys that \
      have not come for the longest time on the disk, each with its events.
      """,
    persistence: .state(version: 5),
    lateness: .always("an event that is too old for a partner is too old"),
    knownAs: [
      "RxJava join", "Flink interval join", "Flink temporal join FOR SYSTEM_TIME AS OF", "ksqlDB stream-stream join",
      "pandas merge_asof",
    ],
    useCases: [
      .init(
        .combining, "pair events of two signals that belong together",
        "join: { signal: other, within: 30s, key: event.id, otherKey: other.id }"),
      .init(
        .combining, "find requests without a response",
        "join: { signal: other, within: 30s, key: event.id, otherKey: other.id, unmatched: left }"),
      .init(
        .combining, "reconcile two streams and see what is missing on either side",
        "join: { signal: other, within: 5m, key: event.id, otherKey: other.id, unmatched: full }"),
      .init(
        .combining, "see an event at once, and its partner when it comes",
        """
        join: { signal: other, within: 1h, key: event.id, otherKey: other.id, unmatched: left, emit: update }
        """),
      .init(
        .time, "look up what was valid when an event happened",
        """
        { from: a, chain: [ { eventTime: event.at }, { join: { signal: { from: other, chain: [ { eventTime: event.at } ] }, \
        asOf: true, key: event.currency, otherKey: other.currency } } ] }
        """),
    ],
    seeAlso: ["combineLatest", "withLatestFrom", "zip", "eventTime"])

  func validate(_ context: inout DecodingContext) {
    func conflict(_ message: String, _ help: String) {
      context.diagnostics.report(Diagnostic(.conflictingParameters, message, at: context.location, help: help))
    }
    if key.isGiven != otherKey.isGiven {
      conflict(
        key.isGiven ? "'join' has 'key' but no 'otherKey'" : "'join' has 'otherKey' but no 'key'",
        "Give both: 'key: event.id' and 'otherKey: other.id'")
    }
    if let emit { validate(emit, conflict) }
    if asOf {
      if byClock { conflict("'clock' of 'join' cannot go with 'asOf'", "Remove one of them") }
      if unmatched.sendsRight {
        conflict(
          "'unmatched: \(unmatched.rawValue)' of 'join' cannot go with 'asOf': no version needs an event",
          "Write 'unmatched: left', or remove one of them")
      }
    } else if context.node(of: "within") == nil {
      context.diagnostics.report(
        Diagnostic(
          .missingParameter, "'join' needs 'within' or 'asOf'", at: context.location,
          help: "Write how far apart two events may be, such as 'within: 30s'"))
    }
  }

  private func validate(_ emit: EmitParameter, _ conflict: (String, String) -> Void) {
    if asOf {
      return conflict(
        "'emit' of 'join' cannot go with 'asOf': an event is sent once, when its version is certain", "Remove 'emit'")
    }
    if unmatched == .drop, self.emit.changes() != .none, !emit.pairs {
      conflict(
        "'emit' of 'join' needs 'unmatched': a pair is sent at once and never changes",
        "Write 'unmatched: left', 'right' or 'full', or remove 'emit'")
    }
    if let update = emit.update, update > .zero {
      conflict(
        "'update' of 'join' takes no time: a pair is sent at once, with the row that it retracts",
        "Write 'emit: update', or 'emit: { early: \(update) }' to wait so long for a partner")
    }
    if emit.pairs {
      conflict(
        "'pairs' of 'join' has no effect: a row without a partner is always retracted before the pair", "Remove it")
    }
  }

  func changes(_ input: Changes) -> Changes { emit.changes() == .none ? .none : .pairs }
  func understands(_ input: Changes) -> Bool { false }

  mutating func bind(_ binder: inout Binder) {
    inputTime = binder.inputs.first?.time ?? EventType.Time.none
    isInGroup = binder.isInGroup
  }

  /// The types in `reduce`: where there is no partner, it is null.
  private func typesOfPairs(_ event: ExpressionType) -> [String: ExpressionType] {
    func orNull(_ type: ExpressionType, _ isAlone: Bool) -> ExpressionType {
      isAlone && type != .dyn ? type.orNull : type
    }
    return [
      "event": orNull(event, unmatched.sendsRight), "other": orNull(signal.type, unmatched.sendsLeft),
    ]
  }

  /// Whether its keys may be on the disk. Without a key, all events have the same one.
  var movesKeys: Bool { followsTime && !asOf && key.isGiven }

  /// Whether the join uses the event time of its signals.
  var followsTime: Bool {
    !byClock && !isInGroup && inputTime == .given && signal.plan?.type.isTimed == true
  }

  var timing: Timing { followsTime ? asOf ? .passes : .all : .ends }

  var timeNote: String? {
    guard followsTime else { return nil }
    if asOf {
      return "by event time: an event waits until the watermark of the other signal has passed its time"
    }
    let bounds = within?.text ?? ""
    return "pairs by event time, \(bounds): an event is kept until the watermark of the other signal has passed that"
  }

  func outputType(_ inputs: [EventType]) -> EventType {
    EventType(reduce.isGiven ? reduce.type : .list(.dyn))
  }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    if !followsTime { return ClockNode(self, nodeContext, downstream) }
    return asOf
      ? VersionNode(self, nodeContext, downstream) as OperatorNode : IntervalNode(self, nodeContext, downstream)
  }

  /// The fields that `key` and `reduce` read of the first signal's events; nil if they read whole events, or nothing
  /// of a kept event.
  var leftFields: Set<String>? {
    guard reduce.isGiven, let read = reduce.fields(of: "event"), let keys = key.fields(of: "event") else { return nil }
    return read.union(keys)
  }

  /// The same for the other signal's events.
  var rightFields: Set<String>? {
    guard reduce.isGiven, let read = reduce.fields(of: "other"), let keys = otherKey.fields(of: "other") else {
      return nil
    }
    return read.union(keys)
  }

  func remarks(_ inputs: [EventPace?], _ location: SourceLocation) -> [Diagnostic] {
    (timeRemark(location).map { [$0] } ?? []) + limitRemarks(inputs, location)
  }

  /// Warns if `limit` is too small for the rate of an input, as far as the plan determines that rate.
  private func limitRemarks(_ inputs: [EventPace?], _ location: SourceLocation) -> [Diagnostic] {
    // With event time, the number of stored events depends on times that are not known in advance.
    guard !followsTime, let within else { return [] }
    return zip([("first", within.after), ("other", within.before)], inputs).compactMap { side, pace in
      let (name, span) = side
      let count: Double
      let how: String
      switch pace {
      case .every(let period)?:
        count = (Double(span.nanoseconds) / Double(max(1, period.nanoseconds))).rounded(.up)
        how = "the \(name) signal sends an event every \(period)"
      case .unbounded?:
        count = Double(span.nanoseconds) / 1e9 * EventPace.leastReading
        how = "the \(name) signal is read as fast as possible"
      case nil: return nil
      }
      // A file that is read once ends soon; the default limit is meant to suffice for it.
      let isEnough = Double(limit) >= count || pace == .unbounded && limit >= Join().limit
      guard !isEnough else { return nil }
      let needed = pace == .unbounded ? "the number of its events" : String(Int64(min(count, 1e18)))
      return Diagnostic(
        .limitTooSmall,
        "'join' keeps \(Printable.count(limit, "event")) of each signal, but \(how), and each is kept for \(span): pairs are lost",
        at: location, help: "Set 'limit' to at least \(needed), or make 'within' shorter")
    }
  }

  /// Reports faults in the event times of the signals, and a join that unexpectedly uses the clock.
  private func timeRemark(_ location: SourceLocation) -> Diagnostic? {
    if byClock { return nil }
    if followsTime {
      guard let within, max(within.before, within.after).nanoseconds > Bounds.longestByTime else { return nil }
      return Diagnostic(
        .outOfRange, "'within' of 'join' is at most 36 years by event time", at: location,
        help: "Make it shorter, or write 'clock: true' to pair events by the time at which they come")
    }
    if asOf {
      return Diagnostic(
        .asOfWithoutTime, "'asOf' of 'join' needs the event time of both signals", at: location,
        help: isInGroup
          ? "In a chain of 'groupBy' there is none: join before it, with 'key' and 'otherKey'"
          : "Write 'time: EXPRESSION' at their sources, or the step 'eventTime'")
    }
    let times: [EventType.Time] = [inputTime, signal.plan?.type.time ?? EventType.Time.none]
    if let lost = times.lazy.compactMap({ Diagnostic.lostTime("join", $0, at: location) }).first { return lost }
    guard times.contains(.given) else { return nil }
    return Diagnostic(
      .joinByClock,
      isInGroup
        ? "this 'join' goes by the clock, because it is in a chain of 'groupBy'"
        : "this 'join' goes by the clock: only one of its signals has event time", at: location,
      help: isInGroup
        ? "Join before 'groupBy', with 'key' and 'otherKey', or write 'clock: true'"
        : "Give the other one a time ('time: EXPRESSION' at its source), or write 'clock: true'")
  }
}
