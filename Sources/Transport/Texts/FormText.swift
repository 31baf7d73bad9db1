/// Name and value pairs of a form-encoded text, such as the query of a URL.
package enum FormText {
  /// A text with all bytes escaped except the unreserved characters (RFC 3986, 2.3).
  package static func escaped(_ text: String) -> String { String(decoding: escaped(Array(text.utf8)), as: UTF8.self) }

  /// - Parameter keepsSlashes: Whether `/` is not escaped either, as in a path.
  static func escaped(_ text: [UInt8], keepsSlashes: Bool = false) -> [UInt8] {
    let digits = Array("0123456789ABCDEF".utf8)
    var result: [UInt8] = []
    result.reserveCapacity(text.count)
    for byte in text {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
        UInt8(ascii: "~"):
        result.append(byte)
      case UInt8(ascii: "/") where keepsSlashes: result.append(byte)
      default: result += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      }
    }
    return result
  }

  /// A path, or a name or value of a query, with its escapes decoded.
  package static func unescaped(_ text: ArraySlice<UInt8>) -> [UInt8] {
    var bytes: [UInt8] = []
    var rest = text
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "%"), rest.count >= 2,
        let high = hexadecimal(rest[rest.startIndex]),
        let low = hexadecimal(rest[rest.startIndex + 1])
      {
        bytes.append(high << 4 | low)
        rest = rest.dropFirst(2)
      } else {
        bytes.append(byte)
      }
    }
    return bytes
  }

  /// The pairs in order; bytes that are not UTF-8 are replaced.
  static func pairs(_ text: ArraySlice<UInt8>) -> [(name: String, value: String)] {
    text.split(separator: UInt8(ascii: "&")).map { pair in
      let equals = pair.firstIndex(of: UInt8(ascii: "="))
      let value = equals.map { pair[($0 + 1)...] }
      return (decoded(pair[..<(equals ?? pair.endIndex)]), value.map { decoded($0) } ?? "")
    }
  }

  private static func decoded(_ text: ArraySlice<UInt8>) -> String {
    var bytes: [UInt8] = []
    var rest = text
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "+") {
        bytes.append(32)
      } else if byte == UInt8(ascii: "%"), rest.count >= 2,
        let high = hexadecimal(rest[rest.startIndex]),
        let low = hexadecimal(rest[rest.startIndex + 1])
      {
        bytes.append(high << 4 | low)
        rest = rest.dropFirst(2)
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// The value of a hexadecimal digit; nil for other characters.
  static func hexadecimal(_ byte: UInt8) -> UInt8? {
    if byte &- 48 < 10 { return byte &- 48 }
    let letter = (byte | 0x20) &- 97
    return letter < 6 ? letter + 10 : nil
  }
}
