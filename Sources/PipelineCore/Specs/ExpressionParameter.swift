/// An expression in a pipeline file: parsed when it is decoded, checked and compiled when the types of its variables
/// are known.
public struct ExpressionParameter: ParameterValue {
  package private(set) var syntax: ExpressionSyntax?
  package private(set) var location: SourceLocation?
  /// The type of the result; `dyn` before binding.
  package private(set) var type = ExpressionType.dyn
  /// The program; set after binding without errors.
  package private(set) var program: Program?
  /// The paths that the expression reads; empty before binding.
  private(set) var reads: [ReadPath] = []
  /// The index of its report in `Plan.expressions`; nil before binding.
  package private(set) var report: Int?

  /// The parameter is not given.
  public init() {}

  init(_ syntax: ExpressionSyntax, at location: SourceLocation?) {
    self.syntax = syntax
    self.location = location
  }

  /// Whether the file gives the expression.
  public var isGiven: Bool { syntax != nil }

  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .expression }

  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> ExpressionParameter? {
    guard let scalar = node.scalar, scalar.kind != .null || scalar.string == "null" else {
      if let problem = Self.takenByYAML(node, context.parameter) {
        context.diagnostics.report(problem)
        return nil
      }
      let flowMapping = node.entries != nil
      context.wrongType(
        node, wanted: "an expression",
        help: flowMapping
          ? "YAML reads { } as a mapping: quote the expression, or put it in a block scalar (|)"
          : node.items != nil
            ? "YAML reads [ ] as a list: quote the expression, or put it in a block scalar (|)" : nil)
      return nil
    }
    guard Self.isStructureOwn(scalar, &context) else { return nil }
    var parameter = ExpressionParameter()
    parameter.location = scalar.location
    if let problem = Self.withBraces(scalar.text, context.parameter) {
      context.diagnostics.report(problem)
      return nil
    }
    if scalar.isPlaceholder {
      parameter.syntax = Self.withoutEnvironment(scalar.text)
    } else {
      parameter.syntax = ExpressionSyntax.parse(scalar.text, into: &context.diagnostics)
    }
    return parameter.syntax == nil ? nil : parameter
  }

  /// Replaces an expression that contains an unset variable: by one of any type, if the variable is not within a text.
  private static func withoutEnvironment(_ text: LocatedText) -> ExpressionSyntax? {
    var ignored = Diagnostics()
    return ExpressionSyntax.parse(text, into: &ignored)
      ?? ExpressionSyntax.parse(LocatedText("dyn(null)"), into: &ignored)
  }

  /// Reports a template in place of an expression: `{{ event.a }}`, `{{ event.a }} items`. No expression starts in that
  /// way or contains such braces outside of a text.
  private static func withBraces(_ text: LocatedText, _ parameter: String) -> Diagnostic? {
    var found = Diagnostics()
    guard text.text.hasOpeningBraces, ExpressionSyntax.parse(text, into: &found) == nil else {
      return nil
    }
    found = Diagnostics()
    guard let template = ExpressionTemplate.parse(text, into: &found), !template.isConstant else { return nil }
    // The text without the braces may be an expression, too, but only the author knows which expression is meant.
    let bare = template.withoutBraces
    var unused = Diagnostics()
    let isExpression = ExpressionSyntax.parse(LocatedText(bare), into: &unused) != nil
    var meanings = isExpression ? [bare] : []
    if !meanings.contains(template.asExpression) { meanings.append(template.asExpression) }
    return Diagnostic(
      .expressionSyntax, "'\(parameter)' takes an expression, which is written without {{ }}", at: text.location,
      help: text.isSecret ? nil : "Write " + meanings.joined(separator: ", or, for a text, "),
      fixIts: text.isSecret ? [] : meanings.map { text.fix(0, text.text.count, $0) }
    )
  }

  /// Reports `[event.a, 1]` or `{'a': event.a}` without quotes, on one line, and offers to quote it.
  private static func takenByYAML(_ node: YAMLNode, _ parameter: String) -> Diagnostic? {
    let source = node.location.text
    let (start, end) = (node.location.offset, node.location.offset + node.location.length)
    guard node.scalar == nil, start >= 0, end <= source.bytes.count, end - start >= 2, end - start <= 500 else {
      return nil
    }
    let written = source.bytes[start..<end]
    guard let first = written.first, first == UInt8(ascii: "[") || first == UInt8(ascii: "{"),
      !written.contains(0x0A)
    else { return nil }
    let text = String(decoding: written, as: UTF8.self)
    let quoted = "\"" + LocatedText.escaped(LocatedText.escaped(text, "\\", with: "\\"), "\"", with: "\\") + "\""
    return Diagnostic(
      .wrongType,
      "'\(parameter)' must be an expression, and YAML reads \(first == UInt8(ascii: "[") ? "[ ] as a list" : "{ } as a mapping")",
      at: node.location, help: "Quote the expression, or put it in a block scalar (|)",
      fixIts: [.init(node.location, quoted)])
  }

  /// Checks that each environment value in an expression is a number, a boolean, or part of a quoted text and needs no
  /// escapes there. Other inserted values are escaped when the expression is parsed.
  private static func isStructureOwn(_ scalar: YAMLScalar, _ context: inout DecodingContext) -> Bool {
    guard scalar.isInterpolated else { return true }
    let text = scalar.text.text
    var quote: UInt8?
    var at = 0
    for insertion in scalar.insertions {
      while at < insertion.lowerBound {
        if let open = quote {
          if text[at] == UInt8(ascii: "\\") { at += 1 } else if text[at] == open { quote = nil }
        } else if text[at] == UInt8(ascii: "'") || text[at] == UInt8(ascii: "\"") {
          quote = text[at]
        }
        at += 1
      }
      at = max(at, insertion.upperBound)
      let value = text[insertion]
      let isPlain =
        quote == nil
        ? YAMLCoreSchema.kind(of: Array(value)) != .string
        : !value.contains { $0 < 0x20 || $0 == quote || $0 == UInt8(ascii: "\\") }
      if !isPlain, !scalar.isPlaceholder {
        let insertedLocation = scalar.text.location(insertion.lowerBound, insertion.upperBound)
        context.badValue(
          at: insertedLocation,
          "a value from the environment may be a number or a part of a quoted text in an expression, nothing else",
          help: "Read it as 'env.NAME' in the expression")
        return false
      }
    }
    return true
  }

  public mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    guard let syntax else { return }
    guard let (program, type, reads) = binder.compile(syntax, use) else { return }
    self.program = program
    self.reads = reads
    report = binder.lastReport
    // A type names the fields of literals and is printed, so it could reveal a secret.
    self.type = program.isSecret ? .dyn : type
  }

  /// The first names of the paths of a variable that the expression reads; nil: it reads the whole variable.
  func fields(of variable: String) -> Set<String>? {
    var fields: Set<String> = []
    for read in reads where read.variable == variable {
      guard let first = read.fields.first else { return nil }
      fields.insert(first)
    }
    return fields
  }

  /// Whether the expression reads nothing of a variable but its size.
  func readsOnlySize(of variable: String) -> Bool {
    reads.allSatisfy { $0.variable != variable || $0.isSizeOnly && $0.fields.isEmpty }
  }

  /// The program of a required parameter: binding without errors sets it.
  public var required: Program {
    guard let program else { preconditionFailure("a required expression was not bound") }
    return program
  }
}

/// A text that contains `{{ expression }}`.
package struct TemplateParameter: ParameterValue {
  package private(set) var template: ExpressionTemplate?
  package private(set) var program: TemplateProgram?
  package private(set) var location: SourceLocation?
  package private(set) var containsSecret = false
  /// The variables that the template's expressions read; empty before binding.
  package private(set) var variables: Set<String> = []

  package init() {}

  package var isGiven: Bool { template != nil }
  package var isConstant: Bool { template?.isConstant ?? true }

  package static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .template }

  package static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> TemplateParameter? {
    guard let scalar = node.scalar, scalar.kind != .null else {
      context.wrongType(
        node, wanted: "a text",
        help: node.entries != nil ? "YAML reads {{ as a mapping: quote the text" : nil)
      return nil
    }
    var parameter = TemplateParameter()
    parameter.location = scalar.location
    parameter.containsSecret = scalar.containsSecret
    parameter.template = ExpressionTemplate.parse(scalar.text, into: &context.diagnostics)
    return parameter.template == nil ? nil : parameter
  }

  package mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    guard let template else { return }
    guard let (program, reads) = binder.compile(template, use) else { return }
    self.program = program
    variables = Set(reads.map(\.variable))
  }
}

/// An expression, or a mapping (or list) of expressions that builds a value of the same form.
///
/// A field whose expression returns `optional.none()` is omitted.
public struct MappingParameter: ParameterValue {
  package indirect enum Node: Sendable {
    case expression(ExpressionParameter)
    case object([(key: String, node: Node)])
    case list([Node])
  }
  package private(set) var root: Node?
  /// Whether the file gives the mapping.
  public var isGiven: Bool { root != nil }
  package private(set) var type = ExpressionType.dyn

  public init() {}

  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .mapping }

  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> MappingParameter? {
    decode(node, &context) { expression, _ in expression }
  }

  /// - Parameter each: Replaces each expression; returns nil after an error, which it reports.
  static func decode(
    _ node: YAMLNode, _ context: inout DecodingContext,
    each: (ExpressionParameter, inout DecodingContext) -> ExpressionParameter?
  ) -> MappingParameter? {
    var parameter = MappingParameter()
    parameter.root = decodeNode(node, &context, each)
    return parameter.root == nil ? nil : parameter
  }

  private static func decodeNode(
    _ node: YAMLNode, _ context: inout DecodingContext,
    _ each: (ExpressionParameter, inout DecodingContext) -> ExpressionParameter?
  ) -> Node? {
    if let entries = node.entries {
      return .object(
        entries.compactMap { entry in
          decodeNode(entry.value, &context, each).map { (entry.name, $0) }
        })
    }
    if let items = node.items {
      return .list(items.compactMap { decodeNode($0, &context, each) })
    }
    return ExpressionParameter.decode(node, &context).flatMap { each($0, &context) }.map { .expression($0) }
  }

  public mutating func bind(_ binder: inout Binder, _ use: ExpressionUse) {
    guard let root else { return }
    let (bound, type) = Self.bind(root, &binder, use)
    self.root = bound
    self.type = type
  }

  private static func bind(
    _ node: Node, _ binder: inout Binder, _ use: ExpressionUse
  ) -> (Node, ExpressionType) {
    switch node {
    case .expression(var parameter):
      parameter.bind(&binder, use)
      return (.expression(parameter), parameter.type)
    case .list(let items):
      var bound: [Node] = []
      for item in items { bound.append(bind(item, &binder, use).0) }
      return (.list(bound), .list(.dyn))
    case .object(let members):
      var bound: [(key: String, node: Node)] = []
      var fields: [ExpressionType.Field] = []
      for member in members {
        let (node, type) = bind(member.node, &binder, use)
        bound.append((member.key, node))
        if case .optional(let inner) = type {
          fields.append(.init(member.key, inner, mayBeAbsent: true))
        } else {
          fields.append(.init(member.key, type))
        }
      }
      return (.object(bound), .object(fields: fields, open: false))
    }
  }

  /// The first names of the paths of a variable that the mapping reads; nil: it reads the whole variable.
  func fields(of variable: String) -> Set<String>? { root.flatMap { Self.fields($0, variable) } }

  /// Whether the mapping reads nothing of a variable but its size.
  func readsOnlySize(of variable: String) -> Bool { root.map { Self.readsOnlySize($0, variable) } ?? true }

  private static func readsOnlySize(_ node: Node, _ variable: String) -> Bool {
    switch node {
    case .expression(let parameter): parameter.readsOnlySize(of: variable)
    case .object(let members): members.allSatisfy { readsOnlySize($0.node, variable) }
    case .list(let items): items.allSatisfy { readsOnlySize($0, variable) }
    }
  }

  private static func fields(_ node: Node, _ variable: String) -> Set<String>? {
    let parts: [Node]
    switch node {
    case .expression(let parameter): return parameter.fields(of: variable)
    case .object(let members): parts = members.map(\.node)
    case .list(let items): parts = items
    }
    var all: Set<String> = []
    for part in parts {
      guard let fields = fields(part, variable) else { return nil }
      all.formUnion(fields)
    }
    return all
  }
}

/// A JSON value written in YAML: `startWith: 0`, `ignore: null`.
public struct LiteralParameter: ParameterValue {
  /// The value; null until it is decoded.
  public private(set) var value: OwnedValue
  /// Whether the file gives the value.
  public var isGiven = false
  package var location: SourceLocation?

  /// Null; the parameter is not given.
  public init() { value = OwnedValue() }

  package init(_ value: Value) { self.value = OwnedValue(value) }

  public static func shape(range: ClosedRange<Int64>?) -> ParameterShape { .literal }

  public var defaultText: String? {
    let text = OutputBuffer()
    JSONWriter.append(value.value, to: text)
    return String(decoding: text.bytes, as: UTF8.self)
  }

  public static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> LiteralParameter? {
    let arena = Arena()
    var parameter = LiteralParameter(value(of: node, in: arena))
    parameter.isGiven = true
    parameter.location = node.location
    warn(ofTemplatesIn: node, &context)
    warn(ofQuotesIn: node, &context)
    return parameter
  }

  /// Warns of a text with `{{ }}`, which is not a template here.
  private static func warn(ofTemplatesIn node: YAMLNode, _ context: inout DecodingContext) {
    switch node.content {
    case .sequence(let items): for item in items { warn(ofTemplatesIn: item, &context) }
    case .mapping(let entries): for entry in entries { warn(ofTemplatesIn: entry.value, &context) }
    case .scalar(let scalar):
      let text = scalar.text.text
      guard text.hasOpeningBraces, let open = text.firstRange(of: [0x7B, 0x7B]),
        text[open.upperBound...].firstRange(of: [0x7D, 0x7D]) != nil
      else { return }
      context.diagnostics.report(
        Diagnostic(
          .templateInLiteral,
          "'\(context.parameter)' of '\(context.component)' is used literally, so '\(scalar.shown)' is not a template",
          at: scalar.location, help: "Put 'map: EXPRESSION' after it"))
    }
  }

  /// Warns of `"'text'"`: it is right for an expression, but here the inner quotes would be part of the text.
  private static func warn(ofQuotesIn node: YAMLNode, _ context: inout DecodingContext) {
    guard let scalar = node.scalar, scalar.style == .doubleQuoted || scalar.style == .singleQuoted else { return }
    let text = scalar.text.text
    guard text.count >= 2, let quote = text.first, quote == text.last, quote == 0x22 || quote == 0x27,
      !text.dropFirst().dropLast().contains(quote)
    else { return }
    let inner = String(decoding: text.dropFirst().dropLast(), as: UTF8.self)
    let written = "'" + LocatedText.escaped(inner, "'", with: "'") + "'"
    context.diagnostics.report(
      Diagnostic(
        .quotesInLiteral,
        """
        '\(context.parameter)' of '\(context.component)' is used literally, so the inner quotes are part of the \
        text
        """,
        at: scalar.location, help: "Write \(written); two kinds of quotes are for expressions",
        fixIts: [.init(scalar.location, written)]))
  }

  /// A YAML node as a JSON value: core-schema scalars, lists and maps.
  package static func value(of node: YAMLNode, in arena: Arena) -> Value {
    switch node.content {
    case .sequence(let items):
      return arena.list(items.map { value(of: $0, in: arena) })
    case .mapping(let entries):
      return arena.map(
        entries.map { (key: arena.string($0.name), value: value(of: $0.value, in: arena)) })
    case .scalar(let scalar):
      switch scalar.kind {
      case .null: return .null
      case .bool: return .bool(scalar.bool ?? false)
      case .int:
        if let number = scalar.int { return .int(number) }
        // Above Int64 the number may be a uint.
        if let number = scalar.text.text.withUnsafeBytes({ JSONParser.number($0) }), number.is(.uint) { return number }
        return double(scalar, arena)
      case .float: return double(scalar, arena)
      case .string: return arena.string(scalar.string)
      }
    }
  }

  /// Keeps the number's text from the file if it is valid JSON.
  private static func double(_ scalar: YAMLScalar, _ arena: Arena) -> Value {
    let text = scalar.text.text.withUnsafeBytes { arena.copy($0) }
    if let number = JSONParser.number(text), number.is(.double) { return number }
    return scalar.double.map { .double($0) } ?? arena.string(scalar.string)
  }
}
