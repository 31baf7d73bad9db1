extension SchemaWriter {
  /// The schema that the component's mapping must match for the parameter to have an effect; nil: a schema cannot
  /// express it.
  static func condition(_ condition: Applicability, among infos: [ParameterInfo]) -> JSONText? {
    func member(_ name: String, _ schema: JSONText, holdsByDefault: Bool) -> JSONText? {
      guard !name.hasPrefix("/") else { return nil }
      let properties: Members = [("properties", .object([(name, any([schema, reference("placeholder")]))]))]
      return .object(properties + (holdsByDefault ? [] : [("required", .array([.string(name)]))]))
    }
    func fallback(_ name: String) -> String? { infos.first { $0.name == name }?.defaultText }
    /// A word, in a list, or as the key of a mapping.
    func words(_ words: [String]) -> JSONText {
      let texts: JSONText = .object([
        (
          "enum",
          .array(
            words.map { word -> JSONText in
              word == "true" ? .bool(true) : word == "false" ? .bool(false) : .string(word)
            })
        )
      ])
      let list: JSONText = .object([("type", .string("array")), ("contains", texts)])
      let keys = words.map { JSONText.object([("type", .string("object")), ("required", .array([.string($0)]))]) }
      return any([texts, list] + keys)
    }
    switch condition {
    case .with(let name):
      return name.hasPrefix("/") ? nil : .object([("required", .array([.string(name)]))])
    case .without(let name):
      return name.hasPrefix("/") ? nil : .object([("not", .object([("required", .array([.string(name)]))]))])
    case .word(let name, let wanted):
      return member(name, words(wanted), holdsByDefault: fallback(name).map(wanted.contains) ?? false)
    case .notWord(let name, let refused):
      return member(
        name, .object([("not", words(refused))]), holdsByDefault: !(fallback(name).map(refused.contains) ?? false))
    case .begins(let name, let starts):
      let pattern = starts.map { start in
        String(
          start.unicodeScalars.flatMap { scalar -> [Unicode.Scalar] in
            (scalar.properties.isAlphabetic || scalar == "/" || scalar == ":" || scalar == "@")
              ? [scalar] : ["\\", scalar]
          }.reduce(into: "") { $0.unicodeScalars.append($1) })
      }.joined(separator: "|")
      return member(
        name, any([.object([("type", .string("string")), ("pattern", .string("^(\(pattern))"))]), type("array")]),
        holdsByDefault: false)
    case .notBegins: return nil
    case .never: return .bool(false)
    case .template(let name):
      return member(
        name, any([.object([("type", .string("string")), ("pattern", .string("\\{\\{"))]), type("array", "object")]),
        holdsByDefault: false)
    case .all(let parts):
      let schemas = parts.compactMap { Self.condition($0, among: infos) }
      return schemas.isEmpty ? nil : .object([("allOf", .array(schemas))])
    case .any(let parts):
      let schemas = parts.compactMap { Self.condition($0, among: infos) }
      return schemas.count == parts.count ? any(schemas) : nil
    }
  }
}
