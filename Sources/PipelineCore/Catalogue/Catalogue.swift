import Synchronization

/// Every component that pipeline files can name. Passed as a value, never global.
public struct Catalogue: Sendable {
  /// The components, in the order in which they were given.
  public let components: [CatalogueEntry]
  /// The functions of expressions, the decoders and the encoders of plugins.
  package let called: [PluginFunction]
  private let index: [Key: Int]

  private struct Key: Hashable {
    var kind: ComponentKind
    var name: String
  }

  /// A catalogue of these components. If two have the same kind and name, the later one is used.
  public init(_ components: [CatalogueEntry]) { self.init(components, []) }

  package init(_ components: [CatalogueEntry], _ called: [PluginFunction]) {
    self.components = components
    self.called = called
    var index: [Key: Int] = [:]
    for (at, component) in components.enumerated() {
      index[Key(kind: component.kind, name: component.name)] = at
    }
    self.index = index
  }

  /// The components of both; a component of `other` replaces one of the same kind and name.
  public func adding(_ other: Catalogue) -> Catalogue {
    Catalogue(components + other.components, called + other.called)
  }

  package func component(_ kind: ComponentKind, _ name: String) -> CatalogueEntry? {
    index[Key(kind: kind, name: name)].map { components[$0] }
  }

  package func names(_ kind: ComponentKind) -> [String] {
    components.filter { $0.kind == kind }.map(\.name)
  }
}

/// One component with its type erased.
///
/// Name and kind are known immediately; the rest is made on first use, so that the start-up time depends on the components
/// in use and not on the size of the catalogue.
public struct CatalogueEntry: Sendable {
  /// The kind, which determines where files may name the component.
  public let kind: ComponentKind
  /// The key that names it in files.
  public let name: String
  /// The minimum number of inputs of a combination.
  package let minimumInputs: Int
  /// Whether a combination sends lists whose elements `reduce` sees by name.
  let makesTuple: Bool
  /// Whether neighbouring steps of this kind are fused.
  package let isRowWise: Bool
  let changesValue: Bool
  let decode: @Sendable (YAMLNode?, inout DecodingContext) -> DecodedComponent
  private let description: Memo<Description>
  /// ``SourceComponent/savedPositions(_:)``; nil: the component is not a source.
  let savedPositions: (@Sendable (inout StateReader) throws(StateFault) -> [SavedPosition])?

  /// The part of the spec that the reference, the schema and suggestions need.
  private struct Description {
    var name: String
    var summary: String
    var details: String
    var parameters: [ParameterInfo]
    var examples: [Example]
    var edges: EdgeCases
    var memory: String
    var persistence: Persistence
    var lateness: String?
    var knownAs: [String]
    var useCases: [UseCase]
    var seeAlso: [String]
    var afterCrash: String?

    /// Not specialised for each component: descriptions are made for help and reference, where speed does not matter.
    @inline(never) @_semantics("optimize.sil.specialize.generic.never")
    init<C: Component>(_ spec: ComponentSpec<C>, _ afterCrash: (C) -> String?) {
      name = spec.name
      summary = spec.summary
      details = spec.details
      parameters = spec.parameters.map(\.info)
      examples = spec.examples
      edges = spec.edges
      memory = spec.memory
      persistence = spec.persistence
      lateness = spec.lateness?.meaning
      knownAs = spec.knownAs
      useCases = spec.useCases
      seeAlso = spec.seeAlso
      self.afterCrash = afterCrash(spec.make())
    }
  }

  package var summary: String { description.value.summary }
  package var details: String { description.value.details }
  package var parameters: [ParameterInfo] { description.value.parameters }
  package var examples: [Example] { description.value.examples }
  package var edges: EdgeCases { description.value.edges }
  package var memory: String { description.value.memory }
  /// The state of a running component that outlives the process.
  package var persistence: Persistence { description.value.persistence }
  /// The values and effect of `whenLate`, a sentence or two; nil: the component keeps no time.
  package var lateness: String? { description.value.lateness }
  package var knownAs: [String] { description.value.knownAs }
  package var useCases: [UseCase] { description.value.useCases }
  package var seeAlso: [String] { description.value.seeAlso }
  /// The effect of a crash on the events of a source or sink with default parameters; nil: an operator.
  package var afterCrash: String? { description.value.afterCrash }
  /// The name in the component's own spec, which must equal `name`.
  var nameInSpec: String { description.value.name }

  /// A source. `name` must equal the spec's; without it the spec is made immediately.
  public init<C: SourceComponent>(source: C.Type, _ name: String? = nil) {
    self.init(
      C.self, .source, name, afterCrash: { $0.recovery.meaning },
      savedPositions: { state throws(StateFault) in try C.savedPositions(&state) }, wrap: { .source($0) })
  }
  /// An operator with a node of its own. `name` must equal the spec's; without it the spec is made immediately.
  public init<C: OperatorComponent>(operator: C.Type, _ name: String? = nil) {
    self.init(C.self, .operator, name) { .operator($0) }
  }
  /// An operator whose steps are fused with their neighbours, such as a ``PureOperator``. `name` must equal the spec's.
  public init<C: FusableOperator>(row: C.Type, _ name: String? = nil) {
    self.init(C.self, .operator, name, isRowWise: true, changesValue: C.changesValue) { .row($0) }
  }
  package init<C: CombiningOperator>(combination: C.Type, _ name: String? = nil) {
    self.init(C.self, .combination, name, minimumInputs: C.minimumInputs, makesTuple: C.makesTuple) {
      .combination($0)
    }
  }
  package init<C: CommandComponent>(command: C.Type, _ name: String? = nil) {
    self.init(C.self, .command, name) { .command($0) }
  }
  /// A sink. `name` must equal the spec's; without it the spec is made immediately.
  public init<C: SinkComponent>(sink: C.Type, _ name: String? = nil) {
    self.init(C.self, .sink, name, afterCrash: { $0.confirmation.meaning }, wrap: { .sink($0) })
  }

  /// A component that a plugin offers; `make`: makes it with the defaults.
  package init<C: SourceComponent & PluginComponent>(plugin make: @escaping @Sendable () -> C) {
    self.init(
      C.self, .source, make().offered.name, spec: { make().offered.spec(make) }, afterCrash: { $0.offered.afterCrash },
      savedPositions: { state throws(StateFault) in try C.savedPositions(&state) }, wrap: { .source($0) })
  }
  package init<C: OperatorComponent & PluginComponent>(plugin make: @escaping @Sendable () -> C) {
    self.init(C.self, .operator, make().offered.name, spec: { make().offered.spec(make) }, wrap: { .operator($0) })
  }
  package init<C: FusableOperator & PluginComponent>(pluginRow make: @escaping @Sendable () -> C) {
    self.init(
      C.self, .operator, make().offered.name, spec: { make().offered.spec(make) }, isRowWise: true,
      changesValue: C.changesValue, wrap: { .row($0) })
  }
  package init<C: SinkComponent & PluginComponent>(plugin make: @escaping @Sendable () -> C) {
    self.init(
      C.self, .sink, make().offered.name, spec: { make().offered.spec(make) },
      afterCrash: { $0.offered.afterCrash }, wrap: { .sink($0) })
  }

  private init<C: Component>(
    _ type: C.Type, _ kind: ComponentKind, _ name: String?,
    spec make: @escaping @Sendable () -> ComponentSpec<C> = { C.spec },
    minimumInputs: Int = 1, makesTuple: Bool = false,
    isRowWise: Bool = false, changesValue: Bool = true, afterCrash: @escaping @Sendable (C) -> String? = { _ in nil },
    savedPositions: (@Sendable (inout StateReader) throws(StateFault) -> [SavedPosition])? = nil,
    wrap: @escaping @Sendable (C) -> DecodedComponent
  ) {
    self.savedPositions = savedPositions
    self.kind = kind
    self.name = name ?? make().name
    self.minimumInputs = minimumInputs
    self.makesTuple = makesTuple
    self.isRowWise = isRowWise
    self.changesValue = changesValue
    decode = { node, context in wrap(make().decode(node, &context)) }
    description = Memo { Description(make(), afterCrash) }
  }
}

/// A value that is made at its first use. Two threads may both make it at the same time; the results are the same.
private final class Memo<Value: Sendable>: Sendable {
  private let made = Mutex<Value?>(nil)
  private let make: @Sendable () -> Value

  init(_ make: @escaping @Sendable () -> Value) { self.make = make }

  var value: Value {
    if let value = made.withLock({ $0 }) { return value }
    let value = make()
    made.withLock { $0 = value }
    return value
  }
}

/// A component by its kind. The catalogue knows the kind, so no cast is needed: a failing dynamic cast takes a third of
/// a millisecond in a program with this many types.
enum DecodedComponent {
  case source(any SourceComponent)
  case `operator`(any OperatorComponent)
  case row(any FusableOperator)
  case combination(any CombiningOperator)
  case command(any CommandComponent)
  case sink(any SinkComponent)
}

extension ComponentSpec {
  /// Decodes a component's arguments: nothing (a bare word), the primary parameter alone, or a mapping of parameters.
  /// Reports every error, and returns what could be decoded, so that it can be checked further.
  func decode(_ node: YAMLNode?, _ context: inout DecodingContext) -> C {
    let decoded = Decoded(make())
    let infos = parameters.map(\.info)
    let before = context.diagnostics.all.count
    let arguments = GivenArguments(name, infos, ownsKeys: C.isPrimary) { [parameters] parameterIndex, node, context in
      parameters[parameterIndex].decode(node, &decoded.component, &context)
    }
    arguments.decode(node, &context)
    if context.isSound(since: before) { decoded.component.validate(&context) }
    if context.isSound(since: before) { context.refuseWithoutEffect(infos) }
    return decoded.component
  }
}

extension DecodingContext {
  /// Whether no error was reported after the first `count` diagnostics.
  fileprivate func isSound(since count: Int) -> Bool {
    !diagnostics.all.dropFirst(count).contains { $0.severity == .error }
  }
}

/// A component whose arguments are being decoded.
private final class Decoded<C: Component> {
  var component: C

  init(_ component: C) { self.component = component }
}

/// Decodes the arguments of a component, whose parameters it identifies by index. A class that stores the closure,
/// because the compiler would specialise a function that takes it as an argument for each component.
private final class GivenArguments {
  /// Decodes a value into the parameter with this index.
  typealias Decode = (Int, YAMLNode, inout DecodingContext) -> Void

  private let name: String
  private let parameters: [ParameterInfo]
  /// ``Component/isPrimary(_:)``
  private let ownsKeys: ([String]) -> Bool?
  private let decodeValue: Decode
  private var given: Set<String> = []

  init(
    _ name: String, _ parameters: [ParameterInfo], ownsKeys: @escaping ([String]) -> Bool?,
    _ decodeValue: @escaping Decode
  ) {
    self.name = name
    self.parameters = parameters
    self.ownsKeys = ownsKeys
    self.decodeValue = decodeValue
  }

  func decode(_ node: YAMLNode?, _ context: inout DecodingContext) {
    context.component = name
    let primary = parameters.firstIndex { $0.isPrimary }
    let isWhole = primary.map { parameters[$0].isWhole } ?? false
    if let node, !(node.isNull && !isWhole) {
      if let entries = node.entries, !isWhole, !isPrimary(entries, primary.map { parameters[$0] }, context.sources) {
        self.entries(entries, &context)
      } else if let primary {
        given.insert(parameters[primary].name)
        decodeValue(primary, node, &context)
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
              : "Its parameters are " + parameters.map { "'\($0.name)'" }.joined(separator: ", ")))
      }
    }
    beside(&context)
    for parameter in parameters where parameter.isRequired && !given.contains(parameter.name) {
      context.diagnostics.report(
        Diagnostic(
          .missingParameter, "'\(name)' needs '\(parameter.name)'", at: context.location,
          help: "\(parameter.name): \(parameter.help)"))
    }
  }

  /// Whether a mapping is the primary parameter itself and not a list of parameters.
  private func isPrimary(_ entries: [YAMLEntry], _ primary: ParameterInfo?, _ sources: Set<String>) -> Bool {
    guard let primary, !entries.isEmpty else { return false }
    if let known = ownsKeys(entries.map(\.name)) { return known }
    let names = parameters.map(\.name)
    if primary.shape.acceptsSignal, !entries.contains(where: { names.contains($0.name) }),
      entries.contains(where: { sources.contains($0.name) || $0.name == "from" })
    {
      return true
    }
    // A key that resembles a parameter's name is a misspelt parameter.
    let known = entries.contains { Suggestion.correction(for: $0.name, among: names) != nil }
    return !known && primary.shape.acceptsMapping
  }

  /// Decodes the parameters that are written alongside the component key.
  private func beside(_ context: inout DecodingContext) {
    for option in context.beside {
      let key = option.key.value
      let parameterIndex = parameters.firstIndex { $0.name == key }
      guard let parameterIndex, parameters[parameterIndex].isBeside else {
        context.diagnostics.report(
          Diagnostic(
            .misplacedKey, "'\(key)' cannot be combined with '\(name)'", at: option.key.location,
            help: parameterIndex != nil
              ? "It is a parameter: write '\(name): { \(key): ... }'" : "'\(name)' has no such parameter: remove it"))
        continue
      }
      given.insert(key)
      decodeValue(parameterIndex, option.value, &context)
    }
  }

  private func entries(_ entries: [YAMLEntry], _ context: inout DecodingContext) {
    for entry in entries {
      let renamed = parameters.firstIndex { $0.formerName == entry.name }
      if let renamed { context.renamed(entry, to: parameters[renamed].name) }
      guard let parameterIndex = renamed ?? parameters.firstIndex(where: { $0.name == entry.name && !$0.isBeside })
      else {
        context.unknownParameter(entry, "'\(name)'", among: parameters.map(\.name))
        continue
      }
      given.insert(parameters[parameterIndex].name)
      decodeValue(parameterIndex, entry.value, &context)
    }
  }
}

extension ParameterShape {
  /// Whether a whole inner signal can be a value of this shape.
  var acceptsSignal: Bool {
    switch self {
    case .signal: true
    case .oneOf(let shapes): shapes.contains(where: \.acceptsSignal)
    default: false
    }
  }

  /// Whether a YAML mapping can be a value of this shape.
  var acceptsMapping: Bool {
    switch self {
    case .mapping, .table, .literal, .record, .signal: true
    case .oneOf(let shapes): shapes.contains(where: \.acceptsMapping)
    default: false
    }
  }
}
