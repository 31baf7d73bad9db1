import Synchronization

/// Runs a ``ParallelStage`` on one thread.
package final class StageWorker {
  private struct Branch {
    let steps: FusedSteps
    let encoder: any EventEncoder
    /// The index of the branch's first step among the steps of all branches.
    let first: Int
  }

  private let spare: SpareOutput
  private let sinks: [StepID]
  private let arena = Arena()
  private let json = JSONParser()
  // Raw memory: an event avoids retain and release.
  private let branches: UnsafeMutableBufferPointer<Branch>
  private let banks: UnsafeMutableBufferPointer<Unmanaged<SlotBank>>
  /// The number of consecutive blocks that failed and were left to their turns, and how many more skip the attempt.
  private var failures = 0
  private var rest = 0
  /// Whether any branch has steps; if none has, blocks may pass through unchanged.
  private let hasSteps: Bool
  /// The counts of the steps for one block, branch by branch.
  private let counters: UnsafeMutablePointer<StepCounters>
  private let ids: [StepID]
  /// Sizes of sampled events of one block: on arrival, and after each step.
  private var came = Batch.Sizes()
  private var left: [Batch.Sizes]
  private let size = JSONSize()
  /// The events of one block that the steps have dropped.
  private var stopped: [Batch.Stopped] = []
  private let clock: () -> Int64
  /// The number of events of each block that are timed and measured.
  private static let timed = 8

  init(_ stage: ParallelStage, _ spare: SpareOutput, _ clock: @escaping () -> Int64) {
    self.spare = spare
    self.clock = clock
    let runs = stage.branches.map(\.run)
    ids = runs.flatMap { $0.parts.flatMap { $0.steps.map(\.id) } }
    left = [Batch.Sizes](repeating: Batch.Sizes(), count: ids.count)
    counters = .allocate(capacity: ids.count)
    counters.initialize(repeating: StepCounters(), count: ids.count)
    let counters = counters
    var first = 0
    var banks: [ObjectIdentifier: SlotBank] = [:]
    let (arena, json) = (arena, json)
    let branches = zip(stage.branches, runs).map { branch, run in
      guard let encoder = branch.component.streamEncoding?.makeEncoder() else {
        preconditionFailure("a sink of a stage writes no stream")
      }
      let own = first
      first += run.parts.reduce(0) { $0 + $1.steps.count }
      let steps = FusedSteps(
        run, counting: { _, index in counters + (own + index) },
        frame: { segment, knowsEvent in
          let reading = segment.projection.filling
          if reading.isShared || knowsEvent, banks[ObjectIdentifier(reading)] == nil {
            banks[ObjectIdentifier(reading)] = SlotBank(reading.slotCount)
          }
          return EventFrame(segment, arena: arena, json: json, bank: banks[ObjectIdentifier(reading)])
        })
      return Branch(steps: steps, encoder: encoder, first: own)
    }
    sinks = stage.branches.map(\.sink)
    hasSteps = runs.contains { !$0.parts.isEmpty }
    self.branches = .allocate(capacity: branches.count)
    _ = self.branches.initialize(from: branches)
    self.banks = .allocate(capacity: banks.count)
    _ = self.banks.initialize(from: banks.values.map { .passRetained($0) })
  }

  deinit {
    for branch in branches { branch.steps.deallocate() }
    branches.deinitialize()
    branches.deallocate()
    counters.deallocate()
    for bank in banks { bank.release() }
    banks.deallocate()
  }

  /// Encodes the block; nil: its turn must process it.
  package func encode(_ block: DecodedBlock) -> Batch? {
    let rows = block.batch
    guard rows.rejected.isEmpty else { return nil }
    // A block that passes through unchanged is encoded already.
    if !hasSteps, let lines = rows.passThrough?.lines, branches.allSatisfy({ $0.encoder.passes(lines) }) { return nil }
    if rest > 0 {
      rest -= 1
      return nil
    }
    let buffers = branches.map { _ in spare.take() }
    var sent = [Int](repeating: 0, count: branches.count)
    guard let received = encode(rows, into: buffers, &sent) else {
      spare.put(buffers)
      failures = min(failures + 1, 7)
      rest = 1 << failures
      return nil
    }
    failures = 0
    let counts = ids.indices.map {
      Batch.Count(
        step: ids[$0], dropped: counters[$0].dropped, time: counters[$0].time, sizes: left[$0])
    }
    let memory = EncodedMemory(spare, buffers)
    let encoded = branches.indices.map { index in
      let events = EncodedEvents(
        bytes: buffers[index].bytes, count: sent[index], memory: memory, lines: branches[index].encoder.lines)
      return (sink: sinks[index], events: events)
    }
    return Batch(encoded: encoded, received: received, sizes: came, counts: counts, stopped: stopped)
  }

  /// Passes an event through the steps of a branch, and measures their time and the size of what they send.
  @inline(never)
  private func passTimed(_ event: UnsafeMutablePointer<Event>, _ branch: Int, _ step: inout Int)
    -> FusedSteps.Progress
  {
    let steps = branches[branch].steps
    while step < steps.count {
      let start = clock()
      let progress = steps.passOne(event, at: step)
      steps[step].counters.pointee.time.add(UInt64(max(0, clock() &- start)))
      guard case .passed = progress else { return progress }
      left[branches[branch].first + step].add(size.size(of: event.pointee.value))
      step += 1
    }
    return .passed
  }

  /// Whether the condition of the first step drops the event.
  @inline(__always)
  private func isLeftOut(_ event: Value, _ steps: FusedSteps) -> Bool {
    switch steps.leadingOutcome(event) {
    case .drop: true
    case .undecided: false
    case .unread: steps.readsAndDrops(event)
    }
  }

  @inline(__always)
  private func countDropped(by step: FusedSteps.Step, _ offset: Int64, _ event: () -> Event) {
    step.counters.pointee.dropped &+= 1
    if step.counters.pointee.dropped == 1 { keep(event(), at: offset, step.id) }
  }

  /// Keeps the first event of a block that a step drops, for ``StoppedEvents``.
  @inline(never)
  private func keep(_ event: Event, at offset: Int64, _ step: StepID) {
    guard stopped.allSatisfy({ $0.step != step }) else { return }
    var event = event
    event.position = offset
    stopped.append(Batch.Stopped(step: step, event: OwnedEvent(event)))
  }

  private func encode(_ rows: RowBatch, into buffers: [OutputBuffer], _ sent: inout [Int]) -> Int? {
    var received = 0
    var hasFailed = false
    counters.update(repeating: StepCounters(), count: ids.count)
    stopped = []
    came = Batch.Sizes()
    for index in left.indices { left[index] = Batch.Sizes() }
    buffers.withUnsafeBufferPointer { buffers in
      sent.withUnsafeMutableBufferPointer { sent in
        _ = rows.forEachRow(tokens: json.indexed) { value, offset in
          received &+= 1
          // Reuse the memory for the next event: a small arena stays in the cache.
          defer {
            arena.reset()
            for bank in banks { bank._withUnsafeGuaranteedRef { $0.forget() } }
          }
          if received <= Self.timed { came.add(size.size(of: value)) }
          for index in branches.indices {
            var step = 0
            if received > Self.timed, isLeftOut(value, branches[index].steps) {
              countDropped(by: branches[index].steps[0], offset) { Event(value) }
              continue
            }
            var event = Event(value)
            let progress = withUnsafeMutablePointer(to: &event) {
              received > Self.timed
                ? branches[index].steps.passPure($0, from: &step) : passTimed($0, index, &step)
            }
            switch progress {
            case .passed:
              hasFailed = branches[index].encoder.append(event.value, to: buffers[index]) != nil
              sent[index] &+= 1
            case .dropped: countDropped(by: branches[index].steps[step], offset) { event }
            case .failed, .unreadable, .notPure: hasFailed = true
            }
            if hasFailed { return false }
          }
          return true
        }
      }
    }
    return hasFailed ? nil : received
  }
}

/// Owns the buffers that a batch points into; the last reference returns them to the pool.
private final class EncodedMemory: @unchecked Sendable {
  private let spare: SpareOutput
  private let buffers: [OutputBuffer]

  init(_ spare: SpareOutput, _ buffers: [OutputBuffer]) {
    self.spare = spare
    self.buffers = buffers
  }

  deinit { spare.put(buffers) }
}

/// A pool of buffers.
final class SpareOutput: Sendable {
  private let buffers = Mutex<[OutputBuffer]>([])
  private static let limit = 256

  func take() -> OutputBuffer { buffers.withLock { $0.popLast() } ?? OutputBuffer(capacity: 16 << 10) }

  func put(_ back: [OutputBuffer]) {
    for buffer in back { buffer.clear() }
    buffers.withLock { for buffer in back where $0.count < Self.limit { $0.append(buffer) } }
  }
}
