/// Reads the spec document of a plugin; docs/plugin-contract.md describes it.
package struct PluginSpecReader {
  private var diagnostics = Diagnostics()

  /// Nil after an error, which is reported with its location in the document.
  package static func read(_ source: SourceText, into diagnostics: inout Diagnostics) -> PluginSpec? {
    guard let root = YAMLReader.read(source, into: &diagnostics) else { return nil }
    var reader = PluginSpecReader()
    let spec = reader.plugin(root, source)
    diagnostics.report(contentsOf: reader.diagnostics.all)
    return reader.diagnostics.hasErrors ? nil : spec
  }

  // MARK: Parts

  private mutating func plugin(_ root: YAMLNode, _ source: SourceText) -> PluginSpec? {
    guard root.entries != nil else {
      report("a spec is an object, not \(root.kindName)", root.location, "Write {\"plugin\": \"name\", ...}")
      return nil
    }
    let what = "a spec"
    if let contract = root["contract"], contract.int != Int64(PluginSpec.contract) {
      report(
        "the plugin was written for contract \(contract.shown), and this rxd knows \(PluginSpec.contract)",
        contract.location, "Use a version of rxd that knows it")
      return nil
    }
    let name = text(root, "plugin", of: what)
    if let name, !Self.isName(name, dashes: true) {
      report(
        "'\(Printable.cut(name))' cannot be the name of a plugin", root["plugin"]?.location ?? root.location,
        "Names have letters, digits, '-' and '_'")
    }
    let version = text(root, "version", of: what)
    let summary = sentence(root, of: what)
    guard let list = root["components"] else {
      report("a spec needs 'components'", root.location, "components: a list with at least one component")
      return nil
    }
    guard let items = list.items, !items.isEmpty else {
      report("'components' is a list with at least one component", list.location, nil)
      return nil
    }
    var components = items.compactMap { component($0) }
    for (index, component) in components.enumerated() {
      if components[..<index].contains(where: { $0.kind == component.kind && $0.name == component.name }) {
        report("the \(component.kind.rawValue) '\(component.name)' is defined twice", items[index].location, nil)
      }
    }
    let uses = uses(root)
    guard let name, let version, let summary, components.count == items.count else { return nil }
    for index in components.indices {
      components[index].plugin = "\(name) \(version)"
      guard components[index].kind == .function, !Self.isName(name, dashes: false) else { continue }
      report(
        "expressions call '\(components[index].name)' by the name of its plugin, and '\(Printable.cut(name))' cannot be a name in them",
        root["plugin"]?.location ?? root.location,
        "A plugin with functions has a name of letters and digits that begins with a small letter")
    }
    return PluginSpec(
      name: name, version: version, summary: summary, components: components, uses: uses, document: source.bytes)
  }

  /// The maximum number of files that a plugin can name.
  private static let mostFiles = 256

  private mutating func uses(_ root: YAMLNode) -> [String] {
    guard let list = root["uses"] else { return [] }
    guard let items = list.items, items.count <= Self.mostFiles else {
      report(
        "'uses' is a list of at most \(Self.mostFiles) paths", list.location,
        "Name the files that belong to the plugin, besides its own")
      return []
    }
    return items.compactMap { item in
      if let path = item.string, !path.isEmpty, !path.utf8.contains(0) { return path }
      report("an element of 'uses' must be a path, not \(item.kindName)", item.location, nil)
      return nil
    }
  }

  private mutating func component(_ node: YAMLNode) -> PluginComponentSpec? {
    guard node.entries != nil else {
      report("a component is an object, not \(node.kindName)", node.location, nil)
      return nil
    }
    let what = "a component"
    let kinds = [
      "source": ComponentKind.source, "operator": .operator, "sink": .sink, "function": .function, "decoder": .decoder,
      "encoder": .encoder,
    ]
    let kind = choice(node, "kind", of: what, kinds, required: true)
    guard let name = text(node, "name", of: what), let kind, let summary = sentence(node, of: what) else { return nil }
    guard Self.isName(name, dashes: false) else {
      report(
        "'\(Printable.cut(name))' cannot be the name of a component", node["name"]?.location ?? node.location,
        "Names have letters and digits and begin with a lower-case letter, as in 'parseInvoice'")
      return nil
    }
    var spec = PluginComponentSpec(kind: kind, name: name, summary: summary)
    spec.details = text(node, "details", of: what, required: false) ?? ""
    spec.memory = text(node, "memory", of: what, required: false) ?? ""
    spec.form = choice(node, "form", of: what, ["row": .row, "stream": .stream]) ?? .stream
    spec.recovery = choice(node, "recovery", of: what, Self.recoveries) ?? .never
    spec.confirmation = choice(node, "confirmation", of: what, Self.confirmations) ?? .nothing
    spec.credit = number(node, "credit", of: what, 1...65536).map(Int.init) ?? 1024
    spec.setsTimers = flag(node, "timers", of: what)
    spec.hasClock = flag(node, "clock", of: what)
    spec.finishes = flag(node, "finishes", of: what)
    spec.loads = flag(node, "loads", of: what)
    spec.names = flag(node, "names", of: what)
    for (member, isGiven) in [("loads", spec.loads), ("names", spec.names)] where isGiven && kind != .source {
      report("'\(member)' is for sources", node[member]?.location ?? node.location, "Leave it out")
    }
    if let state = node["state"] {
      spec.stateVersion = number(state, "version", of: "'state'", 1...1_000_000).map(Int.init) ?? 1
    }
    if let type = node["input"] { spec.input = JSONSchema.type(of: type, into: &diagnostics) ?? .dyn }
    if let type = node["output"] { spec.output = JSONSchema.type(of: type, into: &diagnostics) ?? .dyn }
    spec.knownAs = texts(node, "knownAs")
    spec.seeAlso = texts(node, "seeAlso")
    for example in node["examples"]?.items ?? [] {
      guard let title = text(example, "title", of: "an example"), let yaml = text(example, "yaml", of: "an example")
      else { continue }
      var read = PluginExample(title: title, yaml: yaml)
      if kind.isCalled { call(example, spec, &read) } else { read.marbles = marbles(example, spec) }
      spec.examples.append(read)
    }
    spec.edges = edges(node)
    spec.useCases = useCases(node)
    spec.parameters = parameters(node, name)
    spec.cases = cases(node, spec)
    if kind.isCalled {
      called(node, &spec)
      return spec
    }
    if spec.form == .row, spec.stateVersion > 0 || spec.setsTimers {
      report("a component with 'form: row' has neither state nor timers", node.location, "Leave 'form' out")
    }
    if spec.finishes, spec.form != .row || spec.kind != .operator {
      report(
        "'finishes' is for an operator with 'form: row'", node["finishes"]?.location ?? node.location,
        "Leave it out: any other operator may complete its output")
    }
    return spec
  }

  // MARK: Functions and formats

  /// Reads and checks the members that only functions, decoders and encoders have.
  private mutating func called(_ node: YAMLNode, _ spec: inout PluginComponentSpec) {
    spec.form = .row
    let what = "the \(spec.kind.rawValue) '\(spec.name)'"
    let foreign = ["state", "timers", "clock", "finishes", "recovery", "confirmation", "when", "credit", "edges"]
    for key in foreign where node[key] != nil {
      report(
        "\(what) cannot have '\(key)'", node[key]?.location ?? node.location, "It is a pure function: leave it out")
    }
    if spec.kind == .function {
      var isOptional = false
      for (index, parameter) in spec.parameters.enumerated() {
        let location = node["parameters"]?.items?.dropFirst(index).first?.location ?? node.location
        guard case .expression = parameter.type else {
          report(
            "the parameter '\(parameter.name)' of \(what) must have the type 'expression'", location,
            "The parameters of a function are the arguments of a call; 'result' is the type of an argument")
          continue
        }
        if parameter.isRequired, isOptional {
          report(
            "\(what) requires '\(parameter.name)', but not the parameter before it", location,
            "Only the last arguments of a call can be left out")
        }
        isOptional = isOptional || !parameter.isRequired
      }
      if spec.parameters.count > UserFunction.parameterLimit {
        report("\(what) has more than \(UserFunction.parameterLimit) parameters", node.location, nil)
      }
      return
    }
    for parameter in spec.parameters where parameter.type.isPerEvent {
      report(
        "\(what) cannot evaluate '\(parameter.name)' for each event", node["parameters"]?.location ?? node.location,
        "Use 'text' or another type whose value the file gives")
    }
    spec.framing = choice(node, "framing", of: what, ["lines": .lines, "whole": .whole]) ?? .whole
    switch spec.kind {
    case .decoder: spec.makesList = flag(node, "list", of: what)
    default: spec.mediaType = text(node, "mediaType", of: what, required: false) ?? spec.mediaType
    }
  }

  /// Reads the input and the result of an example of a function, a decoder or an encoder.
  private mutating func call(_ example: YAMLNode, _ spec: PluginComponentSpec, _ read: inout PluginExample) {
    let what = "an example of '\(spec.name)'"
    read.result = text(example, "out", of: what)
    guard spec.kind != .function, let input = text(example, "in", of: what) else { return }
    read.input = Array(input.utf8)
    guard spec.kind == .decoder, input.hasPrefix("base64:") else { return }
    guard let bytes = (Array(input.utf8.dropFirst(7)).withUnsafeBytes { Base64.decode($0) }) else {
      report("'in' of \(what) is not base64", example["in"]?.location ?? example.location, nil)
      return
    }
    read.input = bytes
  }

  // MARK: The reference

  /// The marbles of an operator's example; nil if there are none or they have an error, which is reported.
  private mutating func marbles(_ example: YAMLNode, _ spec: PluginComponentSpec) -> PluginExample.Marbles? {
    guard let given = example["in"] ?? example["out"] ?? example["values"] else { return nil }
    guard spec.kind == .operator else {
      report("'in' and 'out' are for operators, and '\(spec.name)' is a \(spec.kind.rawValue)", given.location, nil)
      return nil
    }
    let what = "an example with marbles"
    guard let input = text(example, "in", of: what), let output = text(example, "out", of: what) else { return nil }
    var values: [(String, String)] = []
    for entry in example["values"]?.entries ?? [] {
      guard let yaml = entry.value.string else {
        report("a value of an example is a text with YAML, not \(entry.value.kindName)", entry.value.location, nil)
        continue
      }
      values.append((entry.name, yaml))
    }
    return PluginExample.Marbles(input: input, output: output, values: values)
  }

  private mutating func edges(_ node: YAMLNode) -> EdgeCases {
    var edges = EdgeCases()
    guard let given = node["edges"] else { return edges }
    for entry in given.entries ?? [] {
      guard let text = text(given, entry.name, of: "'edges'") else { continue }
      switch entry.name {
      case "empty": edges.empty = text
      case "error": edges.error = text
      case "completion": edges.completion = text
      case "disposal": edges.disposal = text
      default: break
      }
    }
    return edges
  }

  private mutating func useCases(_ node: YAMLNode) -> [UseCase] {
    (node["useCases"]?.items ?? []).compactMap { item in
      let what = "a use case"
      guard let topic = choice(item, "topic", of: what, Self.topics, required: true),
        let words = text(item, "text", of: what)
      else { return nil }
      return UseCase(topic, words, text(item, "yaml", of: what, required: false) ?? "")
    }
  }

  private static let topics = Dictionary(
    uniqueKeysWithValues: UseCase.Topic.allCases.map { (String(describing: $0), $0) })

  private static let recoveries: [String: SourceRecovery] = [
    "never": .never, "sender": .sender, "request": .request, "position": .position,
  ]
  private static let confirmations: [String: SinkConfirmation] = [
    "nothing": .nothing, "system": .system, "disk": .disk, "receiver": .receiver,
  ]

  /// The guarantees that depend on the values of parameters.
  private mutating func cases(_ component: YAMLNode, _ spec: PluginComponentSpec) -> [PluginComponentSpec.Case] {
    guard let list = component["when"] else { return [] }
    let member = spec.kind == .source ? "recovery" : "confirmation"
    guard spec.kind != .operator else {
      report("'when' is for sources and sinks, and '\(spec.name)' is an operator", list.location, nil)
      return []
    }
    guard let items = list.items else {
      report("'when' is a list", list.location, "when: [{\"parameter\": ..., \"is\": ..., \"\(member)\": ...}]")
      return []
    }
    return items.compactMap { item in
      let what = "a case of 'when'"
      guard item.entries != nil else {
        report("\(what) is an object, not \(item.kindName)", item.location, nil)
        return nil
      }
      guard let name = text(item, "parameter", of: what) else { return nil }
      let location = item["parameter"]?.location ?? item.location
      guard let index = spec.parameters.firstIndex(where: { $0.name == name }) else {
        let near = Suggestion.nearest(to: name, among: spec.parameters.map(\.name))
        report(
          "\(what) names the parameter '\(Printable.cut(name))', which '\(spec.name)' does not have", location,
          near.map { "Did you mean '\($0)'?" })
        return nil
      }
      let type = spec.parameters[index].type
      guard type.isComparable else {
        report(
          "\(what) cannot depend on '\(name)'", location,
          "It can depend on a parameter of the type boolean, integer, text or choice")
        return nil
      }
      guard let wanted = item["is"] else {
        report("\(what) needs 'is'", item.location, "The value of '\(name)' for which it holds")
        return nil
      }
      var context = DecodingContext(at: wanted.location)
      context.component = spec.name
      context.parameter = name
      context.range = type.range
      let value = type.decode(wanted, &context)
      diagnostics.report(contentsOf: context.diagnostics.all)
      var found = value.map { PluginComponentSpec.Case(parameter: index, value: $0) }
      if spec.kind == .source {
        found?.recovery = choice(item, member, of: what, Self.recoveries, required: true)
      } else {
        found?.confirmation = choice(item, member, of: what, Self.confirmations, required: true)
      }
      return found
    }
  }

  private mutating func parameters(_ component: YAMLNode, _ owner: String) -> [PluginParameter] {
    guard let list = component["parameters"] else { return [] }
    guard let items = list.items else {
      report("'parameters' is a list", list.location, nil)
      return []
    }
    var found: [PluginParameter] = []
    for item in items {
      guard let parameter = parameter(item, owner) else { continue }
      if found.contains(where: { $0.name == parameter.name }) {
        report("the parameter '\(parameter.name)' of '\(owner)' is defined twice", item.location, nil)
      } else if parameter.isPrimary, found.contains(where: \.isPrimary) {
        report("'\(owner)' has two primary parameters", item.location, "Only one can be the short form")
      } else if parameter.type.isPerEvent, component["kind"]?.string == "source" {
        report(
          "the parameter '\(parameter.name)' of the source '\(owner)' is evaluated for an event, and a source gets none",
          item["type"]?.location ?? item.location, "Use 'text'")
      } else {
        found.append(parameter)
      }
    }
    return found
  }

  private mutating func parameter(_ node: YAMLNode, _ owner: String) -> PluginParameter? {
    let what = "a parameter of '\(owner)'"
    guard node.entries != nil else {
      report("\(what) is an object, not \(node.kindName)", node.location, nil)
      return nil
    }
    guard let name = text(node, "name", of: what), let help = text(node, "help", of: what),
      let type = type(node, "type", of: "the parameter '\(name)' of '\(owner)'")
    else { return nil }
    guard Self.isName(name, dashes: false) else {
      report(
        "'\(Printable.cut(name))' cannot be the name of a parameter", node["name"]?.location ?? node.location,
        "Names have letters and digits and begin with a lower-case letter")
      return nil
    }
    var parameter = PluginParameter(name: name, type: type, help: help)
    parameter.isRequired = flag(node, "required", of: what)
    parameter.isPrimary = flag(node, "primary", of: what)
    if let value = node["default"] {
      if parameter.isRequired {
        report("the parameter '\(name)' of '\(owner)' is required and has a default", value.location, "Remove one")
      }
      var context = DecodingContext(at: value.location)
      context.component = owner
      context.parameter = name
      context.range = type.range
      parameter.fallback = type.decode(value, &context)
      diagnostics.report(contentsOf: context.diagnostics.all)
    }
    return parameter
  }

  private mutating func type(_ node: YAMLNode, _ key: String, of what: String) -> PluginParameterType? {
    guard let name = text(node, key, of: what) else { return nil }
    switch name {
    case "boolean": return .boolean
    case "integer": return .integer(range(node, of: what) { $0.int })
    case "number": return .number
    case "text": return .text
    case "secret": return .secret
    case "duration":
      return .duration(
        range(node, of: what) { value in
          guard let scalar = value.scalar, case .success(let span) = Units.duration(scalar.text) else { return nil }
          return span.nanoseconds
        })
    case "size": return .size
    case "json": return .json
    case "template": return .template
    case "expression":
      guard let result = node["result"] else { return .expression(result: nil) }
      return .expression(result: EventSchema.read(result, .none, into: &diagnostics))
    case "choice":
      var choices: [ParameterShape.Choice] = []
      for item in node["choices"]?.items ?? [] {
        guard let word = text(item, "name", of: "a choice"), let help = text(item, "help", of: "a choice") else {
          continue
        }
        choices.append(.init(word, help))
      }
      if choices.isEmpty {
        report("\(what) needs 'choices'", node.location, "choices: [{\"name\": ..., \"help\": ...}]")
      }
      return .choice(choices)
    case "list", "table":
      let nested = ["list", "table", "expression", "template", "choice"]
      if let of = node["of"], let word = of.string, nested.contains(word) {
        report("'of' of \(what) cannot be '\(word)'", of.location, "Use 'json' for nested values")
        return nil
      }
      guard let element = type(node, "of", of: what) else { return nil }
      return name == "list" ? .list(element) : .table(element)
    default:
      let known = [
        "boolean", "integer", "number", "text", "secret", "duration", "size", "json", "choice", "list", "table",
        "expression", "template",
      ]
      let near = Suggestion.nearest(to: name, among: known)
      report(
        "\(what) has the type '\(Printable.cut(name))', which does not exist", node[key]?.location ?? node.location,
        (near.map { "Did you mean '\($0)'? " } ?? "") + "It can be: " + known.joined(separator: ", "))
      return nil
    }
  }

  private mutating func range(
    _ node: YAMLNode, of what: String, _ read: (YAMLNode) -> Int64?
  ) -> ClosedRange<Int64>? {
    var bounds: [Int64?] = []
    for key in ["minimum", "maximum"] {
      guard let value = node[key] else {
        bounds.append(nil)
        continue
      }
      bounds.append(read(value))
      if bounds[bounds.count - 1] == nil { report("'\(key)' of \(what) has the wrong form", value.location, nil) }
    }
    guard bounds[0] != nil || bounds[1] != nil else { return nil }
    let (low, high) = (bounds[0] ?? .min, bounds[1] ?? .max)
    guard low <= high else {
      report("'minimum' of \(what) is above its 'maximum'", node.location, nil)
      return nil
    }
    return low...high
  }

  // MARK: Members

  private mutating func text(_ node: YAMLNode, _ key: String, of what: String, required: Bool = true) -> String? {
    guard let value = node[key] else {
      if required { report("\(what) needs '\(key)'", node.location, nil) }
      return nil
    }
    guard let scalar = value.scalar, scalar.kind != .null, !scalar.string.isEmpty else {
      report("'\(key)' of \(what) must be a text, not \(value.kindName)", value.location, nil)
      return nil
    }
    return scalar.string
  }

  private mutating func sentence(_ node: YAMLNode, of what: String) -> String? {
    guard let summary = text(node, "summary", of: what) else { return nil }
    guard summary.utf8.last == UInt8(ascii: "."), !summary.utf8.contains(0x0A) else {
      report(
        "'summary' of \(what) must be one sentence with a full stop", node["summary"]?.location ?? node.location, nil)
      return nil
    }
    return summary
  }

  private mutating func texts(_ node: YAMLNode, _ key: String) -> [String] {
    (node[key]?.items ?? []).compactMap { $0.string }
  }

  private mutating func flag(_ node: YAMLNode, _ key: String, of what: String) -> Bool {
    guard let value = node[key] else { return false }
    if let flag = value.bool { return flag }
    report("'\(key)' of \(what) must be true or false, not \(value.kindName)", value.location, nil)
    return false
  }

  private mutating func number(
    _ node: YAMLNode, _ key: String, of what: String, _ range: ClosedRange<Int64>
  ) -> Int64? {
    guard let value = node[key] else { return nil }
    if let number = value.int, range.contains(number) { return number }
    report("'\(key)' of \(what) must be between \(range.lowerBound) and \(range.upperBound)", value.location, nil)
    return nil
  }

  private mutating func choice<T>(
    _ node: YAMLNode, _ key: String, of what: String, _ known: [String: T], required: Bool = false
  ) -> T? {
    guard let value = node[key] else {
      if required { report("\(what) needs '\(key)'", node.location, nil) }
      return nil
    }
    if let word = value.string, let found = known[word] { return found }
    report(
      "'\(key)' of \(what) cannot be '\(value.shown)'", value.location,
      "It can be: " + known.keys.sorted().joined(separator: ", "))
    return nil
  }

  private static func isName(_ text: String, dashes: Bool) -> Bool {
    let bytes = Array(text.utf8)
    guard (1...64).contains(bytes.count) else { return false }
    func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7A).contains(byte | 0x20) }
    func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }
    let rest = bytes.allSatisfy { isLetter($0) || isDigit($0) || dashes && ($0 == 0x2D || $0 == 0x5F) }
    return rest && (dashes ? isLetter(bytes[0]) || isDigit(bytes[0]) : (0x61...0x7A).contains(bytes[0]))
  }

  private mutating func report(_ message: String, _ location: SourceLocation, _ help: String?) {
    diagnostics.report(Diagnostic(.pluginSpec, message, at: location, help: help))
  }
}
