extension ExpressionSyntax {
  /// A hash of the expression's meaning. Spaces, comments, redundant parentheses, quotes, escapes and the spelling of
  /// numbers do not affect it, nor whether a field is read as `event.k` or `event['k']`. `functions`: the hashes of the
  /// file's functions.
  func meaning(_ functions: [String: UInt64]) -> UInt64 {
    // Children come before their parents.
    var hashes: [UInt64] = []
    hashes.reserveCapacity(tree.nodes.count)
    // The terms of a chain; parentheses do not matter in `a && (b && c)`.
    func terms(_ ids: [SyntaxTree.ID], _ isAnd: Bool) -> [SyntaxTree.ID] {
      var terms: [SyntaxTree.ID] = []
      var waiting = Array(ids.reversed())
      while let id = waiting.popLast() {
        if case .logic(let inner, isAnd) = tree[id].kind { waiting += inner.reversed() } else { terms.append(id) }
      }
      return terms
    }
    for node in tree.nodes {
      var print = Fingerprint()
      func add(_ ids: SyntaxTree.ID...) { for id in ids { print.add(hashes[Int(id)]) } }
      func add(_ text: String) {
        print.add(UInt64(text.utf8.count))
        print.add(text.utf8)
      }
      func add(_ flag: Bool) { print.add(UInt8(flag ? 1 : 0)) }
      func field(_ operand: SyntaxTree.ID, _ name: some Collection<UInt8>, _ optional: Bool) {
        print.add(UInt8(2))
        add(operand)
        add(optional)
        print.add(UInt64(name.count))
        print.add(name)
      }
      switch node.kind {
      case .literal(let literal):
        print.add(UInt8(0))
        print.add(literal)
      case .identifier(let name, let absolute):
        print.add(UInt8(1))
        add(name)
        add(absolute)
      case .select(let operand, let name, _, let optional): field(operand, name.utf8, optional)
      case .index(let operand, let key, let optional):
        if case .literal(.string(let name)) = tree[key].kind {
          field(operand, name, optional)
        } else {
          print.add(UInt8(3))
          add(operand, key)
          add(optional)
        }
      case .has(let operand, let name, _, let optional):
        print.add(UInt8(4))
        add(operand)
        add(name)
        add(optional)
      case .call(let target, let function, _, let arguments):
        print.add(UInt8(5))
        add(function)
        add(target != nil)
        if let target { add(target) }
        print.add(UInt64(arguments.count))
        for argument in arguments { add(argument) }
        if let called = tree.called(node), let hash = functions[called.name] { print.add(hash) }
      case .list(let elements):
        print.add(UInt8(6))
        print.add(UInt64(elements.count))
        for element in elements {
          add(element.value)
          add(element.optional)
        }
      case .map(let members):
        print.add(UInt8(7))
        print.add(UInt64(members.count))
        for member in members {
          add(member.key, member.value)
          add(member.optional)
        }
      case .logic(let parts, let isAnd):
        let terms = terms(parts, isAnd)
        print.add(UInt8(8))
        add(isAnd)
        print.add(UInt64(terms.count))
        for term in terms { add(term) }
      case .conditional(let condition, let yes, let no):
        print.add(UInt8(9))
        add(condition, yes, no)
      case .not(let operand):
        print.add(UInt8(10))
        add(operand)
      case .negate(let operand):
        print.add(UInt8(11))
        add(operand)
      case .binary(let op, let left, let right):
        print.add(UInt8(12))
        print.add(op.rawValue)
        add(left, right)
      case .loop(let loop):
        print.add(UInt8(13))
        print.add(loop.kind.rawValue)
        add(loop.range)
        add(loop.first)
        add(loop.second != nil)
        if let second = loop.second { add(second) }
        add(loop.condition != nil)
        if let condition = loop.condition { add(condition) }
        add(loop.body)
      case .bind(let name, let value, let body):
        print.add(UInt8(14))
        add(name)
        add(value, body)
      case .optionalMap(let operand, let name, let body, let flat):
        print.add(UInt8(15))
        add(operand, body)
        add(name)
        add(flat)
      case .apply(let application):
        // Does not occur here: calls are expanded only when an expression is checked.
        print.add(UInt8(16))
        add(application.function.name)
        for argument in application.arguments { add(argument) }
      }
      hashes.append(print.value)
    }
    return hashes.indices.contains(Int(tree.root)) ? hashes[Int(tree.root)] : 0
  }
}

extension ExpressionTemplate {
  /// A hash of the template's meaning.
  func meaning(_ functions: [String: UInt64]) -> UInt64 {
    var print = Fingerprint()
    for part in parts {
      switch part {
      case .text(_, let shown):
        print.add(UInt8(0))
        print.add(UInt64(shown.count))
        print.add(shown)
      case .expression(let syntax):
        print.add(UInt8(1))
        print.add(syntax.meaning(functions))
      }
    }
    return print.value
  }
}

extension Fingerprint {
  fileprivate mutating func add(_ literal: SyntaxTree.Literal) {
    switch literal {
    case .null: add(UInt8(0))
    case .bool(let flag): add(UInt8(flag ? 2 : 1))
    case .int(let number):
      add(UInt8(3))
      add(UInt64(bitPattern: number))
    case .uint(let number):
      add(UInt8(4))
      add(number)
    case .double(let number):
      add(UInt8(5))
      add(number.bitPattern)
    case .string(let bytes):
      add(UInt8(6))
      add(bytes)
    case .bytes(let bytes):
      add(UInt8(7))
      add(bytes)
    }
  }
}
