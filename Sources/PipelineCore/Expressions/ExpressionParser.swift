/// Parses an expression into a ``SyntaxTree``; macros become loops here.
struct ExpressionParser {
  private typealias ID = SyntaxTree.ID
  private typealias Token = ExpressionLexer.Token

  private var lexer: ExpressionLexer
  private var tree = SyntaxTree()
  private var token: Token = .end
  private var start = 0
  /// The end of the token before the current one.
  private var previousEnd = 0
  private var depth = 0

  static let reserved: Set<String> = [
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
    "package", "namespace", "return", "var", "void", "while",
  ]

  static func parse(_ bytes: [UInt8]) throws(SyntaxError) -> SyntaxTree {
    var parser = ExpressionParser(lexer: ExpressionLexer(bytes))
    try parser.advance()
    if case .end = parser.token {
      throw SyntaxError(
        .expressionSyntax, "the expression is empty", 0, bytes.count, help: "Write an expression.")
    }
    let root = try parser.expression()
    guard case .end = parser.token else { throw parser.unexpected("an operator or the end") }
    parser.tree.root = root
    return parser.tree
  }

  private init(lexer: ExpressionLexer) { self.lexer = lexer }

  // MARK: Tokens

  private mutating func advance() throws(SyntaxError) {
    previousEnd = lexer.position
    (token, start) = try lexer.next()
  }

  private func isAt(_ symbol: String) -> Bool { token == .symbol(symbol) }

  private mutating func accept(_ symbol: String) throws(SyntaxError) -> Bool {
    guard isAt(symbol) else { return false }
    try advance()
    return true
  }

  private mutating func expect(_ symbol: String, _ opened: Int? = nil) throws(SyntaxError) {
    if try accept(symbol) { return }
    var error = unexpected("'\(symbol)'")
    if let opened, case .end = token {
      error = SyntaxError(
        .expressionSyntax, "'\(symbol)' is missing", opened, opened + 1, help: "Close what opens here.")
    }
    throw error
  }

  private func unexpected(_ wanted: String) -> SyntaxError {
    let end = token == .end ? start : lexer.position
    var help: String?
    var replacement: String?
    if case .name(let name) = token {
      switch name.lowercased() {
      case "and": (help, replacement) = ("Write '&&' for and.", "&&")
      case "or": (help, replacement) = ("Write '||' for or.", "||")
      case "not": (help, replacement) = ("Write '!' for not.", "!")
      case "is", "eq": (help, replacement) = ("Write '==' to compare.", "==")
      case "then", "else": help = "Write condition ? value : other."
      default: break
      }
    }
    if case .string = token { help = "Strings are joined with '+'." }
    // A call that ends in `(`, such as `event.trim(`, needs only a closing parenthesis; where other calls end is
    // unknown. Parentheses may stand in quoted texts.
    let isCall = lexer.bytes.last == UInt8(ascii: "(")
    let open = lexer.bytes.reduce(0) { $0 + ($1 == 0x28 ? 1 : $1 == 0x29 ? -1 : 0) }
    if case .end = token, open > 0, isCall || !lexer.bytes.contains(where: { $0 == 0x22 || $0 == 0x27 }) {
      return SyntaxError(
        .expressionSyntax, "expected \(wanted), found the end of the expression", start, end,
        help: "Close the parenthesis.", replacement: isCall ? ")" : nil)
    }
    if case .name(let word) = token, let length = lengthOfTime(word) {
      return SyntaxError(
        .expressionSyntax, "a length of time is a text in duration(...)", length.start, lexer.position,
        help: "Write \(length.text).", replacement: length.text)
    }
    return SyntaxError(
      .expressionSyntax, "expected \(wanted), found \(token.description)", start, end, help: help,
      replacement: replacement)
  }

  /// Reads `5 minutes`, where the number precedes the current token, as a call of `duration`.
  private func lengthOfTime(_ word: String) -> (start: Int, text: String)? {
    guard let unit = Units.unitOfTime(word) else { return nil }
    var first = previousEnd
    while first > 0, ASCII.isDigit(lexer.bytes[first - 1]) { first -= 1 }
    guard first < previousEnd, let count = Int(String(decoding: lexer.bytes[first..<previousEnd], as: UTF8.self)),
      count < 100_000
    else { return nil }
    // The language has no unit for days.
    return (first, unit == "d" ? "duration('\(count * 24)h')" : "duration('\(count)\(unit)')")
  }

  // MARK: Nodes

  private mutating func add(
    _ kind: SyntaxTree.Kind, _ start: Int, _ children: [ID?]
  ) throws(SyntaxError) -> ID {
    var deepest: Int32 = 0
    var first = start
    for case let child? in children {
      deepest = max(deepest, tree[child].depth)
      first = min(first, Int(tree[child].start))
    }
    guard deepest < ExpressionLimits.depth else { throw tooDeep(start) }
    guard tree.nodes.count < ExpressionLimits.nodes else {
      throw SyntaxError(
        .expressionTooLong, "the expression has more than \(ExpressionLimits.nodes) parts", start,
        start, help: "Split it into several steps.")
    }
    tree.nodes.append(
      SyntaxTree.Node(
        kind: kind, start: Int32(first), end: Int32(previousEnd), depth: deepest + 1))
    return ID(tree.nodes.count - 1)
  }

  private func tooDeep(_ at: Int) -> SyntaxError {
    SyntaxError(
      .expressionTooLong, "the expression nests deeper than \(ExpressionLimits.depth) levels", at, at,
      help: "Split it into several steps.")
  }

  // MARK: Grammar

  private mutating func expression() throws(SyntaxError) -> ID {
    depth += 1
    guard depth <= ExpressionLimits.depth else { throw tooDeep(start) }
    defer { depth -= 1 }
    let first = try operators(binding: 1)
    return isAt("?") ? try conditional(first) : first
  }

  // These functions recurse once for each nesting level, so each must use little stack.

  private mutating func conditional(_ condition: ID) throws(SyntaxError) -> ID {
    let at = start
    try advance()
    if isAt("?"), start == at + 1 { throw try coalescing(condition, at) }
    let yes = try operators(binding: 1)
    guard try accept(":") else {
      throw SyntaxError(
        .expressionSyntax, "'?' has no ':'", at, at + 1, help: "Write condition ? value : other.")
    }
    let no = try expression()
    return try add(.conditional(condition, yes, no), Int(tree[condition].start), [condition, yes, no])
  }

  /// `event.a ?? other`, a default in other languages, corrected to `event.?a.orValue(other)`.
  private mutating func coalescing(_ value: ID, _ at: Int) throws(SyntaxError) -> SyntaxError {
    try advance()
    let other = try operators(binding: 1)
    // Only the first field needs the mark: all fields after an optional one are optional too.
    var first: Int32?
    var target = value
    while case .select(let inner, _, let fieldAt, false) = tree[target].kind {
      first = fieldAt
      target = inner
    }
    var replacement: String?
    if case .identifier = tree[target].kind, let first {
      let node = tree[value]
      let text =
        lexer.bytes[Int(node.start)..<Int(first)] + [UInt8(ascii: "?")] + lexer.bytes[Int(first)..<Int(node.end)]
      replacement = String(decoding: text, as: UTF8.self) + ".orValue(\(tree.text(of: other, in: lexer.bytes)))"
    }
    return SyntaxError(
      .expressionSyntax, "there is no operator '??'", replacement == nil ? at : Int(tree[value].start),
      replacement == nil ? at + 2 : previousEnd, help: "Write event.?field.orValue(...) for a default.",
      replacement: replacement)
  }

  /// The precedence of the operator here: `||` 1, `&&` 2, relations 3, sums 4, products 5; 0 if there is none. `op` is
  /// nil for `||` and `&&`.
  private var infix: (binding: Int, op: SyntaxTree.Operator?) {
    switch token {
    case .symbol("||"): return (1, nil)
    case .symbol("&&"): return (2, nil)
    case .symbol("<"): return (3, .less)
    case .symbol("<="): return (3, .lessOrEqual)
    case .symbol(">"): return (3, .greater)
    case .symbol(">="): return (3, .greaterOrEqual)
    case .symbol("=="): return (3, .equal)
    case .symbol("!="): return (3, .notEqual)
    case .name("in"): return (3, .in)
    case .symbol("+"): return (4, .add)
    case .symbol("-"): return (4, .subtract)
    case .symbol("*"): return (5, .multiply)
    case .symbol("/"): return (5, .divide)
    case .symbol("%"): return (5, .modulo)
    default: return (0, nil)
    }
  }

  /// Operands joined by operators of at least the precedence `binding`.
  private mutating func operators(binding least: Int) throws(SyntaxError) -> ID {
    var left = try unary()
    while true {
      let (binding, op) = infix
      if binding < least { return left }
      if let op {
        left = try binary(left, op, binding)
      } else {
        left = try logic(left, binding)
      }
    }
  }

  private mutating func binary(
    _ left: ID, _ op: SyntaxTree.Operator, _ binding: Int
  ) throws(SyntaxError) -> ID {
    try advance()
    let right = try operators(binding: binding + 1)
    return try add(.binary(op, left, right), Int(tree[left].start), [left, right])
  }

  /// A chain of `&&` or `||` becomes one node, however long it is.
  private mutating func logic(_ first: ID, _ binding: Int) throws(SyntaxError) -> ID {
    var terms = [first]
    while infix.binding == binding {
      try advance()
      terms.append(try operators(binding: binding + 1))
    }
    return try add(.logic(terms, isAnd: binding == 2), Int(tree[first].start), terms)
  }

  private mutating func unary() throws(SyntaxError) -> ID {
    if isAt("!") { return try nots() }
    if isAt("-") { return try minuses() }
    return try member(negative: nil)
  }

  private mutating func nots() throws(SyntaxError) -> ID {
    let begin = start
    var count = 0
    while try accept("!") { count += 1 }
    var value = try member(negative: nil)
    for _ in 0..<count { value = try add(.not(value), begin, [value]) }
    return value
  }

  private mutating func minuses() throws(SyntaxError) -> ID {
    let begin = start
    var count = 0
    while try accept("-") { count += 1 }
    // The last minus belongs to the digits: -9223372036854775808 is one literal.
    var negative: Int?
    switch token {
    case .number(_, unsigned: false), .double:
      negative = begin
      count -= 1
    default: break
    }
    var value = try member(negative: negative)
    for _ in 0..<count { value = try add(.negate(value), begin, [value]) }
    return value
  }

  private mutating func member(negative: Int?) throws(SyntaxError) -> ID {
    var value = try primary(negative: negative)
    while true {
      if isAt(".") {
        try advance()
        value = try selection(of: value)
      } else if isAt("[") {
        value = try index(of: value)
      } else if isAt("{") {
        throw SyntaxError(
          .expressionSyntax, "messages cannot be built here", start, start + 1,
          help: "Write a map: {'name': value}.")
      } else {
        return value
      }
    }
  }

  private mutating func index(of target: ID) throws(SyntaxError) -> ID {
    let opened = start
    try advance()
    if isAt("]") {
      let text = tree.text(of: target, in: lexer.bytes)
      let list = text.utf8.first == UInt8(ascii: ".") ? "event" + text : text
      throw SyntaxError(
        .expressionSyntax, "'[]' names no element", Int(tree[target].start), lexer.position,
        help: "\(list) is the whole list; the step 'flattenMap: \(list)' sends its elements one by one.",
        replacement: list)
    }
    let isOptional = try accept("?")
    let key = try expression()
    try expect("]", opened)
    return try add(.index(target, key, optional: isOptional), Int(tree[target].start), [target, key])
  }

  /// Parses the part after a dot.
  private mutating func selection(of target: ID) throws(SyntaxError) -> ID {
    let begin = Int(tree[target].start)
    let isOptional = try accept("?")
    let at = start
    let field: String
    switch token {
    case .name(let name) where name != "in" && name != "true" && name != "false" && name != "null":
      field = name
    case .name("in"), .name("true"), .name("false"), .name("null"):
      throw SyntaxError(
        .expressionReservedWord, "\(token.description) cannot follow a dot", at, lexer.position,
        help: "Write \(tree.text(of: target, in: lexer.bytes))['...'] for a field of that name.")
    case .quotedName(let name):
      field = name
      try advance()
      return try add(
        .select(target, field: field, fieldAt: Int32(at), optional: isOptional), begin, [target])
    default:
      throw unexpected("the name of a field or method")
    }
    try advance()
    guard isAt("("), !isOptional else {
      return try add(
        .select(target, field: field, fieldAt: Int32(at), optional: isOptional), begin, [target])
    }
    let arguments = try self.arguments()
    if let macro = try macro(target, field, at, arguments) { return macro }
    return try add(
      .call(target: target, function: field, nameAt: Int32(at), arguments: arguments), begin,
      [target] + arguments)
  }

  private mutating func arguments() throws(SyntaxError) -> [ID] {
    let opened = start
    try expect("(")
    var list: [ID] = []
    while !isAt(")") {
      list.append(try expression())
      let comma = start
      guard try accept(",") else { break }
      if isAt(")") {
        throw SyntaxError(
          .expressionSyntax, "arguments cannot end with a comma", comma, comma + 1,
          help: "Only lists and maps can.", replacement: "")
      }
    }
    try expect(")", opened)
    return list
  }

  private mutating func primary(negative: Int?) throws(SyntaxError) -> ID {
    let begin = negative ?? start
    if isAt("(") { return try parentheses() }
    if isAt("[") { return try list(begin) }
    if isAt("{") { return try map(begin) }
    if isAt(".") {
      try advance()
      return try nameOrCall(absolute: true, begin)
    }
    if case .name(let name) = token, name != "true", name != "false", name != "null" {
      return try nameOrCall(absolute: false, begin)
    }
    return try literal(isNegative: negative != nil, begin)
  }

  private mutating func parentheses() throws(SyntaxError) -> ID {
    let begin = start
    try advance()
    let inner = try expression()
    try expect(")", begin)
    // The parentheses belong to the node, so that a caret covers them.
    tree.nodes[Int(inner)].start = Int32(begin)
    tree.nodes[Int(inner)].end = Int32(previousEnd)
    return inner
  }

  private mutating func literal(isNegative: Bool, _ begin: Int) throws(SyntaxError) -> ID {
    switch token {
    case .number(let magnitude, let isUnsigned):
      if isUnsigned { return try literal(.uint(magnitude), begin) }
      if isNegative, magnitude == 1 << 63 { return try literal(.int(.min), begin) }
      guard let value = Int64(exactly: magnitude) else {
        throw SyntaxError(
          .expressionLiteral, "this number is too large for an int", start, lexer.position,
          help: "Add 'u' for an unsigned number or '.0' for a double.")
      }
      return try literal(.int(isNegative ? -value : value), begin)
    case .double(let value):
      return try literal(.double(isNegative ? -value : value), begin)
    case .string(let bytes):
      return try literal(.string(bytes), begin)
    case .bytes(let bytes):
      return try literal(.bytes(bytes), begin)
    case .name("true"): return try literal(.bool(true), begin)
    case .name("false"): return try literal(.bool(false), begin)
    case .name("null"): return try literal(.null, begin)
    default: throw unexpected("a value")
    }
  }

  private mutating func literal(
    _ value: SyntaxTree.Literal, _ begin: Int
  ) throws(SyntaxError) -> ID {
    try advance()
    return try add(.literal(value), begin, [])
  }

  private mutating func nameOrCall(absolute: Bool, _ begin: Int) throws(SyntaxError) -> ID {
    let at = start
    guard case .name(let name) = token else { throw unexpected("a name") }
    if Self.reserved.contains(name) || name == "in" {
      throw SyntaxError(
        .expressionReservedWord, "'\(name)' is a reserved word", at, lexer.position,
        help: name == "if" || name == "else"
          ? "Write condition ? value : other." : "It is allowed after a dot and as a key.")
    }
    try advance()
    guard isAt("(") else { return try add(.identifier(name, absolute: absolute), begin, []) }
    let arguments = try self.arguments()
    if name == "has" { return try hasMacro(at, arguments, begin) }
    return try add(
      .call(
        target: nil, function: absolute ? "." + name : name, nameAt: Int32(at), arguments: arguments),
      begin, arguments)
  }

  private mutating func loneComma(_ end: String) throws(SyntaxError) {
    var error = unexpected("a value")
    try advance()
    if isAt(end) { return }
    error.help = "Remove the comma."
    throw error
  }

  private mutating func list(_ begin: Int) throws(SyntaxError) -> ID {
    try advance()
    var elements: [SyntaxTree.Element] = []
    // `[,]` is a list in the language's grammar.
    if isAt(",") { try loneComma("]") }
    while !isAt("]") {
      let isOptional = try accept("?")
      elements.append(SyntaxTree.Element(value: try expression(), optional: isOptional))
      guard try accept(",") else { break }
    }
    try expect("]", begin)
    return try add(.list(elements), begin, elements.map(\.value))
  }

  private mutating func map(_ begin: Int) throws(SyntaxError) -> ID {
    try advance()
    var members: [SyntaxTree.Member] = []
    if isAt(",") { try loneComma("}") }
    while !isAt("}") {
      let isOptional = try accept("?")
      let key = try expression()
      if !isAt(":"), case .identifier = tree[key].kind, isAt("}") || isAt(",") {
        throw SyntaxError(
          .expressionSyntax, "a map entry has no value", Int(tree[key].start), Int(tree[key].end),
          help: "Write {'key': value}.")
      }
      try expect(":")
      members.append(
        SyntaxTree.Member(key: key, value: try expression(), optional: isOptional))
      guard try accept(",") else { break }
    }
    try expect("}", begin)
    return try add(.map(members), begin, members.flatMap { [$0.key, $0.value] })
  }

  // MARK: Macros

  private mutating func hasMacro(
    _ at: Int, _ arguments: [ID], _ begin: Int
  ) throws(SyntaxError) -> ID {
    guard arguments.count == 1,
      case .select(let target, let field, let fieldAt, let optional) = tree[arguments[0]].kind
    else {
      // `has(event.h['a-b'])`: the same test for an index.
      if arguments.count == 1, case .index(let target, let key, _) = tree[arguments[0]].kind {
        let asked = "\(written(target))[?\(written(key))].hasValue()"
        throw SyntaxError(
          .expressionMacroArguments, "has() takes a field, not an index", at, previousEnd, help: "Write \(asked)",
          replacement: asked)
      }
      throw SyntaxError(
        .expressionMacroArguments, "has() takes one selection of a field", at, previousEnd,
        help: "Write has(event.name); for a computed key write key in event.")
    }
    return try add(
      .has(target, field: field, fieldAt: fieldAt, optional: optional), begin, [target])
  }

  private func written(_ id: ID) -> String {
    String(decoding: lexer.bytes[Int(tree[id].start)..<Int(tree[id].end)], as: UTF8.self)
  }

  private func variable(_ id: ID, of macro: String) throws(SyntaxError) -> String {
    if case .identifier(let name, absolute: false) = tree[id].kind { return name }
    throw SyntaxError(
      .expressionMacroArguments, "the first argument of \(macro)() must be a name",
      Int(tree[id].start), Int(tree[id].end),
      help: "Write list.\(macro)(item, ...): the name stands for each element in turn.")
  }

  /// The loop or binding of a call with this name and number of arguments, if it is a macro.
  private mutating func macro(
    _ target: ID, _ name: String, _ at: Int, _ arguments: [ID]
  ) throws(SyntaxError) -> ID? {
    let begin = Int(tree[target].start)
    let count = arguments.count
    if name == "bind", count == 3, case .identifier("cel", _) = tree[target].kind {
      let bound = try variable(arguments[0], of: name)
      return try add(
        .bind(name: bound, value: arguments[1], body: arguments[2]), begin, [arguments[1], arguments[2]])
    }
    if name == "optMap" || name == "optFlatMap", count == 2 {
      let bound = try variable(arguments[0], of: name)
      return try add(
        .optionalMap(target, name: bound, body: arguments[1], flat: name == "optFlatMap"), begin,
        [target, arguments[1]])
    }
    let kind: SyntaxTree.Loop.Kind
    var hasTwo = false
    var hasCondition = false
    switch (name, count) {
    case ("all", 2), ("all", 3): (kind, hasTwo) = (.all, count == 3)
    case ("exists", 2), ("exists", 3): (kind, hasTwo) = (.exists, count == 3)
    case ("exists_one", 2), ("existsOne", 2): kind = .existsOne
    case ("existsOne", 3), ("exists_one", 3): (kind, hasTwo) = (.existsOne, true)
    case ("map", 2): kind = .map
    case ("map", 3): (kind, hasCondition) = (.map, true)
    case ("filter", 2): kind = .filter
    case ("sortBy", 2): kind = .sortBy
    case ("groupBy", 2): kind = .groupBy
    case ("groupBy", 3): (kind, hasCondition) = (.groupBy, true)
    case ("transformList", 3), ("transformList", 4):
      (kind, hasTwo, hasCondition) = (.transformList, true, count == 4)
    case ("transformMap", 3), ("transformMap", 4):
      (kind, hasTwo, hasCondition) = (.transformMap, true, count == 4)
    case ("transformMapEntry", 3), ("transformMapEntry", 4):
      (kind, hasTwo, hasCondition) = (.transformMapEntry, true, count == 4)
    default: return nil
    }
    let first = try variable(arguments[0], of: name)
    let second = hasTwo ? try variable(arguments[1], of: name) : nil
    if first == second {
      throw SyntaxError(
        .expressionMacroArguments, "both variables of \(name)() have the name '\(first)'",
        Int(tree[arguments[1]].start), Int(tree[arguments[1]].end))
    }
    let rest = Array(arguments.dropFirst(hasTwo ? 2 : 1))
    var loop = SyntaxTree.Loop(
      kind: kind, range: target, first: first, second: second, condition: nil, body: rest[0])
    if hasCondition {
      loop.condition = rest[0]
      loop.body = rest[1]
    }
    return try add(.loop(loop), begin, [target] + rest)
  }
}

extension SyntaxTree {
  /// The source text of a node.
  func text(of id: ID, in bytes: [UInt8]) -> String {
    let node = self[id]
    return String(decoding: bytes[Int(node.start)..<Int(node.end)], as: UTF8.self)
  }
}
