/// A path to a field inside objects: `user.name`. A backslash before a dot makes it part of a name.
///
/// Immutable. The names are in raw memory, so that reading them avoids retain and release.
package final class FieldPath: @unchecked Sendable {
  package let text: String
  private let names: UnsafeMutableBufferPointer<Value>
  /// Owns the names' texts.
  private let owned: [OwnedValue]

  package init(_ text: String) {
    self.text = text
    var names: [[UInt8]] = [[]]
    var escaped = false
    for byte in text.utf8 {
      if escaped {
        if byte != UInt8(ascii: "."), byte != UInt8(ascii: "\\") {
          names[names.count - 1].append(UInt8(ascii: "\\"))
        }
        names[names.count - 1].append(byte)
        escaped = false
      } else if byte == UInt8(ascii: "\\") {
        escaped = true
      } else if byte == UInt8(ascii: ".") {
        names.append([])
      } else {
        names[names.count - 1].append(byte)
      }
    }
    if escaped { names[names.count - 1].append(UInt8(ascii: "\\")) }
    owned = names.map { name in name.withUnsafeBytes { OwnedValue(.string($0)) } }
    self.names = .allocate(capacity: names.count)
    _ = self.names.initialize(from: owned.map(\.value))
  }

  deinit { names.deallocate() }

  /// The names on the path to the field, at least one.
  var components: [String] { names.map { String(decoding: $0.rawBytes, as: UTF8.self) } }

  /// `value` with the field replaced or added; missing objects on the path are created. Nil if a value on the path is
  /// not an object.
  package func set(_ new: Value, in value: Value, _ json: JSONParser, _ arena: Arena) -> Value? {
    set(new, in: value, 0, json, arena)
  }

  private func set(
    _ new: Value, in value: Value, _ depth: Int, _ json: JSONParser, _ arena: Arena
  ) -> Value? {
    guard depth < names.count else { return new }
    let map = value.isAbsent ? Value(kind: .map) : json.expand(value, into: arena)
    guard map.is(.map) else { return nil }
    let name = names[depth]
    let at = map.entries.firstIndex { Self.isKey($0.key, name, json, arena) }
    let inner = at.map { map.entries[$0].value } ?? .absent
    guard let changed = set(new, in: inner, depth + 1, json, arena) else { return nil }
    let count = map.entries.count + (at == nil ? 1 : 0)
    let target = arena.entries(count)
    for (index, entry) in map.entries.enumerated() { target[index] = entry }
    if let at {
      target[at].value = changed
    } else {
      target[count - 1] = Entry(key: name, value: changed)
    }
    return Value(kind: .map, pointer: target.baseAddress, length: count)
  }

  /// `value` without the field; `value` itself if it has no such field.
  package func remove(from value: Value, _ json: JSONParser, _ arena: Arena) -> Value {
    remove(from: value, 0, json, arena)
  }

  private func remove(from value: Value, _ depth: Int, _ json: JSONParser, _ arena: Arena) -> Value {
    let map = json.expand(value, into: arena)
    guard map.is(.map) else { return value }
    let name = names[depth]
    guard let at = map.entries.firstIndex(where: { Self.isKey($0.key, name, json, arena) }) else {
      return value
    }
    if depth + 1 < names.count {
      let old = map.entries[at].value
      let changed = remove(from: old, depth + 1, json, arena)
      if changed.payload == old.payload, changed.length == old.length { return value }
      let target = arena.entries(map.entries.count)
      for (index, entry) in map.entries.enumerated() { target[index] = entry }
      target[at].value = changed
      return Value(kind: .map, pointer: target.baseAddress, length: target.count)
    }
    let target = arena.entries(max(map.entries.count - 1, 1))
    var count = 0
    for (index, entry) in map.entries.enumerated() where index != at {
      target[count] = entry
      count += 1
    }
    return Value(kind: .map, pointer: target.baseAddress, length: count)
  }

  private static func isKey(_ key: Value, _ name: Value, _ json: JSONParser, _ arena: Arena) -> Bool {
    guard key.is(.string) else { return false }
    let key = key.isEscaped ? JSONParser.unescape(key, into: arena) : key
    return key.rawBytes.elementsEqual(name.rawBytes)
  }
}

extension Value {
  /// The kind for messages: `a text`, `a number`.
  public var kindName: String {
    switch what {
    case .absent: "nothing"
    case .null: "null"
    case .bool: "a boolean"
    case .int, .uint, .double: "a number"
    case .string: "a text"
    case .bytes: "bytes"
    case .list, .jsonList: "a list"
    case .map, .jsonMap: "an object"
    case .timestamp: "a timestamp"
    case .duration: "a duration"
    case .type: "a type"
    case .optional: "an optional"
    case .error: "an error"
    }
  }
}
