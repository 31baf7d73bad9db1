import PipelineCore
import Synchronization

/// A budget of bytes that several holders share, as a part of that of the process. Thread-safe.
final class ByteBudget: Sendable {
  let limit: Int
  /// That of the process; nil: it counts nowhere else.
  let memory: MemoryBudget?
  private let used = Atomic<Int>(0)

  init(limit: Int, of memory: MemoryBudget? = nil) {
    self.limit = limit
    self.memory = memory
  }

  /// The bytes in use.
  var held: Int { used.load(ordering: .relaxed) }

  /// Whether `count` more bytes are free now.
  func hasRoom(for count: Int) -> Bool { count <= limit - held && hasMemory(for: count, held + count) }

  private func hasMemory(for count: Int, _ now: Int) -> Bool {
    guard let memory, now > MemoryBudget.leastOfServer else { return true }
    return count <= memory.room(.max)
  }

  /// Takes `count` bytes; false, without taking any, if that exceeds the limit.
  func take(_ count: Int) -> Bool {
    let now = used.add(count, ordering: .relaxed).newValue
    if now <= limit && hasMemory(for: count, now) || count == 0 {
      memory?.add(count)
      return true
    }
    used.subtract(count, ordering: .relaxed)
    return false
  }

  /// Takes `count` bytes that are in memory already, also beyond the limit.
  func force(_ count: Int) {
    used.add(count, ordering: .relaxed)
    memory?.add(count)
  }

  func release(_ count: Int) {
    used.subtract(count, ordering: .relaxed)
    memory?.add(-count)
  }
}

/// One holder's share of a budget; returned when it is released. `grow` is called by one thread at a time.
final class ByteCharge: @unchecked Sendable {
  private let budget: ByteBudget
  private var count = 0

  init(_ budget: ByteBudget) { self.budget = budget }

  deinit { budget.release(count) }

  /// Takes `more` bytes; false if the budget has no room.
  func grow(by more: Int) -> Bool {
    guard budget.take(more) else { return false }
    count += more
    return true
  }
}
