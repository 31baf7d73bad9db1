import CDigest

/// The identity of a delivery: an event of an outbox, or an event of a sink without one. It is unique among all events
/// of all sinks with a store.
package struct DeliveryID: Sendable, Hashable {
  /// The identity of the store, which no other store has.
  package var store: UInt64
  /// The number of the row, ascending in the order of delivery.
  package var row: Int64
  /// The event's index in the row, from 0; -1: there is no row, and `row` is a hash of the sink and the event's name
  /// and contents.
  package var index: Int
}

/// A running sink: the end of a signal.
open class RunningSink: Downstream {
  /// The node context with which the sink was made.
  public let nodeContext: NodeContext
  package var index = 0
  package private(set) var hasEnded = false
  /// Whether the input has completed; if false after the end, the input failed or the reader closed the connection.
  private(set) var hasCompleted = false
  private var isDrained = false
  /// False for a sink that reads only errors outputs; its deliveries do not count as sent.
  final var takesEvents = true
  /// Events that were acknowledged in the turn in which they came.
  private var acknowledgedAtOnce = 0
  /// Events that an earlier execution had taken.
  private var restored = 0
  private let book: ReceiptBook
  /// The memory of the events that the sink has taken.
  private let memory: SinkMemory
  /// Whether the input is paused because too many events wait (``bound(_:_:)``).
  private var isBounded = false
  /// Under `delivery: bestEffort`, replaces the turn's acknowledgement for receipts: no source waits for it.
  private let unfollowed: Ack?
  /// The outbox from which it receives rows, in durable delivery.
  weak final var outbox: OutboxSink?
  private var isUnread = false

  /// The counters of the sink.
  private let counters: UnsafeMutablePointer<StepCounters>

  /// Called by ``SinkComponent/makeSink(_:)``.
  public init(_ nodeContext: NodeContext) {
    self.nodeContext = nodeContext
    counters = nodeContext.execution.meters.step(nodeContext.step)
    memory = SinkMemory(nodeContext.execution.services.memory, nodeContext.execution.executor)
    book = ReceiptBook(nodeContext.execution.meters.latency(nodeContext.step), memory)
    unfollowed = nodeContext.execution.plan.isBestEffort(nodeContext.step) ? Ack(.row) { _ in } : nil
    super.init()
  }

  /// The running pipeline.
  public final var execution: Execution { nodeContext.execution }
  /// Runs the turns of the pipeline.
  public final var executor: Executor { nodeContext.execution.executor }

  /// Takes one event.
  ///
  /// Every event that the sink takes, one by one or in a batch, is acknowledged exactly once: at once, with
  /// ``delivered(_:)`` or ``reject(_:_:on:)``, or on a receipt that the sink requests in the same turn
  /// (``take(_:bytes:joining:)``) and acknowledges when the event is written, has been rejected, or has failed.
  open override func receive(_ event: Event) {}

  /// Opens the target. Called once, before any source starts; call `fail(because:)` if it cannot be opened.
  open func open() {}

  /// Called instead of `open` in a dry run, while another execution may hold the target: call `fail(because:)` if
  /// `open` could not succeed. Open nothing that others notice, and keep nothing.
  open func dryRun() {}

  /// The input is complete: write the held events, then call `drained()`, in this turn or a later one.
  open func finish() { drained() }

  /// Called at the end of every turn: pass the output of this turn to the writer. A sink that has not written all
  /// events of this turn must have a receipt for the rest when this returns.
  open func turnEnded() {}

  /// Whether the sink waits for answers, after which it may still reject events.
  open var awaitsAnswers: Bool { false }

  /// Called before `cancel` when the pipeline ends without draining and rejections are read or stored: reject what is
  /// left, except events with an acknowledgement, whose source is notified. Returns whether anything was rejected. May
  /// be called more than once, and during a rejection.
  open func rejectRemaining() -> Bool { false }

  // MARK: State, to override where the spec says `persistence: .position`

  /// Writes the events taken and not delivered, except those with an acknowledgement, whose source is notified that
  /// they have failed. Timers are not saved.
  open func save(_ state: inout StateWriter) {}
  /// Whether `save` would write nothing that the next execution needs, so that a change of the step loses nothing.
  open var keepsNothing: Bool { false }
  /// Reads what `save` wrote, in the same order; called before `open`. Must change nothing if it throws.
  open func restore(_ state: inout StateReader) throws(StateFault) {}
  /// The pipeline is about to be suspended, and its sources have stopped: start nothing that can be left to the next
  /// execution. A sink that waits for answers may hold the execution (``Execution/hold()``) for a short time until they
  /// have come, so that no request is repeated. Called where `suspend` may follow.
  open func willSuspend() {}
  /// The pipeline is about to be suspended. True: the sink hands over what it has not delivered to its next version in
  /// this process, with its receipts (``Receipt/leave()``) and ``leftRows``, in ``suspend()``
  /// (``Execution/leave(_:of:)``), and saves none of it. It starts nothing new from now on, and announces the hand-over
  /// to its senders (``Receipt/announceHandover()``).
  open func handOverQueue() -> Bool { false }
  /// The rows whose events the sink leaves to its next version; set before ``suspend()``.
  package final var leftRows: [GivenRows] = []
  /// Takes over rows whose events the previous version has left.
  package final func take(_ rows: [GivenRows]) { outbox?.adopt(rows) }
  /// The pipeline is about to end: send incomplete batches at once, because a client may wait for their events. Called
  /// between two turns, or in one.
  open func hurry() { acknowledgeSoon() }
  /// The pipeline is suspended and the next execution delivers the saved events: release them, acknowledge their
  /// receipts, write nothing more. A sink that is absent from the next execution gets ``finish()`` instead.
  open func suspend() {}

  // MARK: The position, to override for a target that can be cut back

  /// The version of what ``savePosition(_:)`` writes; 0: the sink has no position.
  open var positionVersion: Int { 0 }
  /// Writes the end of the target after the events up to ``savedMark``. It is part of every state, also of one without
  /// the events that the sink holds (``save(_:)``). An execution that continues from the state receives later events
  /// again, so its sink cuts off the output after the position, unless ``outputComesAgain`` is false. Write nothing if
  /// the state has ``SavedPositions/acknowledged`` positions, which do not determine the progress of this sink.
  open func savePosition(_ state: inout StateWriter) {}
  /// Reads what `savePosition` wrote; called before `open`, which truncates the target.
  open func restorePosition(_ state: inout StateReader) throws(StateFault) {}
  /// Whether all output after the restored position will be written again, so that it must be cut off: the sink has an
  /// outbox, or all its events come from sources that read the same again. Set before ``restorePosition(_:)``.
  package internal(set) final var outputComesAgain = true
  /// How much the sink has taken since it was opened, in the sink's own unit. Called in turns.
  open var mark: Int64 { 0 }
  /// The ``mark`` after the last event that need not be repeated after a crash; nil: after all that the sink has taken.
  /// Set by the owner of the undelivered events, before a state is saved that no longer has them.
  package final var savedMark: Int64?
  /// A checkpoint waits for the events that the sink has taken: write and acknowledge them now. Called between two
  /// turns, or at the beginning of one.
  open func acknowledgeSoon() {}

  /// The pipeline ends without draining: release everything, write nothing more. Must not wait for a writer, which is
  /// the task of ``closeBeside(_:then:)``.
  open func cancel() {}

  /// The number of writers that the sink waits for.
  private var closings = 0
  private var afterClosings: [() -> Void] = []

  /// Waits off the pipeline thread for a writer that must end, because other pipelines have turns on that thread. The
  /// pipeline reports its end after `done`, which is called in a turn.
  package final func closeBeside(_ wait: @escaping @Sendable () -> Void, then done: @escaping @Sendable () -> Void) {
    closings += 1
    execution.sinkEnds.closing += 1
    let node = Weak(self)
    beside(wait) {
      done()
      node.object?.endClosing()
    }
  }

  /// Runs `wait` off the pipeline thread, such as a wait for a writer that closes a file; then calls `done` in a turn.
  package final func beside(_ wait: @escaping @Sendable () -> Void, then done: @escaping @Sendable () -> Void) {
    let executor = executor
    let worker = execution.services.worker("close")
    worker.enqueue {
      wait()
      executor.post { done() }
      // A freed worker may drop its jobs.
      withExtendedLifetime(worker) {}
    }
  }

  private func endClosing() {
    closings -= 1
    if closings == 0 {
      let bodies = afterClosings
      afterClosings = []
      for body in bodies { body() }
    }
    execution.sinkClosed()
  }

  /// Calls `body` when no writer is being waited for: at once, or in a later turn.
  final func whenClosed(_ body: @escaping () -> Void) {
    if closings == 0 { body() } else { afterClosings.append(body) }
  }

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
    left()
    if let outbox { outbox.targetDrained() } else { execution.sinkDrained(index) }
  }

  /// The reader has closed the connection or pipe: ends the sink quietly, as if it were complete.
  public final func closed() {
    hasEnded = true
    isUnread = true
    cancel()
    drained()
  }

  /// Reports that the sink cannot continue.
  public final func fail(because failure: SignalFailure) {
    hasEnded = true
    execution.sinkFailed(index, failure)
  }

  /// Whether the next run delivers the undelivered events of this one: they are in the outbox.
  package final var isRepeatedLater: Bool { outbox != nil }

  /// The identity that the received event has in every delivery; nil: it has none.
  ///
  /// - Parameter body: The encoded event. It is part of the identity of an event without an outbox, so that only equal
  ///   deliveries share an identity.
  package final func deliveryID(of event: Event, _ body: [UInt8]) -> DeliveryID? {
    if outbox != nil { return execution.commits.deliveredEvent }
    guard distinguishesEvents, let store = execution.storeIdentity else { return nil }
    var print = fingerprint
    guard event.addID(to: &print) else { return nil }
    let row = body.withUnsafeBytes { rx_xxh3_seeded($0.baseAddress, $0.count, print.value) }
    return DeliveryID(store: store, row: Int64(bitPattern: row), index: -1)
  }

  /// The fingerprint of the sink's name, with which the identity of each event begins.
  private lazy var fingerprint: Fingerprint = {
    var print = Fingerprint()
    print.add(execution.plan.steps[nodeContext.step.number].owner.utf8)
    // Marks the end of the name, which may be the start of another sink's name.
    print.add(UInt8(0))
    return print
  }()

  private lazy var distinguishesEvents: Bool = {
    guard execution.namesEvents, let sink = execution.plan.sinks.first(where: { $0.step == nodeContext.step }) else {
      return false
    }
    return execution.plan.distinguishesEvents(at: sink)
  }()

  // MARK: Waiting events

  /// The usual limit of the bytes of events that the sink holds; less while the queues of all pipelines leave less of
  /// `--queue-memory`. Above the limit the input is paused; the sink need not call anything.
  open var memoryLimit: Int { 16 << 20 }

  /// Whether the sink's input is paused, so that no more events come to fill a batch.
  package final var waitsForRoom: Bool { memory.isPaused || isBounded }

  /// Pauses the input while more than `most` events wait, until half of them do. This limit is in addition to
  /// ``memoryLimit``. Call it whenever the number has changed, in turns.
  public final func bound(_ waiting: Int, _ most: Int) {
    if !isBounded, waiting > most, !takesRest {
      isBounded = true
      pauseInput()
    } else if isBounded, waiting <= most / 2 {
      isBounded = false
      resumeInput()
    }
  }

  /// Ends the sink's pauses of the input.
  final func left() {
    memory.end()
    bound(0, 0)
  }

  /// The pipeline is being suspended and its sources have stopped: the rest of their batches is taken at once, however
  /// full the sink is. If it paused the input, the rest would wait for deliveries that may not happen.
  final func takeRest() {
    takesRest = true
    left()
  }
  private(set) final var takesRest = false

  // MARK: Pauses

  /// Pauses the input until ``resumeInput()``, except for the rest of this turn. Nests. In durable delivery only the
  /// sink's own outbox waits; otherwise the input of the pipeline.
  public final func pauseInput() {
    if let outbox { outbox.hold() } else { beginPause() }
  }

  /// Ends one ``pauseInput()``.
  public final func resumeInput() {
    if let outbox { outbox.resume() } else { endPause() }
  }

  /// Pauses the input of the pipeline, also with an outbox.
  final func beginPause() {
    executor.pauseInput(.output)
    counters.beganPause(at: executor.now)
  }

  final func endPause() {
    executor.resumeInput(.output)
    counters.endedPause(at: executor.now)
  }

  // MARK: Queues

  /// The events that the sink has taken and not delivered; nil: unknown. Read between two turns.
  open var queued: PipelineStatistics.Queue? { nil }

  /// The sink's connections, for statistics; nil: it has none. Called between two turns.
  open var connections: PipelineStatistics.Connections? { nil }

  /// Counts a retry. In turns.
  package final func countRetry() { counters.pointee.retries &+= 1 }

  /// Counts events of an earlier execution that this one delivers.
  final func countRestored(_ count: Int) { counters.pointee.restored &+= UInt64(clamping: count) }

  // MARK: Acknowledging

  /// A receipt for events of this turn, which the sink acknowledges later. In turns.
  ///
  /// - Parameters:
  ///   - bytes: The memory that the sink uses for them until they are acknowledged, or ``Receipt/freeMemory()`` is
  ///     called.
  ///   - open: An open receipt of the sink, to which these events are added if they need not be distinguished.
  public final func take(_ events: Int, bytes: Int, joining open: Receipt? = nil) -> Receipt {
    let receipt = book.take(events, bytes: bytes, unfollowed ?? executor.turnAck, joining: open, at: executor.now)
    memory.add(bytes, self)
    return receipt
  }

  /// A receipt for events of a saved state, which an earlier execution had taken. In turns, by `restore`.
  package final func takeBack(_ events: Int, bytes: Int) -> Receipt {
    restored += events
    counters.pointee.restored &+= UInt64(events)
    return take(events, bytes: bytes)
  }

  /// A receipt for events that the previous execution has left; nil: they were taken already, or their sender sends
  /// them again. Events that no sender sends again now count for the checkpoints of this execution. Called in turns.
  package final func take(_ left: LeftReceipt) -> Receipt? {
    guard left.notifiesSender else {
      defer { left.release(.acknowledged) }
      return takeBack(left.events, bytes: left.bytes)
    }
    guard let receipt = book.take(left, at: executor.now) else { return nil }
    restored += left.events
    counters.pointee.restored &+= UInt64(left.events)
    memory.add(left.bytes, self)
    return receipt
  }

  /// Reports that events of this turn have been delivered.
  @inline(__always)
  public final func delivered(_ count: Int = 1) {
    acknowledgedAtOnce &+= count
    countSent(count)
  }

  /// Counts events of this turn that another object delivers and counts.
  final func accept(_ count: Int) { acknowledgedAtOnce &+= count }

  /// The number of events that the sink has acknowledged at once or taken on receipts; for audits. A sink that passes
  /// all events to another one returns the number of that sink.
  open var accounted: Int { acknowledgedAtOnce + book.taken - restored }

  /// Whether every receipt is acknowledged; for audits, like `accounted`.
  open var hasAcknowledgedAll: Bool { isUnread || book.isClosed }

  /// Counts events that have been delivered and were taken on receipts. In turns.
  @inline(__always)
  public final func countSent(_ count: Int = 1) {
    counters.pointee.delivered &+= UInt64(count)
    if takesEvents { execution.tally.sent &+= UInt64(count) }
  }

  /// Counts bytes that have been delivered, as they were encoded. In turns.
  package final func countBytes(_ bytes: Int) { counters.pointee.bytes &+= UInt64(bytes) }

  /// Called before the counters are read: count the events that were delivered off the pipeline thread since the last
  /// call.
  open func countDelivered() {}

  /// Counts events that this sink had taken and that are lost; only the log reports them. In turns.
  public final func countUndelivered(_ count: Int) {
    if isRepeatedLater { return }
    counters.pointee.held &+= UInt64(count)
    execution.tally.undelivered &+= UInt64(count)
  }

  /// Counts events that the outbox drops because of its policy in the file. Called in turns.
  final func countDropped(_ count: Int) { counters.pointee.dropped &+= UInt64(count) }

  /// Whether the errors output of this sink has a reader.
  package final var errorsAreRead: Bool { execution.sinks[index].errors.isClaimed }

  /// Rejects the event to the errors output of this sink.
  ///
  /// - Parameter receipt: The receipt on which the event was taken, which this call acknowledges; nil: it came in this
  ///   turn. The effects of the rejection then hold the acknowledgement of the event.
  public final func reject(_ event: Event, _ message: String, on receipt: Receipt? = nil) {
    if let receipt {
      if executor.turnAck !== receipt.ack {
        receipt.ack.hold()
        executor.track(receipt.ack)
      }
      receipt.acknowledge(1)
    } else {
      acknowledgedAtOnce &+= 1
    }
    execution.reject(
      Rejection(event, .eventNotDeliverable, message, at: nodeContext.location), at: nodeContext)
  }

  package final func reject(_ event: Event, because failure: EncodingFailure) {
    reject(event, "the event cannot be written: \(failure)")
  }

  package final func makeFrame() -> EventFrame { EventFrame(nodeContext.segment, nodeContext.scope, execution) }
}

extension TimerTarget where Self: RunningSink {
  /// ``RunningSink/awaitsAnswers`` covers rejections of a woken sink.
  package var mayGoOn: Bool { false }
  public var timerKind: TimerKind { .output }
}
