/// Tables: `users[event.user]`, an optional, and `event.user in users`.
extension Checker {
  /// The table of that name, unless a variable has it.
  func table(named name: String) -> ExpressionScope.NamedTable? {
    guard !isWithinCall, !visibleLocals.contains(where: { $0.name == name }), scope.index(of: name) == nil else {
      return nil
    }
    return scope.tables.first { $0.name == name }
  }

  /// The table that a node names.
  func table(_ id: SyntaxTree.ID) -> ExpressionScope.NamedTable? {
    guard case .identifier(let name, absolute: false) = tree[id].kind else { return nil }
    return table(named: name)
  }

  mutating func row(_ id: SyntaxTree.ID, of table: ExpressionScope.NamedTable, _ key: SyntaxTree.ID) -> ExpressionType {
    check(key, of: table)
    resolutions[Int(id)] = .table(table.index)
    return .optional(table.row)
  }

  mutating func presence(_ id: SyntaxTree.ID, in table: ExpressionScope.NamedTable, _ key: SyntaxTree.ID)
    -> ExpressionType
  {
    check(key, of: table)
    resolutions[Int(id)] = .table(table.index)
    return .bool
  }

  /// A key of another type would never be found.
  private mutating func check(_ key: SyntaxTree.ID, of table: ExpressionScope.NamedTable) {
    var type = check(key)
    // No key: no row.
    if case .optional(let inner) = type { type = inner }
    guard !fits(type, table.key) else { return }
    report(
      .expressionNoOverload, "the keys of '\(table.name)' have the type \(table.key), and this is \(type.withArticle)",
      at: key, help: ExpressionSyntax.conversion(type, table.key) ?? "A row is found by a key of the same type only.")
  }

  /// A table is no value.
  mutating func misusedTable(_ id: SyntaxTree.ID, _ table: ExpressionScope.NamedTable) -> ExpressionType {
    var help = "Write \(table.name)[KEY] for a row, which is an optional, or KEY in \(table.name)."
    var fix: Fix?
    if let parent = tree.parent(of: id), case .select(id, let field, _, _) = tree[parent].kind {
      help = "Write \(table.name)['\(field)'] for the row with the key '\(field)'."
      fix = Fix(start: tree[parent].start, end: tree[parent].end, text: "\(table.name)['\(field)']")
    }
    report(
      .expressionNoOverload, "'\(table.name)' is a table, which is read by key", tree[id].start, tree[id].end,
      help: help, fix: fix)
    return .dyn
  }
}
