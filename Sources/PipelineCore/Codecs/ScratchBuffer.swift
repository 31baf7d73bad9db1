/// A reusable array without reference counting and exclusivity checks, for work that is done for every field. Not
/// thread-safe.
final class ScratchBuffer<Element: BitwiseCopyable> {
  @exclusivity(unchecked) private(set) var start: UnsafeMutablePointer<Element>
  @exclusivity(unchecked) private(set) var count = 0
  @exclusivity(unchecked) private var capacity: Int

  init(capacity: Int = 32) {
    self.capacity = capacity
    start = .allocate(capacity: capacity)
  }

  deinit { start.deallocate() }

  var elements: UnsafeBufferPointer<Element> { UnsafeBufferPointer(start: start, count: count) }

  @inline(__always)
  func append(_ element: Element) {
    if count == capacity { grow() }
    start[count] = element
    count &+= 1
  }

  /// Clears the buffer, and frees it if an unusually wide row made it large.
  @inline(__always)
  func clear() {
    count = 0
    if capacity > 1 << 16 { shrink() }
  }

  @inline(never)
  private func grow() { move(to: capacity * 2) }

  @inline(never)
  private func shrink() { move(to: 32) }

  private func move(to new: Int) {
    let other = UnsafeMutablePointer<Element>.allocate(capacity: new)
    other.update(from: start, count: count)
    start.deallocate()
    start = other
    capacity = new
  }
}
