// Fix-its for type errors that one replacement corrects.

extension Checker {
  /// Warns if the data decide whether a division is a whole-number division: one side is a literal whole number, and
  /// the type of the other is unknown.
  mutating func adviseDivision(
    _ id: SyntaxTree.ID, _ left: SyntaxTree.ID, _ right: SyntaxTree.ID, _ types: [ExpressionType]
  ) {
    let literal: SyntaxTree.ID
    switch (tree[left].kind, tree[right].kind) {
    case (_, .literal(.int(1))), (_, .literal(.uint(1))): return
    case (_, .literal(.int)), (_, .literal(.uint)): literal = right
    case (.literal(.int), _), (.literal(.uint), _): literal = left
    default: return
    }
    let other = literal == right ? left : right
    report(
      .expressionWholeDivision,
      "this is whole-number division whenever \(written(other)) is a whole number", at: id,
      help:
        "Write \(asDouble(literal) ?? "double(\(written(literal)))") for a double, or int(\(written(other))) to show that this is intended.",
      fix: asDouble(literal).map { Fix(start: tree[literal].start, end: tree[literal].end, text: $0) })
  }

  /// A whole number in decimal digits, written as a double.
  private func asDouble(_ id: SyntaxTree.ID) -> String? {
    var digits = Substring(written(id))
    if digits.utf8.last == UInt8(ascii: "u") || digits.utf8.last == UInt8(ascii: "U") { digits = digits.dropLast() }
    guard !digits.isEmpty, digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
    return digits + ".0"
  }

  /// The literal operand, rewritten in the type of the other one, or the method to call in place of the operator.
  func conversion(
    _ symbol: String, _ types: [ExpressionType], _ left: SyntaxTree.ID, _ right: SyntaxTree.ID
  ) -> Fix? {
    if symbol == "in", types[0].unwrapped == .string, types[1].unwrapped == .string {
      return Fix(
        start: min(tree[left].start, tree[right].start), end: max(tree[left].end, tree[right].end),
        text: "\(receiver(right)).contains(\(written(left)))")
    }
    for (literal, type) in [(right, types[0].unwrapped), (left, types[1].unwrapped)] {
      guard case .literal(let value) = tree[literal].kind, let text = self.text(of: literal, value, as: type) else {
        continue
      }
      return Fix(start: tree[literal].start, end: tree[literal].end, text: text)
    }
    return nil
  }

  func text(of id: SyntaxTree.ID, _ value: SyntaxTree.Literal, as type: ExpressionType) -> String? {
    switch (value, type) {
    case (.int, .double), (.uint, .double): return asDouble(id)
    case (.int(let number), .uint): return number >= 0 ? "\(number)u" : nil
    case (.uint(let number), .int): return Int64(exactly: number).map { "\($0)" }
    case (.double(let number), .int): return Int64(exactly: number).map { "\($0)" }
    case (.int, .string), (.double, .string): return "'\(written(id))'"
    case (.string(let bytes), .int):
      return Int64(String(decoding: bytes, as: UTF8.self)).map { "\($0)" }
    case (.string(let bytes), .double):
      guard let value = bytes.withUnsafeBytes({ JSONParser.number($0) }), value.is(.double) else { return nil }
      return String(decoding: bytes, as: UTF8.self)
    case (.string(let bytes), .bool):
      return bytes.elementsEqual("true".utf8) ? "true" : bytes.elementsEqual("false".utf8) ? "false" : nil
    case (.string(let bytes), .timestamp):
      // A date means its midnight; a time without a zone is ambiguous.
      let text = String(decoding: bytes, as: UTF8.self)
      return [text, text + "T00:00:00Z"].first { $0.utf8.isTimestamp }.map { "timestamp('\($0)')" }
    case (.string(let bytes), .duration):
      if bytes.withUnsafeBytes({ TimeText.duration($0) != nil }) { return "duration(\(written(id)))" }
      let words = String(decoding: bytes, as: UTF8.self).split(separator: " ")
      guard words.count == 2, let count = Int(words[0]), let unit = Units.unitOfTime(String(words[1])), unit != "d"
      else { return nil }
      return "duration('\(count)\(unit)')"
    default: return nil
    }
  }

  /// `contains(a, b)` as `a.contains(b)`, `a.int()` as `int(a)`.
  func otherForm(
    _ id: SyntaxTree.ID, _ name: String, _ target: SyntaxTree.ID?, _ arguments: [SyntaxTree.ID]
  ) -> Fix? {
    let rest: String
    if let target {
      rest = "\(name)(\(([target] + arguments).map(written).joined(separator: ", ")))"
    } else {
      guard let first = arguments.first else { return nil }
      rest = "\(receiver(first)).\(name)(\(arguments.dropFirst().map(written).joined(separator: ", ")))"
    }
    return Fix(start: tree[id].start, end: tree[id].end, text: rest)
  }

  /// The source text, in parentheses if a following dot would otherwise apply to only a part of it.
  private func receiver(_ id: SyntaxTree.ID) -> String {
    switch tree[id].kind {
    case .identifier, .select, .index, .call, .list, .literal(.string): return written(id)
    default: return "(\(written(id)))"
    }
  }

  /// The overloads, beginning with the one that fits the arguments best.
  mutating func nearest(_ overloads: [FunctionOverload], to types: [ExpressionType]) -> [FunctionOverload] {
    let ranked = overloads.enumerated().map { index, overload -> (rank: Int, index: Int) in
      var rank = overload.accepts(count: types.count) ? 0 : 100 * abs(overload.parameters.count - types.count)
      for (type, wanted) in zip(types, inference.instantiate(overload.parameters))
      where !inference.isAssignable(type, wanted) { rank += 1 }
      return (rank, index)
    }
    return ranked.sorted { ($0.rank, $0.index) < ($1.rank, $1.index) }.map { overloads[$0.index] }
  }

  /// The fix for a pattern that one small change makes valid; nil if there is none.
  func patternFix(_ id: SyntaxTree.ID, _ pattern: [UInt8], _ reason: String) -> Fix? {
    guard let corrected = PatternAdvice.corrected(pattern, reason) else { return nil }
    let source = written(id)
    // The fix replaces source bytes, so the literal must equal the pattern byte for byte.
    guard let quote = source.utf8.firstIndex(where: { $0 == 0x27 || $0 == 0x22 }),
      source.utf8[source.utf8.index(after: quote)...].dropLast().elementsEqual(pattern)
    else { return nil }
    let mark = String(decoding: [source.utf8[quote]], as: UTF8.self)
    guard !corrected.utf8.contains(source.utf8[quote]) else { return nil }
    let prefix = corrected.utf8.contains(0x5C) ? "r" : String(source[..<quote])
    return Fix(start: tree[id].start, end: tree[id].end, text: prefix + mark + corrected + mark)
  }
}

/// Suggestions for patterns that RE2 rejects.
enum PatternAdvice {
  /// `inExpression`: the pattern is a string of an expression, in which backslashes are escapes.
  static func help(_ pattern: [UInt8], _ reason: String, inExpression: Bool = true) -> String {
    let text = String(decoding: pattern, as: UTF8.self)
    if ["(?=", "(?!", "(?<=", "(?<!"].contains(where: text.contains) {
      return "RE2 cannot look around; match in two steps: a.matches(...) && !a.matches(...)."
    }
    if reason.hasPrefix("no argument for repetition operator"), text.utf8.first == UInt8(ascii: "*") {
      return "In a pattern any text is '.*'; a dot by itself is '\\.'."
    }
    if (1...9).contains(where: { text.contains("\\\($0)") }) { return "RE2 has no back-references." }
    return inExpression
      ? "Patterns are written in RE2's syntax; backslashes need a raw string: r'\\d+'."
      : "Patterns are written in RE2's syntax."
  }

  /// The pattern with the smallest change that makes it valid.
  static func corrected(_ pattern: [UInt8], _ reason: String) -> String? {
    let text = String(decoding: pattern, as: UTF8.self)
    var candidates: [String] = []
    if reason.hasPrefix("missing closing )") || reason.hasPrefix("missing )") {
      candidates = [text + ")", text.utf8.count == 1 ? "\\(" : ""]
    } else if reason.hasPrefix("unexpected )") {
      candidates = [String(text.utf8.reversed().first == UInt8(ascii: ")") ? text.dropLast() : ""), "\\" + text]
    } else if reason.hasPrefix("missing closing ]") || reason.hasPrefix("missing ]") {
      candidates = [text + "]"]
    } else if reason.hasPrefix("no argument for repetition operator") {
      candidates = ["." + text]
    } else if text.hasSuffix("\\Z") {
      candidates = [text.dropLast(2) + "\\z"]
    }
    return candidates.first { candidate in
      !candidate.isEmpty && Array(candidate.utf8).withUnsafeBytes { Pattern($0).failure == nil }
    }
  }
}

extension String.UTF8View {
  fileprivate var isTimestamp: Bool { Array(self).withUnsafeBytes { TimeText.timestamp($0) != nil } }
}
