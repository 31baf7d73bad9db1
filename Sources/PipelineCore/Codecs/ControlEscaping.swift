import CJSON

extension EventEncoder {
  /// This encoder for a terminal, for events that are one line of text: control characters are escaped.
  package func escapingControls() -> any EventEncoder {
    ControlEscapingEncoder(self, keepsLineBreaks: false, terminated: false)
  }
}

/// Makes the text of another encoder safe to show on a terminal.
///
/// Control characters, invisible ones (``Printable/isHidden(_:)``) and bytes that are not UTF-8 (`\xff`) become
/// escapes, except joiners and variation selectors, which some languages need within words. Tabs stay; line feeds stay
/// where they end the event or are part of its layout.
final class ControlEscapingEncoder: EventEncoder {
  private let encoder: any EventEncoder
  private let keepsLineBreaks: Bool
  private let terminated: Bool
  private let text = OutputBuffer()

  init(_ encoder: any EventEncoder, keepsLineBreaks: Bool, terminated: Bool) {
    self.encoder = encoder
    self.keepsLineBreaks = keepsLineBreaks
    self.terminated = terminated
  }

  var mediaType: String { encoder.mediaType }

  var now: Int64 {
    get { encoder.now }
    set { encoder.now = newValue }
  }

  var keepsState: Bool { encoder.keepsState }

  func reset() { encoder.reset() }

  var memory: [String] { encoder.memory }

  func goOn(after memory: [String]) -> Bool { encoder.goOn(after: memory) }

  func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    text.clear()
    if let failure = encoder.append(value, to: text) { return failure }
    var bytes = text.bytes
    let ended = terminated && bytes.last == UInt8(ascii: "\n")
    if ended { bytes = bytes.part(0, bytes.count - 1) }
    ControlEscaping.append(bytes, to: output, keepsLineBreaks: keepsLineBreaks, keepsJoiners: true)
    if ended { output.append(UInt8(ascii: "\n")) }
    return nil
  }
}

/// Makes text that comes from data safe for a terminal or a log line.
package enum ControlEscaping {
  /// Appends `bytes` with control sequences for terminals escaped as `\u001b`, `\xff`, `\n`, `\r`.
  /// - Parameter keepsStyles: Whether the colours, bold and faint text of reports are kept; they cannot move the cursor.
  package static func append(
    _ bytes: UnsafeRawBufferPointer, to output: OutputBuffer, keepsLineBreaks: Bool = false, keepsJoiners: Bool = false,
    keepsStyles: Bool = false
  ) {
    var plain = 0
    var at = 0
    while at < bytes.count {
      let byte = bytes[at]
      if byte >= 0x20 && byte < 0x7F || byte == 0x09 || (byte == 0x0A && keepsLineBreaks) {
        at += 1
        continue
      }
      if byte == 0x1B, keepsStyles, let style = styleLength(bytes, at) {
        at += style
        continue
      }
      let length = byte < 0x80 ? 1 : sequenceLength(bytes, at)
      if length > 1 {
        let scalar = scalar(bytes, at, length)
        if !Printable.isHidden(scalar) || keepsJoiners && Printable.isJoining(scalar) {
          at += length
          continue
        }
      }
      output.append(bytes.part(plain, at))
      switch (length, byte) {
      case (0, _):
        output.append("\\x")
        output.append(JSONWriter.hexadecimal(byte >> 4))
        output.append(JSONWriter.hexadecimal(byte & 15))
      case (_, 0x0A): output.append("\\n")
      case (_, 0x0D): output.append("\\r")
      default: appendEscape(scalar(bytes, at, length), to: output)
      }
      at += max(length, 1)
      plain = at
    }
    output.append(bytes.part(plain, bytes.count))
  }

  /// Makes a command's output safe for a terminal: texts from files, names and events cannot move the cursor, reorder
  /// or hide other text.
  package static func forTerminal(_ bytes: [UInt8]) -> [UInt8] {
    let output = OutputBuffer(capacity: bytes.count + 64)
    bytes.withUnsafeBytes {
      append($0, to: output, keepsLineBreaks: true, keepsJoiners: true, keepsStyles: true)
    }
    return Array(output.bytes)
  }

  /// The length of `ESC [ numbers m` at `at` with the numbers 0 (plain), 1 (bold), 2 (faint) and 30 to 37 (colours);
  /// nil for anything else.
  private static func styleLength(_ bytes: UnsafeRawBufferPointer, _ at: Int) -> Int? {
    var end = at + 2
    guard end < bytes.count, bytes[at + 1] == UInt8(ascii: "[") else { return nil }
    var number = 0
    while end < bytes.count, end - at < 16 {
      switch bytes[end] {
      case 0x30...0x39: number = min(number * 10 + Int(bytes[end] - 0x30), 1000)
      case UInt8(ascii: ";"), UInt8(ascii: "m"):
        guard (0...2).contains(number) || (30...37).contains(number) else { return nil }
        if bytes[end] == UInt8(ascii: "m") { return end + 1 - at }
        number = 0
      default: return nil
      }
      end += 1
    }
    return nil
  }

  /// Appends a JSON escape; two for a code point above U+FFFF.
  private static func appendEscape(_ scalar: UInt32, to output: OutputBuffer) {
    guard scalar <= 0xFFFF else {
      appendEscape(0xD800 + (scalar - 0x10000) >> 10, to: output)
      appendEscape(0xDC00 + (scalar - 0x10000) & 0x3FF, to: output)
      return
    }
    output.append("\\u")
    for shift in stride(from: 12, through: 0, by: -4) {
      output.append(JSONWriter.hexadecimal(UInt8(scalar >> UInt32(shift) & 15)))
    }
  }

  /// The length of the UTF-8 sequence at `at`; 0 if it is invalid.
  private static func sequenceLength(_ bytes: UnsafeRawBufferPointer, _ at: Int) -> Int {
    let length = bytes[at] >= 0xF0 ? 4 : bytes[at] >= 0xE0 ? 3 : 2
    guard at + length <= bytes.count else { return 0 }
    return UTF8Text.firstError(bytes.part(at, at + length)) == nil ? length : 0
  }

  /// `length` must be the result of `sequenceLength`.
  private static func scalar(_ bytes: UnsafeRawBufferPointer, _ at: Int, _ length: Int) -> UInt32 {
    var scalar = UInt32(bytes[at])
    if length > 1 { scalar &= 0x7F >> UInt32(length) }
    for index in 1..<max(length, 1) { scalar = scalar << 6 | UInt32(bytes[at + index] & 0x3F) }
    return scalar
  }
}
