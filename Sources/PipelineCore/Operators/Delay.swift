internal import DequeModule

/// `delay`: events and completion are delayed, errors are not.
struct Delay: OperatorComponent, TimedOperator {
  var by = TimeSpan.zero
  var limit = 10_000

  static let relaysEvents = true

  static let spec = ComponentSpec<Delay>(
    "delay",
    summary: "Sends each event, and the completion, a fixed time later.",
    details: """
      An error is sent at once, and waiting events are dropped. While more than `limit` events wait, or more \
      bytes than `--queue-memory` allows, the pipeline reads no further input.
      """,
    parameters: [
      .init("by", \.by, primary: true, required: true, range: 0...Int64.max, "The delay."),
      .init(
        "limit", \.limit, range: 1...10_000_000,
        "How many events may wait before the pipeline's input pauses."),
    ],
    examples: [
      .marble("the completion too", "delay: 5ms", in: "-1|", out: "------1|"),
      .marble("an error overtakes", "delay: 5ms", in: "-1--#", out: "----#"),
    ],
    edges: EdgeCases(
      empty: "Completes after the delay.", error: "Passed on at once; waiting events are dropped.",
      completion: "Passed on after the delay, after the last event.",
      disposal: "Unsubscribes from the input; waiting events are dropped and the timers freed."),
    memory: "The events of the last `by`.", persistence: .state(version: 1),
    lateness: .leavesOut("Events that were due are dropped."), knownAs: ["RxJS delay"],
    useCases: [
      .init(.time, "delay everything by a fixed time", "delay: 10s")
    ],
    seeAlso: ["throttle", "timeout"])

  var timing: Timing { .passes }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    private let parameters: Delay
    /// Events of the same instant share one timer, which is stored with the first of them.
    private var waiting = Deque<Waiting>()

    private struct Waiting {
      let due: Instant
      let event: OwnedEvent
      var timer: Wake
      /// The event time.
      var time = EventTime.unknown
      /// The watermark that came after the event, and is sent after it.
      var mark = EventTime.unknown
    }
    private var endTimer = Wake.none
    private var backlog = Backlog()
    private static let end = 1

    init(_ parameters: Delay, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override func receive(_ event: Event) {
      guard !isClosed else { return }
      let due = now + parameters.by
      let timer = waiting.last?.due == due ? Wake.none : wake(at: due)
      let event = OwnedEvent(event)
      waiting.append(Waiting(due: due, event: event, timer: timer, time: executor.eventTime))
      backlog.added(event, waiting.count, parameters.limit, self)
    }

    override func woke(_ token: Int) {
      while let first = waiting.first, first.due <= now, !isClosed {
        waiting.removeFirst()
        backlog.removed(first.event, waiting.count, parameters.limit, self)
        first.event.keep(in: arena)
        if first.time == EventTime.unknown {
          emit(first.event.event)
        } else {
          executor.withEventTime(first.time) { emit(first.event.event) }
        }
        if first.mark != EventTime.unknown { sendAdvance(to: first.mark) }
      }
      if token == Self.end { finish() }
    }

    /// The watermark is delayed as the events are.
    override func advance(to time: Int64) {
      if waiting.isEmpty { sendAdvance(to: time) } else { waiting[waiting.count - 1].mark = time }
    }

    override func recordTimes(_ state: inout StateWriter) {
      guard isTimed, !waiting.isEmpty else { return }
      state.write(each: waiting.map(\.time))
      state.write(each: waiting.map(\.mark))
    }

    override func restoreTimes(_ state: inout StateReader, _ inlets: [SavedInlet]) throws(StateFault) {
      let (times, marks) = (try state.read([Int64].self), try state.read([Int64].self))
      guard times.count == waiting.count, marks.count == waiting.count else {
        throw StateFault("the times of its events are missing")
      }
      for index in waiting.indices { (waiting[index].time, waiting[index].mark) = (times[index], marks[index]) }
    }

    override func skipped(_ token: Int, _ late: Lateness) {
      while let first = waiting.first, first.due <= late.due {
        waiting.removeFirst()
        backlog.removed(first.event, waiting.count, parameters.limit, self)
        countDropped(first.event.event)
        if first.mark != EventTime.unknown { sendAdvance(to: first.mark) }
      }
      if token == Self.end { finish() }
    }

    override func complete() { endTimer = wake(after: parameters.by, Self.end) }

    override var heldCount: Int { waiting.count }

    override func stop() {
      for index in waiting.indices { cancelWake(&waiting[index].timer) }
      cancelWake(&endTimer)
      waiting.removeAll()
      backlog.cleared(parameters.limit, self)
    }

    override func save(_ state: inout StateWriter) {
      state.write(each: waiting) { state, item in
        state.write(item.due)
        state.write(item.event)
        state.write(item.timer)
      }
      state.write(endTimer)
      state.write(backlog.isOver)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      for _ in 0..<(try state.count()) {
        waiting.append(Waiting(due: try state.read(), event: try state.read(), timer: try state.read()))
      }
      endTimer = try state.read()
      backlog.restore(try state.read(), waiting.lazy.map(\.event), self)
    }
  }
}
