/// Resolves names and types of one expression.
struct Checker {
  /// The meaning of a node of the tree.
  enum Resolution: Sendable {
    /// The node's kind needs no resolution.
    case none
    case variable(Int)
    /// A variable of a loop or binding, by its index among the live locals.
    case local(Int)
    /// A call of a function of the file; its parameters are locals, starting at this index.
    case application(Int)
    /// The name of a type, used as a value.
    case typeName(String)
    /// A call of these overloads; `passesTarget`: whether the receiver is an argument.
    case function(FunctionSpec, [FunctionOverload], passesTarget: Bool)
    /// The row of a table with this index, or whether it has one.
    case table(Int)
    /// Always fails at run time; used only if types are not checked.
    case failing(ExpressionFailure, String)
  }

  struct Local {
    var name: String
    var slot: Int
    var type: ExpressionType
  }

  let syntax: ExpressionSyntax
  let tree: SyntaxTree
  let scope: ExpressionScope
  var inference = TypeInference()
  var types: [ExpressionType]
  var resolutions: [Resolution]
  var locals: [Local] = []
  /// The index of the first local that is visible here: the body of a function sees its parameters only.
  var firstVisible = 0
  /// The number of the text that contains the nodes being checked; 0 is the expression itself.
  var textNumber: Int32 = 0
  /// The largest number of live loop variables.
  var localCount = 0
  var diagnostics: [Diagnostic] = []

  init(_ syntax: ExpressionSyntax, _ scope: ExpressionScope) {
    self.syntax = syntax
    tree = syntax.tree
    self.scope = scope
    types = Array(repeating: .dyn, count: tree.nodes.count)
    resolutions = Array(repeating: .none, count: tree.nodes.count)
  }

  var isStrict: Bool { scope.mode == .strict }
  var text: LocatedText { syntax.text(textNumber) }
  /// Whether the body of a function is being checked for the arguments of one call.
  var isWithinCall: Bool { textNumber != 0 }
  var visibleLocals: ArraySlice<Local> { locals[firstVisible...] }

  // MARK: Reporting

  /// A replacement of a part of the expression.
  struct Fix {
    var start: Int32
    var end: Int32
    var text: String
  }

  mutating func report(
    _ code: Diagnostic.Code, _ message: String, _ start: Int32, _ end: Int32, help: String? = nil,
    fix: String? = nil
  ) {
    report(code, message, start, end, help: help, fix: fix.map { Fix(start: start, end: end, text: $0) })
  }

  mutating func report(
    _ code: Diagnostic.Code, _ message: String, _ start: Int32, _ end: Int32, help: String?, fix: Fix?,
    others: [String] = []
  ) {
    guard scope.checksTypes || code.severity != .error else { return }
    // Warnings about a function are reported once, where it is defined; a fix that suits one call may break another.
    if isWithinCall, code.severity != .error { return }
    let text = text
    diagnostics.append(
      text.concealing(
        Diagnostic(
          code, message, at: text.location(Int(start), Int(end)), help: help,
          fixIts: text.isSecret || isWithinCall
            ? []
            : fix.map { fix in
              ([fix.text] + others).map { text.fix(Int(fix.start), Int(fix.end), $0) }
            } ?? [])))
  }

  mutating func report(
    _ code: Diagnostic.Code, _ message: String, at id: SyntaxTree.ID, help: String? = nil, fix: Fix? = nil
  ) {
    report(code, message, tree[id].start, tree[id].end, help: help, fix: fix)
  }

  /// The source text of a node.
  func written(_ id: SyntaxTree.ID) -> String {
    let text = syntax.text(tree[id].text)
    return text.isSecret ? "this" : String(decoding: text.text[Int(tree[id].start)..<Int(tree[id].end)], as: UTF8.self)
  }

  // MARK: Parts

  /// The type of a node; dyn after an error, which is reported.
  @discardableResult
  mutating func check(_ id: SyntaxTree.ID) -> ExpressionType {
    let type = inference.resolve(infer(id))
    types[Int(id)] = type
    return type
  }

  private mutating func infer(_ id: SyntaxTree.ID) -> ExpressionType {
    switch tree[id].kind {
    case .literal(let literal):
      if case .string(let bytes) = literal { warn(ofTemplate: bytes, at: id) }
      return literal.type
    case .identifier(let name, let absolute):
      return resolveName(id, [name], absolute: absolute) ?? unknownName(id, name)
    case .select(let operand, let field, let at, let optional):
      if !optional, let path = dottedName(id), let type = resolveName(id, path.names, absolute: path.absolute) {
        return type
      }
      return select(id, check(operand), field, at, optional: optional)
    case .has(let operand, let field, let at, let optional):
      _ = select(id, check(operand), field, at, optional: optional, tests: true)
      return .bool
    case .index(let operand, let key, let optional):
      return index(id, operand, key, optional: optional)
    case .call(let target, let function, let at, let arguments):
      return call(id, target, function, at, arguments)
    case .list(let elements): return list(elements)
    case .map(let members): return map(members)
    case .logic(let terms, let isAnd):
      for term in terms { expectBool(term, isAnd ? "&&" : "||") }
      return .bool
    case .conditional(let condition, let yes, let no): return conditional(id, condition, yes, no)
    case .not(let operand):
      expectBool(operand, "!")
      return .bool
    case .negate(let operand):
      let type = check(operand)
      return operation(id, "-", [type], Operators.negate)
    case .binary(let op, let left, let right):
      if op == .in, let table = table(right) { return presence(id, in: table, left) }
      return binary(id, op, left, right)
    case .loop(let loop): return self.loop(id, loop)
    case .bind(let name, let value, let body): return bind(name, value, body)
    case .optionalMap(let target, let name, let body, let flat): return optionalMap(target, name, body, flat: flat)
    case .apply(let application): return apply(id, application)
    }
  }

  // These are separate functions, so that a nesting level uses little stack.

  private mutating func bind(_ name: String, _ value: SyntaxTree.ID, _ body: SyntaxTree.ID) -> ExpressionType {
    let type = check(value)
    return with([(name, type)]) { $0.check(body) }
  }

  private mutating func optionalMap(
    _ target: SyntaxTree.ID, _ name: String, _ body: SyntaxTree.ID, flat: Bool
  ) -> ExpressionType {
    let type = check(target)
    let inner: ExpressionType
    if case .optional(let wrapped) = type {
      inner = wrapped
    } else {
      inner = .dyn
      if !fits(type, .optional(.dyn)) {
        report(
          .expressionNoOverload, "\(flat ? "optFlatMap" : "optMap")() needs an optional, not \(type.withArticle)",
          at: target, help: "Make one with .?field or optional.of(...).")
      }
    }
    let result = with([(name, inner)]) { $0.check(body) }
    guard flat else { return .optional(result) }
    if !fits(result, .optional(inference.parameter())) {
      report(
        .expressionNoOverload, "optFlatMap() needs an expression that yields an optional, not \(result.withArticle)",
        at: body, help: "Use optMap() for a plain value.")
      return .dyn
    }
    return result
  }

  private mutating func conditional(
    _ id: SyntaxTree.ID, _ condition: SyntaxTree.ID, _ yes: SyntaxTree.ID, _ no: SyntaxTree.ID
  ) -> ExpressionType {
    expectBool(condition, "? :")
    let (first, second) = (check(yes), check(no))
    if !scope.checksTypes { return .dyn }
    if inference.isAssignable(first, second) {
      return TypeInference.mostGeneral(inference.resolve(first), inference.resolve(second))
    }
    if !isStrict { return .dyn }
    report(
      .expressionNoOverload, "'? :' has \(first.withArticle) on one side and \(second.withArticle) on the other", at: id
    )
    return .dyn
  }

  mutating func fits(_ a: ExpressionType, _ b: ExpressionType) -> Bool {
    !scope.checksTypes || inference.isAssignable(a, b)
  }

  private mutating func expectBool(_ id: SyntaxTree.ID, _ what: String) {
    let type = check(id)
    if !fits(type, .bool) {
      report(
        .expressionNoOverload, "'\(what)' needs a bool, not \(type.withArticle)", at: id,
        help: type == .null ? nil : "Compare it with something, or write has(...).")
    }
  }

  // MARK: Names

  /// The names of `a.b.c`, if the node is nothing else.
  func dottedName(_ id: SyntaxTree.ID) -> (names: [String], absolute: Bool)? {
    var names: [String] = []
    var at = id
    while true {
      switch tree[at].kind {
      case .identifier(let name, let absolute):
        names.append(name)
        return (names.reversed(), absolute)
      case .select(let operand, let field, _, optional: false):
        names.append(field)
        at = operand
      default: return nil
      }
    }
  }

  /// The variable or type of a whole dotted name.
  private mutating func resolveName(
    _ id: SyntaxTree.ID, _ names: [String], absolute: Bool
  ) -> ExpressionType? {
    if !absolute, let local = visibleLocals.last(where: { $0.name == names[0] }) {
      guard names.count == 1 else { return nil }
      resolutions[Int(id)] = .local(local.slot)
      return local.type
    }
    let name = names.joined(separator: ".")
    for candidate in candidates(name, absolute: absolute) {
      if !isWithinCall, let index = scope.index(of: candidate) {
        resolutions[Int(id)] = .variable(index)
        return scope.variables[index].type
      }
      if let type = Self.typeNames[candidate] {
        resolutions[Int(id)] = .typeName(candidate)
        return .type(type)
      }
    }
    return nil
  }

  /// The names to try for `name` in the container, longest first.
  func candidates(_ name: String, absolute: Bool) -> [String] {
    guard !absolute, !scope.container.isEmpty else { return [name] }
    var prefixes = scope.container.split(separator: ".").map(String.init)
    var all: [String] = []
    while !prefixes.isEmpty {
      all.append(prefixes.joined(separator: ".") + "." + name)
      prefixes.removeLast()
    }
    return all + [name]
  }

  static let typeNames: [String: ExpressionType] = [
    "bool": .bool, "int": .int, "uint": .uint, "double": .double, "string": .string, "bytes": .bytes,
    "null_type": .null, "list": .list(.dyn), "map": .map(.dyn, .dyn), "type": .type(.dyn),
    "optional_type": .optional(.dyn), "google.protobuf.Timestamp": .timestamp,
    "google.protobuf.Duration": .duration, "net.IP": .abstract("net.IP", []),
    "net.CIDR": .abstract("net.CIDR", []),
  ]

  private mutating func unknownName(_ id: SyntaxTree.ID, _ name: String) -> ExpressionType {
    resolutions[Int(id)] = .failing(.unknownName, name)
    // A name that starts with @ belongs to a variable that is not available here.
    if let table = table(named: name) { return misusedTable(id, table) }
    let known = (scope.variables.map(\.name) + scope.tableNames + visibleLocals.map(\.name)).filter {
      $0.utf8.first != UInt8(ascii: "@")
    }
    let near = NearestName.of(name, among: known)
    var help = near.map { "Did you mean '\($0)'?" }
    var fix = near
    // Other remedies; only the author can choose between them.
    var others: [String] = []
    if scope.isFunction, fix == nil {
      help =
        "A function sees its parameters only"
        + (known.isEmpty ? "" : ": \(known.joined(separator: ", "))")
        + ". Add one, and give '\(name)' where the function is called."
    } else if name == "event", scope.index(of: "@event") != nil {
      help =
        "A source has no event when it starts: only the source of an inner signal sees the event that it is made for."
      fix = nil
    } else if let other = Self.otherName(name, known) {
      (help, fix) = (other.help, other.ours)
    } else if case .parts(let names) = scope.event, let number = names.firstIndex(of: name) {
      help = "The parts of the list have names in 'reduce' only. " + Self.partsHelp("event", names, number)
      fix = "event[\(number)]"
    } else if id == tree.root, !text.isSecret, text.quoting == .single || text.quoting == .double,
      text.text.elementsEqual(name.utf8)
    {
      diagnostics.append(
        Diagnostic(
          .expressionUnknownName, "there is nothing called '\(name)' here",
          at: text.location(Int(tree[id].start), Int(tree[id].end)),
          help: "YAML removes its own quotes; a text in an expression needs quotes of its own: \"'\(name)'\"",
          fixIts: [text.rewritten("'\(name)'")]))
      return .dyn
    } else if near == nil, isOperandBesideText(id) {
      help = "Write '\(name)' in quotes for a text, or event.\(name) for a field of the event."
      fix = "'\(name)'"
      others = ["event.\(name)"]
    } else if fix == nil, FunctionRegistry.function(named: name) != nil {
      help = "'\(name)' is a function: call it with parentheses."
    } else if fix == nil, known.contains("event") {
      help = "Write event.\(name) for a field of the event, or '\(name)' in quotes for a text."
      fix = "event.\(name)"
      if isOperandBesideNumber(id) {
        help = "Write event.\(name) for a field of the event."
      } else {
        others = ["'\(name)'"]
      }
    } else if fix == nil, !known.isEmpty {
      help = "Known here: \(known.joined(separator: ", "))."
    }
    report(
      .expressionUnknownName, "there is nothing called '\(name)' here", tree[id].start, tree[id].end, help: help,
      fix: fix.map { Fix(start: tree[id].start, end: tree[id].end, text: $0) }, others: others)
    return .dyn
  }

  /// The name in rxd of a thing that is called `name` in other languages or by habit.
  private static func otherName(_ name: String, _ known: [String]) -> (ours: String, help: String)? {
    switch name {
    case "nil", "None", "none", "undefined", "Null", "NULL": return ("null", "Nothing is written null.")
    case "True", "TRUE": return ("true", "Write it as true.")
    case "False", "FALSE": return ("false", "Write it as false.")
    case "acc", "accum", "accumulator", "memo", "carry", "aggregate":
      return known.contains("running") ? ("running", "The result so far is called 'running'.") : nil
    case "it", "this", "self", "evt", "ev", "root", "_":
      return known.contains("event") ? ("event", "The event is called 'event'.") : nil
    case "i", "idx": return known.contains("index") ? ("index", "The number of the event is called 'index'.") : nil
    default: return nil
    }
  }

  /// Whether a name is an operand of a comparison or an element of a list, so that quotes are probably missing.
  private func isOperandBesideText(_ id: SyntaxTree.ID) -> Bool {
    guard let parent = tree.parent(of: id) else { return false }
    switch tree[parent].kind {
    case .binary(let op, let left, let right):
      guard op == .equal || op == .notEqual, right == id else { return false }
      // The other side reads a field, so this side is probably a text.
      if case .select = tree[left].kind { return true }
      return false
    case .list:
      guard let above = tree.parent(of: parent), case .binary(.in, _, parent) = tree[above].kind else { return false }
      return true
    default: return false
    }
  }

  /// Warns of a text with `{{ }}`, which has no meaning within an expression.
  private mutating func warn(ofTemplate text: [UInt8], at id: SyntaxTree.ID) {
    guard text.hasOpeningBraces, let open = text.firstRange(of: [0x7B, 0x7B]),
      let close = text[open.upperBound...].firstRange(of: [0x7D, 0x7D])
    else { return }
    let inner = text[open.upperBound..<close.lowerBound].split(separator: 0x20).map {
      String(decoding: $0, as: UTF8.self)
    }
    .joined(separator: " ")
    let isWhole = open.lowerBound == 0 && close.upperBound == text.count
    report(
      .templateInLiteral, "'{{ }}' in a text of an expression is not a template", at: id,
      help: isWhole && !inner.isEmpty
        ? "Write \(inner), without braces and quotes" : "Join texts with +, e.g. 'id-' + string(event.id)",
      fix: isWhole && !inner.isEmpty ? Fix(start: tree[id].start, end: tree[id].end, text: inner) : nil)
  }

  /// Whether the other operand is a literal that is not a text.
  private func isOperandBesideNumber(_ id: SyntaxTree.ID) -> Bool {
    guard let parent = tree.parent(of: id), case .binary(_, let left, let right) = tree[parent].kind,
      case .literal(let literal) = tree[left == id ? right : left].kind
    else { return false }
    return literal.type != .string
  }

  // MARK: Lists and maps

  private mutating func list(_ elements: [SyntaxTree.Element]) -> ExpressionType {
    var joined: ExpressionType?
    for element in elements {
      var type = check(element.value)
      if element.optional { type = unwrapped(type, element.value) }
      joined = scope.checksTypes ? inference.join(joined, type) : .dyn
    }
    return .list(joined ?? inference.parameter())
  }

  private mutating func unwrapped(
    _ type: ExpressionType, _ id: SyntaxTree.ID
  ) -> ExpressionType {
    if case .optional(let inner) = type { return inner }
    if !fits(type, .optional(.dyn)) {
      report(
        .expressionNoOverload, "'?' needs an optional, not \(type.withArticle)", at: id,
        help: "Leave the '?' out, or read the field with '.?'.")
    }
    return .dyn
  }

  private mutating func map(_ members: [SyntaxTree.Member]) -> ExpressionType {
    var keys: ExpressionType?
    var values: ExpressionType?
    var fields: [ExpressionType.Field] = []
    var known = true
    var seen: [SyntaxTree.Literal] = []
    for member in members {
      let keyType = check(member.key)
      switch keyType {
      case .int, .uint, .bool, .string, .dyn, .param, .wrapper: break
      default:
        report(
          .expressionMapKey, "\(keyType.withArticle) cannot be the key of a map", at: member.key,
          help: "Keys are strings, whole numbers or bools.")
      }
      if case .literal(let literal) = tree[member.key].kind {
        if seen.contains(where: { $0.isSameKey(as: literal) }) {
          report(.expressionMapKey, "the map already has this key", at: member.key)
        }
        seen.append(literal)
      }
      var valueType = check(member.value)
      if member.optional { valueType = unwrapped(valueType, member.value) }
      if case .literal(.string(let name)) = tree[member.key].kind {
        fields.append(
          .init(String(decoding: name, as: UTF8.self), valueType, mayBeAbsent: member.optional))
      } else {
        known = false
      }
      keys = scope.checksTypes ? inference.join(keys, keyType) : .dyn
      values = scope.checksTypes ? inference.join(values, valueType) : .dyn
    }
    // In a pipeline the fields stay known, so that a later step that reads an unknown field is reported.
    if !isStrict, known, !fields.isEmpty, scope.checksTypes {
      return .object(
        fields: fields.map { field in
          var field = field
          field.type = inference.resolve(field.type)
          return field
        }, open: false)
    }
    return .map(keys ?? inference.parameter(), values ?? inference.parameter())
  }

  // MARK: Loops

  /// Checks `body` with additional names in scope.
  private mutating func with(
    _ names: [(String, ExpressionType)], _ body: (inout Checker) -> ExpressionType
  ) -> ExpressionType {
    let before = locals.count
    for (name, type) in names { locals.append(Local(name: name, slot: locals.count, type: type)) }
    localCount = max(localCount, locals.count)
    let result = body(&self)
    locals.removeLast(locals.count - before)
    return result
  }

  private mutating func loop(_ id: SyntaxTree.ID, _ loop: SyntaxTree.Loop) -> ExpressionType {
    // A list that may be null fails at run time if it is null.
    let range = check(loop.range).unwrapped
    var first: ExpressionType = .dyn
    var second: ExpressionType = .dyn
    var isMap = false
    switch range {
    case .list(let element): (first, second) = loop.second == nil ? (element, .dyn) : (.int, element)
    case .map(let key, let value):
      (first, second) = (key, value)
      isMap = true
    case .object(let fields, let open):
      var joined: ExpressionType? = open ? .dyn : nil
      for field in fields { joined = inference.join(joined, field.type) }
      (first, second) = (.string, joined ?? .dyn)
      isMap = true
    case .dyn, .wrapper(.dyn): break
    case .param: _ = inference.isAssignable(.dyn, range)
    default:
      report(
        .expressionNoOverload, "\(range.withArticle) cannot be looped over", at: loop.range,
        help: "Loops run over lists and maps.")
    }
    var names = [(loop.first, first)]
    if let name = loop.second { names.append((name, second)) }
    var body: ExpressionType = .dyn
    var key: ExpressionType?
    _ = with(names) { checker in
      if loop.kind == .groupBy {
        key = loop.condition.map { checker.check($0) }
      } else if let condition = loop.condition {
        checker.expectBool(condition, "condition")
      }
      switch loop.kind {
      case .all, .exists, .existsOne, .filter: checker.expectBool(loop.body, "\(loop.kind)")
      default: body = checker.check(loop.body)
      }
      return .dyn
    }
    switch loop.kind {
    case .all, .exists, .existsOne: return .bool
    case .map, .transformList: return .list(body)
    case .filter:
      return .list(first)
    case .sortBy: return .list(first)
    case .groupBy:
      let (key, element) = key.map { ($0, body) } ?? (body, first)
      return .list(.object(fields: [.init("key", key), .init("values", .list(element))], open: false))
    case .transformMap:
      return .map(isMap ? first : range.isDyn ? .dyn : .int, body)
    case .transformMapEntry:
      if case .map = body { return body }
      if case .object(let fields, _) = body {
        var joined: ExpressionType?
        for field in fields { joined = inference.join(joined, field.type) }
        return .map(.string, joined ?? .dyn)
      }
      if !fits(body, .map(.dyn, .dyn)) {
        report(
          .expressionNoOverload, "transformMapEntry() needs an expression that yields a map, not \(body.withArticle)",
          at: loop.body, help: "Write {key: value}.")
      }
      return .map(.dyn, .dyn)
    }
  }
}

extension SyntaxTree.Literal {
  var type: ExpressionType {
    switch self {
    case .null: return .null
    case .bool: return .bool
    case .int: return .int
    case .uint: return .uint
    case .double: return .double
    case .string: return .string
    case .bytes: return .bytes
    }
  }

  /// Whether both denote the same key of a map.
  func isSameKey(as other: Self) -> Bool {
    switch (self, other) {
    case (.int(let a), .uint(let b)), (.uint(let b), .int(let a)): return a >= 0 && UInt64(a) == b
    default: return self == other
    }
  }
}
