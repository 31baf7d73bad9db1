import Synchronization

/// The memory limit of queued events, for all pipelines of a process together. While the queues exceed it, each has an eighth of its usual
/// limit: its senders wait, or it leaves events on the disk. Thread-safe.
package final class MemoryBudget: Sendable {
  package static let standard = 256 << 20

  /// In bytes.
  package let limit: Int
  private let used = Atomic<Int>(0)

  package init(_ limit: Int = standard) { self.limit = limit }

  /// The bytes that queues hold.
  package var held: Int { used.load(ordering: .relaxed) }

  /// The present limit of a queue whose usual limit is `usual` bytes.
  package func room(_ usual: Int) -> Int { held > limit ? usual / 8 : usual }

  /// The usual limit of the queues of one pipeline's steps together.
  package var usualOfSteps: Int { limit / 2 }

  fileprivate func add(_ bytes: Int) { used.add(bytes, ordering: .relaxed) }
}

/// The share of one queue in a budget, in steps of 64 KiB. Given back when it is freed. Used by one thread at a time.
package struct MemoryShare: ~Copyable {
  private let budget: MemoryBudget
  private var steps = 0

  package init(of budget: MemoryBudget) { self.budget = budget }

  deinit { budget.add(-steps << 16) }

  /// Reports the bytes that the queue holds.
  @inline(__always)
  package mutating func set(_ bytes: Int) {
    let new = (bytes + 0xFFFF) >> 16
    if new != steps { move(to: new) }
  }

  private mutating func move(to new: Int) {
    budget.add((new - steps) << 16)
    steps = new
  }
}

/// The same for a queue that several threads use under a lock of their own.
package final class LockedMemoryShare: @unchecked Sendable {
  private var share: MemoryShare

  package init(of budget: MemoryBudget) { share = MemoryShare(of: budget) }

  /// Reports the bytes that the queue holds. Call it with the lock of the queue held.
  package func set(_ bytes: Int) { share.set(bytes) }
}
