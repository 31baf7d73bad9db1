/// The static type of an expression.
public indirect enum ExpressionType: Sendable, Equatable {
  /// The type in which every object may have further fields.
  public var opened: ExpressionType {
    switch self {
    case .object(let fields, _):
      .object(fields: fields.map { Field($0.name, $0.type.opened, mayBeAbsent: $0.mayBeAbsent) }, open: true)
    case .list(let element): .list(element.opened)
    case .optional(let inner): .optional(inner.opened)
    case .wrapper(let inner): .wrapper(inner.opened)
    default: self
    }
  }

  /// Known only when the expression runs; fits everywhere.
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
  /// A map whose string keys are known. `open`: there may be further ones, of type `dyn`.
  case object(fields: [Field], open: Bool)
  /// A type parameter, in declarations of functions.
  case param(String)
  /// A type that only functions make and read, such as `net.IP`.
  case abstract(String, [ExpressionType])

  public struct Field: Sendable, Equatable {
    public var name: String
    public var type: ExpressionType
    /// Whether the field may be missing; reading it then needs `.?` or `has`.
    public var mayBeAbsent: Bool
    /// Whether a schema says so, not an expression: reading the field then makes the declared type of
    /// what JSON cannot tell apart (7 of a double), and null of an absent `T?`.
    public var isDeclared = false
    /// The texts that it can be, if the schema lists them.
    public var choices: [String] = []
    public init(_ name: String, _ type: ExpressionType, mayBeAbsent: Bool = false) {
      self.name = name
      self.type = type
      self.mayBeAbsent = mayBeAbsent
    }
  }

  public static func object(_ fields: [(String, ExpressionType)], open: Bool = false) -> Self {
    .object(fields: fields.map { Field($0.0, $0.1) }, open: open)
  }

  public var isDyn: Bool { self == .dyn }

  /// The type without the null that a wrapper adds.
  public var unwrapped: ExpressionType {
    if case .wrapper(let inner) = self { return inner }
    return self
  }

  /// The field of this name, if this is an object, or one that may be null, that has it.
  public func field(_ name: String) -> Field? {
    guard case .object(let fields, _) = unwrapped else { return nil }
    return fields.first { $0.name == name }
  }

  /// Whether it has members that can be selected.
  var hasFields: Bool {
    switch self {
    case .object, .map, .list: return true
    default: return false
    }
  }

  /// This type, or null as well.
  public var orNull: ExpressionType {
    switch self {
    case .wrapper, .null: return self
    default: return .wrapper(self)
    }
  }

  var isParam: Bool {
    if case .param = self { return true }
    return false
  }

  /// Whether a map of this type can have only text keys, as JSON asks; true where it is not known.
  public var hasOnlyTextKeys: Bool {
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
  /// The way CEL writes it: `map(string, list(int))`.
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
  /// As messages say it: `string or null` for what may be null.
  var inWords: String {
    if case .wrapper(let inner) = self { return "\(inner.inWords) or null" }
    return description
  }

  /// `an int`, `a string`.
  var withArticle: String {
    Printable.withArticle(inWords)
  }
}
