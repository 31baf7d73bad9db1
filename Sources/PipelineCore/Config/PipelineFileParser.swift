/// Parses the nodes of a pipeline file into a ``PipelineFile``.
///
/// Reports every error of the grammar and continues; definitions with errors are left out. It knows no components, so
/// any key that is not reserved counts as one.
package struct PipelineFileParser {
  var diagnostics: [Diagnostic] = []
  private var stepCount = 0
  private var broken: Set<String> = []

  /// The maximum number of operators in one file.
  package static let maximumSteps = 2_500
  /// The maximum number of errors that are reported for one file.
  package static let maximumErrors = 200

  /// Never fails: besides errors, returns the parts that could be parsed. `isLibrary`: the file needs no sources and
  /// sinks.
  package static func parse(
    _ node: YAMLNode, isLibrary: Bool = false, into diagnostics: inout Diagnostics
  ) -> PipelineFile {
    run(&diagnostics) { $0.file(node, isLibrary) }
  }

  /// A signal definition, such as `flattenMap`'s parameter `signal`. A text refers to a named signal.
  package static func parseSignal(
    _ node: YAMLNode, into diagnostics: inout Diagnostics
  ) -> SignalNode? {
    run(&diagnostics) { $0.innerSignal(node) }
  }

  /// Parses a list of operators.
  package static func parseChain(
    _ node: YAMLNode, into diagnostics: inout Diagnostics
  ) -> [ComponentNode] {
    run(&diagnostics) { $0.chain(node) }
  }

  /// Parses `NAME` or `NAME.output`.
  package static func parseReference(
    _ node: YAMLNode, into diagnostics: inout Diagnostics
  ) -> ReferenceNode? {
    run(&diagnostics) { $0.reference(node) }
  }

  private static func run<Result>(
    _ diagnostics: inout Diagnostics, _ body: (inout PipelineFileParser) -> Result
  ) -> Result {
    var parser = PipelineFileParser()
    let result = body(&parser)
    diagnostics.report(contentsOf: parser.diagnostics)
    return result
  }

  // MARK: The file

  mutating func file(_ node: YAMLNode, _ isLibrary: Bool) -> PipelineFile {
    let source = node.location.text
    var file = PipelineFile(
      source: source,
      name: Located(Self.defaultName(source.name), at: SourceLocation(source, offset: 0)))
    guard let entries = mapping(node, "a pipeline file", "'sources:', 'signals:' and 'sinks:'")
    else {
      return file
    }
    checkKeys(entries, ReservedKeys.topLevel, of: "a pipeline file")
    var names: [String: SourceLocation] = [:]
    for entry in entries {
      let value = entry.value
      switch entry.name {
      case "sources", "tables", "signals", "commands", "sinks", "functions": break
      default: if refusesSecret(in: value, "'\(entry.key.shown)'") { continue }
      }
      switch entry.name {
      case "name": if let name = pipelineName(value) { file.name = name }
      case "description": file.description = text(value, "description")
      case "threads": file.threads = threads(value)
      case "delivery": file.delivery = delivery(value)
      case "require": file.require = requirement(value)
      case "whenLate": file.whenLate = whenLate(value)
      case "state": file.stateMemory = stateMemory(value)
      case "sources":
        file.sources = section(entry, &names, "a source") { $0.component($1, in: .source) }
      case "tables":
        file.tables = section(entry, &names, "a table") { $0.table($1) }
        file.brokenTables = Set(value.entries?.map(\.name) ?? []).subtracting(file.tables.map(\.name.value))
      case "signals":
        file.signals = section(entry, &names, "a signal") { $0.signal($1) }
      case "commands":
        file.commands = section(entry, &names, "a command") { $0.command($1) }
      case "sinks":
        file.sinks = section(entry, &names, "a sink") { $0.sink($1) }
      case "tests": file.tests = tests(value)
      case "patterns": file.patterns = patterns(entry)
      case "functions":
        file.functionSection = value
        file.functions = functions(entry, &file.brokenFunctions)
      case "plugins": file.plugins = plugins(entry)
      case "defaults":
        file.defaults = (self.entries(entry) ?? []).map { NamedNode($0.locatedName, $0.value) }
      default: break
      }
    }
    if !isLibrary, !entries.contains(where: { ["sources", "signals", "commands", "sinks"].contains($0.name) }) {
      report(
        .missingKey, "a pipeline needs 'sources' and 'sinks'", node.location.start,
        help: "Name at least one source, and one sink that reads it")
    }
    file.broken = broken
    file.isWhole = diagnostics.allSatisfy { $0.severity != .error }
    return file
  }

  /// The file's name without folder and extension, turned into a valid name.
  static func defaultName(_ path: String) -> String {
    let file = path.utf8.split(separator: UInt8(ascii: "/")).last.map(Array.init) ?? []
    let stem =
      file.lastIndex(of: UInt8(ascii: ".")).flatMap { $0 > 0 ? file[..<$0] : nil } ?? file[...]
    let safe = stem.prefix(64).map { Name.isPart($0) || $0 == UInt8(ascii: ".") ? $0 : 0x5F }
    let name = String(decoding: safe, as: UTF8.self)
    return safe.first.map { $0 == UInt8(ascii: ".") || $0 == UInt8(ascii: "-") } ?? true
      ? "_" + name : name
  }

  private mutating func pipelineName(_ node: YAMLNode) -> Located<String>? {
    guard let name = text(node, "name") else { return nil }
    let bytes = Array(name.value.utf8)
    guard let first = bytes.first, bytes.count <= 64, first != UInt8(ascii: "."),
      first != UInt8(ascii: "-"), bytes.allSatisfy({ Name.isPart($0) || $0 == UInt8(ascii: ".") })
    else {
      report(
        .invalidName, "'\(node.shown)' cannot be the name of a pipeline", node.location,
        help: "Use up to 64 letters, digits, '_', '-' and '.', beginning with a letter or digit")
      return nil
    }
    return name
  }

  /// Parses `NAME: pattern` under `patterns`.
  private mutating func patterns(_ section: YAMLEntry) -> [NamedNode<Located<String>>] {
    (entries(section) ?? []).compactMap { entry in
      guard GrokDefinitions.isName(entry.name) else {
        report(
          .invalidName, "'\(entry.name)' cannot be the name of a grok pattern", entry.key.location,
          help: "Use letters, digits, '_', '-' and '.'")
        return nil
      }
      return text(entry.value, entry.name).map { NamedNode(entry.locatedName, $0) }
    }
  }

  private mutating func threads(_ node: YAMLNode) -> Located<Int>? {
    if node.isPlaceholder { return nil }
    let range = Int64(PipelineFile.threadRange.lowerBound)...Int64(PipelineFile.threadRange.upperBound)
    switch node.decodeInt("'threads'", in: range) {
    case .success(let number): return Located(Int(number), at: node.location)
    case .failure(let diagnostic):
      report(
        diagnostic.code, diagnostic.message, node.location,
        help: "Write a number from 1 to \(range.upperBound), or leave it out for the number of processors")
      return nil
    }
  }

  private mutating func delivery(_ node: YAMLNode) -> Located<Delivery>? {
    if node.isPlaceholder { return nil }
    let choices = Delivery.allCases.map(\.rawValue)
    switch node.decodeChoice("'delivery'", choices) {
    case .success(let text): return Delivery(rawValue: text).map { Located($0, at: node.location) }
    case .failure(let diagnostic):
      let asked = node.scalar.flatMap { DeliveryRequirement(rawValue: Suggestion.camelCase($0.string)) }
      report(
        diagnostic, at: node,
        helping: asked.map {
          "A guarantee is written 'require: \($0.rawValue)'; 'delivery' takes \(Suggestion.list(choices))"
        })
      return nil
    }
  }

  private mutating func requirement(_ node: YAMLNode) -> Located<DeliveryRequirement>? {
    if node.isPlaceholder { return nil }
    let choices = DeliveryRequirement.allCases.map(\.rawValue)
    switch node.decodeChoice("'require'", choices) {
    case .success(let text): return DeliveryRequirement(rawValue: text).map { Located($0, at: node.location) }
    case .failure(let diagnostic):
      let mode = node.scalar.flatMap { Delivery(rawValue: Suggestion.camelCase($0.string)) }
      report(
        diagnostic, at: node,
        helping: mode.map {
          "A mode is written 'delivery: \($0.rawValue)'; 'require' takes \(Suggestion.list(choices))"
        })
      return nil
    }
  }

  private mutating func whenLate(_ node: YAMLNode) -> Located<WhenLate>? {
    if node.isPlaceholder { return nil }
    switch node.decodeChoice("'whenLate'", WhenLate.allCases.map(\.rawValue)) {
    case .success(let text): return WhenLate(rawValue: text).map { Located($0, at: node.location) }
    case .failure(let diagnostic):
      report(diagnostic, at: node, helping: nil)
      return nil
    }
  }

  private mutating func stateMemory(_ node: YAMLNode) -> Located<Int>? {
    if node.isPlaceholder { return nil }
    guard let entries = mapping(node, "'state'", "'memory: 256MiB'") else { return nil }
    checkKeys(entries, ReservedKeys.state, of: "'state'")
    guard let value = entries.first(where: { $0.name == "memory" })?.value, !value.isPlaceholder else { return nil }
    switch value.decodeSize("'memory'") {
    case .success(let bytes) where PipelineFile.stateMemoryRange.contains(bytes):
      return Located(bytes, at: value.location)
    case .success:
      report(
        .outOfRange, "'memory' must be from 16 MiB to 1 TiB", value.location, help: "Write 'state: { memory: 256MiB }'")
    case .failure(let diagnostic): report(diagnostic, at: value, helping: nil)
    }
    return nil
  }

  /// Reports an error in the value of `node`; a given `help` replaces the diagnostic's help and fixes.
  private mutating func report(_ diagnostic: Diagnostic, at node: YAMLNode, helping help: String?) {
    report(
      diagnostic.code, diagnostic.message, node.location, notes: help == nil ? diagnostic.notes : [],
      help: help ?? diagnostic.help, fixIts: help == nil ? diagnostic.fixIts : [])
  }

  /// Parses `NAME: node` under a top-level key; a name must not be in `names` yet.
  private mutating func section<Node>(
    _ section: YAMLEntry, _ names: inout [String: SourceLocation], _ what: String,
    _ parse: (inout PipelineFileParser, YAMLNode) -> Node?
  ) -> [NamedNode<Node>] {
    var nodes: [NamedNode<Node>] = []
    for entry in entries(section) ?? [] {
      let isNamed = freeName(entry.key, of: what)
      if isNamed, let first = names[entry.name] {
        report(
          .duplicateName, "the name '\(entry.key.shown)' is used twice", entry.key.location,
          notes: [.init("first used here", at: first)],
          help: "Sources, tables, signals, commands and sinks share their names, so that 'from' is clear")
      } else if isNamed {
        names[entry.name] = entry.key.location
      }
      if let node = parse(&self, entry.value), isNamed {
        nodes.append(NamedNode(entry.locatedName, node))
      } else {
        broken.insert(entry.name)
      }
    }
    return nodes
  }

  private mutating func plugins(_ entry: YAMLEntry) -> [NamedNode<YAMLNode>] {
    guard case .sequence(let items) = entry.value.content else {
      return (entries(entry) ?? []).map { NamedNode($0.locatedName, $0.value) }
    }
    return items.compactMap { item in
      text(item, "a plugin").map { NamedNode($0, item) }
    }
  }

  // MARK: Signals

  /// A signal of the section `signals`.
  mutating func signal(_ node: YAMLNode) -> SignalNode? {
    if let scalar = node.scalar, scalar.kind != .null {
      report(
        .wrongType, "a signal is a mapping, not \(node.kindName)", node.location,
        help: "To read another signal, write: from: \(scalar.shown)",
        fixIts: node.location.length > 0
          ? [.init(node.location, "{ from: \(scalar.shown) }")] : [])
      return nil
    }
    return innerSignal(node)
  }

  mutating func innerSignal(_ node: YAMLNode) -> SignalNode? {
    if let scalar = node.scalar, scalar.kind != .null {
      return reference(node).map { SignalNode(origin: .reference($0), location: node.location) }
    }
    guard let entries = mapping(node, "a signal", "'from: NAME' and 'chain:'") else { return nil }
    var origins: [(entry: YAMLEntry, keyword: CombiningNode.Keyword?)] = []
    var others: [YAMLEntry] = []
    var options: [OptionNode] = []
    var reduce: YAMLEntry?
    var steps: [ComponentNode] = []
    for entry in entries {
      if entry.name == "from" {
        origins.append((entry, nil))
      } else if let keyword = CombiningNode.Keyword(rawValue: entry.name) {
        origins.append((entry, keyword))
      } else if entry.name == "chain" {
        steps = chain(entry.value)
      } else if entry.name == "reduce" {
        reduce = entry
      } else if ReservedKeys.signal.contains(entry.name) {
        if !refusesSecret(in: entry.value, "'\(entry.key.shown)'") {
          options.append(OptionNode(key: entry.locatedName, value: entry.value))
        }
      } else {
        others.append(entry)
      }
    }
    if origins.isEmpty {
      let known = ReservedKeys.signal + ReservedKeys.combining
      let components = rejectUnknown(others, among: known, "a signal", always: true)
      // The key of the origin has been reported as an error.
      if components.isEmpty, !others.isEmpty { return nil }
      others = components
    } else {
      for entry in others {
        misplaced(entry, among: ReservedKeys.signal + ReservedKeys.combining, beside: entries)
      }
      others = []
    }
    guard let origin = origin(origins, others, node) else { return nil }
    if let reduce {
      steps.insert(contentsOf: reduceStep(reduce, origins.first?.keyword), at: 0)
    }
    return SignalNode(origin: origin, chain: steps, options: options, location: node.location)
  }

  private mutating func origin(
    _ origins: [(entry: YAMLEntry, keyword: CombiningNode.Keyword?)], _ components: [YAMLEntry],
    _ node: YAMLNode
  ) -> SignalNode.Origin? {
    if origins.isEmpty, components.isEmpty {
      report(
        .notOneOrigin, "the signal has no origin", node.location.start,
        help: "Write 'from: NAME', a combining key such as 'merge: [a, b]', or a source")
      return nil
    }
    if origins.count > 1 {
      let keys = origins.map(\.entry)
      report(
        .notOneOrigin,
        "a signal has one origin, but this one has \(Suggestion.list(keys.map(\.name)))",
        keys[1].key.location, notes: [.init("the first is here", at: keys[0].key.location)],
        help: keys.allSatisfy({ $0.name == "from" || $0.name == "merge" })
          ? "Put all inputs into one 'merge: [a, b]'" : "Make one of them a separate signal")
      return nil
    }
    guard let first = origins.first else {
      return sourceComponent(components, [], node).map { .inline($0) }
    }
    if let keyword = first.keyword {
      return combining(Located(keyword, at: first.entry.key.location), first.entry).map {
        .combining($0)
      }
    }
    return from(first.entry.value)
  }

  /// The value of `from` in a signal.
  private mutating func from(_ node: YAMLNode) -> SignalNode.Origin? {
    switch node.content {
    case .scalar: return reference(node).map { .reference($0) }
    case .sequence(let items):
      report(
        .wrongType, "'from' takes one signal, not a list", node.location,
        help: items.count == 1
          ? "Write the name without brackets" : "To read several signals, replace 'from' by 'merge'")
      return nil
    case .mapping(let entries):
      if let entry = entries.first(where: { ReservedKeys.combining.contains($0.name) }) {
        report(
          .misplacedKey, "'\(entry.name)' replaces 'from'; it cannot be inside it",
          entry.key.location, help: "Write '\(entry.name): ...' without 'from'")
        return nil
      }
      if let entry = entries.first(where: { $0.name == "from" || $0.name == "chain" }) {
        report(
          .misplacedKey, "'\(entry.name)' is not allowed inside 'from'", entry.key.location,
          help: entry.name == "chain"
            ? "Put 'chain' beside 'from'" : "Name the inner signal, and refer to it")
        return nil
      }
      return component(node, in: .source).map { .inline($0) }
    }
  }

  /// Parses an input signal.
  mutating func signalInput(_ node: YAMLNode) -> SignalInput? {
    switch node.content {
    case .scalar: return reference(node).map { .reference($0) }
    case .mapping: return innerSignal(node).map { .inline($0) }
    case .sequence:
      report(
        .wrongType, "expected one signal here, not a list", node.location,
        help: "To read several signals, write { merge: [a, b] }")
      return nil
    }
  }

  private mutating func reduceStep(
    _ entry: YAMLEntry, _ keyword: CombiningNode.Keyword?
  ) -> [ComponentNode] {
    if keyword != .combineLatest, keyword != .zip {
      report(
        .unsuitableReduce, "'reduce' is allowed only after 'combineLatest' or 'zip'",
        entry.key.location,
        help: "A fold over time is 'scan' (each step) or 'aggregate' (only the end)")
      return []
    }
    return [
      ComponentNode(
        keyword: entry.locatedName, arguments: entry.value,
        location: entry.key.location.through(entry.value.location))
    ]
  }

  // MARK: Chains and components

  mutating func chain(_ node: YAMLNode) -> [ComponentNode] {
    switch node.content {
    case .sequence(let items):
      return items.compactMap { step($0) }
    case .mapping(let entries):
      report(
        .wrongType, "'chain' takes a list of operators, not a mapping", node.location.start,
        help: "Begin each operator with '- '")
      // All steps are parsed, so that every error is reported.
      return entries.compactMap {
        step(YAMLNode(.mapping([$0]), at: $0.key.location.through($0.value.location)))
      }
    case .scalar(let scalar):
      report(
        .wrongType, "'chain' takes a list of operators, not \(node.kindName)", node.location,
        help: scalar.kind == .null ? "Remove 'chain', or write operators below it" : "Write '- '")
      return []
    }
  }

  private mutating func step(_ node: YAMLNode) -> ComponentNode? {
    stepCount += 1
    if stepCount == Self.maximumSteps + 1 {
      report(
        .tooMany, "the file has more than \(Self.maximumSteps) operators", node.location,
        help: "Split it: every file of a directory is a separate pipeline")
    }
    return component(node, in: .step)
  }

  enum Role {
    case source, step, sink

    var noun: String {
      switch self {
      case .source: "a source"
      case .step: "an operator"
      case .sink: "a sink"
      }
    }
    var reserved: [String] {
      switch self {
      case .source: ReservedKeys.source
      case .step: ReservedKeys.step
      case .sink: ReservedKeys.sink
      }
    }
    var example: String {
      switch self {
      case .source: "stdin: {}"
      case .step: "filter: size(event) > 3"
      case .sink: "stdout: {}"
      }
    }
  }

  /// Parses a bare word, or a mapping with one component key.
  mutating func component(_ node: YAMLNode, in role: Role) -> ComponentNode? {
    switch node.content {
    case .scalar(let scalar): return bareWord(scalar, node, role)
    case .sequence:
      report(
        .wrongType, "\(role.noun) is a word or a mapping, not a list", node.location,
        help: role == .step
          ? "Remove the inner '- ' or brackets: a chain is one flat list"
          : "Write for example '\(role.example)'")
      return nil
    case .mapping(let entries):
      var options: [OptionNode] = []
      var components: [YAMLEntry] = []
      for entry in entries {
        if role.reserved.contains(entry.name) {
          if refusesSecret(in: entry.value, "'\(entry.key.shown)'") { continue }
          options.append(OptionNode(key: entry.locatedName, value: entry.value))
        } else {
          components.append(entry)
        }
      }
      components = rejectUnknown(components, among: role.reserved, role.noun)
      return single(components, options, node, role)
    }
  }

  private mutating func sourceComponent(
    _ components: [YAMLEntry], _ options: [OptionNode], _ node: YAMLNode
  ) -> SourceNode? {
    single(components, options, node, .source)
  }

  /// The only component key among `components`, which contains no reserved keys.
  mutating func single(
    _ components: [YAMLEntry], _ options: [OptionNode], _ node: YAMLNode, _ role: Role
  ) -> ComponentNode? {
    guard let first = components.first else {
      let isEmpty = node.entries?.isEmpty ?? true
      report(
        .notOneComponent,
        isEmpty ? "the mapping is empty" : "the component is missing: what kind of \(role.kind)?",
        node.location.start, help: "Write for example '\(role.example)'")
      return nil
    }
    if let type = components.first(where: { $0.name == "type" }), let name = type.value.string,
      let written = typed(Printable.cut(name), components, role)
    {
      report(
        .notOneComponent, "'type' is no component: the component itself is the key", type.key.location, help: written)
      return nil
    }
    if components.count > 1 {
      let names = Suggestion.list(components.map { Printable.cut($0.name) })
      let others = components.dropFirst().map { "'\(Printable.cut($0.name))'" }
      report(
        .notOneComponent,
        role == .step
          ? "a step is one operator, but this one has \(names)"
          : "\(role.noun) has one component key, but this one has \(names)",
        components[1].key.location, notes: [.init("the first is here", at: first.key.location)],
        help: role == .step
          ? "Begin each operator with '- '; parameters of '\(Printable.cut(first.name))' stand "
            + "inside its value"
          : "If \(others.joined(separator: ", ")) \(others.count == 1 ? "is a parameter, put it" : "are parameters, put them") inside: "
            + "\(Printable.cut(first.name)): { ... }")
      return nil
    }
    guard componentName(first.key) else { return nil }
    let isEmpty = first.value.isNull && first.value.location.length == 0
    return ComponentNode(
      keyword: first.locatedName, arguments: isEmpty ? nil : first.value, options: options,
      location: node.location)
  }

  private mutating func bareWord(
    _ scalar: YAMLScalar, _ node: YAMLNode, _ role: Role
  ) -> ComponentNode? {
    if scalar.kind == .null, !scalar.isPlaceholder {
      report(
        .wrongType, "\(role.noun) is missing here", node.location,
        help: "Write for example '\(role.example)'")
      return nil
    }
    let word = scalar.text.text
    if !Name.isValid(word), !scalar.isInterpolated {
      let head = word.prefix { Name.isPart($0) }
      let rest = word.dropFirst(head.count)
      let keyword = Printable.cut(head)
      let isCall = !head.isEmpty && (rest.first == 0x3A || rest.first == 0x20 || rest.first == 0x28)
      report(
        .wrongType, "'\(scalar.shown)' is not the name of \(role.noun)", node.location,
        help: !isCall
          ? "Write for example '\(role.example)'"
          : rest.first == 0x3A
            ? "The ':' after '\(keyword)' must be followed by a space"
            : "Parameters follow a ':', as in '\(keyword): ...'")
      return nil
    }
    guard componentName(scalar) else { return nil }
    return ComponentNode(
      keyword: Located(scalar.string, at: scalar.location), location: node.location)
  }
}

extension PipelineFileParser.Role {
  fileprivate var kind: String {
    switch self {
    case .source: "source"
    case .step: "operator"
    case .sink: "sink"
    }
  }
}

extension SourceLocation {
  /// The start of the range.
  var start: SourceLocation { SourceLocation(text, offset: offset) }

  /// The range from here to the end of `other`, which comes later in the same file.
  func through(_ other: SourceLocation) -> SourceLocation {
    guard other.text === text, other.offset >= offset else { return self }
    return SourceLocation(text, offset: offset, length: other.offset + other.length - offset)
  }
}
