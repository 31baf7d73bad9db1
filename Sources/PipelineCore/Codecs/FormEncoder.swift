/// `form`: a map as `a=1&b=x+y`, the encoding of HTML forms (application/x-www-form-urlencoded). A list repeats its
/// key, null is left out, and nested values become JSON text.
final class FormEncoder: EventEncoder {
  private let parser = JSONParser()
  private let arena = Arena()
  private let text = OutputBuffer()
  private let terminated: Bool

  init(terminated: Bool) { self.terminated = terminated }

  var mediaType: String { "application/x-www-form-urlencoded" }

  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    defer { arena.reset() }
    let value = parser.expand(value.unwrapped, into: arena)
    if value.is(.error) { return .error }
    guard value.is(.map) else { return .kind(value.what) }
    let start = output.count
    var isFirst = true
    for entry in value.entries {
      let content = parser.expand(entry.value.unwrapped, into: arena)
      let values = content.is(.list) ? Array(content.elements) : [content]
      for value in values {
        let value = value.unwrapped
        if value.isNull || value.isAbsent { continue }
        if !isFirst { output.append(UInt8(ascii: "&")) }
        isFirst = false
        if let failure = appendEscaped(key: entry.key, to: output) ?? appendEscaped(value, to: output) {
          output.truncate(to: start)
          return failure
        }
      }
    }
    if terminated { output.append(UInt8(ascii: "\n")) }
    return nil
  }

  private func appendEscaped(key: Value, to output: OutputBuffer) -> EncodingFailure? {
    switch key.what {
    case .string, .int, .uint, .bool:
      if let failure = appendEscaped(key, to: output) { return failure }
      output.append(UInt8(ascii: "="))
      return nil
    default: return .key(key.what)
    }
  }

  private func appendEscaped(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    text.clear()
    if let failure = appendBare(value, to: text) { return failure }
    for byte in text.bytes {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "*"), UInt8(ascii: "-"), UInt8(ascii: "."),
        UInt8(ascii: "_"):
        output.append(byte)
      case UInt8(ascii: " "): output.append(UInt8(ascii: "+"))
      default:
        output.append(UInt8(ascii: "%"))
        output.append(Self.digits[Int(byte >> 4)])
        output.append(Self.digits[Int(byte & 15)])
      }
    }
    return nil
  }

  private static let digits = Array("0123456789ABCDEF".utf8)
}
