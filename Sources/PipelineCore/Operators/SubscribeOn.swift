/// `subscribeOn`: the beginning, a little later.
struct SubscribeOn: OperatorComponent {
  var scheduler = ""
  private var number = 0

  init() {}

  static let spec = ComponentSpec<SubscribeOn>(
    "subscribeOn",
    summary: "Subscribes to what is above from the queue of a named scheduler.",
    details: """
      What the subscription does, a request for instance, happens when the event that caused it has been \
      dealt with by everybody else, within the same instant; the order of the schedulers is that of \
      `deliverOn`. When the pipeline starts, that is after its sources have started, so a shared source may \
      have sent something by then. Where events are delivered does not change.
      """,
    parameters: [
      .init("scheduler", \.scheduler, primary: true, required: true, "The name of the scheduler; any name.")
    ],
    examples: [
      .marble("nothing changes for one alone", "subscribeOn: second", in: "-1-2-|", out: "-1-2-|")
    ],
    edges: EdgeCases(disposal: "Leaves what is above; if it has not subscribed yet, it never does."),
    memory: "Whether it has subscribed.", persistence: .state(version: 1),
    knownAs: ["RxJS subscribeOn", "Combine subscribe(on:)"],
    useCases: [
      .init(.sharing, "begin when all other signals have been started", "subscribeOn: later")
    ],
    seeAlso: ["deliverOn", "startWith"])

  mutating func bind(_ binder: inout Binder) { number = binder.number(ofScheduler: scheduler) }

  static let subscribesAgain = true

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(PriorityQueue.scheduler(number), nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let precedence: Int
    private var isWaiting = false

    init(_ precedence: Int, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.precedence = precedence
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      isWaiting = true
      execution.priorities.add(precedence)
      later()
    }

    override func resumed(_ token: Int) {
      guard isWaiting else { return }
      if execution.priorities.has(before: precedence) {
        later()
        return
      }
      isWaiting = false
      execution.priorities.remove(precedence)
      subscribe(nodeContext.inputs[0])
    }

    override func stop() {
      if isWaiting { execution.priorities.remove(precedence) }
      isWaiting = false
    }

    override func save(_ state: inout StateWriter) { state.write(isWaiting) }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      isWaiting = try state.read()
      if isWaiting { execution.priorities.add(precedence) }
    }
  }
}
