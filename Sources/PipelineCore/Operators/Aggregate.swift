/// `aggregate`: one value of many events, sent at the end: one or more figures, or a fold.
struct Aggregate: FusableOperator, TimedOperator, ChangingOperator {
  var figures = FiguresParameter()
  var start = LiteralParameter()
  var next = ExpressionParameter()
  var emit: EmitParameter?
  var maxDistinct = 10_000_000
  /// Whether rows of its input are taken back; set when it is bound.
  private(set) var takesBack = false

  static let changesValue = true
  var sendsLater: Bool { emit != nil }

  static let spec = ComponentSpec<Aggregate>(
    "aggregate",
    summary: "Computes figures of all events, or folds them into one value; sends it at the end or as it changes.",
    details: """
      **Figures**: an expression over aggregates, or a mapping of such: `{ n: count(), users: \
      countDistinct(event.user), top: max(event.price) }`. An aggregate may have a condition as its last argument, \
      `sum(event.bytes, event.status == 200)`, and then counts only the events that fulfil it.

      | aggregate | gives | of no value |
      |---|---|---|
      | `count()`, `count` | how many events there were | 0 |
      | `count(CONDITION)` | how many of them fulfil the condition | 0 |
      | `countDistinct(x)` | how many different values there were, exactly | 0 |
      | `sum(x)` | the sum of numbers or durations | 0 |
      | `avg(x)` | the mean of numbers, a double, or of durations | null |
      | `min(x)`, `max(x)` | the least, the greatest value | null |
      | `first(x)`, `last(x)` | the first, the last value | null |

      A value that is null or an empty optional (`event.?price`) is left out, as in SQL. The expression around the \
      aggregates is evaluated once, at the end: `sum(event.ms) / count()`, `meta.key`; it cannot use `event`. An \
      event for which an expression fails, or that makes a sum overflow, goes to the errors output and counts in no \
      figure. Figures of windows are the parameter `aggregate` of `window`.

      **When they are sent**: by default at the end. With `emit: update` each time they change, with `emit: { update: 1s }` at most once a second, with `emit: { early: 10s }` \
      that long after a change, and at the end in any case. Each row says which it is: `meta.pane` is `early` or `on-time`, `meta.replaces` whether it takes the place of an \
      earlier one. Where rows of the input are retracted (`meta.retracts`), `count`, `sum` and `avg` subtract them; when all are retracted, so is the result. See \
      [results that change](../../event-time.md#results-that-change).

      **A fold**: `next` sees `running`, `event` and `index` as in `scan`. Without any event the start value is \
      sent. A mapping with a key `next` or `figures` is a list of parameters; write `figures: { next: ... }` for a \
      figure of that name. An error of the signal is passed on alone.
      """,
    parameters: [
      .init("figures", \.figures, primary: true, "What to compute: expressions over aggregates."),
      .init("start", \.start, whole: true, "The value of a fold before the first event."),
      .init(
        "next", \.next, variables: [("running", .dyn), ("index", .int)],
        "The new value of a fold."),
      .init("emit", \.emit, applies: .with("figures"), "When the figures are sent."),
      .init(
        "maxDistinct", \.maxDistinct, range: 1...100_000_000,
        applies: .with("figures"),
        "How many different values each `countDistinct` may know; an event with one more goes to the errors output."),
    ],
    examples: [
      .marble(
        "figures", "aggregate: { n: count(), kinds: countDistinct(event), top: max(event), mean: avg(event) }",
        in: "1-2-2-7|", out: "-------(a|)", values: ["a": "{n: 4, kinds: 3, top: 7, mean: 3.0}"]),
      .marble(
        "with a condition", "aggregate: { all: count(), large: count(event > 2), sum: 'sum(event, event > 2)' }",
        in: "1-3-4|", out: "-----(a|)", values: ["a": "{all: 3, large: 2, sum: 7}"]),
      .marble("one figure", "aggregate: sum(event) / count()", in: "2-4-9|", out: "-----(5|)"),
      .marble(
        "figures of nothing", "aggregate: { n: count(), sum: sum(event), top: max(event) }", in: "--|",
        out: "--(a|)", values: ["a": "{n: 0, sum: 0, top: null}"]),
      .marble(
        "as it changes", "aggregate: { figures: sum(event), emit: update }", in: "1-3-4|", out: "1-4-8|"),
      .marble(
        "at most once in a while", "aggregate: { figures: sum(event), emit: { update: 3ms } }", in: "1-3-4-----|",
        out: "1--4--8---|"),
      .marble(
        "now and then, and at the end", "aggregate: { figures: sum(event), emit: { early: 3ms } }", in: "1-3-----4|",
        out: "---4-----(8|)"),
      .marble("a sum", "aggregate: { start: 0, next: running + event }", in: "1-2-3|", out: "-----(6|)"),
      .marble("of nothing", "aggregate: { start: 0, next: running + event }", in: "--|", out: "--(0|)"),
      .marble(
        "of a signal that fails", "aggregate: { start: 0, next: running + event }", in: "1-#",
        out: "--#"),
    ],
    edges: EdgeCases(
      empty: "Sends the figures of nothing, or the start value, then completes.",
      error: "Passed on at once; the figures or the running value are dropped.",
      completion: "Sends the figures or the value, then completes.",
      disposal: "Unsubscribes from the input and drops its state."),
    memory: """
      Each figure, or the running value. `countDistinct` keeps each different value, at most `maxDistinct`: about \
      twenty bytes for a whole number, once for all figures of the same expression.
      """,
    persistence: .state(version: 3),
    knownAs: ["RxJS reduce", "Combine reduce", "SQL COUNT, SUM, AVG ... FILTER", "Flink GROUP BY"],
    useCases: [
      .init(
        .gathering, "compute several figures at once",
        "aggregate: { n: count(), users: countDistinct(event.user), mean: avg(event.ms) }"),
      .init(
        .gathering, "have figures of each customer or channel",
        "groupBy: { key: event.channel, chain: [ { aggregate: { n: count(), top: max(event.price) } } ] }"),
      .init(
        .gathering, "know each customer's total as it changes",
        "groupBy: { key: event.customer, chain: [ { aggregate: { figures: sum(event.price), emit: { update: 1s } } } ] }"
      ),
      .init(.gathering, "have one total at the end", "aggregate: sum(event.bytes)"),
      .init(.gathering, "fold a whole file into one object", "aggregate: { start: {}, next: \"running\" }"),
    ],
    seeAlso: ["scan", "collect", "window", "groupBy"])

  static func isPrimary(_ keys: [String]) -> Bool? {
    !(keys.contains("next") || keys.contains("figures") || keys == ["start"])
  }

  func validate(_ context: inout DecodingContext) {
    if figures.isGiven, next.isGiven || start.isGiven {
      context.diagnostics.report(
        Diagnostic(
          .conflictingParameters, "'aggregate' computes figures or folds, not both", at: context.location,
          help: "Remove 'figures', or 'start' and 'next'"))
    } else if !figures.isGiven, !next.isGiven {
      context.diagnostics.report(
        Diagnostic(
          .missingParameter, "'aggregate' needs figures, or 'next' for a fold", at: context.location,
          help: "Write e.g. 'aggregate: { n: count(), top: max(event.price) }'"))
    }
  }

  func outputType(_ inputs: [EventType]) -> EventType { figures.isGiven ? EventType(figures.type) : .dyn }

  var timing: Timing { .ends }

  mutating func bind(_ binder: inout Binder) {
    takesBack = binder.inputs.first?.changes == .pairs && understands(.pairs)
    if takesBack { figures.checkTakingBack(&binder) }
  }

  func changes(_ input: Changes) -> Changes { emit.changes() }
  func understands(_ input: Changes) -> Bool { input == .pairs && figures.isGiven }

  func makeStep() -> FusedStep {
    guard let form = FiguresForm(figures, firstVariable: 0, limit: maxDistinct) else {
      return Step(start.value, next.required)
    }
    return makeStep(Figures(form))
  }

  func makeStep(beside first: FusedStep) -> FusedStep {
    guard figures.isGiven else { return makeStep() }
    return makeStep(
      Figures(
        emit == nil
          ? unsafeDowncast(first, to: FiguresStep.self).figures.form
          : unsafeDowncast(first, to: ChangingStep.self).figures.form))
  }

  private func makeStep(_ figures: Figures) -> FusedStep {
    emit == nil
      ? FiguresStep(figures, takesBack: takesBack)
      : ChangingStep(figures, Emission(emit), takesBack: takesBack)
  }

  final class FiguresStep: FusedStep {
    let figures: Figures
    private let takesBack: Bool

    init(_ figures: Figures, takesBack: Bool) {
      self.figures = figures
      self.takesBack = takesBack
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      guard
        let refusal = figures.form.evaluate(frame)
          ?? (takesBack && event.retracts ? figures.takeBack(frame) : figures.add(frame, at: 0))
      else {
        countKept()
        return .keep
      }
      return refused(event, refusal, frame, run)
    }

    override func complete(_ run: FusedRun) -> Value? {
      let frame = run.frameOfNothing()
      var failing: Unmanaged<Program>?
      let value = figures.form.build(figures, frame, &failing)
      guard value.isError, let failing else { return value }
      _ = failed(run.nothing, value, failing.takeUnretainedValue(), frame, run)
      return nil
    }

    @inline(__always)
    private func countKept() { keptSize.set(keys: figures.keys, bytes: figures.bytes) }

    override func save(_ state: inout StateWriter) { figures.save(&state) }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try figures.restore(&state)
      if figures.events > 0 { countKept() }
    }
  }

  final class Step: FusedStep {
    @exclusivity(unchecked) private var running: OwnedValue
    @exclusivity(unchecked) private var index: Int64 = 0
    private let program: Program
    /// The number of members if the program's value is written as a map; otherwise 0.
    private let memberCount: UInt8
    /// Whether `running` is such a map of scalars, so that the next value can overwrite it in place.
    @exclusivity(unchecked) private var isInPlace = false

    init(_ start: OwnedValue, _ program: Program) {
      running = start
      self.program = program
      memberCount = UInt8(program.memberCount)
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      frame.set(0, running.value)
      frame.set(1, .int(index))
      if isInPlace, foldInPlace(frame) {
        index &+= 1
        return .keep
      }
      return fold(event, frame, run)
    }

    @inline(__always)
    private func foldInPlace(_ frame: EventFrame) -> Bool {
      withUnsafeTemporaryAllocation(of: Value.self, capacity: Program.memberLimit) { members in
        guard let first = members.baseAddress, program.evaluateMembers(frame, into: first) else { return false }
        return running.overwriteMembers(with: first)
      }
    }

    @inline(never)
    private func fold(_ event: Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      let value = program.evaluate(frame)
      if value.isError {
        return failed(event, value, program, frame, run) == .pass ? .keep : .gone
      } else if value.isDeeper(than: Scan.Step.depthLimit) {
        run.rejectRow(
          event, .limitReached, "the value of aggregate is nested more than \(Scan.Step.depthLimit) deep")
        return .gone
      } else {
        index &+= 1
        running.assign(value)
        keptSize.set(bytes: running.keptBytes)
        isInPlace = memberCount > 0 && running.isMap(ofScalars: Int(memberCount))
      }
      return .keep
    }

    override func complete(_ run: FusedRun) -> Value? { running.value }

    override func save(_ state: inout StateWriter) {
      state.write(running)
      state.write(index)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      running = try state.read()
      index = try state.read()
      isInPlace = false
      keptSize.set(bytes: running.keptBytes)
    }
  }
}

extension FusedStep {
  /// Applies the step's error policy to an event that the figures cannot count.
  @inline(never)
  final func refused(
    _ event: Event, _ refusal: FiguresForm.Refusal, _ frame: EventFrame, _ run: FusedRun
  ) -> StepVerdict {
    switch refusal {
    case .failed(let error, let program): failed(event, error, program, frame, run)
    case .refused(let code, let message): refused(event, code, message, run)
    }
  }
}
