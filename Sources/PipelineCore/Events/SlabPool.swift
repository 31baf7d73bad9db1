import Synchronization

#if canImport(Glibc)
  import Glibc
#endif

/// Memory of slabs of one size, used again: what a thread frees, another one's next read fills, while it is still in
/// the processor's cache and known to the page table. Thread-safe.
public final class SlabPool: Sendable {
  /// Bytes that each slab has room for, without its padding.
  public let capacity: Int
  /// So many wait at most; further ones are freed.
  private let limit: Int
  private struct Free: @unchecked Sendable {
    var memory: [UnsafeMutableRawPointer] = []
  }
  private let free = Mutex(Free())

  public init(capacity: Int, limit: Int = 8) {
    self.capacity = capacity
    self.limit = limit
  }

  deinit {
    free.withLock { free in
      for memory in free.memory { Glibc.free(memory) }
    }
  }

  /// An empty slab; its memory comes back to the pool with its end.
  public func take() -> Slab { Slab(self, free.withLock { $0.memory.popLast() }) }

  func put(_ memory: UnsafeMutableRawPointer) {
    let isKept = free.withLock { free in
      guard free.memory.count < limit else { return false }
      free.memory.append(memory)
      return true
    }
    if !isKept { Glibc.free(memory) }
  }
}
