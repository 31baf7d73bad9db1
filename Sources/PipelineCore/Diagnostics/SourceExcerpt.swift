/// One line of a source with a marked range, for a terminal with a fixed-width font.
///
/// Tabs become spaces, wide characters take two columns and combining ones none, and control sequences are escaped; the
/// marks are aligned with the text.
struct SourceExcerpt {
  let line: Int
  let text: String
  /// The number of columns before the marks. `width`: the number of columns marked.
  let indent: Int
  let width: Int

  static let tabWidth = 4
  /// The maximum width; text beyond it is left out on either side of the marks.
  static let maximumWidth = 100
  /// The width that stays visible before the marks if the start of the line is left out.
  private static let context = 40

  init(_ location: SourceLocation) {
    let source = location.text
    let offset = min(max(0, location.offset), source.bytes.count)
    line = source.position(at: offset).line
    let range = source.lineRange(line)
    let markEnd = min(max(offset, location.offset + location.length), range.upperBound)

    // A line may be a mebibyte long, so only the part near the mark is decoded.
    var start = range.lowerBound
    if offset - start > 4096 {
      start = offset - 400
      while start < offset, source.bytes[start] & 0xC0 == 0x80 { start += 1 }
    }
    let stop = min(range.upperBound, max(offset, start) + 4 * Self.maximumWidth)
    let cells = Self.cells(source.bytes, start..<stop)

    var before = 0
    var marked = 0
    for cell in cells where cell.offset < offset { before += cell.width }
    for cell in cells where cell.offset >= offset && cell.offset < markEnd { marked += cell.width }

    var skipped = 0
    var first = 0
    if before + min(marked, Self.context) > Self.maximumWidth - 2 {
      while first < cells.count, before - skipped > Self.context {
        skipped += cells[first].width
        first += 1
      }
    }
    let isCutLeft = first > 0 || start > range.lowerBound
    var text = isCutLeft ? "…" : ""
    var used = isCutLeft ? 1 : 0
    var isCutRight = stop < range.upperBound
    for cell in cells[first...] {
      if used + cell.width > Self.maximumWidth - 1 {
        isCutRight = true
        break
      }
      text += cell.text
      used += cell.width
    }
    indent = before - skipped + (isCutLeft ? 1 : 0)
    width = max(1, min(marked, used - indent))
    self.text = isCutRight ? text + "…" : text
  }

  private struct Cell {
    var offset: Int
    var text: String
    var width: Int
  }

  private static func cells(_ bytes: [UInt8], _ range: Range<Int>) -> [Cell] {
    var cells: [Cell] = []
    var column = 0
    var offset = range.lowerBound
    func put(_ text: String, _ width: Int, _ length: Int) {
      cells.append(Cell(offset: offset, text: text, width: width))
      column += width
      offset += length
    }
    while offset < range.upperBound {
      let byte = bytes[offset]
      if byte == 0x09 {
        let width = tabWidth - column % tabWidth
        put(String(repeating: " ", count: width), width, 1)
        continue
      }
      if byte >= 0x20, byte < 0x7F {
        put(String(UnicodeScalar(byte)), 1, 1)
        continue
      }
      var iterator = bytes[offset..<min(offset + 4, range.upperBound)].makeIterator()
      var decoder = UTF8()
      if case .scalarValue(let scalar) = decoder.decode(&iterator) {
        var shown = ""
        Printable.append(scalar, to: &shown)
        let isEscaped = shown.unicodeScalars.count > 1
        put(
          shown, isEscaped ? shown.utf8.count : TerminalWidth.columns(of: scalar),
          UTF8.width(scalar))
      } else {
        put("\\x" + Printable.hex(UInt32(byte), digits: 2), 4, 1)
      }
    }
    return cells
  }
}

/// The number of terminal columns of a code point.
enum TerminalWidth {
  static func columns(of scalar: Unicode.Scalar) -> Int {
    let value = scalar.value
    if value < 0x300 { return 1 }
    switch scalar.properties.generalCategory {
    case .nonspacingMark, .enclosingMark: return 0
    default: break
    }
    if value >= 0x200B && value <= 0x200F || value >= 0x1160 && value <= 0x11FF { return 0 }
    if value >= 0x1F3FB && value <= 0x1F3FF { return 0 }  // skin tones combine with the preceding character
    return wide.contains { $0.contains(value) } ? 2 : 1
  }

  /// East Asian wide and full-width characters, and characters that are shown as emoji by themselves.
  private static let wide: [ClosedRange<UInt32>] = [
    0x1100...0x115F, 0x231A...0x231B, 0x2329...0x232A, 0x23E9...0x23EC, 0x23F0...0x23F0,
    0x23F3...0x23F3, 0x25FD...0x25FE, 0x2614...0x2615, 0x2648...0x2653, 0x267F...0x267F,
    0x2693...0x2693, 0x26A1...0x26A1, 0x26AA...0x26AB, 0x26BD...0x26BE, 0x26C4...0x26C5,
    0x26CE...0x26CE, 0x26D4...0x26D4, 0x26EA...0x26EA, 0x26F2...0x26F3, 0x26F5...0x26F5,
    0x26FA...0x26FA, 0x26FD...0x26FD, 0x2705...0x2705, 0x270A...0x270B, 0x2728...0x2728,
    0x274C...0x274C, 0x274E...0x274E, 0x2753...0x2755, 0x2757...0x2757, 0x2795...0x2797,
    0x27B0...0x27B0, 0x27BF...0x27BF, 0x2B1B...0x2B1C, 0x2B50...0x2B50, 0x2B55...0x2B55,
    0x2E80...0x303E, 0x3041...0x33FF, 0x3400...0x4DBF, 0x4E00...0xA4CF, 0xA960...0xA97F,
    0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE10...0xFE19, 0xFE30...0xFE6F, 0xFF01...0xFF60,
    0xFFE0...0xFFE6, 0x16FE0...0x18CFF, 0x1AFF0...0x1B2FF, 0x1F004...0x1F004, 0x1F0CF...0x1F0CF,
    0x1F18E...0x1F18E, 0x1F191...0x1F19A, 0x1F200...0x1F320, 0x1F32D...0x1F335, 0x1F337...0x1F37C,
    0x1F37E...0x1F393, 0x1F3A0...0x1F3CA, 0x1F3CF...0x1F3D3, 0x1F3E0...0x1F3F0, 0x1F3F4...0x1F3F4,
    0x1F3F8...0x1F43E, 0x1F440...0x1F440, 0x1F442...0x1F4FC, 0x1F4FF...0x1F53D, 0x1F54B...0x1F567,
    0x1F57A...0x1F57A, 0x1F595...0x1F596, 0x1F5A4...0x1F5A4, 0x1F5FB...0x1F64F, 0x1F680...0x1F6C5,
    0x1F6CC...0x1F6CC, 0x1F6D0...0x1F6D2, 0x1F6D5...0x1F6DF, 0x1F6EB...0x1F6EC, 0x1F6F4...0x1F6FC,
    0x1F7E0...0x1F7EB, 0x1F7F0...0x1F7F0, 0x1F90C...0x1F93A, 0x1F93C...0x1F945, 0x1F947...0x1F9FF,
    0x1FA70...0x1FAFF, 0x20000...0x3FFFD,
  ]
}
