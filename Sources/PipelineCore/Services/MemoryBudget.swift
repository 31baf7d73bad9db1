import Synchronization

/// The memory limit of queued events, for all pipelines of a process together. Each queue may hold as many bytes as the
/// budget has left, up to its usual limit. Beyond that its senders wait, or it leaves events on the disk. The total
/// therefore stays within the limit, however many queues there are and whichever filled first. A queue above its
/// current limit must shrink before it accepts more, so the queues become similar in size. An empty queue may always
/// accept what one turn brings. Thread-safe.
package final class MemoryBudget: Sendable, Equatable {
  package static let standard = 256 << 20

  /// The limit in bytes.
  package let limit: Int
  private let used = Atomic<Int>(0)

  package init(_ limit: Int = standard) { self.limit = limit }

  package static func == (a: MemoryBudget, b: MemoryBudget) -> Bool { a === b }

  /// The bytes that queues hold.
  package var held: Int { used.load(ordering: .relaxed) }

  /// The current limit of a queue whose usual limit is `usual` bytes.
  package func room(_ usual: Int) -> Int { min(usual, max(0, limit - held)) }

  /// The limit on the blocks of all readers together. A turn may add a whole block to a queue that is already full.
  package var ofReaders: Int { min(4 << 20, limit / 64) }

  /// The limit on one answer that can be requested in parts.
  package var ofAnswer: Int { max(64 << 10, limit / 16) }

  /// The usual limit of all queues of one pipeline's steps together.
  package var usualOfSteps: Int { limit / 2 }

  /// Adds memory that belongs to no queue: received data, and responses that clients read. A negative number subtracts.
  package func add(_ bytes: Int) { used.add(bytes, ordering: .relaxed) }

  /// Whether the budget is used up, so that senders that can wait must wait.
  package var isFull: Bool { held >= limit }

  // MARK: Beyond the limit

  /// The minimum of each server or connection for input that has no queue yet (requests, messages, answers), however full the budget is.
  package static let leastOfInput = 16 << 10

  /// The maximum of each server, with its part of the reserve.
  package static let mostOfServer = 256 << 10

  /// The amount that all servers and readers share while the budget is full, in addition to their minimums: even a
  /// budget that stays full refuses no usual request.
  package var reserve: Int { max(64 << 10, limit / 16) }
  private let reserved = Atomic<Int>(0)

  /// Takes bytes from the reserve; false: it has no room.
  package func takeReserve(_ bytes: Int) -> Bool {
    if reserved.add(bytes, ordering: .relaxed).newValue <= reserve { return true }
    giveReserve(bytes)
    return false
  }

  package func giveReserve(_ bytes: Int) { reserved.subtract(bytes, ordering: .relaxed) }
}

/// Memory that is charged to a budget during the lifetime of this object. Used by one thread at a time.
package final class MemoryCharge: @unchecked Sendable, Equatable {
  private let budget: MemoryBudget
  private var bytes: Int

  package init(_ bytes: Int, of budget: MemoryBudget) {
    self.budget = budget
    self.bytes = bytes
    budget.add(bytes)
  }

  deinit { budget.add(-bytes) }

  package func set(_ now: Int) {
    budget.add(now - bytes)
    bytes = now
  }

  /// Always true: where memory is counted does not matter for equality.
  package static func == (a: MemoryCharge, b: MemoryCharge) -> Bool { true }
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
