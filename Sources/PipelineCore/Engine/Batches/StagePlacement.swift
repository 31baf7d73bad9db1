import Synchronization

/// Decides where the work of a source's ``ParallelStage`` runs: in turns at first, on the decoding threads as soon as
/// that pays.
public final class StagePlacement: Sendable {
  private struct State {
    var isBeside = false
    /// Blocks of the current span.
    var blocks = 0
    var making: Int64 = 0
    var using: Int64 = 0
    /// How many spans in a row were in favour of the decoding threads.
    var agreed = 0
    /// A second reader of the time that turns need for blocks.
    var alsoUsed: (@Sendable (Int64) -> Void)?
  }
  private let stage: ParallelStage?
  private let spare = SpareOutput()
  private let state = Mutex(State())
  private let handedOver = Atomic(false)
  private let threads: Int
  /// The stage runs on the decoding threads from the start, without measuring.
  private let always: Bool

  /// The least length of a span: nanoseconds of work, and blocks.
  private static let span: Int64 = 4_000_000
  private static let leastBlocks = 8

  /// - Parameters:
  ///   - stage: Nil: the threads only decode.
  ///   - threads: How many threads may decode.
  ///   - always: The stage runs on the decoding threads from the first block on.
  public init(_ stage: ParallelStage?, threads: Int, always: Bool = false) {
    self.stage = stage
    self.threads = threads
    self.always = always
    passesThrough = stage?.passesThrough(.documents) ?? false
  }

  /// Blocks of plain documents will pass through unchanged, so their rows need not be found.
  public let passesThrough: Bool

  /// Whether the last turn handed over a whole block; the next turns then take next to no time either.
  public var isHandedOver: Bool {
    get { handedOver.load(ordering: .relaxed) }
    set { handedOver.store(newValue, ordering: .relaxed) }
  }

  /// For one thread; nil as long as the turns do the work.
  ///
  /// - Parameter clock: Nanoseconds, of which differences count.
  public func makeWorker(clock: @escaping () -> Int64) -> StageWorker? {
    guard let stage, state.withLock({ $0.isBeside }) else { return nil }
    return StageWorker(stage, spare, clock)
  }

  /// Reports how many nanoseconds the decoding of a block took.
  public func made(in nanoseconds: Int64) { state.withLock { $0.making &+= nanoseconds } }

  /// Reports how many nanoseconds a turn spent on a block.
  public func used(in nanoseconds: Int64) {
    state.withLock {
      $0.using &+= nanoseconds
      $0.blocks += 1
    }
  }

  /// Reports how many nanoseconds further turns spent on the rest of the last block.
  public func usedMore(in nanoseconds: Int64) {
    let also = state.withLock { state in
      state.using &+= nanoseconds
      return state.alsoUsed
    }
    also?(nanoseconds)
  }

  /// Calls `body` with each time reported to `usedMore`.
  public func whenUsedMore(_ body: @escaping @Sendable (Int64) -> Void) { state.withLock { $0.alsoUsed = body } }

  /// Called at the end of a turn: moves the work to the decoding threads if that pays.
  ///
  /// It pays if the threads need less time for decoding and the stage together than is needed now, which is the larger
  /// of the times of decoding and of the turns. The threads slow each other down, so a margin of a quarter is added.
  /// Two spans in a row must agree, because the first blocks meet cold caches.
  func decide() {
    guard stage != nil else { return }
    state.withLock { state in
      if state.isBeside { return }
      if always {
        state.isBeside = true
        return
      }
      guard state.blocks >= Self.leastBlocks, state.making &+ state.using >= Self.span else { return }
      defer { (state.blocks, state.making, state.using) = (0, 0, 0) }
      let beside = (state.making &+ state.using) / Int64(max(1, threads))
      state.agreed = max(state.making, state.using) > beside &+ beside / 4 ? state.agreed + 1 : 0
      state.isBeside = state.agreed == 2
    }
  }

  /// Whether the work runs off the pipeline thread.
  var isBeside: Bool { state.withLock { $0.isBeside } }
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

/// Does the work of a ``ParallelStage`` on one thread.
public final class StageWorker {
  private struct Branch {
    let steps: FusedSteps
    let encoder: any EventEncoder
  }

  private let spare: SpareOutput
  private let sinks: [StepID]
  private let arena = Arena()
  private let json = JSONParser()
  // Raw memory: an event avoids retain and release.
  private let branches: UnsafeMutableBufferPointer<Branch>
  private let banks: UnsafeMutableBufferPointer<Unmanaged<SlotBank>>
  /// How many blocks in a row were left to their turns, and how many further blocks are left without trying.
  private var failures = 0
  private var rest = 0
  /// Whether a block that passes through unchanged still needs the steps.
  private let hasSteps: Bool
  /// What the steps count of one block: of each branch, one behind the other.
  private let counters: UnsafeMutablePointer<StepCounters>
  private let ids: [StepID]
  private let clock: () -> Int64
  /// The time of so many events of each block is taken.
  private static let timed = 8

  init(_ stage: ParallelStage, _ spare: SpareOutput, _ clock: @escaping () -> Int64) {
    self.spare = spare
    self.clock = clock
    ids = stage.branches.flatMap { $0.parts.flatMap { $0.steps.map(\.id) } }
    counters = .allocate(capacity: ids.count)
    counters.initialize(repeating: StepCounters(), count: ids.count)
    let counters = counters
    var first = 0
    var banks: [ObjectIdentifier: SlotBank] = [:]
    let (arena, json) = (arena, json)
    let branches = stage.branches.map { branch in
      guard let encoder = branch.component.streamEncoding?.makeEncoder() else {
        preconditionFailure("a sink of a stage writes no stream")
      }
      let own = first
      first += branch.parts.reduce(0) { $0 + $1.steps.count }
      let steps = FusedSteps(
        branch.parts, counting: { _, index in counters + (own + index) },
        frame: { segment in
          let reading = segment.projection.filling
          if reading.isShared, banks[ObjectIdentifier(reading)] == nil {
            banks[ObjectIdentifier(reading)] = SlotBank(reading.slotCount)
          }
          return EventFrame(segment, arena: arena, json: json, bank: banks[ObjectIdentifier(reading)])
        })
      return Branch(steps: steps, encoder: encoder)
    }
    sinks = stage.branches.map(\.sink)
    hasSteps = stage.branches.contains { !$0.parts.isEmpty }
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
  public func encode(_ block: DecodedBlock) -> EncodedBlock? {
    let rows = block.batch
    guard rows.rejected.isEmpty else { return nil }
    // A block that passes through unchanged costs nothing.
    if !hasSteps, let lines = rows.passThrough, branches.allSatisfy({ $0.encoder.passes(lines.kind) }) { return nil }
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
      EncodedBlock.Count(
        step: ids[$0], dropped: counters[$0].dropped, timed: counters[$0].timed, nanoseconds: counters[$0].nanoseconds)
    }
    return EncodedBlock(spare, sinks, buffers, sent: sent, received: received, counts: counts)
  }

  /// Passes an event through the steps of a branch, and takes their time.
  @inline(never)
  private func passTimed(_ event: UnsafeMutablePointer<Event>, _ steps: FusedSteps, _ step: inout Int)
    -> FusedSteps.Progress
  {
    while step < steps.count {
      let start = clock()
      let progress = steps.passOne(event, at: step)
      steps[step].counters.pointee.nanoseconds &+= clock() &- start
      steps[step].counters.pointee.timed &+= 1
      guard case .passed = progress else { return progress }
      step += 1
    }
    return .passed
  }

  private func encode(_ rows: RowBatch, into buffers: [OutputBuffer], _ sent: inout [Int]) -> Int? {
    var received = 0
    counters.update(repeating: StepCounters(), count: ids.count)
    let isDone = buffers.withUnsafeBufferPointer { buffers in
      sent.withUnsafeMutableBufferPointer { sent in
        rows.forEachValue(tokens: json.indexed) { value in
          received &+= 1
          // The memory of one event is free for the next: a small arena stays in the cache.
          defer {
            arena.reset()
            for bank in banks { bank._withUnsafeGuaranteedRef { $0.forget() } }
          }
          for index in branches.indices {
            var event = Event(value)
            var step = 0
            let progress = withUnsafeMutablePointer(to: &event) {
              received > Self.timed
                ? branches[index].steps.passPure($0, from: &step) : passTimed($0, branches[index].steps, &step)
            }
            switch progress {
            case .passed:
              guard branches[index].encoder.append(event.value, to: buffers[index]) == nil else { return false }
              sent[index] &+= 1
            case .dropped: branches[index].steps[step].counters.pointee.dropped &+= 1
            case .failed, .unreadable, .notPure: return false
            }
          }
          return true
        }
      }
    }
    return isDone ? received : nil
  }
}
