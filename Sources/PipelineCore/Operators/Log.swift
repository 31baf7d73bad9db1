/// `log`: writes a line to the log for each event and for the end.
struct Log: FusableOperator {
  enum Level: String, ChoiceParameter {
    case debug, info, warning, error
    var help: String { "log at level \(rawValue)" }
    var level: Services.Level { Services.Level(rawValue: rawValue) ?? .info }
  }
  enum Moment: String, ChoiceParameter {
    case next, error, completed
    var help: String {
      switch self {
      case .next: "each event"
      case .error: "the error that ends the signal"
      case .completed: "the completion"
      }
    }
  }

  var level = Level.info
  var when = Moment.allCases
  var message = TemplateParameter()

  static let spec = ComponentSpec<Log>(
    "log",
    summary: "Writes a line to the log for each event and for the end, and passes everything on.",
    details: "The line names the signal and the step; its text is `message`, or the event as JSON.",
    parameters: [
      .init("level", \.level, primary: true, "The level of the lines."),
      .init("when", \.when, formerly: "on", "What to log."),
      .init(
        "message", \.message, applies: .word("when", ["next"]), "The text for an event; the event as JSON if left out."),
    ],
    examples: [
      .marble("nothing changes", "log: debug", in: "1-2|", out: "1-2|")
    ],
    edges: EdgeCases(
      error: "Logged, if `when` says so, and passed on at once.",
      completion: "Logged, if `when` says so, and passed on at once."),
    knownAs: ["RxJS tap", "Benthos log", "ReactiveCocoa logAll"],
    useCases: [
      .init(.living, "see what passes through a chain", "log"),
      .init(.living, "write a line to the log for each error", "log: { level: warning, when: [error] }"),
      .init(.living, "log a text of my own", "log: { message: \"asking for {{ event.title }}\" }"),
    ],
    seeAlso: ["map"])

  func makeStep() -> FusedStep { Step(self) }

  final class Step: FusedStep {
    private let parameters: Log
    private let buffer = OutputBuffer()

    init(_ parameters: Log) {
      self.parameters = parameters
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      guard parameters.when.contains(.next) else { return .pass }
      buffer.clear()
      if parameters.message.isGiven {
        if parameters.message.renderShown(frame, into: buffer) != nil {
          buffer.clear()
          buffer.append("(the message failed)")
        }
      } else {
        JSONWriter.appendShown(event.value, to: buffer)
      }
      run.execution.services.log(
        parameters.level.level, run.step.label, String(decoding: buffer.bytes, as: UTF8.self))
      return .pass
    }

    override func complete(_ run: FusedRun) -> Value? {
      if parameters.when.contains(.completed) {
        run.execution.services.log(parameters.level.level, run.step.label, "completed")
      }
      return nil
    }

    override func fail(_ failure: SignalFailure, _ run: FusedRun) {
      if parameters.when.contains(.error) {
        run.execution.services.log(parameters.level.level, run.step.label, "failed: \(failure.message)")
      }
    }
  }
}
