import PipelineCore
import PipelineTesting

/// A JSON document that another process has sent.
struct JSONView {
  private let arena: Arena
  let value: Value

  /// Nil: it is not JSON.
  init?(_ text: [UInt8]) {
    arena = Arena()
    // The parsed document points into the text.
    let memory = Slab(text)
    document = memory
    value = JSONParser().parse(memory.bytes, into: arena)
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
    for entry in value.entries where String(decoding: entry.key.rawBytes, as: UTF8.self) == name {
      return JSONView(entry.value, of: self)
    }
    return nil
  }

  var items: [JSONView] { value.isAnyList ? value.elements.map { JSONView($0, of: self) } : [] }

  var text: String? {
    guard value.is(.string) else { return nil }
    return String(decoding: JSONParser.unescape(value, into: arena).rawBytes, as: UTF8.self)
  }

  var int: Int? { value.is(.int) ? Int(value.asInt) : nil }
  /// A count or a time that another process has measured: never negative, and so bounded that the difference of two and the sum of a few are in the
  /// range of `Int`.
  var count: Int? { int.map { min(max($0, 0), 1 << 60) } }
  var bool: Bool? { value.is(.bool) ? value.asBool : nil }

  /// The same to be written; numbers that are not whole are left out.
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

  /// Any value as the tests of pipelines have it.
  var testValue: TestValue { withExtendedLifetime(document) { TestValue(value) } }
}
