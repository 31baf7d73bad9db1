/// `distinctUntilChanged`: no value twice in succession.
struct DistinctUntilChanged: FusableOperator {
  var by = ExpressionParameter()

  static let spec = ComponentSpec<DistinctUntilChanged>(
    "distinctUntilChanged",
    summary: "Drops an event that is equal to the one before it.",
    details: """
      The first event always passes. Neighbouring events are compared by content; null equals null. With `by`, the \
      results of the expression are compared. An event for which it fails goes to the errors output and is not \
      compared with the next.
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
    memory: "The last event, or the last value of `by`.", persistence: .state(version: 1),
    knownAs: ["RxJS distinctUntilChanged", "Combine removeDuplicates", "ReactiveSwift skipRepeats"],
    useCases: [
      .init(.choosing, "see changes only", "distinctUntilChanged"),
      .init(.choosing, "notice when one field has changed", "distinctUntilChanged: event.state"),
    ],
    seeAlso: ["ignore", "combinePrevious"])

  func makeStep() -> FusedStep { by.program.map { KeyStep($0) } ?? Step() }

  /// Compares whole events.
  class Step: FusedStep {
    @exclusivity(unchecked) private final var last = OwnedValue()
    @exclusivity(unchecked) private final var hasLast = false

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      isNew(event.value, frame) ? .pass : .drop
    }

    /// Stores `value` and returns true if it differs from the last one.
    @inline(__always)
    final func isNew(_ value: Value, _ frame: EventFrame) -> Bool {
      if hasLast, frame.areEqual(value, last.value) { return false }
      if !last.assign(scalar: value) { last.assign(value) }
      keptSize.set(bytes: last.keptBytes)
      hasLast = true
      return true
    }

    override func save(_ state: inout StateWriter) {
      state.write(hasLast)
      state.write(last)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      hasLast = try state.read()
      last = try state.read()
      if hasLast { keptSize.set(bytes: last.keptBytes) }
    }
  }

  /// Compares the results of an expression.
  final class KeyStep: Step {
    private let program: Program

    init(_ program: Program) {
      self.program = program
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      let value = program.evaluate(frame)
      if value.isError { return failed(event, value, program, frame, run) }
      return isNew(value, frame) ? .pass : .drop
    }
  }
}
