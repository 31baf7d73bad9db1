/// The condition under which a parameter has an effect: values of other parameters of the same component. If it is not met, the parameter is an
/// error (RX225), so that no setting is silently ignored; the reference, `rxd describe` and the JSON schema give the condition.
///
/// The names are those of parameters beside this one; in a record, `/NAME` is a parameter of the component.
public indirect enum Applicability: Sendable, Equatable {
  /// The file gives the parameter.
  case with(String)
  /// The parameter, or its default, is one of these words; of a list, any element; of a mapping, any key.
  case word(String, [String])
  /// The parameter, or its default, is none of these words.
  case notWord(String, [String])
  /// The text of the parameter begins with one of these.
  case begins(String, [String])
  /// The text of the parameter begins with none of these.
  case notBegins(String, [String])
  /// The text of the parameter, or of a value in its mapping, has an expression in `{{ }}`.
  case template(String)
  case all([Applicability])
  case any([Applicability])

  /// The parameter is the given word or has it as its default.
  package static func on(_ name: String) -> Applicability { .word(name, ["true"]) }
  package static func off(_ name: String) -> Applicability { .word(name, ["false"]) }

  /// The condition as a phrase: "with `follow: true`". `quote` surrounds YAML.
  package func phrase(_ quote: String = "`") -> String {
    func quoted(_ text: String) -> String { quote + text + quote }
    func plain(_ name: String) -> String { name.hasPrefix("/") ? String(name.dropFirst()) : name }
    func settings(_ name: String, _ words: [String]) -> String {
      words.map { quoted("\(plain(name)): \($0)") }.joined(separator: " or ")
    }
    switch self {
    case .with(let name): return "with \(quoted(plain(name)))"
    case .word(let name, ["false"]): return "without \(quoted("\(plain(name)): true"))"
    case .word(let name, let words): return "with \(settings(name, words))"
    case .notWord(let name, let words): return "without \(settings(name, words))"
    case .begins(let name, let starts):
      return "with \(quoted(plain(name))) that begins with \(starts.map { quoted($0) }.joined(separator: " or "))"
    case .notBegins(let name, let starts):
      return
        "with \(quoted(plain(name))) that does not begin with \(starts.map { quoted($0) }.joined(separator: " or "))"
    case .template(let name): return "with {{ }} in \(quoted(plain(name)))"
    case .all(let parts): return parts.map { $0.phrase(quote) }.joined(separator: " and ")
    case .any(let parts): return parts.map { $0.phrase(quote) }.joined(separator: ", or ")
    }
  }

  /// The names of the parameters that decide.
  package var names: [String] {
    switch self {
    case .with(let name), .word(let name, _), .notWord(let name, _), .begins(let name, _), .notBegins(let name, _),
      .template(let name):
      [name]
    case .all(let parts), .any(let parts): parts.flatMap(\.names)
    }
  }

  /// Whether the parameter has an effect; true where a value is not known yet.
  func holds(_ setting: (String) -> ParameterSetting) -> Bool {
    switch self {
    case .with(let name): setting(name).node != nil
    case .word(let name, let words): setting(name).words.map { $0.contains(where: words.contains) } ?? true
    case .notWord(let name, let words): setting(name).words.map { !$0.contains(where: words.contains) } ?? true
    case .begins(let name, let starts):
      setting(name).words.map { $0.contains { Self.begins($0, starts) } } ?? true
    case .notBegins(let name, let starts):
      setting(name).words.map { !$0.contains { Self.begins($0, starts) } } ?? true
    case .template(let name): setting(name).node.map(Self.hasTemplate) ?? false
    case .all(let parts): parts.allSatisfy { $0.holds(setting) }
    case .any(let parts): parts.contains { $0.holds(setting) }
    }
  }

  /// Whether `text` begins with one of `starts`, which are in lower case. Ignores case, as URL schemes do.
  private static func begins(_ text: String, _ starts: [String]) -> Bool {
    let text = text.lowercased()
    return starts.contains { text.hasPrefix($0) }
  }

  private static func hasTemplate(_ node: YAMLNode) -> Bool {
    if let scalar = node.scalar { return scalar.isPlaceholder || scalar.string.utf8.firstRange(of: "{{".utf8) != nil }
    if let items = node.items { return items.contains(where: hasTemplate) }
    return node.entries?.contains { hasTemplate($0.value) } ?? false
  }
}

/// The value of a parameter as far as conditions of others ask for it.
struct ParameterSetting {
  /// Nil: the file does not give it.
  var node: YAMLNode?
  var defaultText: String?

  /// The default is written as in a file: `next`, `[next, error]`.
  private static func words(ofDefault text: String) -> [String] {
    guard text.hasPrefix("["), text.hasSuffix("]") else { return text.isEmpty ? [] : [text] }
    return text.dropFirst().dropLast().split(separator: ",").map { String($0.drop { $0 == " " }) }
  }

  /// The texts of the value: a scalar, the elements of a list, the keys of a mapping; nil: a value is not known yet.
  var words: [String]? {
    guard let node else { return Self.words(ofDefault: defaultText ?? "") }
    if let entries = node.entries { return entries.map(\.name) }
    let scalars = (node.items ?? [node]).map(\.scalar)
    if scalars.contains(where: { $0?.isPlaceholder == true }) { return nil }
    return (node.items ?? [node]).compactMap { item in item.bool.map { $0 ? "true" : "false" } ?? item.string }
  }
}

extension ParameterShape {
  /// The shape with further conditions of fields, by name.
  func adding(_ conditions: [String: Applicability]) -> ParameterShape {
    guard !conditions.isEmpty else { return self }
    switch self {
    case .record(let fields):
      return .record(
        fields.map { field in
          var field = field
          if let condition = conditions[field.name] {
            field.applies = field.applies.map { .all([$0, condition]) } ?? condition
          }
          return field
        })
    case .oneOf(let shapes): return .oneOf(shapes.map { $0.adding(conditions) })
    default: return self
    }
  }
}

extension DecodingContext {
  /// Reports each parameter that the file gives and that has no effect beside the others.
  mutating func refuseWithoutEffect(_ parameters: [ParameterInfo]) {
    refuse(parameters, among: parameters, prefix: "")
  }

  /// A parameter that a template leaves out is null.
  private func given(_ path: String) -> YAMLNode? { node(of: path).flatMap { $0.isNull ? nil : $0 } }

  private mutating func refuse(_ infos: [ParameterInfo], among root: [ParameterInfo], prefix: String) {
    for info in infos {
      // The text of a preset is the same for all values of its parameters.
      guard let node = given(prefix + info.name), node.location.text.preset == nil else { continue }
      let condition = info.applies ?? .all([])
      func setting(_ name: String) -> ParameterSetting {
        let isRoot = name.hasPrefix("/")
        let name = isRoot ? String(name.dropFirst()) : name
        return ParameterSetting(
          node: self.given(isRoot ? name : prefix + name),
          defaultText: (isRoot ? root : infos).first { $0.name == name }?.defaultText)
      }
      guard condition.holds(setting) else {
        let whole = prefix.isEmpty ? component : String(prefix.dropLast())
        let (reason, remedy) = (condition.unmet(setting), condition.remedy(info.name, setting))
        diagnostics.report(
          Diagnostic(
            .conflictingParameters, "'\(info.name)' of '\(whole)' has no effect \(reason)", at: node.location,
            help: remedy))
        continue
      }
      for fields in SpecText.records(info.shape) { refuse(fields, among: root, prefix: prefix + info.name + ".") }
    }
  }
}

extension Applicability {
  /// The reason why the parameter has no effect: "without 'every'", "with 'mode: replace'".
  func unmet(_ setting: (String) -> ParameterSetting) -> String {
    func plain(_ name: String) -> String { name.hasPrefix("/") ? String(name.dropFirst()) : name }
    switch self {
    case .with(let name): return "without '\(plain(name))'"
    case .word(let name, ["false"]): return "with '\(plain(name)): true'"
    case .word(let name, let words):
      if let written = setting(name).node?.string { return "with '\(plain(name)): \(Printable.cut(written))'" }
      return "without \(words.map { "'\(plain(name)): \($0)'" }.joined(separator: " or "))"
    case .notWord(let name, let words):
      return "with \(words.map { "'\(plain(name)): \($0)'" }.joined(separator: " or "))"
    case .begins(let name, let starts):
      return "unless '\(plain(name))' begins with \(starts.map { "'\($0)'" }.joined(separator: " or "))"
    case .notBegins(let name, let starts):
      return "if '\(plain(name))' begins with \(starts.map { "'\($0)'" }.joined(separator: " or "))"
    case .template(let name): return "without {{ }} in '\(plain(name))'"
    case .all(let parts):
      return parts.first { !$0.holds(setting) }?.unmet(setting) ?? "but \(phrase("'"))"
    case .any: return "but \(phrase("'"))"
    }
  }

  /// What to do about it.
  func remedy(_ parameter: String, _ setting: (String) -> ParameterSetting) -> String {
    func plain(_ name: String) -> String { name.hasPrefix("/") ? String(name.dropFirst()) : name }
    switch self {
    case .with(let name): return "Add '\(plain(name))', or leave '\(parameter)' out"
    case .word(let name, let words) where words != ["false"]:
      return "Write '\(plain(name)): \(words[0])', or leave '\(parameter)' out"
    case .all(let parts):
      return parts.first { !$0.holds(setting) }?.remedy(parameter, setting) ?? "Leave '\(parameter)' out"
    default: return "Leave '\(parameter)' out"
    }
  }
}
