/// The signatures of the operators.
enum Operators {
  typealias Signature = (parameters: [ExpressionType], result: ExpressionType)

  private static let t = ExpressionType.param("T")

  static let negate: [Signature] = [([.int], .int), ([.double], .double)]
  static let add: [Signature] =
    numbers + [
      ([.string, .string], .string), ([.bytes, .bytes], .bytes), ([.list(t), .list(t)], .list(t)),
      ([.timestamp, .duration], .timestamp), ([.duration, .timestamp], .timestamp),
      ([.duration, .duration], .duration),
    ]
  static let subtract: [Signature] =
    numbers + [
      ([.timestamp, .timestamp], .duration), ([.timestamp, .duration], .timestamp),
      ([.duration, .duration], .duration),
    ]
  static let numbers: [Signature] = [
    ([.int, .int], .int), ([.uint, .uint], .uint), ([.double, .double], .double),
  ]
  static let whole: [Signature] = [([.int, .int], .int), ([.uint, .uint], .uint)]
  static let order: [Signature] = {
    let kinds: [ExpressionType] = [.bool, .string, .bytes, .timestamp, .duration]
    let numeric: [ExpressionType] = [.int, .uint, .double]
    return kinds.map { ([$0, $0], .bool) }
      + numeric.flatMap { a in numeric.map { ([a, $0], .bool) } }
  }()
  static let equality: [Signature] = [([t, t], .bool)]
  static let membership: [Signature] = [
    ([t, .list(t)], .bool), ([t, .map(t, .dyn)], .bool),
  ]

  static func of(_ op: SyntaxTree.Operator) -> [Signature] {
    switch op {
    case .add: return add
    case .subtract: return subtract
    case .multiply, .divide: return numbers
    case .modulo: return whole
    case .less, .lessOrEqual, .greater, .greaterOrEqual: return order
    case .equal, .notEqual: return equality
    case .in: return membership
    }
  }
}

extension Checker {
  // MARK: Operators

  mutating func binary(
    _ id: SyntaxTree.ID, _ op: SyntaxTree.Operator, _ left: SyntaxTree.ID, _ right: SyntaxTree.ID
  ) -> ExpressionType {
    let types = [check(left), check(right)]
    // Where a type is known only at run time, whole numbers and doubles may mix.
    if !isStrict, scope.checksTypes, [.add, .subtract, .multiply, .divide].contains(op),
      types.contains(where: \.isDyn)
    {
      if op == .divide { adviseDivision(id, left, right, types) }
      let others = types.filter { !$0.isDyn }
      if others.allSatisfy({ [.int, .uint, .double].contains($0) }) { return .dyn }
    }
    let result = operation(id, op.symbol, types, Operators.of(op), operands: (left, right))
    switch op {
    case .less, .lessOrEqual, .greater, .greaterOrEqual, .equal, .notEqual, .in: return .bool
    default: return result
    }
  }

  mutating func operation(
    _ id: SyntaxTree.ID, _ symbol: String, _ types: [ExpressionType], _ signatures: [Operators.Signature],
    operands: (SyntaxTree.ID, SyntaxTree.ID)? = nil
  ) -> ExpressionType {
    guard scope.checksTypes else { return .dyn }
    if let result = choose(types, signatures.map { ($0.parameters, $0.result) }) { return result.type }
    let fix = operands.flatMap { conversion(symbol, types, $0.0, $0.1) }
    // A fix makes the general advice redundant.
    report(
      .expressionNoOverload, message(symbol, types), at: id, help: fix == nil ? advice(symbol, types) : nil, fix: fix)
    return .dyn
  }

  private func message(_ symbol: String, _ types: [ExpressionType]) -> String {
    if types.count == 1 { return "'\(symbol)' is not defined for \(types[0].inWords)" }
    if symbol == "==" || symbol == "!=", types[0].withArticle == types[1].withArticle {
      return "\(types[0].inDetail) never equals \(types[1].inDetail)"
    }
    return symbol == "==" || symbol == "!="
      ? "\(types[0].withArticle) never equals \(types[1].withArticle)"
      : "'\(symbol)' is not defined for \(types[0].inWords) and \(types[1].inWords)"
  }

  private func advice(_ symbol: String, _ types: [ExpressionType]) -> String? {
    let numeric: [ExpressionType] = [.int, .uint, .double]
    if types.count == 2, types.allSatisfy({ numeric.contains($0) }) {
      return "Convert one side: int(...), uint(...) or double(...)."
    }
    if types.contains(.timestamp), types.contains(.string) {
      return "Write a time as in RFC 3339: timestamp('2026-01-31T12:00:00Z')."
    }
    if types.contains(.duration), types.contains(.string) { return "Write duration('1h30m')." }
    if symbol == "+", types.contains(.string) { return "Convert the other side: string(...)." }
    if symbol == "in", types.last == .string { return "For texts write text.contains(part)." }
    if types.contains(.string), types.contains(where: { numeric.contains($0) }) {
      return "Convert one side: int('...') or string(...)."
    }
    return nil
  }

  /// The result of the signatures that the arguments fit, and these signatures; dyn if the results differ. A signature
  /// that accepts any type is chosen only if no other certainly fits.
  private mutating func choose(
    _ arguments: [ExpressionType], _ signatures: [([ExpressionType], ExpressionType)]
  ) -> (type: ExpressionType, chosen: [Int])? {
    var result: ExpressionType?
    var chosen: [Int] = []
    let isKnown = !arguments.contains(where: \.isDyn)
    let before = inference.bound
    var after = before
    for (at, signature) in signatures.enumerated() {
      guard signature.0.count == arguments.count else { continue }
      if isKnown, !chosen.isEmpty, signature.0.allSatisfy(\.isDyn) { continue }
      inference.bound = before
      let fresh = inference.instantiate(signature.0 + [signature.1])
      guard inference.isAssignable(arguments, Array(fresh.dropLast())) else { continue }
      let type = inference.resolve(fresh[fresh.count - 1])
      result = result == nil || result == type ? type : .dyn
      chosen.append(at)
      after = inference.bound
    }
    // If several fit, none determines the type parameters.
    inference.bound = chosen.count == 1 ? after : before
    return result.map { ($0, chosen) }
  }

  // MARK: Functions

  mutating func call(
    _ id: SyntaxTree.ID, _ target: SyntaxTree.ID?, _ function: String, _ at: Int32,
    _ arguments: [SyntaxTree.ID]
  ) -> ExpressionType {
    if uncallable(id, target, arguments) { return .dyn }
    // math.greatest(...): the dotted name belongs to the function.
    if let target, let path = dottedName(target),
      path.absolute || !visibleLocals.contains(where: { $0.name == path.names[0] })
    {
      let name = (path.names + [function]).joined(separator: ".")
      for candidate in candidates(name, absolute: path.absolute) {
        if let type = namedCall(id, candidate, at, nil, arguments) { return type }
      }
    }
    if let target {
      // `math.min(1, 2)` is not a call of the method `min`.
      if !isLibrary(target), let type = namedCall(id, function, at, target, arguments) { return type }
    } else {
      let absolute = function.hasPrefix(".")
      let name = absolute ? String(function.dropFirst()) : function
      for candidate in candidates(name, absolute: absolute) {
        if let type = namedCall(id, candidate, at, nil, arguments) { return type }
      }
    }
    // An unknown name before the dot was meant as a part of the function's name.
    let reported = diagnostics.count
    if let target { check(target) }
    if let target, dottedName(target) != nil { diagnostics.removeLast(diagnostics.count - reported) }
    for argument in arguments { check(argument) }
    resolutions[Int(id)] = .failing(.unknownFunction, function)
    unknownFunction(id, target, function, at, arguments)
    return .dyn
  }

  private static let libraries: Set<String> = [
    "math", "optional", "base64", "hex", "uuid", "strings", "lists", "sets", "regex", "net", "ip", "cidr",
  ]

  /// Whether a name before the dot is only the start of function names.
  private func isLibrary(_ target: SyntaxTree.ID) -> Bool {
    guard let path = dottedName(target), path.names.count == 1, beginsFunctions(path.names[0]) else { return false }
    return !visibleLocals.contains { $0.name == path.names[0] } && scope.index(of: path.names[0]) == nil
  }

  /// Whether functions have names that begin with `name` and a dot.
  private func beginsFunctions(_ name: String) -> Bool {
    Self.libraries.contains(name) || scope.functions.offered.keys.contains { $0.hasPrefix("\(name).") }
  }

  private mutating func unknownFunction(
    _ id: SyntaxTree.ID, _ target: SyntaxTree.ID?, _ function: String, _ at: Int32,
    _ arguments: [SyntaxTree.ID]
  ) {
    var name = function
    if let target, let path = dottedName(target), beginsFunctions(path.names[0]) {
      name = (path.names + [function]).joined(separator: ".")
    }
    let known = scope.functions.names.sorted() + FunctionRegistry.all.map(\.name)
    let foreign = Self.foreignNames[function] ?? Self.foreignFunctions[function]
    var help = plugin(target, function) ?? foreign ?? NearestName.of(name, among: known).map { "Did you mean '\($0)'?" }
    if ["all", "exists", "exists_one", "existsOne", "map", "filter", "optMap", "bind"].contains(function) {
      help = "As a loop it takes a name and an expression: list.\(function)(item, ...)."
    }
    report(
      .expressionUnknownFunction, "there is no function '\(name)'", at,
      at + Int32(function.utf8.count), help: help,
      fix: foreign == nil ? NearestName.of(function, among: known) : nil)
  }

  /// Advice for a function of a plugin that is not installed.
  private func plugin(_ target: SyntaxTree.ID?, _ function: String) -> String? {
    guard let target, let path = dottedName(target) else { return nil }
    let name = (path.names + [function]).joined(separator: ".")
    return KnownPlugin.help(for: name, "function", besides: scope.functions.offered.keys)
  }

  /// Names from other languages.
  static let foreignNames: [String: String] = [
    "len": "Write size(...).", "length": "Write size(...).", "count": "Write size(...).",
    "toLowerCase": "Write .lower().", "toUpperCase": "Write .upper().",
    "toLower": "Write .lower().", "toUpper": "Write .upper().",
    "downcase": "Write .lower().", "upcase": "Write .upper().",
    "includes": "Write .contains(...) for texts and x in list for lists.",
    "remove": "Write .without([...]).", "strip": "Write .trim().",
    "slice": "Write .substring(i, j) for texts, .slice(i, j) for lists.",
    "any": "Write .exists(x, ...).", "every": "Write .all(x, ...).", "some": "Write .exists(x, ...).",
    "find": "Write .filter(x, ...).first().", "parse_json": "Write parseJson(...).",
    "match": "Write .matches(r'...').", "test": "Write .matches(r'...').",
    "float": "Write double(...).", "number": "Write int(...) or double(...).", "str": "Write string(...).",
    "toString": "Write string(...).", "exist": "Write has(event.field).", "exists": "Write has(event.field).",
    "defined": "Write has(event.field).", "now": "'now' is a variable: write it without parentheses.",
    "abs": "Write math.abs(...).",
    "min": "Write math.least(...).", "max": "Write math.greatest(...).", "floor": "Write math.floor(...).",
    "ceil": "Write math.ceil(...).", "round": "Write math.round(...).",
    "encodeURIComponent": "Write urlEncode(...).", "coalesce": "Write event.?field.orValue(...).",
    "default": "Write event.?field.orValue(...).", "get": "Write event.?field.orValue(...).",
  ]

  /// The type of a call; nil if no function with this name has overloads of this form (function or method). Reports
  /// arguments that fit no overload.
  private mutating func namedCall(
    _ id: SyntaxTree.ID, _ name: String, _ at: Int32, _ target: SyntaxTree.ID?,
    _ arguments: [SyntaxTree.ID]
  ) -> ExpressionType? {
    let declared = scope.declarations.filter { $0.name == name && $0.isMember == (target != nil) }
    let spec = scope.functions.offered[name].map(FunctionSpec.init) ?? FunctionRegistry.function(named: name)
    let all = spec?.overloads.filter { $0.isMember == (target != nil) } ?? []
    if declared.isEmpty, all.isEmpty {
      guard let spec, scope.checksTypes else { return nil }
      // The function exists only in the other form.
      guard !name.contains(".") || target == nil else { return nil }
      if let target { check(target) }
      for argument in arguments { check(argument) }
      report(
        .expressionNoOverload,
        target == nil ? "'\(name)' is a method" : "'\(name)' is a function, not a method", at,
        at + Int32(name.utf8.count), help: "It is called as \(spec.overloads[0].signature(name)).",
        fix: otherForm(id, name, target, arguments))
      return .dyn
    }
    let parts = (target.map { [$0] } ?? []) + arguments
    var types = parts.map { check($0) }
    // Documents often have null as the default, whatever the other type is.
    let isOrNull = !isStrict && name == "orValue" && types.count == 2 && types[1] == .null
    if isOrNull { types[1] = .dyn }
    let fitting = all.filter { $0.accepts(count: types.count) }
    if let one = fitting.first, one.takesWholeNumbers {
      for (index, type) in types.enumerated() where type == .int || type == .uint {
        if one.parameters[index].unwrapped == .double { types[index] = .double }
      }
    }
    if !declared.isEmpty {
      resolutions[Int(id)] = .failing(.unknownFunction, name)
      if !scope.checksTypes { return .dyn }
      if let choice = choose(types, declared.map { ($0.parameters, $0.result) }) { return choice.type }
    }
    guard let spec else {
      report(.expressionNoOverload, mismatch(name, types, target != nil), at, tree[id].end)
      return .dyn
    }
    guard scope.checksTypes else {
      resolutions[Int(id)] =
        fitting.isEmpty
        ? .failing(.noSuchOverload, name) : .function(spec, fitting, passesTarget: target != nil)
      return .dyn
    }
    let signatures = fitting.map { overload -> ([ExpressionType], ExpressionType) in
      var parameters = overload.parameters
      while parameters.count < types.count { parameters.append(parameters[parameters.count - 1]) }
      return (parameters, overload.result)
    }
    if let choice = choose(types, signatures) {
      resolutions[Int(id)] = .function(
        spec, choice.chosen.map { fitting[$0] }, passesTarget: target != nil)
      checkConstants(name, parts)
      prepare(choice.chosen.map { fitting[$0] }, parts)
      guard isOrNull else { return choice.type }
      switch inference.resolve(choice.type) {
      case .dyn, .null, .param, .wrapper, .optional: return choice.type
      case let type: return .wrapper(type)
      }
    }
    let shapes = nearest(all.isEmpty ? spec.overloads : all, to: types).prefix(4).map { $0.signature(name) }
    report(
      .expressionNoOverload, mismatch(name, types, target != nil), at, tree[id].end,
      help: "It is called as \(shapes.joined(separator: " or ")).")
    return .dyn
  }

  private func mismatch(_ name: String, _ types: [ExpressionType], _ isMember: Bool) -> String {
    var types = types.map(\.description)
    let receiver = isMember ? types.removeFirst() + "." : ""
    return "\(receiver)\(name)(\(types.joined(separator: ", "))) does not exist"
  }

  /// Reports constant arguments for which no overload can succeed.
  private mutating func prepare(_ overloads: [FunctionOverload], _ parts: [SyntaxTree.ID]) {
    guard !isStrict, overloads.allSatisfy({ $0.prepare != nil }) else { return }
    let arena = Arena()
    let constants = parts.map { constant($0, arena) }
    var fault: (index: Int, message: String, help: String?)?
    for overload in overloads {
      guard
        case .fault(let index, let message, let help)? = overload.prepare?(
          .init(arguments: constants, patterns: scope.patterns))
      else { return }
      fault = fault ?? (index, message, help)
    }
    guard let fault, fault.index < parts.count else { return }
    report(.expressionFormat, fault.message, at: parts[fault.index], help: fault.help)
  }

  /// The value of a literal, or of a list or map of literals.
  private func constant(_ id: SyntaxTree.ID, _ arena: Arena) -> Value? {
    switch tree[id].kind {
    case .literal(let literal):
      switch literal {
      case .null: return .null
      case .bool(let value): return .bool(value)
      case .int(let value): return .int(value)
      case .uint(let value): return .uint(value)
      case .double(let value): return .double(value)
      case .string(let bytes): return bytes.withUnsafeBytes { .string(arena.copy($0)) }
      case .bytes(let bytes): return bytes.withUnsafeBytes { .bytes(arena.copy($0)) }
      }
    case .list(let elements):
      var values: [Value] = []
      for element in elements {
        guard !element.optional, let value = constant(element.value, arena) else { return nil }
        values.append(value)
      }
      return arena.list(values)
    case .map(let members):
      var entries: [(key: Value, value: Value)] = []
      for member in members {
        guard !member.optional, let key = constant(member.key, arena),
          let value = constant(member.value, arena)
        else { return nil }
        entries.append((key, value))
      }
      return arena.map(entries)
    default: return nil
    }
  }

  /// Checks the form of constant arguments.
  private mutating func checkConstants(_ name: String, _ parts: [SyntaxTree.ID]) {
    guard !isStrict else { return }
    func literal(_ index: Int) -> [UInt8]? {
      guard index < parts.count, case .literal(.string(let bytes)) = tree[parts[index]].kind else {
        return nil
      }
      return bytes
    }
    switch name {
    case "matches", "regex.replace", "regex.extract", "regex.extractAll":
      guard let bytes = literal(1) else { return }
      guard let failure = bytes.withUnsafeBytes({ Pattern($0).failure }) else { return }
      report(
        .expressionPattern, "the pattern does not compile: \(failure.reason)", at: parts[1],
        help: PatternAdvice.help(bytes, failure.reason), fix: patternFix(parts[1], bytes, failure.reason))
    case "timestamp", "duration":
      guard let bytes = literal(0) else { return }
      let valid = bytes.withUnsafeBytes {
        name == "timestamp" ? TimeText.timestamp($0) != nil : TimeText.duration($0) != nil
      }
      if valid { return }
      report(
        .expressionFormat, "this is not a \(name)", at: parts[0],
        help: name == "timestamp"
          ? "Write it as in RFC 3339: '2026-01-31T12:00:00Z'." : "Write it as '1h30m', '250ms' or '1.5s'.")
    default: break
    }
  }
}
