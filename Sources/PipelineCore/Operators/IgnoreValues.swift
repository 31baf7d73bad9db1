/// `ignoreValues`: drops all events; only the end passes.
struct IgnoreValues: FusableOperator {
  static let spec = ComponentSpec<IgnoreValues>(
    "ignoreValues",
    summary: "Drops all events; only the completion or the error passes.",
    details: "Use it to wait for the end of a signal whose events do not matter.",
    examples: [
      .marble("the completion", "ignoreValues", in: "-1-2-|", out: "-----|"),
      .marble("the error", "ignoreValues", in: "-1-#", out: "---#"),
    ],
    knownAs: ["RxJS ignoreElements", "Combine ignoreOutput"],
    useCases: [
      .init(.living, "wait for the end and nothing else", "ignoreValues")
    ],
    seeAlso: ["then", "ignore"])

  func makeStep() -> FusedStep { Step() }

  final class Step: FusedStep {
    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict { .drop }
  }
}
