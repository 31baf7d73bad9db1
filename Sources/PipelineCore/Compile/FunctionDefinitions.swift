// The functions of a file: their names, calls, types and examples.

extension Compilation {
  /// Checks the definitions. Definitions with errors are reported, and count as broken.
  func defineFunctions() -> UserFunctions {
    var offered: [String: CallableFunction] = [:]
    for callable in catalogue.called.compactMap(\.callable) { offered[callable.name] = callable }
    guard !file.functions.isEmpty || !file.brokenFunctions.isEmpty || !offered.isEmpty else { return .none }
    var definitions = FunctionDefinitions(patterns, broken: file.brokenFunctions, offered: offered)
    for node in file.functions { definitions.read(node) }
    for node in file.functions { definitions.resolve(node.name.value, by: nil) }
    definitions.result.sort(
      by: Dictionary(file.functions.enumerated().map { ($1.name.value, $0) }) { first, _ in first })
    diagnostics.report(contentsOf: definitions.diagnostics.all)
    return definitions.result
  }

  /// Evaluates the examples of functions: each must be a condition that is true.
  func checkExamples() {
    guard !functions.isEmpty else { return }
    for node in file.functions where functions[node.name.value] != nil {
      for example in node.node.examples { check(example, of: node.name) }
    }
  }

  private func check(_ text: LocatedText, of function: Located<String>) {
    func fail(_ message: String, help: String? = nil) {
      diagnostics.report(
        Diagnostic(
          .functionExample, message, at: text.location,
          notes: [.init("an example of '\(function.value)'", at: function.location)], help: help))
    }
    guard let syntax = ExpressionSyntax.parse(text, into: &diagnostics) else { return }
    var scope = ExpressionScope([])
    scope.patterns = patterns
    scope.functions = functions
    scope.isFunction = true
    guard syntax.tree.nodes.contains(where: { syntax.tree.called($0)?.name == function.value }) else {
      return fail("the example does not call '\(function.value)'")
    }
    guard let checked = syntax.check(in: scope, expecting: .bool, into: &diagnostics) else { return }
    let frame = EvaluationFrame(arena: Arena(), json: JSONParser())
    let program = checked.compile()
    switch program.evaluateBool(frame) {
    case .yes: return
    case .no: break
    case .failed: return fail("the example fails: \(program.failureMessage(frame.lastError, frame))")
    }
    // Shows the values of both sides of a comparison.
    guard !checked.isSecret, case .binary(.equal, let left, let right) = syntax.tree[syntax.tree.root].kind else {
      return fail("the example is not true")
    }
    func shown(_ side: SyntaxTree.ID) -> String? {
      let node = syntax.tree[side]
      var ignored = Diagnostics()
      guard
        let part = ExpressionSyntax.parse(text.slice(Int(node.start), Int(node.end)), into: &ignored)?
          .check(in: scope, into: &ignored)
      else { return nil }
      let value = part.compile().evaluate(frame)
      guard !value.isError else { return nil }
      let buffer = OutputBuffer()
      ValueText.describe(value, into: buffer, Context(state: frame.state))
      return Printable.cut(buffer.bytes, limit: 200)
    }
    guard let actual = shown(left), let expected = shown(right) else { return fail("the example is not true") }
    fail("the example is not true: the left side is \(actual), and the right side is \(expected)")
  }

  /// Warns of functions that no expression uses. Functions of included files are exempt: they may serve other files.
  func warnUnusedFunctions() {
    guard !functions.all.isEmpty else { return }
    var used: Set<String> = []
    for report in expressions {
      for case .apply(let application) in report.checked.syntax.tree.nodes.map(\.kind) {
        used.insert(application.function.name)
      }
    }
    for function in functions.all where !used.contains(function.name) && !function.isIncluded {
      diagnostics.report(
        Diagnostic(
          .unusedName, "nothing calls the function '\(function.name)'", at: function.location,
          help: "Call it in an expression as \(function.signature), or remove it"))
    }
  }
}

/// Reads and orders the definitions of functions.
private struct FunctionDefinitions {
  private struct Definition {
    var node: NamedNode<FunctionNode>
    var parameters: [UserFunction.Parameter]
    var returns: ExpressionType?
    var body: ExpressionSyntax
  }

  private let patterns: GrokDefinitions
  private var waiting: [String: Definition] = [:]
  /// The functions whose bodies are being checked, each with the call that led to it.
  private var running: [(name: String, call: SourceLocation?)] = []
  var result = UserFunctions()
  var diagnostics = Diagnostics()

  init(_ patterns: GrokDefinitions, broken: Set<String>, offered: [String: CallableFunction]) {
    self.patterns = patterns
    result.broken = broken
    result.offered = offered
  }

  /// Why a function cannot have a name; nil if it can.
  private static func refusal(of name: String) -> String? {
    if AggregateFunction(rawValue: name) != nil, FunctionRegistry.described(name) == nil {
      return "'\(name)' is an aggregate of expressions over many events"
    }
    guard name == "exists_one" || FunctionRegistry.callable.contains(where: { $0.name == name }) else { return nil }
    let what = FunctionRegistry.function(named: name) == nil ? "macro" : "function"
    return "'\(name)' is a \(what) of the expression language, which would be hidden"
  }

  mutating func read(_ node: NamedNode<FunctionNode>) {
    let name = node.name.value
    var isSound = true
    if let reason = Self.refusal(of: name) {
      diagnostics.report(
        Diagnostic(
          .functionForm, reason, at: node.name.location,
          help: "Give the function another name; 'rxd describe \(name)' shows the built-in one"))
      isSound = false
    }
    func type(_ node: YAMLNode) -> ExpressionType? {
      let type = EventSchema.type(node, into: &diagnostics)
      isSound = isSound && type != nil
      return type
    }
    let parameters = node.node.parameters.compactMap { parameter in
      type(parameter.type).map { UserFunction.Parameter(parameter.name.value, $0, at: parameter.name.location) }
    }
    let returns = node.node.returns.flatMap(type)
    // A function that hides a built-in one is broken, and its callers are checked with the built-in one.
    guard let body = ExpressionSyntax.parse(node.node.value, into: &diagnostics), isSound else {
      if Self.refusal(of: name) == nil { result.broken.insert(name) }
      return
    }
    waiting[name] = Definition(node: node, parameters: parameters, returns: returns, body: body)
  }

  /// Checks the body of a function after those of the functions that it calls. `call`: the call that led here.
  mutating func resolve(_ name: String, by call: SourceLocation?) {
    if let first = running.firstIndex(where: { $0.name == name }) {
      return refuse(Array(running[first...]), closedBy: call)
    }
    guard let definition = waiting[name], result[name] == nil, !result.broken.contains(name) else { return }
    if running.count >= ExpressionLimits.depth {
      diagnostics.report(
        Diagnostic(
          .expressionTooLong, "functions call one another more than \(ExpressionLimits.depth) deep", at: call,
          help: "Say more in one of them"))
      result.broken.insert(name)
      return
    }
    running.append((name, call))
    for node in definition.body.tree.nodes {
      guard let (called, _) = definition.body.tree.called(node), waiting[called] != nil else { continue }
      resolve(called, by: definition.body.nameLocation(node))
    }
    running.removeLast()
    // A cycle that contains this function may have been reported.
    guard !result.broken.contains(name) else { return }
    check(definition)
  }

  private mutating func refuse(_ circle: [(name: String, call: SourceLocation?)], closedBy call: SourceLocation?) {
    let names = circle.map(\.name)
    guard !names.allSatisfy(result.broken.contains) else { return }
    result.broken.formUnion(names)
    var notes = zip(names, circle.dropFirst()).map { caller, called in
      Diagnostic.Note("'\(caller)' calls '\(called.name)' here", at: called.call)
    }
    if names.count > 1 { notes.append(.init("'\(names[names.count - 1])' calls '\(names[0])' here", at: call)) }
    diagnostics.report(
      Diagnostic(
        .functionCircle,
        "the function '\(names[0])' calls itself"
          + (names.count > 1 ? ", through \(Suggestion.list(Array(names.dropFirst())))" : ""),
        at: names.count > 1 ? waiting[names[0]]?.node.name.location : call, notes: notes,
        help: "The calls would never end. To loop over lists and maps, use .map(x, ...), .filter(x, ...) and the like"))
  }

  private mutating func check(_ definition: Definition) {
    let name = definition.node.name.value
    result.broken.insert(name)
    guard let expanded = definition.body.expanded(result, into: &diagnostics) else { return }
    var scope = ExpressionScope([])
    scope.patterns = patterns
    scope.functions = result
    scope.isFunction = true
    var checker = Checker(expanded, scope)
    checker.locals = definition.parameters.enumerated().map { .init(name: $1.name, slot: $0, type: $1.type) }
    checker.localCount = checker.locals.count
    var type = checker.check(expanded.tree.root)
    let isSound = checker.diagnostics.allSatisfy { $0.severity != .error }
    if isSound, let returns = definition.returns, !checker.inference.isAssignable(type, returns),
      let declared = definition.node.node.returns?.location
    {
      let found = checker.inference.resolve(type, final: true)
      diagnostics.report(
        Diagnostic(
          .expressionWrongType,
          "'\(name)' returns \(returns.withArticle), but its value is \(found.withArticle)",
          at: expanded.text.location, notes: [.init("the type is declared here", at: declared)],
          help: ExpressionSyntax.conversion(found, returns)))
      return
    }
    diagnostics.report(contentsOf: checker.diagnostics)
    guard isSound else { return }
    type = definition.returns ?? checker.inference.resolve(type, final: true)
    let checked = expanded.checked(by: checker, type)
    diagnostics.concealing(expanded.text) { $0.report(contentsOf: checked.advice(isCondition: false)) }
    for (index, parameter) in definition.parameters.enumerated() {
      let isUsed = checker.resolutions.contains { if case .local(index) = $0 { true } else { false } }
      if isUsed { continue }
      diagnostics.report(
        Diagnostic(
          .unusedName, "the value of '\(name)' does not use the parameter '\(parameter.name)'", at: parameter.location,
          help: "Remove it"))
    }
    result.broken.remove(name)
    result.add(
      UserFunction(
        name, at: definition.node.name.location, summary: definition.node.node.description?.value,
        parameters: definition.parameters, returns: definition.returns, body: definition.body, type: type,
        extent: definition.body.extent(result)))
  }
}
