/// Every component that pipeline files can name. A value that is handed in, never global.
public struct Catalogue: Sendable {
  public let components: [CatalogueEntry]
  private let index: [Key: Int]

  private struct Key: Hashable {
    var kind: ComponentKind
    var name: String
  }

  public init(_ components: [CatalogueEntry]) {
    self.components = components
    var index: [Key: Int] = [:]
    for (at, component) in components.enumerated() {
      index[Key(kind: component.kind, name: component.name)] = at
    }
    self.index = index
  }

  public func adding(_ other: Catalogue) -> Catalogue { Catalogue(components + other.components) }

  public func component(_ kind: ComponentKind, _ name: String) -> CatalogueEntry? {
    index[Key(kind: kind, name: name)].map { components[$0] }
  }

  public func names(_ kind: ComponentKind) -> [String] {
    components.filter { $0.kind == kind }.map(\.name)
  }
}

/// One component with its type erased.
public struct CatalogueEntry: Sendable {
  public let kind: ComponentKind
  public let name: String
  public let summary: String
  public let details: String
  public let parameters: [ParameterInfo]
  public let examples: [Example]
  public let keeps: String
  public let rivals: [String]
  public let seeAlso: [String]
  /// How few inputs a combination needs.
  public let minimumInputs: Int
  /// What of a running one outlives the process.
  public let carries: Carries
  /// Whether a combination makes lists that `reduce` sees by name.
  let makesTuple: Bool
  /// Whether neighbouring steps of this kind run as one pass.
  public let isRowWise: Bool
  let changesValue: Bool
  let decode: @Sendable (YAMLNode?, inout DecodingContext) -> any Component

  public init<C: SourceComponent>(source: C.Type) { self.init(C.self, .source) }
  public init<C: OperatorComponent>(operator: C.Type) { self.init(C.self, .operator) }
  public init<C: CombiningOperator>(combination: C.Type) {
    self.init(C.self, .combination, minimumInputs: C.minimumInputs)
  }
  init(command: Command.Type) { self.init(Command.self, .command) }
  public init<C: SinkComponent>(sink: C.Type) { self.init(C.self, .sink) }

  private init<C: Component>(_ type: C.Type, _ kind: ComponentKind, minimumInputs: Int = 1) {
    let spec = C.spec
    self.kind = kind
    name = spec.name
    summary = spec.summary
    details = spec.details
    parameters = spec.parameters.map(\.info)
    examples = spec.examples
    keeps = spec.keeps
    rivals = spec.rivals
    seeAlso = spec.seeAlso
    self.minimumInputs = minimumInputs
    carries = spec.carries
    makesTuple = (C.self as? any CombiningOperator.Type)?.makesTuple ?? false
    isRowWise = C.self is any RowOperator.Type
    changesValue = (C.self as? any RowOperator.Type)?.changesValue ?? true
    decode = { node, context in spec.decode(node, &context) }
  }
}

extension ComponentSpec {
  /// Reads a component's arguments: nothing (a bare word), the primary parameter alone, or a mapping of
  /// parameters. Reports everything that is wrong; what could be read is there even so, to look for
  /// further mistakes in it.
  func decode(_ node: YAMLNode?, _ context: inout DecodingContext) -> C {
    context.component = name
    let before = context.diagnostics.all.count
    var component = C()
    let primary = parameters.first { $0.info.isPrimary }
    var given: Set<String> = []
    if let node, !(node.isNull && primary?.info.isWhole != true) {
      if let primary, primary.info.isWhole {
        given.insert(primary.info.name)
        primary.decode(node, &component, &context)
      } else if let entries = node.entries, !isPrimary(entries, primary) {
        decode(entries, into: &component, &given, &context)
      } else if let primary {
        given.insert(primary.info.name)
        primary.decode(node, &component, &context)
      } else {
        context.diagnostics.report(
          Diagnostic(
            .wrongType,
            parameters.isEmpty
              ? "'\(name)' takes no parameters"
              : "'\(name)' has no short form: it takes a mapping, not \(node.kindName)",
            at: node.location,
            help: parameters.isEmpty
              ? "Write '\(name)' alone"
              : "Its parameters are " + parameters.map { "'\($0.info.name)'" }.joined(separator: ", ")))
      }
    }
    for parameter in parameters where parameter.info.isRequired && !given.contains(parameter.info.name) {
      context.diagnostics.report(
        Diagnostic(
          .missingParameter, "'\(name)' needs '\(parameter.info.name)'", at: context.location,
          help: "\(parameter.info.name): \(parameter.info.help)"))
    }
    if context.diagnostics.all.count == before { component.validate(&context) }
    return component
  }

  /// Whether a mapping is the primary parameter itself and not a list of parameters.
  private func isPrimary(_ entries: [YAMLEntry], _ primary: Parameter<C>?) -> Bool {
    guard let primary, !entries.isEmpty else { return false }
    // A key that is nearly a parameter's name is a misspelt parameter.
    let names = parameters.map(\.info.name)
    let known = entries.contains { Suggestion.nearest(to: $0.name, among: names) != nil }
    return !known && primary.info.shape.acceptsMapping
  }

  private func decode(
    _ entries: [YAMLEntry], into component: inout C, _ given: inout Set<String>,
    _ context: inout DecodingContext
  ) {
    let names = parameters.map(\.info.name)
    for entry in entries {
      guard let parameter = parameters.first(where: { $0.info.name == entry.name }) else {
        context.diagnostics.report(
          Diagnostic(
            .unknownParameter, "'\(name)' has no parameter '\(entry.name)'", at: entry.key.location,
            help: Suggestion.nearest(to: entry.name, among: names).map { "Did you mean '\($0)'?" }
              ?? (names.isEmpty ? "It takes none" : "It has: " + names.joined(separator: ", "))))
        continue
      }
      given.insert(parameter.info.name)
      parameter.decode(entry.value, &component, &context)
    }
  }
}

extension ParameterShape {
  /// Whether a YAML mapping can be a value of this shape.
  var acceptsMapping: Bool {
    switch self {
    case .mapping, .table, .literal, .record, .signal: true
    case .oneOf(let shapes): shapes.contains(where: \.acceptsMapping)
    default: false
    }
  }
}
