import PipelineCore
import PipelineTesting

/// A JSON value whose members can be read: from a parsed document, or one to be written.
protocol JSONReadable {
  /// The member of that name; nil: there is none.
  subscript(_ name: String) -> Self? { get }
  /// The items of a list; empty for any other value.
  var items: [Self] { get }
  var asText: String? { get }
  var int: Int? { get }
  var bool: Bool? { get }
  /// The value in the form for writing, without fractional numbers.
  var copied: JSONText { get }
}

extension JSONReadable {
  /// A count or a time that another process has measured, clamped to 0 ... 2^60, so that differences of two and sums of
  /// a few stay in the range of `Int`.
  var count: Int? { int.map { min(max($0, 0), 1 << 60) } }
}

/// A JSON document from another process. Its size is not limited, because this process has requested it.
struct JSONView: JSONReadable {
  private let arena: Arena
  let value: Value

  /// Nil: the text is not JSON.
  init?(_ text: [UInt8]) {
    arena = Arena()
    // The parsed document points into the text.
    let memory = Slab(text)
    document = memory
    value = JSONParser(limits: JSONLimits(fields: .max)).parse(memory.bytes, into: arena)
    if value.isError { return nil }
  }

  private let document: Slab

  private init(_ value: Value, of parent: JSONView) {
    arena = parent.arena
    document = parent.document
    self.value = value
  }

  subscript(_ name: String) -> JSONView? {
    guard value.isAnyMap else { return nil }
    var name = name
    let found = name.withUTF8 { name in
      value.entries.first {
        $0.key.rawBytes.count == name.count && $0.key.rawBytes.elementsEqual(UnsafeRawBufferPointer(name))
      }
    }
    return found.map { JSONView($0.value, of: self) }
  }

  var items: [JSONView] { value.isAnyList ? value.elements.map { JSONView($0, of: self) } : [] }

  var text: String? {
    guard value.is(.string) else { return nil }
    return String(decoding: JSONParser.unescape(value, into: arena).rawBytes, as: UTF8.self)
  }

  var asText: String? { text }
  var int: Int? { value.is(.int) ? Int(value.asInt) : nil }
  var bool: Bool? { value.is(.bool) ? value.asBool : nil }

  var copied: JSONText {
    if value.isAnyMap {
      return .object(
        value.entries.map {
          (String(decoding: $0.key.rawBytes, as: UTF8.self), JSONView($0.value, of: self).copied)
        })
    }
    if value.isAnyList { return .array(items.map(\.copied)) }
    return text.map(JSONText.string) ?? int.map(JSONText.int) ?? bool.map(JSONText.bool) ?? .null
  }

  /// The value in the form that pipeline tests use.
  var testValue: TestValue { withExtendedLifetime(document) { TestValue(value) } }
}

extension JSONText: JSONReadable {
  subscript(_ name: String) -> JSONText? {
    guard case .object(let members) = self else { return nil }
    return members.first { $0.0 == name }?.1
  }

  var items: [JSONText] { if case .array(let items) = self { items } else { [] } }
  var asText: String? { if case .string(let text) = self { text } else { nil } }
  var int: Int? { if case .int(let number) = self { number } else { nil } }
  var bool: Bool? { if case .bool(let flag) = self { flag } else { nil } }
  var copied: JSONText { self }
}
