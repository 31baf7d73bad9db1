/// A syntax error of an expression; parsing stops at the first.
struct SyntaxError: Error {
  var code: Diagnostic.Code
  var message: String
  /// The byte range in the expression.
  var start: Int
  var end: Int
  var help: String?
  /// A replacement of that range which corrects the error.
  var replacement: String?

  init(
    _ code: Diagnostic.Code, _ message: String, _ start: Int, _ end: Int, help: String? = nil,
    replacement: String? = nil
  ) {
    self.code = code
    self.message = message
    self.start = start
    self.end = end
    self.help = help
    self.replacement = replacement
  }
}

/// Splits an expression into tokens.
struct ExpressionLexer {
  enum Token: Equatable {
    case end
    case name(String)
    /// A name in backticks, valid only as a field.
    case quotedName(String)
    /// A whole number: its magnitude, and whether it ends in `u`.
    case number(UInt64, unsigned: Bool)
    case double(Double)
    case string([UInt8])
    case bytes([UInt8])
    case symbol(String)

    /// The token's name in messages.
    var description: String {
      switch self {
      case .end: return "the end of the expression"
      case .name(let name): return "'\(name)'"
      case .quotedName(let name): return "'`\(name)`'"
      case .number, .double: return "a number"
      case .string: return "a string"
      case .bytes: return "a bytes literal"
      case .symbol(let symbol): return "'\(symbol)'"
      }
    }
  }

  let bytes: [UInt8]
  /// The start of the next token.
  private(set) var position = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  private func byte(_ offset: Int = 0) -> UInt8 {
    position + offset < bytes.count ? bytes[position + offset] : 0
  }

  /// The next token and its start; it ends at ``position``.
  mutating func next() throws(SyntaxError) -> (Token, Int) {
    skipSpace()
    let start = position
    guard position < bytes.count else { return (.end, start) }
    let first = bytes[position]
    if ASCII.isDigit(first) || (first == 0x2E && ASCII.isDigit(byte(1))) {
      return (try number(), start)
    }
    if first == 0x22 || first == 0x27 { return (try quoted(isRaw: false, isBytes: false), start) }
    if ASCII.isLetterOrUnderscore(first) { return (try nameOrPrefixedString(), start) }
    if first == 0x60 { return (try quotedName(), start) }
    return (try symbol(), start)
  }

  private mutating func skipSpace() {
    while position < bytes.count {
      switch bytes[position] {
      case 0x20, 0x09, 0x0A, 0x0C, 0x0D:
        position += 1
      case 0x2F where byte(1) == 0x2F:
        while position < bytes.count, bytes[position] != 0x0A { position += 1 }
      default:
        return
      }
    }
  }

  // MARK: Names and symbols

  private mutating func nameOrPrefixedString() throws(SyntaxError) -> Token {
    var isRaw = false
    var isBytes = false
    var length = 0
    if byte() | 0x20 == 0x62 {
      isBytes = true
      length = 1
      if byte(1) | 0x20 == 0x72 {
        isRaw = true
        length = 2
      }
    } else if byte() | 0x20 == 0x72 {
      isRaw = true
      length = 1
    }
    if length > 0, byte(length) == 0x22 || byte(length) == 0x27 {
      position += length
      return try quoted(isRaw: isRaw, isBytes: isBytes)
    }
    let start = position
    while ASCII.isLetterOrUnderscore(byte()) || ASCII.isDigit(byte()) { position += 1 }
    return .name(String(decoding: bytes[start..<position], as: UTF8.self))
  }

  private mutating func quotedName() throws(SyntaxError) -> Token {
    let start = position
    position += 1
    while position < bytes.count, bytes[position] != 0x60 {
      let byte = bytes[position]
      guard
        ASCII.isLetterOrUnderscore(byte) || ASCII.isDigit(byte) || byte == 0x2D || byte == 0x2E || byte == 0x2F
          || byte == 0x20
      else {
        throw SyntaxError(
          .expressionSyntax, "a field between backticks holds a character that it may not", position,
          position + 1, help: "Letters, digits, '_', '-', '.', '/' and spaces are allowed; use ['...'].")
      }
      position += 1
    }
    guard position < bytes.count, position > start + 1 else {
      throw SyntaxError(.expressionSyntax, "this backtick is not closed", start, start + 1)
    }
    position += 1
    return .quotedName(String(decoding: bytes[start + 1..<position - 1], as: UTF8.self))
  }

  private mutating func symbol() throws(SyntaxError) -> Token {
    let start = position
    let pair = position + 1 < bytes.count ? (bytes[position], bytes[position + 1]) : (byte(), 0)
    switch pair {
    case (0x3D, 0x3D), (0x21, 0x3D), (0x3C, 0x3D), (0x3E, 0x3D), (0x26, 0x26), (0x7C, 0x7C):
      position += 2
      if pair.1 == 0x3D, byte() == 0x3D {
        let meant = String(decoding: [pair.0, pair.1], as: UTF8.self)
        throw SyntaxError(
          .expressionSyntax, "there is no operator '\(meant)='", start, position + 1,
          help: "Comparison has one or two characters: '==', '!=', '<', '<=', '>' or '>='.", replacement: meant)
      }
      return .symbol(String(decoding: bytes[start..<position], as: UTF8.self))
    case (0x3D, 0x3E): throw arrow(start)
    case (0x3D, _):
      throw SyntaxError(
        .expressionSyntax, "a single '=' is not an operator", start, start + 1,
        help: "Compare with '=='; expressions cannot assign.", replacement: "==")
    case (0x26, _), (0x7C, _):
      let one = pair.0 == 0x26 ? "&" : "|"
      throw SyntaxError(
        .expressionSyntax, "a single '\(one)' is not an operator", start, start + 1,
        help: "Write '\(one)\(one)'.", replacement: one + one)
    default:
      break
    }
    switch byte() {
    case 0x21, 0x25, 0x28, 0x29, 0x2A, 0x2B, 0x2C, 0x2D, 0x2E, 0x2F, 0x3A, 0x3C, 0x3E, 0x3F, 0x5B,
      0x5D, 0x7B, 0x7D:
      position += 1
      return .symbol(String(decoding: bytes[start..<position], as: UTF8.self))
    default:
      break
    }
    var end = position + 1
    while end < bytes.count, bytes[end] & 0xC0 == 0x80 { end += 1 }
    let text = String(decoding: bytes[start..<end], as: UTF8.self)
    var help: String?
    if ["\u{2018}", "\u{2019}", "\u{201C}", "\u{201D}"].contains(text) {
      help = "Strings are written between straight quotes: 'text' or \"text\"."
    }
    throw SyntaxError(
      .expressionSyntax, "the character \(Self.visible(text)) has no meaning in an expression", start,
      end, help: help)
  }

  /// `x => x * 2`, a function in other languages: as an argument, a comma was meant; elsewhere only the body is needed.
  private func arrow(_ at: Int) -> SyntaxError {
    var before = at
    while before > 0, bytes[before - 1] == 0x20 { before -= 1 }
    let opened = bytes[..<at].reduce(0) { $0 + ($1 == 0x28 ? 1 : $1 == 0x29 ? -1 : 0) }
    let message = "'=>' makes no function here"
    if opened > 0 {
      return SyntaxError(
        .expressionSyntax, message, before, at + 2, help: "The name precedes a comma: list.map(x, x * 2).",
        replacement: ",")
    }
    let name = bytes[..<before].filter { $0 != 0x20 && $0 != 0x28 && $0 != 0x29 }
    return SyntaxError(
      .expressionSyntax, message, 0, bytes.count, help: "Write the expression alone; the event is called 'event'.",
      replacement: renamed(Array(bytes[(at + 2)...]), String(decoding: name, as: UTF8.self)))
  }

  /// The expression with the variable `name` renamed to `event`; nil if it cannot be split into tokens.
  private func renamed(_ body: [UInt8], _ name: String) -> String? {
    var lexer = ExpressionLexer(body)
    var result: [UInt8] = []
    var copied = 0
    var isField = false
    while true {
      do {
        let (token, start) = try lexer.next()
        if token == .end { break }
        if !isField, token == .name(name) {
          result += body[copied..<start] + Array("event".utf8)
          copied = lexer.position
        }
        isField = token == .symbol(".")
      } catch {
        return nil
      }
    }
    result += body[copied...]
    let text = String(decoding: result, as: UTF8.self)
    return String(text.drop { $0 == " " })
  }

  private static func visible(_ text: String) -> String {
    guard let scalar = text.unicodeScalars.first else { return "" }
    return scalar.value < 0x20 || scalar.value == 0x7F
      ? "U+00" + (scalar.value < 16 ? "0" : "") + String(scalar.value, radix: 16, uppercase: true)
      : "'\(text)'"
  }

  // MARK: Numbers

  private mutating func number() throws(SyntaxError) -> Token {
    let start = position
    if byte() == 0x30, byte(1) | 0x20 == 0x78, ASCII.hexValue(byte(2)) != nil {
      position += 2
      var value: UInt64 = 0
      while let digit = ASCII.hexValue(byte()) {
        guard value >> 60 == 0 else { throw tooLarge(start) }
        value = value << 4 | UInt64(digit)
        position += 1
      }
      return try .number(value, unsigned: unsignedSuffix(start))
    }
    while ASCII.isDigit(byte()) { position += 1 }
    var isDouble = false
    if byte() == 0x2E, ASCII.isDigit(byte(1)) {
      isDouble = true
      position += 1
      while ASCII.isDigit(byte()) { position += 1 }
    }
    if byte() | 0x20 == 0x65 {
      let sign = byte(1) == 0x2B || byte(1) == 0x2D ? 1 : 0
      if ASCII.isDigit(byte(1 + sign)) {
        isDouble = true
        position += 1 + sign
        while ASCII.isDigit(byte()) { position += 1 }
      }
    }
    let text = String(decoding: bytes[start..<position], as: UTF8.self)
    if isDouble {
      guard let value = Double(text), value.isFinite else { throw tooLarge(start) }
      try endOfNumber(start)
      return .double(value)
    }
    guard let value = UInt64(text) else { throw tooLarge(start) }
    return try .number(value, unsigned: unsignedSuffix(start))
  }

  private mutating func unsignedSuffix(_ start: Int) throws(SyntaxError) -> Bool {
    let isUnsigned = byte() | 0x20 == 0x75
    if isUnsigned { position += 1 }
    try endOfNumber(start)
    return isUnsigned
  }

  private mutating func endOfNumber(_ start: Int) throws(SyntaxError) {
    guard ASCII.isLetterOrUnderscore(byte()) || ASCII.isDigit(byte()) else { return }
    let letters = position
    while ASCII.isLetterOrUnderscore(byte()) || ASCII.isDigit(byte()) { position += 1 }
    let suffix = String(decoding: bytes[letters..<position], as: UTF8.self)
    let isTime = ["ns", "us", "ms", "s", "m", "h"].contains(suffix)
    let text = String(decoding: bytes[start..<position], as: UTF8.self)
    throw SyntaxError(
      .expressionLiteral, "'\(text)' is not a number", start, position,
      help: isTime ? "Write duration('\(text)') for a length of time." : nil,
      replacement: isTime ? "duration('\(text)')" : nil)
  }

  private func tooLarge(_ start: Int) -> SyntaxError {
    SyntaxError(
      .expressionLiteral, "this number is too large", start, position,
      help: "Whole numbers have 64 bits; add 'u' for the unsigned range or '.0' for a double.")
  }

  // MARK: Strings

  private mutating func quoted(isRaw: Bool, isBytes: Bool) throws(SyntaxError) -> Token {
    let start = position
    let quote = byte()
    let isTriple = byte(1) == quote && byte(2) == quote
    position += isTriple ? 3 : 1
    var out: [UInt8] = []
    while true {
      guard position < bytes.count else {
        throw SyntaxError(
          .expressionSyntax, "this string has no closing quote", start, start + (isTriple ? 3 : 1),
          help: "Close it with \(isTriple ? "three quotes" : quote == 0x27 ? "'" : "\"").")
      }
      let byte = bytes[position]
      if byte == quote, !isTriple || (self.byte(1) == quote && self.byte(2) == quote) {
        position += isTriple ? 3 : 1
        return isBytes ? .bytes(out) : .string(out)
      }
      if byte == 0x0A || byte == 0x0D, !isTriple {
        throw SyntaxError(
          .expressionSyntax, "a line ends inside a string", start, position,
          help: "Close the string, write \\n, or use triple quotes.")
      }
      if byte == 0x5C, !isRaw {
        try escape(isBytes: isBytes, into: &out)
        continue
      }
      out.append(byte)
      position += 1
    }
  }

  private mutating func escape(isBytes: Bool, into out: inout [UInt8]) throws(SyntaxError) {
    let start = position
    let code = byte(1)
    position += 2
    switch code {
    case UInt8(ascii: "a"): out.append(7)
    case UInt8(ascii: "b"): out.append(8)
    case UInt8(ascii: "f"): out.append(12)
    case UInt8(ascii: "n"): out.append(10)
    case UInt8(ascii: "r"): out.append(13)
    case UInt8(ascii: "t"): out.append(9)
    case UInt8(ascii: "v"): out.append(11)
    case 0x5C, 0x3F, 0x22, 0x27, 0x60: out.append(code)
    case UInt8(ascii: "x"), UInt8(ascii: "X"):
      try append(hex(2, start), isBytes: isBytes, to: &out, start)
    case UInt8(ascii: "u") where !isBytes:
      try append(hex(4, start), isBytes: false, to: &out, start)
    case UInt8(ascii: "U") where !isBytes:
      try append(hex(8, start), isBytes: false, to: &out, start)
    case 0x30...0x33:
      guard case 0x30...0x37 = byte(), case 0x30...0x37 = byte(1) else {
        throw badEscape(start, "an octal escape has three digits, \\000 to \\377")
      }
      let value = UInt32(code - 0x30) << 6 | UInt32(byte() - 0x30) << 3 | UInt32(byte(1) - 0x30)
      position += 2
      try append(value, isBytes: isBytes, to: &out, start)
    default:
      throw badEscape(
        start,
        isBytes && (code | 0x20) == 0x75
          ? "bytes have no \\u escapes; write the bytes with \\x" : "there is no such escape sequence")
    }
  }

  private mutating func hex(_ digits: Int, _ start: Int) throws(SyntaxError) -> UInt32 {
    var value: UInt32 = 0
    for _ in 0..<digits {
      guard let digit = ASCII.hexValue(byte()) else {
        throw badEscape(start, "this escape needs \(digits) hexadecimal digits")
      }
      value = value << 4 | digit
      position += 1
    }
    return value
  }

  private func append(
    _ value: UInt32, isBytes: Bool, to out: inout [UInt8], _ start: Int
  ) throws(SyntaxError) {
    if isBytes {
      out.append(UInt8(truncatingIfNeeded: value))
      return
    }
    guard value <= 0x10FFFF, !(0xD800...0xDFFF).contains(value) else {
      throw badEscape(start, "this escape is not a Unicode character")
    }
    CodePoints.append(value, to: &out)
  }

  private func badEscape(_ start: Int, _ reason: String) -> SyntaxError {
    SyntaxError(
      .expressionLiteral, reason, start, min(max(position, start + 1), bytes.count),
      help: "For a pattern write a raw string: r'\\d+'.")
  }
}
