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
  /// What the summary leaves unsaid; paragraphs of Markdown, or empty.
  public var details: String { makeDetails() }
  /// Made when somebody reads it, and not at the start.
  private let makeDetails: @Sendable () -> String
  /// How a macro is written; nil for functions, whose overloads say it.
  let forms: [String]?

  init(
    _ name: String, _ summary: String, _ overloads: [FunctionOverload],
    examples: [(call: String, result: String)], details: @autoclosure @escaping @Sendable () -> String = ""
  ) {
    self.name = name
    self.summary = summary
    self.overloads = overloads
    self.examples = examples
    makeDetails = details
    forms = nil
  }

  /// A macro: what the parser knows, not a function that the checker could find.
  init(
    macro name: String, _ summary: String, forms: [String],
    examples: [(call: String, result: String)], details: @autoclosure @escaping @Sendable () -> String = ""
  ) {
    self.name = name
    self.summary = summary
    overloads = []
    self.examples = examples
    makeDetails = details
    self.forms = forms
  }

  public var isMacro: Bool { forms != nil }

  /// How it is called, one line for each way: `string.trim() -> string`.
  public var signatures: [String] { forms ?? overloads.map { $0.signature(name) } }
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
  /// What is done once, when a call with constant arguments is checked or compiled.
  let prepare: Prepare?

  /// What constant arguments make of a call.
  enum Preparation {
    /// Nothing: the body does it all.
    case none
    /// This body does the rest; it gets all arguments, the constant ones, too.
    case body(Body)
    /// The call can never succeed because of the argument with this index.
    case fault(Int, message: String, help: String? = nil)
  }

  /// What is known of a call before it is made.
  struct Constants {
    /// Each argument that is constant, nil for the others.
    let arguments: [Value?]
    /// The grok patterns that the pipeline file defines.
    let patterns: GrokDefinitions

    subscript(index: Int) -> Value? { arguments[index] }
    var count: Int { arguments.count }
  }

  typealias Prepare = @Sendable (Constants) -> Preparation

  init(
    isMember: Bool, _ parameters: [ExpressionType], _ result: ExpressionType,
    isVariadic: Bool = false, prepare: Prepare? = nil, _ body: @escaping Body
  ) {
    self.isMember = isMember
    self.parameters = parameters
    self.result = result
    self.isVariadic = isVariadic
    self.body = body
    self.prepare = prepare
    kinds = parameters.map(KindSet.of)
  }

  /// `f(x, y)`.
  static func global(
    _ parameters: [ExpressionType], _ result: ExpressionType, prepare: Prepare? = nil,
    _ body: @escaping Body
  ) -> Self {
    Self(isMember: false, parameters, result, prepare: prepare, body)
  }

  /// `x.f(y)`.
  static func member(
    _ parameters: [ExpressionType], _ result: ExpressionType, prepare: Prepare? = nil,
    _ body: @escaping Body
  ) -> Self {
    Self(isMember: true, parameters, result, prepare: prepare, body)
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
  /// The functions, sorted by name.
  public static let all: [FunctionSpec] = table.values.sorted { $0.name < $1.name }

  /// Functions and macros, sorted by name: what an expression may call.
  public static let callable: [FunctionSpec] = (all + macros).sorted { $0.name < $1.name }

  /// One family of functions, for the reference.
  public struct Family: Sendable {
    public let title: String
    public let summary: String
    /// In the order in which the reference shows them.
    public let functions: [FunctionSpec]
  }

  static let table: [String: FunctionSpec] = {
    var table: [String: FunctionSpec] = [:]
    for spec in families.lazy.flatMap(\.functions) where !spec.isMacro {
      precondition(table[spec.name] == nil, "the function \(spec.name) is declared twice")
      table[spec.name] = spec
    }
    return table
  }()

  /// The function by this name; nil for macros.
  public static func function(named name: String) -> FunctionSpec? { table[name] }

  /// What is called by this name, macros included. `all` is only a macro, `flatten` only a function.
  public static func described(_ name: String) -> FunctionSpec? {
    table[name] ?? macros.first { $0.name == name }
  }
}
