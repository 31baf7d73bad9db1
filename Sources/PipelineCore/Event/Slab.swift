#if canImport(Glibc)
  import Glibc
#endif

/// Memory that a source reads into: `count` bytes of data followed by readable padding.
///
/// Written by one thread, then handed over; never written again after that.
public final class Slab: @unchecked Sendable {
  /// Bytes behind the data that may be read, though they mean nothing: wide loads need them.
  public static let padding = 64

  public let start: UnsafeMutableRawPointer
  public let capacity: Int
  public var count: Int

  public init(capacity: Int) {
    self.capacity = capacity
    start = malloc(capacity + Self.padding)!
    memset(start + capacity, 0, Self.padding)
    count = 0
  }

  public convenience init(_ bytes: UnsafeRawBufferPointer) {
    self.init(capacity: bytes.count)
    if let source = bytes.baseAddress { start.copyMemory(from: source, byteCount: bytes.count) }
    count = bytes.count
  }

  public convenience init(_ bytes: [UInt8]) {
    self.init(capacity: bytes.count)
    bytes.withUnsafeBytes {
      if let source = $0.baseAddress { start.copyMemory(from: source, byteCount: $0.count) }
    }
    count = bytes.count
  }

  deinit {
    #if DEBUG
      memset(start, Arena.poisonByte, count)
    #endif
    free(start)
  }

  public var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: start, count: count) }
}
