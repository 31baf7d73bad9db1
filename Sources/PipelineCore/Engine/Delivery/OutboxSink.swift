internal import DequeModule

/// Receives the events of a sink in durable delivery: they become rows of the outbox, and the sink gets the rows when
/// they are on the disk.
///
/// Rows are delivered in order, each in its own turn, and removed when the sink has acknowledged all of their events. A
/// sink that accepts no more (a full queue, an unreachable server) delays only its own rows. Above
/// ``OutboxLimit/bytes`` the input is paused or events are dropped.
final class OutboxSink: RunningSink, TimerTarget {
  let target: RunningSink
  private let committer: Committer
  private let options: DeliveryOptions
  private let limit: OutboxLimit
  private let name: String
  /// The row that is being built, of events or of lines.
  private var writer: EventRowWriter
  private var lines = LineRow()
  /// The encoder of a sink that writes a stream; nil: the sink writes none.
  private let encoder: (any EventEncoder)?
  /// The oldest undelivered rows on the disk.
  private var ready: Deque<OutboxRow> = []
  private var readyBytes = 0 {
    didSet { share.set(readyBytes) }
  }
  private var share: MemoryShare
  /// Whether rows after those of `ready` are on the disk only.
  private var isSpilled = false
  /// Set while rows are being read from the disk.
  private var read: Read?
  /// The rows that no commit has confirmed yet.
  private var uncommitted = (rows: 0, bytes: 0)
  /// The last row that has been given to the sink, or is in `ready`.
  private var lastKnown: Int64
  /// The number of the last row on the disk.
  private var lastCommitted: Int64
  /// The rows that are not in a commit yet, or not delivered.
  private var pending: OpenRows
  /// Sizes in bytes of the rows that the sink has been given and has not acknowledged.
  private var underWay: [Int64: Int] = [:]
  /// The given rows as an object for the acknowledgements of their events: first those of this outbox, then those of
  /// outboxes of earlier executions.
  private var given = [GivenRows()]
  /// The rows that the sink received from an earlier execution. A read that began before their acknowledgement may
  /// still find them on the disk; they must not be delivered again.
  private var adopted: Set<Int64> = []
  /// Whether the next execution takes over the rows under way, with the events that the sink holds.
  private var isHandingOver = false
  /// The sink's mark after each given row that no commit has removed.
  private var marks: [Int64: Int64] = [:]
  /// The sink's mark after the rows that commits, the current one included, have removed.
  private var removedMark: Int64 = 0
  private var isDelivering = false
  /// Whether queued input goes first: the next row is delivered after the next turn.
  private var letsInputPass = false
  /// The number of pauses that the sink has requested and not ended.
  private var holds = 0
  private var isFull = false
  private var isInputPaused = false
  /// How many events have been dropped since the outbox was full.
  private var dropped = 0
  private var ending = Ending()
  /// How long a sink may take to finish; unacknowledged events stay in the outbox.
  private static let finishLimit = TimeSpan.seconds(2)

  /// The totals of the rows that are not in a commit yet, or not delivered.
  private struct OpenRows {
    var rows: Int
    var bytes: Int
    var events: Int
    /// The arrival times of these events.
    var ages = QueueAges()
  }

  /// A read of rows that has begun.
  private struct Read {
    /// The last row on the disk when the read began.
    var end: Int64
    /// The number of rows written to the disk since then.
    var rows = 0
    var bytes = 0
  }

  /// The stage of its end.
  private struct Ending {
    var isFinishing = false
    var isEnding = false
    /// Whether the sink has ended.
    var isDone = false
    /// Cancels a sink that takes too long to finish.
    var patience = Wake.none
  }

  /// The size at which a row is cut, so that its turn is short.
  private static let rowBytes = 256 << 10

  init(
    _ target: RunningSink, _ plan: SinkPlan, _ component: any SinkComponent, _ committer: Committer,
    _ options: DeliveryOptions
  ) {
    self.target = target
    self.committer = committer
    self.options = options
    let nodeContext = target.nodeContext
    limit = plan.outboxLimit
    name = plan.name
    let backlog = committer.backlog(of: name)
    lastKnown = backlog.first - 1
    lastCommitted = backlog.last
    pending = OpenRows(rows: backlog.rows, bytes: backlog.bytes, events: backlog.events)
    isSpilled = backlog.rows > 0
    writer = EventRowWriter(nodeContext.execution)
    encoder = component.streamEncoding?.makeEncoder()
    share = MemoryShare(of: nodeContext.execution.services.memory)
    super.init(nodeContext)
    target.outbox = self
    countRestored(backlog.events)
    if pending.events > 0 { pending.ages.add(pending.events, at: executor.now) }
  }

  override func open() {
    target.index = index
    target.takesEvents = takesEvents
    given[0].setOwner(owner)
    target.open()
    updatePressure()
    if isSpilled { deliverSoon() }
  }

  // MARK: From the graph

  override func receive(_ event: Event) {
    if isFull, limit.policy == .dropNewest { return drop(1) }
    if lines.count > 0 { endRow() }
    if let fault = writer.append(event) { return reject(event, "the event cannot be kept: \(fault.message)") }
    accept(1)
    if writer.size >= Self.rowBytes { endRow() }
  }

  override func accepts(_ batch: Batch) -> Bool {
    guard let encoder, target.accepts(batch) else { return false }
    return batch.portion(of: nodeContext.step, encodedBy: encoder)?.lines != nil
  }

  override func receive(_ batch: Batch) {
    guard let encoder, let new = batch.portion(of: nodeContext.step, encodedBy: encoder), new.count > 0 else { return }
    if isFull, limit.policy == .dropNewest { return drop(new.count) }
    if writer.count > 0 || lines.kind.map({ $0 != new.lines }) ?? false { endRow() }
    lines.append(new)
    accept(new.count)
    if lines.bytes.count >= Self.rowBytes { endRow() }
  }

  override func turnEnded() {
    endRow()
    target.turnEnded()
    if letsInputPass, !committer.isOwnTurn {
      letsInputPass = false
      deliverSoon()
    }
  }

  private func endRow() {
    if writer.count > 0 {
      add(writer.count, writer.finish())
      writer = EventRowWriter(nodeContext.execution)
    } else if lines.count > 0 {
      add(lines.count, lines.bytes)
      lines = LineRow()
    }
  }

  private func add(_ events: Int, _ bytes: [UInt8]) {
    pending.rows += 1
    pending.bytes += bytes.count
    pending.events += events
    pending.ages.add(events, at: executor.now)
    uncommitted.rows += 1
    uncommitted.bytes += bytes.count
    committer.add(events, bytes, of: name) { [weak self] row in self?.committed(row) }
    updatePressure()
  }

  // MARK: The limit

  private func updatePressure() {
    // If the oldest rows are dropped, a full outbox stays almost full; that is reported once.
    let room = limit.policy == .dropOldest ? limit.bytes / 2 : limit.bytes / 10 * 9
    let isFull = pending.bytes > (self.isFull ? room : limit.bytes)
    if isFull != self.isFull {
      self.isFull = isFull
      reportFull()
    }
    if limit.policy == .dropOldest { dropOldest() }
    // Dropped rows occupy the store until a commit removes them.
    let mustWait =
      limit.policy == .block ? isFull : limit.policy == .dropOldest && pending.bytes > limit.bytes / 10 * 11
    guard mustWait != isInputPaused else { return }
    isInputPaused = mustWait
    if mustWait { beginPause() } else { endPause() }
  }

  private func reportFull() {
    let what =
      switch limit.policy {
      case .block: "the pipeline's input waits too"
      case .dropOldest: "the oldest are dropped"
      case .dropNewest: "new events are dropped"
      }
    if isFull {
      execution.services.log(
        .warning, execution.plan.steps[nodeContext.step.number].label,
        "the outbox is full: \(pending.bytes) bytes wait to be delivered; \(what)")
    } else {
      reportDropped("the outbox has room again")
    }
  }

  private func reportDropped(_ now: String) {
    guard dropped > 0 else { return }
    execution.services.log(
      .warning, execution.plan.steps[nodeContext.step.number].label,
      "\(now); it dropped \(Printable.count(dropped, "event")) while it was full")
    dropped = 0
  }

  /// Counts new events as dropped.
  private func drop(_ events: Int) {
    accept(events)
    countDropped(events)
    dropped += events
  }

  /// Drops the oldest rows that the sink has not been given.
  private func dropOldest() {
    while pending.bytes > limit.bytes, !ending.isEnding {
      guard let row = ready.popFirst() else { return readMore() }
      readyBytes -= row.bytes.count
      pending.rows -= 1
      pending.bytes -= row.bytes.count
      remove(row.events)
      countDropped(row.events)
      dropped += row.events
      committer.removed.add(RemovedRow(number: row.number, sink: name, events: row.events, size: row.bytes.count))
    }
  }

  private func remove(_ events: Int) {
    pending.events -= events
    pending.ages.remove(events)
  }

  override var queued: PipelineStatistics.Queue? { target.queued }
  override var connections: PipelineStatistics.Connections? { target.connections }

  /// The undelivered events, including those that the sink has been given.
  var outboxed: PipelineStatistics.Queue {
    PipelineStatistics.Queue(
      events: max(0, pending.events), bytes: pending.bytes, oldest: pending.ages.oldest.map { executor.now - $0 })
  }

  // MARK: To the sink

  private func committed(_ row: OutboxRow) {
    lastCommitted = row.number
    uncommitted.rows -= 1
    uncommitted.bytes -= row.bytes.count
    read?.rows += 1
    read?.bytes += row.bytes.count
    guard !ending.isEnding else { return }
    if !isSpilled, readyBytes + row.bytes.count <= execution.services.memory.room(options.memoryBytes) {
      ready.append(row)
      readyBytes += row.bytes.count
      lastKnown = row.number
    } else {
      isSpilled = true
      leave()
    }
    deliverSoon()
  }

  /// Removes rows above the memory limit from memory; they are read from the disk later.
  private func leave() {
    let room = execution.services.memory.room(options.memoryBytes)
    while readyBytes > room, ready.count > 1, let row = ready.popLast() {
      readyBytes -= row.bytes.count
      lastKnown = ready.last?.number ?? lastKnown
      isSpilled = true
    }
  }

  /// Pauses delivery at the sink's request, until `resume`; nests.
  func hold() { holds += 1 }

  func resume() {
    holds -= 1
    if holds == 0 { deliverSoon() }
  }

  private func deliverSoon() {
    guard !isDelivering, !letsInputPass, !ending.isEnding, !isHandingOver, holds == 0, pending.rows > 0 else { return }
    if ready.isEmpty { return readMore() }
    isDelivering = true
    let node = Weak(self)
    executor.post { node.object?.deliver() }
  }

  private func readMore() {
    guard isSpilled, read == nil else { return }
    read = Read(end: lastCommitted)
    let node = Weak(self)
    let executor = executor
    committer.read(rowsOf: name, after: lastKnown) { rows in executor.post { node.object?.have(rows) } }
  }

  private func have(_ rows: [OutboxRow]) {
    committer.turnIsOwn()
    let read = read.take() ?? Read(end: lastCommitted)
    guard !ending.isEnding else { return }
    for row in rows {
      lastKnown = row.number
      if adopted.contains(row.number) { continue }
      ready.append(row)
      readyBytes += row.bytes.count
    }
    if rows.isEmpty {
      // Rows that the store cannot read are damaged; the store reports them. Those that no commit has confirmed, or that came to
      // the disk during the read, are still to be delivered.
      lastKnown = max(lastKnown, read.end)
      pending.rows = underWay.count + ready.count + uncommitted.rows + read.rows
      pending.bytes = underWay.values.reduce(0, +) + readyBytes + uncommitted.bytes + read.bytes
      if pending.rows == 0 { remove(pending.events) }
    }
    isSpilled = lastKnown < lastCommitted
    updatePressure()
    deliverSoon()
    drainIfDone()
  }

  /// Gives one row to the sink.
  private func deliver() {
    isDelivering = false
    committer.turnIsOwn()
    guard !ending.isEnding, !isHandingOver, holds == 0, let row = ready.popFirst() else { return }
    readyBytes -= row.bytes.count
    underWay[row.number] = row.bytes.count
    let delivered = RemovedRow(number: row.number, sink: name, events: row.events, size: row.bytes.count)
    let given = given[0]
    given.give(delivered)
    executor.track(Ack(.row) { given.end(delivered, $0) })
    do throws(StateFault) {
      try give(row)
    } catch {
      execution.services.log(
        .error, execution.plan.steps[nodeContext.step.number].label,
        "a row of the outbox cannot be read, so \(row.events) events are lost: \(error.message)")
      target.countUndelivered(row.events)
    }
    execution.commits.deliveredEvent = nil
    if target.positionVersion > 0 { marks[row.number] = target.mark }
    if executor.hasBatchAtHand { letsInputPass = true } else { deliverSoon() }
  }

  /// Receives the rows that end: all events acknowledged, or one failed.
  private var owner: GivenRows.Owner {
    let (executor, node, removed, name) = (executor, Weak(self), committer.removed, name)
    return { row, outcome in
      // The sink may have had another name when it was given the row.
      if outcome == .acknowledged {
        removed.add(RemovedRow(number: row.number, sink: name, events: row.events, size: row.size))
      }
      executor.post { node.object?.acknowledged(row.number, row.events, outcome) }
    }
  }

  /// Takes over rows whose events the sink has received from the previous execution.
  func adopt(_ rows: [GivenRows]) {
    for rows in rows {
      for row in rows.delivering {
        underWay[row.number] = row.size
        adopted.insert(row.number)
      }
      rows.setOwner(owner)
      if !rows.isEmpty { given.append(rows) }
    }
  }

  private func give(_ row: OutboxRow) throws(StateFault) {
    var index = 0
    func give(_ event: Event) {
      execution.commits.deliveredEvent = DeliveryID(store: committer.identity, row: row.number, index: index)
      target.receive(event)
      index += 1
    }
    if let lines = LineRow.lines(row) {
      let batch = Batch(lines: lines)
      guard !target.accepts(batch) else { return target.receive(batch) }
      try lines.forEachEvent(execution, give)
    } else {
      var events = try EventRowReader(row, execution)
      while let event = try events.nextEvent() { give(event) }
    }
  }

  private func acknowledged(_ number: Int64, _ events: Int, _ outcome: Ack.Outcome) {
    committer.turnIsOwn()
    guard let bytes = underWay.removeValue(forKey: number), outcome == .acknowledged else { return }
    pending.rows -= 1
    pending.bytes -= bytes
    remove(events)
    updatePressure()
    drainIfDone()
  }

  /// True, because the rows are in the store.
  override var keepsNothing: Bool { true }

  // MARK: The position of the sink

  override var positionVersion: Int { target.positionVersion }
  override var mark: Int64 { target.mark }
  override func acknowledgeSoon() { target.acknowledgeSoon() }

  /// Notes that the current commit removes this row.
  func isRemoved(_ row: RemovedRow) {
    if let mark = marks.removeValue(forKey: row.number) { removedMark = max(removedMark, mark) }
  }

  /// The output of a row that a commit removes must not be truncated; all other rows are delivered again. The last
  /// state also removes the rows that the sink acknowledges after it, so its position is after everything that the sink
  /// has been given.
  override func savePosition(_ state: inout StateWriter) {
    target.savedMark = committer.isCommitting ? removedMark : nil
    target.savePosition(&state)
  }

  // MARK: The end

  override var awaitsAnswers: Bool { pending.rows > 0 || target.awaitsAnswers }

  override func finish() {
    endRow()
    ending.isFinishing = true
    drainIfDone()
  }

  /// The sink is completed when every row is delivered.
  private func drainIfDone() {
    guard ending.isFinishing, !ending.isEnding, pending.rows == 0 else { return }
    ending.isEnding = true
    target.complete()
  }

  /// Called when the sink has written everything that it has been given.
  func targetDrained() {
    ending.isEnding = true
    ending.isDone = true
    if ending.patience.isSet { executor.cancel(ending.patience) }
    ending.patience = .none
    reportDropped("the outbox is left")
    drained()
  }

  override func countDelivered() { target.countDelivered() }

  override func willSuspend() { isHandingOver = target.handOverQueue() }

  /// Passes the rows that the sink has been given to the next execution, or lets the sink finish them; the other rows
  /// stay in the outbox.
  override func suspend() {
    endRow()
    guard !ending.isEnding else { return }
    ending.isEnding = true
    if isHandingOver {
      for rows in given { rows.setOwner(nil) }
      target.leftRows = given
      target.suspend()
      return targetDrained()
    }
    target.complete()
    guard !ending.isDone else { return }
    // While its destination is unreachable the sink delivers nothing. Nothing is lost: the rows stay in the outbox.
    if execution.troubles.all[name] != nil { return giveUp() }
    ending.patience = executor.wake(at: executor.now + Self.finishLimit, self)
  }

  func woke(_ token: Int) {
    ending.patience = .none
    if !ending.isDone { giveUp() }
  }

  private func giveUp() {
    target.cancel()
    targetDrained()
  }

  override func cancel() {
    endRow()
    ending.isEnding = true
    if ending.patience.isSet { executor.cancel(ending.patience) }
    ending.patience = .none
    if isInputPaused {
      isInputPaused = false
      endPause()
    }
    reportDropped("the outbox is left")
    target.cancel()
    target.left()
  }
}
