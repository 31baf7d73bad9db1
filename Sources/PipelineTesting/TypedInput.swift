import PipelineCore

/// Gives the events of an input the types that their source declares, because a test can write a time only as text.
enum TypedInput {
  /// A value that the source cannot send.
  struct Problem {
    /// The field, such as `a.b`; empty for the event itself.
    var path: String
    var type: String
    var written: String
    var help: String
  }

  /// The first text that should be a timestamp or duration according to the source's type, but is not.
  static func problem(_ value: TestValue, _ type: ExpressionType, _ path: String = "") -> Problem? {
    if case .null = value { return nil }
    func within(_ field: String) -> String { path.isEmpty ? field : "\(path).\(field)" }
    func wrong(_ type: String, _ example: String) -> Problem {
      Problem(
        path: path, type: type, written: Printable.cut("\(value)", limit: 60),
        help: "Write its text, such as \(example)")
    }
    switch (type, value) {
    case (.optional(let inner), _), (.wrapper(let inner), _): return problem(value, inner, path)
    case (.timestamp, _): return time(value) == nil ? wrong("timestamp", "2026-01-31T12:00:00Z") : nil
    case (.duration, _): return span(value) == nil ? wrong("duration", "1h30m") : nil
    case (.object(let fields, _), .object(let members)):
      return members.lazy.compactMap { member in
        fields.first { $0.name.utf8.elementsEqual(member.key) }.flatMap {
          problem(member.value, $0.type, within($0.name))
        }
      }.first
    case (.map(_, let inner), .object(let members)):
      return members.lazy.compactMap { problem($0.value, inner, within(String(decoding: $0.key, as: UTF8.self))) }.first
    case (.list(let inner), .list(let elements)): return elements.lazy.compactMap { problem($0, inner, path) }.first
    default: return nil
    }
  }

  private static func time(_ value: TestValue) -> (seconds: Int64, nanoseconds: UInt32)? {
    guard case .text(let bytes) = value else { return nil }
    return bytes.withUnsafeBytes { TimeText.timestamp($0) }
  }

  private static func span(_ value: TestValue) -> Int64? {
    guard case .text(let bytes) = value else { return nil }
    return bytes.withUnsafeBytes { TimeText.duration($0) }
  }

  /// The value, with memory of its own.
  static func owned(_ value: TestValue, _ type: ExpressionType) -> OwnedValue {
    let arena = Arena()
    return OwnedValue(self.value(value, type, in: arena))
  }

  /// The value as a source of this type sends it; valid until `arena` is reset.
  static func value(_ value: TestValue, _ type: ExpressionType, in arena: Arena) -> Value {
    switch (type, value) {
    case (.optional(let inner), _), (.wrapper(let inner), _): return self.value(value, inner, in: arena)
    case (.timestamp, .text):
      return time(value).map { .timestamp(seconds: $0.seconds, nanoseconds: $0.nanoseconds) } ?? value.value(in: arena)
    case (.duration, .text): return span(value).map { .duration(nanoseconds: $0) } ?? value.value(in: arena)
    case (.object(let fields, _), .object(let members)):
      return arena.map(
        members.map { member in
          let field = fields.first { $0.name.utf8.elementsEqual(member.key) }
          return (
            key: arena.string(String(decoding: member.key, as: UTF8.self)),
            value: self.value(member.value, field?.type ?? .dyn, in: arena)
          )
        })
    case (.map(_, let inner), .object(let members)):
      return arena.map(
        members.map {
          (key: arena.string(String(decoding: $0.key, as: UTF8.self)), value: self.value($0.value, inner, in: arena))
        })
    case (.list(let inner), .list(let elements)): return arena.list(elements.map { self.value($0, inner, in: arena) })
    default: return value.value(in: arena)
    }
  }
}
