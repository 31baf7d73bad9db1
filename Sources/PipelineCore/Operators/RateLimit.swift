internal import DequeModule

/// `rateLimit`: at most a number of events in each period.
struct RateLimit: OperatorComponent {
  enum Mode: String, ChoiceParameter {
    case leading, trailing, both, bucket
    var help: String {
      switch self {
      case .leading: "the first `count` events of each period, which begins with the first of them"
      case .trailing: "the newest event, at the end of a period that the first one begins"
      case .both: "the first `count` events, and at the end the newest of the others"
      case .bucket: "a bucket of `burst` tokens, refilled evenly with `count` in each `per`"
      }
    }
  }
  enum Excess: String, ChoiceParameter {
    case drop, wait, route
    var help: String {
      switch self {
      case .drop: "it is dropped"
      case .wait: "the event waits for its token, in order"
      case .route: "it goes to the errors output"
      }
    }
  }

  var per = TimeSpan.zero
  var count = 1
  var mode = Mode.leading
  var burst: Int?
  var excess = Excess.drop
  var limit = 1000

  static let relaysEvents = true

  static let spec = ComponentSpec<RateLimit>(
    "rateLimit",
    summary: "Limits how many events pass in each period.",
    details: """
      To wait for a pause, use `throttle`. With `trailing` and `both`, completion sends a held event at once, and an \
      error drops it. With `mode: bucket`, tokens accumulate during a pause and allow a burst; `excess: wait` delays \
      events instead of dropping them, delays the completion until all are sent, and pauses the pipeline's input \
      while more than `limit` events wait, or more bytes than `--queue-memory` allows.
      """,
    parameters: [
      .init("per", \.per, primary: true, required: true, range: 1...Int64.max, "The period."),
      .init("count", \.count, range: 1...1_000_000, "How many events a period may have."),
      .init("mode", \.mode, "Which ones."),
      .init(
        "burst", \.burst, range: 1...1_000_000,
        applies: .word("mode", ["bucket"]), "How many tokens fit in the bucket; `count` by default."),
      .init("excess", \.excess, applies: .word("mode", ["bucket"]), "What happens to an event without a token."),
      .init(
        "limit", \.limit, range: 1...10_000_000, applies: .all([.word("mode", ["bucket"]), .word("excess", ["wait"])]),
        "How many events may wait before the pipeline's input pauses."),
    ],
    examples: [
      .marble("the first of each period", "rateLimit: 4ms", in: "-1-2-3-4-5-|", out: "-1---3---5-|"),
      .marble(
        "the newest, at the end", "rateLimit: { per: 4ms, mode: trailing }", in: "-1-2--3-4-|",
        out: "-----2----(4|)"),
      .marble("both", "rateLimit: { per: 4ms, mode: both }", in: "-123-----4-|", out: "-1---3---4-|"),
      .marble(
        "two in each period", "rateLimit: { per: 6ms, count: 2 }", in: "-1-2-3-4-5-|",
        out: "-1-2---4-5-|"),
      .marble(
        "a bucket", "rateLimit: { per: 2ms, mode: bucket, burst: 2 }", in: "(123)-4-5-6-|",
        out: "(12)-4-5-6-|"),
      .marble(
        "a bucket that spreads", "rateLimit: { per: 3ms, mode: bucket, excess: wait }",
        in: "(123)|", out: "1--2--(3|)"),
    ],
    edges: EdgeCases(
      error: "Passed on at once; held and waiting events are dropped.",
      completion: "Sends a held event, then completes; with `excess: wait`, after all waiting events.",
      disposal: "Unsubscribes from the input; held and waiting events are dropped and the timer freed."),
    memory: "A few numbers; the newest event (`trailing`, `both`) or the events that wait (`excess: wait`).",
    persistence: .state(version: 1),
    lateness: .leavesOut("A held event that was due is dropped (`trailing`, `both`).") { rateLimit, value in
      if value != .skip || rateLimit.mode == .trailing || rateLimit.mode == .both { return nil }
      return rateLimit.excess == .wait ? "an event that waits for its token is sent, however late" : "it holds no event"
    },
    knownAs: [
      "RxJS throttleTime (leading), auditTime (trailing)", "Combine throttle", "Benthos rate_limit",
      "Vector throttle",
    ],
    useCases: [
      .init(.time, "limit the number of events in each second", "rateLimit: { count: 10, per: 1s }"),
      .init(.time, "take the first of each minute", "rateLimit: 1m"),
      .init(.time, "send the newest event at the end of each busy period", "rateLimit: { per: 1s, mode: trailing }"),
      .init(
        .time, "allow bursts, but limit the rate in the long run",
        "rateLimit: { per: 1s, count: 5, mode: bucket, burst: 20 }"),
      .init(
        .time, "spread requests out evenly and lose none",
        "rateLimit: { per: 1s, count: 5, mode: bucket, excess: wait }"),
    ],
    seeAlso: ["throttle", "sample", "delay"])

  func validate(_ context: inout DecodingContext) {
    func conflict(_ message: String, _ help: String) {
      context.diagnostics.report(
        Diagnostic(.conflictingParameters, message, at: context.location, help: help))
    }
    if mode == .trailing, count > 1 {
      conflict(
        "'mode: trailing' sends one event for each period, so 'count' cannot be \(count)",
        "Use 'mode: both', or 'bufferWithTime' for all events of a period")
    }
  }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    mode == .bucket ? BucketNode(self, nodeContext, downstream) : Node(self, nodeContext, downstream)
  }

  /// `leading`, `trailing` and `both`.
  final class Node: OperatorNode {
    private let parameters: RateLimit
    /// The end of the current period, which is over when this is not in the future.
    private var end: Instant
    private var passed = 0
    /// Set only by `trailing` and `both`, during a period.
    private var held: OwnedEvent?
    /// Set exactly while `held` is.
    private var timer = Wake.none

    init(_ parameters: RateLimit, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      end = nodeContext.execution.executor.now
      super.init(nodeContext, downstream: downstream)
    }

    override func receive(_ event: Event) {
      // The timer of the current instant may not have fired yet.
      if end <= now { endPeriod() }
      guard !isClosed else { return countDropped(event) }
      if end <= now {
        end = now + parameters.per
        passed = 0
      }
      if parameters.mode != .trailing, passed < parameters.count {
        passed += 1
        emit(event)
      } else if parameters.mode != .leading {
        hold(event)
      } else {
        countDropped(event)
      }
    }

    private func hold(_ event: Event) {
      if held == nil {
        held = OwnedEvent(event)
        timer = wake(at: end)
      } else {
        countSuperseded(held?.event)
        held?.assign(event)
      }
      keptSize.set(bytes: held?.byteCount ?? 0)
    }

    override func skipped(_ token: Int, _ late: Lateness) {
      cancelWake(&timer)
      if held != nil { countDropped(held?.event) }
      held = nil
      keptSize.set(bytes: 0)
    }

    /// Sends the held event; with `both` that event starts the next period.
    private func endPeriod() {
      cancelWake(&timer)
      guard let event = held else { return }
      held = nil
      keptSize.set(bytes: 0)
      if parameters.mode == .both {
        end = now + parameters.per
        passed = 1
      }
      event.keep(in: arena)
      emit(event.event)
    }

    override func woke(_ token: Int) {
      timer = .none
      endPeriod()
    }

    override func complete() {
      endPeriod()
      finish()
    }

    override var heldCount: Int { held == nil ? 0 : 1 }

    override func stop() {
      cancelWake(&timer)
      held = nil
    }

    override func save(_ state: inout StateWriter) {
      state.write(end)
      state.write(passed)
      state.write(held)
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      end = try state.read()
      passed = try state.read(in: 0...parameters.count)
      held = try state.read()
      keptSize.set(bytes: held?.byteCount ?? 0)
      timer = try state.read()
    }
  }

  /// `bucket`, by the generic cell rate algorithm: a single instant represents how full the bucket is.
  final class BucketNode: OperatorNode {
    private let parameters: RateLimit
    /// The time in which one token is added.
    private let interval: TimeSpan
    /// How long before ``full`` an event may arrive: the time in which all tokens but one are added.
    private let allowance: TimeSpan
    /// When the bucket will be full again.
    private var full: Instant
    private var waiting = Deque<OwnedEvent>()
    private var backlog = Backlog()
    /// Set exactly while events wait.
    private var timer = Wake.none
    private var hasEnded = false

    init(_ parameters: RateLimit, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      full = nodeContext.execution.executor.now
      interval = TimeSpan(nanoseconds: max(1, parameters.per.nanoseconds / Int64(parameters.count)))
      let tokens = Int64((parameters.burst ?? parameters.count) - 1)
      let (span, overflow) = interval.nanoseconds.multipliedReportingOverflow(by: tokens)
      allowance = TimeSpan(nanoseconds: overflow ? .max : span)
      super.init(nodeContext, downstream: downstream)
    }

    private func takeToken() -> Bool {
      guard full <= now + allowance else { return false }
      full = max(full, now) + interval
      return true
    }

    override func receive(_ event: Event) {
      if waiting.isEmpty, takeToken() {
        emit(event)
        return
      }
      switch parameters.excess {
      case .drop: countDropped(event)
      case .route:
        reject(
          event, .limitReached,
          "more than \(parameters.count) event\(parameters.count == 1 ? "" : "s") came in \(parameters.per)")
      case .wait:
        let event = OwnedEvent(event)
        waiting.append(event)
        backlog.added(event, waiting.count, parameters.limit, self)
        if !timer.isSet { setTimer() }
      }
    }

    private func setTimer() {
      timer = wake(at: Instant(nanoseconds: full.nanoseconds &- allowance.nanoseconds))
    }

    override func woke(_ token: Int) {
      timer = .none
      while !isClosed, !waiting.isEmpty, takeToken() {
        let event = waiting.removeFirst()
        backlog.removed(event, waiting.count, parameters.limit, self)
        event.keep(in: arena)
        emit(event.event)
      }
      if !waiting.isEmpty {
        if !timer.isSet { setTimer() }
      } else if hasEnded {
        finish()
      }
    }

    override func complete() {
      hasEnded = true
      if waiting.isEmpty { finish() }
    }

    override var heldCount: Int { waiting.count }

    override func stop() {
      cancelWake(&timer)
      waiting.removeAll()
      backlog.cleared(parameters.limit, self)
    }

    override func save(_ state: inout StateWriter) {
      state.write(full)
      state.write(each: waiting)
      state.write(timer)
      state.write(hasEnded)
      state.write(backlog.isOver)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      full = try state.read()
      waiting = Deque(try state.read([OwnedEvent].self))
      timer = try state.read()
      hasEnded = try state.read()
      backlog.restore(try state.read(), waiting, self)
    }
  }
}
