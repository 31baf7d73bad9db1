// Combining keys, sinks, commands and tests.

extension PipelineFileParser {
  // MARK: Combining

  mutating func combining(
    _ keyword: Located<CombiningNode.Keyword>, _ entry: YAMLEntry
  ) -> CombiningNode? {
    let location = entry.key.location.through(entry.value.location)
    switch keyword.value {
    case .if, .switch:
      guard let entries = mapping(entry.value, "'\(entry.name)'", keyword.value.example) else {
        return nil
      }
      let inputs = keyword.value == .if ? choice(entries, entry) : cases(entries, entry)
      return inputs.map { CombiningNode(keyword: keyword, inputs: $0, location: location) }
    case .merge, .concat, .zip, .combineLatest, .race:
      var arguments: [OptionNode] = []
      var value = entry.value
      if let signals = value["signals"], let entries = value.entries {
        arguments = entries.filter { $0.name != "signals" }.map {
          OptionNode(key: $0.locatedName, value: $0.value)
        }
        value = signals
      } else if let entries = value.entries, entries.contains(where: { Self.isArgument($0.value) }) {
        arguments = entries.filter { Self.isArgument($0.value) }.map {
          OptionNode(key: $0.locatedName, value: $0.value)
        }
        value = YAMLNode(.mapping(entries.filter { !Self.isArgument($0.value) }), at: value.location)
      }
      guard let inputs = inputs(value, keyword.value) else { return nil }
      return CombiningNode(
        keyword: keyword, inputs: inputs, arguments: arguments, location: location)
    }
  }

  /// Whether a node is a parameter alongside the named inputs: a boolean or a number, which no signal can be named.
  private static func isArgument(_ node: YAMLNode) -> Bool {
    guard let scalar = node.scalar, !scalar.isPlaceholder else { return false }
    return scalar.kind == .bool || scalar.kind == .int || scalar.kind == .float
  }

  private mutating func inputs(
    _ node: YAMLNode, _ keyword: CombiningNode.Keyword
  ) -> [InputNode]? {
    var inputs: [InputNode] = []
    switch node.content {
    case .sequence(let items):
      for item in items {
        guard let signal = signalInput(item) else { continue }
        inputs.append(InputNode(name: Self.inputName(signal), signal: signal))
      }
      if keyword == .combineLatest || keyword == .zip { checkInputNames(inputs, keyword) }
    case .mapping(let entries):
      if let entry = entries.first(where: { ["from", "chain"].contains($0.name) }) {
        report(
          .wrongType,
          "'\(keyword.rawValue)' takes several signals, so '\(entry.name)' has no meaning",
          entry.key.location, help: "Write a list of signals: \(keyword.example)")
        return nil
      }
      for entry in entries where freeName(entry.key, of: "an input") {
        guard let signal = signalInput(entry.value) else { continue }
        inputs.append(InputNode(name: entry.locatedName, signal: signal))
      }
    case .scalar:
      report(
        .wrongType, "'\(keyword.rawValue)' takes a list of signals, not \(node.kindName)",
        node.location, help: "Write for example: \(keyword.example)")
      return nil
    }
    if node.items?.isEmpty ?? node.entries?.isEmpty ?? true {
      report(
        .emptyCollection, "'\(keyword.rawValue)' has no inputs", node.location,
        help: "Write for example: \(keyword.example)")
      return nil
    }
    return inputs
  }

  private static func inputName(_ signal: SignalInput) -> Located<String>? {
    guard case .reference(let reference) = signal else { return nil }
    let output = reference.output.map { "_" + $0.value } ?? ""
    return Located(reference.name.value + output, at: reference.location)
  }

  private mutating func checkInputNames(_ inputs: [InputNode], _ keyword: CombiningNode.Keyword) {
    var seen: [String: SourceLocation] = [:]
    for name in inputs.compactMap(\.name) {
      if ReservedKeys.noVariables.contains(name.value), !ReservedKeys.words.contains(name.value) {
        report(
          .invalidName, "'\(name.value)' cannot be the name of an input: it is a word of the expression language",
          name.location, help: "Name it: \(keyword.rawValue): { input: \(name.value), ... }")
      }
      if let first = seen[name.value] {
        report(
          .duplicateName, "'\(name.value)' is an input twice, so its two parts have one name",
          name.location, notes: [.init("first used here", at: first)],
          help: "Name them: \(keyword.rawValue): { first: \(name.value), second: \(name.value) }")
      } else {
        seen[name.value] = name.location
      }
    }
  }

  private mutating func choice(_ entries: [YAMLEntry], _ entry: YAMLEntry) -> [InputNode]? {
    let keys = ["condition", "then", "else"]
    checkKeys(entries, keys, of: "'if'")
    guard require(keys, entries, entry) else { return nil }
    let roles: [String: InputNode.Role] = ["condition": .selector, "then": .then, "else": .else]
    return entries.compactMap { entry in
      guard let role = roles[entry.name] else { return nil }
      return signalInput(entry.value).map {
        InputNode(role: role, name: entry.locatedName, signal: $0)
      }
    }
  }

  private mutating func cases(_ entries: [YAMLEntry], _ entry: YAMLEntry) -> [InputNode]? {
    let entries = entries.map { entry -> YAMLEntry in
      guard entry.name == "on" else { return entry }
      diagnostics.append(.renamed(entry.key, to: "by", of: "'switch'"))
      var renamed = entry
      renamed.key.text.text = Array("by".utf8)
      return renamed
    }
    checkKeys(entries, ["by", "cases", "default"], of: "'switch'")
    guard require(["by", "cases"], entries, entry) else { return nil }
    var inputs: [InputNode] = []
    for entry in entries {
      switch entry.name {
      case "by", "default":
        if let signal = signalInput(entry.value) {
          inputs.append(
            InputNode(
              role: entry.name == "by" ? .selector : .default, name: entry.locatedName,
              signal: signal))
        }
      case "cases":
        for option in self.entries(entry) ?? [] {
          guard let signal = signalInput(option.value) else { continue }
          inputs.append(InputNode(role: .case, name: option.locatedName, signal: signal))
        }
      default: break
      }
    }
    return inputs
  }

  // MARK: Sinks and commands

  mutating func sink(_ node: YAMLNode) -> SinkNode? {
    guard let entries = mapping(node, "a sink", "'from: NAME' and 'stdout: {}'") else { return nil }
    var source: YAMLEntry?
    var steps: [ComponentNode] = []
    var options: [OptionNode] = []
    var components: [YAMLEntry] = []
    for entry in entries {
      switch entry.name {
      case "from": source = entry
      case "chain": steps = chain(entry.value)
      case _ where ReservedKeys.sink.contains(entry.name):
        if refusesSecret(in: entry.value, "'\(entry.key.shown)'") { continue }
        options.append(OptionNode(key: entry.locatedName, value: entry.value))
      default: components.append(entry)
      }
    }
    let isMisspelt =
      source == nil
      && components.contains {
        $0.missingSpace(among: ["from"]) != nil
          || Suggestion.correction(for: $0.name, among: ReservedKeys.sink)?.name == "from"
      }
    components = rejectUnknown(components, among: ReservedKeys.sink, "a sink")
    let component = single(components, options, node, .sink)
    guard let source else {
      if isMisspelt, component != nil { return nil }
      report(
        .missingKey, "the sink has no input: 'from' is missing", node.location.start,
        help: "Write 'from: NAME' with the name of a source or signal")
      return nil
    }
    let from = sinkInput(source.value)
    guard let from, let component else { return nil }
    return SinkNode(from: from, chain: steps, component: component, location: node.location)
  }

  private mutating func sinkInput(_ node: YAMLNode) -> SignalInput? {
    if case .sequence(let items) = node.content {
      report(
        .wrongType, "'from' takes one signal, not a list", node.location,
        help: items.count == 1
          ? "Write the name without brackets" : "Write from: { merge: [a, b] }")
      return nil
    }
    return signalInput(node)
  }

  mutating func command(_ node: YAMLNode) -> CommandNode? {
    guard let entries = mapping(node, "a command", "'run:' with a signal") else { return nil }
    checkKeys(entries, ReservedKeys.command, of: "a command")
    var parameters: [YAMLEntry] = []
    var run: SignalNode?
    var enabled: SignalInput?
    var options: [OptionNode] = []
    for entry in entries where ReservedKeys.command.contains(entry.name) {
      switch entry.name {
      case "run":
        run = innerSignal(entry.value)
        parameters.append(entry)
      case "enabled": enabled = signalInput(entry.value)
      case _ where ReservedKeys.commandParameters.contains(entry.name): parameters.append(entry)
      default:
        if refusesSecret(in: entry.value, "'\(entry.key.shown)'") { continue }
        options.append(OptionNode(key: entry.locatedName, value: entry.value))
      }
    }
    if !entries.contains(where: { $0.name == "run" }) {
      report(
        .missingKey, "the command does nothing: 'run' is missing", node.location.start,
        help: "Write 'run:' and below it a signal, which is created for each execution")
    }
    guard let run else { return nil }
    return CommandNode(
      run: run, enabled: enabled, arguments: YAMLNode(.mapping(parameters), at: node.location), options: options,
      location: node.location)
  }

  // MARK: Tests

  mutating func tests(_ node: YAMLNode) -> [TestNode] {
    guard case .sequence(let items) = node.content else {
      report(
        .wrongType, "'tests' takes a list, not \(node.kindName)", node.location.start,
        help: "Begin each test with '- name: ...'")
      return []
    }
    var seen: [String: SourceLocation] = [:]
    return items.compactMap { item in
      guard let test = test(item) else { return nil }
      if let first = seen[test.name.value] {
        report(
          .duplicateName, "two tests have the name '\(Printable.cut(test.name.value))'",
          test.name.location, notes: [.init("the first is here", at: first)])
      }
      seen[test.name.value] = test.name.location
      return test
    }
  }

  private mutating func test(_ node: YAMLNode) -> TestNode? {
    guard let entries = mapping(node, "a test", "'name:', 'inputs:' and 'expect:'") else {
      return nil
    }
    checkKeys(entries, ReservedKeys.test, of: "a test")
    var test = TestNode(
      name: Located("", at: node.location.start), inputs: [], stubs: [], expect: [], options: [],
      location: node.location)
    for entry in entries where ReservedKeys.test.contains(entry.name) {
      switch entry.name {
      case "name": if let name = text(entry.value, "name") { test.name = name }
      case "inputs": test.inputs = subjects(entry)
      case "tables": test.tables = subjects(entry)
      case "stubs": test.stubs = subjects(entry)
      case "expect": test.expect = subjects(entry)
      default: test.options.append(OptionNode(key: entry.locatedName, value: entry.value))
      }
    }
    for key in ["name", "expect"] where !entries.contains(where: { $0.name == key }) {
      report(
        .missingKey, "the test has no '\(key)'", node.location.start,
        help: key == "name"
          ? "Describe in a few words what the test shows"
          : "List the expected events: 'expect: { NAME: [ ... ] }', with [] for nothing")
    }
    return test
  }

  /// `NAME: ...` or `NAME.output: ...` in a test.
  private mutating func subjects(_ entry: YAMLEntry) -> [NamedNode<YAMLNode>] {
    (entries(entry) ?? []).compactMap { subject in
      let parts = subject.key.text.text.split(
        separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
      guard parts.count <= 2, parts.allSatisfy({ Name.isValid($0) }) else {
        report(
          .invalidReference, "'\(subject.key.shown)' is neither NAME nor NAME.output",
          subject.key.location)
        return nil
      }
      return NamedNode(subject.locatedName, subject.value)
    }
  }
}

extension CombiningNode.Keyword {
  /// An example for help texts.
  var example: String {
    switch self {
    case .if: "if: { condition: a, then: b, else: c }"
    case .switch: "switch: { by: a, cases: { x: b }, default: c }"
    default: "\(rawValue): [a, b]"
    }
  }
}
