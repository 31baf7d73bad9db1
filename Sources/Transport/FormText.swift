/// Name and value pairs of a form-encoded text, such as the query of a URL.
enum FormText {
  /// In their order; bytes that are not UTF-8 are replaced.
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
        let high = HTTPRequestReader.hexadecimal(rest[rest.startIndex]),
        let low = HTTPRequestReader.hexadecimal(rest[rest.startIndex + 1])
      {
        bytes.append(high << 4 | low)
        rest = rest.dropFirst(2)
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}
