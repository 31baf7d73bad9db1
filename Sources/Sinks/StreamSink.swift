import PipelineCore
import Synchronization
import Transport

/// A sink that writes encoded events to a stream or a file: encodes events as they arrive, hands the bytes of each turn
/// to the writer in one piece, and pauses the pipeline's input while the writer is behind.
class StreamSink: RunningSink {
  private let encode: EncodeParameter
  private let encoder: any EventEncoder
  let target: FileWriter.Target
  /// The value of the parameter `sync`.
  private let sync: FileWriter.Sync
  private var options: FileWriter.Options
  var writer: FileWriter?
  /// The blocks of a target that may wait for a reader: they go to the next version in a reload.
  var blocks = OpenBlocks()
  /// Whether the sink waits, without a writer, for what the previous version has left.
  var awaitsEstate = false
  /// The input has ended before that.
  private var isFinishing = false
  /// The next version gets the writer.
  var isHandingOver = false
  // Touched in turns only, which never overlap.
  @exclusivity(unchecked) private var buffer = OutputBuffer(capacity: 64 << 10) {
    didSet { current = .passUnretained(buffer) }
  }
  /// `buffer`, unmanaged, so that an event avoids retain and release.
  @exclusivity(unchecked) private var current: Unmanaged<OutputBuffer>
  private let spare = SpareBuffers()
  /// The receipts of the events in `buffer`.
  private(set) var receipts: [Receipt] = []
  /// The number of events in `buffer`; of these, how many are on receipts.
  @exclusivity(unchecked) private var buffered = 0
  private var receipted = 0
  private var receiptedBytes = 0
  var counts = Counts()
  /// The memory of the encoder before the first event of this execution.
  private var encoderMemory: [String] = []
  /// Whether it has been reported that others write to the file, so that its position cannot be saved.
  private var hasReportedSharing = false
  @exclusivity(unchecked) private(set) var isOver = false
  /// The error of the last write, found while the sink was finishing.
  private var lastFailure: PosixError?
  /// The reader has gone away, so nothing is lost.
  private var isUnread = false
  /// Each event replaces the file: only the last event of a turn is written.
  private let replaces: Bool
  /// A block of this size is written before the end of the turn.
  private static let largeBlock = 1 << 20
  /// A smaller block waits for the next one if another batch of input is queued.
  private static let smallBlock = 128 << 10
  /// Smaller batches are copied: that costs less than a write of their own, and than waking the writer.
  private static let copiedBlock = 64 << 10

  /// The threads that do the work, in words.
  static let threads = "encoded on the pipeline's thread or where it is decoded, written there or by its own thread"

  init(
    _ nodeContext: NodeContext, _ encode: EncodeParameter, _ target: FileWriter.Target,
    _ options: FileWriter.Options = FileWriter.Options()
  ) {
    self.encode = encode
    encoder = encode.makeEncoder()
    self.target = target
    self.options = options
    sync = options.sync
    if case .replace = target { replaces = true } else { replaces = false }
    current = .passUnretained(buffer)
    super.init(nodeContext)
  }

  override func open() {
    if execution.estate(of: nodeContext.step) is WriterEstate {
      awaitsEstate = true
      execution.whenTakenOver { [self] in takeEstate() }
    } else {
      openTarget()
    }
  }

  func openTarget() {
    if execution.settings.acknowledgesOnDisk { options.sync = options.sync.acknowledging }
    blocks.lead(to: self)
    do throws(PosixError) {
      let blocks = blocks
      let writer = try FileWriter(target, options: options) { blocks.waits(because: $0) }
      self.writer = writer
      goOn(writer)
    } catch {
      fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
    }
  }

  /// There is a writer again: events that arrived meanwhile go to it at the end of the turn.
  func tookEstate() {
    awaitsEstate = false
    if isFinishing { finish() }
  }

  override func dryRun() {
    do throws(PosixError) {
      try target.check()
    } catch {
      fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
    }
  }

  override func receive(_ event: Event) {
    guard !isOver else { return }
    let isLarge = current._withUnsafeGuaranteedRef { buffer in
      let start = buffer.count
      if replaces { encoder.reset() }
      if let failure = encoder.append(event.value, to: buffer) {
        buffer.truncate(to: start)
        reject(event, because: failure)
        return false
      }
      if replaces {
        buffer.removeFirst(start)
      }
      buffered &+= 1
      return buffer.count >= Self.largeBlock
    }
    if isLarge, !replaces { handOver() }
  }

  override func accepts(_ batch: Batch) -> Bool {
    !replaces && batch.portion(of: nodeContext.step, encodedBy: encoder) != nil
  }

  override func receive(_ batch: Batch) {
    guard !isOver, let portion = batch.portion(of: nodeContext.step, encodedBy: encoder) else { return }
    if portion.bytes.count < Self.copiedBlock || awaitsEstate {
      buffer.append(portion.bytes)
      buffered &+= portion.count
    } else {
      handOver()
      let delivery = counts.delivery
      counts.handedOver += portion.count
      let receipt = take(portion.count, bytes: portion.bytes.count)
      if isHandingOver { receipt.announceHandover() }
      send(
        .held(portion.bytes, by: portion.memory), [receipt],
        { result in delivery.count(portion.count, result) { portion.bytes } })
    }
  }

  /// Acknowledges the events of a block.
  private func acknowledgement(_ receipts: [Receipt]) -> FileWriter.Acknowledgement {
    let executor = executor
    let node = Weak(self)
    return { result in
      for receipt in receipts { receipt.acknowledgeAll(result) }
      if case .failure(let failure) = result { executor.post { node.object?.failed(failure.error) } }
    }
  }

  override func turnEnded() {
    guard buffered > 0 else { return }
    takeBuffered()
    // More input is queued; a few large writes cost less than many small ones.
    if buffer.count < Self.smallBlock, executor.hasBatchAtHand { return }
    handOver()
  }

  /// Takes a receipt for the events that this turn has added to the buffer.
  private func takeBuffered() {
    let new = buffered - receipted
    guard new > 0 else { return }
    receipted = buffered
    let receipt = take(new, bytes: buffer.count - receiptedBytes, joining: receipts.last)
    receiptedBytes = buffer.count
    if receipts.last !== receipt {
      if isHandingOver { receipt.announceHandover() }
      receipts.append(receipt)
    }
  }

  func handOver() {
    guard writer != nil, buffered > 0 else { return }
    takeBuffered()
    let full = buffer
    guard full.count > 0 else {
      // Events may consist of no bytes at all: they count as written after the bytes handed over before.
      counts.handedOver += buffered
      counts.delivery.count(buffered)
      for receipt in receipts { receipt.acknowledgeAll() }
      forgetBuffered()
      return
    }
    buffer = spare.take()
    let (spare, delivery, events, receipts) = (spare, counts.delivery, buffered, receipts)
    counts.handedOver += events
    forgetBuffered()
    send(
      .buffer(full), receipts,
      { result in
        delivery.count(events, result) { full.bytes }
        if case .success = result { spare.put(full) }
      })
  }

  /// Queues a block. The bytes of a turn are taken as a whole; beyond the limit, the pipeline's input is paused. A turn
  /// that blocked for a reader could not be stopped.
  ///
  /// A thread that runs this turn inline writes the remaining bytes, unless writing may take long; in other turns the
  /// writer's thread does.
  private func send(
    _ content: FileWriter.Content, _ receipts: [Receipt], _ completion: @escaping FileWriter.Completion
  ) {
    guard let writer else { return }
    if writer.mayBlock {
      let (blocks, number) = (blocks, blocks.add(receipts))
      return writer.add(
        content, { result in blocks.written(number) { completion(result) } },
        acknowledging: { result in blocks.end(number, result) })
    }
    let isLeft = writer.mayBeLeft && executor.afterTurn { writer.write() }
    writer.add(
      content, isLeft: isLeft,
      { result in
        completion(result)
        for receipt in receipts { receipt.freeMemory() }
      }, acknowledging: acknowledgement(receipts))
  }

  override var memoryLimit: Int { options.queueBytes / 2 }

  private func forgetBuffered() {
    receipts = []
    buffered = 0
    receipted = 0
    receiptedBytes = 0
  }

  override var queued: PipelineStatistics.Queue? {
    PipelineStatistics.Queue(
      events: max(0, counts.open + buffered), bytes: (writer?.queuedBytes ?? 0) + buffer.count)
  }

  override func countDelivered() {
    let (sent, bytes) = counts.takeNew()
    countSent(sent)
    countBytes(bytes)
  }

  /// Counts the unwritten events as lost.
  private func countLost() {
    let left = counts.open + buffered
    counts.handedOver = counts.delivery.delivered
    let reason = counts.delivery.failure?.message ?? "\(target.name) did not take \(left == 1 ? "it" : "them") in time"
    let isUnread = isUnread || counts.delivery.failure?.isBrokenPipe == true
    for receipt in receipts {
      if isUnread { receipt.dropAll(reason) } else { receipt.acknowledgeAll(.failed(reason)) }
    }
    forgetBuffered()
    guard left > 0, !isUnread, !isRepeatedLater else { return }
    countUndelivered(left)
    log(.warning, "\(left) event\(left == 1 ? " was" : "s were") taken but not delivered: \(reason)")
  }

  // MARK: - The place

  override var positionVersion: Int { 1 }

  override var mark: Int64 { (writer?.added ?? 0) &+ Int64(buffer.count) }

  override func acknowledgeSoon() {
    handOver()
    writer?.acknowledgeSoon()
  }

  override func savePosition(_ state: inout StateWriter) {
    let saved = savedMark ?? mark
    let position = state.positions == .taken ? writer?.position(after: saved) : nil
    state.write(position)
    state.write(saved > 0 ? encoder.memory : encoderMemory)
    guard position == nil, !hasReportedSharing, writer?.isShared == true else { return }
    hasReportedSharing = true
    log(.warning, "others write to \(target.name), too: after a crash, lines may be repeated")
  }

  override func restorePosition(_ state: inout StateReader) throws(StateFault) {
    let position = try state.read(FilePosition?.self)
    let memory = try state.read([String].self)
    // Another path means another file.
    guard case .append(let path, _) = target, let position, position.path == path else { return }
    options.resume = position
    options.cutsBack = outputComesAgain
    encoderMemory = memory
  }

  /// Continues where an earlier execution ended.
  private func goOn(_ writer: FileWriter) {
    let memory = encoderMemory
    encoderMemory = []
    switch writer.resumption {
    case nil: return
    case .exact, .kept: break
    case .cut(let path, let bytes):
      log(.info, "cut \(bytes) bytes off \(path) that were written after the last checkpoint; they are written again")
    case .lost(let reason):
      log(.warning, reason)
      return
    }
    // A renamed file has a successor, which starts empty.
    guard writer.resumption == .kept || writer.position(after: 0)?.offset == options.resume?.offset,
      encoder.goOn(after: memory)
    else { return }
    encoderMemory = memory
  }

  func log(_ level: Services.Level, _ message: String) {
    execution.services.log(
      level, execution.plan.steps[nodeContext.step.number].label,
      (nodeContext.location.map { "\($0): " } ?? "") + message)
  }

  // MARK: - A reload

  /// Whether the next version gets the writer, with the unwritten blocks: it writes to the same target, and a stop need
  /// not wait for the reader.
  override func handOverQueue() -> Bool {
    guard !isOver, writer?.mayBlock == true, KeptListeners.isKeeping,
      execution.successor?.name == execution.plan.name,
      let next = (execution.successor(of: nodeContext.step) as? any StreamSinkComponent)?.streamTarget,
      target.isSame(as: next.target), sync == next.sync
    else { return false }
    isHandingOver = true
    for receipt in receipts { receipt.announceHandover() }
    blocks.announceHandover()
    return true
  }

  override func suspend() {
    guard isHandingOver, let writer else { return }
    handOver()
    isOver = true
    self.writer = nil
    let (sent, bytes) = blocks.leave { counts.takeNew() }
    countSent(sent)
    countBytes(bytes)
    let left = WriterEstate.Contents(target: target, writer: writer, blocks: blocks, counts: counts, rows: leftRows)
    counts = Counts()
    execution.leave(WriterEstate(left, name: execution.name(of: nodeContext.step)), of: nodeContext.step)
  }

  // MARK: - The end

  func failed(_ error: PosixError) {
    guard !isOver else {
      if error.isBrokenPipe { isUnread = true } else { lastFailure = lastFailure ?? error }
      return
    }
    isOver = true
    if error.isBrokenPipe {
      isUnread = true
      closed()
    } else {
      fail(because: SignalFailure(.sink, error.message, at: nodeContext.location))
    }
  }

  override func finish() {
    isFinishing = true
    if awaitsEstate { return }
    handOver()
    isOver = true
    guard let writer else {
      drained()
      return
    }
    let node = Weak(self)
    // Closing may wait for the device.
    beside({ writer.close() }, then: { node.object?.over() })
  }

  private func over() {
    // The last sync may fail when no block is queued.
    if let failure = writer?.failure, !failure.isBrokenPipe { lastFailure = lastFailure ?? failure }
    writer = nil
    countLost()
    if let lastFailure {
      fail(because: SignalFailure(.sink, lastFailure.message, at: nodeContext.location))
    } else {
      drained()
    }
  }

  override func cancel() {
    if !isOver { handOver() }
    isOver = true
    guard let writer else { return awaitsEstate ? countLost() : () }
    self.writer = nil
    let node = Weak(self)
    // Queued bytes shall be written before the end is reported, even if the sink was already finishing.
    let limit = writer.isDiskFull ? TimeSpan.zero : .milliseconds(500)
    closeBeside({ writer.close(within: limit) }, then: { node.object?.countLost() })
  }
}

/// The number of delivered events. Counted by the writing thread, read in turns.
final class Delivery: Sendable {
  private let total = Atomic(0)
  private let bytes = Atomic(0)
  private let first = Mutex<PosixError?>(nil)

  var delivered: Int { total.load(ordering: .acquiring) }
  /// The number of bytes that the system has accepted.
  var written: Int { bytes.load(ordering: .acquiring) }
  /// Why the other events were not delivered; the first failure.
  var failure: PosixError? { first.withLock { $0 } }

  func count(_ events: Int) { total.add(events, ordering: .releasing) }

  /// A block of `events` events is done; `bytes`: its contents, needed after a failure only.
  func count(
    _ events: Int, _ result: Result<Void, FileWriter.WriteFailure>, _ bytes: () -> UnsafeRawBufferPointer
  ) {
    switch result {
    case .success:
      self.bytes.add(bytes().count, ordering: .releasing)
      total.add(events, ordering: .releasing)
    case .failure(let failure):
      first.withLock { $0 = $0 ?? failure.error }
      self.bytes.add(failure.written, ordering: .releasing)
      total.add(Self.whole(events, in: bytes(), until: failure.written), ordering: .releasing)
    }
  }

  /// The number of events that end within the first `written` bytes, if that can be determined: each event is one line,
  /// or the first line is a header. Otherwise all or none.
  private static func whole(_ events: Int, in bytes: UnsafeRawBufferPointer, until written: Int) -> Int {
    if written >= bytes.count { return events }
    var all = 0
    var before = 0
    for (index, byte) in bytes.enumerated() where byte == 0x0A {
      all += 1
      if index < written { before += 1 }
    }
    return all == events ? before : all == events + 1 ? max(0, before - 1) : 0
  }
}

/// Reusable buffers; returned by the writer's thread.
final class SpareBuffers: Sendable {
  private let free = Mutex<[OutputBuffer]>([])

  func take() -> OutputBuffer {
    free.withLock { $0.popLast() } ?? OutputBuffer(capacity: 64 << 10)
  }

  func put(_ buffer: OutputBuffer) {
    buffer.clear()
    free.withLock { if $0.count < 8 { $0.append(buffer) } }
  }
}

extension Receipt {
  /// Acknowledges its remaining events with the outcome of a write. A closed pipe counts as success.
  func acknowledgeAll(_ result: Result<Void, FileWriter.WriteFailure>) {
    switch result {
    case .success: acknowledgeAll()
    case .failure(let failure) where failure.error.isBrokenPipe: dropAll(failure.error.message)
    case .failure(let failure): acknowledgeAll(.failed(failure.error.message))
    }
  }
}

extension FileWriter.Sync {
  /// The same promise, and acknowledgements that wait for the device.
  var acknowledging: FileWriter.Sync {
    let limit = TimeSpan.milliseconds(100)
    return switch self {
    case .batch: .batch
    case .never: .acknowledged(within: limit)
    case .interval(let interval), .acknowledged(let interval): .acknowledged(within: min(interval, limit))
    }
  }
}
