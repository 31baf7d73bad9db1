// Templates that nothing uses.

extension Reuse {
  /// One pipeline for each template of the file itself that nothing uses: the template's body with placeholders for its
  /// parameters, so that parts that do not depend on parameters can be checked. A template of an included file is
  /// checked only where it is used, because it may need definitions of another file.
  mutating func unusedTemplates(beside entries: [YAMLEntry]) -> [YAMLNode] {
    let unused = templates.values.filter { !used.contains($0.name.value) && $0.name.location.text.origin == nil }
    return unused.sorted { $0.name.location.offset < $1.name.location.offset }.compactMap { template in
      var scope = ReuseScope(origin: .init(Self.unusedNote, at: template.name.location))
      for parameter in template.parameters {
        guard let node = parameter.fallback ?? Self.placeholder(parameter) else { return nil }
        scope.bindings[parameter.name.value] = .init(node: node, type: parameter.form)
      }
      var trial = self
      trial.diagnostics = []
      guard let body = trial.build(template.body, scope) else { return nil }
      let stack = [template.name.value]
      let made =
        switch template.kind {
        case .chain: trial.expand(chain: body, stack)
        case .signal: trial.expand(body, as: [.signal, .source], stack)
        case .source: trial.expand(body, as: [.source], stack)
        case .sink: trial.expand(body, as: [.sink], stack)
        }
      diagnostics += trial.diagnostics
      let shared = entries.filter { ["functions", "patterns", "plugins"].contains($0.name) }
      return trial.diagnostics.isEmpty ? Self.pipeline(of: made, template.kind, shared) : nil
    }
  }

  static let unusedNote = "in this template, which nothing uses"

  /// A placeholder for a parameter's value; nil for types whose values have parts.
  private static func placeholder(_ parameter: ReuseParameter) -> YAMLNode? {
    let text: String
    switch parameter.form {
    case .text, .template, .name: text = "text"
    case .expression: text = "dyn(0)"
    case .int, .number: text = "1"
    case .bool: text = "true"
    case .duration: text = "1s"
    case .size: text = "1KiB"
    case .list, .mapping, .chain, .any: return nil
    }
    var ignored = Diagnostics()
    guard var node = YAMLReader.read(SourceText(name: "", text: text), into: &ignored), var scalar = node.scalar else {
      return nil
    }
    // A value that replaces a whole node and needs no particular text is not checked.
    scalar.isPlaceholder = parameter.form != .expression
    node.content = .scalar(scalar)
    node.location = parameter.name.location
    return node
  }

  private static func pipeline(of body: YAMLNode, _ kind: Kind, _ shared: [YAMLEntry]) -> YAMLNode? {
    var ignored = Diagnostics()
    let text =
      switch kind {
      case .chain, .signal:
        "sources: { input: { stdin: { decode: json } } }\nsignals: { made: { from: input, chain: [] } }\nsinks: { out: { from: made, stdout: {} } }"
      case .source: "sources: { made: {} }\nsinks: { out: { from: made, stdout: {} } }"
      case .sink: "sources: { input: { stdin: { decode: json } } }\nsinks: { made: { from: input } }"
      }
    guard let root = YAMLReader.read(SourceText(name: "", text: text), into: &ignored) else { return nil }
    func replaced(_ node: YAMLNode) -> YAMLNode {
      guard kind != .chain else {
        var entries = node.entries ?? []
        for at in entries.indices where entries[at].name == "chain" { entries[at].value = body }
        return YAMLNode(.mapping(entries), at: node.location)
      }
      var entries = body.entries ?? []
      let hasOrigin = entries.contains { $0.name == "from" || ReservedKeys.combining.contains($0.name) }
      if kind != .source, !hasOrigin { entries += (node.entries ?? []).filter { $0.name == "from" } }
      return YAMLNode(.mapping(entries), at: body.location)
    }
    let sections = (root.entries ?? []).map { section in
      var section = section
      section.value.content = .mapping(
        (section.value.entries ?? []).map { $0.name == "made" ? YAMLEntry(key: $0.key, value: replaced($0.value)) : $0 }
      )
      return section
    }
    return YAMLNode(.mapping(sections + shared), at: root.location)
  }
}

extension Diagnostic {
  /// Whether the diagnostic concerns a template that nothing uses, and would be reported for every use, whatever the
  /// values of its parameters.
  var concernsUnusedTemplate: Bool {
    guard severity == .error, let location else { return false }
    // Diagnostics about the value of a parameter do not count.
    guard location.text.origin?.message == Reuse.unusedNote else { return false }
    // The location of a parameter's value is that of the `$(...)`.
    let bytes = location.text.bytes
    let end = min(location.offset + max(location.length, 2), bytes.count)
    if location.offset < end, bytes[location.offset..<end].firstRange(of: "$(".utf8) != nil { return false }
    if code == .conflictingParameters { return false }
    let group = code.name.utf8.dropFirst(2).first
    if group == UInt8(ascii: "2") { return true }
    if group == UInt8(ascii: "4") { return code != .expressionUnknownName }
    return code == .unknownComponent
  }
}
