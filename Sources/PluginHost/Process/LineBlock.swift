import Glibc
import PipelineCore

/// Memory for lines that were read; values of its frames point into it.
final class LineBlock: @unchecked Sendable {
  private(set) var memory: UnsafeMutableRawPointer
  private(set) var capacity: Int
  var count = 0
  /// JSON text is read with wide loads that may run past its end.
  private static let padding = 64

  init(_ capacity: Int) {
    self.capacity = capacity
    memory = malloc(capacity + Self.padding)!
  }

  deinit { free(memory) }

  var room: UnsafeMutableRawBufferPointer {
    UnsafeMutableRawBufferPointer(start: memory + count, count: capacity - count)
  }
  var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: memory, count: count) }

  /// Makes room for more; only before values point into it.
  func grow() {
    capacity *= 2
    memory = realloc(memory, capacity + Self.padding)!
  }

  func append(_ bytes: UnsafeRawBufferPointer) {
    while capacity - count < bytes.count { grow() }
    if let start = bytes.baseAddress { (memory + count).copyMemory(from: start, byteCount: bytes.count) }
    count += bytes.count
  }
}

/// Splits bytes into lines.
struct LineReader {
  private var block = LineBlock(64 << 10)
  private var searched = 0
  let limit: Int

  init(limit: Int) { self.limit = limit }

  /// The memory for the next bytes.
  mutating func room() -> UnsafeMutableRawBufferPointer {
    if block.room.count < 4096 { block.grow() }
    return block.room
  }

  enum Fault: Error { case tooLong }

  /// The lines that are complete, without their ends, after `count` more bytes; they are valid while the block lives.
  mutating func took(_ count: Int) throws(Fault) -> (lines: [UnsafeRawBufferPointer], block: LineBlock)? {
    block.count += count
    let bytes = block.bytes
    var start = 0
    var lines: [UnsafeRawBufferPointer] = []
    while searched < bytes.count, let base = bytes.baseAddress,
      let found = memchr(base + searched, 0x0A, bytes.count - searched)
    {
      let end = UnsafeRawPointer(found) - base
      var line = UnsafeRawBufferPointer(rebasing: bytes[start..<end])
      if line.last == 0x0D { line = UnsafeRawBufferPointer(rebasing: line.dropLast()) }
      if line.count > limit { throw .tooLong }
      if !line.isEmpty { lines.append(line) }
      start = end + 1
      searched = start
    }
    searched = bytes.count
    if bytes.count - start > limit { throw .tooLong }
    guard start > 0 else { return nil }
    let full = block
    block = LineBlock(max(64 << 10, 2 * (bytes.count - start)))
    block.append(UnsafeRawBufferPointer(rebasing: bytes[start...]))
    searched = block.count
    return (lines, full)
  }
}
