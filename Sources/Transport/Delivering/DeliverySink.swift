import PipelineCore

/// The wake-ups of a sink; other tokens are numbers of batches that are under way for too long.
enum Waking {
  static let goesOn = -1
  static let waitsNoLonger = -2
  static let farewellIsOver = -3
  /// How long a suspended pipeline waits for outcomes, at most.
  static let patience = TimeSpan.seconds(2)
}

/// Represents the opening among the numbers of batches.
let openingBatch = -1

/// A sink that delivers events in batches through a connector.
///
/// Every event that it takes is, at any moment, in exactly one state: waiting, in a batch to be repeated, in a batch
/// under way, or decided (delivered, rejected, or counted as not delivered). Only an outcome of the connector, the end
/// of the pipeline, or the next version of the pipeline decides: a time-out or a broken connection does not.
package final class DeliverySink: RunningSink, TimerTarget {
  let connector: any DeliveryConnector
  let traits: DeliveryTraits
  /// The block of the turn, if the connector sends a stream of messages (``StreamConnector``).
  let builder: BlockBuilder?
  /// The connector, if its connection continues over a reload.
  let lasting: (any LastingConnector)?
  var queue: DeliveryQueue
  var pace: DeliveryPace
  /// The destination is open; until then, no batch begins.
  var isOpen = false
  /// Whether the destination is being opened.
  var isOpening = false
  /// The answer that gets the outcomes of opening, and of finishing.
  var connection: DeliveryAnswer?
  var completion: DeliveryAnswer?
  /// When the destination was last opened, and whether it has since been shown to work.
  var openedAt = Instant(nanoseconds: 0)
  var isProved = false
  /// The connection of an earlier version, while it finishes what it was given.
  var farewell: Farewell?
  var farewellEnds = Wake.none
  var timer = Wake.none
  var timerAt: Instant?
  /// Something has failed, and has not been repeated with success.
  var isFailing = false
  /// The start of the current failures, and the number of failed deliveries since.
  var failed = (since: Instant(nanoseconds: 0), failures: 0)
  var openings: Attempts
  /// The last outcome was ``DeliveryOutcome/broken(_:)``, which has been logged.
  var isBroken = false
  var tried = 0
  /// The receipt of the last event.
  var receipt: Receipt?
  /// The reason why the sink ended before its input did.
  var fault: String?
  var isFinishing = false
  var isOver = false
  /// The pipeline ends while a sender may wait: no event waits for others.
  var isHurried = false
  /// The pipeline is about to be suspended, so that no batch begins.
  var isSuspending = false
  /// The next execution gets everything that is not delivered (``DeliveryEstate``).
  var isHandingOver = false
  /// Whether deliveries wait until the queue of the previous execution is taken over.
  var awaitsEstate = false
  /// Holds the execution until the batches under way are answered, until this is due.
  var patience = Wake.none

  package init(_ connector: any DeliveryConnector, _ nodeContext: NodeContext) {
    self.connector = connector
    traits = connector.traits
    builder = (connector as? any StreamConnector).map { BlockBuilder($0) }
    lasting = connector as? any LastingConnector
    queue = DeliveryQueue(traits)
    pace = DeliveryPace(most: traits.concurrency)
    openings = traits.retry
    super.init(nodeContext)
  }

  package override func open() {
    if execution.hasEstate(of: nodeContext.step) {
      awaitsEstate = true
      execution.whenTakenOver { [self] in takeEstate() }
    } else if !start() {
      return
    }
    // A connection may be among what the previous execution has left.
    if lasting == nil || !awaitsEstate && !traits.opensLate { begin() }
  }

  /// Returns whether the connector can work.
  func start() -> Bool {
    guard let failure = builder?.stream.start() else { return true }
    stop(with: failure)
    return false
  }

  package override func dryRun() {
    if let failure = connector.dryRun() { fail(because: failure) }
  }

  func log(_ level: Services.Level, _ message: String) {
    execution.services.log(level, execution.plan.steps[nodeContext.step.number].label, message)
  }

  // MARK: Taking events in

  package override func receive(_ event: Event) {
    guard !isOver else { return }
    if let builder {
      do throws(DeliveryRefusal) { try builder.append(event) } catch { reject(event, error.message) }
      return
    }
    do throws(DeliveryRefusal) {
      let made = try connector.encode(event)
      let id = made.naming.flatMap { deliveryID(of: event, $0) }
      let event = OwnedEvent(event)
      let receipt = take(1, bytes: memory(made, event), joining: receipt)
      if isHandingOver, receipt !== self.receipt { receipt.announceHandover() }
      self.receipt = receipt
      queue.append(item(made, event, receipt, id), to: made.target)
      updatePressure()
    } catch {
      reject(event, error.message)
    }
  }

  /// The memory of a waiting event: its piece, the event itself and its entry in the queue.
  func memory(_ made: DeliveryPiece, _ event: OwnedEvent) -> Int {
    made.memory + event.byteCount + deliveryItemBytes
  }

  func item(
    _ made: DeliveryPiece, _ event: OwnedEvent, _ receipt: Receipt,
    _ id: DeliveryID? = nil
  ) -> DeliveryItem {
    DeliveryItem(
      piece: made.piece, event: event, receipt: receipt, id: id,
      size: traits.countsBytes ? made.bytes : made.memory + event.byteCount, since: executor.now,
      takenAt: executor.wallTime)
  }

  func updatePressure() { bound(queue.waiting, traits.queue) }

  package override func turnEnded() {
    seal()
    deliverNext()
  }

  package override var memoryLimit: Int { traits.queueBytes ?? super.memoryLimit }

  package override var queued: PipelineStatistics.Queue? {
    PipelineStatistics.Queue(
      events: queue.total + (builder?.ends.count ?? 0),
      bytes: queue.bytes - queue.underWay.values.reduce(0) { $0 + $1.bytes },
      inFlight: queue.underWay.count,
      oldest: queue.oldest.map { executor.now - $0 })
  }

  package override var connections: PipelineStatistics.Connections? { connector.connections }

  package func woke(_ token: Int) {
    switch token {
    case Waking.goesOn:
      timer = .none
      timerAt = nil
      pace.resume(executor.now)
      queue.resume(executor.now)
      deliverNext()
    case Waking.waitsNoLonger:
      patience = .none
      execution.release()
    case Waking.farewellIsOver:
      farewellEnds = .none
      endFarewell()
      deliverNext()
    default: expired(token)
    }
  }

  // MARK: The end

  package override func finish() {
    seal()
    isFinishing = true
    deliverNext()
  }

  /// - Parameter batch: The batch concerned.
  func stop(with failure: SignalFailure, _ batch: DeliveryBatch? = nil) {
    fault = failure.message
    batch?.failure = failure.message
    fail(because: failure)
    cancel()
  }

  func over() {
    _ = close()
    drained()
  }

  package override var awaitsAnswers: Bool { !isOver && !queue.isEmpty }

  package override func hurry() {
    guard !isHurried, !isSuspending else { return }
    isHurried = true
    deliverNext()
  }

  /// Releases everything. Returns the events that are not delivered, in order, and why the batch of each has failed.
  func close(handsOver: Bool = false) -> [DeliveryQueue.Left] {
    guard !isOver else { return [] }
    seal()
    isOver = true
    unset(&timer)
    unset(&farewellEnds)
    if !handsOver, let stream = builder?.stream {
      let wait = endStream(stream)
      // The pipeline does not end before its connections and programs.
      if completion == nil { closeBeside(wait, then: {}) }
    }
    for batch in queue.underWay.values {
      unset(&batch.deadline)
      if !handsOver { connector.withdraw(batch) }
    }
    if handsOver || builder == nil { connector.close(handsOver: handsOver) }
    if let farewell {
      // The connection of a stream has ended with it.
      _ = farewell.connector.end()
      self.farewell = nil
    }
    let left = queue.removeAll()
    waitNoLonger()
    updatePressure()
    return left
  }

  package override func rejectRemaining() -> Bool {
    let left = close()
    let lost = left.filter { !$0.item.receipt.notifiesSender }
    for one in left where one.item.receipt.notifiesSender { fail(one) }
    reportUndelivered(left.reduce(0) { $0 + $1.item.events } - lost.reduce(0) { $0 + $1.item.events })
    for one in lost {
      let reason = one.failure ?? fault
      // The batch that ended the pipeline has been answered.
      let isAnswered = one.failure != nil && one.failure == fault
      let unacknowledged = "\(traits.words.left) the event when the pipeline ended"
      reject([one.item], isAnswered ? fault ?? "" : reason.map { "\(unacknowledged): \($0)" } ?? unacknowledged)
    }
    return !lost.isEmpty
  }

  package override func cancel() {
    let left = close()
    // A receipt knows its senders until it is acknowledged.
    let lost = left.reduce(0) { $0 + ($1.item.receipt.notifiesSender ? 0 : $1.item.events) }
    reportUndelivered(left.reduce(0) { $0 + $1.item.events })
    for one in left { fail(one) }
    countUndelivered(lost)
  }

  private func fail(_ left: DeliveryQueue.Left) {
    left.item.receipt.acknowledge(
      left.item.events, .failed(left.failure ?? fault ?? "\(traits.words.left) it when the pipeline ended"))
  }

  private func reportUndelivered(_ left: Int) {
    // Events in the outbox are delivered later.
    guard left > 0, !isRepeatedLater else { return }
    log(.warning, "\(traits.words.left) \(Printable.count(left, "event")) when the pipeline ended")
  }

  func unset(_ timer: inout Wake) {
    if timer.isSet { executor.unschedule(timer) }
    timer = .none
  }

  // MARK: Suspending

  /// In a reload the next execution gets the queue as it is. Otherwise batches under way are answered soon, or
  /// delivered again by the next execution; senders that wait for an answer must get it now.
  package override func willSuspend() {
    guard !isOver, !handOverQueue() else { return }
    isHurried = queue.isAwaited
    isSuspending = !isHurried
    if !queue.underWay.isEmpty || isHurried { waitForOutcomes() }
  }

  package override func handOverQueue() -> Bool {
    // Stored events belong to the name of a pipeline: a renamed one continues with those of its new name.
    guard !isOver, KeptListeners.isKeeping, execution.successor?.name == execution.plan.name else { return false }
    seal()
    if builder != nil { endFarewell() }
    isSuspending = true
    isHandingOver = true
    var announced: Set<ObjectIdentifier> = []
    queue.forEachReceipt { if announced.insert(ObjectIdentifier($0)).inserted { $0.announceHandover() } }
    // Events that an instance of an earlier version holds cannot be taken back.
    if !traits.handsOver || farewell != nil, !queue.underWay.isEmpty { waitForOutcomes() }
    return true
  }

  private func waitForOutcomes() {
    execution.hold()
    patience = executor.schedule(at: executor.now + Waking.patience, self, Waking.waitsNoLonger)
    deliverNext()
  }

  func waitNoLonger() {
    guard patience.isSet, isHandingOver || !isHurried || queue.isEmpty else { return }
    unset(&patience)
    execution.release()
  }

  package override func suspend() {
    if isHandingOver { return leaveEstate() }
    for one in close() {
      // Events that the state does not hold are sent again by their sender.
      let receipt = one.item.receipt
      receipt.acknowledge(
        one.item.events, receipt.notifiesSender ? .failed("the pipeline was suspended") : .acknowledged)
    }
  }

  // MARK: State

  /// A queue that is handed over is not part of the state.
  package override var keepsNothing: Bool { isHandingOver || queue.isEmpty && builder?.ends.isEmpty != false }

  /// Writes the batches, those under way included, and the events after them.
  package override func save(_ state: inout StateWriter) {
    if builder != nil {
      seal()
      return saveBlocks(&state)
    }
    let kept = queue.batches.compactMap { batch -> (batch: DeliveryBatch, items: [DeliveryItem])? in
      let items = batch.rest.filter { !$0.receipt.notifiesSender }
      return items.isEmpty ? nil : (batch, items)
    }
    state.write(each: kept) { state, kept in
      state.write(kept.items.count == kept.batch.items.count ? kept.batch.key : makeKey(kept.items))
      state.write(kept.batch.attempts)
      state.write(each: kept.items.map(\.event))
    }
    var events: [OwnedEvent] = []
    events.reserveCapacity(queue.waiting)
    queue.forEachWaiting { item, _ in if !item.receipt.notifiesSender { events.append(item.event) } }
    state.write(each: events)
  }

  package override func restore(_ state: inout StateReader) throws(StateFault) {
    if let builder { return try restoreBlocks(&state, builder.stream) }
    var batches: [(key: String, attempts: Int, events: [OwnedEvent])] = []
    let events: [OwnedEvent]
    if let former = try connector.formerEvents(&state) {
      events = former
    } else {
      for _ in 0..<(try state.count()) {
        batches.append((try state.read(), try state.read(in: 0...Int.max), try state.read()))
      }
      events = try state.read()
    }
    var lost = 0
    func taken(_ event: OwnedEvent) -> (item: DeliveryItem, target: DeliveryTarget?)? {
      do throws(DeliveryRefusal) {
        let made = try connector.encode(event.event)
        let receipt = takeBack(1, bytes: memory(made, event))
        return (item(made, event, receipt), made.target)
      } catch {
        lost += 1
        return nil
      }
    }
    for one in batches {
      let items = one.events.compactMap(taken)
      guard let first = items.first else { continue }
      _ = queue.adopt(items.map(\.item), to: first.target, key: one.key) { $0.attempts = one.attempts }
    }
    for event in events { if let (item, target) = taken(event) { queue.append(item, to: target) } }
    restored(lost)
  }

  /// - Parameter lost: How many events of the state cannot be delivered any more.
  func restored(_ lost: Int) {
    countUndelivered(lost)
    if lost > 0 {
      log(
        .error,
        "\(lost == 1 ? "an event that was" : "\(lost) events that were") waiting to be delivered cannot be encoded any more"
      )
    }
    updatePressure()
  }
}

extension DeliveryConnector {
  /// The running sink that delivers through this connector, for ``PipelineCore/SinkComponent/makeSink(_:)``.
  public func sink(_ nodeContext: NodeContext) -> RunningSink { DeliverySink(self, nodeContext) }
}
