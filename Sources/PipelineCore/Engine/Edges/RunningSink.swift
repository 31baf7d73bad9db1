/// A running sink: the end of a signal.
open class RunningSink: Downstream {
  public let nodeContext: NodeContext
  var index = 0
  public private(set) var hasEnded = false
  /// Its input has completed; if false and it has ended, the input failed or the reader went away.
  private(set) var hasCompleted = false
  private var isDrained = false
  /// False for a sink that reads only errors outputs; its deliveries do not count as sent.
  final var takesEvents = true

  public init(_ nodeContext: NodeContext) {
    self.nodeContext = nodeContext
    super.init()
  }

  public final var execution: Execution { nodeContext.execution }
  public final var executor: Executor { nodeContext.execution.executor }

  /// Takes one event. Call `countSent` when it is delivered, not before.
  open override func receive(_ event: Event) {}

  /// Opens the target. Called once, before any source starts; call `fail(because:)` if it cannot be opened.
  open func open() {}

  /// The input is complete: write what is held, then call `drained()`, in this turn or a later one.
  open func finish() { drained() }

  /// Called at the end of every turn: hand what this turn encoded to the writer.
  ///
  /// A sink that has not written everything it took in this turn holds the executor's ``Executor/ack``, if there is
  /// one, and releases it when those events are written (as durably as its parameters say), rejected, or failed.
  open func turnEnded() {}

  /// Whether it waits for answers that decide over its events: it may still reject them.
  open var awaitsAnswers: Bool { false }

  /// Called before `cancel` when the pipeline ends without draining and rejections are read or stored: reject what is
  /// left, except events with an acknowledgement, whose source is notified. Returns whether anything was rejected. May
  /// be called more than once, and during a rejection.
  open func rejectRemaining() -> Bool { false }

  // MARK: State, to override where the spec says `persistence: .position`

  /// Writes the events taken and not delivered, except those with an acknowledgement, whose source is notified that
  /// they have failed. Timers are set anew.
  open func save(_ state: inout StateWriter) {}
  /// Reads what `save` wrote, in the same order; called before `open`. Must change nothing if it throws.
  open func restore(_ state: inout StateReader) throws(StateFault) {}
  /// Another execution delivers what `save` wrote: release it without rejecting or counting it.
  open func relinquish() {}

  /// The pipeline ends without draining: release everything, write nothing more.
  open func cancel() {}

  public final override func complete() {
    guard !hasEnded else { return }
    hasEnded = true
    hasCompleted = true
    finish()
  }

  /// The input has failed; the pipeline is about to end because of it.
  open func failing(_ failure: SignalFailure) {}

  public final override func fail(_ failure: SignalFailure) {
    guard !hasEnded else { return }
    hasEnded = true
    failing(failure)
    execution.unhandled(failure)
  }

  /// Reports that everything is written. Called in a turn.
  public final func drained() {
    guard !isDrained else { return }
    isDrained = true
    execution.sinkDrained(index)
  }

  /// The reader has gone away (a closed pipe): ends the sink quietly, as if it were complete.
  public final func closed() {
    hasEnded = true
    cancel()
    drained()
  }

  /// Reports that the sink cannot continue.
  public final func fail(because failure: SignalFailure) {
    hasEnded = true
    execution.sinkFailed(index, failure)
  }

  /// Counts delivered events. Called in turns.
  @inline(__always)
  public final func countSent(_ count: Int = 1) { if takesEvents { execution.tally.sent &+= UInt64(count) } }

  /// Called before the counters are read: count what was delivered off the pipeline thread since the last call.
  open func countDelivered() {}

  /// Counts events that the sink had taken and that are lost with nothing but a log line. Called in turns.
  public final func countUndelivered(_ count: Int) { execution.tally.undelivered &+= UInt64(count) }

  /// Whether the errors output of this sink has a reader.
  public final var errorsAreRead: Bool { execution.sinks[index].errors.isClaimed }

  /// Rejects the event to the errors output of this sink.
  ///
  /// In a turn of other events the sink first passes the acknowledgement of this one to ``Executor/track(_:)``.
  public final func reject(_ event: Event, _ message: String) {
    execution.reject(
      Rejection(event, .eventNotDeliverable, message, at: nodeContext.location), at: nodeContext)
  }

  public final func reject(_ event: Event, because failure: EncodingFailure) {
    reject(event, "the event cannot be written: \(failure)")
  }

  public final func makeFrame() -> EventFrame { EventFrame(nodeContext.segment, nodeContext.scope, execution) }
}
