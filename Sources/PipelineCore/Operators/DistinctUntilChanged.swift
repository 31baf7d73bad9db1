/// `distinctUntilChanged`: no value twice in a row.
struct DistinctUntilChanged: RowOperator {
  var by = ExpressionParameter()

  static let spec = ComponentSpec<DistinctUntilChanged>(
    "distinctUntilChanged",
    summary: "Drops an event that is equal to the one before it.",
    details: """
      The first event always passes. Neighbours are compared by content; null equals null. With `by`, \
      what the expression gives is compared in place of the event. An event for which it fails goes to \
      the errors output and is not compared with the next.
      """,
    parameters: [
      .init("by", \.by, primary: true, "What to compare; the whole event if left out.")
    ],
    examples: [
      .marble("changes only", "distinctUntilChanged", in: "1-1-2-1|", out: "1---2-1|"),
      .marble(
        "by a field", "distinctUntilChanged: event.user", in: "a-b-c|", out: "a---c|",
        values: ["a": "{user: ann, n: 1}", "b": "{user: ann, n: 2}", "c": "{user: bob, n: 3}"]),
    ],
    keeps: "The last event, or the last value of `by`.", carries: .state(version: 1),
    rivals: ["RxJS distinctUntilChanged", "Combine removeDuplicates", "ReactiveSwift skipRepeats"],
    wants: [
      .init(.choosing, "hear of changes only", "distinctUntilChanged"),
      .init(.choosing, "hear when one field has changed", "distinctUntilChanged: event.state"),
    ],
    seeAlso: ["ignore", "combinePrevious"])

  func makeStep(_ step: StepPlan) -> RowStep { Step(by.program, step) }

  final class Step: RowStep {
    private let program: Program?
    private let step: StepPlan
    private var last = OwnedValue()
    private var hasLast = false

    init(_ program: Program?, _ step: StepPlan) {
      self.program = program
      self.step = step
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: RowRun) -> RowVerdict {
      var value = event.value
      if let program {
        value = program.evaluate(frame.frame)
        if value.isError { return failed(event, value, program, frame, run, step) }
      }
      if hasLast, frame.areEqual(value, last.value) { return .drop }
      last.assign(value)
      hasLast = true
      return .pass
    }

    override func save(_ state: inout StateWriter) {
      state.write(hasLast)
      state.write(last)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      hasLast = try state.read()
      last = try state.read()
    }
  }
}
