/// The static type of an expression.
public indirect enum ExpressionType: Sendable, Equatable {
  /// The type with further fields allowed in every object.
  package var opened: ExpressionType {
    switch self {
    case .object(let fields, _):
      .object(
        fields: fields.map { field in
          var field = field
          field.type = field.type.opened
          return field
        }, open: true)
    case .list(let element): .list(element.opened)
    case .optional(let inner): .optional(inner.opened)
    case .wrapper(let inner): .wrapper(inner.opened)
    default: self
    }
  }

  /// Known only at run time; always accepted.
  case dyn
  case null
  case bool
  case int
  case uint
  case double
  case string
  case bytes
  case timestamp
  case duration
  case list(ExpressionType)
  case map(ExpressionType, ExpressionType)
  /// A type as a value: `type(x)`, `int`.
  case type(ExpressionType)
  case optional(ExpressionType)
  /// The type or null: a field declared `int?`.
  case wrapper(ExpressionType)
  /// A map with known string keys. `open`: further keys of type `dyn` are allowed.
  case object(fields: [Field], open: Bool)
  /// A type parameter, in declarations of functions.
  case param(String)
  /// A type that only functions make and read, such as `net.IP`.
  case abstract(String, [ExpressionType])

  /// A field of a map type.
  public struct Field: Sendable, Equatable {
    /// The name of the member.
    public var name: String
    /// The type of its value.
    public var type: ExpressionType
    /// Whether the field may be missing; reading it then needs `.?` or `has`.
    package var mayBeAbsent: Bool
    /// Whether a schema, rather than an expression, declares the field: reading it then converts values that JSON does
    /// not distinguish (7 to a double), and gives null for an absent `T?`.
    package var isDeclared = false
    /// The possible texts, if the schema enumerates them.
    package var choices: [String] = []
    /// A member of an object.
    public init(_ name: String, _ type: ExpressionType, mayBeAbsent: Bool = false) {
      self.name = name
      self.type = type
      self.mayBeAbsent = mayBeAbsent
    }
  }

  package static func object(_ fields: [(String, ExpressionType)], open: Bool = false) -> Self {
    .object(fields: fields.map { Field($0.0, $0.1) }, open: open)
  }

  package var isDyn: Bool { self == .dyn }

  /// The type without null, if this is a wrapper.
  package var unwrapped: ExpressionType {
    if case .wrapper(let inner) = self { return inner }
    return self
  }

  /// The field with this name of an object, or of an object that may be null.
  package func field(_ name: String) -> Field? {
    guard case .object(let fields, _) = unwrapped else { return nil }
    return fields.first { $0.name == name }
  }

  /// Whether it has selectable members.
  var hasFields: Bool {
    switch self {
    case .object, .map, .list: return true
    default: return false
    }
  }

  /// The type or null.
  package var orNull: ExpressionType {
    switch self {
    case .wrapper, .null: return self
    default: return .wrapper(self)
    }
  }

  var isParam: Bool {
    if case .param = self { return true }
    return false
  }

  /// Whether all keys of a map of this type must be texts, as JSON requires; true if unknown.
  package var hasOnlyTextKeys: Bool {
    switch self {
    case .map(let key, let value):
      return (key == .string || key == .dyn || key.isParam) && value.hasOnlyTextKeys
    case .list(let element): return element.hasOnlyTextKeys
    case .wrapper(let inner), .optional(let inner): return inner.hasOnlyTextKeys
    case .object(let fields, _): return fields.allSatisfy { $0.type.hasOnlyTextKeys }
    default: return true
    }
  }
}

extension ExpressionType: CustomStringConvertible {
  /// The type in CEL's notation: `map(string, list(int))`.
  public var description: String {
    switch self {
    case .dyn: return "dyn"
    case .null: return "null_type"
    case .bool: return "bool"
    case .int: return "int"
    case .uint: return "uint"
    case .double: return "double"
    case .string: return "string"
    case .bytes: return "bytes"
    case .timestamp: return "timestamp"
    case .duration: return "duration"
    case .list(let element): return "list(\(element))"
    case .map(let key, let value): return "map(\(key), \(value))"
    case .type(let type): return "type(\(type))"
    case .optional(let type): return "optional_type(\(type))"
    case .wrapper(let type): return "wrapper(\(type))"
    case .object: return "map(string, dyn)"
    case .param(let name): return name
    case .abstract(let name, let parameters):
      return parameters.isEmpty
        ? name : "\(name)(\(parameters.map(\.description).joined(separator: ", ")))"
    }
  }
}

extension ExpressionType {
  /// The type in messages: `string or null` for a wrapper.
  package var inWords: String {
    if case .wrapper(let inner) = self { return "\(inner.inWords) or null" }
    return description
  }

  /// Names the fields of a map, where `map` alone does not tell two types apart: `a map {id: int, name: string}`.
  var inDetail: String { Printable.withArticle(Self.detail(self)) }

  private static func detail(_ type: ExpressionType) -> String {
    switch type {
    case .object(let fields, let open):
      let shown = fields.prefix(8).map { "\($0.name): \(detail($0.type))" }
      let more = open || fields.count > 8 ? ["..."] : []
      return "map {\((shown + more).joined(separator: ", "))}"
    case .list(let element): return "list(\(detail(element)))"
    case .optional(let inner): return "optional_type(\(detail(inner)))"
    default: return type.inWords
    }
  }

  /// `an int`, `a string`.
  var withArticle: String {
    Printable.withArticle(inWords)
  }
}
