/// Decodes code points of UTF-8.
enum UTF8Scalar {
  /// The code point at an offset and its length; ``RegexSet/invalid`` and 1 for an invalid byte.
  @inline(__always)
  static func read(_ text: UnsafeRawBufferPointer, _ at: Int) -> (scalar: UInt32, length: Int) {
    let first = UInt32(text[at])
    if first < 0x80 { return (first, 1) }
    func trail(_ index: Int) -> UInt32? {
      guard at + index < text.count else { return nil }
      let byte = text[at + index]
      return byte & 0xC0 == 0x80 ? UInt32(byte & 0x3F) : nil
    }
    if first >= 0xC2, first < 0xE0, let second = trail(1) { return ((first & 0x1F) << 6 | second, 2) }
    if first >= 0xE0, first < 0xF0, let second = trail(1), let third = trail(2) {
      let scalar = (first & 0x0F) << 12 | second << 6 | third
      if scalar >= 0x800, scalar & 0xF800 != 0xD800 { return (scalar, 3) }
    }
    if first >= 0xF0, first < 0xF5, let second = trail(1), let third = trail(2), let fourth = trail(3) {
      let scalar = (first & 0x07) << 18 | second << 12 | third << 6 | fourth
      if scalar >= 0x10000, scalar <= 0x10FFFF { return (scalar, 4) }
    }
    return (RegexSet.invalid, 1)
  }

  /// The code point that ends at an offset, which must not be 0.
  static func before(_ text: UnsafeRawBufferPointer, _ end: Int) -> UInt32 {
    var start = end - 1
    while start > 0, end - start < 4, text[start] & 0xC0 == 0x80 { start -= 1 }
    let (scalar, length) = read(text, start)
    return start + length == end ? scalar : read(text, end - 1).scalar
  }
}
