import CJSON

/// UTF-8 decoding: the language counts code points, where Swift's strings count characters.
enum CodePoints {
  /// Whether the bytes are valid UTF-8 (no surrogates, no overlong forms, at most U+10FFFF).
  static func areValid(_ bytes: UnsafeRawBufferPointer) -> Bool {
    var at = 0
    let count = bytes.count
    while at < count {
      let lead = bytes[at]
      if lead < 0x80 {
        at += 1
        continue
      }
      let length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2
      guard lead >= 0xC2, lead <= 0xF4, at + length <= count else { return false }
      let second = bytes[at + 1]
      guard second & 0xC0 == 0x80 else { return false }
      switch lead {
      case 0xE0: if second < 0xA0 { return false }
      case 0xED: if second > 0x9F { return false }
      case 0xF0: if second < 0x90 { return false }
      case 0xF4: if second > 0x8F { return false }
      default: break
      }
      for offset in 2..<4 where offset < length {
        if bytes[at + offset] & 0xC0 != 0x80 { return false }
      }
      at += length
    }
    return true
  }

  /// The number of code points.
  static func count(_ bytes: UnsafeRawBufferPointer) -> Int {
    var result = 0
    for byte in bytes where byte & 0xC0 != 0x80 { result &+= 1 }
    return result
  }

  /// The byte offset of code point `index`, at most the end; nil if there are fewer.
  static func offset(of index: Int, in bytes: UnsafeRawBufferPointer, from start: Int = 0) -> Int? {
    var left = index
    var at = start
    while left > 0 {
      guard at < bytes.count else { return nil }
      at += length(at: at, in: bytes)
      left -= 1
    }
    return at
  }

  /// The length in bytes of the code point at `at`; never past the end.
  @inline(__always)
  static func length(at: Int, in bytes: UnsafeRawBufferPointer) -> Int {
    let lead = bytes[at]
    let length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4
    return min(length, bytes.count - at)
  }

  /// The code point at `at`; the bytes must be valid.
  static func scalar(at: Int, in bytes: UnsafeRawBufferPointer) -> UInt32 {
    let lead = UInt32(bytes[at])
    let length = length(at: at, in: bytes)
    if length == 1 { return lead }
    var value = length == 2 ? lead & 0x1F : length == 3 ? lead & 0x0F : lead & 0x07
    for offset in 1..<length { value = value << 6 | UInt32(bytes[at + offset] & 0x3F) }
    return value
  }

  static func append(_ scalar: UInt32, to bytes: inout [UInt8]) {
    switch scalar {
    case ..<0x80:
      bytes.append(UInt8(scalar))
    case ..<0x800:
      bytes.append(UInt8(0xC0 | scalar >> 6))
      bytes.append(UInt8(0x80 | scalar & 0x3F))
    case ..<0x10000:
      bytes.append(UInt8(0xE0 | scalar >> 12))
      bytes.append(UInt8(0x80 | scalar >> 6 & 0x3F))
      bytes.append(UInt8(0x80 | scalar & 0x3F))
    default:
      bytes.append(UInt8(truncatingIfNeeded: 0xF0 | scalar >> 18))
      bytes.append(UInt8(0x80 | scalar >> 12 & 0x3F))
      bytes.append(UInt8(0x80 | scalar >> 6 & 0x3F))
      bytes.append(UInt8(0x80 | scalar & 0x3F))
    }
  }

  /// The byte offset of the first `needle` at or after `start`.
  static func find(
    _ needle: UnsafeRawBufferPointer, in bytes: UnsafeRawBufferPointer, from start: Int = 0
  ) -> Int? {
    guard start <= bytes.count else { return nil }
    guard let what = needle.baseAddress, needle.count > 0 else { return start }
    guard let base = bytes.baseAddress else { return nil }
    let hit = rx_find(
      (base + start).assumingMemoryBound(to: CChar.self), bytes.count - start,
      what.assumingMemoryBound(to: CChar.self), needle.count)
    return hit < 0 ? nil : start + hit
  }

  /// Unicode White_Space.
  static func isSpace(_ scalar: UInt32) -> Bool {
    switch scalar {
    case 0x09...0x0D, 0x20, 0x85, 0xA0, 0x1680, 0x2000...0x200A, 0x2028, 0x2029, 0x202F, 0x205F,
      0x3000:
      return true
    default: return false
    }
  }
}

/// Finds the name most similar to a misspelt one.
enum NearestName {
  /// The candidate with the smallest distance from `name`, if that is small enough to suggest.
  static func of(_ name: String, among candidates: some Sequence<String>) -> String? {
    let wanted = Array(name.utf8)
    guard wanted.count <= 64 else { return nil }
    let folded = wanted.map(fold)
    var best: (name: String, distance: Int)?
    for candidate in candidates {
      let other = candidate.utf8.map(fold)
      let bound = max(1, min(3, max(wanted.count, other.count) / 3))
      guard abs(other.count - folded.count) <= bound, candidate != name else { continue }
      let distance = self.distance(folded, other)
      if distance <= bound, distance < best?.distance ?? .max { best = (candidate, distance) }
    }
    return best?.name
  }

  private static func fold(_ byte: UInt8) -> UInt8 {
    byte >= 0x41 && byte <= 0x5A ? byte | 0x20 : byte
  }

  /// The number of letters to change, insert, remove or swap with a neighbour.
  private static func distance(_ a: [UInt8], _ b: [UInt8]) -> Int {
    var beforeLast: [Int] = []
    var last = Array(0...b.count)
    for row in a.indices {
      var current = [row + 1]
      for column in b.indices {
        var best = min(last[column + 1], current[column]) + 1
        best = min(best, last[column] + (a[row] == b[column] ? 0 : 1))
        if row > 0, column > 0, a[row] == b[column - 1], a[row - 1] == b[column] {
          best = min(best, beforeLast[column - 1] + 1)
        }
        current.append(best)
      }
      beforeLast = last
      last = current
    }
    return last[b.count]
  }
}
