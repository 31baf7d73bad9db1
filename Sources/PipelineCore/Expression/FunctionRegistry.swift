/// One function of the expression language: everything that is known of it, said once.
///
/// The checker takes the overloads, the evaluator the bodies, the reference the summaries, and tests
/// run the examples.
public struct FunctionSpec: Sendable {
  /// How it is called: `size`, `math.greatest`, `trim`.
  public let name: String
  /// One sentence with a full stop.
  public let summary: String
  public let overloads: [FunctionOverload]
  /// An expression, and one that yields the same value.
  public let examples: [(call: String, result: String)]

  init(
    _ name: String, _ summary: String, _ overloads: [FunctionOverload],
    examples: [(call: String, result: String)]
  ) {
    self.name = name
    self.summary = summary
    self.overloads = overloads
    self.examples = examples
  }
}

/// One way of calling a function.
public struct FunctionOverload: Sendable {
  /// The body: its arguments have the kinds that the parameters ask for, strings without escapes,
  /// lists and maps in memory.
  typealias Body = @Sendable (Arguments) -> Value

  /// Whether it is called as `x.f(y)`; the receiver is then the first parameter.
  public let isMember: Bool
  public let parameters: [ExpressionType]
  public let result: ExpressionType
  /// The last parameter may be given any number of times, at least once.
  public let isVariadic: Bool
  let body: Body
  /// The kinds of value that each parameter takes, one bit a kind.
  let kinds: [UInt32]

  init(
    isMember: Bool, _ parameters: [ExpressionType], _ result: ExpressionType,
    isVariadic: Bool = false, _ body: @escaping Body
  ) {
    self.isMember = isMember
    self.parameters = parameters
    self.result = result
    self.isVariadic = isVariadic
    self.body = body
    kinds = parameters.map(KindSet.of)
  }

  /// `f(x, y)`.
  static func global(
    _ parameters: [ExpressionType], _ result: ExpressionType, _ body: @escaping Body
  ) -> Self {
    Self(isMember: false, parameters, result, body)
  }

  /// `x.f(y)`.
  static func member(
    _ parameters: [ExpressionType], _ result: ExpressionType, _ body: @escaping Body
  ) -> Self {
    Self(isMember: true, parameters, result, body)
  }

  static func variadic(
    _ parameters: [ExpressionType], _ result: ExpressionType, _ body: @escaping Body
  ) -> Self {
    Self(isMember: false, parameters, result, isVariadic: true, body)
  }

  func accepts(count: Int) -> Bool {
    isVariadic ? count >= parameters.count : count == parameters.count
  }
}

extension FunctionOverload {
  /// How it is called, as the reference shows it: `string.trim() -> string`.
  public func signature(_ name: String) -> String {
    var parameters = parameters.map(\.description)
    let receiver = isMember ? parameters.removeFirst() + "." : ""
    let rest = isVariadic ? ", ..." : ""
    return "\(receiver)\(name)(\(parameters.joined(separator: ", "))\(rest)) -> \(result)"
  }
}

/// The arguments of one call.
struct Arguments {
  let values: UnsafeMutablePointer<Value>
  let count: Int
  let context: Context

  @inline(__always)
  subscript(index: Int) -> Value { values[index] }
}

/// Sets of value kinds as bits.
enum KindSet {
  static let all = UInt32.max
  static let ip: UInt32 = 1 << 20
  static let cidr: UInt32 = 1 << 21

  @inline(__always)
  static func bit(_ kind: Value.Kind) -> UInt32 { 1 << UInt32(kind.rawValue) }

  @inline(__always)
  static func of(_ value: Value) -> UInt32 {
    if value.is(.string), value.flags & Value.netFlags != 0 {
      return value.flags & Value.ipFlag != 0 ? ip : cidr
    }
    return 1 << UInt32(value.kind)
  }

  static func of(_ type: ExpressionType) -> UInt32 {
    switch type {
    case .dyn, .param: return all
    case .null: return bit(.null)
    case .bool: return bit(.bool)
    case .int: return bit(.int)
    case .uint: return bit(.uint)
    case .double: return bit(.double)
    case .string: return bit(.string)
    case .bytes: return bit(.bytes)
    case .timestamp: return bit(.timestamp)
    case .duration: return bit(.duration)
    case .list: return bit(.list) | bit(.jsonList)
    case .map, .object: return bit(.map) | bit(.jsonMap)
    case .type: return bit(.type)
    case .optional: return bit(.optional)
    case .wrapper(let inner): return of(inner) | bit(.null)
    case .abstract("net.IP", _): return ip
    case .abstract("net.CIDR", _): return cidr
    case .abstract: return 0
    }
  }
}

/// All functions of the language, by name.
public enum FunctionRegistry {
  /// Sorted by name.
  public static let all: [FunctionSpec] = table.values.sorted { $0.name < $1.name }

  static let table: [String: FunctionSpec] = {
    var table: [String: FunctionSpec] = [:]
    for spec in libraries.joined() {
      precondition(table[spec.name] == nil, "the function \(spec.name) is declared twice")
      table[spec.name] = spec
    }
    return table
  }()

  public static func function(named name: String) -> FunctionSpec? { table[name] }
}
