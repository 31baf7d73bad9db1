/// Converts an input to UTF-8 for another decoder.
///
/// Rows have the offsets of their lines in the unconverted input. A line with invalid bytes is rejected, or each of
/// these bytes becomes U+FFFD, as `invalidUTF8` specifies.
final class CharsetDecoder: EventDecoder {
  private let inner: any EventDecoder
  private let charset: Charset
  private let replaces: Bool
  private let converter: CharsetConverter?
  private var converted: [UInt8] = []

  /// The start of an incomplete UTF-16 line, and its input offset.
  private var held: [UInt8] = []
  private var heldOffset: Int64 = 0
  private var isBig: Bool?
  /// Whether the rest of a rejected line that is too long is being skipped, and the input offset of that rest.
  private var isSkipping = false
  private var skipOffset: Int64 = 0

  /// The unconverted input from the inner decoder's pending offset on; the inner decoder has only the converted text.
  private var open: [(offset: Int64, bytes: [UInt8])] = []
  /// Whether bytes between the pieces in `open` were rejected.
  private var hasGap = false

  init(_ inner: any EventDecoder, _ charset: Charset, _ invalid: InvalidUTF8) {
    self.inner = inner
    self.charset = charset
    replaces = invalid == .replace
    converter = charset.kind == .library ? CharsetConverter(charset.name) : nil
    if case .utf16(let isBig) = charset.kind { self.isBig = isBig }
  }

  private var isUTF16: Bool { !charset.keepsLineFeeds }

  var framing: Framing { isUTF16 && inner.framing == .lines ? .anywhere : inner.framing }
  var joinsLines: Bool { inner.joinsLines }
  func setTime(_ now: Int64) { inner.setTime(now) }
  var dueAt: Int64? { inner.dueAt }
  func endOnlyDue(at now: Int64) { inner.endOnlyDue(at: now) }
  var pendingOffset: Int64? {
    if let pending = inner.pendingOffset { return pending }
    return isSkipping ? skipOffset : held.isEmpty ? nil : heldOffset
  }

  /// An incomplete UTF-16 line is not ended.
  func endRow(offset: Int64, arena: Arena, into rows: RowBatch) -> Bool {
    inner.endRow(offset: offset, arena: arena, into: rows)
  }

  var undecoded: [UInt8]? {
    // The inner decoder may need the start of the input, or have discarded a part of it.
    if inner.undecoded == nil { return nil }
    guard let pending = inner.pendingOffset else { return isSkipping ? nil : held }
    guard !isSkipping, !hasGap, open.first?.offset == pending else { return nil }
    return open.flatMap(\.bytes) + held
  }

  /// Keeps input that was passed to the inner decoder until it is decoded.
  private func note(_ text: UnsafeRawBufferPointer, _ offset: Int64) {
    guard let pending = inner.pendingOffset else {
      if !open.isEmpty { open = [] }
      hasGap = false
      return
    }
    if let first = open.first, first.offset < pending {
      open.removeAll { $0.offset < pending }
      hasGap = false
    }
    let before = Int(clamping: max(0, pending &- offset))
    guard before < text.count else { return }
    open.append((offset &+ Int64(before), Array(text.part(before, text.count))))
  }

  /// The byte order of UTF-16, if a mark determined it, followed by the inner decoder's memory.
  var memory: [UInt8] {
    guard charset.kind == .utf16(isBig: nil) else { return inner.memory }
    return [isBig == nil ? 0 : isBig == true ? 2 : 1] + inner.memory
  }

  func reset(memory: [UInt8]) {
    held = []
    isSkipping = false
    open = []
    hasGap = false
    guard charset.kind == .utf16(isBig: nil) else { return inner.reset(memory: memory) }
    isBig = memory.first.flatMap { $0 == 0 ? nil : $0 == 2 }
    inner.reset(memory: Array(memory.dropFirst()))
  }

  func decode(
    _ slab: Slab, _ range: Range<Int>, offset: Int64, isLast: Bool, arena: Arena, into rows: RowBatch
  ) {
    let text = slab.bytes.part(range.lowerBound, range.upperBound)
    if inner.framing == .whole {
      if isUTF16, isBig == nil { isBig = Self.mark(text) ?? false }
      return give(text, offset, isLast: isLast, arena, rows)
    }
    if isUTF16 {
      decodeUnits(text, offset, isLast: isLast, arena, rows)
    } else if charset.kind != .library, text.allSatisfy({ $0 < 0x80 }) {
      inner.decode(slab, range, offset: offset, isLast: isLast, arena: arena, into: rows)
      return note(text, offset)
    } else {
      var start = 0
      while start < text.count {
        let end = text.offset(of: 0x0A, from: start).map { $0 + 1 } ?? text.count
        give(text.part(start, end), offset &+ Int64(start), isLast: false, arena, rows)
        start = end
      }
    }
    if isLast {
      inner.decode(.empty, 0..<0, offset: offset &+ Int64(text.count), isLast: true, arena: arena, into: rows)
      note(UnsafeRawBufferPointer(start: nil, count: 0), offset)
    }
  }

  /// The byte order that a byte order mark gives: true for big-endian; nil if there is no mark.
  private static func mark(_ text: UnsafeRawBufferPointer) -> Bool? {
    guard text.count >= 2 else { return nil }
    if text[0] == 0xFE, text[1] == 0xFF { return true }
    return text[0] == 0xFF && text[1] == 0xFE ? false : nil
  }

  /// Splits UTF-16 into lines: a line feed is a code unit, whose two bytes may arrive separately.
  private func decodeUnits(
    _ text: UnsafeRawBufferPointer, _ offset: Int64, isLast: Bool, _ arena: Arena, _ rows: RowBatch
  ) {
    let base = held.isEmpty && !isSkipping ? offset : heldOffset
    var all = held
    all.append(contentsOf: text)
    held = []
    if isBig == nil, all.count >= 2 || isLast { isBig = all.withUnsafeBytes { Self.mark($0) } ?? false }
    all.withUnsafeBytes { all in
      var start = base == 0 && Self.mark(all) != nil ? 2 : 0
      var at = start
      while at + 1 < all.count {
        let isFeed = isBig == true ? all[at] == 0 && all[at + 1] == 0x0A : all[at] == 0x0A && all[at + 1] == 0
        at += 2
        guard isFeed else { continue }
        if isSkipping { isSkipping = false } else { take(all.part(start, at), base &+ Int64(start), arena, rows) }
        start = at
      }
      if isLast {
        if start < all.count, !isSkipping { take(all.part(start, all.count), base &+ Int64(start), arena, rows) }
        isSkipping = false
        return
      }
      var rest = all.part(start, all.count)
      heldOffset = base &+ Int64(start)
      if rest.count > charset.maxLine, !isSkipping {
        reject(rest, heldOffset, .tooLong(limit: charset.maxLine), arena, rows)
        isSkipping = true
        skipOffset = heldOffset
      }
      if isSkipping {
        // The first byte of an incomplete code unit is kept.
        let odd = rest.count & 1
        heldOffset = heldOffset &+ Int64(rest.count - odd)
        rest = rest.part(rest.count - odd, rest.count)
      }
      held = Array(rest)
    }
  }

  private func take(_ line: UnsafeRawBufferPointer, _ offset: Int64, _ arena: Arena, _ rows: RowBatch) {
    if line.count > charset.maxLine { return reject(line, offset, .tooLong(limit: charset.maxLine), arena, rows) }
    give(line, offset, isLast: false, arena, rows)
  }

  private func reject(
    _ line: UnsafeRawBufferPointer, _ offset: Int64, _ reason: RejectReason, _ arena: Arena, _ rows: RowBatch
  ) {
    hasGap = hasGap || inner.pendingOffset != nil
    let head = line.part(0, min(line.count, 4096))
    rows.reject(arena.copy(head), offset: offset, reason)
  }

  /// Converts a line, or a whole input, and passes it to the inner decoder.
  private func give(
    _ text: UnsafeRawBufferPointer, _ offset: Int64, isLast: Bool, _ arena: Arena, _ rows: RowBatch
  ) {
    let fault = convert(text)
    if let fault, !replaces {
      return reject(text.withoutLineEnd, offset, .charset(charset.name, at: fault), arena, rows)
    }
    let slab = converted.withUnsafeBytes { Slab($0) }
    arena.keep(slab)
    let known = rows.count
    inner.decode(slab, 0..<slab.count, offset: offset, isLast: isLast, arena: arena, into: rows)
    // The tokens of the next line will overwrite the tokens of these rows.
    rows.forgetTokens(from: known)
    note(text, offset)
  }

  /// Fills `converted`. Returns the offset of the first invalid byte.
  private func convert(_ text: UnsafeRawBufferPointer) -> Int? {
    converted.removeAll(keepingCapacity: converted.capacity <= 1 << 20)
    switch charset.kind {
    case .latin1:
      for byte in text { Charset.append(UInt32(byte), to: &converted) }
      return nil
    case .windows1252:
      for byte in text {
        Charset.append(0x80..<0xA0 ~= byte ? Charset.windows[Int(byte) - 0x80] : UInt32(byte), to: &converted)
      }
      return nil
    case .utf16: return convertUnits(text)
    case .library:
      guard let converter else { return 0 }
      let (text, fault) = converter.convert(text, replacing: replaces)
      converted = text
      return fault
    }
  }

  private func convertUnits(_ text: UnsafeRawBufferPointer) -> Int? {
    var fault: Int?
    var at = 0
    func unit(_ at: Int) -> UInt32 {
      let (a, b) = (UInt32(text[at]), UInt32(text[at + 1]))
      return isBig == true ? a << 8 | b : b << 8 | a
    }
    while at + 1 < text.count {
      var scalar = unit(at)
      let start = at
      at += 2
      if 0xD800..<0xDC00 ~= scalar, at + 1 < text.count, case let low = unit(at), 0xDC00..<0xE000 ~= low {
        scalar = 0x1_0000 + (scalar - 0xD800) << 10 + (low - 0xDC00)
        at += 2
      } else if 0xD800..<0xE000 ~= scalar {
        fault = fault ?? start
        scalar = 0xFFFD
      }
      Charset.append(scalar, to: &converted)
    }
    if at < text.count {
      fault = fault ?? at
      Charset.append(0xFFFD, to: &converted)
    }
    return fault
  }
}
