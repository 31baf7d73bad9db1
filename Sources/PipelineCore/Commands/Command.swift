/// A command of `commands:`: work on demand, with a rule for requests that come during an execution. ReactiveCocoa's
/// RACCommand.
struct Command: OperatorComponent {
  enum WhenBusy: String, ChoiceParameter {
    case reject, queue, drop, latest
    var help: String {
      switch self {
      case .reject: "refused: it goes to the errors output of the signal that it came from"
      case .queue: "executed when it is its turn"
      case .drop: "dropped"
      case .latest: "executed at once; what is being executed ends"
      }
    }
  }

  enum Values: String, ChoiceParameter {
    case all, newest
    var help: String {
      switch self {
      case .all: "those of all executions as they come"
      case .newest: "those of the newest execution; older ones go on unheard"
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
  /// The index in `Plan.named`.
  var index = 0

  static let spec = ComponentSpec<Command>(
    "command",
    summary: "Work on demand: a signal made for each execution, and a rule for requests that come meanwhile.",
    details: """
      `execute: NAME` in a chain executes it for each event, which `run` sees as `outer` (and, in the \
      parameters of its source, as `event`). It can be executed while its `enabled` signal, true until it \
      has said otherwise, is true and, unless executions may be concurrent, none is going on. Its outputs \
      are `NAME.values`, `NAME.executing` and `NAME.enabled`, which begin with what holds now and say \
      changes only, and `NAME.errors`: what made an execution fail, which never ends the command. An \
      execution is over when its signal has completed or failed; one that never ends is never over. The \
      command ends when everybody who could execute it has ended and nothing is being executed.

      Who begins to listen to `NAME.values` late misses nothing: first come the values that the newest \
      execution, over or not, and those that go on beside it have sent, the last `replay` of them, then what \
      they send from then on. They are forgotten when an execution begins while no other goes on. A value that is told \
      again answers no HTTP request. `NAME.errors` tells nothing twice: what comes while nobody listens is a \
      dead letter.
      """,
    parameters: [
      .init("run", \.run, required: true, "The signal that an execution is."),
      .init(
        "allowsConcurrentExecution", \.allowsConcurrentExecution,
        "Whether it can be executed while it is being executed."),
      .init(
        "maxConcurrent", \.maxConcurrent, range: 1...10_000,
        "How many executions may go on at once, if they may be concurrent; more find it busy."),
      .init("whenBusy", \.whenBusy, "What becomes of an event that finds it busy."),
      .init(
        "queueLimit", \.queueLimit, range: 1...10_000_000,
        "How many events may wait under `queue` before input is held back."),
      .init("deliver", \.deliver, "Whose values `NAME.values` sends."),
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
      empty: "An execution that sends nothing is over when its signal completes.",
      error: "That of an execution is an event of `NAME.errors` and never ends the command.",
      completion: "Ends when all who may execute it have ended and nothing is being executed.",
      disposal: "Who stops listening does not cancel the work."),
    memory: """
      The executions that are going on with their inputs, the events that wait, and the last `replay` values. An \
      HTTP client that waits for an answer has gone after a restart.
      """,
    persistence: .state(version: 1),
    knownAs: ["ReactiveCocoa RACCommand", "ReactiveSwift Action", "RxSwift Action"],
    useCases: [
      .init(.commanding, "run a job on demand, one at a time", "{ run: other }"),
      .init(.commanding, "queue jobs that come while one is running", "{ run: other, whenBusy: queue }"),
      .init(.commanding, "let a new request replace the running one", "{ run: other, whenBusy: latest }"),
      .init(
        .commanding, "allow several jobs at once", "{ run: other, allowsConcurrentExecution: true, maxConcurrent: 4 }"),
    ],
    seeAlso: ["execute"])

  func validate(_ context: inout DecodingContext) {
    if allowsConcurrentExecution, whenBusy == .latest {
      context.badValue(
        at: context.location, "'whenBusy: latest' ends what is being executed, so nothing is ever concurrent",
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
  /// The components of `commands:`.
  public static let commands = Catalogue([CatalogueEntry(command: Command.self)])
}
