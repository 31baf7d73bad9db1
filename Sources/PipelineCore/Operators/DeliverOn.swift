internal import DequeModule

/// `deliverOn`: events are delivered in the order of named schedulers.
struct DeliverOn: OperatorComponent {
  var scheduler = ""
  var limit = 10_000
  private var number = 0

  init() {}

  static let relaysEvents = true

  static let spec = ComponentSpec<DeliverOn>(
    "deliverOn",
    summary: "Delivers events and the end from the queue of a named scheduler.",
    details: """
      The queues run within the same instant, after every direct receiver has handled the event of a source (or a \
      timer): one scheduler after the other, in the order in which the file first names them, each first in, first \
      out. This decides which of several branches comes first, whatever their order in the file. An error does not \
      overtake waiting events. While more than `limit` events wait, or more bytes than \
      `--queue-memory` allows, the pipeline reads no further input.
      """,
    parameters: [
      .init("scheduler", \.scheduler, primary: true, required: true, "The name of the scheduler; any name."),
      .init("limit", \.limit, range: 1...10_000_000, "How many events may wait before the pipeline's input pauses."),
    ],
    examples: [
      .marble("nothing changes for one alone", "deliverOn: second", in: "-1-2-|", out: "-1-2-|"),
      .marbles(
        "a branch that comes later",
        "{ merge: { x: { from: a, chain: [ { deliverOn: second }, { map: event * 10 } ] }, y: a } }",
        in: ["a": "-1-2-|"], out: "-(1p)-(2q)-|", values: ["p": "10", "q": "20"]),
    ],
    edges: EdgeCases(
      error: "Passed on in order, after waiting events.", completion: "Passed on in order, after waiting events.",
      disposal: "Unsubscribes from the input; waiting events are dropped."),
    memory: "The waiting events, until the end of this turn or the next.", persistence: .state(version: 1),
    knownAs: ["RxJS observeOn", "Combine receive(on:)"],
    useCases: [
      .init(.sharing, "decide which branch comes first within one instant", "deliverOn: later"),
      .init(.sharing, "handle events after all other receivers", "deliverOn: last"),
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
      if case .next(let event) = item { backlog.added(event, waiting.count, limit, self) }
      execution.priorities.add(precedence)
      later()
    }

    override func receive(_ event: Event) { put(.next(OwnedEvent(event))) }
    override func complete() { put(.completed) }
    override func fail(_ failure: SignalFailure) { put(.failed(failure)) }

    override func resumed(_ token: Int) {
      if execution.priorities.has(before: precedence) {
        waitLonger()
        return
      }
      guard let item = waiting.popFirst() else { return }
      if case .next(let event) = item { backlog.removed(event, waiting.count, limit, self) }
      execution.priorities.remove(precedence)
      switch item {
      case .next(let event):
        event.keep(in: arena)
        emit(event.event)
      case .completed: finish()
      case .failed(let failure): finish(failing: failure)
      }
    }

    override var heldCount: Int { waiting.count { if case .next = $0 { true } else { false } } }

    override func stop() {
      for _ in waiting { execution.priorities.remove(precedence) }
      waiting.removeAll()
      backlog.cleared(limit, self)
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
      backlog.restore(wasOver, waiting.lazy.compactMap { if case .next(let event) = $0 { event } else { nil } }, self)
    }
  }
}
