/// A command of `commands:`: work on demand, with a rule for requests that arrive during an execution. Known elsewhere
/// as ReactiveCocoa's RACCommand.
struct Command: CommandComponent {
  enum WhenBusy: String, ChoiceParameter {
    case reject, queue, drop, latest
    var help: String {
      switch self {
      case .reject: "the event goes to the errors output of its signal"
      case .queue: "the event waits in a queue"
      case .drop: "dropped"
      case .latest: "the event is executed at once, and the running execution ends"
      }
    }
  }

  enum Values: String, ChoiceParameter {
    case all, newest
    var help: String {
      switch self {
      case .all: "the values of all executions as they arrive"
      case .newest: "the values of the newest execution; older ones run on without effect on the output"
      }
    }
  }

  var run = SignalParameter()
  var allowsConcurrentExecution = false
  var maxConcurrent = 100
  var whenBusy = WhenBusy.reject
  var queueLimit = 1000
  var deliver = Values.all
  var replay = 100
  var index = 0

  static let spec = ComponentSpec<Command>(
    "command",
    summary: "Runs a signal on demand, with a rule for requests that arrive during an execution.",
    details: """
      `execute: NAME` in a chain executes the command for each event, which `run` sees as `outer` (and, in the \
      parameters of its source, as `event`). The command can be executed while its `enabled` signal is true (it \
      counts as true before its first event) and, unless executions may be concurrent, none is running. Its outputs \
      are `NAME.values`; `NAME.executing` and `NAME.enabled`, which send the current state first and then changes \
      only; and `NAME.errors`, the failures of executions, which never end the command. An execution ends when its \
      signal completes or fails. The command ends when no step can execute it any more and nothing is running. \
      A signal that may execute it and waits for its events would wait for ever: then it ends when nothing \
      upstream of it can act any more: no source runs and no timer is set there, whatever goes on elsewhere.

      Late subscribers of `NAME.values` first receive the last `replay` values of the newest execution, finished or \
      not, and of those that run beside it. These values are forgotten when an execution starts while no other runs. \
      A repeated value answers no HTTP request. `NAME.errors` is not replayed: an error without a subscriber is a \
      dead letter.
      """,
    parameters: [
      .init("run", \.run, required: true, "The signal that an execution runs."),
      .init(
        "allowsConcurrentExecution", \.allowsConcurrentExecution,
        "Whether executions may run at the same time."),
      .init(
        "maxConcurrent", \.maxConcurrent, range: 1...10_000,
        applies: .on("allowsConcurrentExecution"),
        "How many executions may run at the same time; the command is busy for further events."),
      .init("whenBusy", \.whenBusy, "What happens to an event while the command is busy."),
      .init(
        "queueLimit", \.queueLimit, range: 1...10_000_000,
        applies: .word("whenBusy", ["queue"]),
        "How many events may wait before the pipeline's input pauses; their bytes count for `--queue-memory`."),
      .init("deliver", \.deliver, "Which executions' values `NAME.values` sends."),
      .init(
        "replay", \.replay, range: 0...1_000_000,
        "How many values late subscribers of `NAME.values` receive first."),
    ],
    examples: [
      .snippet(
        "one at a time, while the form is filled",
        "run: { from: { http: 'http://127.0.0.1:8080/reindex' } }\nwhenBusy: queue")
    ],
    edges: EdgeCases(
      empty: "An execution without events ends when its signal completes.",
      error: "The failure of an execution is an event of `NAME.errors` and never ends the command.",
      completion: "Ends when no step can execute it any more and nothing is running.",
      disposal: "Unsubscribing from an output does not cancel executions."),
    memory: """
      The running executions with their inputs, the waiting events, and the last `replay` values. HTTP clients that \
      wait for an answer are lost at a restart.
      """,
    persistence: .state(version: 1),
    knownAs: ["ReactiveCocoa RACCommand", "ReactiveSwift Action", "RxSwift Action"],
    useCases: [
      .init(.commanding, "run a job on demand, one at a time", "{ run: other }"),
      .init(.commanding, "queue jobs that arrive while one is running", "{ run: other, whenBusy: queue }"),
      .init(.commanding, "let a new request replace the running one", "{ run: other, whenBusy: latest }"),
      .init(
        .commanding, "allow several jobs at once", "{ run: other, allowsConcurrentExecution: true, maxConcurrent: 4 }"),
    ],
    seeAlso: ["execute"])

  func validate(_ context: inout DecodingContext) {
    if allowsConcurrentExecution, whenBusy == .latest {
      context.badValue(
        at: context.location, "'whenBusy: latest' ends the running execution, so none is ever concurrent",
        .conflictingParameters, help: "Remove 'allowsConcurrentExecution'")
    }
  }

  func outputType(_ inputs: [EventType]) -> EventType { run.plan?.type ?? .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Running(self, nodeContext, downstream)
  }

  /// The answer to a request to execute.
  enum Answer {
    case accepted
    case busy
    case dropped
    case disabled
  }
}

extension Catalogue {
  /// The entries of `commands:`.
  package static let commands = Catalogue([CatalogueEntry(command: Command.self, "command")])
}
