/// A parameter of a template.
struct ReuseParameter {
  /// The types of values.
  enum Form: String, CaseIterable {
    case text, template, expression, int, number, bool, duration, size, name, list, mapping, chain, any
  }

  var name: Located<String>
  var form: Form
  /// Whether the parameter may be omitted without a default. A value that consists only of the parameter is then
  /// omitted, too.
  var isOptional = false
  var fallback: YAMLNode?
  var help: String?

  /// Why `node` is not a value of the type; nil if it is one.
  func refusal(of node: YAMLNode) -> Diagnostic? {
    func failure<Value>(_ result: Result<Value, Diagnostic>) -> Diagnostic? {
      if case .failure(let diagnostic) = result { diagnostic } else { nil }
    }
    if node.isPlaceholder { return nil }
    let what = "'\(name.value)'"
    switch form {
    case .any: return nil
    case .text, .template: return failure(node.decodeText(what))
    case .int: return failure(node.decodeInt(what))
    case .number: return failure(node.decodeDouble(what))
    case .bool: return failure(node.decodeBool(what))
    case .duration: return failure(node.decodeDuration(what))
    case .size: return failure(node.decodeSize(what))
    case .list, .chain: return node.items == nil ? node.wrongType(what, "a list") : nil
    case .mapping: return node.entries == nil ? node.wrongType(what, "a mapping") : nil
    case .name:
      var found = Diagnostics()
      return PipelineFileParser.parseReference(node, into: &found) == nil ? found.all.first : nil
    case .expression:
      guard let scalar = node.scalar, scalar.kind != .null else { return node.wrongType(what, "an expression") }
      var found = Diagnostics()
      return ExpressionSyntax.parse(scalar.text, into: &found) == nil ? found.all.first : nil
    }
  }
}

extension Reuse {
  /// Reads the section `templates`.
  mutating func define(_ section: YAMLEntry) {
    guard let entries = section.value.entries else {
      if section.value.isNull { return }
      return report(
        .templateForm, "'templates' takes a mapping, not \(section.value.kindName)", section.value.location.start,
        help: "Write 'NAME: { chain: [...] }' below it, indented")
    }
    for entry in entries {
      if let first = templates[entry.name]?.name.location {
        report(
          .duplicateName, "the name '\(entry.key.shown)' is used twice", entry.key.location,
          notes: [.init("first used here", at: first)],
          help: "Templates of a file and of its includes share their names")
        continue
      }
      if let template = template(entry) { templates[entry.name] = template } else { brokenTemplates.insert(entry.name) }
    }
  }

  mutating func template(_ entry: YAMLEntry) -> Template? {
    let kinds = Kind.allCases.map(\.rawValue)
    guard Name.isValid(entry.key.text.text) else {
      report(
        .templateForm, "'\(entry.key.shown)' cannot be the name of a template", entry.key.location,
        help: "Use letters, digits, '_' and '-', beginning with a letter or '_'")
      return nil
    }
    guard let members = entry.value.entries else {
      report(
        .templateForm, "a template is a mapping, not \(entry.value.kindName)", entry.value.location,
        help: "It has one of \(Suggestion.list(kinds)), and 'parameters'")
      return nil
    }
    let known = kinds + ["parameters", "description"]
    var isSound = true
    for member in members where !known.contains(member.name) {
      let correction = Suggestion.correction(for: member.name, among: known)
      report(
        .templateForm, "a template has no key '\(member.key.shown)'", member.key.location,
        help: correction?.help ?? "The keys are \(Suggestion.list(known))",
        fixIts: correction.map { [.init(member.key.location, $0.name)] } ?? [])
      isSound = false
    }
    let bodies = members.filter { Kind(rawValue: $0.name) != nil }
    guard bodies.count == 1, let kind = Kind(rawValue: bodies[0].name) else {
      if isSound {
        report(
          .templateForm, bodies.isEmpty ? "the template is empty" : "a template has one part",
          bodies.isEmpty ? entry.key.location : bodies[1].key.location, help: "Write one of \(Suggestion.list(kinds))")
      }
      return nil
    }
    let body = bodies[0].value
    guard kind == .chain ? body.items != nil : body.entries != nil else {
      report(
        .templateForm,
        "'\(kind.rawValue)' takes \(kind == .chain ? "a list of steps" : "a mapping"), not \(body.kindName)",
        body.location)
      return nil
    }
    var parameters: [ReuseParameter] = []
    for declared in entry.value["parameters"]?.entries ?? [] {
      if let parameter = parameter(declared) { parameters.append(parameter) } else { isSound = false }
    }
    return isSound ? Template(name: entry.locatedName, kind: kind, parameters: parameters, body: body) : nil
  }

  /// Reads `NAME: TYPE`, `NAME: TYPE?`, or the long form with a default.
  private mutating func parameter(_ entry: YAMLEntry) -> ReuseParameter? {
    let types = ReuseParameter.Form.allCases.map(\.rawValue)
    guard Name.isValid(entry.key.text.text) else {
      report(.templateForm, "'\(entry.key.shown)' cannot be the name of a parameter", entry.key.location)
      return nil
    }
    let known = ["type", "default", "description"]
    for member in entry.value.entries ?? [] where !known.contains(member.name) {
      report(
        .templateForm, "a parameter has no key '\(member.key.shown)'", member.key.location,
        help: Suggestion.correction(for: member.name, among: known)?.help ?? "The keys are \(Suggestion.list(known))")
      return nil
    }
    let written = entry.value.entries == nil ? entry.value : entry.value["type"]
    guard let written, let text = written.string else {
      report(
        .templateForm, "the parameter '\(entry.key.shown)' needs a type", entry.key.location,
        help: "The types are \(Suggestion.list(types))")
      return nil
    }
    let isOptional = text.hasSuffix("?")
    let word = isOptional ? String(text.dropLast()) : text
    guard let form = ReuseParameter.Form(rawValue: word) else {
      let correction = Suggestion.correction(for: word, among: types)
      report(
        .templateForm, "there is no type '\(written.shown)'", written.location,
        help: correction?.help ?? "The types are \(Suggestion.list(types))",
        fixIts: correction.map { [.init(written.location, $0.name + (isOptional ? "?" : ""))] } ?? [])
      return nil
    }
    let parameter = ReuseParameter(
      name: entry.locatedName, form: form, isOptional: isOptional, fallback: entry.value["default"],
      help: entry.value["description"]?.string)
    if let fallback = parameter.fallback, let diagnostic = parameter.refusal(of: fallback) {
      diagnostics.append(diagnostic)
      return nil
    }
    return parameter
  }

  // MARK: Uses

  /// A copy of the template that a mapping with `use` names.
  mutating func instantiate(_ use: YAMLNode, _ kinds: [Kind], _ stack: [String]) -> (Template, YAMLNode)? {
    guard let named = use["use"], let name = named.string, !named.isNull else {
      report(
        .unknownTemplate, "'use' takes the name of a template, not \(use["use"]?.kindName ?? "nothing")",
        use["use"]?.location ?? use.location)
      return nil
    }
    if brokenTemplates.contains(name) { return nil }
    guard let template = templates[name] ?? preset(name) else {
      if lacksFiles { return nil }
      let known = templates.keys.sorted() + Preset.all.map(\.name)
      let correction = Suggestion.correction(for: name, among: known)
      report(
        .unknownTemplate, "there is no template '\(named.shown)'", named.location,
        help: correction?.help
          ?? (templates.isEmpty
            ? "'rxd list --presets' lists those that rxd has"
            : "The templates are \(Suggestion.list(templates.keys.sorted()))"),
        fixIts: correction.map { [.init(named.location, $0.name)] } ?? [])
      return nil
    }
    used.insert(name)
    guard kinds.contains(template.kind) else {
      report(
        .templateKind,
        "the template '\(name)' is a \(template.kind.rawValue), but a \(kinds[0].rawValue) is expected here",
        named.location, notes: [.init("the template is here", at: template.name.location)])
      return nil
    }
    guard !stack.contains(name), stack.count < Self.depthLimit else {
      report(
        .templateTooLarge,
        stack.contains(name)
          ? "the template '\(name)' uses itself" : "templates use one another more than \(Self.depthLimit) deep",
        named.location, help: "A template can use others, but none that uses it")
      return nil
    }
    guard let bindings = bindings(of: template, use) else { return nil }
    var scope = ReuseScope(origin: .init("by this use of the template '\(name)'", at: named.location))
    scope.bindings = bindings
    return build(template.body, scope).map { (template, $0) }
  }

  private mutating func bindings(of template: Template, _ use: YAMLNode) -> [String: ReuseScope.Binding]? {
    let given = use["with"]?.entries ?? []
    let names = template.parameters.map(\.name.value)
    var isSound = true
    let declared = Diagnostic.Note("the template is here", at: template.name.location)
    if let with = use["with"], with.entries == nil, !with.isNull {
      report(.templateArgument, "'with' takes a mapping, not \(with.kindName)", with.location)
      return nil
    }
    for entry in given where !names.contains(entry.name) {
      let correction = Suggestion.correction(for: entry.name, among: names)
      report(
        .templateArgument, "the template '\(template.name.value)' has no parameter '\(entry.key.shown)'",
        entry.key.location,
        notes: [declared],
        help: correction?.help ?? (names.isEmpty ? "It has none" : "The parameters are \(Suggestion.list(names))"),
        fixIts: correction.map { [.init(entry.key.location, $0.name)] } ?? [])
      isSound = false
    }
    var bindings: [String: ReuseScope.Binding] = [:]
    for parameter in template.parameters {
      let name = parameter.name.value
      let argument = given.first { $0.name == name }?.value
      if let argument, let diagnostic = parameter.refusal(of: argument) {
        var diagnostic = diagnostic
        diagnostic.notes.append(.init("the parameter is declared here", at: parameter.name.location))
        diagnostics.append(diagnostic)
        isSound = false
      }
      if argument == nil, parameter.fallback == nil, !parameter.isOptional, isSound {
        report(
          .templateArgument, "the template '\(template.name.value)' needs '\(name)'",
          use["use"]?.location ?? use.location,
          notes: [.init("the parameter is declared here", at: parameter.name.location)],
          help: "Write 'with: { \(name): ... }'; its type is \(parameter.form.rawValue)"
            + (parameter.help.map { ". \($0)" } ?? ""))
        isSound = false
      }
      bindings[name] = .init(node: argument ?? parameter.fallback, type: parameter.form)
    }
    return isSound ? bindings : nil
  }
}
