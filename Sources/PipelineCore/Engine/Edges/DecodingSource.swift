/// A source that reads bytes: decodes them and emits one row at a time.
///
/// If a turn is spent before all rows of a batch are emitted, further turns emit the rest. A subclass that acts after a
/// batch checks ``isBatchDone`` and otherwise passes its work to ``whenBatchIsDone(_:)``; it takes no further batch
/// before.
open class DecodingSource: RunningSource {
  // Starts small and grows: an answer often holds one event, and there may be hundreds of sources.
  private let rows = RowBatch(capacity: 16)
  /// Whether the last block was handed over whole.
  private var isHandedOver = false
  /// The input offset of the first event of the last block that was decoded and not sent, because the source was closed
  /// first or the rest waits for a turn; nil: all events were sent.
  package private(set) var unsentOffset: Int64?

  /// How far a batch has been emitted.
  private struct Cursor {
    /// The index of the next row or document; in plain lines, the offset of the next line.
    var next = 0
    /// The number of rejected rows that have been reported.
    var refused = 0
  }

  /// The rest of a batch.
  private struct Remainder {
    var rows: RowBatch
    var origin: Origin
    var cursor: Cursor
    /// Owns the memory that the rows point into.
    var memory: AnyObject
    /// Charges the memory of the batch until all rows are emitted.
    let charge: MemoryCharge
    var then: (() -> Void)?
  }
  private var remainder: Remainder?
  private var isEnding = false
  /// Whether the pipeline is about to be suspended, so that the rest of a batch must be emitted first.
  private var isSuspending = false
  /// Whether this source holds the execution until the rest of the batch is emitted.
  private var isPausing = false

  /// Called at the beginning of each turn that emits rows, before the first row: overrides call
  /// ``RunningSource/beginPiece(of:endingAt:)``.
  open func beginPiece() {}

  /// Makes a decoder; nil: the source has failed, with the reason. Checks of the pipeline file reject such options
  /// beforehand.
  package final func makeDecoder(_ options: DecoderOptions) -> (any EventDecoder)? {
    decoderOptions = options
    do {
      return try options.decoder()
    } catch {
      finish(failing: SignalFailure(.source, "'decode' cannot be used: \(error.message)", at: nodeContext.location))
      return nil
    }
  }

  /// Decodes `slab`, which continues the input of this `decoder`, and emits its rows.
  ///
  /// `offset`: the start of the slab in the input. `isLast`: the input ends with the slab. `bytes`: the memory of the
  /// rows, if they are not in the slab. Returns the number of rows and of rejected rows.
  @discardableResult
  package final func take(
    _ slab: Slab, offset: Int64, isLast: Bool, by decoder: any EventDecoder, bytes: Int? = nil, origin: Origin
  ) -> (decoded: Int, refused: Int) {
    guard !isClosed else { return (0, 0) }
    beginPiece()
    lookForPoison(origin)
    emitRemainder()
    unsentOffset = nil
    countBytes(slab.count, to: offset &+ Int64(slab.count))
    arena.keep(slab)
    arena.keep(origin)
    rows.clear()
    decoder.decode(slab, 0..<slab.count, offset: offset, isLast: isLast, arena: arena, into: rows)
    let found = (decoded: rows.count, refused: rows.rejected.count)
    if offset == 0 { adviseAboutDecoder(slab.bytes, rows, origin) }
    if !handOver(rows, nil, origin), let stop = produceRows(rows, origin) {
      hold(rows, origin, from: stop, in: arena.detach(), bytes ?? slab.count)
    }
    return found
  }

  /// Hands over a block that another thread decoded, or emits its rows. `encoded`: the block as encoded by that thread.
  package final func take(_ block: DecodedBlock, encoded: Batch? = nil, origin: Origin) {
    guard !isClosed else { return }
    beginPiece()
    lookForPoison(origin)
    emitRemainder()
    unsentOffset = nil
    countBytes(block.bytes, to: block.end)
    if block.end == Int64(block.bytes) { adviseAboutDecoder(block.text, block.batch, origin) }
    if handOver(block.batch, encoded?.from(origin), origin) { return }
    arena.keep(block)
    arena.keep(origin)
    if let stop = produceRows(block.batch, origin) {
      hold(block.batch, origin, from: stop, in: block, block.bytes)
    }
  }

  // MARK: Advice

  /// The advice given so far on inputs that do not fit the decoder, and the number of rows rejected since the start.
  private var advice: Set<String> = []
  private var refusedRows = 0
  /// How the input is decoded, as far as known.
  package final var decoderOptions: DecoderOptions? {
    didSet { readsJSON = [.json, .ndjson, .jsonDocuments].contains(decoderOptions?.format) }
  }
  private var readsJSON = false
  private static let mostAdvice = 4

  /// Logs once the probable format of an input whose start does not fit the decoder.
  private func adviseAboutDecoder(
    _ text: UnsafeRawBufferPointer, _ rows: RowBatch, _ origin: Origin
  ) {
    // Text that decodes as JSON has the right encoding.
    if readsJSON, rows.rejected.isEmpty { return }
    guard let options = decoderOptions, !text.isEmpty, advice.count < Self.mostAdvice,
      let found = DecoderAdvice.advice(options, startingAs: text, hasRejected: !rows.rejected.isEmpty),
      advice.insert(found).inserted
    else { return }
    let refused = rows.rejected.count
    let count =
      refused == 0 ? "" : "; of its beginning \(refused) row\(refused == 1 ? " was" : "s were") rejected"
    execution.services.log(
      .warning, execution.plan.steps[nodeContext.step.number].label,
      "\(nodeContext.location.map { "\($0): " } ?? "")\(origin.path ?? "the input") \(found)\(count)")
  }

  private func sumUpAdvice() {
    guard !advice.isEmpty, refusedRows > 0 else { return }
    execution.services.log(
      .warning, execution.plan.steps[nodeContext.step.number].label,
      "\(refusedRows) row\(refusedRows == 1 ? "" : "s") of the input \(refusedRows == 1 ? "was" : "were") rejected in all"
    )
  }

  // MARK: Events that end the process

  /// Whether the source reads the same input again after a crash, at the same offsets of the same paths.
  open var isReadAgain: Bool { false }
  /// Whether each event is recorded (``InHand``) before it is sent.
  private var isCareful = false
  private var poison = InHand.Position(source: 0, input: 0, offset: 0)
  private weak var poisonOrigin: Origin?

  private func lookForPoison(_ origin: Origin) {
    guard let inHand = execution.inHand else { return }
    isCareful = inHand.isCareful(executor.now) && isReadAgain && hasPieces
    guard isCareful, poisonOrigin !== origin else { return }
    poisonOrigin = origin
    poison.source = InHand.hash(execution.plan.steps[nodeContext.step.number].key)
    poison.input = InHand.hash(origin.path ?? "")
  }

  private func emitCarefully(_ event: Event) {
    poison.offset = event.position
    if let inHand = execution.inHand, !inHand.take(poison) { return rejectPoison(event) }
    emit(event)
  }

  // MARK: The rest of a batch

  /// Whether all rows of the last batch have been emitted.
  package final var isBatchDone: Bool { remainder == nil }

  /// Runs `body` after the last row of the unfinished batch, in the same turn; never if the source ends first. Call it
  /// at most once for each batch.
  package final func whenBatchIsDone(_ body: @escaping () -> Void) { remainder?.then = body }

  /// Nanoseconds spent by the turns that emitted the rest of the last batch. Placement decisions read it.
  package private(set) final var restTime: Int64 = 0

  private func hold(_ rows: RowBatch, _ origin: Origin, from cursor: Cursor, in memory: AnyObject, _ bytes: Int) {
    restTime = 0
    let charge = MemoryCharge(bytes, of: execution.services.memory)
    remainder = Remainder(rows: rows, origin: origin, cursor: cursor, memory: memory, charge: charge)
    beginPause()
    executor.resume(inner: nodeContext.scope.outer != nil) { [self] in goOn() }
  }

  private func goOn() {
    guard var rest = remainder, !isClosed else {
      remainder = nil
      return
    }
    beginPiece()
    arena.keep(rest.memory)
    arena.keep(rest.origin)
    let start = executor.instant
    unsentOffset = nil
    let stop = produceRows(rest.rows, rest.origin, from: rest.cursor)
    restTime &+= (executor.instant - start).nanoseconds
    if let stop {
      rest.cursor = stop
      remainder = rest
      executor.resume(inner: nodeContext.scope.outer != nil) { [self] in goOn() }
      return
    }
    remainder = nil
    guard !isClosed else { return }
    rest.then?()
    guard isBatchDone else { return }
    endPause()
    if isEnding { finish() }
  }

  /// Emits the rest at once, however long that takes, because another batch follows.
  private func emitRemainder() {
    guard !isBatchDone else { return }
    while let rest = remainder {
      remainder = nil
      arena.keep(rest.memory)
      arena.keep(rest.origin)
      unsentOffset = nil
      var cursor: Cursor? = rest.cursor
      while !isClosed, let from = cursor { cursor = produceRows(rest.rows, rest.origin, from: from) }
      if !isClosed { rest.then?() }
    }
    endPause()
  }

  /// Finishes a batch that has been emitted in part.
  open override func drain() {
    if isBatchDone { finish() } else { isEnding = true }
  }

  /// Finishes the batch like `drain`, because another execution could not read the rest again.
  open override func suspend() {
    isSuspending = true
    beginPause()
  }

  private func beginPause() {
    guard isSuspending, !isBatchDone, !isPausing else { return }
    isPausing = true
    execution.hold()
  }

  private func endPause() {
    guard isPausing else { return }
    isPausing = false
    execution.release()
  }

  final override func ended() {
    endPause()
    sumUpAdvice()
  }

  /// Decides where this source's stage runs. `threads`: how many threads may decode.
  package final func makePlacement(threads: Int) -> StagePlacement {
    let hasStage = !nodeContext.scope.isForSomething && execution.inHand?.keepsToTurns != true
    let (placement, startsAll) = (execution.reading.placement, execution.reading.startsAllThreads)
    return StagePlacement(
      hasStage ? execution.plan.stage(of: nodeContext.step) : nil, threads: threads,
      pinned: placement.runsStage ?? (startsAll && execution.plan.threads != 1 ? true : nil),
      startsAllThreads: startsAll || placement != .auto)
  }

  /// Call it at the end of each turn that took blocks.
  package final func endTurn(_ placement: StagePlacement) {
    placement.isHandedOver = isHandedOver
    placement.decide()
  }

  /// Emits all events of a block at once, encoded by a decoding thread or as they were read. False: their rows must be
  /// emitted, because a receiver needs the events one by one.
  private func handOver(_ rows: RowBatch, _ encoded: Batch?, _ origin: Origin) -> Bool {
    isHandedOver = false
    guard !isCareful, var batch = encoded ?? rows.passThrough.map(Batch.init(lines:)) else { return false }
    if rows.rejected.isEmpty {
      batch.rows = Batch.Rows(rows: rows, origin: origin, tokens: execution.json.indexed)
    }
    guard isAccepted(batch) else { return false }
    batch.rows = nil
    isHandedOver = true
    if encoded != nil { execution.reading.encodedBlocks += 1 }
    execution.tally.received &+= UInt64(batch.received)
    emit(batch)
    return true
  }

  /// Emits the rows of a batch. Returns where it stopped; nil: nothing is left.
  private func produceRows(_ rows: RowBatch, _ origin: Origin, from start: Cursor = Cursor()) -> Cursor? {
    var cursor = start
    // Rejected rows are reported in input order.
    while cursor.refused < rows.rejected.count {
      let refused = rows.rejected[cursor.refused]
      if let stop = produceRows(rows, from: cursor.next, upTo: refused.index, origin) {
        cursor.next = stop
        return cursor
      }
      cursor.next = refused.index
      if isClosed {
        unsentOffset = unsentOffset ?? refused.offset
        return nil
      }
      rejectInput(
        refused.bytes.rawBytes, "\(refused.reason)", origin: origin, position: refused.offset)
      cursor.refused += 1
      refusedRows &+= 1
      let mustYield = finishEventAndSpend()
      if isClosed {
        unsentOffset = offset(of: cursor, in: rows)
        return nil
      }
      if mustYield, let offset = offset(of: cursor, in: rows) {
        unsentOffset = offset
        return cursor
      }
    }
    guard let stop = produceRows(rows, from: cursor.next, upTo: .max, origin) else { return nil }
    cursor.next = stop
    return cursor
  }

  /// The input offset of the next row, rejected or not, of a batch that has rows; nil: there is none.
  private func offset(of cursor: Cursor, in rows: RowBatch) -> Int64? {
    let refused = cursor.refused < rows.rejected.count ? rows.rejected[cursor.refused] : nil
    if let refused, refused.index == cursor.next { return refused.offset }
    return cursor.next < rows.count ? rows.rows[cursor.next].offset : refused?.offset
  }

  /// Emits rows until none is left, the source is closed or the turn is spent; in the last case returns where the next
  /// row is.
  private func produceRows(_ rows: RowBatch, from first: Int, upTo end: Int, _ origin: Origin) -> Int? {
    let isCareful = isCareful
    var emitted: UInt64 = 0
    defer { execution.tally.received &+= emitted }
    var event = Event(.null, key: key, origin: origin)
    let stop = rows.forEachRow(from: first, upTo: end, tokens: execution.json.indexed) { value, offset in
      event.value = value
      event.position = offset
      emitted &+= 1
      if isCareful { emitCarefully(event) } else { emit(event) }
      let mustYield = finishEventAndSpend()
      return !mustYield && !isClosed
    }
    guard let stop else { return nil }
    unsentOffset = stop.offset
    return isClosed ? nil : stop.next
  }
}
