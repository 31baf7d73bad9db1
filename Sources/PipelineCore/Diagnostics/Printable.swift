/// Makes untrusted text safe for a message: one line, no control characters, limited length.
package enum Printable {
  /// The maximum number of characters of a value that a message shows.
  package static let maximumLength = 80

  /// The text in quotes, safe for a terminal.
  package static func quote(_ text: String) -> String { "'\(cut(text, limit: 300))'" }

  /// At most `limit` code points of `text`, with control characters escaped, and `…` for the rest.
  package static func cut(_ text: some Sequence<UInt8>, limit: Int = maximumLength) -> String {
    // A code point has at most four bytes, so the rest need not be decoded.
    let bytes = Array(text.prefix((limit + 1) * 4))
    var result = ""
    var count = 0
    for scalar in String(decoding: bytes, as: UTF8.self).unicodeScalars {
      if count == limit { return result + "…" }
      append(scalar, to: &result)
      count += 1
    }
    return result
  }

  /// `1 event`, `2 events`.
  package static func count(_ number: some BinaryInteger, _ noun: String) -> String {
    "\(number) \(noun)\(number == 1 ? "" : "s")"
  }

  /// `an int`, `a double`.
  package static func withArticle(_ noun: String) -> String {
    ("aeio".utf8.contains(noun.utf8.first ?? 0) ? "an " : "a ") + noun
  }

  package static func cut(_ text: String, limit: Int = maximumLength) -> String {
    cut(text.utf8, limit: limit)
  }

  /// Appends one code point, escaped if it could move the cursor, reorder text or be invisible.
  package static func append(_ scalar: Unicode.Scalar, to result: inout String) {
    switch scalar.value {
    case 0x09: result += "\\t"
    case 0x0A: result += "\\n"
    case 0x0D: result += "\\r"
    case _ where isControl(scalar.value): result += "\\x" + hex(scalar.value, digits: 2)
    case _ where isInvisible(scalar.value): result += "\\u{" + hex(scalar.value, digits: 4) + "}"
    default: result.unicodeScalars.append(scalar)
    }
  }

  /// Whether a code point must not be written to a terminal or a log. Diagnostics, the log and encoders for terminals
  /// share this rule.
  package static func isHidden(_ value: UInt32) -> Bool { isControl(value) || isInvisible(value) }

  /// Whether it is a control character: C0, DEL or C1.
  private static func isControl(_ value: UInt32) -> Bool { value < 0x20 || (0x7F..<0xA0).contains(value) }

  /// Whether a code point is invisible, moves others, or has no meaning that readers share: line and paragraph
  /// separators, format characters (bidirectional controls, joiners, tags, the byte order mark), variation selectors
  /// and fillers, private use characters, and unassigned ones.
  static func isInvisible(_ value: UInt32) -> Bool {
    // Letters and signs of European languages; the soft hyphen is a format character.
    if value < 0x300 { return value == 0xAD }
    guard let scalar = Unicode.Scalar(value) else { return true }
    switch scalar.properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate, .privateUse, .unassigned: return true
    case .nonspacingMark, .otherLetter: return scalar.properties.isDefaultIgnorableCodePoint
    default: return false
    }
  }

  /// Whether an invisible code point determines how its neighbours look, as Persian, Indic scripts and emoji need:
  /// joiners and variation selectors.
  package static func isJoining(_ value: UInt32) -> Bool {
    switch value {
    case 0x200C, 0x200D, 0xFE00...0xFE0F, 0xE0100...0xE01EF: true
    default: false
    }
  }

  package static func hex(_ value: UInt32, digits: Int) -> String {
    let text = String(value, radix: 16, uppercase: true)
    return String(repeating: "0", count: max(0, digits - text.utf8.count)) + text
  }
}
