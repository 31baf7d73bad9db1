/// Decodes a scalar as libyaml does, and keeps the file offset of every byte.
///
/// libyaml returns the decoded text but not the origin of its parts, and an error in an expression in a folded block
/// must point at its own line. So `decode` decodes the text a second time, compares the two results, and returns nil if
/// they differ.
struct YAMLScalarText {
  private let bytes: [UInt8]
  private var index: Int
  private let end: Int
  private var text: [UInt8] = []
  private var offsets: [Int32] = []

  /// `start ..< end` is the scalar as marked by libyaml, without anchor and tag.
  static func decode(
    _ source: SourceText, _ start: Int, _ end: Int, style: YAMLScalar.Style,
    expected: UnsafeBufferPointer<UInt8>
  ) -> LocatedText? {
    var decoder = YAMLScalarText(bytes: source.bytes, index: start, end: end)
    let finish: Int
    switch style {
    case .plain: finish = decoder.plain()
    case .singleQuoted: finish = decoder.quoted(double: false)
    case .doubleQuoted: finish = decoder.quoted(double: true)
    case .literal, .folded:
      guard let found = decoder.block(folded: style == .folded, expected) else { return nil }
      finish = found
    }
    guard decoder.text.elementsEqual(expected) else { return nil }
    decoder.offsets.append(Int32(clamping: finish))
    var text = LocatedText(text: decoder.text, source: source, offsets: decoder.offsets)
    switch style {
    case .plain: text.quoting = .plain
    case .singleQuoted: text.quoting = .single
    case .doubleQuoted: text.quoting = .double
    case .literal, .folded: text.quoting = .none
    }
    return text
  }

  private init(bytes: [UInt8], index: Int, end: Int) {
    self.bytes = bytes
    self.index = index
    self.end = min(end, bytes.count)
    text.reserveCapacity(max(0, self.end - index))
    offsets.reserveCapacity(max(0, self.end - index) + 1)
  }

  private mutating func put(_ byte: UInt8, _ offset: Int) {
    text.append(byte)
    offsets.append(Int32(clamping: offset))
  }

  private func isBlank(_ index: Int) -> Bool { bytes[index] == 0x20 || bytes[index] == 0x09 }

  /// The length of the line break at `index`; 0 if there is none.
  private func breakLength(_ index: Int, _ end: Int) -> Int {
    guard index < end else { return 0 }
    if bytes[index] == 0x0A { return 1 }
    if bytes[index] == 0x0D { return index + 1 < end && bytes[index + 1] == 0x0A ? 2 : 1 }
    return 0
  }

  // MARK: Flow scalars

  /// Handles white space at `index`: it is kept within a line and folded around line breaks. `afterEscape`: an escaped
  /// line break came just before.
  private mutating func whiteSpace(until end: Int, afterEscape: Bool) {
    let start = index
    var breaks: [Int] = []
    while index < end {
      let length = breakLength(index, end)
      if length > 0 {
        breaks.append(index)
        index += length
      } else if isBlank(index) {
        index += 1
      } else {
        break
      }
    }
    if afterEscape {
      for offset in breaks { put(0x0A, offset) }
    } else if breaks.isEmpty {
      for offset in start..<index { put(bytes[offset], offset) }
    } else if breaks.count == 1 {
      put(0x20, breaks[0])
    } else {
      for offset in breaks.dropFirst() { put(0x0A, offset) }
    }
  }

  private mutating func plain() -> Int {
    while index < end {
      if isBlank(index) || breakLength(index, end) > 0 {
        whiteSpace(until: end, afterEscape: false)
      } else {
        put(bytes[index], index)
        index += 1
      }
    }
    return end
  }

  private mutating func quoted(double: Bool) -> Int {
    let quote: UInt8 = double ? 0x22 : 0x27
    index += 1
    while index < end {
      let byte = bytes[index]
      if isBlank(index) || breakLength(index, end) > 0 {
        whiteSpace(until: end, afterEscape: false)
      } else if byte == quote {
        if double || index + 1 >= end || bytes[index + 1] != quote { return index }
        put(quote, index)
        index += 2
      } else if double, byte == UInt8(ascii: "\\") {
        escape()
      } else {
        put(byte, index)
        index += 1
      }
    }
    return index
  }

  private mutating func escape() {
    let start = index
    index += 1
    let lineEnd = breakLength(index, end)
    if lineEnd > 0 {
      index += lineEnd
      whiteSpace(until: end, afterEscape: true)
      return
    }
    guard index < end else { return }
    let letter = bytes[index]
    index += 1
    let digits = letter == UInt8(ascii: "x") ? 2 : letter == UInt8(ascii: "u") ? 4 : 8
    var value: UInt32
    switch letter {
    case UInt8(ascii: "0"): value = 0
    case UInt8(ascii: "a"): value = 7
    case UInt8(ascii: "b"): value = 8
    case UInt8(ascii: "t"), 0x09: value = 9
    case UInt8(ascii: "n"): value = 10
    case UInt8(ascii: "v"): value = 11
    case UInt8(ascii: "f"): value = 12
    case UInt8(ascii: "r"): value = 13
    case UInt8(ascii: "e"): value = 27
    case UInt8(ascii: "N"): value = 0x85
    case UInt8(ascii: "_"): value = 0xA0
    case UInt8(ascii: "L"): value = 0x2028
    case UInt8(ascii: "P"): value = 0x2029
    case UInt8(ascii: "x"), UInt8(ascii: "u"), UInt8(ascii: "U"):
      value = 0
      for _ in 0..<digits {
        guard index < end, let digit = YAMLCoreSchema.hexDigit(bytes[index]) else { return }
        value = value &* 16 &+ UInt32(digit)
        index += 1
      }
    default: value = UInt32(letter)  // space, quote, slash, backslash; libyaml refuses others
    }
    guard let scalar = Unicode.Scalar(value) else { return }
    for byte in String(Character(scalar)).utf8 { put(byte, start) }
  }

  // MARK: Block scalars

  private mutating func block(
    folded: Bool, _ expected: UnsafeBufferPointer<UInt8>
  ) -> Int? {
    index += 1
    var chomping = 0
    var explicit = false
    while index < bytes.count {
      if bytes[index] == UInt8(ascii: "+") {
        chomping = 1
      } else if bytes[index] == UInt8(ascii: "-") {
        chomping = -1
      } else if bytes[index] >= 0x31, bytes[index] <= 0x39 {
        explicit = true
      } else {
        break
      }
      index += 1
    }
    while index < bytes.count, breakLength(index, bytes.count) == 0 { index += 1 }
    index += breakLength(index, bytes.count)

    let start = index
    let (found, widest) = indentation(from: start)
    if !explicit {
      return body(from: start, indent: max(widest, 1), folded: folded, chomping: chomping)
    }
    // The indicator counts from the parent's indentation, which is unknown here. Each indentation gives a different
    // text, so the expected text determines it.
    for indent in stride(from: max(found, 1), through: 1, by: -1) {
      text.removeAll(keepingCapacity: true)
      offsets.removeAll(keepingCapacity: true)
      let finish = body(from: start, indent: indent, folded: folded, chomping: chomping)
      if text.elementsEqual(expected) { return finish }
    }
    return nil
  }

  /// The indentation of the first line that is not blank, and the largest indentation up to there.
  private func indentation(from start: Int) -> (found: Int, widest: Int) {
    var position = start
    var widest = 0
    while true {
      var spaces = 0
      while position < bytes.count, bytes[position] == 0x20 {
        spaces += 1
        position += 1
      }
      widest = max(widest, spaces)
      let length = breakLength(position, bytes.count)
      if length == 0 { return (spaces, widest) }
      position += length
    }
  }

  /// Mirrors yaml_parser_scan_block_scalar; returns the end of the content.
  private mutating func body(from start: Int, indent: Int, folded: Bool, chomping: Int) -> Int {
    index = start
    var finish = start
    var leading: Int?
    var blankBefore = false
    var (column, trailing) = blankLines(indent)
    while column == indent, index < bytes.count {
      let blank = isBlank(index)
      if let lineEnd = leading {
        if folded, !blankBefore, !blank {
          if trailing.isEmpty { put(0x20, lineEnd) }
        } else {
          put(0x0A, lineEnd)
        }
      }
      leading = nil
      for offset in trailing { put(0x0A, offset) }
      blankBefore = blank
      while index < bytes.count, breakLength(index, bytes.count) == 0 {
        put(bytes[index], index)
        index += 1
      }
      finish = index
      let length = breakLength(index, bytes.count)
      if length > 0 { leading = index }
      index += length
      (column, trailing) = blankLines(indent)
    }
    if chomping != -1, let lineEnd = leading { put(0x0A, lineEnd) }
    if chomping == 1 { for offset in trailing { put(0x0A, offset) } }
    return finish
  }

  /// Skips indentation and blank lines; returns the column and the skipped line breaks.
  private mutating func blankLines(_ indent: Int) -> (column: Int, breaks: [Int]) {
    var breaks: [Int] = []
    while true {
      var column = 0
      while column < indent, index < bytes.count, bytes[index] == 0x20 {
        column += 1
        index += 1
      }
      let length = breakLength(index, bytes.count)
      if length == 0 { return (column, breaks) }
      breaks.append(index)
      index += length
    }
  }
}
