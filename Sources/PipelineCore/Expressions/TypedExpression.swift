/// A node of a checked expression with its type and its location, as a tree, for translation into other languages.
/// Bindings and functions of the file are replaced by their values.
package struct TypedExpression: Sendable {
  package indirect enum Form: Sendable {
    case null
    case bool(Bool)
    case int(Int64)
    case uint(UInt64)
    case double(Double)
    case string(String)
    case bytes
    case variable(String)
    case select(TypedExpression, field: String, isOptional: Bool)
    case has(TypedExpression, field: String)
    case index(TypedExpression, TypedExpression, isOptional: Bool)
    /// A call by the full name of the function; a receiver is the first argument.
    case call(String, [TypedExpression])
    case logic([TypedExpression], isAnd: Bool)
    case conditional(TypedExpression, TypedExpression, TypedExpression)
    case not(TypedExpression)
    case negate(TypedExpression)
    /// An operator by its symbol.
    case binary(String, TypedExpression, TypedExpression)
    case list([TypedExpression])
    /// Values that are computed before the body, and the body, in which they replace the variables.
    case bind([TypedExpression], TypedExpression)
    /// Any other form, by a name for messages.
    case other(String)
  }

  package let form: Form
  package let type: ExpressionType
  package let location: SourceLocation
  /// The number of nodes of the tree.
  package let size: Int

  fileprivate init(_ form: Form, _ type: ExpressionType, at location: SourceLocation) {
    self.form = form
    self.type = type
    self.location = location
    let parts: [TypedExpression] =
      switch form {
      case .null, .bool, .int, .uint, .double, .string, .bytes, .variable, .other: []
      case .select(let a, _, _), .has(let a, _), .not(let a), .negate(let a): [a]
      case .index(let a, let b, _), .binary(_, let a, let b): [a, b]
      case .call(_, let parts), .logic(let parts, _), .list(let parts): parts
      case .conditional(let a, let b, let c): [a, b, c]
      case .bind(let values, let body): values + [body]
      }
    size = parts.reduce(1) { $0 + $1.size }
  }
}

extension CheckedExpression {
  /// The expression as a tree; nil: it would have more than `limit` nodes once bindings are replaced.
  package func typedTree(limit: Int = 10_000) -> TypedExpression? {
    var reader = TypedTreeReader(self, limit: limit)
    let tree = reader.read(syntax.tree.root, [])
    return reader.isTooLarge ? nil : tree
  }
}

/// Reads the flat tree of a checked expression.
private struct TypedTreeReader {
  private let checked: CheckedExpression
  private let limit: Int
  private(set) var isTooLarge = false

  private typealias ID = SyntaxTree.ID

  init(_ checked: CheckedExpression, limit: Int) {
    self.checked = checked
    self.limit = limit
  }

  /// `locals`: the values of the live locals, by their indexes.
  mutating func read(_ id: SyntaxTree.ID, _ locals: [TypedExpression]) -> TypedExpression {
    let syntax = checked.syntax
    let node = syntax.tree[id]
    let text = node.text == 0 ? syntax.text : syntax.inserted[Int(node.text) - 1]
    let location = text.location(Int(node.start), Int(node.end))
    let read = TypedExpression(form(id, node.kind, locals), checked.types[Int(id)], at: location)
    if read.size > limit { isTooLarge = true }
    return isTooLarge ? TypedExpression(.other("a large expression"), read.type, at: location) : read
  }

  private mutating func form(
    _ id: SyntaxTree.ID, _ kind: SyntaxTree.Kind, _ locals: [TypedExpression]
  ) -> TypedExpression.Form {
    switch kind {
    case .literal(let literal): return Self.form(literal)
    case .identifier(let name, _): return identifier(id, name, locals)
    case .select(let target, let field, _, let isOptional):
      if case .variable(let index) = checked.resolutions[Int(id)] {
        return .variable(checked.scope.variables[index].name)
      }
      if case .typeName(let name) = checked.resolutions[Int(id)] { return .other("the type '\(name)'") }
      return .select(read(target, locals), field: field, isOptional: isOptional)
    case .has(let target, let field, _, _): return .has(read(target, locals), field: field)
    case .index(let target, let key, let isOptional):
      if case .table = checked.resolutions[Int(id)] { return .other("a row of a table") }
      return .index(read(target, locals), read(key, locals), isOptional: isOptional)
    case .call(let target, let function, _, let arguments):
      guard case .function(let spec, _, let passesTarget) = checked.resolutions[Int(id)] else {
        return .other("'\(function)'")
      }
      return .call(spec.name, ((passesTarget ? target.map { [$0] } ?? [] : []) + arguments).map { read($0, locals) })
    case .list(let elements):
      return elements.contains(where: \.optional)
        ? .other("an optional element of a list") : .list(elements.map { read($0.value, locals) })
    case .map: return .other("a map")
    case .logic(let terms, let isAnd): return .logic(terms.map { read($0, locals) }, isAnd: isAnd)
    case .conditional(let condition, let yes, let no):
      return .conditional(read(condition, locals), read(yes, locals), read(no, locals))
    case .not(let operand): return .not(read(operand, locals))
    case .negate(let operand): return .negate(read(operand, locals))
    case .binary(let symbol, let left, let right):
      if case .table = checked.resolutions[Int(id)] { return .other("a key of a table") }
      return .binary(symbol.symbol, read(left, locals), read(right, locals))
    case .loop(let loop): return .other("the loop '\(loop.kind)'")
    case .bind(_, let value, let body):
      let value = read(value, locals)
      return .bind([value], read(body, locals + [value]))
    case .optionalMap(_, _, _, let isFlat): return .other(isFlat ? "'optFlatMap'" : "'optMap'")
    case .apply(let application):
      var values: [TypedExpression] = []
      for argument in application.arguments { values.append(read(argument, locals + values)) }
      return .bind(values, read(application.body, locals + values))
    }
  }

  private func identifier(_ id: SyntaxTree.ID, _ name: String, _ locals: [TypedExpression]) -> TypedExpression.Form {
    switch checked.resolutions[Int(id)] {
    case .variable(let index): .variable(checked.scope.variables[index].name)
    case .local(let index): locals.indices.contains(index) ? locals[index].form : .other("'\(name)'")
    default: .other("'\(name)'")
    }
  }

  private static func form(_ literal: SyntaxTree.Literal) -> TypedExpression.Form {
    switch literal {
    case .null: .null
    case .bool(let value): .bool(value)
    case .int(let value): .int(value)
    case .uint(let value): .uint(value)
    case .double(let value): .double(value)
    case .string(let bytes): .string(String(decoding: bytes, as: UTF8.self))
    case .bytes: .bytes
    }
  }
}
