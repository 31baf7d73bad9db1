#if canImport(Glibc)
  import Glibc
#endif

/// Memory that a source reads into: `count` bytes of data followed by padding that may be read.
///
/// Written by one thread, then handed over, and never written again.
package final class Slab: @unchecked Sendable {
  /// Bytes after the data that may be read but have no meaning; wide loads need them.
  package static let padding = 64

  package let start: UnsafeMutableRawPointer
  package let capacity: Int
  package var count: Int
  /// The pool to which the memory returns.
  private let pool: SlabPool?
  /// Charges the memory, and is released with it. Only the writing thread may set it.
  package var charge: AnyObject?

  /// A slab without room; it may be shared.
  package static let empty = Slab(capacity: 0)

  package init(capacity: Int) {
    self.capacity = capacity
    pool = nil
    start = Self.allocate(capacity)
    count = 0
  }

  /// A slab with memory from a pool, if the pool had any.
  init(_ pool: SlabPool, _ memory: UnsafeMutableRawPointer?) {
    self.pool = pool
    capacity = pool.capacity
    start = memory ?? Self.allocate(pool.capacity)
    count = 0
  }

  private static func allocate(_ capacity: Int) -> UnsafeMutableRawPointer {
    let start = malloc(capacity + padding)!
    memset(start + capacity, 0, padding)
    return start
  }

  package convenience init(_ bytes: UnsafeRawBufferPointer) {
    self.init(capacity: bytes.count)
    if let source = bytes.baseAddress { start.copyMemory(from: source, byteCount: bytes.count) }
    count = bytes.count
  }

  package convenience init(_ bytes: [UInt8]) {
    self.init(capacity: bytes.count)
    bytes.withUnsafeBytes {
      if let source = $0.baseAddress { start.copyMemory(from: source, byteCount: $0.count) }
    }
    count = bytes.count
  }

  /// Appends bytes; there must be room for them.
  package func append(_ bytes: UnsafeRawBufferPointer) {
    precondition(bytes.count <= capacity - count, "a slab has no room")
    if let source = bytes.baseAddress { (start + count).copyMemory(from: source, byteCount: bytes.count) }
    count += bytes.count
  }

  deinit {
    #if DEBUG
      memset(start, Arena.poisonByte, count)
    #endif
    if let pool { pool.put(start) } else { free(start) }
  }

  package var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: start, count: count) }
}
