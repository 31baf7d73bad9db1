/// `subscribeOn`: subscribes in the order of named schedulers.
struct SubscribeOn: OperatorComponent, TimedOperator {
  var scheduler = ""
  private var number = 0

  init() {}

  static let relaysEvents = true

  static let spec = ComponentSpec<SubscribeOn>(
    "subscribeOn",
    summary: "Subscribes upstream from the queue of a named scheduler.",
    details: """
      The effect of the subscription, such as a request, happens within the same instant, after all other receivers \
      have handled the event that caused it; the order of the schedulers is that of `deliverOn`. At the start of the \
      pipeline that is after its sources have started, so a shared source may have sent events by then. The delivery \
      of events does not change.
      """,
    parameters: [
      .init("scheduler", \.scheduler, primary: true, required: true, "The name of the scheduler; any name.")
    ],
    examples: [
      .marble("nothing changes for one alone", "subscribeOn: second", in: "-1-2-|", out: "-1-2-|")
    ],
    edges: EdgeCases(disposal: "Unsubscribes from upstream; a subscription that waits is never made."),
    memory: "Whether it has subscribed.", persistence: .state(version: 1),
    knownAs: ["RxJS subscribeOn", "Combine subscribe(on:)"],
    useCases: [
      .init(.sharing, "start when all other signals have started", "subscribeOn: later")
    ],
    seeAlso: ["deliverOn", "startWith"])

  mutating func bind(_ binder: inout Binder) { number = binder.number(ofScheduler: scheduler) }

  static let subscribesAgain = true

  var timing: Timing { .passes }

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
        waitLonger()
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
