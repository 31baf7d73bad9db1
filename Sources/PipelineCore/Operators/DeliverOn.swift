internal import DequeModule

/// `deliverOn`: everything again, a little later, in a defined order.
struct DeliverOn: OperatorComponent {
  var scheduler = ""
  var limit = 10_000
  private var number = 0

  init() {}

  static let spec = ComponentSpec<DeliverOn>(
    "deliverOn",
    summary: "Puts events and the end into the queue of a named scheduler and sends them from there.",
    details: """
      The queues are worked off when the event of a source (or a timer) has been dealt with by everybody \
      who gets it directly: within the same instant, one scheduler after the other in the order in which the \
      file names them, each first in, first out. So one decides which of several branches comes first, \
      whatever the order of their listing. An error does not overtake what waits before it. While more than \
      `limit` events wait, the pipeline reads no further input.
      """,
    parameters: [
      .init("scheduler", \.scheduler, primary: true, required: true, "The name of the scheduler; any name."),
      .init("limit", \.limit, range: 1...10_000_000, "How many events may wait before input is held back."),
    ],
    examples: [
      .marble("nothing changes for one alone", "deliverOn: second", in: "-1-2-|", out: "-1-2-|"),
      .marbles(
        "a branch that comes later",
        "{ merge: { x: { from: a, chain: [ { deliverOn: second }, { map: event * 10 } ] }, y: a } }",
        in: ["a": "-1-2-|"], out: "-(1p)-(2q)-|", values: ["p": "10", "q": "20"]),
    ],
    edges: EdgeCases(
      error: "Passed on in its turn, behind what waits.", completion: "Passed on in its turn, behind what waits.",
      disposal: "Leaves the input; what waits is dropped."),
    memory: "The events that wait, until the end of the turn or the next one.", persistence: .state(version: 1),
    knownAs: ["RxJS observeOn", "Combine receive(on:)"],
    useCases: [
      .init(.sharing, "decide which branch comes first within one instant", "deliverOn: later"),
      .init(.sharing, "handle events only when everybody else has had them", "deliverOn: last"),
    ],
    seeAlso: ["subscribeOn", "delay", "combineLatest"])

  mutating func bind(_ binder: inout Binder) { number = binder.number(ofScheduler: scheduler) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(PriorityQueue.scheduler(number), limit, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private enum Item {
      case next(OwnedEvent)
      case completed
      case failed(SignalFailure)
    }

    private let precedence: Int
    private let limit: Int
    private var waiting = Deque<Item>()
    private var backlog = Backlog()

    init(_ precedence: Int, _ limit: Int, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.precedence = precedence
      self.limit = limit
      super.init(nodeContext, downstream: downstream)
    }

    private func put(_ item: Item) {
      guard !isClosed else { return }
      waiting.append(item)
      backlog.update(waiting.count, limit, executor)
      execution.priorities.add(precedence)
      later()
    }

    override func receive(_ event: Event) { put(.next(OwnedEvent(event))) }
    override func complete() { put(.completed) }
    override func fail(_ failure: SignalFailure) { put(.failed(failure)) }

    override func resumed(_ token: Int) {
      if execution.priorities.has(before: precedence) {
        later()
        return
      }
      guard let item = waiting.popFirst() else { return }
      backlog.update(waiting.count, limit, executor)
      execution.priorities.remove(precedence)
      switch item {
      case .next(let event):
        event.keep(in: arena)
        emit(event.event)
      case .completed: finish()
      case .failed(let failure): finish(failing: failure)
      }
    }

    override func stop() {
      for _ in waiting { execution.priorities.remove(precedence) }
      waiting.removeAll()
      backlog.update(0, limit, executor)
    }

    override func save(_ state: inout StateWriter) {
      state.write(each: waiting) { state, item in
        switch item {
        case .next(let event):
          state.write(0)
          state.write(event)
        case .completed: state.write(1)
        case .failed(let failure):
          state.write(2)
          state.write(failure)
        }
      }
      state.write(backlog.isOver)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      var items = Deque<Item>()
      for _ in 0..<(try state.count()) {
        switch try state.read(in: 0...2) {
        case 0: items.append(.next(try state.read()))
        case 1: items.append(.completed)
        default: items.append(.failed(try state.read()))
        }
      }
      let wasOver = try state.read(Bool.self)
      for _ in items { execution.priorities.add(precedence) }
      waiting = items
      backlog.restore(wasOver, executor)
    }
  }
}
