import CJSON

#if canImport(Glibc)
  import Glibc
#endif

/// Writes values as JSON text.
///
/// | value | text |
/// |---|---|
/// | absent, null, an optional without a value | `null` |
/// | int, uint | all digits, also beyond 2^53 |
/// | double | as read, else the shortest digits that read back, always with `.` or `e`: `7.0`, `1e+21` |
/// | NaN and infinities | `"NaN"`, `"Infinity"`, `"-Infinity"` |
/// | bytes | base64 with padding |
/// | timestamp | RFC 3339 in UTC, as many fraction digits as needed: `2026-01-31T08:00:00.5Z` |
/// | duration | seconds: `1.5s` |
/// | type | its name |
/// | key of a map | strings as they are; int, uint and bool as their text |
/// | JSON text, strings with escapes | unchanged; in compact layout, without line breaks between tokens |
///
/// JSON text is usually not checked completely when it is read. It is checked when it is written, unless it is known to
/// be well formed (``Value/isChecked``): malformed text is never written as JSON (``EncodingFailure/malformed``). The
/// exception is a line of a stream of lines, which is written unchanged (``appendAsItCame(_:to:layout:)``), because a
/// malformed line cannot affect others.
package enum JSONWriter {
  /// The layout of the text.
  package enum Layout: Sendable, Equatable {
    /// One line, without white space between tokens.
    case compact
    /// One member or element per line, `indent` spaces per level.
    case pretty(indent: Int)
  }

  /// The maximum nesting: input is limited to less, so only a fold that grows without end reaches it.
  static let depthLimit = 512

  /// Appends the JSON text of `value`, which is always well formed. On failure removes the appended text and returns
  /// the reason.
  @discardableResult
  package static func append(
    _ value: Value, to output: OutputBuffer, layout: Layout = .compact
  ) -> EncodingFailure? {
    fault(of: value, output) ?? appendAsItCame(value, to: output, layout: layout)
  }

  /// Like ``append(_:to:layout:)``, but does not check a value that is JSON text as a whole: for a line of a stream of
  /// lines, which its reader checks, and for texts that are not output. JSON text within the value is checked.
  @discardableResult
  @inline(__always)
  package static func appendAsItCame(
    _ value: Value, to output: OutputBuffer, layout: Layout = .compact
  ) -> EncodingFailure? {
    if layout == .compact, value.is(.jsonMap) {
      appendRaw(value.rawBytes, to: output)
      return nil
    }
    return appendSlow(value, to: output, layout: layout)
  }

  /// The reason why a value cannot be written unchanged; nil if it can. Parts of a list or a map are checked when they
  /// are written.
  @inline(__always)
  private static func fault(of value: Value, _ output: OutputBuffer) -> EncodingFailure? {
    guard value.is(.jsonMap) || value.is(.jsonList), !value.isChecked else { return nil }
    return output.checker.validate(value.rawBytes) == nil ? nil : .malformed
  }

  /// Appends a value for a person who needs to see the input: malformed text is shown as a string.
  @discardableResult
  package static func appendShown(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    let failure = append(value, to: output)
    guard failure == .malformed else { return failure }
    let text = OutputBuffer()
    if let failure = appendUnchecked(value, to: text) { return failure }
    return withExtendedLifetime(text) { append(.string(text.bytes), to: output) }
  }

  /// Appends a value without checking any of its JSON text.
  package static func appendUnchecked(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    let checked = output.checksParts
    output.checksParts = false
    defer { output.checksParts = checked }
    return appendAsItCame(value, to: output)
  }

  @inline(never)
  private static func appendSlow(
    _ value: Value, to output: OutputBuffer, layout: Layout
  ) -> EncodingFailure? {
    let start = output.count
    var indent = -1
    if case .pretty(let width) = layout { indent = max(0, min(width, 16)) }
    if let failure = write(value, output, indent: indent, depth: 0) {
      output.truncate(to: start)
      return failure
    }
    return nil
  }

  /// Appends the text of a value as a key, which is the same for equal values: on one line, with numbers in normal
  /// form. Existing JSON text stays unchanged.
  @discardableResult
  static func appendKey(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    let start = output.count
    guard let failure = write(value, output, indent: numbersAnew, depth: 0) else { return nil }
    output.truncate(to: start)
    return failure
  }

  // MARK: Values

  /// The `indent` that writes one line and puts numbers in normal form.
  private static let numbersAnew = -2

  /// `indent`: the width of one level, or below zero for one line.
  private static func write(
    _ value: Value, _ output: OutputBuffer, indent: Int, depth: Int
  ) -> EncodingFailure? {
    switch value.what {
    case .absent, .null: output.append("null")
    case .bool: output.append(value.asBool ? "true" : "false")
    case .int: appendInt(value.asInt, to: output)
    case .uint: appendUInt(value.asUInt, to: output)
    case .double:
      if value.hasNumberText {
        appendNumber(value, to: output, indent)
      } else {
        appendDouble(value.asDouble, to: output)
      }
    case .string: appendString(value, to: output)
    case .bytes:
      output.append(UInt8(ascii: "\""))
      appendBase64(value.rawBytes, to: output)
      output.append(UInt8(ascii: "\""))
    case .jsonList, .jsonMap:
      if depth > 0, output.checksParts, let failure = fault(of: value, output) { return failure }
      if indent < 0 {
        appendRaw(value.rawBytes, to: output)
      } else {
        appendIndented(value.rawBytes, to: output, indent: indent, depth: depth)
      }
    case .timestamp:
      output.append(UInt8(ascii: "\""))
      appendTimestamp(seconds: value.asInt, nanoseconds: value.length, to: output)
      output.append(UInt8(ascii: "\""))
    case .duration:
      output.append(UInt8(ascii: "\""))
      appendDuration(nanoseconds: value.asInt, to: output)
      output.append(UInt8(ascii: "\""))
    case .type:
      appendString(value, to: output)
    case .optional:
      guard let wrapped = value.wrapped else {
        output.append("null")
        return nil
      }
      if depth >= depthLimit { return .tooDeep }
      return write(wrapped, output, indent: indent, depth: depth + 1)
    case .list: return writeList(value, output, indent: indent, depth: depth)
    case .map: return writeMap(value, output, indent: indent, depth: depth)
    case .error: return .error
    }
    return nil
  }

  /// Appends a double that has a number text.
  @inline(never)
  private static func appendNumber(_ value: Value, to output: OutputBuffer, _ indent: Int) {
    if indent == numbersAnew { appendDouble(value.asDouble, to: output) } else { output.append(value.numberText) }
  }

  private static func writeList(
    _ value: Value, _ output: OutputBuffer, indent: Int, depth: Int
  ) -> EncodingFailure? {
    if depth >= depthLimit { return .tooDeep }
    if value.length == 0 {
      output.append("[]")
      return nil
    }
    output.append(UInt8(ascii: "["))
    var first = true
    for element in value.elements {
      if !first { output.append(UInt8(ascii: ",")) }
      first = false
      if indent >= 0 { appendLineBreak(to: output, spaces: indent * (depth + 1)) }
      if let failure = write(element, output, indent: indent, depth: depth + 1) { return failure }
    }
    if indent >= 0 { appendLineBreak(to: output, spaces: indent * depth) }
    output.append(UInt8(ascii: "]"))
    return nil
  }

  private static func writeMap(
    _ value: Value, _ output: OutputBuffer, indent: Int, depth: Int
  ) -> EncodingFailure? {
    if depth >= depthLimit { return .tooDeep }
    if value.length == 0 {
      output.append("{}")
      return nil
    }
    output.append(UInt8(ascii: "{"))
    if indent < 0 {
      for index in 0..<Int(value.length) {
        let entry = value.entries[index]
        if let failure = writeMember(entry.key, isFirst: index == 0, output) { return failure }
        if entry.value.is(.string) {
          appendString(entry.value, to: output)
        } else if let failure = write(entry.value, output, indent: indent, depth: depth + 1) {
          return failure
        }
      }
      output.append(UInt8(ascii: "}"))
      return nil
    }
    var first = true
    for entry in value.entries {
      if !first { output.append(UInt8(ascii: ",")) }
      first = false
      appendLineBreak(to: output, spaces: indent * (depth + 1))
      if let failure = writeKey(entry.key, output) { return failure }
      output.append(": ")
      if let failure = write(entry.value, output, indent: indent, depth: depth + 1) { return failure }
    }
    appendLineBreak(to: output, spaces: indent * depth)
    output.append(UInt8(ascii: "}"))
    return nil
  }

  /// Appends the comma, if any, and the key of a member on one line.
  @inline(__always)
  private static func writeMember(_ key: Value, isFirst: Bool, _ output: OutputBuffer) -> EncodingFailure? {
    if key.is(.string), key.isPlain, let start = key.pointer {
      let length = Int(key.length)
      output.append(count: length &+ 4) { target in
        var at = target
        if !isFirst {
          at.pointee = UInt8(ascii: ",")
          at += 1
        }
        at.pointee = UInt8(ascii: "\"")
        memcpy(at + 1, start, length)
        at += length &+ 1
        at[0] = UInt8(ascii: "\"")
        at[1] = UInt8(ascii: ":")
        return at + 2 - target
      }
      return nil
    }
    if !isFirst { output.append(UInt8(ascii: ",")) }
    if let failure = writeKey(key, output) { return failure }
    output.append(UInt8(ascii: ":"))
    return nil
  }

  @inline(__always)
  private static func writeKey(_ key: Value, _ output: OutputBuffer) -> EncodingFailure? {
    if key.is(.string) {
      appendString(key, to: output)
      return nil
    }
    output.append(UInt8(ascii: "\""))
    switch key.what {
    case .int: appendInt(key.asInt, to: output)
    case .uint: appendUInt(key.asUInt, to: output)
    case .bool: output.append(key.asBool ? "true" : "false")
    default: return .key(key.what)
    }
    output.append(UInt8(ascii: "\""))
    return nil
  }

  // MARK: Strings and JSON text

  /// Appends a string in quotes.
  @inline(__always)
  package static func appendString(_ value: Value, to output: OutputBuffer) {
    let bytes = value.rawBytes
    assert(!value.isPlain || value.hasNothingToEscape, "a string marked as plain needs escapes")
    if value.isEscaped || value.isPlain {
      output.append(count: bytes.count &+ 2) { target in
        target[0] = UInt8(ascii: "\"")
        if let start = bytes.baseAddress { memcpy(target + 1, start, bytes.count) }
        target[bytes.count &+ 1] = UInt8(ascii: "\"")
        return bytes.count &+ 2
      }
      return
    }
    output.reserve(bytes.count &+ 2)
    output.append(UInt8(ascii: "\""))
    appendEscaped(bytes, to: output)
    output.append(UInt8(ascii: "\""))
  }

  /// Appends the bytes of a string, without quotes and with its escapes resolved.
  @inline(__always)
  package static func appendUnescaped(_ value: Value, to output: OutputBuffer) {
    guard value.isEscaped, value.length > 0 else {
      output.append(value.rawBytes)
      return
    }
    output.append(count: Int(value.length)) {
      rx_json_unescape(
        value.pointer?.assumingMemoryBound(to: CChar.self), Int(value.length),
        UnsafeMutableRawPointer($0).assumingMemoryBound(to: CChar.self))
    }
  }

  /// Appends the content of a string literal, without the quotes.
  @inline(__always)
  static func appendEscaped(_ bytes: UnsafeRawBufferPointer, to output: OutputBuffer) {
    guard let start = bytes.baseAddress else { return }
    var at = 0
    while true {
      let left = bytes.count &- at
      var plain = 0
      output.append(count: left) { target in
        plain = rx_json_copy_plain(
          (start + at).assumingMemoryBound(to: CChar.self), left,
          UnsafeMutableRawPointer(target).assumingMemoryBound(to: CChar.self))
        return plain
      }
      if plain == left { return }
      at &+= plain
      appendEscape(bytes[at], to: output)
      at &+= 1
    }
  }

  private static func appendEscape(_ byte: UInt8, to output: OutputBuffer) {
    switch byte {
    case UInt8(ascii: "\""): output.append("\\\"")
    case UInt8(ascii: "\\"): output.append("\\\\")
    case 0x08: output.append("\\b")
    case 0x09: output.append("\\t")
    case 0x0A: output.append("\\n")
    case 0x0C: output.append("\\f")
    case 0x0D: output.append("\\r")
    default:
      output.append("\\u00")
      output.append(hexadecimal(byte >> 4))
      output.append(hexadecimal(byte & 15))
    }
  }

  @inline(__always)
  static func hexadecimal(_ digit: UInt8) -> UInt8 {
    digit < 10 ? UInt8(ascii: "0") &+ digit : UInt8(ascii: "a") &+ digit &- 10
  }

  /// Appends JSON text unchanged, but without white space if it has line breaks between tokens, because readers of
  /// compact output split at line feeds.
  @inline(__always)
  private static func appendRaw(_ bytes: UnsafeRawBufferPointer, to output: OutputBuffer) {
    guard let start = bytes.baseAddress else { return }
    if !hasLineBreaks(bytes, start) { output.append(bytes) } else { appendMinified(bytes, to: output) }
  }

  @inline(__always)
  private static func hasLineBreaks(_ bytes: UnsafeRawBufferPointer, _ start: UnsafeRawPointer) -> Bool {
    // Most text has no byte below that of a space.
    rx_json_least_byte(start.assumingMemoryBound(to: CChar.self), bytes.count) < 0x20
      && (memchr(start, 0x0A, bytes.count) != nil || memchr(start, 0x0D, bytes.count) != nil)
  }

  @inline(never)
  private static func appendMinified(_ bytes: UnsafeRawBufferPointer, to output: OutputBuffer) {
    output.append(count: bytes.count + 64) { target in
      rx_json_minify(
        bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count,
        UnsafeMutableRawPointer(target).assumingMemoryBound(to: CChar.self))
    }
  }

  /// Appends JSON text with another layout; the tokens stay unchanged.
  private static func appendIndented(
    _ bytes: UnsafeRawBufferPointer, to output: OutputBuffer, indent: Int, depth: Int
  ) {
    var depth = depth
    var at = 0
    let end = bytes.count
    func skipWhite() {
      while at < end, bytes[at] <= 0x20 { at += 1 }
    }
    while true {
      skipWhite()
      guard at < end else { return }
      let byte = bytes[at]
      switch byte {
      case UInt8(ascii: "\""):
        let start = at
        at += 1
        while at < end, bytes[at] != UInt8(ascii: "\"") { at += bytes[at] == UInt8(ascii: "\\") ? 2 : 1 }
        at = min(at + 1, end)
        output.append(UnsafeRawBufferPointer(rebasing: bytes[start..<at]))
      case UInt8(ascii: "{"), UInt8(ascii: "["):
        output.append(byte)
        at += 1
        skipWhite()
        if at < end, bytes[at] == byte + 2 {
          output.append(byte + 2)
          at += 1
        } else {
          depth += 1
          // Text of which only the outline was checked may be nested more deeply than indentation is useful.
          appendLineBreak(to: output, spaces: indent * min(depth, depthLimit))
        }
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        depth = max(depth - 1, 0)
        appendLineBreak(to: output, spaces: indent * min(depth, depthLimit))
        output.append(byte)
        at += 1
      case UInt8(ascii: ","):
        output.append(byte)
        appendLineBreak(to: output, spaces: indent * min(depth, depthLimit))
        at += 1
      case UInt8(ascii: ":"):
        output.append(": ")
        at += 1
      default:
        output.append(byte)
        at += 1
      }
    }
  }

  private static func appendLineBreak(to output: OutputBuffer, spaces: Int) {
    output.append(UInt8(ascii: "\n"))
    output.append(count: spaces) { target in
      memset(target, 0x20, spaces)
      return spaces
    }
  }
}

/// The reason why a value cannot be written in a format.
package enum EncodingFailure: Error, Sendable, Equatable {
  /// Lists and maps nested deeper than the limit of 512.
  case tooDeep
  /// An error value: it has no text.
  case error
  /// JSON text that is malformed.
  case malformed
  /// A key of a map that is neither string nor int, uint or bool.
  case key(Value.Kind)
  /// The format cannot represent a value of this kind.
  case kind(Value.Kind)
  /// The event has a key that is not a column; the first event determines the columns unless they are named.
  case unknownColumn
  /// The format needs text, but the value has bytes that are not UTF-8.
  case invalidUTF8
  case tooManyFields(limit: Int)
  /// The event is not a valid InfluxDB point.
  case influx(InfluxFault)
  /// A plugin's encoder refuses the event.
  case plugin(PluginEncodingFault)
}

extension EncodingFailure: CustomStringConvertible {
  package var description: String {
    switch self {
    case .tooDeep: "the value nests deeper than \(JSONWriter.depthLimit) lists and maps"
    case .error: "the value is an error"
    case .malformed:
      "it is malformed JSON, which is not checked when it is read; 'validate: true' under 'decode' rejects it there"
    case .key(let kind): "a map with a key of kind \(kind) cannot be written; make its keys strings"
    case .kind(let kind): "a value of kind \(kind) cannot be written in this format"
    case .unknownColumn:
      "the event has a key that the first event did not have; name the columns under 'columns'"
    case .invalidUTF8: "the value contains bytes that are not UTF-8"
    case .tooManyFields(let limit): "the event has more than \(limit) fields"
    case .influx(let fault): "\(fault)"
    case .plugin(let fault): fault.message
    }
  }
}
