/// Compares a source's schema with the output of its decoder.
extension Compilation {
  /// Reports each field that a schema declares with a type that no value of the source has, such as numbers in CSV,
  /// whose fields are texts.
  func compare(_ declared: ExpressionType, at schema: YAMLNode, with given: EventType, _ node: ComponentNode) {
    if given.text != nil {
      guard declared.unwrapped.isStructured else { return }
      let origin = textOrigin(node)
      return report(
        "the schema declares \(declared.unwrapped.kind), but the source gives texts", schema.location,
        help: "Read JSON with 'decode: json'", fix: origin.remedy)
    }
    compare(declared, schema, with: given.type, [], node)
    if given.type == .dyn { compareWithPairs(declared, schema, node) }
  }

  /// Fields of `logfmt` are texts, or `true` without a value, unless `types` says otherwise; their names are not known before.
  private func compareWithPairs(_ declared: ExpressionType, _ schema: YAMLNode, _ node: ComponentNode) {
    guard let decode = node.arguments?["decode"], case .object(let fields, _) = declared.unwrapped else { return }
    let entry = decode.entries?.first
    guard decode.string == "logfmt" || entry?.name == "logfmt" else { return }
    for field in fields where entry?.value["types"]?[field.name] == nil {
      let wanted = field.type.unwrapped
      guard [.int, .uint, .double].contains(wanted) else { continue }
      let (help, fix) = remedy(for: [field.name], wanted, node)
      report(
        "'\(Printable.cut(field.name))' is declared as \(wanted.kind), but the source gives a text",
        schema.entries?.first { $0.name == field.name || $0.name == "\(field.name)?" }?.value.location
          ?? schema.location, help: help, fix: fix)
    }
  }

  private func compare(
    _ declared: ExpressionType, _ schema: YAMLNode, with given: ExpressionType, _ path: [String], _ node: ComponentNode
  ) {
    let (wanted, found) = (declared.unwrapped, given.unwrapped)
    if case .object(let fields, _) = wanted, found.isStructured {
      for field in fields {
        guard let type = found.member(field.name) else { continue }
        let entry = schema.entries?.first { $0.name == field.name || $0.name == "\(field.name)?" }
        compare(field.type, entry?.value ?? schema, with: type, path + [field.name], node)
      }
      return
    }
    guard !found.canBeRead(as: wanted) else { return }
    let name = path.joined(separator: ".")
    let subject = path.isEmpty ? "the events are" : "'\(Printable.cut(name))' is"
    let (help, fix) = remedy(for: path, wanted, node)
    report(
      "\(subject) declared as \(wanted.kind), but the source gives \(found.kind)", schema.location, help: help, fix: fix
    )
  }

  private func remedy(
    for path: [String], _ wanted: ExpressionType, _ node: ComponentNode
  ) -> (help: String, Diagnostic.FixIt?) {
    let decode = node.arguments?["decode"]
    let format = decode?.string ?? decode?.entries?.first?.name
    let name = path.last ?? "event"
    switch format {
    case "csv":
      return (
        "Let the decoder recognise numbers: 'decode: { csv: { types: infer } }'",
        decode?.scalar.flatMap { $0.isInterpolated ? nil : .init($0.location, "{ csv: { types: infer } }") }
      )
    case "regex", "logfmt": return ("Give it its type in the decoder: 'types: { \(name): \(wanted) }'", nil)
    default:
      switch wanted {
      case .int, .uint, .double, .bool:
        return (
          "Declare it as string, and convert it where it is used: \(wanted)(event.\(path.joined(separator: ".")))", nil
        )
      default: return ("Declare the type that the source gives", nil)
      }
    }
  }

  private func report(_ message: String, _ location: SourceLocation, help: String, fix: Diagnostic.FixIt?) {
    diagnostics.report(
      Diagnostic(.schemaMismatch, message, at: location, help: help, fixIts: fix.map { [$0] } ?? []))
  }
}

extension ExpressionType {
  /// Whether it has members.
  fileprivate var isStructured: Bool {
    switch self {
    case .object, .map: return true
    default: return false
    }
  }

  /// The type of a member of an object or map; nil: unknown.
  fileprivate func member(_ name: String) -> ExpressionType? {
    switch self {
    case .object: return field(name)?.type
    case .map(_, let value): return value
    default: return nil
    }
  }

  /// Whether a value of this type can be one that a schema declares as `wanted`: numbers can be of each type of number, and
  /// texts can be times.
  fileprivate func canBeRead(as wanted: ExpressionType) -> Bool {
    switch (self, wanted) {
    case (.dyn, _), (_, .dyn), (.null, _), (_, .null), (.optional, _), (_, .optional), (.abstract, _), (_, .abstract):
      return true
    case (.string, .string), (.string, .timestamp), (.string, .duration): return true
    case (.int, .int), (.int, .uint), (.int, .double), (.uint, .int), (.uint, .uint), (.uint, .double): return true
    case (.double, .int), (.double, .uint), (.double, .double): return true
    case (.list, .list): return true
    case (.object, .map), (.map, .map), (.object, .object), (.map, .object): return true
    default: return self == wanted
    }
  }

  /// The name of the values in messages.
  fileprivate var kind: String {
    switch self {
    case .string: return "a text"
    case .object, .map: return "an object"
    default: return withArticle
    }
  }
}
