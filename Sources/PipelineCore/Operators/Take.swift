/// `take`: the first events.
struct Take: FusableOperator {
  var count = 0

  static let spec = ComponentSpec<Take>(
    "take",
    summary: "Passes on the first events and completes together with the last of them.",
    details: """
      Anything later, an error included, is ignored. `take: 0` completes at once and never subscribes upstream.
      """,
    parameters: [
      .init("count", \.count, primary: true, required: true, range: 0...Int64.max, "How many.")
    ],
    examples: [
      .marble("two", "take: 2", in: "-1-2-#", out: "-1-(2|)"),
      .marble("none", "take: 0", in: "-1-2|", out: "|"),
      .marble("fewer than asked for", "take: 5", in: "-1-2|", out: "-1-2|"),
    ],
    edges: EdgeCases(
      empty: "Completes too; `take: 0` completes at once.",
      error: "Passed on at once, unless it comes after the last event.",
      completion: "Passed on at once; it completes by itself together with the last event that it passes on."),
    memory: "A counter.", persistence: .state(version: 1), knownAs: ["RxJS take", "Combine prefix"],
    useCases: [
      .init(.choosing, "have the first events only", "take: 10"),
      .init(.asking, "stop after the first response", "take: 1"),
    ],
    seeAlso: ["skip", "filter"])

  func makeStep() -> FusedStep { Step(count) }

  final class Step: FusedStep {
    private var remaining: Int
    init(_ count: Int) { remaining = count }

    override var endsBeforeStart: Bool { remaining == 0 }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      // While this event was being passed on, a step downstream may have ended the signal.
      guard remaining > 0 else { return .finish }
      remaining -= 1
      return remaining == 0 ? .passAndFinish : .pass
    }

    override func save(_ state: inout StateWriter) { state.write(remaining) }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      remaining = try state.read(in: 0...remaining)
    }
  }
}
