extension FunctionRegistry {
  /// Texts that represent other values.
  static let encodings: [FunctionSpec] = [
    FunctionSpec(
      "base64.encode", "Bytes as base64 text, with padding.",
      [
        .global([.bytes], .string, encodeBase64), .global([.string], .string, encodeBase64),
      ], examples: [("base64.encode(b'hello')", "'aGVsbG8='")]),
    FunctionSpec(
      "base64.decode", "The bytes that a base64 text stands for; padding may be missing.",
      [
        .global([.string], .bytes) { arguments in
          guard let bytes = Base64.decode(arguments[0].rawBytes) else {
            return arguments.context.failure(.invalidArgument, .absent, "the text is not base64")
          }
          return bytes.withUnsafeBytes { .bytes(arguments.context.arena.copy($0)) }
        }
      ], examples: [("base64.decode('aGVsbG8')", "b'hello'")]),
    FunctionSpec(
      "parseJson", "The value that a JSON text stands for.",
      [
        .global([.string], .dyn) { arguments in
          let text = arguments[0].rawBytes
          let value = arguments.context.json.parse(text, into: arguments.context.arena)
          guard let failure = JSONFailure(value) else { return value }
          return arguments.context.failure(.invalidArgument, .absent, text: failure.description)
        }
      ], examples: [("parseJson('{\"a\": [1, 2.5]}')", "{'a': [1, 2.5]}")]),
    FunctionSpec(
      "toJson", "The value as JSON text, on one line.",
      [
        .global([.dyn], .string) { arguments in
          var failure: EncodingFailure?
          let text = arguments.context.build { failure = JSONWriter.append(arguments[0], to: $0) }
          guard let failure else { return text }
          return arguments.context.failure(.invalidArgument, .absent, text: failure.description)
        }
      ], examples: [("toJson({'a': [1, null]})", "'{\"a\":[1,null]}'")]),
    FunctionSpec(
      "urlEncode", "The text as it may stand in a query or a path: all but letters, digits and -._~ escaped.",
      [
        .global([.string], .string) { arguments in
          arguments.context.build { buffer in
            for byte in arguments[0].rawBytes {
              if ASCII.isUnreserved(byte) {
                buffer.append(byte)
              } else {
                buffer.append(0x25)
                buffer.append(ASCII.hexDigit(byte >> 4))
                buffer.append(ASCII.hexDigit(byte & 15))
              }
            }
          }
        }
      ], examples: [("urlEncode('a b/c')", "'a%20b%2Fc'")]),
    FunctionSpec(
      "raw", "The text as it is, also in a URL, where other expressions are percent-encoded.",
      [.global([.string], .string) { arguments in arguments[0] }],
      examples: [("raw('a/b?c=d')", "'a/b?c=d'")],
      details:
        "`url: 'http://h/{{ raw(event.path) }}'` requests a path of several segments. Event data within `raw` can add parameters to a query; it still cannot leave the path, nor begin a query or a fragment."
    ),
    FunctionSpec(
      "urlDecode", "The text with its %-escapes resolved; '+' stays.",
      [
        .global([.string], .string) { arguments in
          let out = URLText.decode(arguments[0].rawBytes)
          guard out.withUnsafeBytes({ CodePoints.areValid($0) }) else {
            return arguments.context.failure(.invalidArgument, .absent, "the bytes are not valid UTF-8")
          }
          return arguments.context.string(out)
        }
      ], examples: [("urlDecode('a%20b')", "'a b'")]),
    FunctionSpec(
      "hex.encode", "Bytes as hexadecimal digits, two for each.",
      [.bytes, .string].map { kind in
        .global([kind], .string) { arguments in
          arguments.context.build { buffer in
            for byte in arguments[0].rawBytes { HexText.append(byte, to: buffer) }
          }
        }
      }, examples: [("hex.encode(b'\\xff\\x00')", "'ff00'")]),
    FunctionSpec(
      "hex.decode", "The bytes that hexadecimal digits stand for, in either case.",
      [
        .global([.string], .bytes) { arguments in
          let text = arguments[0].rawBytes
          guard text.count % 2 == 0 else {
            return arguments.context.failure(
              .invalidArgument, .absent, "the number of hexadecimal digits is odd")
          }
          var out: [UInt8] = []
          out.reserveCapacity(text.count / 2)
          for at in stride(from: 0, to: text.count, by: 2) {
            guard let high = ASCII.hexValue(text[at]), let low = ASCII.hexValue(text[at + 1])
            else {
              return arguments.context.failure(
                .invalidArgument, .absent, "the text is not hexadecimal digits")
            }
            out.append(UInt8(truncatingIfNeeded: high << 4 | low))
          }
          return out.withUnsafeBytes { .bytes(arguments.context.arena.copy($0)) }
        }
      ], examples: [("hex.decode('FF00')", "b'\\xff\\x00'")]),
  ]

  private static let encodeBase64: FunctionOverload.Body = { arguments in
    arguments.context.build { JSONWriter.appendBase64(arguments[0].rawBytes, to: $0) }
  }
}

package enum Base64 {
  /// Accepts the standard and the URL-safe alphabet, padding optional; nil for anything else.
  package static func decode(_ text: UnsafeRawBufferPointer) -> [UInt8]? {
    var end = text.count
    while end > 0, text[end - 1] == 0x3D, text.count - end < 2 { end -= 1 }
    guard end % 4 != 1 else { return nil }
    var out: [UInt8] = []
    out.reserveCapacity(end * 3 / 4)
    var bits: UInt32 = 0
    var count = 0
    for byte in text[..<end] {
      let digit: UInt32
      switch byte {
      case 0x41...0x5A: digit = UInt32(byte - 0x41)
      case 0x61...0x7A: digit = UInt32(byte - 0x61 + 26)
      case 0x30...0x39: digit = UInt32(byte - 0x30 + 52)
      case 0x2B, 0x2D: digit = 62
      case 0x2F, 0x5F: digit = 63
      default: return nil
      }
      bits = bits << 6 | digit
      count += 6
      if count >= 8 {
        count -= 8
        out.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
      }
    }
    return out
  }
}
