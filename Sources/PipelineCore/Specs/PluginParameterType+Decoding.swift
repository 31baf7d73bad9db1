extension PluginParameterType {
  /// Decodes a value from YAML by the rules of the built-in types; nil after an error, which is reported.
  func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> PluginValue? {
    switch self {
    case .boolean: return Bool.decode(node, &context).map(PluginValue.boolean)
    case .integer: return Int.decode(node, &context).map(PluginValue.integer)
    case .number: return Double.decode(node, &context).map(PluginValue.number)
    case .text: return String.decode(node, &context).map(PluginValue.text)
    case .secret:
      guard let secret = Secret.decode(node, &context) else { return nil }
      // Masked in this process's output, because the plugin may print it.
      SecretMask.process.note(Array(secret.revealed.utf8))
      return .secret(secret)
    case .duration(let range):
      guard let span = TimeSpan.decode(node, &context) else { return nil }
      // The built-in type checks only the lower bound.
      if let high = range?.upperBound, span.nanoseconds > high {
        context.badValue(
          node,
          "'\(context.parameter)' of '\(context.component)' is \(node.shown), but must be at most \(TimeSpan(nanoseconds: high))"
        )
        return nil
      }
      return .duration(span)
    case .size: return ByteSize.decode(node, &context).map(PluginValue.size)
    case .json: return LiteralParameter.decode(node, &context).map(PluginValue.json)
    case .choice(let choices): return Self.choice(node, choices, &context)
    case .list(let element):
      guard let items = node.items else { return element.decode(node, &context).map { .list([$0]) } }
      return .list(items.compactMap { element.decode($0, &context) })
    case .table(let element):
      guard let entries = node.entries else {
        context.wrongType(node, wanted: "a mapping")
        return nil
      }
      return .table(
        entries.compactMap { entry in
          element.decode(entry.value, &context).map { (name: entry.name, value: $0) }
        })
    case .expression: return ExpressionParameter.decode(node, &context).map(PluginValue.expression)
    case .template: return TemplateParameter.decode(node, &context).map(PluginValue.template)
    }
  }

  private static func choice(
    _ node: YAMLNode, _ choices: [ParameterShape.Choice], _ context: inout DecodingContext
  ) -> PluginValue? {
    let known = choices.map(\.name)
    guard let scalar = node.scalar, scalar.kind != .null || known.contains(scalar.string) else {
      context.wrongType(node, wanted: "one of " + known.joined(separator: ", "))
      return nil
    }
    if known.contains(scalar.string) { return .text(scalar.string) }
    if scalar.isPlaceholder { return known.first.map(PluginValue.text) }
    let near = Suggestion.nearest(to: scalar.string, among: known)
    let all = "It can be: " + known.joined(separator: ", ")
    context.diagnostics.report(
      Diagnostic(
        .unknownChoice, "'\(context.parameter)' of '\(context.component)' cannot be '\(node.shown)'",
        at: node.location, help: near.map { "Did you mean '\($0)'? \(all)" } ?? all,
        fixIts: near.map { [.init(node.location, $0)] } ?? []))
    return nil
  }
}
