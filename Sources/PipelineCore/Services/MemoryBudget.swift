import Synchronization

/// The memory limit of queued events, for all pipelines of a process together. Each queue may hold as much as all of them leave free, at most
/// its usual limit: beyond, its senders wait, or it leaves events on the disk. So all together stay within the limit, however many they are and
/// whichever came first; and a queue that holds more than is free must shrink before it takes more, so they become alike. A queue that holds
/// nothing may always take what one turn brings. Thread-safe.
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

  /// The limit of the blocks of all readers together. A turn may add a whole block to a queue that is already full.
  package var ofReaders: Int { min(4 << 20, limit / 64) }

  /// The usual limit of the queues of one pipeline's steps together.
  package var usualOfSteps: Int { limit / 2 }

  /// The limit of what comes in by itself and has no queue yet: requests, messages of WebSockets. Each server may have so much, however full it is.
  package static let leastOfServer = 256 << 10

  /// Counts memory that is no queue's: bodies and messages that come in, answers that clients read. Negative: it is free again.
  package func add(_ bytes: Int) { used.add(bytes, ordering: .relaxed) }
}

/// The share of one queue in a budget, in units of 4 KiB. Given back when it is freed. Used by one thread at a time.
package struct MemoryShare: ~Copyable {
  private let budget: MemoryBudget
  private var held = 0
  private static let unit = 12

  package init(of budget: MemoryBudget) { self.budget = budget }

  deinit { budget.add(-held << Self.unit) }

  /// How many units the budget counts for these bytes.
  @inline(__always)
  static func units(_ bytes: Int) -> Int { (bytes + (1 << unit - 1)) >> unit }

  /// Reports the bytes that the queue holds.
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
