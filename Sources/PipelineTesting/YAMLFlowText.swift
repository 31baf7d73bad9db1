import PipelineCore

/// Writes values in YAML's flow style, on one line.
enum YAMLFlowText {
  static func write(_ value: TestValue) -> String {
    switch value {
    case .list(let elements):
      return elements.isEmpty ? "[]" : "[\(elements.map(write).joined(separator: ", "))]"
    case .object(let members):
      if members.isEmpty { return "{}" }
      return "{ " + members.map { "\(key($0.key)): \(write($0.value))" }.joined(separator: ", ") + " }"
    case .text(let bytes): return isPlain(bytes) ? String(decoding: bytes, as: UTF8.self) : quoted(bytes)
    default: return value.description
    }
  }

  private static func key(_ bytes: [UInt8]) -> String {
    isPlain(bytes) && !bytes.contains(0x20) ? String(decoding: bytes, as: UTF8.self) : quoted(bytes)
  }

  /// Whether a text needs no quotes in any context.
  static func isPlain(_ bytes: [UInt8]) -> Bool {
    guard let first = bytes.first, let last = bytes.last, isLetter(first), last != 0x20 else { return false }
    let isSafe = bytes.allSatisfy {
      isLetter($0) || (0x30...0x39).contains($0) || [0x20, 0x2D, 0x2E, 0x5F].contains($0)
    }
    return isSafe && YAMLCoreSchema.kind(of: bytes) == .string
  }

  private static func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7A).contains(byte | 0x20) }

  /// The text in double quotes.
  static func quoted(_ bytes: [UInt8]) -> String {
    var text = "\""
    var scalars = Array(String(decoding: bytes, as: UTF8.self).unicodeScalars)[...]
    while let scalar = scalars.popFirst() {
      switch scalar {
      case "\"": text += "\\\""
      case "\\": text += "\\\\"
      case "\n": text += "\\n"
      case "\t": text += "\\t"
      // Otherwise it would be read as a variable of the environment.
      case "$" where scalars.first == "{" || scalars.first == "$": text += "$$"
      case _ where isHidden(scalar.value):
        let isLong = scalar.value > 0xFFFF
        text += isLong ? "\\U" : "\\u"
        text += Printable.hex(scalar.value, digits: isLong ? 8 : 4)
      default: text.unicodeScalars.append(scalar)
      }
    }
    return text + "\""
  }

  /// Whether the YAML reader rejects the character, or it is invisible.
  private static func isHidden(_ value: UInt32) -> Bool {
    Printable.isHidden(value) || value == 0xFFFE || value == 0xFFFF
  }

  /// The text in the same quotes as `scalar`, if possible.
  static func quoted(_ text: String, like scalar: YAMLScalar) -> String {
    let bytes = Array(text.utf8)
    switch scalar.style {
    case .plain: return isPlain(bytes) || isPlainMarbles(bytes) ? text : quoted(bytes)
    case .singleQuoted where !bytes.contains(where: { $0 < 0x20 || $0 >= 0x7F || $0 == 0x24 }):
      return "'" + LocatedText.escaped(text, "'", with: "'") + "'"
    default: return quoted(bytes)
    }
  }

  /// Whether the marbles, without quotes, can only be read as text.
  private static func isPlainMarbles(_ bytes: [UInt8]) -> Bool {
    guard let first = bytes.first, isLetter(first) || first == 0x2D, bytes.contains(where: isLetter) else {
      return false
    }
    return bytes.allSatisfy { isLetter($0) || (0x30...0x39).contains($0) || $0 == 0x2D }
      && YAMLCoreSchema.kind(of: bytes) == .string && bytes != [0x2D]
  }
}
