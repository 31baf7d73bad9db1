import PipelineCore
import Synchronization

/// A budget of bytes that several holders share, within the budget of the process. While that is full, this one still
/// has ``MemoryBudget/leastOfInput``, and a part of the process's reserve. Thread-safe.
final class ByteBudget: Sendable {
  let limit: Int
  /// The budget of the process; nil: the bytes are counted nowhere else.
  let memory: MemoryBudget?
  private let used = Atomic<Int>(0)
  /// The part of the process's reserve that this budget has taken.
  private let reserved = Atomic<Int>(0)

  init(limit: Int, of memory: MemoryBudget? = nil) {
    self.limit = limit
    self.memory = memory
  }

  deinit { if let memory { memory.giveReserve(reserved.load(ordering: .relaxed)) } }

  /// The bytes in use.
  var held: Int { used.load(ordering: .relaxed) }

  /// Whether no further input should be taken for now.
  var isFull: Bool { held >= limit || memory?.isFull ?? false }

  /// Whether `count` more bytes are free now.
  func hasRoom(for count: Int) -> Bool {
    guard count <= limit - held else { return false }
    guard takeMemory(count, held + count) else { return false }
    giveMemory(count)
    return true
  }

  private func takeMemory(_ count: Int, _ now: Int) -> Bool {
    guard let memory else { return true }
    if count > memory.room(.max), now > MemoryBudget.leastOfInput {
      guard now <= MemoryBudget.mostOfServer, memory.takeReserve(count) else { return false }
      reserved.add(count, ordering: .relaxed)
    }
    memory.add(count)
    return true
  }

  /// Returns bytes, first to the reserve.
  private func giveMemory(_ count: Int) {
    guard let memory else { return }
    memory.add(-count)
    var has = reserved.load(ordering: .relaxed)
    while has > 0 {
      let part = min(has, count)
      let (exchanged, original) = reserved.compareExchange(expected: has, desired: has - part, ordering: .relaxed)
      if exchanged { return memory.giveReserve(part) }
      has = original
    }
  }

  /// Takes `count` bytes; false, without taking any, if that exceeds the limit.
  func take(_ count: Int) -> Bool {
    if count == 0 { return true }
    let now = used.add(count, ordering: .relaxed).newValue
    if now <= limit, takeMemory(count, now) { return true }
    used.subtract(count, ordering: .relaxed)
    return false
  }

  /// Takes `count` bytes that are already in memory, even if that exceeds the limit.
  func force(_ count: Int) {
    used.add(count, ordering: .relaxed)
    memory?.add(count)
  }

  func release(_ count: Int) {
    used.subtract(count, ordering: .relaxed)
    giveMemory(count)
  }
}

/// One holder's share of a budget; given back when this object is released. `grow` is called by one thread at a time.
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
