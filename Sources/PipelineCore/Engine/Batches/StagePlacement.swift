import Synchronization

/// Decides where the work of a source's ``ParallelStage`` runs: in turns at first, on the decoding threads as soon as
/// that pays.
package final class StagePlacement: Sendable {
  private struct State {
    var isBeside = false
    /// Blocks of the current span.
    var blocks = 0
    var making: Int64 = 0
    var using: Int64 = 0
    /// The number of consecutive spans in which decoding threads were faster.
    var agreed = 0
    /// Also receives the times that are reported to `usedMore`.
    var alsoUsed: (@Sendable (Int64) -> Void)?
  }
  private let stage: ParallelStage?
  private let spare = SpareOutput()
  private let state: Mutex<State>
  private let handedOver = Atomic(false)
  private let threads: Int
  /// Set: whether the stage runs on the decoding threads, without measuring.
  private let pinned: Bool?
  /// All decoding threads start at once, not one by one where the turns wait for them.
  package let startsAllThreads: Bool

  /// The least length of a span: nanoseconds of work, and blocks.
  private static let span: Int64 = 4_000_000
  private static let leastBlocks = 8

  /// - Parameters:
  ///   - stage: Nil: the threads only decode.
  ///   - threads: How many threads may decode.
  ///   - pinned: Whether the stage runs on the decoding threads, from the first block on; nil: that is measured.
  ///   - startsAllThreads: All decoding threads start at once.
  package init(_ stage: ParallelStage?, threads: Int, pinned: Bool? = nil, startsAllThreads: Bool = false) {
    self.stage = stage
    self.threads = threads
    self.pinned = pinned
    self.startsAllThreads = startsAllThreads
    state = Mutex(State(isBeside: pinned ?? false))
    passesThrough = stage?.passesThrough(.documents) ?? false
  }

  /// Whether blocks of plain documents pass through unchanged, so that their rows need not be located.
  package let passesThrough: Bool

  /// Whether the last turn handed over a whole block; the next turns then take next to no time either.
  package var isHandedOver: Bool {
    get { handedOver.load(ordering: .relaxed) }
    set { handedOver.store(newValue, ordering: .relaxed) }
  }

  /// The worker of one thread; nil while turns do the work.
  ///
  /// - Parameter clock: A clock in nanoseconds; only differences matter.
  package func makeWorker(clock: @escaping () -> Int64) -> StageWorker? {
    guard let stage, state.withLock({ $0.isBeside }) else { return nil }
    return StageWorker(stage, spare, clock)
  }

  /// Reports how many nanoseconds the decoding of a block took.
  package func made(in nanoseconds: Int64) { state.withLock { $0.making &+= nanoseconds } }

  /// Reports how many nanoseconds a turn spent on a block.
  package func used(in nanoseconds: Int64) {
    state.withLock {
      $0.using &+= nanoseconds
      $0.blocks += 1
    }
  }

  /// Reports the nanoseconds that later turns spent on the rest of the last block.
  package func usedMore(in nanoseconds: Int64) {
    let also = state.withLock { state in
      state.using &+= nanoseconds
      return state.alsoUsed
    }
    also?(nanoseconds)
  }

  /// Calls `body` with each time reported to `usedMore`.
  package func whenUsedMore(_ body: @escaping @Sendable (Int64) -> Void) { state.withLock { $0.alsoUsed = body } }

  /// Called at the end of a turn: moves the work to the decoding threads if that pays.
  ///
  /// It pays if the threads need less time for decoding and the stage together than is needed now, which is the larger
  /// of the times of decoding and of the turns. The threads slow each other down, so a margin of a quarter is added.
  /// Two spans in a row must agree, because the first blocks meet cold caches.
  func decide() {
    guard stage != nil, pinned == nil else { return }
    state.withLock { state in
      if state.isBeside { return }
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
