internal import DequeModule

/// A command of `commands:`: work on demand, with a rule for who comes while it is being done. ReactiveCocoa's
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
  /// Its place in `Plan.named`.
  var index = 0

  static let spec = ComponentSpec<Command>(
    "command",
    summary: "Work on demand: a signal made for each execution, and a rule for who asks meanwhile.",
    details: """
      `execute: NAME` in a chain executes it for each event, which `run` sees as `outer` (and, in the \
      parameters of its source, as `event`). It can be executed while its `enabled` signal, true until it \
      has said otherwise, is true and, unless executions may be concurrent, none is going on. Its outputs \
      are `NAME.values`, `NAME.executing` and `NAME.enabled`, which begin with what holds now and say \
      changes only, and `NAME.errors`: what made an execution fail, which never ends the command. An \
      execution is over when its signal has completed or failed; one that never ends is never over. The \
      command ends when everybody who could execute it has ended and nothing is being executed.
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
    keeps: "The executions that are going on with their inputs, and the events that wait.",
    carries: .restarts("What was being executed, and what waited for it, is not executed again."),
    rivals: ["ReactiveCocoa RACCommand", "ReactiveSwift Action", "RxSwift Action"],
    wants: [
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

  func makeNode(_ seat: Seat, downstream: Downstream) -> OperatorNode { Hub(self, seat, downstream) }

  /// How a request to execute was answered.
  enum Answer {
    case accepted
    case busy
    case dropped
    case disabled
  }

  /// The running command. Who executes it, and who listens, holds a subscription to it and so keeps it alive.
  final class Hub: MultiInletNode {
    let parameters: Command
    private var drivers: [Execute.Node] = []
    private var listeners: [CommandOutput.Node] = []
    /// What is being executed, by the number of its inlet.
    private var executions: [Int: Request] = [:]
    private var newest = 0
    private var waiting = Deque<Request>()
    private var backlog = Backlog()
    /// The newest value of the `enabled` signal.
    private var isPermitted = true
    private var saysExecuting = false
    private var saysEnabled = true
    private var isAdvancing = false
    /// An execution was cut off because the pipeline stops, so the command does not say that it is free again.
    private var isCut = false
    /// Everybody who is there from the beginning has come.
    private var isSettled = false

    private static let enabledInlet = -1

    private struct Request {
      var input: OwnedEvent
      var driver: Execute.Node?
      let work = Scope.Work()
      /// Whether it was begun while the sources were being ended, so that they are not what ends it.
      var isLate = false

      /// Whether it ends because the pipeline stops.
      func isCut(_ execution: Execution) -> Bool { work.isCut || execution.isDraining && !isLate }
    }

    init(_ parameters: Command, _ seat: Seat, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(seat, downstream: downstream)
    }

    override func start() {
      execution.commands[parameters.index] = self
      if let enabled = seat.inputs.first { open(enabled, number: Self.enabledInlet) }
      // Those who come in the same turn are there before it can end for want of them.
      execution.whenWired { [weak self] in self?.later() }
    }

    override func resumed(_ token: Int) {
      isSettled = true
      endIfIdle()
    }

    // MARK: Who has to do with it

    var isExecuting: Bool { !executions.isEmpty }

    var isEnabled: Bool {
      guard isPermitted else { return false }
      if parameters.allowsConcurrentExecution { return executions.count < parameters.maxConcurrent }
      return executions.isEmpty || parameters.whenBusy == .queue || parameters.whenBusy == .latest
    }

    func attach(_ driver: Execute.Node) { drivers.append(driver) }

    /// What it has begun goes on: ending the subscription does not cancel the work (RACCommand's `execute:`).
    func detach(_ driver: Execute.Node) {
      drivers.removeAll { $0 === driver }
      for number in Array(executions.keys) where executions[number]?.driver === driver {
        executions[number]?.driver = nil
      }
      for at in waiting.indices where waiting[at].driver === driver { waiting[at].driver = nil }
      if !isClosed { endIfIdle() }
    }

    func attach(_ listener: CommandOutput.Node) { listeners.append(listener) }
    func detach(_ listener: CommandOutput.Node) { listeners.removeAll { $0 === listener } }

    // MARK: Executing

    func execute(_ event: Event, for driver: Execute.Node) -> Answer {
      guard !isClosed, isPermitted else { return .disabled }
      let request = Request(input: OwnedEvent(event), driver: driver)
      let limit = parameters.allowsConcurrentExecution ? parameters.maxConcurrent : 1
      if executions.count < limit, waiting.isEmpty {
        driver.began()
        begin(request)
        return .accepted
      }
      switch parameters.whenBusy {
      case .reject: return .busy
      case .drop: return .dropped
      case .queue:
        driver.began()
        waiting.append(request)
        backlog.update(waiting.count, parameters.queueLimit, executor)
        return .accepted
      case .latest:
        driver.began()
        // Teardown precedes what comes next; whoever watches sees one command going on.
        for inlet in inlets where executions[inlet.number] != nil {
          let old = executions.removeValue(forKey: inlet.number)
          drop(inlet)
          old?.driver?.ended()
        }
        if isClosed { return .disabled }
        begin(request)
        return .accepted
      }
    }

    private func begin(_ request: Request) {
      newest += 1
      let number = newest
      var request = request
      request.isLate = execution.isDraining
      executions[number] = request
      announce()
      guard !isClosed else { return }
      request.input.keep(in: arena)
      open(
        parameters.run.required, number: number, seat.scope.with(outer: request.input.event).with(work: request.work))
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      guard inlet.number != Self.enabledInlet else {
        guard event.value.is(.bool) else {
          reject(event, .unexpectedValue, "'enabled' must be true or false, not \(event.value.kindName)")
          return
        }
        isPermitted = event.value.isTrue
        announce()
        return
      }
      let driver = executions[inlet.number]?.driver
      if parameters.deliver == .all || inlet.number == newest { tell(.values, event) }
      driver?.pass(event)
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      guard inlet.number != Self.enabledInlet else { return }
      if let request = executions[inlet.number], request.isCut(execution) { cut(request) }
      over(inlet.number)
    }

    /// The pipeline stops, and the execution was not over: nobody is told that it is.
    private func cut(_ request: Request) {
      isCut = true
      request.input.keep(in: arena)
      reject(
        request.input.event, .executionFailed, "the execution was cut off: the pipeline was stopped before it was over")
    }

    override func failed(_ inlet: Inlet, _ failure: SignalFailure) {
      guard inlet.number != Self.enabledInlet else {
        finish(failing: failure)
        return
      }
      drop(inlet)
      if let input = executions[inlet.number]?.input {
        input.keep(in: arena)
        reject(
          input.event, .executionFailed, "the execution failed: \(failure.message)", at: failure.location)
      }
      over(inlet.number)
    }

    private func over(_ number: Int) {
      let ended = executions.removeValue(forKey: number)
      advance()
      announce()
      ended?.driver?.ended()
      if !isClosed { endIfIdle() }
    }

    /// A loop, not a recursion: executions that end at once cost no stack.
    private func advance() {
      guard !isAdvancing else { return }
      isAdvancing = true
      let limit = parameters.allowsConcurrentExecution ? parameters.maxConcurrent : 1
      while !isClosed, executions.count < limit, let next = waiting.popFirst() {
        backlog.update(waiting.count, parameters.queueLimit, executor)
        begin(next)
      }
      isAdvancing = false
    }

    // MARK: Telling

    private func announce() {
      if isCut, !isExecuting { return }
      guard !isAdvancing || !executions.isEmpty else { return }
      if saysExecuting != isExecuting {
        saysExecuting = isExecuting
        tell(.executing, Event(.bool(saysExecuting)))
      }
      if saysEnabled != isEnabled {
        saysEnabled = isEnabled
        tell(.enabled, Event(.bool(saysEnabled)))
      }
    }

    private func tell(_ output: CommandOutput.Kind, _ event: Event) {
      for listener in listeners where listener.kind == output { listener.pass(event) }
    }

    private func endIfIdle() {
      guard isSettled, drivers.isEmpty, executions.isEmpty, waiting.isEmpty else { return }
      finish()
    }

    override func stop() {
      super.stop()
      execution.commands[parameters.index] = nil
      waiting.removeAll()
      backlog.update(0, parameters.queueLimit, executor)
      executions = [:]
    }
  }
}

extension Catalogue {
  /// What `commands:` holds.
  public static let commands = Catalogue([CatalogueEntry(command: Command.self)])
}
