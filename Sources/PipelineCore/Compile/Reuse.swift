/// Expands the reusable parts of a pipeline file: `include`, `templates`, `foreach` and keys that begin with `x-`.
///
/// The phase comes after nodes are read and before the grammar is parsed, and has no side effects. Its result is the
/// file as it would be written without reuse, so later phases need not know of it. Every node keeps its location: the
/// nodes of a template refer to a copy of their source whose ``SourceText/origin`` is the use, so that a diagnostic can
/// name both.
struct Reuse {
  /// The kinds of definitions that a template can produce.
  enum Kind: String, CaseIterable {
    case chain, signal, source, sink
  }

  struct Template {
    var name: Located<String>
    var kind: Kind
    var parameters: [ReuseParameter]
    var body: YAMLNode
  }

  let catalogue: Catalogue
  let values: Interpolation
  let files: IncludedFiles
  var diagnostics: [Diagnostic] = []
  var templates: [String: Template] = [:]
  /// The names of templates whose definition has an error.
  var brokenTemplates: Set<String> = []
  /// The top level of the expanded file.
  private var result: [YAMLEntry] = []
  private var blocks: [YAMLNode] = []
  /// Whether an included file could not be read, so that its definitions are unknown.
  var lacksFiles = false
  /// The names of the included files, in the order in which they were read.
  private var included: Set<String> = []
  /// The names of templates that are used, directly or by a used template.
  var used: Set<String> = []
  /// The number of values that templates and lists have produced.
  var madeNodes = 0

  static let depthLimit = 16
  static let fileLimit = 64
  static let sections = ["sources", "tables", "signals", "commands", "sinks"]

  init(_ catalogue: Catalogue, _ values: Interpolation, _ files: IncludedFiles) {
    self.catalogue = catalogue
    self.values = values
    self.files = files
  }

  /// The expanded file, and one pipeline for each template that nothing uses; nil after an error, because further
  /// messages would mislead.
  static func expand(
    _ root: YAMLNode, _ catalogue: Catalogue, _ values: Interpolation, _ files: IncludedFiles,
    into diagnostics: inout Diagnostics
  ) -> (file: YAMLNode, unused: [YAMLNode])? {
    guard let entries = root.entries, reuses(entries) else { return (root, []) }
    var reuse = Reuse(catalogue, values, files)
    reuse.collect(entries, of: root.location.text, within: [])
    for block in reuse.blocks { reuse.repeatSections(block) }
    reuse.expandSections()
    // After an error, templates may look unused that are not.
    let unused = reuse.diagnostics.isEmpty ? reuse.unusedTemplates(beside: reuse.result) : []
    diagnostics.report(contentsOf: reuse.diagnostics)
    guard reuse.diagnostics.allSatisfy({ $0.severity != .error }) else { return nil }
    return (YAMLNode(.mapping(reuse.result), at: root.location), unused)
  }

  /// Whether there may be anything to expand; most files have nothing to expand, and are not copied.
  private static func reuses(_ top: [YAMLEntry]) -> Bool {
    func isPlain(_ node: YAMLNode) -> Bool {
      switch node.content {
      case .scalar: true
      case .sequence(let items): items.allSatisfy(isPlain)
      case .mapping(let entries): entries.allSatisfy { $0.name != "use" && $0.name != "each" && isPlain($0.value) }
      }
    }
    return top.contains { entry in
      ["templates", "include", "foreach"].contains(entry.name) || entry.name.hasPrefix("x-") || !isPlain(entry.value)
    }
  }

  mutating func report(
    _ code: Diagnostic.Code, _ message: String, _ location: SourceLocation, notes: [Diagnostic.Note] = [],
    help: String? = nil, fixIts: [Diagnostic.FixIt] = []
  ) {
    if diagnostics.count >= PipelineFileParser.maximumErrors { return }
    diagnostics.append(Diagnostic(code, message, at: location, notes: notes, help: help, fixIts: fixIts))
  }

  // MARK: The top of files

  /// - Parameter files: The names of the files that include this one, directly or indirectly.
  private mutating func collect(_ entries: [YAMLEntry], of source: SourceText, within files: [String]) {
    var includes: [YAMLNode] = []
    for entry in entries where !entry.name.hasPrefix("x-") {
      switch entry.name {
      case "templates": define(entry)
      case "include": includes += entry.value.items ?? [entry.value]
      case "foreach": blocks += entry.value.items ?? [entry.value]
      case _ where files.isEmpty: result.append(entry)
      case _ where Self.sections.contains(entry.name) || ["patterns", "functions"].contains(entry.name): merge(entry)
      case "tests", "description": break
      default:
        report(
          .includedKey, "an included file has no key '\(entry.key.shown)'", entry.key.location,
          help:
            "It has \(Suggestion.list(["templates", "include", "foreach", "patterns", "functions"] + Self.sections))")
      }
    }
    for node in includes { include(node, from: source, within: files + [source.name]) }
  }

  /// Adds the members of a section to those found so far.
  private mutating func merge(_ entry: YAMLEntry) {
    guard let at = result.firstIndex(where: { $0.name == entry.name }), let more = entry.value.entries else {
      if !entry.value.isNull, !result.contains(where: { $0.name == entry.name }) { result.append(entry) }
      return
    }
    if result[at].value.isNull {
      result[at].value = entry.value
    } else if var known = result[at].value.entries {
      // The content is emptied first, so that appending copies nothing, however often a long list is appended to.
      result[at].value.content = .mapping([])
      known += more
      result[at].value.content = .mapping(known)
    }
  }

  private mutating func include(_ node: YAMLNode, from source: SourceText, within files: [String]) {
    guard let scalar = node.scalar, scalar.kind != .null else {
      return report(.include, "'include' takes the path of a file, not \(node.kindName)", node.location)
    }
    if scalar.isPlaceholder { return }
    let path = scalar.string
    if let reason = Self.refusal(of: path) {
      return report(
        .include, "'\(scalar.shown)' \(reason)", node.location,
        help: "Included files are in the directory of the file that includes them, or below it")
    }
    switch self.files.read(path, source.name) {
    case .refused(let reason):
      lacksFiles = true
      report(.include, "the file '\(scalar.shown)' \(reason)", node.location)
    case .found(let name, let bytes):
      if files.contains(name) {
        return report(
          .include, "'\(scalar.shown)' includes itself", node.location,
          notes: files.count > 1
            ? [.init("through \(Suggestion.list(files.dropFirst().map { Printable.cut($0) }))")] : [],
          help: "Move what both files need into a third")
      }
      guard included.insert(name).inserted else { return }
      guard included.count <= Self.fileLimit, files.count <= Self.depthLimit else {
        return report(
          .include, "more than \(Self.fileLimit) files are included, or \(Self.depthLimit) inside one another",
          node.location)
      }
      let text = SourceText(SourceText(name: name, bytes: bytes), origin: .init("included here", at: node.location))
      var found = Diagnostics()
      if let root = YAMLReader.read(text, into: &found) {
        let filled = values.apply(to: root, into: &found)
        diagnostics += found.all
        guard let entries = filled.entries else {
          return report(.include, "an included file is a mapping, not \(filled.kindName)", filled.location)
        }
        collect(entries, of: text, within: files)
      } else {
        diagnostics += found.all
      }
    }
  }

  /// Why a path may not be included, judging by its text alone.
  private static func refusal(of path: String) -> String? {
    if path.isEmpty { return "names no file" }
    if path.utf8.contains(0) { return "is not the path of a file" }
    if path.hasPrefix("/") { return "is an absolute path" }
    return path.utf8.split(separator: UInt8(ascii: "/")).contains { $0.elementsEqual("..".utf8) }
      ? "has '..' in it" : nil
  }

  // MARK: foreach

  private mutating func repeatSections(_ block: YAMLNode) {
    guard let entries = block.entries, let (name, items) = list(of: block, nil) else { return }
    let known = ["each", "in"] + Self.sections
    for entry in entries where !known.contains(entry.name) {
      report(
        .foreachForm, "'foreach' has no key '\(entry.key.shown)'", entry.key.location,
        help: Suggestion.correction(for: entry.name, among: known)?.help ?? "The keys are \(Suggestion.list(known))")
    }
    for item in items {
      let scope = self.scope(of: item, named: name, within: nil)
      for entry in entries where Self.sections.contains(entry.name) {
        guard let made = build(entry.value, scope) else { continue }
        merge(YAMLEntry(key: entry.key, value: made))
      }
    }
  }

  /// The variable and the items of a mapping with `each` and `in`.
  mutating func list(of node: YAMLNode, _ scope: ReuseScope?) -> (Located<String>, [YAMLNode])? {
    guard node.entries != nil else {
      report(.foreachForm, "'foreach' takes 'each', 'in' and sections, not \(node.kindName)", node.location)
      return nil
    }
    guard let each = node["each"], let name = each.scalar, Name.isValid(name.text.text) else {
      report(
        .foreachForm, "'each' names the variable of the repetition", node["each"]?.location ?? node.location.start,
        help: "Write for example 'each: sensor', and $(sensor) where its value belongs")
      return nil
    }
    guard let written = node["in"], let items = build(written, scope)?.items else {
      report(
        .foreachForm, "'in' takes the list of values", node["in"]?.location ?? node.location.start,
        help: "Write for example 'in: [kitchen, hall]'")
      return nil
    }
    return (Located(name.string, at: name.location), items)
  }

  func scope(of item: YAMLNode, named name: Located<String>, within outer: ReuseScope?) -> ReuseScope {
    let shown = item.scalar.map { " = \($0.shown)" } ?? ""
    var scope = ReuseScope(origin: .init("for \(name.value)\(shown), from this list", at: item.location))
    scope.bindings = outer?.bindings ?? [:]
    scope.bindings[name.value] = .init(node: item, type: .any)
    return scope
  }

  // MARK: Uses

  private mutating func expandSections() {
    for at in result.indices where Self.sections.contains(result[at].name) {
      guard let made = build(result[at].value, nil), let members = made.entries else { continue }
      let section = result[at].name
      result[at].value.content = .mapping(
        members.map { member in
          var member = member
          switch section {
          case "sources": member.value = expand(member.value, as: [.source], [])
          case "sinks": member.value = expand(member.value, as: [.sink], [])
          case "commands":
            if let entries = member.value.entries {
              member.value.content = .mapping(
                entries.map {
                  $0.name == "run" ? YAMLEntry(key: $0.key, value: expand($0.value, as: [.signal, .source], [])) : $0
                })
            }
          default: member.value = expand(member.value, as: [.signal, .source], [])
          }
          return member
        })
    }
  }

  /// A source, a signal or a sink with its `use`, its chain and its inputs expanded.
  ///
  /// - Parameter stack: The names of the templates that contain this node.
  mutating func expand(_ node: YAMLNode, as kinds: [Kind], _ stack: [String]) -> YAMLNode {
    guard let entries = node.entries else { return node }
    if entries.contains(where: { $0.name == "use" }) {
      guard let (template, made) = instantiate(node, kinds, stack) else { return node }
      return expand(Self.merged(made, node, template.kind), as: kinds, stack + [template.name.value])
    }
    var node = node
    node.content = .mapping(
      entries.map { entry in
        var entry = entry
        switch entry.name {
        case "chain": entry.value = expand(chain: entry.value, stack)
        case "from": entry.value = expand(entry.value, as: [.source, .signal], stack)
        case _ where ReservedKeys.combining.contains(entry.name): entry.value = expand(inputs: entry.value, stack)
        default: break
        }
        return entry
      })
    return node
  }

  private mutating func expand(inputs node: YAMLNode, _ stack: [String]) -> YAMLNode {
    var node = node
    switch node.content {
    case .scalar: break
    case .sequence(let items): node.content = .sequence(items.map { expand(inputs: $0, stack) })
    case .mapping(let entries):
      let isSignal = entries.contains { ["use", "from", "chain"].contains($0.name) }
      if isSignal { return expand(node, as: [.signal, .source], stack) }
      node.content = .mapping(entries.map { YAMLEntry(key: $0.key, value: expand(inputs: $0.value, stack)) })
    }
    return node
  }

  mutating func expand(chain node: YAMLNode, _ stack: [String]) -> YAMLNode {
    guard let items = node.items else { return node }
    var steps: [YAMLNode] = []
    for item in items {
      guard let entries = item.entries else {
        steps.append(item)
        continue
      }
      guard entries.contains(where: { $0.name == "use" }) else {
        var step = item
        step.content = .mapping(
          entries.map { entry in
            guard let parameters = catalogue.component(.operator, entry.name)?.parameters else { return entry }
            return YAMLEntry(key: entry.key, value: expand(arguments: entry.value, parameters, stack))
          })
        steps.append(step)
        continue
      }
      for entry in entries where !["use", "with"].contains(entry.name) {
        report(
          .templateArgument, "'\(entry.key.shown)' cannot be combined with 'use' in a chain", entry.key.location,
          help: "Parameters of the template go inside 'with: { ... }'")
      }
      guard let (template, made) = instantiate(item, [.chain], stack) else { continue }
      steps += expand(chain: made, stack + [template.name.value]).items ?? []
    }
    var node = node
    node.content = .sequence(steps)
    return node
  }

  private mutating func expand(arguments node: YAMLNode, _ parameters: [ParameterInfo], _ stack: [String]) -> YAMLNode {
    if let entries = node.entries, entries.contains(where: { entry in parameters.contains { $0.name == entry.name } }) {
      return expand(node, .record(parameters), stack)
    }
    return parameters.first(where: \.isPrimary).map { expand(node, $0.shape, stack) } ?? node
  }

  private mutating func expand(_ node: YAMLNode, _ shape: ParameterShape, _ stack: [String]) -> YAMLNode {
    var node = node
    switch shape {
    case .signal: return expand(node, as: [.signal, .source], stack)
    case .chain: return expand(chain: node, stack)
    case .list(let element):
      guard let items = node.items else { return expand(node, element, stack) }
      node.content = .sequence(items.map { expand($0, element, stack) })
    case .table(let element):
      guard let entries = node.entries else { return node }
      node.content = .mapping(entries.map { YAMLEntry(key: $0.key, value: expand($0.value, element, stack)) })
    case .record(let fields):
      guard let entries = node.entries else { return node }
      node.content = .mapping(
        entries.map { entry in
          guard let field = fields.first(where: { $0.name == entry.name }) else { return entry }
          return YAMLEntry(key: entry.key, value: expand(entry.value, field.shape, stack))
        })
    case .oneOf(let shapes):
      if node.entries != nil, shapes.contains(.signal) { return expand(node, .signal, stack) }
      if node.items != nil, shapes.contains(.chain) { return expand(node, .chain, stack) }
    default: break
    }
    return node
  }

  /// The expanded template, with the keys alongside `use` in place of the template's; chains are joined.
  private static func merged(_ made: YAMLNode, _ use: YAMLNode, _ kind: Kind) -> YAMLNode {
    let beside = (use.entries ?? []).filter { !["use", "with"].contains($0.name) }
    var entries = made.entries ?? []
    for entry in beside {
      guard let at = entries.firstIndex(where: { $0.name == entry.name }) else {
        entries.append(entry)
        continue
      }
      if entry.name == "chain", let own = entries[at].value.items, let more = entry.value.items {
        // The chain of a signal's template runs first, the chain of a sink's template last.
        entries[at].value.content = .sequence(kind == .sink ? more + own : own + more)
      } else {
        entries[at] = entry
      }
    }
    return YAMLNode(.mapping(entries), at: use.location)
  }
}
