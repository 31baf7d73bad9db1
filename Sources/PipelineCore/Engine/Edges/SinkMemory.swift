import Synchronization

/// The memory of the events that one sink has taken: its share of the process's ``MemoryBudget``. Above its limit
/// there, the sink's input is paused.
///
/// The bytes of each receipt are counted here until the receipt is acknowledged or given up, or its memory is freed
/// earlier. A sink only gives the number of bytes when it takes events.
final class SinkMemory: TimerTarget, @unchecked Sendable {
  var mayGoOn: Bool { false }
  var timerKind: TimerKind { .output }

  private let budget: MemoryBudget
  private let executor: Executor
  private let bytes = Atomic(0)
  /// The part of `bytes` that is reported to the budget, in the budget's units.
  private let known = Atomic(0)
  private let share: Mutex<Share>
  /// While the input is paused, the number of bytes at which it resumes; otherwise -1.
  private let resumesAt = Atomic(-1)
  // Used in turns.
  private weak var node: RunningSink?
  /// Whether the input is paused.
  private(set) var isPaused = false
  private var wake = Wake.none
  /// The time between checks whether other queues have freed memory.
  private static let interval = TimeSpan.seconds(1)

  private struct Share: ~Copyable, @unchecked Sendable {
    var share: MemoryShare
  }

  init(_ budget: MemoryBudget, _ executor: Executor) {
    self.budget = budget
    self.executor = executor
    share = Mutex(Share(share: MemoryShare(of: budget)))
  }

  /// The bytes that the sink holds.
  var held: Int { bytes.load(ordering: .relaxed) }

  /// Adds bytes that the sink has taken. In turns.
  @inline(__always)
  func add(_ count: Int, _ node: RunningSink) {
    let now = bytes.add(count, ordering: .relaxed).newValue
    if MemoryShare.units(now) > known.load(ordering: .relaxed) { grown(to: now, node) }
  }

  @inline(never)
  private func grown(to now: Int, _ node: RunningSink) {
    update()
    guard !isPaused, !node.takesRest, now > budget.room(node.memoryLimit) else { return }
    self.node = node
    isPaused = true
    node.pauseInput()
    wait()
  }

  /// Subtracts bytes that the sink no longer holds. On any thread.
  func remove(_ count: Int) {
    if count == 0 { return }
    // Sequentially consistent with `wait()`: either this call sees the limit, or `wait()` sees that the bytes are gone.
    let now = bytes.subtract(count, ordering: .sequentiallyConsistent).newValue
    if MemoryShare.units(now) < known.load(ordering: .relaxed) { update() }
    let limit = resumesAt.load(ordering: .sequentiallyConsistent)
    guard limit >= 0, now <= limit,
      resumesAt.compareExchange(expected: limit, desired: -1, ordering: .acquiringAndReleasing).exchanged
    else { return }
    executor.post { [self] in goOn() }
  }

  private func update() {
    share.withLock { share in
      let now = max(0, bytes.load(ordering: .relaxed))
      known.store(MemoryShare.units(now), ordering: .relaxed)
      share.share.set(now)
    }
  }

  // MARK: The pause, in turns

  private var room: Int { budget.room(node?.memoryLimit ?? 0) }

  /// Waits until half of the room is free.
  private func wait() {
    let limit = room / 2
    resumesAt.store(limit, ordering: .sequentiallyConsistent)
    // Other queues do not notify this sink when they shrink.
    if let node, held <= node.memoryLimit / 2, !wake.isSet {
      wake = executor.wake(at: executor.now + Self.interval, self)
    }
    // The bytes may have been freed before the limit was stored.
    if bytes.load(ordering: .sequentiallyConsistent) <= limit,
      resumesAt.exchange(-1, ordering: .acquiringAndReleasing) >= 0
    {
      executor.post { [self] in goOn() }
    }
  }

  private func goOn() {
    guard isPaused else { return }
    if held > room / 2 { return wait() }
    end()
  }

  func woke(_ token: Int) {
    wake = .none
    goOn()
  }

  /// Ends the pause, because there is room or the sink has ended.
  func end() {
    resumesAt.store(-1, ordering: .releasing)
    if wake.isSet { executor.cancel(wake) }
    wake = .none
    guard isPaused else { return }
    isPaused = false
    node?.resumeInput()
  }
}
