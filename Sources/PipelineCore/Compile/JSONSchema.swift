/// Reads the type of events from a JSON Schema (draft 2020-12, and the parts that older drafts share with it).
///
/// Constraints that types cannot express are ignored: bounds, patterns, formats. A property that is not required may be
/// null or absent. A property that is not declared can be read only if `additionalProperties` explicitly allows it,
/// although JSON Schema allows everything by default.
struct JSONSchema {
  private let root: YAMLNode
  private var diagnostics: [Diagnostic] = []
  /// The references that are being resolved.
  private var following: [String] = []
  private static let depthLimit = 32

  /// The type of events; nil, with a diagnostic, after an error.
  static func type(of root: YAMLNode, into diagnostics: inout Diagnostics) -> ExpressionType? {
    guard root.entries != nil || root.bool != nil else {
      diagnostics.report(
        Diagnostic(
          .schemaFile, "a JSON Schema is an object, not \(root.kindName)", at: root.location,
          help: "Write e.g. {\"type\": \"object\", \"properties\": {...}}"))
      return nil
    }
    var reader = JSONSchema(root: root)
    let type = reader.type(root, 0)
    diagnostics.report(contentsOf: reader.diagnostics)
    return reader.diagnostics.contains { $0.severity == .error } ? nil : type
  }

  private init(root: YAMLNode) { self.root = root }

  private mutating func type(_ node: YAMLNode, _ depth: Int) -> ExpressionType {
    guard depth < Self.depthLimit, let entries = node.entries else { return .dyn }
    if let reference = node["$ref"] { return follow(reference, depth) }
    var type = ownType(node, entries, depth)
    for part in node["allOf"]?.items ?? [] { type = Self.both(type, self.type(part, depth + 1)) }
    for key in ["anyOf", "oneOf"] {
      guard let parts = node[key]?.items, !parts.isEmpty else { continue }
      let joined = Self.either(parts.map { self.type($0, depth + 1) })
      type = Self.both(type, joined)
    }
    if node["nullable"]?.bool == true { type = type.orNull }
    return type
  }

  private mutating func ownType(_ node: YAMLNode, _ entries: [YAMLEntry], _ depth: Int) -> ExpressionType {
    if let constant = node["const"] { return Self.type(ofValue: constant) }
    if let names = node["type"] {
      let all = names.items ?? [names]
      return Self.either(all.map { named($0, node, depth) })
    }
    if let choices = node["enum"]?.items { return Self.either(choices.map(Self.type(ofValue:))) }
    if node["properties"] != nil { return object(node, depth) }
    return .dyn
  }

  private mutating func named(_ name: YAMLNode, _ node: YAMLNode, _ depth: Int) -> ExpressionType {
    switch name.string {
    case "null": return .null
    case "boolean": return .bool
    case "integer": return .int
    case "number": return .double
    case "string": return .string
    case "array":
      guard let items = node["items"], items.entries != nil, node["prefixItems"] == nil else { return .list(.dyn) }
      return .list(type(items, depth + 1))
    case "object": return object(node, depth)
    default:
      let known = ["null", "boolean", "integer", "number", "string", "array", "object"]
      let meant = Suggestion.nearest(to: name.string ?? "", among: known)
      diagnostics.append(
        Diagnostic(
          .schemaFile, "JSON Schema has no type '\(name.shown)'", at: name.location,
          help: meant.map { "Did you mean '\($0)'?" } ?? "It has: " + known.joined(separator: ", ")))
      return .dyn
    }
  }

  private mutating func object(_ node: YAMLNode, _ depth: Int) -> ExpressionType {
    let further = node["additionalProperties"]
    let properties = node["properties"]?.entries ?? []
    if properties.isEmpty {
      if let further, further.entries != nil { return .map(.string, type(further, depth + 1)) }
      return further?.bool == false && node["patternProperties"] == nil
        ? .object(fields: [], open: false) : .map(.string, .dyn)
    }
    let required = Set((node["required"]?.items ?? []).compactMap(\.string))
    var fields: [ExpressionType.Field] = []
    for property in properties {
      let type = type(property.value, depth + 1)
      var field = ExpressionType.Field(property.name, required.contains(property.name) ? type : type.orNull)
      field.isDeclared = true
      field.choices = Self.texts(property.value)
      fields.append(field)
    }
    let isOpen = further?.bool == true || further?.entries != nil || node["patternProperties"] != nil
    return .object(fields: fields, open: isOpen)
  }

  /// The texts of an `enum` that consists of texts and null.
  private static func texts(_ node: YAMLNode) -> [String] {
    guard let choices = node["enum"]?.items else { return [] }
    let texts = choices.filter { !$0.isNull }
    guard texts.allSatisfy({ $0.scalar?.kind == .string }) else { return [] }
    return texts.compactMap(\.string)
  }

  private static func type(ofValue node: YAMLNode) -> ExpressionType {
    switch node.content {
    case .sequence: return .list(.dyn)
    case .mapping: return .map(.string, .dyn)
    case .scalar(let scalar):
      switch scalar.kind {
      case .null: return .null
      case .bool: return .bool
      case .int: return .int
      case .float: return .double
      case .string: return .string
      }
    }
  }

  // MARK: Combining

  /// The type of a value that satisfies both types.
  private static func both(_ a: ExpressionType, _ b: ExpressionType) -> ExpressionType {
    if a == b || b == .dyn { return a }
    if a == .dyn { return b }
    guard case .object(let fields, let open) = a, case .object(let others, let otherOpen) = b else {
      if case .map = a, case .object = b { return b }
      return a
    }
    return .object(
      fields: fields + others.filter { other in !fields.contains { $0.name == other.name } }, open: open || otherOpen)
  }

  /// The type of a value that satisfies at least one of the types.
  static func either(_ types: [ExpressionType]) -> ExpressionType {
    let mayBeNull = types.contains(.null) || types.contains { $0 != $0.unwrapped }
    let others = types.filter { $0 != .null }.map(\.unwrapped)
    guard var joined = others.first else { return types.isEmpty ? .dyn : .null }
    for other in others.dropFirst() where other != joined {
      let numbers: [ExpressionType] = [.int, .double]
      if numbers.contains(joined), numbers.contains(other) {
        joined = .double
      } else {
        return .dyn
      }
    }
    return mayBeNull ? joined.orNull : joined
  }

  // MARK: References

  private mutating func follow(_ reference: YAMLNode, _ depth: Int) -> ExpressionType {
    let text = reference.string ?? ""
    guard text.hasPrefix("#") else {
      diagnostics.append(
        Diagnostic(
          .schemaPart, "the reference '\(reference.shown)' points outside the file, so any value is accepted here",
          at: reference.location, help: "Move the definition into this file, below '$defs'"))
      return .dyn
    }
    // A recursive type has no finite form, so the inner occurrence may be anything.
    guard !following.contains(text) else { return .dyn }
    var target: YAMLNode? = root
    for part in text.dropFirst().split(separator: "/") {
      let name = part.split(separator: "~", omittingEmptySubsequences: false).enumerated().map { index, piece in
        index == 0 ? String(piece) : piece.hasPrefix("1") ? "/" + piece.dropFirst() : "~" + piece.dropFirst()
      }.joined()
      target = target?[name]
    }
    guard let target else {
      diagnostics.append(
        Diagnostic(.schemaFile, "the reference '\(reference.shown)' points to nothing", at: reference.location))
      return .dyn
    }
    following.append(text)
    defer { following.removeLast() }
    return type(target, depth + 1)
  }
}
