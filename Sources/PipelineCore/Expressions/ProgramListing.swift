extension Program {
  /// The description of one operation.
  package struct Instruction: Sendable {
    /// The index in the program; other operations refer to it.
    package var number: Int
    /// `compare 3 >= 4`.
    package var text: String
    /// The source text of the operation.
    package var source: String
  }

  /// The operations that are evaluated, operands first; the last one is the result.
  package func listing() -> [Instruction] {
    var reached: Set<Int32> = []
    var pending = [root]
    while let at = pending.popLast() {
      guard at >= 0, reached.insert(at).inserted else { continue }
      pending += parts(of: code.pointee.operations[Int(at)])
    }
    return reached.sorted().map { at in
      Instruction(number: Int(at), text: words(code.pointee.operations[Int(at)]), source: source(at))
    }
  }

  private func child(_ operation: Operation, _ index: Int) -> Int32 {
    code.pointee.children[Int(operation.a) + index]
  }

  /// The operands of an operation.
  private func parts(of operation: Operation) -> [Int32] {
    switch operation.code {
    case .literal, .variable, .now, .local, .slot, .slotOrNull, .optionalSlot, .hasSlot, .compareSlot, .fail: return []
    case .slotOr: return [operation.c]
    case .declared, .argument, .select, .optionalSelect, .has, .not, .negate, .matches, .containsIndexed, .attempt,
      .row, .hasRow:
      return [operation.a]
    case .index, .optionalIndex, .arithmetic, .compare, .contains, .optionalOr, .optionalOrValue:
      return [operation.a, operation.b]
    case .list, .sum: return (0..<Int(operation.b)).map { child(operation, 2 * $0) }
    case .map, .object:
      return (0..<Int(operation.b)).flatMap { [child(operation, 3 * $0), child(operation, 3 * $0 + 1)] }
    case .and, .or, .call: return (0..<Int(operation.b)).map { child(operation, $0) }
    case .conditional, .loop: return [operation.a, operation.b, operation.c]
    case .bind, .optionalMap: return [operation.b, operation.c]
    }
  }

  private func words(_ operation: Operation) -> String {
    let parts = parts(of: operation)
    let list = parts.map(String.init).joined(separator: " ")
    let name = operation.literal.is(.string) ? shown(operation.literal) : ""
    switch operation.code {
    case .literal: return "constant \(shown(operation.literal))"
    case .variable: return "variable \(name)"
    case .now: return "now"
    case .local: return "local \(operation.a)"
    case .slot: return "slot \(operation.a)"
    case .slotOrNull: return "slot \(operation.a), else null" + needs(operation)
    case .declared: return "\(list) as the declared type"
    case .argument: return "\(list), checked: \(String(decoding: operation.literal.rawBytes, as: UTF8.self))"
    case .optionalSlot: return "slot \(operation.a) as optional" + needs(operation)
    case .hasSlot: return "slot \(operation.a) is there" + needs(operation)
    case .slotOr: return "slot \(operation.a), else \(operation.c)" + needs(operation)
    case .select: return "field \(name) of \(list)"
    case .optionalSelect: return "field \(name) of \(list) as optional"
    case .has: return "field \(name) of \(list) is there"
    case .index: return "index \(list)"
    case .optionalIndex: return "index \(list) as optional"
    case .list: return "list of \(parts.count)" + (list.isEmpty ? "" : ": \(list)")
    case .map, .object:
      return "map of \(parts.count / 2)"
        + (0..<parts.count / 2).map { " \(parts[2 * $0])=\(parts[2 * $0 + 1])" }.joined()
    case .and: return "and \(list)"
    case .or: return "or \(list)"
    case .not: return "not \(list)"
    case .negate: return "negate \(list)"
    case .conditional: return "if \(parts[0]) then \(parts[1]) else \(parts[2])"
    case .sum: return "sum \(list)"
    case .arithmetic:
      let symbol = SyntaxTree.Operator(rawValue: operation.detail)?.symbol ?? "?"
      return "arithmetic \(parts[0]) \(symbol) \(parts[1])" + (operation.flags == 1 ? ", int and double mix" : "")
    case .compare: return "compare \(parts[0]) \(relation(operation)) \(parts[1])"
    case .compareSlot:
      return "compare slot \(operation.c) \(relation(operation)) \(shown(operation.literal))"
    case .contains: return "\(parts[0]) in \(parts[1])"
    case .containsIndexed: return "\(parts[0]) in a constant set"
    case .row: return "row \(parts[0]) of table \(operation.b)"
    case .hasRow: return "\(parts[0]) in table \(operation.b)"
    case .loop:
      let kind = SyntaxTree.Loop.Kind(rawValue: operation.detail).map { "\($0)" } ?? "?"
      let first = operation.literal.asInt
      let locals = operation.flags & 1 == 0 ? "local \(first)" : "locals \(first) and \(first + 1)"
      return "loop \(kind) over \(operation.a), \(locals)"
        + (operation.b >= 0 ? ", \(kind == "groupBy" ? "by" : "where") \(operation.b)" : "") + ": \(operation.c)"
    case .bind: return "local \(operation.a) is \(operation.b) in \(operation.c)"
    case .optionalMap: return "local \(operation.a) is the value of \(operation.b), if any, in \(operation.c)"
    case .call:
      let site = code.pointee.sites[Int(operation.c)]
      let ways = site.count > 1 ? ", \(site.count) overloads" : ""
      return "call \(site.name)" + (list.isEmpty ? "" : " \(list)") + ways
    case .matches: return "match \(list) with a compiled pattern"
    case .attempt: return "try \(list)"
    case .optionalOr: return "optional \(parts[0]), else \(parts[1])"
    case .optionalOrValue: return "value of \(parts[0]), else \(parts[1])"
    case .fail: return "fail"
    }
  }

  /// The slot that an optional step requires.
  private func needs(_ operation: Operation) -> String {
    operation.b >= 0 ? ", needs slot \(operation.b)" : ""
  }

  private func relation(_ operation: Operation) -> String {
    Relation(rawValue: operation.detail)?.symbol ?? "?"
  }

  /// A constant as JSON, truncated.
  private func shown(_ value: Value) -> String {
    if isSecret { return LocatedText.mask }
    let buffer = OutputBuffer()
    if value.is(.type) { return String(decoding: value.rawBytes, as: UTF8.self) }
    if value.is(.optional) { return value.wrapped.map { "optional \(shown($0))" } ?? "optional.none()" }
    guard JSONWriter.append(value, to: buffer) == nil else { return value.shortTypeName }
    guard buffer.count > 60 else { return String(decoding: buffer.bytes, as: UTF8.self) }
    // Never cut within a code point.
    var end = 57
    while end > 0, buffer.bytes[end] & 0xC0 == 0x80 { end -= 1 }
    return String(decoding: buffer.bytes.prefix(end), as: UTF8.self) + "..."
  }
}
