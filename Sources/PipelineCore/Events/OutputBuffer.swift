#if canImport(Glibc)
  import Glibc
#endif

/// A growing buffer for output, which is written in one call, cleared and reused.
///
/// A class, so that passing it neither copies nor retains. Not thread-safe.
package final class OutputBuffer: @unchecked Sendable {
  // The class is not thread-safe by contract, and no access lasts longer than a load or a store.
  @exclusivity(unchecked) package private(set) var start: UnsafeMutablePointer<UInt8>
  @exclusivity(unchecked) package private(set) var count = 0
  @exclusivity(unchecked) private var capacity: Int

  /// Whether JSON text that becomes part of a larger document is checked.
  @exclusivity(unchecked) var checksParts = true
  @exclusivity(unchecked) private var madeChecker: JSONParser?
  /// Checks JSON text that is marked as unchecked; created on first use.
  var checker: JSONParser {
    if let madeChecker { return madeChecker }
    let checker = JSONParser()
    madeChecker = checker
    return checker
  }

  package init(capacity: Int = 4096) {
    self.capacity = max(capacity, 64)
    start = .allocate(capacity: self.capacity)
  }

  deinit { start.deallocate() }

  package var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: start, count: count) }

  @inline(__always)
  package func reserve(_ more: Int) {
    if count &+ more > capacity { grow(more) }
  }

  @inline(never)
  private func grow(_ more: Int) {
    let larger = max(capacity * 2, count + more)
    let target = UnsafeMutablePointer<UInt8>.allocate(capacity: larger)
    target.update(from: start, count: count)
    start.deallocate()
    start = target
    capacity = larger
  }

  @inline(__always)
  package func append(_ byte: UInt8) {
    reserve(1)
    start[count] = byte
    count &+= 1
  }

  @inline(__always)
  package func append(_ bytes: UnsafeRawBufferPointer) {
    guard let source = bytes.baseAddress else { return }
    reserve(bytes.count)
    memcpy(start + count, source, bytes.count)
    count &+= bytes.count
  }

  package func append(_ text: StaticString) {
    append(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }

  @_disfavoredOverload
  package func append(_ text: String) {
    var text = text
    text.withUTF8 { append(UnsafeRawBufferPointer($0)) }
  }

  package func append(_ bytes: [UInt8]) {
    bytes.withUnsafeBytes { append($0) }
  }

  /// Lets `write` append at most `count` bytes; `write` returns how many it has written.
  @inline(__always)
  package func append(count more: Int, _ write: (UnsafeMutablePointer<UInt8>) -> Int) {
    reserve(more)
    let written = write(start + count)
    assert(written <= more)
    count &+= written
  }

  /// Removes everything after the first `length` bytes.
  package func truncate(to length: Int) {
    precondition(length <= count)
    count = length
  }

  /// Removes the first `length` bytes.
  package func removeFirst(_ length: Int) {
    precondition(length <= count)
    memmove(start, start + length, count - length)
    count -= length
  }

  /// Empties the buffer; memory beyond `keeping` bytes is freed.
  package func clear(keeping: Int = 4 << 20) {
    count = 0
    if capacity > keeping {
      start.deallocate()
      capacity = 4096
      start = .allocate(capacity: capacity)
    }
  }
}
