import PipelineCore
import Synchronization
import Transport

/// A sink that writes encoded events to a stream or a file: encodes as events come, hands what a turn
/// made to the writer's thread in one piece, and holds back the pipeline's input while that is behind.
class StreamSink: RunningSink {
  private let encode: EncodeParameter
  private let encoder: any EventEncoder
  /// In which threads that decode encode for this sink.
  private var work: BlockWork?
  private let target: FileWriter.Target
  private let options: FileWriter.Options
  private var writer: FileWriter?
  // Touched in turns only, which never overlap.
  @exclusivity(unchecked) private var buffer = OutputBuffer(capacity: 64 << 10) {
    didSet { current = .passUnretained(buffer) }
  }
  /// `buffer`, so that an event counts no references.
  @exclusivity(unchecked) private var current: Unmanaged<OutputBuffer>
  private let spare = SpareBuffers()
  /// What waits for the bytes of `buffer` to be written.
  private var settlements: [Settlement] = []
  /// So many bytes of `buffer` are of earlier turns.
  private var earlier = 0
  private var isCongested = false
  @exclusivity(unchecked) private var isOver = false
  /// Why what was written last has not arrived, found out while the sink was finishing.
  private var lastFailure: PosixError?
  /// The content of this turn replaces that of the turns before: only its last event is written.
  private let replaces: Bool
  /// Enough to write before the turn has ended.
  private static let largeBlock = 1 << 20
  /// Less is written together with what comes next, if that has come.
  private static let smallBlock = 128 << 10
  /// Up to here bytes are copied rather than handed over.
  private static let copiedBlock = 16 << 10

  /// Which threads do the work, in words.
  static let threads = "encoded in the turns or by who decodes the block, written by that thread or one of its own"

  init(
    _ seat: Seat, _ encode: EncodeParameter, _ target: FileWriter.Target,
    _ options: FileWriter.Options = FileWriter.Options()
  ) {
    self.encode = encode
    encoder = encode.makeEncoder()
    self.target = target
    self.options = options
    if case .replace = target { replaces = true } else { replaces = false }
    current = .passUnretained(buffer)
    super.init(seat)
  }

  override func open() {
    let label = execution.plan.steps[seat.step.number].label
    let services = execution.services
    do throws(PosixError) {
      writer = try FileWriter(target, options: options) { error in
        services.log(.error, label, "\(error.message); waiting until it can be written")
      }
    } catch {
      fail(because: SignalFailure(.sink, error.message, at: seat.location))
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
        earlier = 0
      }
      countSent()
      return buffer.count >= Self.largeBlock
    }
    if isLarge, !replaces { handOver() }
  }

  override func receive(_ lines: VerbatimLines) -> Bool {
    guard !replaces, encoder.passes(lines.kind) else { return false }
    if isOver { return true }
    if lines.bytes.count < Self.copiedBlock {
      buffer.append(lines.bytes)
    } else if let writer {
      handOver()
      let release = completion(holding: executor.settlement)
      if isLeft(to: writer) { writer.leave(lines, release) } else { writer.add(lines, release) }
      holdBack(writer)
    }
    countSent(lines.count)
    return true
  }

  override func join(_ work: BlockWork) -> Bool {
    guard !replaces, !encoder.keepsState else { return false }
    work.end { [encode] in encode.makeEncoder() }
    self.work = work
    return true
  }

  override func receive(_ block: EncodedBlock) -> Bool {
    guard block.work === work else { return false }
    guard !isOver else { return true }
    if block.buffer.count < Self.copiedBlock {
      buffer.append(block.buffer.bytes)
    } else if let writer {
      handOver()
      let release = completion(holding: executor.settlement)
      // The buffer is lent until the end.
      let done: FileWriter.Completion = { result in withExtendedLifetime(block) { release(result) } }
      if isLeft(to: writer) { writer.leave(block.buffer, done) } else { writer.add(block.buffer, done) }
      holdBack(writer)
    }
    countSent(block.sent)
    return true
  }

  /// For what goes to the writer in the middle of a turn, past the buffer.
  private func completion(holding settlement: Settlement?) -> FileWriter.Completion {
    let node = Weak(self)
    let executor = executor
    settlement?.hold()
    return { result in
      settlement?.release(.init(result))
      if case .failure(let error) = result { executor.post { node.object?.failed(error) } }
    }
  }

  override func turnEnded() {
    guard buffer.count > 0 else { return }
    holdSettlement()
    // What is at hand already will be written soon; a few large writes cost less than many small ones.
    if buffer.count < Self.smallBlock, executor.hasBatchAtHand { return }
    handOver()
  }

  /// Has the events of this turn wait for what they have added to the buffer.
  private func holdSettlement() {
    if let settlement = executor.settlement, buffer.count > earlier {
      settlement.hold()
      settlements.append(settlement)
    }
    earlier = buffer.count
  }

  private func handOver() {
    guard let writer, buffer.count > 0 else { return }
    holdSettlement()
    let full = buffer
    buffer = spare.take()
    earlier = 0
    // What one turn makes is taken whole; with what exceeds the bound, the pipeline's input is held back. A
    // turn that waited for a reader could not be told to end.
    if full.count < Self.copiedBlock, isLeft(to: writer) {
      writer.leave(full, completion(returning: full))
    } else {
      writer.add(full, completion(returning: full))
    }
    holdBack(writer)
  }

  /// Whether the thread that runs this turn will write what is left to it.
  private func isLeft(to writer: FileWriter) -> Bool {
    writer.mayBeLeft && executor.leave { writer.write() }
  }

  private func holdBack(_ writer: FileWriter) {
    if !isCongested, writer.queuedBytes > options.queueBytes / 2 {
      isCongested = true
      executor.congest(.output)
      let executor = executor
      let node = Weak(self)
      writer.whenRoom { executor.post { node.object?.hasRoom() } }
    }
  }

  private func completion(returning buffer: OutputBuffer) -> FileWriter.Completion {
    let executor = executor
    let node = Weak(self)
    let spare = spare
    let settlements = settlements
    self.settlements = []
    return { result in
      for settlement in settlements { settlement.release(.init(result)) }
      switch result {
      case .success: spare.put(buffer)
      case .failure(let error): executor.post { node.object?.failed(error) }
      }
    }
  }

  private func hasRoom() {
    guard isCongested else { return }
    isCongested = false
    executor.decongest(.output)
  }

  private func failed(_ error: PosixError) {
    guard !isOver else {
      if !error.isBrokenPipe { lastFailure = lastFailure ?? error }
      return
    }
    isOver = true
    hasRoom()
    if error.isBrokenPipe {
      closed()
    } else {
      fail(because: SignalFailure(.sink, error.message, at: seat.location))
    }
  }

  override func finish() {
    handOver()
    isOver = true
    guard let writer else {
      drained()
      return
    }
    let executor = executor
    let node = Weak(self)
    // Closing waits for the device; another thread does that.
    do throws(PosixError) {
      _ = try OwnThread("rxd close") {
        writer.close()
        executor.post { node.object?.over() }
      }
    } catch {
      writer.close()
      over()
    }
  }

  private func over() {
    hasRoom()
    writer = nil
    if let lastFailure {
      fail(because: SignalFailure(.sink, lastFailure.message, at: seat.location))
    } else {
      drained()
    }
  }

  override func abandon() {
    if !isOver { handOver() }
    isOver = true
    hasRoom()
    // What was handed over shall be written before the end is told, also where the sink was finishing already.
    writer?.close(within: .milliseconds(500))
    writer = nil
  }
}

/// Buffers to use again; filled by the writer's thread.
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

extension Settlement.Outcome {
  /// What a write says.
  init(_ result: Result<Void, PosixError>) {
    switch result {
    case .success: self = .settled
    case .failure(let error): self = .failed(error.message)
    }
  }
}
