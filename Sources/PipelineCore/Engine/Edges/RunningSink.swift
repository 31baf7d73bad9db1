/// One running sink: the end of a signal.
open class RunningSink: Downstream {
  public let nodeContext: NodeContext
  var index = 0
  public private(set) var hasEnded = false
  /// Its input is complete; otherwise it has failed, or nobody reads any more.
  private(set) var hasCompleted = false
  private var isDrained = false
  /// Not only what others have given up: what it delivers counts as sent.
  final var takesEvents = true

  public init(_ nodeContext: NodeContext) {
    self.nodeContext = nodeContext
    super.init()
  }

  public final var execution: Execution { nodeContext.execution }
  public final var executor: Executor { nodeContext.execution.executor }

  /// Takes one event. Count it with `countSent` when it is delivered, not before.
  open override func receive(_ event: Event) {}

  /// Opens what the sink writes to. Called once, before any source starts; call `fail(because:)` where
  /// it cannot be opened.
  open func open() {}

  /// The input is complete: write what is held, then call `drained()`, in this turn or a later one.
  open func finish() { drained() }

  /// Called at the end of every turn: hand what this turn encoded to the writer.
  ///
  /// A sink that has not written all that it took in this turn holds the executor's ``Executor/ack``, if
  /// there is one, and releases it when that is written (as durably as its parameters say), has been rejected, or has
  /// failed.
  open func turnEnded() {}

  /// Whether it has taken events of which an answer from outside tells what becomes of them: it may still reject them.
  open var awaitsAnswers: Bool { false }

  /// The pipeline ends without draining, and what this sink rejects is read or kept: reject what is left, but for
  /// events with an acknowledgement, whose source is notified. Returns whether there was any. Called before `cancel`, maybe
  /// more than once, maybe in the middle of a rejection.
  open func rejectRemaining() -> Bool { false }

  // MARK: State, to override where the spec says `persistence: .position`

  /// Writes what this sink has taken and not delivered, but for events with an acknowledgement, whose source is notified that they
  /// have not been delivered. Timers are set anew.
  open func save(_ state: inout StateWriter) {}
  /// Takes back what `save` wrote, in the same order; called before
  /// `open`. It changes nothing if it throws.
  open func restore(_ state: inout StateReader) throws(StateFault) {}
  /// What `save` wrote is delivered by another execution: let go of it without a word.
  open func relinquish() {}

  /// The pipeline ends without draining: release everything, write nothing more.
  open func cancel() {}

  public final override func complete() {
    guard !hasEnded else { return }
    hasEnded = true
    hasCompleted = true
    finish()
  }

  /// The input has failed, and the pipeline is about to end for it.
  open func failing(_ failure: SignalFailure) {}

  public final override func fail(_ failure: SignalFailure) {
    guard !hasEnded else { return }
    hasEnded = true
    failing(failure)
    execution.unhandled(failure)
  }

  /// Everything is out. Called in a turn.
  public final func drained() {
    guard !isDrained else { return }
    isDrained = true
    execution.sinkDrained(index)
  }

  /// Nobody reads any more (a closed pipe): the sink ends as if it were complete, quietly.
  public final func closed() {
    hasEnded = true
    cancel()
    drained()
  }

  /// The sink cannot go on.
  public final func fail(because failure: SignalFailure) {
    hasEnded = true
    execution.sinkFailed(index, failure)
  }

  /// Counts events that have been delivered. In turns.
  @inline(__always)
  public final func countSent(_ count: Int = 1) { if takesEvents { execution.tally.sent &+= UInt64(count) } }

  /// Called before the counters are read: count what has been delivered beside the turns since the last time.
  open func countDelivered() {}

  /// Counts events that this sink had taken and that are lost, without a word to anybody but the log. In turns.
  public final func countUndelivered(_ count: Int) { execution.tally.undelivered &+= UInt64(count) }

  /// Whether somebody reads what this sink rejects.
  public final var errorsAreRead: Bool { execution.sinks[index].errors.isClaimed }

  /// Gives up the event: it goes to the errors output of this sink.
  ///
  /// In a turn of another event the sink first has the turn ``Executor/track(_:)`` the acknowledgement of this one.
  public final func reject(_ event: Event, _ message: String) {
    execution.reject(
      Rejection(event, .eventNotDeliverable, message, at: nodeContext.location), at: nodeContext)
  }

  public final func reject(_ event: Event, because failure: EncodingFailure) {
    reject(event, "the event cannot be written: \(failure)")
  }

  public final func makeFrame() -> EventFrame { EventFrame(nodeContext.segment, nodeContext.scope, execution) }
}
