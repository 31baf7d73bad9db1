/// The kind of a key: the first byte of what represents it.
enum KeyKind: UInt8, CaseIterable {
  case null, no, yes, int, uint, double, text, list, other

  /// The type of such a key.
  var name: String {
    switch self {
    case .null: "null"
    case .no, .yes: "bool"
    case .int: "int"
    case .uint: "uint"
    case .double: "double"
    case .text: "string"
    case .list: "list"
    case .other: "map"
    }
  }
}
