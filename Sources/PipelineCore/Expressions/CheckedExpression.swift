/// A field of a variable that an expression reads.
package struct ReadPath: Sendable, Equatable {
  /// The variable's name: `event`.
  package var variable: String
  /// The fields from the variable on; empty if the whole variable is read.
  package var fields: [String]
  /// The path as written: `event.user.name`.
  package var path: String
  package var location: SourceLocation
  /// Whether the read fails if the field is absent: nothing declares or guards it.
  package var canBeMissing: Bool
  /// Read with `.?`, inside `has(...)`, or only after `has(...)` was true.
  package var isGuarded: Bool
  /// Read under `!` or on a side of `!=`: an absent field then makes the condition fail, where a reader would expect it
  /// to be true.
  package var underNegation: Bool
  /// Read by `size(...)`, which needs only the number of elements.
  var isSizeOnly = false
  /// The node of the tree; for a path, the first field that may be missing.
  var node: Int32 = -1
  var missingFrom = 0
  /// The shortest part of the path whose absence makes the read fail: `event.a` of `event.a.?b`.
  package var neededPath = ""
}

/// An expression with resolved names and types.
package struct CheckedExpression: Sendable {
  let syntax: ExpressionSyntax
  let scope: ExpressionScope
  let types: [ExpressionType]
  let resolutions: [Checker.Resolution]
  let localCount: Int
  /// The type of the result.
  package let type: ExpressionType
  /// The reads in the order of the text.
  package let reads: [ReadPath]
  /// Whether evaluation may fail; false only if that is certain.
  package let canFail: Bool

  package var text: LocatedText { syntax.text }
  /// Whether the expression, or a function that it calls, contains a secret: its result may be that secret.
  package var isSecret: Bool { text.isSecret || syntax.inserted.contains(where: \.isSecret) }

  /// The functions of plugins that it calls.
  package var foreignFunctions: [any ForeignFunction] {
    resolutions.compactMap { resolution in
      if case .function(let spec, _, _) = resolution { return spec.plugin }
      return nil
    }
  }

  /// The indexes of the tables that it reads, each once.
  package var tables: [Int] {
    resolutions.reduce(into: []) { found, resolution in
      if case .table(let index) = resolution, !found.contains(index) { found.append(index) }
    }
  }

  /// The type of the value that is read, without the optional.
  func type(of read: ReadPath) -> ExpressionType {
    guard read.node >= 0 else { return .dyn }
    if case .has = syntax.tree[read.node].kind { return .dyn }
    let type = types[Int(read.node)]
    if case .optional(let inner) = type { return inner }
    return type
  }

  /// Compiles the expression. With a projection, selections from the projection's variable read its slots; the
  /// projection must not be frozen yet.
  package func compile(projection: Projection? = nil) -> Program {
    Compiler.compile(self, projection)
  }
}

extension ExpressionSyntax {
  /// Resolves names and types; nil, with diagnostics, after an error.
  /// `expecting`: the required type. A dyn result is always accepted here and checked at run time.
  package func check(
    in scope: ExpressionScope, expecting: ExpressionType? = nil, into diagnostics: inout Diagnostics
  ) -> CheckedExpression? {
    diagnostics.concealing(text) { resolve(in: scope, expecting: expecting, into: &$0) }
  }

  private func resolve(
    in scope: ExpressionScope, expecting: ExpressionType?, into diagnostics: inout Diagnostics
  ) -> CheckedExpression? {
    guard let syntax = expanded(scope.functions, into: &diagnostics) else { return nil }
    return syntax.resolveExpanded(in: scope, expecting: expecting, into: &diagnostics)
  }

  private func resolveExpanded(
    in scope: ExpressionScope, expecting: ExpressionType?, into diagnostics: inout Diagnostics
  ) -> CheckedExpression? {
    var checker = Checker(self, scope)
    var type = checker.check(tree.root)
    if scope.checksTypes, let expecting, checker.diagnostics.allSatisfy({ $0.severity != .error }),
      !checker.inference.isAssignable(type, expecting)
    {
      checker.report(
        .expressionWrongType,
        "\(expecting.withArticle) is needed here, but this is \(checker.inference.resolve(type, final: true).withArticle)",
        at: tree.root, help: Self.conversion(type, expecting))
    }
    diagnostics.report(contentsOf: checker.diagnostics)
    guard checker.diagnostics.allSatisfy({ $0.severity != .error }) else { return nil }
    type = checker.inference.resolve(type, final: true)
    return checked(by: checker, type)
  }

  /// The checker's result; the checker must have reported no errors.
  func checked(by checker: Checker, _ type: ExpressionType) -> CheckedExpression {
    let types = checker.types.map { checker.inference.resolve($0, final: true) }
    var analysis = ReadAnalysis(self, checker.scope, types, checker.resolutions)
    analysis.visit(tree.root)
    return CheckedExpression(
      syntax: self, scope: checker.scope, types: types, resolutions: checker.resolutions,
      localCount: checker.localCount, type: type, reads: analysis.reads,
      canFail: analysis.canFail)
  }

  static func conversion(_ type: ExpressionType, _ wanted: ExpressionType) -> String? {
    switch (type, wanted) {
    case (.optional, _): return "End with .orValue(...) or .value()."
    case (_, .bool): return "Compare it with something: ... == ..., ... > ..., or has(...)."
    case (.int, .string), (.double, .string), (.uint, .string), (.bool, .string): return "Write string(...)."
    case (.string, .int), (.double, .int): return "Write int(...)."
    default: return nil
    }
  }
}
