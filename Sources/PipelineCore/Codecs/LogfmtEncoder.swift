/// `logfmt`: a map as `key=value` pairs. Texts with spaces, quotes, `=` or control characters are quoted with JSON's
/// escapes; nested lists and maps become quoted JSON; null is an empty value. Characters that a key cannot contain
/// become `_`.
final class LogfmtEncoder: EventEncoder {
  private let parser = JSONParser()
  private let arena = Arena()
  private let text = OutputBuffer()

  var mediaType: String { "text/plain; charset=utf-8" }

  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    defer { arena.reset() }
    let value = parser.expand(value, into: arena)
    if value.is(.error) { return .error }
    guard value.is(.map) else { return .kind(value.what) }
    let start = output.count
    var first = true
    for entry in value.entries {
      if !first { output.append(UInt8(ascii: " ")) }
      first = false
      if let failure = appendKey(entry.key, to: output) ?? appendValue(entry.value, to: output) {
        output.truncate(to: start)
        return failure
      }
    }
    output.append(UInt8(ascii: "\n"))
    return nil
  }

  private func appendKey(_ key: Value, to output: OutputBuffer) -> EncodingFailure? {
    switch key.what {
    case .string:
      let bytes = JSONParser.unescape(key, into: arena).rawBytes
      if bytes.isEmpty { output.append(UInt8(ascii: "_")) }
      for byte in bytes { output.append(Self.isPlain(byte) ? byte : UInt8(ascii: "_")) }
    case .int, .uint, .bool:
      if let failure = JSONWriter.append(key, to: output) { return failure }
    default: return .key(key.what)
    }
    output.append(UInt8(ascii: "="))
    return nil
  }

  private func appendValue(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    let value = value.unwrapped
    switch value.what {
    case .absent, .null: return nil
    case .string:
      appendText(JSONParser.unescape(value, into: arena).rawBytes, to: output)
    default:
      text.clear()
      if let failure = JSONWriter.append(value, to: text) { return failure }
      var bytes = text.bytes
      if bytes.count >= 2, bytes[0] == UInt8(ascii: "\"") { bytes = bytes.part(1, bytes.count - 1) }
      appendText(bytes, to: output)
    }
    return nil
  }

  private func appendText(_ bytes: UnsafeRawBufferPointer, to output: OutputBuffer) {
    if !bytes.isEmpty, bytes.allSatisfy(Self.isPlain) {
      output.append(bytes)
    } else {
      JSONWriter.appendString(.string(bytes), to: output)
    }
  }

  private static func isPlain(_ byte: UInt8) -> Bool {
    byte > 0x20 && byte != 0x7F && byte != UInt8(ascii: "=") && byte != UInt8(ascii: "\"")
      && byte != UInt8(ascii: "\\")
  }
}
