import PipelineCore

/// A value as tests compare it: by content; numbers by value; the order of members does not matter.
///
/// A value that JSON cannot represent (a timestamp, bytes) is the text that ``JSONWriter`` writes for it.
package indirect enum TestValue: Sendable, Hashable {
  case null
  case bool(Bool)
  /// Every whole number within Int64, whether it was an int or a double.
  case int(Int64)
  case uint(UInt64)
  case double(Double)
  case text([UInt8])
  case list([TestValue])
  /// Sorted by key; if a key is repeated, its first value counts.
  case object([Member])

  /// A key with its value.
  package struct Member: Sendable, Hashable {
    package var key: [UInt8]
    package var value: TestValue
    package init(_ key: [UInt8], _ value: TestValue) {
      self.key = key
      self.value = value
    }
  }

  package static func text(_ text: String) -> TestValue { .text(Array(text.utf8)) }

  package static func number(_ number: Double) -> TestValue {
    if let whole = Int64(exactly: number) { return .int(whole) }
    if let whole = UInt64(exactly: number) { return .uint(whole) }
    return .double(number)
  }

  static func object(unsorted members: [Member]) -> TestValue {
    var seen: Set<[UInt8]> = []
    return .object(
      members.filter { seen.insert($0.key).inserted }
        .sorted { $0.key.lexicographicallyPrecedes($1.key) })
  }

  /// A deep copy; JSON text in it is parsed, and becomes a text if it is invalid.
  package init(_ value: Value) {
    let arena = Arena()
    self = Self.read(value, JSONParser(), arena)
  }

  /// A YAML node, read as a JSON value.
  package init(_ node: YAMLNode) {
    let arena = Arena()
    self = Self.read(LiteralParameter.value(of: node, in: arena), JSONParser(), arena)
  }

  private static func read(_ value: Value, _ parser: JSONParser, _ arena: Arena) -> TestValue {
    switch value.what {
    case .null, .absent: return .null
    case .bool: return .bool(value.asBool)
    case .int: return .int(value.asInt)
    case .uint: return Int64(exactly: value.asUInt).map { .int($0) } ?? .uint(value.asUInt)
    case .double where value.asDouble.isFinite: return .number(value.asDouble)
    case .string: return .text(Array(JSONParser.unescape(value, into: arena).rawBytes))
    case .jsonList, .jsonMap:
      let expanded = parser.expand(value, into: arena)
      return expanded.isError ? .text(Array(value.rawBytes)) : read(expanded, parser, arena)
    case .list: return .list(value.elements.map { read($0, parser, arena) })
    case .map:
      return object(
        unsorted: value.entries.map {
          let key = read($0.key, parser, arena)
          if case .text(let bytes) = key { return Member(bytes, read($0.value, parser, arena)) }
          return Member(Array(key.description.utf8), read($0.value, parser, arena))
        })
    case .optional: return value.wrapped.map { read($0, parser, arena) } ?? .null
    case .double, .bytes, .timestamp, .duration, .type, .error:
      let text = OutputBuffer()
      if JSONWriter.append(value.withoutNumberText, to: text) != nil { return .text("?") }
      let written = parser.parse(text.bytes, into: arena)
      return written.is(.string)
        ? .text(Array(JSONParser.unescape(written, into: arena).rawBytes)) : .text(Array(text.bytes))
    }
  }

  /// The value; valid until `arena` is reset.
  package func value(in arena: Arena) -> Value {
    switch self {
    case .null: .null
    case .bool(let flag): .bool(flag)
    case .int(let number): .int(number)
    case .uint(let number): .uint(number)
    case .double(let number): .double(number)
    case .text(let bytes): arena.string(String(decoding: bytes, as: UTF8.self))
    case .list(let elements): arena.list(elements.map { $0.value(in: arena) })
    case .object(let members):
      arena.map(
        members.map {
          (key: arena.string(String(decoding: $0.key, as: UTF8.self)), value: $0.value.value(in: arena))
        })
    }
  }

  package var owned: OwnedValue {
    let arena = Arena()
    return OwnedValue(value(in: arena))
  }
}

extension TestValue: CustomStringConvertible {
  /// The value as compact JSON.
  package var description: String {
    let arena = Arena()
    let text = OutputBuffer()
    JSONWriter.append(value(in: arena), to: text)
    return String(decoding: text.bytes, as: UTF8.self)
  }
}
