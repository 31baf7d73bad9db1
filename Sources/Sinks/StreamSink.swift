import PipelineCore
import Synchronization
import Transport

/// A sink that writes encoded events to a stream or a file: encodes as events come, hands what a turn
/// made to the writer's thread in one piece, and holds back the pipeline's input while that is behind.
class StreamSink: RunningSink {
  private let encoder: any EventEncoder
  private let target: FileWriter.Target
  private let options: FileWriter.Options
  private var writer: FileWriter?
  // Touched in turns only, which never overlap.
  @exclusivity(unchecked) private var buffer = OutputBuffer(capacity: 64 << 10)
  private let spare = SpareBuffers()
  private var isCongested = false
  @exclusivity(unchecked) private var isOver = false
  /// Why what was written last has not arrived, found out while the sink was finishing.
  private var lastFailure: PosixError?
  /// The content of this turn replaces that of the turns before: only its last event is written.
  private let replaces: Bool
  /// Enough to write before the turn has ended.
  private static let largeBlock = 1 << 20

  init(
    _ seat: Seat, _ encoder: any EventEncoder, _ target: FileWriter.Target,
    _ options: FileWriter.Options = FileWriter.Options()
  ) {
    self.encoder = encoder
    self.target = target
    self.options = options
    if case .replace = target { replaces = true } else { replaces = false }
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
    let start = buffer.count
    if replaces { encoder.reset() }
    if let failure = encoder.append(event.value, to: buffer) {
      buffer.truncate(to: start)
      reject(event, "the event cannot be written: \(failure)")
      return
    }
    if replaces { buffer.removeFirst(start) }
    countSent()
    if buffer.count >= Self.largeBlock, !replaces { handOver() }
  }

  override func turnEnded() {
    if buffer.count > 0 { handOver() }
  }

  private func handOver() {
    guard let writer, buffer.count > 0 else { return }
    let full = buffer
    buffer = spare.take()
    // What one turn makes is taken whole; with what exceeds the bound, the pipeline's input is held back. A
    // turn that waited for a reader could not be told to end.
    writer.add(full, completion(returning: full))
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
    return { result in
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
    guard !isOver else { return }
    handOver()
    isOver = true
    hasRoom()
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
