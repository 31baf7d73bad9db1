// Warnings about valid expressions that probably do not mean what was intended.

extension CheckedExpression {
  /// Warnings for the author. `isCondition`: an event for which the expression fails is dropped, so that reads under a
  /// negation matter.
  package func advice(isCondition: Bool) -> [Diagnostic] {
    // Advice could quote a path from the body of a function that is a secret; only that body's own text masks it.
    if isSecret, !text.isSecret { return [] }
    var comparisons = ComparisonAdvice(self)
    comparisons.visit()
    return (isCondition ? negationAdvice() : []) + comparisons.diagnostics
  }

  /// Warnings about reads under a negation in a condition, which drop events without the field.
  package func negationAdvice() -> [Diagnostic] {
    reads.filter { $0.underNegation && $0.canBeMissing }.map { read in
      let fix = guarded(read)
      return Diagnostic(
        .expressionNegatedMissing,
        "where \(read.neededPath) is absent this condition fails instead of being true", at: read.location,
        help: fix == nil
          ? "Write event.?field.orValue(...), or guard it with has(\(read.neededPath))."
          : "Give it a value for that case, or guard it with has(\(read.neededPath)).",
        fixIts: fix.map { [$0] } ?? [])
    }
  }

  /// A fix: the read with a default that makes the condition true where the field is absent.
  private func guarded(_ read: ReadPath) -> Diagnostic.FixIt? {
    guard !text.isSecret, read.node >= 0, syntax.tree[read.node].text == 0, types[Int(read.node)].isDyn,
      !read.fields.isEmpty, let parent = syntax.tree.parent(of: read.node)
    else { return nil }
    let fallback: String
    switch syntax.tree[parent].kind {
    case .not: fallback = "false"
    case .binary(.equal, _, _), .binary(.notEqual, _, _): fallback = "null"
    case .binary(.in, read.node, _): fallback = "null"
    case .call(let target, let function, _, _)
    where target == read.node
      && ["contains", "startsWith", "endsWith", "matches", "lowerAscii", "upperAscii", "trim"].contains(function):
      fallback = "''"
    default: return nil
    }
    var path = read.variable
    for (index, field) in read.fields.enumerated() {
      let mark = index == read.missingFrom ? "?" : ""
      path += ReadPath.isName(field) ? ".\(mark)\(field)" : "[\(mark)'\(field)']"
    }
    let node = syntax.tree[read.node]
    return text.fix(Int(node.start), Int(node.end), "\(path).orValue(\(fallback))")
  }
}

extension ReadPath {
  /// Whether a field can be written after a dot.
  static func isName(_ field: String) -> Bool {
    field.utf8.first.map(ASCII.isLetterOrUnderscore) == true
      && field.utf8.allSatisfy { ASCII.isLetterOrUnderscore($0) || ASCII.isDigit($0) }
  }
}

/// Finds comparisons with a constant result.
private struct ComparisonAdvice {
  private let checked: CheckedExpression
  private let tree: SyntaxTree
  private(set) var diagnostics: [Diagnostic] = []

  init(_ checked: CheckedExpression) {
    self.checked = checked
    tree = checked.syntax.tree
  }

  private mutating func report(
    _ id: SyntaxTree.ID, _ outcome: Bool, _ reason: String, help: String? = nil,
    fix: (id: SyntaxTree.ID, text: String)? = nil
  ) {
    let (node, text) = (tree[id], checked.text)
    diagnostics.append(
      Diagnostic(
        .expressionKnownOutcome, "this is always \(outcome): \(reason)",
        at: text.location(Int(node.start), Int(node.end)), help: help,
        fixIts: text.isSecret
          ? [] : fix.map { [text.fix(Int(tree[$0.id].start), Int(tree[$0.id].end), $0.text)] } ?? []))
  }

  mutating func visit() {
    // The body of a function is checked for advice where it is defined.
    for id in tree.nodes.indices.map(SyntaxTree.ID.init) where tree[id].text == 0 {
      switch tree[id].kind {
      case .binary(let op, let left, let right): comparison(id, op, left, right)
      case .logic(let terms, let isAnd): chain(id, terms, isAnd)
      default: break
      }
    }
  }

  private func written(_ id: SyntaxTree.ID) -> String {
    checked.text.isSecret
      ? "it"
      : String(decoding: checked.text.text[Int(tree[id].start)..<Int(tree[id].end)], as: UTF8.self)
  }

  // MARK: One comparison

  private mutating func comparison(
    _ id: SyntaxTree.ID, _ op: SyntaxTree.Operator, _ left: SyntaxTree.ID, _ right: SyntaxTree.ID
  ) {
    if case .literal(let literal) = tree[right].kind {
      compare(id, op, left, right, literal)
    } else if case .literal(let literal) = tree[left].kind, let flipped = op.flipped {
      compare(id, flipped, right, left, literal)
    }
  }

  private mutating func compare(
    _ id: SyntaxTree.ID, _ op: SyntaxTree.Operator, _ value: SyntaxTree.ID, _ at: SyntaxTree.ID,
    _ literal: SyntaxTree.Literal
  ) {
    switch literal {
    case .string(let text) where op == .equal || op == .notEqual:
      compareText(id, op == .notEqual, value, at, text)
    case .int(let number):
      if isSize(value) {
        if op == .less && number <= 0 || op == .lessOrEqual && number < 0 || op == .equal && number < 0 {
          report(id, false, "a size is never below 0")
        } else if op == .greaterOrEqual && number <= 0 || op == .greater && number < 0 || op == .notEqual && number < 0
        {
          report(
            id, true, "a size is never below 0",
            help: "To test whether there is anything, write \(written(value)) > 0.",
            fix: op == .greaterOrEqual ? (id, "\(written(value)) > 0") : nil)
        }
      } else if case .binary(.modulo, _, let divisor) = tree[value].kind,
        case .literal(.int(let modulus)) = tree[divisor].kind, op == .equal || op == .notEqual,
        modulus != 0, number.magnitude >= modulus.magnitude
      {
        report(id, op == .notEqual, "a remainder of \(modulus) is smaller than \(modulus.magnitude)")
      }
    default: break
    }
  }

  private mutating func compareText(
    _ id: SyntaxTree.ID, _ outcome: Bool, _ value: SyntaxTree.ID, _ at: SyntaxTree.ID, _ text: [UInt8]
  ) {
    if case .call(.some, let function, _, let arguments) = tree[value].kind, arguments.isEmpty,
      function == "lowerAscii" || function == "upperAscii"
    {
      let isLower = function == "lowerAscii"
      let changed = text.map { byte -> UInt8 in
        let isOther = isLower ? (0x41...0x5A).contains(byte) : (0x61...0x7A).contains(byte)
        return isOther ? byte ^ 0x20 : byte
      }
      if changed != text {
        let literal = written(at)
        let corrected = isLower ? literal.lowercased() : literal.uppercased()
        report(
          id, outcome, "\(function)() leaves no \(isLower ? "upper" : "lower")-case letters",
          fix: literal.utf8.contains(0x5C) || literal.utf8.count != text.count + 2 ? nil : (at, corrected))
      }
      return
    }
    guard let choices = field(value)?.choices, !choices.isEmpty else { return }
    let wanted = String(decoding: text, as: UTF8.self)
    guard !choices.contains(where: { $0.utf8.elementsEqual(text) }) else { return }
    let near = Suggestion.nearest(to: wanted, among: choices)
    report(
      id, outcome, "the schema lists other values for \(written(value))",
      help: near.map { "Did you mean '\($0)'?" } ?? "It can be " + Suggestion.list(choices),
      fix: near.flatMap { $0.utf8.contains(0x27) || $0.utf8.contains(0x5C) ? nil : (at, "'\($0)'") })
  }

  private func field(_ id: SyntaxTree.ID) -> ExpressionType.Field? {
    guard case .select(let operand, let name, _, _) = tree[id].kind else { return nil }
    return checked.types[Int(operand)].field(name)
  }

  private func isSize(_ id: SyntaxTree.ID) -> Bool {
    guard case .call(let target, "size", _, let arguments) = tree[id].kind else { return false }
    return (target == nil ? 0 : 1) + arguments.count == 1
  }

  // MARK: Several comparisons

  /// Collects the comparisons of each read with literals in a chain of `&&` or `||`, keyed by the text of the read.
  private mutating func chain(_ id: SyntaxTree.ID, _ terms: [SyntaxTree.ID], _ isAnd: Bool) {
    var asked: [String: [(op: SyntaxTree.Operator, literal: SyntaxTree.Literal, at: SyntaxTree.ID)]] = [:]
    for term in terms {
      guard case .binary(let op, let left, let right) = tree[term].kind else { continue }
      if case .literal(let literal) = tree[right].kind, isRead(left) {
        asked[written(left), default: []].append((op, literal, right))
      } else if case .literal(let literal) = tree[left].kind, isRead(right), let op = op.flipped {
        asked[written(right), default: []].append((op, literal, left))
      }
    }
    for (read, all) in asked.sorted(by: { $0.key < $1.key }) where all.count > 1 {
      let decisive: SyntaxTree.Operator = isAnd ? .equal : .notEqual
      let same = all.filter { $0.op == decisive }
      if let first = same.first, let other = same.first(where: { !$0.literal.isSameKey(as: first.literal) }),
        first.literal.type == other.literal.type
      {
        let literals = same.map { written($0.at) }.joined(separator: ", ")
        let whole = terms.count == same.count
        report(
          id, !isAnd,
          isAnd
            ? "\(read) cannot be \(written(first.at)) and \(written(other.at)) at once"
            : "\(read) differs from \(written(first.at)) or from \(written(other.at)) whatever it is",
          help: isAnd
            ? "To ask for one of them write \(read) in [\(literals)]." : "To ask for neither write && in place of ||.",
          fix: whole ? (id, isAnd ? "\(read) in [\(literals)]" : "!(\(read) in [\(literals)])") : nil)
        continue
      }
      guard isAnd else { continue }
      let below = all.filter { $0.op == .less || $0.op == .lessOrEqual }.compactMap { bound($0.literal) }.min()
      let above = all.filter { $0.op == .greater || $0.op == .greaterOrEqual }.compactMap { bound($0.literal) }.max()
      if let below, let above, above > below {
        report(
          id, false, "nothing is above \(shown(above)) and below \(shown(below)) at once",
          help: "To match values outside of the range, write || instead of &&.")
      }
    }
  }

  /// Whether the node is a field or a variable, whose value is the same at each read.
  private func isRead(_ id: SyntaxTree.ID) -> Bool {
    switch tree[id].kind {
    case .identifier: return true
    case .select(let operand, _, _, _): return isRead(operand)
    default: return false
    }
  }

  private func bound(_ literal: SyntaxTree.Literal) -> Double? {
    switch literal {
    case .int(let number): return Double(number)
    case .uint(let number): return Double(number)
    case .double(let number): return number
    default: return nil
    }
  }

  private func shown(_ number: Double) -> String {
    Int64(exactly: number).map(String.init) ?? number.description
  }
}

extension SyntaxTree.Operator {
  /// The equivalent comparison with exchanged sides.
  var flipped: Self? {
    switch self {
    case .less: return .greater
    case .lessOrEqual: return .greaterOrEqual
    case .greater: return .less
    case .greaterOrEqual: return .lessOrEqual
    case .equal, .notEqual: return self
    default: return nil
    }
  }
}

extension SyntaxTree {
  /// The parent of the node.
  func parent(of child: ID) -> ID? {
    // Children come before their parents.
    nodes.indices.dropFirst(Int(child) + 1).map(ID.init).first { children(of: $0).contains(child) }
  }

  /// The children of the node.
  func children(of id: ID) -> [ID] {
    switch self[id].kind {
    case .literal, .identifier: return []
    case .select(let a, _, _, _), .has(let a, _, _, _), .not(let a), .negate(let a): return [a]
    case .index(let a, let b, _), .binary(_, let a, let b), .bind(_, let a, let b), .optionalMap(let a, _, let b, _):
      return [a, b]
    case .call(let target, _, _, let arguments): return (target.map { [$0] } ?? []) + arguments
    case .list(let elements): return elements.map(\.value)
    case .map(let members): return members.flatMap { [$0.key, $0.value] }
    case .logic(let terms, _): return terms
    case .conditional(let a, let b, let c): return [a, b, c]
    case .loop(let loop): return [loop.range, loop.body] + (loop.condition.map { [$0] } ?? [])
    case .apply(let application): return application.arguments + [application.body]
    }
  }
}
