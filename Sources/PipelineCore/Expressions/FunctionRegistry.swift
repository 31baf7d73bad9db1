/// The single definition of a function of the expression language.
///
/// The checker uses the overloads, the evaluator the bodies, the reference the summaries, and tests run the examples.
package struct FunctionSpec: Sendable {
  /// The name: `size`, `math.greatest`, `trim`.
  package let name: String
  /// One sentence with a full stop.
  package let summary: String
  package let overloads: [FunctionOverload]
  /// Pairs of an expression and another one with the same value.
  package let examples: [(call: String, result: String)]
  /// Further paragraphs of Markdown, or empty.
  package var details: String { makeDetails() }
  /// Builds `details` when they are asked for, which keeps the program's start short.
  private let makeDetails: @Sendable () -> String
  /// The forms of a macro; nil for functions, which have overloads.
  let forms: [String]?
  /// The function of a plugin that is called; nil: the function is built in.
  package let plugin: (any ForeignFunction)?

  init(
    _ name: String, _ summary: String, _ overloads: [FunctionOverload],
    examples: [(call: String, result: String)], details: @autoclosure @escaping @Sendable () -> String = "",
    plugin: (any ForeignFunction)? = nil
  ) {
    self.name = name
    self.summary = summary
    self.overloads = overloads
    self.examples = examples
    makeDetails = details
    forms = nil
    self.plugin = plugin
  }

  /// A macro: the parser expands it, so the checker never sees it as a function.
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
    plugin = nil
  }

  package var isMacro: Bool { forms != nil }

  /// The signatures, one for each form: `string.trim() -> string`.
  package var signatures: [String] { forms ?? overloads.map { $0.signature(name) } }
}

/// One overload of a function.
package struct FunctionOverload: Sendable {
  /// The body: its arguments have the kinds of the parameters; strings have no escapes, lists and maps are in memory.
  typealias Body = @Sendable (Arguments) -> Value

  /// Whether it is called as `x.f(y)`; the receiver is then the first parameter.
  package let isMember: Bool
  package let parameters: [ExpressionType]
  package let result: ExpressionType
  /// Whether the last parameter may be repeated.
  package let isVariadic: Bool
  let body: Body
  /// The kinds of value that each parameter accepts, one bit per kind.
  let kinds: [UInt32]
  /// Whether a whole number is also a double, as it is for functions of a file: JSON writes 2.0 as 2.
  let takesWholeNumbers: Bool
  /// Called once for a call with constant arguments, when it is checked or compiled.
  let prepare: Prepare?

  /// The result of preparing constant arguments.
  enum Preparation {
    /// Nothing prepared: the body does everything.
    case none
    /// This body replaces the overload's; it receives all arguments, including the constant ones.
    case body(Body)
    /// The argument with this index makes every call fail.
    case fault(Int, message: String, help: String? = nil)
  }

  /// The constant parts of a call, known before it runs.
  struct Constants {
    /// The constant arguments; nil for the others.
    let arguments: [Value?]
    /// The grok patterns of the pipeline file.
    let patterns: GrokDefinitions

    subscript(index: Int) -> Value? { arguments[index] }
    var count: Int { arguments.count }
  }

  typealias Prepare = @Sendable (Constants) -> Preparation

  init(
    isMember: Bool, _ parameters: [ExpressionType], _ result: ExpressionType,
    isVariadic: Bool = false, takesWholeNumbers: Bool = false, prepare: Prepare? = nil, _ body: @escaping Body
  ) {
    self.isMember = isMember
    self.takesWholeNumbers = takesWholeNumbers
    self.parameters = parameters
    self.result = result
    self.isVariadic = isVariadic
    self.body = body
    self.prepare = prepare
    kinds = parameters.map { takesWholeNumbers ? KindSet.widened($0) : KindSet.of($0) }
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
  /// The signature in the reference: `string.trim() -> string`.
  package func signature(_ name: String) -> String {
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

  /// The kinds of a type, with those of whole numbers for doubles.
  static func widened(_ type: ExpressionType) -> UInt32 {
    type.unwrapped == .double ? of(type) | bit(.int) | bit(.uint) : of(type)
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
package enum FunctionRegistry {
  /// The functions, sorted by name.
  package static let all: [FunctionSpec] = table.values.sorted { $0.name < $1.name }

  /// Functions and macros, sorted by name.
  package static let callable: [FunctionSpec] = (all + macros).sorted { $0.name < $1.name }

  /// One family of functions, for the reference.
  package struct Family: Sendable {
    package let title: String
    package let summary: String
    /// The functions in the order of the reference.
    package let functions: [FunctionSpec]
  }

  static let table: [String: FunctionSpec] = {
    var table: [String: FunctionSpec] = [:]
    for spec in families.lazy.flatMap(\.functions) where !spec.isMacro {
      precondition(table[spec.name] == nil, "the function \(spec.name) is declared twice")
      table[spec.name] = spec
    }
    return table
  }()

  /// The function with this name; nil for macros.
  package static func function(named name: String) -> FunctionSpec? { table[name] }

  /// The function or macro with this name. `all` is only a macro, `flatten` only a function.
  package static func described(_ name: String) -> FunctionSpec? {
    table[name] ?? macros.first { $0.name == name }
  }
}
