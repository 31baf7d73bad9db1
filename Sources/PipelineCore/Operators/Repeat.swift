/// `repeat`: subscribes again after completion.
struct Repeat: OperatorComponent {
  var count = Retry.Count(limit: nil)
  var delay = TimeSpan.zero

  static let relaysEvents = true

  static let spec = ComponentSpec<Repeat>(
    "repeat",
    summary: "Subscribes again when the signal completes.",
    details: """
      `count` is the total number of rounds; without it, the signal repeats for ever. An error ends it. Rounds that \
      end at once let other work run first, and wait while a sink cannot take more. After 1000 rounds in a row that \
      sent nothing and lasted less than 10 ms each, each further round waits 10 ms, so an empty source costs next to \
      nothing. In the chain of a group the next round starts with the group's next event, and ends with the group.
      """,
    parameters: [
      .init("count", \.count, primary: true, "The total number of rounds, or `forever`."),
      .init("delay", \.delay, range: 0...Int64.max, "The pause between rounds."),
    ],
    examples: [
      .marble("twice", "repeat: 2", in: "-1|", out: "-1-1|"),
      .marble(
        "pairs of each group",
        "groupBy: { key: event, chain: [ { take: 2 }, collect, repeat ] }", in: "aabaa|", out: "-p--q(re|)",
        values: ["p": "[a, a]", "q": "[a, a]", "r": "[]", "e": "[b]"]),
      .marble("with a pause", "repeat: { count: 2, delay: 3ms }", in: "1|", out: "1---1|"),
    ],
    edges: EdgeCases(
      empty: "Subscribes again; after 1000 such rounds in a row, every 10 ms. Without `count`, it repeats forever.",
      completion: "Subscribes again; after the last round it completes.",
      disposal: "Unsubscribes from upstream; no further round starts."),
    memory: "The number of rounds and one timer.", persistence: .state(version: 2),
    lateness: .always("without its next round the signal would never end"), knownAs: ["RxJS repeat"],
    useCases: [
      .init(.failing, "restart a signal when it has completed", "repeat: { count: 3 }"),
      .init(.reading, "poll again some time after each response", "repeat: { delay: 10s }"),
    ],
    seeAlso: ["retry"])

  static let subscribesAgain = true

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: MultiInletNode, Pausing {
    private let parameters: Repeat
    private var rounds = 0
    private var timer = Wake.none
    private var pace = Pace()
    /// The value of the executor's `drain` when the round started.
    private var drain: UInt64 = 0
    /// Whether the next round waits for a turn, as input does.
    private var waitsForTurn = false
    /// The number of rounds that ended immediately since the last wait for a turn.
    private var atOnce = 0
    /// The number of repetitions after which other work runs first.
    private static let share = 1000

    init(_ parameters: Repeat, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      rounds += 1
      pace.begin(now)
      drain = executor.drain
      open(nodeContext.inputs[0])
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      pace.reset()
      emit(event)
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      let pause = pace.end(now)
      let isLast = parameters.count.limit.map { rounds >= $0 } ?? false
      // While the pipeline drains, sources end as soon as they are subscribed to.
      if isLast || execution.isStopping || !canRunAgain {
        finish()
      } else if parameters.delay > .zero || pause > .zero {
        timer = wake(after: parameters.delay > .zero ? parameters.delay : pause)
        execution.pauseBegins(self)
      } else if drain == executor.drain, hasHadItsShare {
        waitForTurn()
      } else {
        later()
      }
    }

    /// Whether other work is done before the next round, after one that ended immediately.
    private var hasHadItsShare: Bool {
      atOnce += 1
      guard atOnce >= Self.share || executor.isInputPaused else { return false }
      atOnce = 0
      return true
    }

    /// Starts the next round in a turn of its own, when input is accepted. Use it only after a round that ended without
    /// any event from outside: a round that an event ended must be followed immediately, or the next event is missed.
    private func waitForTurn() {
      waitsForTurn = true
      nonisolated(unsafe) weak let node = self
      executor.postBatch(inner: nodeContext.scope.outer != nil) {
        guard let node, node.waitsForTurn else { return }
        node.waitsForTurn = false
        if !node.isClosed { node.resumed(0) }
      }
    }

    override func resumed(_ token: Int) { start() }

    override func restored() {
      if waitsForTurn { waitForTurn() }
      if timer.isSet { execution.pauseBegins(self) }
    }

    func endPause() {
      cancelWake(&timer)
      woke(0)
    }

    override func woke(_ token: Int) {
      timer = .none
      execution.pauseEnds(self)
      start()
    }

    override func stop() {
      if timer.isSet { execution.pauseEnds(self) }
      cancelWake(&timer)
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      state.write(rounds)
      state.write(timer)
      state.write(waitsForTurn)
      state.write(atOnce)
      pace.save(&state)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      rounds = try state.read()
      timer = try state.read()
      guard state.version > 1 else { return }
      waitsForTurn = try state.read()
      atOnce = try state.read(in: 0...Self.share)
      try pace.restore(&state)
    }
  }
}
