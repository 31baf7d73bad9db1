import Synchronization

#if canImport(Glibc)
  import Glibc
#endif

/// Reusable memory for slabs of one size: a thread's next read fills memory that another thread has freed, which is
/// still in the processor's cache and the page table. Thread-safe.
package final class SlabPool: Sendable {
  /// The capacity of each slab in bytes, without its padding.
  package let capacity: Int
  /// The maximum number of free blocks; further ones are freed.
  private let limit: Int
  private struct Free: @unchecked Sendable {
    var memory: [UnsafeMutableRawPointer] = []
  }
  private let free = Mutex(Free())

  package init(capacity: Int, limit: Int = 8) {
    self.capacity = capacity
    self.limit = limit
  }

  deinit {
    free.withLock { free in
      for memory in free.memory { Glibc.free(memory) }
    }
  }

  /// An empty slab; its memory returns to the pool when it is released.
  package func take() -> Slab { Slab(self, free.withLock { $0.memory.popLast() }) }

  func put(_ memory: UnsafeMutableRawPointer) {
    let isKept = free.withLock { free in
      guard free.memory.count < limit else { return false }
      free.memory.append(memory)
      return true
    }
    if !isKept { Glibc.free(memory) }
  }
}
