/// `sample`: the newest value at regular times, or whenever another signal sends.
struct Sample: OperatorComponent {
  var every: TimeSpan?
  var at = SignalParameter()
  var onlyNew = false
  var settles: Bool { at.isGiven }

  static let spec = ComponentSpec<Sample>(
    "sample",
    summary: "Sends the newest event each time a sampler fires.",
    details: """
      The sampler is a clock (`every`) or another signal (`at`). The newest event is sent repeatedly until a newer \
      one comes; with `onlyNew`, each is sent at most once. Nothing is sent before the first event. It completes \
      when either side does; an unsampled event is dropped.
      """,
    parameters: [
      .init("every", \.every, primary: true, range: 1...Int64.max, "The period of sampling."),
      .init("at", \.at, "The signal whose events sample."),
      .init("onlyNew", \.onlyNew, "Send no event twice."),
    ],
    examples: [
      .marbles(
        "again and again", "{ from: a, chain: [ { sample: { at: b } } ] }",
        in: ["a": "-1---2-----|", "b": "--x-x-x-x|"], out: "--1-1-2-2|"),
      .marbles(
        "only new events", "{ from: a, chain: [ { sample: { at: b, onlyNew: true } } ] }",
        in: ["a": "-1---2-----|", "b": "--x-x-x-x|"], out: "--1---2--|"),
    ],
    edges: EdgeCases(
      error: "Passed on at once, from either side.",
      completion: "Passed on at once, from either side; an unsampled event is dropped.",
      disposal: "Unsubscribes from both sides and frees its timer."),
    memory: "The newest event.", persistence: .state(version: 2),
    lateness: .leavesOut("Missed samples are skipped; the next one is taken in its period.") { sample, _ in
      sample.every == nil ? "it goes by another signal" : nil
    },
    knownAs: ["RxJS sample (only new values)", "RxJS auditTime"],
    useCases: [
      .init(.time, "have the newest value once a second", "sample: 1s"),
      .init(.time, "have the newest value when something else happens", "sample: { at: other }"),
      .init(.time, "send at most one event a second, and only new ones", "sample: { every: 1s, onlyNew: true }"),
    ],
    seeAlso: ["throttle", "combineLatest"])

  func validate(_ context: inout DecodingContext) {
    if (every == nil) == !at.isGiven {
      context.diagnostics.report(
        Diagnostic(
          .conflictingParameters, "'sample' needs either 'every' or 'at'", at: context.location,
          help: "Write 'sample: 1s', or 'sample: { at: SIGNAL }'"))
    }
  }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    private let parameters: Sample
    private var newest: OwnedEvent?
    private var isNew = false
    private var timer = Wake.none
    /// Whether one event may reach both the input and the sampler. The sampler's event then waits until the input has
    /// received its own.
    private let meets: Bool
    private let precedence: Int
    /// The number of waiting events of the sampler.
    private var due = 0

    init(_ parameters: Sample, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      (meets, precedence) = nodeContext.meeting(parameters.at.plan)
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      if let every = parameters.every { timer = wake(after: every) }
      open(nodeContext.inputs[0], number: 0)
      if parameters.at.isGiven, !isClosed { open(parameters.at.required, number: 1) }
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      if inlet.number == 1 {
        if meets { wait() } else { send() }
        return
      }
      if isNew { countSuperseded(newest?.event) }
      if newest == nil { newest = OwnedEvent(event) } else { newest?.assign(event, retiring: arena) }
      keptSize.set(bytes: newest?.byteCount ?? 0)
      isNew = true
    }

    override func woke(_ token: Int) {
      if let every = parameters.every { timer = wake(after: every) }
      send()
    }

    override var mayGoOn: Bool {
      newest != nil && (isNew || !parameters.onlyNew && !execution.isStopping)
    }

    override func skipped(_ token: Int, _ late: Lateness) {
      guard let every = parameters.every else { return }
      let periods = (late.restored - late.due).nanoseconds / every.nanoseconds &+ 1
      timer = wake(at: late.due + TimeSpan(nanoseconds: every.nanoseconds &* periods))
    }

    private func wait() {
      due += 1
      guard due == 1 else { return }
      execution.priorities.add(precedence)
      later()
    }

    override func resumed(_ token: Int) {
      guard due > 0 else { return }
      if execution.priorities.has(before: precedence) { waitLonger() } else { settle() }
    }

    private func settle() {
      let count = leave()
      for _ in 0..<count where !isClosed { send() }
    }

    private func leave() -> Int {
      guard due > 0 else { return 0 }
      defer { due = 0 }
      execution.priorities.remove(precedence)
      return due
    }

    private func send() {
      guard let newest, isNew || !parameters.onlyNew else { return }
      isNew = false
      newest.keep(in: arena)
      emit(newest.event)
    }

    override func completed(_ inlet: Inlet) {
      settle()
      if isNew {
        newest?.keep(in: arena)
        countDropped(newest?.event)
        isNew = false
      }
      finish()
    }

    override var heldCount: Int { isNew ? 1 : 0 }

    override func stop() {
      cancelWake(&timer)
      _ = leave()
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      state.write(newest)
      state.write(isNew)
      state.write(timer)
      state.write(due)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      newest = try state.read()
      keptSize.set(bytes: newest?.byteCount ?? 0)
      isNew = try state.read()
      timer = try state.read()
      guard state.version > 1 else { return }
      due = try state.read(in: 0...1_000_000)
      if due > 0 { execution.priorities.add(precedence) }
    }
  }
}
