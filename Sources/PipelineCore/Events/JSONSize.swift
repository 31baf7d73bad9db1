/// Estimates the length of values as JSON text without writing all of it.
///
/// The length of existing JSON text is known. At most 256 values of lists and maps are visited, and 4 KiB of a string;
/// the rest is assumed to be similar. Not thread-safe.
final class JSONSize {
  private static let mostValues = 256
  private static let mostBytes = 4 << 10
  private let buffer = OutputBuffer()
  /// The number of values that may still be visited.
  private var left = 0

  func size(of value: Value) -> Int {
    if value.is(.jsonMap) { return Int(value.length) }
    left = Self.mostValues
    return visit(value)
  }

  private func visit(_ value: Value) -> Int {
    left -= 1
    switch value.what {
    case .jsonMap, .jsonList: return Int(value.length)
    case .string, .type: return string(value)
    case .bytes: return (Int(value.length) &+ 2) / 3 * 4 &+ 2
    case .optional: return value.wrapped.map(visit) ?? 4
    case .list:
      let elements = value.elements
      var (size, seen) = (0, 0)
      while seen < elements.count, left > 0 {
        size &+= visit(elements[seen]) &+ 1
        seen += 1
      }
      return 1 &+ max(1, Self.whole(size, seen, elements.count))
    case .map:
      let entries = value.entries
      var (size, seen) = (0, 0)
      while seen < entries.count, left > 0 {
        let key = entries[seen].key
        size &+= (key.is(.string) ? string(key) : written(key) &+ 2) &+ visit(entries[seen].value) &+ 2
        seen += 1
      }
      return 1 &+ max(1, Self.whole(size, seen, entries.count))
    default: return written(value)
    }
  }

  /// The extrapolated size of `count` elements, of which `seen` have this size.
  private static func whole(_ size: Int, _ seen: Int, _ count: Int) -> Int {
    seen == count || seen == 0 ? size : Int(clamping: Int64(Double(size) / Double(seen) * Double(count)))
  }

  private func string(_ value: Value) -> Int {
    let count = Int(value.length)
    if value.isEscaped || value.isPlain { return count &+ 2 }
    buffer.clear()
    guard count > Self.mostBytes else {
      JSONWriter.appendString(value, to: buffer)
      return buffer.count
    }
    JSONWriter.appendEscaped(UnsafeRawBufferPointer(rebasing: value.rawBytes[..<Self.mostBytes]), to: buffer)
    return Self.whole(buffer.count, Self.mostBytes, count) &+ 2
  }

  private func written(_ value: Value) -> Int {
    buffer.clear()
    _ = JSONWriter.appendUnchecked(value, to: buffer)
    return buffer.count
  }
}
