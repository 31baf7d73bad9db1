/// Finds the reads of an expression, and whether it can fail.
struct ReadAnalysis {
  private let syntax: ExpressionSyntax
  private let tree: SyntaxTree
  private let scope: ExpressionScope
  private let types: [ExpressionType]
  private let resolutions: [Checker.Resolution]
  private(set) var reads: [ReadPath] = []
  private(set) var canFail = false
  /// Paths guaranteed by `has(...)` here.
  private var guards: Set<String> = []
  private var negated = false
  /// Within `optional.try(...)`, which turns every failure into an empty optional.
  private var isTried = false
  /// The arguments of function parameters, by their index among the live locals: a path, and the argument's node in the
  /// expression itself.
  private var arguments: [Int: (chain: Chain?, node: SyntaxTree.ID)] = [:]

  init(
    _ syntax: ExpressionSyntax, _ scope: ExpressionScope, _ types: [ExpressionType],
    _ resolutions: [Checker.Resolution]
  ) {
    self.syntax = syntax
    tree = syntax.tree
    self.scope = scope
    self.types = types
    self.resolutions = resolutions
  }

  /// A chain of constant selections from a variable.
  private struct Chain {
    var variable: Int
    var fields: [String] = []
    var optionalFrom: Int?
  }

  private func chain(_ id: SyntaxTree.ID) -> Chain? {
    if case .variable(let index) = resolutions[Int(id)] { return Chain(variable: index) }
    if case .local(let slot) = resolutions[Int(id)] { return arguments[slot]?.chain }
    guard case .none = resolutions[Int(id)] else { return nil }
    switch tree[id].kind {
    case .select(let operand, let field, _, let optional):
      return step(operand, field, optional)
    case .has(let operand, let field, _, _):
      return step(operand, field, true)
    case .index(let operand, let key, let optional):
      guard case .literal(.string(let name)) = tree[key].kind else { return nil }
      return step(operand, String(decoding: name, as: UTF8.self), optional)
    default: return nil
    }
  }

  private func step(_ operand: SyntaxTree.ID, _ field: String, _ optional: Bool) -> Chain? {
    guard var chain = chain(operand) else { return nil }
    if optional, chain.optionalFrom == nil { chain.optionalFrom = chain.fields.count }
    chain.fields.append(field)
    return chain
  }

  private func written(_ chain: Chain, _ count: Int? = nil) -> String {
    var path = scope.variables[chain.variable].name
    for field in chain.fields.prefix(count ?? chain.fields.count) {
      path += ReadPath.isName(field) ? ".\(field)" : "['\(field)']"
    }
    return path
  }

  /// Whether the types guarantee the first `count` fields.
  private func isDeclared(_ chain: Chain, _ count: Int) -> Bool {
    var type = scope.variables[chain.variable].type
    for field in chain.fields.prefix(count) {
      // A value that may be null has no fields when it is null.
      if case .wrapper = type { return false }
      guard let known = type.field(field), !known.mayBeAbsent else { return false }
      type = known.type
    }
    return true
  }

  /// The location of a node; for a node of a function's body, the location of the argument that it reads.
  private func location(_ id: SyntaxTree.ID) -> SourceLocation {
    let shown = outermost(id)
    let node = tree[shown]
    return syntax.text(node.text).location(Int(node.start), Int(node.end))
  }

  /// The reads of a function call: those of its body, with the paths of the arguments in place of the parameters.
  private mutating func visit(_ application: SyntaxTree.Application, from first: Int) {
    let outer = arguments
    for (index, argument) in application.arguments.enumerated() {
      let parameter = application.function.parameters[index]
      let known = chain(argument)
      let outmost = outermost(argument)
      if let known {
        // The argument is evaluated even if the body does not read it.
        let plain = known.optionalFrom ?? known.fields.count
        if plain > 0, !isDeclared(known, plain), !isTried { canFail = true }
      } else {
        visit(argument)
      }
      if parameter.type != .dyn, types[Int(argument)].isDyn { canFail = true }
      arguments[first + index] = (known, outmost)
    }
    let before = reads.count
    visit(application.body)
    if let returns = application.function.returns, returns != .dyn, types[Int(application.body)].isDyn {
      canFail = true
    }
    let made = reads[before...]
    arguments = outer
    for argument in application.arguments {
      guard let known = chain(argument) else { continue }
      if !made.contains(where: {
        $0.variable == scope.variables[known.variable].name && $0.fields.starts(with: known.fields)
      }) {
        record(known, argument)
      }
    }
  }

  /// The argument in the expression itself that a node of a function body stands for.
  private func outermost(_ id: SyntaxTree.ID) -> SyntaxTree.ID {
    guard tree[id].text != 0 else { return id }
    var root = id
    while true {
      switch tree[root].kind {
      case .select(let operand, _, _, _), .has(let operand, _, _, _), .index(let operand, _, _): root = operand
      default:
        if case .local(let slot) = resolutions[Int(root)], let argument = arguments[slot] { return argument.node }
        return id
      }
    }
  }

  /// `isNeeded`: the read fails even where the absent field is optional.
  private mutating func record(_ chain: Chain, _ id: SyntaxTree.ID, isNeeded: Bool = false) {
    let path = written(chain)
    // Steps before the first optional one are plain reads, which fail if the field is missing.
    let plain = isNeeded ? chain.fields.count : chain.optionalFrom ?? chain.fields.count
    let guaranteed = (0...plain).reversed().first { $0 > 0 && guards.contains(written(chain, $0)) } ?? 0
    let missing = plain > guaranteed && !isDeclared(chain, plain) && !isTried
    reads.append(
      ReadPath(
        variable: scope.variables[chain.variable].name, fields: chain.fields, path: path,
        location: location(id), canBeMissing: missing,
        isGuarded: isTried || chain.optionalFrom != nil || guaranteed == chain.fields.count && guaranteed > 0,
        underNegation: negated, node: id,
        missingFrom: (0..<plain).first { !isDeclared(chain, $0 + 1) } ?? 0, neededPath: written(chain, plain)))
    if missing { canFail = true }
  }

  /// The paths guaranteed by a condition that is true (`holds`) or false.
  private func guaranteed(_ id: SyntaxTree.ID, holds: Bool) -> Set<String> {
    switch tree[id].kind {
    case .has:
      guard holds, let chain = chain(id) else { return [] }
      return present(chain)
    case .call(let target?, "hasValue", _, _):
      guard holds, let chain = chain(target) else { return [] }
      return present(chain)
    case .not(let operand): return guaranteed(operand, holds: !holds)
    case .logic(let terms, let isAnd) where isAnd == holds:
      return terms.reduce(into: []) { $0.formUnion(guaranteed($1, holds: holds)) }
    default: return []
    }
  }

  /// The paths that exist if a field exists: its own and those of its parents.
  private func present(_ chain: Chain) -> Set<String> {
    Set((1...max(chain.fields.count, 1)).map { written(chain, $0) })
  }

  private mutating func visit(_ id: SyntaxTree.ID, knowing more: Set<String>) {
    let before = guards
    guards.formUnion(more)
    visit(id)
    guards = before
  }

  private mutating func visit(negating id: SyntaxTree.ID) {
    let before = negated
    negated = true
    visit(id)
    negated = before
  }

  mutating func visit(_ id: SyntaxTree.ID) {
    if let chain = chain(id) {
      record(chain, id)
      return
    }
    switch tree[id].kind {
    case .literal, .identifier:
      if case .failing = resolutions[Int(id)] { canFail = true }
    case .select(let operand, _, _, let optional):
      visit(operand)
      if !optional, !isField(id, of: operand) { canFail = true }
    case .has(let operand, _, _, _): visit(operand)
    case .index(_, let key, _) where isTable(id): visit(key)
    case .binary(_, let key, _) where isTable(id): visit(key)
    case .index(let operand, let key, let optional):
      visit(operand)
      visit(key)
      if !optional { canFail = true }
    case .call(_, "try", _, let arguments) where isTry(id):
      let before = (canFail, isTried)
      isTried = true
      for argument in arguments { visit(argument) }
      (canFail, isTried) = before
    case .call(let target?, "value", _, _) where chain(target)?.optionalFrom != nil:
      // Reading the value of an empty optional is an error.
      if let known = chain(target) { record(known, target, isNeeded: true) }
      canFail = true
    case .call(let target, let function, _, let arguments):
      let passed: [SyntaxTree.ID]
      if case .function(_, _, passesTarget: true) = resolutions[Int(id)], let target {
        passed = [target] + arguments
      } else {
        passed = arguments
      }
      for argument in passed {
        visit(argument)
        if isSize(id), chain(argument) != nil { reads[reads.count - 1].isSizeOnly = true }
      }
      if !Self.safe.contains(function) || !argumentsAreKnown(target, arguments) { canFail = true }
    case .list(let elements):
      for element in elements { visit(element.value) }
    case .map(let members):
      for member in members {
        visit(member.key)
        visit(member.value)
        if case .literal = tree[member.key].kind { continue }
        canFail = true
      }
    case .logic(let terms, let isAnd):
      for (at, term) in terms.enumerated() {
        var known: Set<String> = []
        for (other, condition) in terms.enumerated() where other != at {
          known.formUnion(guaranteed(condition, holds: isAnd))
        }
        visit(term, knowing: known)
        if types[Int(term)] != .bool { canFail = true }
      }
    case .conditional(let condition, let yes, let no):
      visit(condition)
      visit(yes, knowing: guaranteed(condition, holds: true))
      visit(no, knowing: guaranteed(condition, holds: false))
      if types[Int(condition)] != .bool { canFail = true }
    case .not(let operand):
      visit(negating: operand)
      if types[Int(operand)] != .bool { canFail = true }
    case .negate(let operand):
      visit(operand)
      canFail = true
    case .binary(let op, let left, let right):
      if op == .notEqual {
        visit(negating: left)
        visit(negating: right)
      } else {
        visit(left)
        visit(right)
      }
      switch op {
      case .equal, .notEqual: break
      case .less, .lessOrEqual, .greater, .greaterOrEqual, .in:
        if types[Int(left)].isDyn || types[Int(right)].isDyn { canFail = true }
      default:
        if types[Int(id)] != .double { canFail = true }
      }
    case .loop(let loop):
      visit(loop.range)
      if let condition = loop.condition { visit(condition) }
      visit(loop.body)
      canFail = true
    case .bind(_, let value, let body):
      visit(value)
      visit(body)
    case .optionalMap(let target, _, let body, _):
      visit(target)
      visit(body)
    case .apply(let application):
      guard case .application(let first) = resolutions[Int(id)] else { return }
      visit(application, from: first)
    }
  }

  private func isTable(_ id: SyntaxTree.ID) -> Bool {
    if case .table = resolutions[Int(id)] { true } else { false }
  }

  private func isTry(_ id: SyntaxTree.ID) -> Bool {
    if case .function(let spec, _, _) = resolutions[Int(id)] { return spec.name == "optional.try" }
    return false
  }

  private func isSize(_ id: SyntaxTree.ID) -> Bool {
    if case .function(let spec, _, _) = resolutions[Int(id)] { return spec.name == "size" }
    return false
  }

  /// Whether the node selects a field that the type of the operand guarantees.
  private func isField(_ id: SyntaxTree.ID, of operand: SyntaxTree.ID) -> Bool {
    guard case .select(_, let field, _, _) = tree[id].kind,
      case .object(let fields, _) = types[Int(operand)]
    else { return false }
    return fields.contains { $0.name == field && !$0.mayBeAbsent }
  }

  /// Functions that cannot fail with arguments of the right types.
  private static let safe: Set<String> = [
    "size", "contains", "startsWith", "endsWith", "trim", "lowerAscii", "upperAscii", "orValue", "or",
    "hasValue", "of", "none", "ofNonNull", "ofNonZeroValue", "string", "type", "dyn", "urlEncode",
  ]

  private func argumentsAreKnown(_ target: SyntaxTree.ID?, _ arguments: [SyntaxTree.ID]) -> Bool {
    ((target.map { [$0] } ?? []) + arguments).allSatisfy {
      let type = types[Int($0)]
      if case .optional = type { return true }
      return !type.isDyn
    }
  }
}
