internal import DequeModule

/// A node that makes inner signals of events, a limited number at once; further events wait in a queue. More than
/// `queueLimit` waiting events pause the pipeline's input.
open class QueueingNode: MultiInletNode {
  private let maxConcurrent: Int
  private let queueLimit: Int
  private var waiting = Deque<OwnedEvent>()
  private var backlog = Backlog()
  private var isAdvancing = false

  init(maxConcurrent: Int, queueLimit: Int, _ nodeContext: NodeContext, _ downstream: Downstream) {
    self.maxConcurrent = maxConcurrent
    self.queueLimit = queueLimit
    super.init(nodeContext, downstream: downstream)
  }

  /// The number of running inner signals.
  open var active: Int { inletCount }

  /// Opens the inner signal of the event.
  open func begin(_ event: Event) {}

  /// Opens the inner signal at once, or queues the event.
  public final func queue(_ event: Event) {
    if active < maxConcurrent, waiting.isEmpty {
      begin(event)
    } else {
      waiting.append(OwnedEvent(event))
      backlog.update(waiting.count, queueLimit, executor)
    }
  }

  /// Opens what may begin now that an inner signal has ended. Returns true when that is done, false while an outer call
  /// still does it. A loop, not a recursion: inner signals that end at once need no stack.
  public final func advance() -> Bool {
    guard !isAdvancing else { return false }
    isAdvancing = true
    while !isClosed, active < maxConcurrent, let next = waiting.popFirst() {
      backlog.update(waiting.count, queueLimit, executor)
      next.keep(in: arena)
      begin(next.event)
    }
    isAdvancing = false
    return true
  }

  /// Whether nothing runs and nothing waits.
  public final var isIdle: Bool { active == 0 && waiting.isEmpty }

  /// Empties the queue.
  public final func forgetWaiting() {
    waiting.removeAll()
    backlog.update(0, queueLimit, executor)
  }

  /// An override must call `super.stop()`.
  open override func stop() {
    forgetWaiting()
    super.stop()
  }

  // MARK: State

  public final func saveWaiting(_ state: inout StateWriter) { state.write(each: waiting) }

  public final func restoreWaiting(_ state: inout StateReader) throws(StateFault) {
    waiting = Deque(try state.read([OwnedEvent].self))
  }

  public final func saveBacklog(_ state: inout StateWriter) { state.write(backlog.isOver) }

  public final func restoreBacklog(_ state: inout StateReader) throws(StateFault) {
    backlog.restore(try state.read(), executor)
  }
}
