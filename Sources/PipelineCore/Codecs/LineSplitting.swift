#if canImport(Glibc)
  import Glibc
#endif

extension UnsafeRawBufferPointer {
  /// The bytes from `start` up to `end`, both of which must lie within the buffer.
  @inline(__always)
  func part(_ start: Int, _ end: Int) -> UnsafeRawBufferPointer {
    guard let base = baseAddress, end > start else { return UnsafeRawBufferPointer(start: nil, count: 0) }
    return UnsafeRawBufferPointer(start: base + start, count: end &- start)
  }

  /// The offset of the first `byte` at or after `start`, or nil.
  @inline(__always)
  func offset(of byte: UInt8, from start: Int = 0) -> Int? {
    guard let base = baseAddress, start < count,
      let found = memchr(base + start, Int32(byte), count &- start)
    else { return nil }
    return UnsafeRawPointer(found) - base
  }

  @inline(__always)
  func equals(_ other: UnsafeRawBufferPointer) -> Bool {
    guard count == other.count else { return false }
    guard count > 0, let a = baseAddress, let b = other.baseAddress else { return true }
    return areEqual(a, b, count)
  }

  /// The length of a byte order mark at the start, or 0.
  var byteOrderMarkLength: Int {
    count >= 3 && self[0] == 0xEF && self[1] == 0xBB && self[2] == 0xBF ? 3 : 0
  }

  /// Whether the text consists of JSON's white space.
  var isBlank: Bool { allSatisfy { $0 == 0x20 || $0 == 0x09 || $0 == 0x0D || $0 == 0x0A } }

  /// Calls `body` for each line, without its line feed or CRLF, and with its offset. Only line feeds end lines: neither
  /// a lone carriage return nor U+2028 does.
  @inline(__always)
  func forEachLine(from first: Int = 0, _ body: (UnsafeRawBufferPointer, Int) -> Void) {
    guard let base = baseAddress else { return }
    var start = first
    while start < count {
      let found = memchr(base + start, 0x0A, count &- start)
      let stop = found.map { UnsafeRawPointer($0) - base } ?? count
      var end = stop
      if end > start, base.load(fromByteOffset: end &- 1, as: UInt8.self) == 0x0D { end &-= 1 }
      body(UnsafeRawBufferPointer(start: base + start, count: end &- start), start)
      start = stop &+ 1
    }
  }

  /// Calls `body` for each line, or once for the whole text.
  @inline(__always)
  func forEachRow(from first: Int, isOne: Bool, _ body: (UnsafeRawBufferPointer, Int) -> Void) {
    if isOne { body(part(first, count), first) } else { forEachLine(from: first, body) }
  }
}

extension UnsafeRawBufferPointer {
  /// Calls `body` for each line as long as it returns true. Returns the start of the next line; nil after the last one.
  @inline(__always)
  func forEachLine(from first: Int, while body: (UnsafeRawBufferPointer, Int) -> Bool) -> Int? {
    guard let base = baseAddress else { return nil }
    var start = first
    while start < count {
      let found = memchr(base + start, 0x0A, count &- start)
      let stop = found.map { UnsafeRawPointer($0) - base } ?? count
      var end = stop
      if end > start, base.load(fromByteOffset: end &- 1, as: UInt8.self) == 0x0D { end &-= 1 }
      let line = UnsafeRawBufferPointer(start: base + start, count: end &- start)
      let at = start
      start = stop &+ 1
      if !body(line, at) { return start < count ? start : nil }
    }
    return nil
  }
}

extension UTF8Text {
  /// The text with U+FFFD in place of each invalid UTF-8 sequence: the truncated start of a character, or one byte.
  static func repaired(_ text: UnsafeRawBufferPointer, into arena: Arena) -> UnsafeRawBufferPointer {
    // The standard library replaces exactly these sequences; this path is rare.
    arena.string(String(decoding: text, as: UTF8.self)).rawBytes
  }
}
