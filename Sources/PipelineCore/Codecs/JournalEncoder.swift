/// How events are written as journal entries.
package struct JournalEncoding: Sendable, Equatable {
  /// The `PRIORITY` (0 to 7) of events that have none.
  package var priority = 6
  /// The `SYSLOG_IDENTIFIER` of events that have none.
  package var identifier = ""
  package init() {}
}

/// Writes events as entries of journald's native protocol.
///
/// The members of a map become the fields of the entry. Names are written in capital letters, digits and `_`; other
/// characters become `_`. The name of a nested map is the prefix of its members' names; a list of plain values becomes
/// a field that occurs several times. Names that begin with `_` are left out, because only journald may set those
/// fields. Without `MESSAGE` the whole event is the message, as JSON.
package final class JournalEncoder: EventEncoder {
  private let options: JournalEncoding
  private let parser = JSONParser()
  private let arena = Arena()
  private let text = OutputBuffer()
  private var name: [UInt8] = []
  private var fields = 0
  private var hasMessage = false
  private var hasPriority = false
  private var hasIdentifier = false
  /// journald accepts 1024 fields, and adds some itself.
  private static let fieldLimit = 900
  private static let depthLimit = 8
  private static let longestName = 64

  package init(_ options: JournalEncoding) { self.options = options }

  package var mediaType: String { "application/vnd.fdo.journal" }

  package func append(_ value: Value, to output: OutputBuffer) -> EncodingFailure? {
    defer { arena.reset() }
    let start = output.count
    let value = parser.expand(value.unwrapped, into: arena)
    if value.is(.error) { return .error }
    (fields, hasMessage, hasPriority, hasIdentifier) = (0, false, false, false)
    name = []
    var failure = value.is(.map) ? append(map: value, 0, output) : nil
    if failure == nil, !hasMessage { failure = append("MESSAGE", value, output) }
    if !hasPriority { append("PRIORITY", "\(options.priority)", output) }
    if !hasIdentifier, !options.identifier.isEmpty { append("SYSLOG_IDENTIFIER", options.identifier, output) }
    if failure != nil { output.truncate(to: start) }
    return failure
  }

  private func append(map value: Value, _ depth: Int, _ output: OutputBuffer) -> EncodingFailure? {
    let outer = name
    defer { name = outer }
    for entry in value.entries {
      name = outer
      guard let isOwn = extend(by: entry.key) else { return .key(entry.key.what) }
      if !isOwn { continue }
      let value = parser.expand(entry.value.unwrapped, into: arena)
      switch value.what {
      case .absent, .null: continue
      case .map where depth < Self.depthLimit:
        if let failure = append(map: value, depth + 1, output) { return failure }
      case .list where !value.elements.isEmpty:
        for element in value.elements {
          if let failure = append(field: parser.expand(element.unwrapped, into: arena), output) { return failure }
        }
      default:
        if let failure = append(field: value, output) { return failure }
      }
    }
    return nil
  }

  /// Appends a key to the name. False: only journald may set a field of this name. Nil: the value cannot be a key.
  private func extend(by key: Value) -> Bool? {
    text.clear()
    switch key.what {
    case .string: JSONWriter.appendUnescaped(key, to: text)
    case .int, .uint, .bool: if JSONWriter.append(key, to: text) != nil { return nil }
    default: return nil
    }
    if name.isEmpty, text.bytes.first == UInt8(ascii: "_") { return false }
    if !name.isEmpty { name.append(UInt8(ascii: "_")) }
    for byte in text.bytes {
      switch byte {
      case 0x61...0x7A: name.append(byte - 0x20)
      case 0x30...0x39, 0x41...0x5A: name.append(byte)
      default: name.append(UInt8(ascii: "_"))
      }
    }
    // A field name begins with a letter.
    if let first = name.first(where: { $0 != UInt8(ascii: "_") }), first >= 0x41 {
      name.removeFirst(name.prefix { $0 == UInt8(ascii: "_") }.count)
    } else {
      name.insert(UInt8(ascii: "X"), at: 0)
    }
    if name.count > Self.longestName { name.removeLast(name.count - Self.longestName) }
    return true
  }

  private func append(field value: Value, _ output: OutputBuffer) -> EncodingFailure? {
    if isName("PRIORITY") {
      if hasPriority { return nil }
      text.clear()
      if let failure = appendBare(value, to: text) { return failure }
      guard let number = Self.priority(text.bytes) else { return nil }
      hasPriority = true
      append("PRIORITY", "\(number)", output)
      return nil
    }
    if isName("MESSAGE") { hasMessage = true }
    if isName("SYSLOG_IDENTIFIER") { hasIdentifier = true }
    return name.withUnsafeBytes { append(name: $0, value, output) }
  }

  private func isName(_ text: StaticString) -> Bool { name.withUnsafeBytes { $0.equals(text) } }

  /// The number of a priority given as a number or by name; nil if the text is not a priority.
  private static func priority(_ text: UnsafeRawBufferPointer) -> Int? {
    if text.count == 1, text[0] &- 0x30 < 8 { return Int(text[0] - 0x30) }
    if let number = SyslogNames.number(of: text, in: SyslogNames.severities) { return number }
    for (name, number) in [("emergency", 0), ("critical", 2), ("error", 3), ("warn", 4)] as [(StaticString, Int)]
    where text.equals(name) {
      return number
    }
    return nil
  }

  private func append(_ name: StaticString, _ text: String, _ output: OutputBuffer) {
    output.append(name)
    output.append(UInt8(ascii: "="))
    output.append(text)
    output.append(0x0A)
  }

  private func append(_ name: StaticString, _ value: Value, _ output: OutputBuffer) -> EncodingFailure? {
    append(name: UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount), value, output)
  }

  /// Appends one field: as a line or, if the value contains a line feed, with its length in eight bytes before it.
  private func append(name: UnsafeRawBufferPointer, _ value: Value, _ output: OutputBuffer) -> EncodingFailure? {
    fields += 1
    if fields > Self.fieldLimit { return .tooManyFields(limit: Self.fieldLimit) }
    text.clear()
    if let failure = appendBare(value, to: text) { return failure }
    output.append(name)
    if text.bytes.offset(of: 0x0A) == nil {
      output.append(UInt8(ascii: "="))
    } else {
      output.append(0x0A)
      for shift in stride(from: 0, to: 64, by: 8) { output.append(UInt8(truncatingIfNeeded: text.count >> shift)) }
    }
    output.append(text.bytes)
    output.append(0x0A)
    return nil
  }
}
