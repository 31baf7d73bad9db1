/// `skip`: drops the first events.
struct Skip: FusableOperator {
  var count = 0

  static let spec = ComponentSpec<Skip>(
    "skip",
    summary: "Drops the first events and passes on the rest.",
    details: "If the signal ends earlier, only its end is passed on.",
    parameters: [
      .init("count", \.count, primary: true, required: true, range: 0...Int64.max, "How many.")
    ],
    examples: [
      .marble("without the first", "skip: 1", in: "1-2-3|", out: "--2-3|"),
      .marble("more than there are", "skip: 5", in: "1-2|", out: "---|"),
    ],
    memory: "A counter.", persistence: .state(version: 1), knownAs: ["RxJS skip", "Combine dropFirst"],
    useCases: [
      .init(.choosing, "leave out the first events", "skip: 1")
    ],
    seeAlso: ["take"])

  func makeStep() -> FusedStep { Step(count) }

  final class Step: FusedStep {
    private var remaining: Int
    init(_ count: Int) { remaining = count }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      if remaining == 0 { return .pass }
      remaining -= 1
      return .drop
    }

    override func save(_ state: inout StateWriter) { state.write(remaining) }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      remaining = try state.read(in: 0...remaining)
    }
  }
}
