import Synchronization

/// The memory limit of queued events, for all pipelines of a process together. Each queue may hold as many bytes as the
/// budget has left, up to its usual limit. Beyond that its senders wait, or it leaves events on the disk. The total
/// therefore stays within the limit, however many queues there are and whichever filled first. A queue above its
/// current limit must shrink before it accepts more, so the queues become similar in size. An empty queue may always
/// accept what one turn brings. Thread-safe.
package final class MemoryBudget: Sendable {
  package static let standard = 256 << 20

  /// In bytes.
  package let limit: Int
  private let used = Atomic<Int>(0)

  package init(_ limit: Int = standard) { self.limit = limit }

  /// The bytes that queues hold.
  package var held: Int { used.load(ordering: .relaxed) }

  /// The current limit of a queue whose usual limit is `usual` bytes.
  package func room(_ usual: Int) -> Int { min(usual, max(0, limit - held)) }

  /// The limit on the blocks of all readers together. A turn may add a whole block to a queue that is already full.
  package var ofReaders: Int { min(4 << 20, limit / 64) }

  /// The usual limit of all queues of one pipeline's steps together.
  package var usualOfSteps: Int { limit / 2 }

  /// The limit for input that arrives on its own and has no queue yet: requests, messages of WebSockets. Each server
  /// may hold this much, even if the budget is used up.
  package static let leastOfServer = 256 << 10

  /// Counts memory that belongs to no queue: bodies and messages that arrive, responses that clients read. A negative
  /// number frees it.
  package func add(_ bytes: Int) { used.add(bytes, ordering: .relaxed) }
}

/// The share of one queue in a budget, in units of 4 KiB. Returned when the share is destroyed. Must be used by one
/// thread at a time.
package struct MemoryShare: ~Copyable {
  private let budget: MemoryBudget
  private var held = 0
  private static let unit = 12

  package init(of budget: MemoryBudget) { self.budget = budget }

  deinit { budget.add(-held << Self.unit) }

  /// The number of units that the budget counts for these bytes.
  @inline(__always)
  static func units(_ bytes: Int) -> Int { (bytes + (1 << unit - 1)) >> unit }

  /// Sets the number of bytes that the queue holds.
  @inline(__always)
  package mutating func set(_ bytes: Int) {
    let new = Self.units(bytes)
    if new != held { move(to: new) }
  }

  private mutating func move(to new: Int) {
    budget.add((new - held) << Self.unit)
    held = new
  }
}
