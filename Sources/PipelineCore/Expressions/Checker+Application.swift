// Calls of functions that the pipeline file defines.

extension Checker {
  /// The type of a call. The body is checked with the types of these arguments, which gives a more exact result and
  /// finds more errors where a parameter declares no exact type.
  mutating func apply(_ id: SyntaxTree.ID, _ application: SyntaxTree.Application) -> ExpressionType {
    let function = application.function
    let before = locals.count
    resolutions[Int(id)] = .application(before)
    var fits = true
    for (argument, parameter) in zip(application.arguments, function.parameters) {
      let type = check(argument)
      if !accepts(type, parameter.type) {
        refuse(argument, type, parameter, of: function)
        fits = false
      }
      // Reserves the parameter's slot, so that locals of the next argument do not overwrite it.
      locals.append(Local(name: "", slot: locals.count, type: Self.narrowed(type, to: parameter.type)))
      localCount = max(localCount, locals.count)
    }
    defer { locals.removeLast(locals.count - before) }
    guard fits else { return function.type }
    let (outer, outerText) = (firstVisible, textNumber)
    firstVisible = before
    textNumber = tree[application.body].text
    for (index, parameter) in function.parameters.enumerated() { locals[before + index].name = parameter.name }
    let result = check(application.body)
    if let returns = function.returns, !self.fits(result, returns) {
      report(
        .expressionWrongType, "'\(function.name)' returns \(returns.withArticle), but this is \(result.withArticle)",
        at: application.body)
    }
    (firstVisible, textNumber) = (outer, outerText)
    return function.returns.map { Self.narrowed(result, to: $0) } ?? result
  }

  /// Whether a function takes an argument. In a pipeline a whole number is also a double, as in JSON.
  private mutating func accepts(_ type: ExpressionType, _ declared: ExpressionType) -> Bool {
    if !isStrict, declared.unwrapped == .double, type == .int || type == .uint { return true }
    return fits(type, declared)
  }

  /// The type of a value of type `type` where `declared` is declared. Elements of lists and maps keep the types of the
  /// value.
  static func narrowed(_ type: ExpressionType, to declared: ExpressionType) -> ExpressionType {
    switch (type, declared) {
    case (_, .dyn): return type
    case (.list, .list), (.map, .map), (.object, .map), (.object, .object), (.map, .object): return type
    default: return declared
    }
  }

  private mutating func refuse(
    _ argument: SyntaxTree.ID, _ type: ExpressionType, _ parameter: UserFunction.Parameter, of function: UserFunction
  ) {
    guard scope.checksTypes else { return }
    let wanted = parameter.type
    let type = inference.resolve(type, final: true)
    var fix: Fix?
    if case .literal(let value) = tree[argument].kind, let text = self.text(of: argument, value, as: wanted.unwrapped) {
      fix = Fix(start: tree[argument].start, end: tree[argument].end, text: text)
    }
    report(
      .expressionNoOverload,
      "'\(function.name)' needs \(wanted.withArticle) for '\(parameter.name)', not \(type.withArticle)", at: argument,
      help: fix == nil ? ExpressionSyntax.conversion(type, wanted.unwrapped) : nil, fix: fix)
    if !diagnostics.isEmpty {
      diagnostics[diagnostics.count - 1].notes.append(.init("the parameter is declared here", at: parameter.location))
    }
  }

  /// Whether a node calls a function of the file that cannot be inserted, because its definition has errors or the
  /// number of arguments differs. Both are reported.
  mutating func uncallable(_ id: SyntaxTree.ID, _ target: SyntaxTree.ID?, _ arguments: [SyntaxTree.ID]) -> Bool {
    guard !scope.functions.isEmpty, let (name, count) = tree.called(tree[id]) else { return false }
    let function = scope.functions[name]
    guard function != nil || scope.functions.broken.contains(name) else { return false }
    for part in (target.map { [$0] } ?? []) + arguments { check(part) }
    resolutions[Int(id)] = .failing(.unknownFunction, name)
    guard let function else { return true }
    report(
      .expressionNoOverload,
      "'\(name)' takes \(Printable.count(function.parameters.count, "argument")), and \(count) \(count == 1 ? "is" : "are") given",
      at: id, help: "It is called as \(function.signature).")
    if !diagnostics.isEmpty {
      diagnostics[diagnostics.count - 1].notes.append(.init("the function is defined here", at: function.location))
    }
    return true
  }
}
