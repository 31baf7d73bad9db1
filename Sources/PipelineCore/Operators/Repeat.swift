/// `repeat`: once more after the end.
struct Repeat: OperatorComponent {
  var count = Retry.Count(limit: nil)
  var delay = TimeSpan.zero

  static let spec = ComponentSpec<Repeat>(
    "repeat",
    summary: "Subscribes again when the signal completes.",
    details: """
      `count` is how often what is above runs in all; without it, for ever. An error ends it. Rounds \
      follow each other in turns of their own, so that a source that ends at once stops nothing else. In \
      the chain of a group the next round begins with the group's next event, and the group's end is the end.
      """,
    parameters: [
      .init("count", \.count, primary: true, "How many rounds in all, or `forever`."),
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
      empty: "Subscribes again, in a turn of its own; without `count` for ever.",
      completion: "Subscribes again; after the last round it completes.",
      disposal: "Leaves what is above; there is no further round."),
    keeps: "The number of rounds and one timer.", carries: .state(version: 1), rivals: ["RxJS repeat"],
    wants: [
      .init(.failing, "begin again when a signal has completed", "repeat: { count: 3 }"),
      .init(.reading, "ask again a while after each answer", "repeat: { delay: 10s }"),
    ],
    seeAlso: ["retry"])

  static let subscribesAgain = true

  func makeNode(_ seat: Seat, downstream: Downstream) -> OperatorNode { Node(self, seat, downstream) }

  final class Node: MultiInletNode {
    private let parameters: Repeat
    private var rounds = 0
    private var timer = Wake.none

    init(_ parameters: Repeat, _ seat: Seat, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(seat, downstream: downstream)
    }

    override func start() {
      rounds += 1
      open(seat.inputs[0])
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      let isLast = parameters.count.limit.map { rounds >= $0 } ?? false
      // While the pipeline drains, sources end as soon as they are subscribed.
      if isLast || execution.isStopping || !canRunAgain {
        finish()
      } else if parameters.delay == .zero {
        later()
      } else {
        timer = wake(after: parameters.delay)
      }
    }

    override func resumed(_ token: Int) { start() }

    override func woke(_ token: Int) {
      timer = .none
      start()
    }

    override func stop() {
      cancelWake(&timer)
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      state.write(rounds)
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      rounds = try state.read()
      timer = try state.read()
    }
  }
}
