/// The condition under which a parameter has an effect, stated by other parameters of the same component. If the
/// condition is not met, the parameter is an error (RX225), so that no setting is silently ignored. The reference, `rxd
/// describe` and the JSON schema show the condition.
///
/// The names are those of parameters of the same component or record; in a record, `/NAME` is a parameter of the
/// component.
public indirect enum Applicability: Sendable, Equatable {
  /// The file gives the parameter.
  case with(String)
  /// The file does not give the parameter.
  case without(String)
  /// The parameter, or its default, is one of these words; in a list, any element; in a mapping, any key.
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
  /// The parameter never has an effect, for this reason: a clause such as "a header would be a message of its own".
  case never(String)

  /// Whether a boolean parameter, or its default, is true or false.
  package static func on(_ name: String) -> Applicability { .word(name, ["true"]) }
  package static func off(_ name: String) -> Applicability { .word(name, ["false"]) }

  /// The condition as a sentence: "Only with `follow: true`.", "Not with `decode: whole`, `bytes` or `prometheus`."
  package var sentence: String {
    switch self {
    case .never(let reason): return "Has no effect here: \(reason)."
    case .all(let parts):
      let excluded = parts.compactMap { $0.excluded("`") }
      let asked = parts.filter { $0.excluded("`") == nil }
      if excluded.isEmpty { break }
      let rest = "ot with \(Self.list(excluded, "or"))."
      return asked.isEmpty ? "N\(rest)" : "Only \(Applicability.all(asked).phrase()), n\(rest)"
    default:
      if let excluded = excluded("`") { return "Not with \(excluded)." }
    }
    return "Only \(phrase())."
  }

  /// The condition as a phrase: "with `follow: true`". `quote` surrounds YAML.
  package func phrase(_ quote: String = "`") -> String {
    if let excluded = excluded(quote) { return "without \(excluded)" }
    if let asked = asked(quote) { return "with \(asked)" }
    switch self {
    case .all(let parts):
      let (asked, rest) = (parts.compactMap { $0.asked(quote) }, parts.filter { $0.asked(quote) == nil })
      return ((asked.isEmpty ? [] : ["with \(Self.list(asked, "and"))"]) + rest.map { $0.phrase(quote) })
        .joined(separator: " and ")
    case .any(let parts):
      let asked = parts.compactMap { $0.asked(quote) }
      if asked.count == parts.count { return "with \(Self.list(asked, "or"))" }
      return parts.map { $0.phrase(quote) }.joined(separator: ", or ")
    default: return ""
    }
  }

  /// The phrase for the settings that the condition requires: "`mode: a` or `b`"; nil: the condition is of another
  /// kind.
  private func asked(_ quote: String) -> String? {
    switch self {
    case .with(let name): Self.quoted(Self.plain(name), quote)
    case .word(_, ["false"]): nil
    case .word(let name, let words): Self.settings(name, words, quote)
    case .begins(let name, let starts): Self.text(name, starts, quote)
    case .template(let name): "{{ }} in \(Self.quoted(Self.plain(name), quote))"
    default: nil
    }
  }

  /// The phrase for the settings that the condition excludes; nil: the condition is of another kind.
  private func excluded(_ quote: String) -> String? {
    switch self {
    case .word(let name, ["false"]): Self.settings(name, ["true"], quote)
    case .without(let name): Self.quoted(Self.plain(name), quote)
    case .notWord(let name, let words): Self.settings(name, words, quote)
    case .notBegins(let name, let starts): Self.text(name, starts, quote)
    default: nil
    }
  }

  /// Several words of a parameter: `mode: a`, `b` or `c`.
  fileprivate static func settings(_ name: String, _ words: [String], _ quote: String) -> String {
    list(words.enumerated().map { quoted($0 == 0 ? "\(plain(name)): \($1)" : $1, quote) }, "or")
  }

  private static func text(_ name: String, _ starts: [String], _ quote: String) -> String {
    "\(quoted(plain(name), quote)) that begins with \(list(starts.map { quoted($0, quote) }, "or"))"
  }

  private static func quoted(_ text: String, _ quote: String) -> String { quote + text + quote }
  fileprivate static func plain(_ name: String) -> String { name.hasPrefix("/") ? String(name.dropFirst()) : name }

  private static func list(_ items: [String], _ word: String) -> String {
    guard let last = items.last, items.count > 1 else { return items.joined() }
    return "\(items.dropLast().joined(separator: ", ")) \(word) \(last)"
  }

  /// The names of the parameters on which the condition depends.
  package var names: [String] {
    switch self {
    case .with(let name), .without(let name), .word(let name, _), .notWord(let name, _), .begins(let name, _),
      .notBegins(let name, _), .template(let name):
      [name]
    case .all(let parts), .any(let parts): parts.flatMap(\.names)
    case .never: []
    }
  }

  /// Whether the parameter has an effect; true where a value is not known yet.
  func holds(_ setting: (String) -> ParameterSetting) -> Bool {
    switch self {
    case .with(let name): setting(name).node != nil
    case .without(let name): setting(name).node == nil
    case .word(let name, let words): setting(name).words.map { $0.contains { Self.has(words, $0) } } ?? true
    case .notWord(let name, let words): setting(name).words.map { !$0.contains { Self.has(words, $0) } } ?? true
    case .begins(let name, let starts):
      setting(name).words.map { $0.contains { Self.begins($0, starts) } } ?? true
    case .notBegins(let name, let starts):
      setting(name).words.map { !$0.contains { Self.begins($0, starts) } } ?? true
    case .template(let name): setting(name).node.map(Self.hasTemplate) ?? false
    case .all(let parts): parts.allSatisfy { $0.holds(setting) }
    case .any(let parts): parts.contains { $0.holds(setting) }
    case .never: false
    }
  }

  /// Whether `word` is one of `words`. Ignores case, as charset names do; for words in which case matters, the wrong
  /// case is reported elsewhere.
  private static func has(_ words: [String], _ word: String) -> Bool {
    let word = word.lowercased()
    return words.contains { $0.lowercased() == word }
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

/// The value of a parameter, as conditions of other parameters see it.
struct ParameterSetting {
  /// The value; nil: the file does not give the parameter.
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
  /// The shape with further conditions of fields, by name; `csv.header` is a field of a field.
  func adding(_ conditions: [String: Applicability]) -> ParameterShape {
    guard !conditions.isEmpty else { return self }
    switch self {
    case .record(let fields):
      return .record(
        fields.map { field in
          var field = field
          if let condition = conditions[field.name] {
            if case .never = condition {
              field.applies = condition
            } else {
              field.applies = field.applies.map { .all([$0, condition]) } ?? condition
            }
          }
          let inner = conditions.filter { $0.key.hasPrefix("\(field.name).") }.map {
            (String($0.key.dropFirst(field.name.count + 1)), $0.value)
          }
          field.shape = field.shape.adding(Dictionary(inner) { $1 })
          return field
        })
    case .oneOf(let shapes): return .oneOf(shapes.map { $0.adding(conditions) })
    default: return self
    }
  }
}

extension DecodingContext {
  /// Reports each parameter that the file gives and that has no effect together with the others.
  mutating func refuseWithoutEffect(_ parameters: [ParameterInfo]) {
    refuse(parameters, among: parameters, prefix: "")
  }

  /// The value at a path; null counts as not given, because a template omits parameters as null.
  private func given(_ path: String) -> YAMLNode? { node(of: path).flatMap { $0.isNull ? nil : $0 } }

  private mutating func refuse(_ infos: [ParameterInfo], among root: [ParameterInfo], prefix: String) {
    for info in infos {
      guard let node = given(prefix + info.name) else { continue }
      let condition = info.applies ?? .all([])
      func setting(_ name: String) -> ParameterSetting {
        let isRoot = name.hasPrefix("/")
        let name = isRoot ? String(name.dropFirst()) : name
        return ParameterSetting(
          node: self.given(isRoot ? name : prefix + name),
          defaultText: (isRoot ? root : infos).first { $0.name == name }?.defaultText)
      }
      guard condition.holds(setting) else {
        // A preset's text is the same for all values of its parameters, so it is no mistake if one of these values
        // leaves a setting without effect.
        if node.location.text.isOfPreset,
          condition.names.contains(where: { setting($0).node.map { !$0.location.text.isOfPreset } ?? false })
        {
          continue
        }
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
    func plain(_ name: String) -> String { Self.plain(name) }
    switch self {
    case .with(let name): return "without '\(plain(name))'"
    case .without(let name): return "with '\(plain(name))'"
    case .word(let name, ["false"]): return "with '\(plain(name)): true'"
    case .word(let name, let words):
      if let written = setting(name).node?.string { return "with '\(plain(name)): \(Printable.cut(written))'" }
      return "without \(Self.settings(name, words, "'"))"
    case .notWord(let name, let words):
      let found = (setting(name).words ?? []).filter { Self.has(words, $0) }
      return "with \(Self.settings(name, found.isEmpty ? words : found, "'"))"
    case .begins(let name, let starts):
      return "unless '\(plain(name))' begins with \(starts.map { "'\($0)'" }.joined(separator: " or "))"
    case .notBegins(let name, let starts):
      return "if '\(plain(name))' begins with \(starts.map { "'\($0)'" }.joined(separator: " or "))"
    case .template(let name): return "without {{ }} in '\(plain(name))'"
    case .all(let parts):
      return parts.first { !$0.holds(setting) }?.unmet(setting) ?? "but \(phrase("'"))"
    case .any: return "but \(phrase("'"))"
    case .never(let reason): return "here: \(reason)"
    }
  }

  /// Advice on how to give the parameter an effect.
  func remedy(_ parameter: String, _ setting: (String) -> ParameterSetting) -> String {
    func plain(_ name: String) -> String { Self.plain(name) }
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
