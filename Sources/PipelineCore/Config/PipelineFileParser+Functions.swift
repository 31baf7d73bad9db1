// The functions of expressions.

extension PipelineFileParser {
  /// Parses `NAME: { parameters: ..., value: ... }` under `functions`.
  mutating func functions(_ section: YAMLEntry, _ broken: inout Set<String>) -> [NamedNode<FunctionNode>] {
    var nodes: [NamedNode<FunctionNode>] = []
    var names: [String: SourceLocation] = [:]
    for entry in entries(section) ?? [] {
      if let first = names[entry.name] {
        report(
          .duplicateName, "the name '\(entry.key.shown)' is used twice", entry.key.location,
          notes: [.init("first used here", at: first)],
          help: "Functions of a file and of its includes share their names")
        continue
      }
      names[entry.name] = entry.key.location
      guard isIdentifier(entry.key, "a function"), let node = function(entry) else {
        broken.insert(entry.name)
        continue
      }
      nodes.append(NamedNode(entry.locatedName, node))
    }
    return nodes
  }

  /// Names of functions and parameters must be identifiers of the expression language.
  private mutating func isIdentifier(_ key: YAMLScalar, _ what: String) -> Bool {
    let bytes = key.text.text
    let isName =
      bytes.count <= Name.maximumLength && bytes.first.map(ASCII.isLetterOrUnderscore) == true
      && bytes.allSatisfy { ASCII.isLetterOrUnderscore($0) || ASCII.isDigit($0) }
    if isName, !ExpressionParser.reserved.contains(key.string), !["in", "true", "false", "null"].contains(key.string) {
      return true
    }
    report(
      .functionForm, "'\(key.shown)' cannot be the name of \(what)", key.location,
      help: isName ? "It is a word of the expression language" : "Use letters, digits and '_', beginning with a letter")
    return false
  }

  private mutating func function(_ entry: YAMLEntry) -> FunctionNode? {
    guard let members = entry.value.entries else {
      report(
        .functionForm, "a function is a mapping, not \(entry.value.kindName)",
        entry.value.isNull ? entry.key.location : entry.value.location,
        help: "Write '\(entry.key.shown): { parameters: { x: double }, value: x * 2.0 }'")
      return nil
    }
    let before = diagnostics.count
    checkKeys(members, ReservedKeys.function, of: "a function")
    guard let written = entry.value["value"], let value = written.scalar, value.kind != .null else {
      if diagnostics.count == before {
        let value = entry.value["value"]
        let form = value.flatMap { $0.isNull ? nil : $0.kindName }
        report(
          .functionForm,
          form.map { "the value of the function '\(entry.key.shown)' is an expression, not \($0)" }
            ?? "the function '\(entry.key.shown)' has no value", value?.location ?? entry.key.location,
          help: form == nil ? "Write 'value: ' and an expression" : "Write the expression as a text, in quotes")
      }
      return nil
    }
    var node = FunctionNode(value: value.text)
    if let description = entry.value["description"] { node.description = text(description, "description") }
    node.returns = entry.value["returns"]
    if let parameters = members.first(where: { $0.name == "parameters" }) {
      for parameter in entries(parameters) ?? [] where isIdentifier(parameter.key, "a parameter") {
        let type = self.type(ofParameter: parameter)
        if let type { node.parameters.append((parameter.locatedName, type)) }
      }
      if node.parameters.count > UserFunction.parameterLimit {
        report(
          .functionForm, "a function has at most \(UserFunction.parameterLimit) parameters", parameters.key.location,
          help: "Give it a map")
      }
    }
    if let examples = entry.value["examples"] {
      for item in examples.items ?? [examples] {
        guard let scalar = item.scalar, scalar.kind != .null else {
          report(
            .functionForm, "an example is a condition, not \(item.kindName)", item.location,
            help: "Write for example '\(entry.key.shown)(1) == 2', in quotes if it contains ': ' or ' #'")
          continue
        }
        if !refusesSecret(in: item, "an example") { node.examples.append(scalar.text) }
      }
    }
    return diagnostics[before...].contains { $0.severity == .error } ? nil : node
  }

  /// Parses `NAME: TYPE` or `NAME: { type: TYPE, description: ... }`. A mapping without `type` is itself the type of a
  /// map with these fields.
  private mutating func type(ofParameter entry: YAMLEntry) -> YAMLNode? {
    if entry.value.isNull {
      report(
        .functionForm, "the parameter '\(entry.key.shown)' needs a type", entry.key.location,
        help: "Write for example 'double', 'string', 'list(int)', 'map' or 'dyn'")
      return nil
    }
    guard let entries = entry.value.entries, let type = entry.value["type"], entry.value["description"] != nil,
      entries.count == 2
    else { return entry.value }
    return type
  }
}
