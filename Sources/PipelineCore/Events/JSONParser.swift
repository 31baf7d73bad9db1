import CJSON

/// Reads JSON text (RFC 8259) into values.
///
/// Keeps its working memory between documents. Not thread-safe: one per executor.
///
/// What the standard leaves open:
/// - A number without `.`, `e` and `E` is an int if it fits Int64, else a uint if it fits UInt64, else a double. `-0`
///   is the double -0.0. `1e400` is infinite, `1e-400` is 0. A double keeps its text (``Value/hasNumberText``) if it
///   would otherwise be written with other bytes than it was read from.
/// - Of members with equal keys the first counts; ``parse(_:into:)`` drops the others. Keys are equal when
///   their bytes are, after escapes are resolved.
/// - Half of a surrogate pair (`"\ud83d"`) is legal; resolving the escape gives U+FFFD.
/// - A string with backslashes keeps them and is flagged ``Value/isEscaped``, so that it can be written unchanged;
///   ``unescape(_:into:)`` resolves them. Keys of maps never carry the flag.
/// - A byte order mark is not white space here; decoders skip it.
///
/// Strings, JSON text and texts of numbers in results point into the parsed text, which must stay alive and unchanged
/// as long as they are used. No byte outside the text is read.
package final class JSONParser {
  private let parser: OpaquePointer
  /// The limits of documents.
  package let limits: JSONLimits
  private let shimLimits: rx_json_limits
  /// The row whose tokens are already known, set while its source emits it; an optional shortcut for ``Projection``.
  /// The setter must clear it before the text or the tokens change.
  let indexed: UnsafeMutablePointer<rx_lines_row>

  package init(limits: JSONLimits = JSONLimits()) {
    parser = rx_json_parser_new()
    indexed = .allocate(capacity: 1)
    indexed.initialize(to: rx_lines_row())
    self.limits = limits
    shimLimits = limits.shim
  }

  deinit {
    rx_json_parser_free(parser)
    indexed.deallocate()
  }

  /// Parses a whole document, with maps and lists in `arena`, and checks all of it. An `.error` value gives the reason
  /// if the text is not a document (``JSONFailure/init(_:)-(Value)``).
  package func parse(_ text: UnsafeRawBufferPointer, into arena: Arena) -> Value {
    parse(text, shimLimits, into: arena)
  }

  private func parse(_ text: UnsafeRawBufferPointer, _ limits: rx_json_limits, into arena: Arena) -> Value {
    let trimmed = Self.trimmed(text)
    guard let base = trimmed.baseAddress?.assumingMemoryBound(to: CChar.self), let first = trimmed.first,
      first == UInt8(ascii: "{") || first == UInt8(ascii: "[")
    else { return open(text, checking: .everything) }
    var failure = rx_json_failure()
    let size = rx_json_index(parser, base, trimmed.count, &failure)
    if size >= 0 {
      var value = Value.null
      let memory = arena.allocate(Int(size))
      if rx_json_build(parser, base, trimmed.count, limits, memory, &value, &failure) { return value }
    }
    // Validating again gives the offset from the start of the whole text.
    return (validate(text) ?? JSONFailure(failure)).value
  }

  /// How thoroughly ``open(_:checking:)`` checks maps and lists.
  package enum Check: String, Sendable, CaseIterable {
    /// UTF-8, closed strings, balanced brackets, nothing after the end. Faults inside a part are found when it is read.
    case outline
    /// The whole grammar and the limits.
    case everything
  }

  /// Parses a scalar document; a map or a list becomes `.jsonMap` or `.jsonList` over its exact range, without
  /// surrounding white space. An `.error` value says why the text is not a document.
  @inline(__always)
  package func open(_ text: UnsafeRawBufferPointer, checking check: Check = .outline) -> Value {
    var value = Value.null
    var failure = rx_json_failure()
    if rx_json_open(
      parser, text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count, check == .everything,
      shimLimits, &value, &failure)
    {
      return value
    }
    return JSONFailure(failure).value
  }

  /// Checks a document completely without building values; nil if it is well formed and within the limits.
  package func validate(_ text: UnsafeRawBufferPointer) -> JSONFailure? {
    var failure = rx_json_failure()
    let valid = rx_json_validate(
      parser, text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count, shimLimits, &failure)
    return valid ? nil : JSONFailure(failure)
  }

  /// Parses JSON text into a list or a map, nested ones included; an `.error` value if the text is malformed. Any other
  /// value is returned unchanged. The number of fields was limited when the text was read.
  package func expand(_ value: Value, into arena: Arena) -> Value {
    guard value.is(.jsonMap) || value.is(.jsonList) else { return value }
    return parse(value.rawBytes, rx_json_limits(depth: shimLimits.depth, fields: .max), into: arena)
  }

  private static func trimmed(_ text: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
    func isWhite(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 }
    var start = 0
    var end = text.count
    while start < end, isWhite(text[start]) { start += 1 }
    while start < end, isWhite(text[end - 1]) { end -= 1 }
    return UnsafeRawBufferPointer(rebasing: text[start..<end])
  }
}

// MARK: Parts of JSON text; no parser needed

extension JSONParser {
  /// One field of a `.jsonMap`, the first with that name: absent if there is none, an `.error` value if the text before
  /// it is malformed. Nested maps and lists stay JSON text.
  @inline(__always)
  package static func lookup(_ json: Value, key: UnsafeRawBufferPointer) -> Value {
    rx_json_find(
      json.pointer?.assumingMemoryBound(to: CChar.self), Int(json.length),
      key.baseAddress?.assumingMemoryBound(to: CChar.self), key.count
    ).part(of: json)
  }

  /// One element of a `.jsonList`, from 0: absent past the end, an `.error` value if the text before it is malformed.
  /// Takes time in proportion to the text before the element.
  @inline(__always)
  package static func element(_ json: Value, at index: Int) -> Value {
    if index < 0 { return .absent }
    return rx_json_element(json.pointer?.assumingMemoryBound(to: CChar.self), Int(json.length), index).part(of: json)
  }

  /// Resolves the escapes of a string flagged ``Value/isEscaped``; any other value is returned unchanged.
  @inline(__always)
  package static func unescape(_ string: Value, into arena: Arena) -> Value {
    string.isEscaped && string.is(.string) ? unescapeSlow(string, into: arena) : string
  }

  @inline(never)
  private static func unescapeSlow(_ string: Value, into arena: Arena) -> Value {
    let memory = arena.allocate(Int(string.length))
    let count = rx_json_unescape(
      string.pointer?.assumingMemoryBound(to: CChar.self), Int(string.length),
      memory.assumingMemoryBound(to: CChar.self))
    return .string(UnsafeRawBufferPointer(start: memory, count: count))
  }

  /// Reads the whole `text`, which must outlive the value, as one JSON number; nil if it is not a number.
  package static func number(_ text: UnsafeRawBufferPointer) -> Value? {
    var value = Value.null
    return rx_json_number(text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count, &value)
      ? value : nil
  }
}

/// Checks bytes for valid UTF-8.
package enum UTF8Text {
  /// Whether all of `text` is UTF-8.
  @inline(__always)
  package static func isValid(_ text: UnsafeRawBufferPointer) -> Bool {
    text.count == 0 || rx_json_is_utf8(text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count)
  }

  /// The offset of the first invalid byte, or nil.
  package static func firstError(_ text: UnsafeRawBufferPointer) -> Int? {
    if isValid(text) { return nil }
    let at = rx_json_utf8_error(text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count)
    return at < text.count ? at : nil
  }
}
