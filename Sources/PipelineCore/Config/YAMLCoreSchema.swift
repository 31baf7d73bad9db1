/// The kinds of plain scalars, by the core schema of YAML 1.2.2 (section 10.3.2).
package enum YAMLCoreSchema {
  package static func kind(of text: [UInt8]) -> YAMLScalar.Kind {
    guard let first = text.first else { return .null }
    switch first {
    case UInt8(ascii: "~"), UInt8(ascii: "n"), UInt8(ascii: "N"):
      return isAny(text, ["~", "null", "Null", "NULL"]) ? .null : .string
    case UInt8(ascii: "t"), UInt8(ascii: "T"):
      return isAny(text, ["true", "True", "TRUE"]) ? .bool : .string
    case UInt8(ascii: "f"), UInt8(ascii: "F"):
      return isAny(text, ["false", "False", "FALSE"]) ? .bool : .string
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "-"),
      UInt8(ascii: "."):
      return numberKind(text)
    default: return .string
    }
  }

  private static func isAny(_ text: [UInt8], _ words: [StaticString]) -> Bool {
    words.contains { word in
      word.withUTF8Buffer { $0.elementsEqual(text) }
    }
  }

  /// `text` must not be empty.
  private static func numberKind(_ text: [UInt8]) -> YAMLScalar.Kind {
    if text.count > 2, text[0] == UInt8(ascii: "0") {
      if text[1] == UInt8(ascii: "o") {
        return text.dropFirst(2).allSatisfy { $0 >= 0x30 && $0 <= 0x37 } ? .int : .string
      }
      if text[1] == UInt8(ascii: "x") {
        return text.dropFirst(2).allSatisfy { hexDigit($0) != nil } ? .int : .string
      }
    }
    var index = 0
    if text[0] == UInt8(ascii: "+") || text[0] == UInt8(ascii: "-") { index = 1 }
    let rest = Array(text[index...])
    if isAny(rest, [".inf", ".Inf", ".INF"]) { return .float }
    if isAny(text, [".nan", ".NaN", ".NAN"]) { return .float }

    func digits() -> Int {
      let start = index
      while index < text.count, text[index] >= 0x30, text[index] <= 0x39 { index += 1 }
      return index - start
    }
    let whole = digits()
    if index == text.count { return whole > 0 ? .int : .string }
    if text[index] == UInt8(ascii: ".") {
      index += 1
      if digits() + whole == 0 { return .string }
    } else if whole == 0 {
      return .string
    }
    if index < text.count, text[index] | 0x20 == UInt8(ascii: "e") {
      index += 1
      if index < text.count, text[index] == UInt8(ascii: "+") || text[index] == UInt8(ascii: "-") {
        index += 1
      }
      if digits() == 0 { return .string }
    }
    return index == text.count ? .float : .string
  }

  /// The value of a text of kind `int`; nil if it does not fit into 64 bits.
  static func int(_ text: [UInt8]) -> Int64? {
    var radix: Int64 = 10
    var digits = text[...]
    var negative = false
    if let first = text.first, first == UInt8(ascii: "-") || first == UInt8(ascii: "+") {
      negative = first == UInt8(ascii: "-")
      digits = digits.dropFirst()
    } else if text.count > 2, text[1] == UInt8(ascii: "x") {
      radix = 16
      digits = digits.dropFirst(2)
    } else if text.count > 2, text[1] == UInt8(ascii: "o") {
      radix = 8
      digits = digits.dropFirst(2)
    }
    if digits.isEmpty { return nil }
    // Summing negative numbers also reaches the least int.
    var value: Int64 = 0
    for byte in digits {
      guard let digit = hexDigit(byte), digit < radix else { return nil }
      let (scaled, overflow) = value.multipliedReportingOverflow(by: radix)
      let (next, underflow) = scaled.subtractingReportingOverflow(digit)
      if overflow || underflow { return nil }
      value = next
    }
    if negative { return value }
    let (positive, overflow) = (0 as Int64).subtractingReportingOverflow(value)
    return overflow ? nil : positive
  }

  /// The value of a text of kind `int` or `float`.
  static func double(_ text: [UInt8]) -> Double? {
    if let whole = int(text) { return Double(whole) }
    if text.last.map({ $0 | 0x20 }) == UInt8(ascii: "f"), text.contains(UInt8(ascii: ".")) {
      return text.first == UInt8(ascii: "-") ? -.infinity : .infinity
    }
    if text.last.map({ $0 | 0x20 }) == UInt8(ascii: "n") { return .nan }
    var written = String(decoding: text, as: UTF8.self)
    if written.utf8.last == UInt8(ascii: ".") { written.removeLast() }
    return Double(written)
  }

  static func hexDigit(_ byte: UInt8) -> Int64? {
    switch byte {
    case 0x30...0x39: Int64(byte) - 0x30
    case 0x41...0x46: Int64(byte) - 0x41 + 10
    case 0x61...0x66: Int64(byte) - 0x61 + 10
    default: nil
    }
  }
}
