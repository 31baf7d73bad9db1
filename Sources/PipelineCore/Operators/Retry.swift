internal import DequeModule

/// `retry`: subscribes again after an error.
struct Retry: OperatorComponent, TimedOperator {
  /// How often: a number of times, or forever.
  struct Count: ParameterValue {
    /// Nil: forever.
    var limit: Int?

    static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
      .oneOf([.int(1...Int64.max), .choice([.init("forever", "without limit")])])
    }
    var defaultText: String? { limit.map(String.init) ?? "forever" }

    static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> Count? {
      if node.string == "forever" { return Count(limit: nil) }
      if node.int == 0 {
        context.badValue(
          node, "'\(context.component)' with 0 is ambiguous: forever in ReactiveCocoa, never elsewhere",
          help: "Write '\(context.component): forever', or a number of at least 1")
        return nil
      }
      context.range = 1...Int64.max
      return Int.decode(node, &context).map { Count(limit: $0) }
    }
  }

  var count = Count(limit: nil)
  var delay = TimeSpan.zero
  var backoff = 1.0
  var maxDelay = TimeSpan.seconds(60)
  var jitter = false
  var resetAfter: TimeSpan?
  var budget: Int?
  var per = TimeSpan.seconds(60)

  static let relaysEvents = true

  static let spec = ComponentSpec<Retry>(
    "retry",
    summary: "Subscribes again when the signal fails.",
    details: """
      `count` is the number of further attempts after the first. Events that an attempt sent before it failed are \
      not undone. The error of the last attempt is passed on. The pause before the n-th further attempt is `delay` \
      times `backoff` to the power of n-1, at most `maxDelay`; `jitter` waits a random part of it. An attempt that \
      lasts for `resetAfter` counts as a success: counting and pauses start again. The first failure is a warning in \
      the log; further ones of the same step are counted and logged at most once a minute. `budget` limits the \
      attempts in each `per`; when it is used up, the next error is passed on. After 1000 attempts in a row that \
      lasted less than 10 ms each, each further one waits 10 ms, also without `delay`. A retry repeats the side \
      effects upstream, a request for instance.
      """,
    parameters: [
      .init("count", \.count, primary: true, "The number of further attempts."),
      .init("delay", \.delay, range: 0...Int64.max, "The pause before the first further attempt."),
      .init("backoff", \.backoff, range: 1...1000, applies: .with("delay"), "The factor between pauses."),
      .init("maxDelay", \.maxDelay, range: 0...Int64.max, applies: .with("delay"), "The longest pause."),
      .init("jitter", \.jitter, applies: .with("delay"), "Wait a random part of the pause."),
      .init(
        "resetAfter", \.resetAfter, range: 1...(Int64.max / 4),
        applies: .any([.with("count"), .with("backoff")]),
        "An attempt that lasts this long resets the count and the pauses."),
      .init("budget", \.budget, range: 1...10_000, "The largest number of further attempts within `per`."),
      .init("per", \.per, range: 1...(Int64.max / 4), applies: .with("budget"), "The period of the budget."),
    ],
    examples: [
      .marble("once more", "retry: 1", in: "-1#", out: "-1-1#"),
      .marble(
        "with a pause", "retry: { count: 2, delay: 2ms, backoff: 2 }", in: "-#",
        out: "---------#"),
      .marble(
        "a long attempt counts as a success", "retry: { count: 1, resetAfter: 3ms }", in: "1#",
        out: "11#"),
      .marble("a budget", "retry: { budget: 2, per: 1s }", in: "1#", out: "111#"),
    ],
    edges: EdgeCases(
      error: "Subscribes again after the pause; the error of the last attempt is passed on.",
      disposal: "Unsubscribes from upstream and frees its timer; no further attempt starts."),
    memory: "The number of attempts, the times of at most `budget` of them, and one timer.",
    persistence: .state(version: 3),
    lateness: .always("without its next attempt the signal would never end"), knownAs: ["RxJS retry", "Combine retry"],
    useCases: [
      .init(.failing, "try again after an error", "retry: 3"),
      .init(.failing, "wait longer after each failure", "retry: { count: 5, delay: 1s, backoff: 2, maxDelay: 1m }"),
      .init(
        .failing, "retry forever, but not all clients at once", "retry: { delay: 1s, backoff: 2, jitter: true }"),
      .init(.failing, "limit the cost of all retries together", "retry: { budget: 10, per: 1m, delay: 1s }"),
    ],
    seeAlso: ["catch", "repeat", "timeout"])

  static let subscribesAgain = true

  func validate(_ context: inout DecodingContext) {
    guard delay > maxDelay else { return }
    context.badValue(
      at: context.location(of: "delay"),
      """
      'delay' of 'retry' is \(delay), longer than 'maxDelay', which is \(maxDelay)
      """,
      .conflictingParameters, help: "Give 'maxDelay' a value of at least \(delay)")
  }

  func remarks(_ inputs: [EventPace?], _ location: SourceLocation) -> [Diagnostic] {
    guard backoff > 1, delay == maxDelay else { return [] }
    return [
      Diagnostic(
        .conflictingParameters,
        "'backoff' of 'retry' has no effect, because 'delay' is already 'maxDelay' (\(maxDelay))", at: location,
        severity: .warning, help: "Add a longer 'maxDelay', such as 'maxDelay: \(maxDelay.scaled(by: 10))'")
    ]
  }

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: MultiInletNode, Pausing {
    private let parameters: Retry
    private var attempts = 0
    private var begun = Instant(nanoseconds: 0)
    /// The times of the attempts that count towards the budget, oldest first.
    private var spent = Deque<Instant>()
    private var timer = Wake.none
    /// Until the next attempt, holds the acknowledgement of the event that this inner signal was created for.
    private var held: Ack?
    private var pace = Pace()

    init(_ parameters: Retry, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      begun = now
      pace.begin(now)
      open(nodeContext.inputs[0])
    }

    override func completed(_ inlet: Inlet) { finish() }

    override func failed(_ inlet: Inlet, _ failure: SignalFailure) {
      drop(inlet)
      if let resetAfter = parameters.resetAfter, begun + resetAfter <= now { attempts = 0 }
      if parameters.count.limit.map({ attempts >= $0 }) ?? false || !canRunAgain {
        finish(failing: failure)
        return
      }
      if let budget = parameters.budget {
        while let first = spent.first, first + parameters.per <= now { spent.removeFirst() }
        guard spent.count < budget else {
          finish(failing: failure)
          return
        }
        spent.append(now)
      }
      let pause = max(pause(attempts), pace.end(now))
      attempts += 1
      countRetry()
      execution.warn(nodeContext.step, "\(failure.message); trying again")
      if pause == .zero {
        later()
      } else {
        timer = wake(after: pause)
        if nodeContext.scope.isForSomething { held = holdAck() }
        execution.pauseBegins(self)
      }
    }

    private func pause(_ attempt: Int) -> TimeSpan {
      var factor = 1.0
      for _ in 0..<min(attempt, 64) where factor < 1e15 { factor *= parameters.backoff }
      let pause = min(parameters.delay.scaled(by: factor), parameters.maxDelay)
      guard parameters.jitter else { return pause }
      let share = Double(execution.services.random() >> 11) / Double(1 << 53)
      return pause.scaled(by: share)
    }

    override func resumed(_ token: Int) { start() }

    override func restored() { if timer.isSet { execution.pauseBegins(self) } }

    func endPause() {
      cancelWake(&timer)
      woke(0)
    }

    override func woke(_ token: Int) {
      timer = .none
      execution.pauseEnds(self)
      goOn(with: &held)
      start()
    }

    override func stop() {
      if timer.isSet { execution.pauseEnds(self) }
      goOn(with: &held, isGivenUp: true)
      cancelWake(&timer)
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      state.write(attempts)
      state.write(timer)
      state.write(begun)
      state.write(each: spent)
      pace.save(&state)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      attempts = try state.read(in: 0...Int.max)
      timer = try state.read()
      guard state.version > 1 else { return }
      begun = try state.read()
      spent = Deque(try state.read([Instant].self))
      if state.version > 2 { try pace.restore(&state) }
    }
  }
}
