/// The nodes of one parsed expression, in one array; children come before their parents.
///
/// A flat tree of any shape is copied and freed without recursion.
struct SyntaxTree: Sendable {
  typealias ID = Int32

  struct Node: Sendable {
    var kind: Kind
    /// The byte range of the node in the expression.
    var start: Int32
    var end: Int32
    /// The height of the node, including itself.
    var depth: Int32
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
      case all, exists, existsOne, map, filter, transformList, transformMap, transformMapEntry, sortBy
    }
    var kind: Kind
    var range: ID
    var first: String
    /// The second variable: (index, value) or (key, value).
    var second: String?
    /// The condition of `filter` and of the longer forms of `map` and `transform...`.
    var condition: ID?
    /// The predicate, or the result of each iteration.
    var body: ID
  }

  var nodes: [Node] = []
  var root: ID = -1

  subscript(id: ID) -> Node { nodes[Int(id)] }
}
