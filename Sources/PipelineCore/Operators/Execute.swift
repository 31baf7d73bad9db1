/// `execute`: executes a command for each event.
struct Execute: OperatorComponent {
  enum Answering: String, ChoiceParameter {
    case refusals, all, none
    var help: String {
      switch self {
      case .refusals: "409 while the command is busy, 503 while it is disabled; a 'reply' answers accepted requests"
      case .all: "the same, and 202 as soon as it is accepted"
      case .none: "nothing"
      }
    }
  }

  var command = CommandParameter()
  var answer = Answering.refusals

  static let spec = ComponentSpec<Execute>(
    "execute",
    summary: "Executes a command for each event and sends the values of these executions.",
    details: """
      An event goes to the errors output if the command is disabled, or busy with `whenBusy: reject`. A failed \
      execution is reported by the command's errors output and does not end this signal. If the event is an HTTP \
      request, `answer` decides what its client receives. The step completes when its input and the executions that \
      it has started have ended. A signal with this step runs even without a reader. In an inner signal or the chain \
      of a group the step sends the values of its own executions; if the inner signal is cancelled, as \
      `switchToLatest` does, the executions continue, and their values come by `NAME.values` only.
      """,
    parameters: [
      .init("command", \.command, primary: true, required: true, "The name of the command."),
      .init("answer", \.answer, "How to answer an event that is an HTTP request."),
    ],
    examples: [
      .snippet("a request begins it", "execute: { command: reindex, answer: all }")
    ],
    edges: EdgeCases(
      completion: "Completes when the executions that it has started have ended too.",
      disposal: "Unsubscribes from the input; executions that it has started continue."),
    memory: "The executions that it has started.", persistence: .state(version: 1),
    knownAs: ["ReactiveCocoa RACCommand execute:", "ReactiveSwift Action apply"],
    useCases: [
      .init(.commanding, "run a command for each event", "execute: reindex"),
      .init(.commanding, "answer 409 while a job is running", "execute: reindex"),
    ],
    seeAlso: ["flattenMap", "command"])

  var furtherInputs: [SignalPlan] { command.signal.map { [$0] } ?? [] }

  func outputType(_ inputs: [EventType]) -> EventType { command.type }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  /// Its inputs are the stream of events and the command.
  final class Node: CommandCaller {
    private let parameters: Execute
    private var command: Command.Running?

    init(_ parameters: Execute, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      serial = execution.nextSubscription()
      open(nodeContext.inputs[1], number: 1)
      attach()
      subscribe(nodeContext.inputs[0])
    }

    override func restored() {
      attach()
      pending = command?.pending(of: self) ?? 0
      // This step may wait for an execution that the command has refused.
      if inputEnded, pending == 0 { later() }
    }

    override func resumed(_ token: Int) { finishIfOver() }

    /// Attaches to the command while it is open. A command that has ended executes nothing more for this step, even if
    /// others make it run again.
    private func attach() {
      guard !isClosed, isOpen(1), let command = execution.command(parameters.command.index) else { return }
      self.command = command
      command.attach(self)
    }

    override func receive(_ event: Event) {
      let name = parameters.command.name
      switch command?.execute(event, for: self) ?? .disabled {
      case .accepted:
        if parameters.answer == .all { reply(to: event, 202, "accepted") }
      case .busy:
        if parameters.answer != .none { reply(to: event, 409, "busy") }
        reject(event, .commandBusy, "the command '\(name)' is already running")
      case .dropped:
        countDropped(event)
        if parameters.answer != .none { reply(to: event, 409, "busy") }
      case .disabled:
        if parameters.answer != .none { reply(to: event, 503, "disabled") }
        reject(event, .commandDisabled, "the command '\(name)' is not enabled")
      }
    }

    private func reply(to event: Event, _ status: Int, _ word: String) {
      event.origin.takeUnretainedValue().reply?.reply(
        status: status, headers: [(name: "Content-Type", value: "application/json")],
        body: Array(#"{"status":"\#(word)"}"#.utf8))
    }

    /// The command sends no events through this inlet, and does not end before its callers.
    override func receive(_ event: Event, from inlet: Inlet) {}

    override func stop() {
      super.stop()
      command?.detach(self)
      command = nil
    }
  }
}

/// The name of a command.
struct CommandParameter: ParameterValue {
  private var reference: Located<String>?
  private(set) var index = 0
  private(set) var type = EventType.dyn
  /// The command's signal, which a node can subscribe to.
  private(set) var signal: SignalPlan?

  var name: String { reference?.value ?? "" }

  static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .text }

  static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> CommandParameter? {
    guard let name = String.decode(node, &context) else { return nil }
    var parameter = CommandParameter()
    parameter.reference = Located(name, at: node.location)
    return parameter
  }

  mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    guard let reference, let found = binder.command(reference) else { return }
    (index, type, signal) = (found.index, found.type, found.signal)
  }
}
