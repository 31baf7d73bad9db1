/// One line of a YAML file as a person reads it: `  - key: value  # comment`.
///
/// It serves to explain syntax errors, so it guesses where the grammar fails.
struct YAMLLine {
  let source: SourceText
  let number: Int
  let start: Int
  /// The offset of the line's end, without the line break.
  let end: Int
  /// The start of the first word, after indentation and list dashes.
  let first: Int
  /// The key without its colon, if the line has one.
  let key: Range<Int>?
  /// The start of the value; equals `contentEnd` if there is none.
  let value: Int
  /// The end of the last character that is neither white space nor comment.
  let contentEnd: Int

  init(_ source: SourceText, at offset: Int) {
    self.init(source, number: source.position(at: offset).line)
  }

  init(_ source: SourceText, number: Int) {
    self.source = source
    self.number = number
    let bytes = source.bytes
    let range = source.lineRange(number)
    start = range.lowerBound
    end = range.upperBound

    func skipBlanks(_ offset: Int) -> Int {
      var offset = offset
      while offset < range.upperBound, bytes[offset] == 0x20 || bytes[offset] == 0x09 {
        offset += 1
      }
      return offset
    }
    func isBreak(_ offset: Int) -> Bool { offset >= range.upperBound || bytes[offset] <= 0x20 }

    var position = skipBlanks(start)
    while position < end, bytes[position] == UInt8(ascii: "-"), isBreak(position + 1) {
      position = skipBlanks(position + 1)
    }
    first = position

    var key: Range<Int>?
    var value = position
    var cursor = position
    if cursor < end, bytes[cursor] == 0x22 || bytes[cursor] == 0x27 {
      let quote = bytes[cursor]
      cursor += 1
      while cursor < end, bytes[cursor] != quote { cursor += 1 }
    }
    while cursor < end {
      if bytes[cursor] == UInt8(ascii: ":"), isBreak(cursor + 1) {
        key = position..<cursor
        value = skipBlanks(cursor + 1)
        break
      }
      if bytes[cursor] == UInt8(ascii: "#"), cursor == start || bytes[cursor - 1] <= 0x20 { break }
      cursor += 1
    }
    self.key = key
    self.value = value

    var stop = range.upperBound
    cursor = value
    var quote: UInt8 = 0
    while cursor < range.upperBound {
      let byte = bytes[cursor]
      if quote != 0 {
        if byte == quote { quote = 0 }
      } else if cursor == value, byte == 0x22 || byte == 0x27 {
        quote = byte
      } else if byte == UInt8(ascii: "#"), cursor == start || bytes[cursor - 1] <= 0x20 {
        stop = cursor
        break
      }
      cursor += 1
    }
    while stop > value, bytes[stop - 1] <= 0x20 { stop -= 1 }
    contentEnd = stop
  }

  var isBlank: Bool { first >= contentEnd && key == nil }
  /// The column of the key or of an item's content; from 1, in code points.
  var column: Int { source.position(at: first).column }
  /// The column of the first character that is not blank, which may be the dash of an item.
  var indentColumn: Int {
    let blank = source.bytes[start..<end].firstIndex { $0 != 0x20 && $0 != 0x09 } ?? end
    return source.position(at: blank).column
  }

  func starts(with text: StaticString, at offset: Int) -> Bool {
    text.withUTF8Buffer { source.bytes.dropFirst(offset).prefix(end - offset).starts(with: $0) }
  }

  /// The nearest earlier line that is neither blank nor a comment.
  var above: YAMLLine? {
    var number = number - 1
    while number >= 1 {
      let line = YAMLLine(source, number: number)
      if !line.isBlank { return line }
      number -= 1
    }
    return nil
  }

  /// A fix that quotes the value of the line; nil unless the value starts at `offset` and ends with the line, which
  /// cannot be known within brackets.
  func quoting(
    from offset: Int, isFlow: Bool = false, keepComment: Bool = false
  ) -> Diagnostic.FixIt? {
    guard offset == value, !isFlow else { return nil }
    var stop = keepComment ? end : contentEnd
    while stop > offset, source.bytes[stop - 1] <= 0x20 { stop -= 1 }
    guard stop > offset, stop - offset <= 200 else { return nil }
    let text = source.bytes[offset..<stop]
    let location = SourceLocation(source, offset: offset, length: stop - offset)
    return Diagnostic.FixIt(location, Self.quoted(text))
  }

  /// In single quotes only the quote itself needs an escape, so an expression stays readable.
  static func quoted(_ text: some Sequence<UInt8>) -> String {
    var result: [UInt8] = [0x27]
    for byte in text {
      if byte == 0x27 { result.append(0x27) }
      result.append(byte)
    }
    result.append(0x27)
    return String(decoding: result, as: UTF8.self)
  }

  /// The character that would close the innermost quote or bracket left open in `text`.
  static func openDelimiter(_ text: [UInt8]) -> UInt8? {
    var quote: UInt8 = 0
    var brackets: [UInt8] = []
    var index = 0
    func isWord(_ index: Int) -> Bool {
      guard text.indices.contains(index) else { return false }
      let byte = text[index]
      return byte >= 0x80 || (byte | 0x20 >= 0x61 && byte | 0x20 <= 0x7A)
        || (byte >= 0x30 && byte <= 0x39)
    }
    while index < text.count {
      let byte = text[index]
      switch byte {
      case 0x5C where quote != 0: index += 1
      case 0x22 where quote != 0x27, 0x27 where quote == 0x27:
        quote = quote == 0 ? byte : 0
      case 0x27 where quote == 0 && !(isWord(index - 1) && isWord(index + 1)): quote = byte
      case UInt8(ascii: "(") where quote == 0: brackets.append(UInt8(ascii: ")"))
      case UInt8(ascii: "[") where quote == 0: brackets.append(UInt8(ascii: "]"))
      case UInt8(ascii: "{") where quote == 0: brackets.append(UInt8(ascii: "}"))
      case UInt8(ascii: ")"), UInt8(ascii: "]"), UInt8(ascii: "}"):
        if quote == 0, brackets.last == byte { brackets.removeLast() }
      default: break
      }
      index += 1
    }
    return quote != 0 ? quote : brackets.last
  }
}
