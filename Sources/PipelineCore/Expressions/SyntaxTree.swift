/// The nodes of one parsed expression, in one array; children come before their parents.
///
/// The tree is flat, so that any shape can be copied and freed without recursion.
struct SyntaxTree: Sendable {
  typealias ID = Int32

  struct Node: Sendable {
    var kind: Kind
    /// The byte range of the node in the expression.
    var start: Int32
    var end: Int32
    /// The height of the node's subtree, the node included.
    var depth: Int32
    /// The number of the text that contains the range: 0 is the expression itself, others are bodies of functions
    /// (``ExpressionSyntax/inserted``).
    var text: Int32 = 0
  }

  indirect enum Kind: Sendable {
    case literal(Literal)
    /// `absolute`: written with a leading dot.
    case identifier(String, absolute: Bool)
    case select(ID, field: String, fieldAt: Int32, optional: Bool)
    case has(ID, field: String, fieldAt: Int32, optional: Bool)
    case index(ID, ID, optional: Bool)
    case call(target: ID?, function: String, nameAt: Int32, arguments: [ID])
    case list([Element])
    case map([Member])
    /// `&&` (`isAnd`) or `||` over two or more terms.
    case logic([ID], isAnd: Bool)
    case conditional(ID, ID, ID)
    case not(ID)
    case negate(ID)
    case binary(Operator, ID, ID)
    case loop(Loop)
    /// `cel.bind(name, value, body)`.
    case bind(name: String, value: ID, body: ID)
    /// `optMap` (`flat` false) or `optFlatMap` (`flat` true).
    case optionalMap(ID, name: String, body: ID, flat: Bool)
    /// A call of a function that the pipeline file defines, with its own copy of the body.
    case apply(Application)
  }

  enum Literal: Sendable, Equatable {
    case null
    case bool(Bool)
    case int(Int64)
    case uint(UInt64)
    case double(Double)
    case string([UInt8])
    case bytes([UInt8])
  }

  struct Element: Sendable {
    var value: ID
    /// `[?x]`: present only if the optional has a value.
    var optional: Bool
  }

  struct Member: Sendable {
    var key: ID
    var value: ID
    var optional: Bool
  }

  enum Operator: UInt8, Sendable {
    case add, subtract, multiply, divide, modulo
    case less, lessOrEqual, greater, greaterOrEqual, equal, notEqual
    case `in`

    /// The operator's symbol.
    var symbol: String {
      switch self {
      case .add: return "+"
      case .subtract: return "-"
      case .multiply: return "*"
      case .divide: return "/"
      case .modulo: return "%"
      case .less: return "<"
      case .lessOrEqual: return "<="
      case .greater: return ">"
      case .greaterOrEqual: return ">="
      case .equal: return "=="
      case .notEqual: return "!="
      case .in: return "in"
      }
    }
  }

  struct Loop: Sendable {
    enum Kind: UInt8, Sendable {
      case all, exists, existsOne, map, filter, transformList, transformMap, transformMapEntry, sortBy, groupBy
    }
    var kind: Kind
    var range: ID
    var first: String
    /// The second variable: (index, value) or (key, value).
    var second: String?
    /// The condition of `filter` and of the longer forms of `map` and `transform...`; the key of the longer form of `groupBy`.
    var condition: ID?
    /// The predicate, or the result of each iteration.
    var body: ID
  }

  struct Application: Sendable {
    var function: UserFunction
    /// One for each parameter.
    var arguments: [ID]
    var body: ID
  }

  var nodes: [Node] = []
  var root: ID = -1

  subscript(id: ID) -> Node { nodes[Int(id)] }
}

extension SyntaxTree.Kind {
  /// A copy with other children.
  func mapChildren(_ new: (SyntaxTree.ID) -> SyntaxTree.ID) -> Self {
    switch self {
    case .literal, .identifier: return self
    case .select(let a, let field, let at, let optional):
      return .select(new(a), field: field, fieldAt: at, optional: optional)
    case .has(let a, let field, let at, let optional):
      return .has(new(a), field: field, fieldAt: at, optional: optional)
    case .index(let a, let b, let optional): return .index(new(a), new(b), optional: optional)
    case .call(let target, let function, let at, let arguments):
      return .call(target: target.map(new), function: function, nameAt: at, arguments: arguments.map(new))
    case .list(let elements): return .list(elements.map { .init(value: new($0.value), optional: $0.optional) })
    case .map(let members):
      return .map(members.map { .init(key: new($0.key), value: new($0.value), optional: $0.optional) })
    case .logic(let terms, let isAnd): return .logic(terms.map(new), isAnd: isAnd)
    case .conditional(let a, let b, let c): return .conditional(new(a), new(b), new(c))
    case .not(let a): return .not(new(a))
    case .negate(let a): return .negate(new(a))
    case .binary(let op, let a, let b): return .binary(op, new(a), new(b))
    case .loop(var loop):
      loop.range = new(loop.range)
      loop.condition = loop.condition.map(new)
      loop.body = new(loop.body)
      return .loop(loop)
    case .bind(let name, let value, let body): return .bind(name: name, value: new(value), body: new(body))
    case .optionalMap(let a, let name, let body, let flat):
      return .optionalMap(new(a), name: name, body: new(body), flat: flat)
    case .apply(var application):
      application.arguments = application.arguments.map(new)
      application.body = new(application.body)
      return .apply(application)
    }
  }
}
