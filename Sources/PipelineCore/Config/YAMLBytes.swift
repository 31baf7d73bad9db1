/// The check before libyaml: accepts only bytes that mean the same to every YAML reader.
///
/// libyaml follows YAML 1.1: it breaks lines at U+0085, U+2028 and U+2029, even in a value or a comment, where an
/// editor shows one line; a value could thereby gain a second key. All three are errors, and so is a carriage return
/// without a line feed. A value that needs one of them writes `"\u2028"` in double quotes.
enum YAMLBytes {
  /// Returns the offset at which the text starts (after a byte order mark), or nil if it must not be parsed.
  static func check(
    _ source: SourceText, limits: YAMLLimits, into diagnostics: inout Diagnostics
  ) -> Int? {
    let bytes = source.bytes
    if bytes.count > limits.fileBytes {
      diagnostics.report(
        Diagnostic(
          .fileTooLarge,
          "the file has \(bytes.count) bytes, more than the \(limits.fileBytes) that are allowed",
          at: SourceLocation(source, offset: 0),
          help: "Split it: every file of a directory is a separate pipeline"))
      return nil
    }
    if let encoding = foreignEncoding(bytes) {
      diagnostics.report(
        Diagnostic(
          .encoding, "the file is \(encoding), not UTF-8", at: SourceLocation(source, offset: 0),
          help: "Save it as UTF-8, for example with: iconv -f \(encoding) -t UTF-8"))
      return nil
    }
    let start = bytes.starts(with: [0xEF, 0xBB, 0xBF]) ? 3 : 0
    var scan = Scan(source: source, offset: start)
    let sound = bytes.withUnsafeBufferPointer { scan.run($0, into: &diagnostics) }
    return sound ? start : nil
  }

  /// Detects UTF-16 and UTF-32 by their byte order mark or, as in YAML 1.2 section 5.2, by the zero bytes at the start.
  private static func foreignEncoding(_ bytes: [UInt8]) -> String? {
    let head = Array(bytes.prefix(4))
    if head.starts(with: [0xFF, 0xFE, 0, 0]) || head.starts(with: [0, 0, 0xFE, 0xFF]) {
      return "UTF-32"
    }
    if head.starts(with: [0xFF, 0xFE]) || head.starts(with: [0xFE, 0xFF]) { return "UTF-16" }
    guard head.count == 4 else { return nil }
    switch (head[0] == 0, head[1] == 0, head[2] == 0, head[3] == 0) {
    case (true, true, true, false): return "UTF-32BE"
    case (false, true, true, true): return "UTF-32LE"
    case (true, false, true, false): return "UTF-16BE"
    case (false, true, false, true): return "UTF-16LE"
    default: return nil
    }
  }

  private struct Scan {
    let source: SourceText
    var offset: Int
    var found = 0
    /// After this many errors the file is clearly not text.
    static let most = 10

    /// Returns false if any byte was rejected.
    mutating func run(
      _ bytes: UnsafeBufferPointer<UInt8>, into diagnostics: inout Diagnostics
    ) -> Bool {
      while offset < bytes.count {
        let byte = bytes[offset]
        if byte >= 0x20, byte < 0x7F {
          offset += 1
          continue
        }
        let length = sequenceLength(bytes)
        guard length > 0 else {
          diagnostics.report(notUTF8(byte))
          return false
        }
        if let refusal = refusal(bytes, length) {
          diagnostics.report(refusal)
          if refusal.severity == .error { found += 1 }
          if found == Self.most { return false }
        }
        offset += length
      }
      return found == 0
    }

    /// The length of the valid UTF-8 sequence at `offset`, 0 if there is none.
    private func sequenceLength(_ bytes: UnsafeBufferPointer<UInt8>) -> Int {
      let first = bytes[offset]
      if first < 0x80 { return 1 }
      let length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0
      if length == 0 || offset + length > bytes.count { return 0 }
      for index in 1..<length where bytes[offset + index] & 0xC0 != 0x80 { return 0 }
      let second = bytes[offset + 1]
      switch first {
      case 0xE0: return second >= 0xA0 ? 3 : 0
      case 0xED: return second < 0xA0 ? 3 : 0
      case 0xF0: return second >= 0x90 ? 4 : 0
      case 0xF4: return second < 0x90 ? 4 : 0
      default: return length
      }
    }

    private func notUTF8(_ byte: UInt8) -> Diagnostic {
      Diagnostic(
        .encoding, "byte 0x\(Printable.hex(UInt32(byte), digits: 2)) is not UTF-8 here",
        at: SourceLocation(source, offset: offset, length: 1),
        help: "Save the file as UTF-8; if it is Latin-1, use: iconv -f ISO-8859-1 -t UTF-8")
    }

    private func refusal(_ bytes: UnsafeBufferPointer<UInt8>, _ length: Int) -> Diagnostic? {
      let location = SourceLocation(source, offset: offset, length: length)
      let value = codePoint(bytes, length)
      let name = "U+" + Printable.hex(value, digits: 4)
      switch value {
      case 0x09, 0x0A: return nil
      case 0x0D:
        if offset + 1 < bytes.count, bytes[offset + 1] == 0x0A { return nil }
        return Diagnostic(
          .lineSeparator, "a carriage return without a line feed is not a line end here", at: location,
          help: "Save the file with Unix line ends (LF)")
      case 0:
        return Diagnostic(
          .controlCharacter, "the file contains a NUL byte", at: location,
          help: "Remove it; in a value write \"\\0\" between double quotes")
      case 0x85, 0x2028, 0x2029:
        return Diagnostic(
          .lineSeparator,
          "\(name) is a line end to some YAML readers and not to others, so it is refused",
          at: location,
          help: "Remove it; in a value write \"\\u\(Printable.hex(value, digits: 4))\" between "
            + "double quotes")
      case 0..<0x20, 0x7F..<0xA0:
        return Diagnostic(
          .controlCharacter, "the control character \(name) is not allowed", at: location,
          help: "Remove it; in a value write \"\\x\(Printable.hex(value, digits: 2))\" between "
            + "double quotes")
      case 0xFEFF:
        return Diagnostic(
          .controlCharacter, "a byte order mark is allowed only at the start of the file", at: location,
          help: "Remove it; it often comes from joining files")
      case 0xFFFE, 0xFFFF:
        return Diagnostic(
          .controlCharacter, "\(name) is not a character", at: location, help: "Remove it")
      case 0x202A...0x202E, 0x2066...0x2069:
        return Diagnostic(
          .bidirectionalControl,
          "the invisible character \(name) makes the text look different from its content",
          at: location,
          help: "Remove it, or write \"\\u\(Printable.hex(value, digits: 4))\" between "
            + "double quotes")
      default: return nil
      }
    }

    private func codePoint(_ bytes: UnsafeBufferPointer<UInt8>, _ length: Int) -> UInt32 {
      if length == 1 { return UInt32(bytes[offset]) }
      var value = UInt32(bytes[offset]) & (0xFF >> UInt32(length + 1))
      for index in 1..<length { value = value << 6 | UInt32(bytes[offset + index] & 0x3F) }
      return value
    }
  }
}
