internal import DequeModule

/// A node that creates inner signals for events, a limited number at once; further events wait in a queue. More than
/// `queueLimit` waiting events pause the pipeline's input, as do more bytes than steps may hold (``KeptMemory``).
class QueueingNode: MultiInletNode {
  private let maxConcurrent: Int
  private let queueLimit: Int
  private struct Waiting {
    var event: OwnedEvent
    /// The acknowledgement that the event holds while it is queued.
    var ack: Ack?
    /// The event time, which holds the watermark back; unknown: none.
    var time = EventTime.unknown
    var hold = Wake.none
  }
  private var waiting = Deque<Waiting>()
  private var backlog = Backlog()
  private var isAdvancing = false

  init(maxConcurrent: Int, queueLimit: Int, _ nodeContext: NodeContext, _ downstream: Downstream) {
    self.maxConcurrent = maxConcurrent
    self.queueLimit = queueLimit
    super.init(nodeContext, downstream: downstream)
  }

  /// The number of waiting events.
  final var waitingCount: Int { waiting.count }

  /// The number of running inner signals.
  var active: Int { inletCount }

  /// Opens the inner signal of the event.
  func begin(_ event: Event) {}

  /// Opens the inner signal at once, or queues the event.
  final func queue(_ event: Event) {
    if active < maxConcurrent, waiting.isEmpty {
      begin(event)
    } else {
      let event = OwnedEvent(event)
      waiting.append(held(Waiting(event: event, ack: holdAck(), time: executor.eventTime)))
      backlog.added(event, waiting.count, queueLimit, self)
    }
  }

  private func held(_ one: Waiting) -> Waiting {
    guard one.time != EventTime.unknown, let marks else { return one }
    var one = one
    one.hold = marks.hold(at: one.time)
    return one
  }

  override var hasFurtherTimes: Bool { waiting.contains { $0.time != EventTime.unknown } }

  override func saveTimes(_ state: inout StateWriter) { state.write(each: waiting.map(\.time)) }

  override func restoreTimes(_ state: inout StateReader) throws(StateFault) {
    let times = try state.read([Int64].self)
    guard times.count == waiting.count else { throw StateFault("the times of waiting events are missing") }
    for index in waiting.indices {
      waiting[index].time = times[index]
      waiting[index] = held(waiting[index])
    }
  }

  /// Opens the inner signals that may begin because one has ended. Returns true when that is done, false while an outer
  /// call still does it. The loop replaces a recursion: inner signals that end at once need no stack.
  final func advance() -> Bool {
    guard !isAdvancing else { return false }
    isAdvancing = true
    while !isClosed, active < maxConcurrent, var next = waiting.popFirst() {
      backlog.removed(next.event, waiting.count, queueLimit, self)
      // An event whose call has ended in this turn does not wait for the next call: otherwise a series of calls would
      // never be acknowledged.
      let outer = executor.acks.ofCall
      executor.acks.ofCall = .some(next.ack)
      goOn(with: &next.ack)
      next.event.keep(in: arena)
      if next.time == EventTime.unknown {
        begin(next.event.event)
      } else {
        executor.withEventTime(next.time) { begin(next.event.event) }
        marks?.release(&next.hold)
      }
      executor.acks.ofCall = outer
    }
    isAdvancing = false
    return true
  }

  /// Whether nothing runs and nothing waits.
  final var isIdle: Bool { active == 0 && waiting.isEmpty }

  /// Empties the queue.
  final func forgetWaiting() {
    let left = waiting
    waiting = []
    for var one in left { goOn(with: &one.ack, isGivenUp: true) }
    backlog.cleared(queueLimit, self)
  }

  /// An override must call `super.stop()`.
  override func stop() {
    forgetWaiting()
    super.stop()
  }

  // MARK: State

  final func saveWaiting(_ state: inout StateWriter) { state.write(each: waiting.map(\.event)) }

  final func restoreWaiting(_ state: inout StateReader) throws(StateFault) {
    waiting = Deque(try state.read([OwnedEvent].self).map { Waiting(event: $0) })
  }

  final func saveBacklog(_ state: inout StateWriter) { state.write(backlog.isOver) }

  final func restoreBacklog(_ state: inout StateReader) throws(StateFault) {
    backlog.restore(try state.read(), waiting.lazy.map(\.event), self)
  }
}
