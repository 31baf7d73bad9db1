/// `skipWhile`: drops events as long as a condition is true.
struct SkipWhile: FusableOperator {
  var condition = ExpressionParameter()

  static let spec = ComponentSpec<SkipWhile>(
    "skipWhile",
    summary: "Drops events as long as they fulfil a condition, then passes on everything.",
    details: """
      The first event that does not fulfil it is sent, and later ones are not tested. An event for which the \
      condition fails goes to the errors output, and dropping continues.
      """,
    parameters: [
      .init("where", \.condition, primary: true, required: true, expecting: .bool, "The condition.")
    ],
    examples: [
      .marble("while small", "skipWhile: event < 3", in: "-1-3-1-|", out: "---3-1-|"),
      .marble("if all are small", "skipWhile: event < 3", in: "-1-2-|", out: "-----|"),
    ],
    memory: "Whether events pass.",
    persistence: .state(version: 1),
    knownAs: ["RxJS skipWhile", "Combine drop(while:)", "ReactiveCocoa skipWhileBlock:"],
    useCases: [
      .init(.choosing, "leave out events up to the first that differs", "skipWhile: event.warmup == true")
    ],
    seeAlso: ["skipUntil", "takeWhile", "skip"])

  func makeStep() -> FusedStep { Step(condition.required) }

  final class Step: FusedStep {
    private let program: Program
    private var isOpen = false

    init(_ program: Program) {
      self.program = program
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      if isOpen { return .pass }
      switch program.evaluateBool(frame) {
      case .yes: return .drop
      case .no:
        isOpen = true
        return .pass
      case .failed: return failed(event, frame.frame.lastError, program, frame, run)
      }
    }

    override func save(_ state: inout StateWriter) {
      state.write(isOpen)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      isOpen = try state.read()
    }
  }
}
