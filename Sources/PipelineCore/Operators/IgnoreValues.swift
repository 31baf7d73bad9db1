/// `ignoreValues`: only the end.
struct IgnoreValues: RowOperator {
  static let spec = ComponentSpec<IgnoreValues>(
    "ignoreValues",
    summary: "Drops all events; only the completion or the error passes.",
    examples: [
      .marble("the completion", "ignoreValues", in: "-1-2-|", out: "-----|"),
      .marble("the error", "ignoreValues", in: "-1-#", out: "---#"),
    ],
    rivals: ["RxJS ignoreElements", "Combine ignoreOutput"], seeAlso: ["then", "ignore"])

  func makeStep(_ step: StepPlan) -> RowStep { Step() }

  final class Step: RowStep {
    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: RowRun) -> RowVerdict { .drop }
  }
}
