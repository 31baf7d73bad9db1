/// Computes hashes of the meaning of a file and its parts.
///
/// Two spellings of one meaning have equal hashes: `60s`, `1m` and `${AFTER:-60s}`; `take: 5` and `take: { count: 5 }`;
/// a default that is written or left out; `event.k` and `(event['k'])`; parameters in another order. Hashes differ if
/// the events differ, for example if `map` makes their members in another order. Secrets are left out, because stored
/// bytes must reveal nothing about them; the text around them counts.
struct Meaning {
  let catalogue: Catalogue
  /// The hashes of the file's functions.
  var functions: [String: UInt64] = [:]

  // MARK: Files

  /// A hash of everything in an interpolated pipeline file that affects how the pipeline runs. Comments, the
  /// description and the tests do not count.
  func of(file root: YAMLNode) -> UInt64 {
    var print = Fingerprint()
    var meaning = self
    meaning.functions = Self.functions(root["functions"])
    for section in (root.entries ?? []).sorted(by: { $0.name < $1.name })
    where !["description", "tests", "functions"].contains(section.name) {
      print.add(section.name.utf8)
      guard let members = section.value.entries else {
        print.add(meaning.of(value: section.value))
        continue
      }
      // The order of signals and sinks counts: it decides which one receives an event first.
      for member in members {
        print.add(UInt8(0))
        print.add(member.name.utf8)
        print.add(meaning.of(signal: member.value))
      }
    }
    return print.value
  }

  /// The hashes of functions by name. Each includes the parameters, the result, the body, and the functions that the
  /// body calls, as the hash of an expression includes those of the functions that it calls.
  static func functions(_ section: YAMLNode?) -> [String: UInt64] {
    var parts: [String: (syntax: ExpressionSyntax, own: UInt64)] = [:]
    for entry in section?.entries ?? [] {
      var diagnostics = Diagnostics()
      guard let value = entry.value["value"]?.scalar,
        let syntax = ExpressionSyntax.parse(value.text, into: &diagnostics)
      else { continue }
      var print = Fingerprint()
      for parameter in entry.value["parameters"]?.entries ?? [] {
        print.add(UInt8(0))
        print.add(parameter.name.utf8)
        print.add("\(parameter.value["type"] ?? parameter.value)".utf8)
      }
      print.add(UInt8(1))
      print.add((entry.value["returns"].map { "\($0)" } ?? "").utf8)
      parts[entry.name] = (syntax, print.value)
    }
    var known: [String: UInt64] = [:]
    var running: Set<String> = []
    func hash(_ name: String) {
      guard known[name] == nil, let part = parts[name], running.insert(name).inserted else { return }
      for node in part.syntax.tree.nodes {
        if let called = part.syntax.tree.called(node) { hash(called.name) }
      }
      var print = Fingerprint()
      print.add(part.own)
      print.add(part.syntax.meaning(known))
      known[name] = print.value
    }
    for name in parts.keys.sorted() { hash(name) }
    return known
  }

  /// The hash of a source, signal, command or sink: a mapping of a component, `from`, `chain` and options.
  private func of(signal node: YAMLNode) -> UInt64 {
    if let items = node.items { return list(items) { of(signal: $0) } }
    guard let entries = node.entries else { return of(value: node) }
    return unordered(entries) { entry in
      switch entry.name {
      case "chain": list(entry.value.items ?? [entry.value]) { of(step: $0) }
      case "from", "run": of(signal: entry.value)
      default: of([.source, .combination, .sink], entry.name, entry.value) ?? of(value: entry.value)
      }
    }
  }

  private func of(step node: YAMLNode) -> UInt64 {
    guard let entries = node.entries else {
      guard let keyword = node.string, let hash = of([.operator], keyword, nil) else { return of(value: node) }
      var print = Fingerprint()
      print.add(keyword.utf8)
      print.add(hash)
      return print.value
    }
    return unordered(entries) { entry in of([.operator], entry.name, entry.value) ?? of(value: entry.value) }
  }

  // MARK: Components

  /// The hash of the parameters of a component of one of these kinds; nil if no component has that name.
  func of(_ kinds: [ComponentKind], _ keyword: String, _ arguments: YAMLNode?) -> UInt64? {
    let known = kinds.lazy.compactMap { catalogue.component($0, keyword)?.parameters }
    let keys = arguments?.entries?.map(\.name) ?? []
    // A source and a sink may have the same name.
    guard let parameters = known.first(where: { Self.names($0, contain: keys) }) ?? known.first else { return nil }
    return of(arguments, parameters)
  }

  private static func names(_ parameters: [ParameterInfo], contain keys: [String]) -> Bool {
    keys.allSatisfy { key in parameters.contains { $0.name == key || $0.formerName == key } }
  }

  private func of(_ arguments: YAMLNode?, _ parameters: [ParameterInfo]) -> UInt64 {
    guard let arguments else { return 0 }
    let primary = parameters.first(where: \.isPrimary)
    guard let entries = arguments.entries, primary?.isWhole != true || parameters.count > 1,
      primary == nil || Self.names(parameters, contain: entries.map(\.name))
    else { return member(primary, "", arguments) }
    var sum: UInt64 = 0
    for entry in entries {
      sum &+= member(parameters.first { $0.name == entry.name || $0.formerName == entry.name }, entry.name, entry.value)
    }
    return sum
  }

  /// The hash of one parameter; 0 if its value is the default.
  private func member(_ parameter: ParameterInfo?, _ name: String, _ node: YAMLNode) -> UInt64 {
    let value = parameter.map { of(node, $0.shape) } ?? of(value: node)
    if let parameter, let usual = parameter.defaultText,
      value == of(YAMLNode(.scalar(YAMLScalar(text: LocatedText(usual))), at: node.location), parameter.shape)
    {
      return 0
    }
    var print = Fingerprint()
    print.add((parameter?.name ?? name).utf8)
    print.add(value)
    return print.value
  }

  private func of(_ node: YAMLNode, _ shape: ParameterShape) -> UInt64 {
    switch shape {
    case .duration:
      if case .success(let span) = node.decodeDuration("") { return number(2, UInt64(bitPattern: span.nanoseconds)) }
    case .size:
      if case .success(let bytes) = node.decodeSize("") { return number(3, UInt64(bitPattern: Int64(bytes))) }
    case .int, .number, .bool: return of(value: node)
    case .text, .secret, .choice, .signalName:
      if let scalar = node.scalar { return text(scalar) }
    case .template:
      if let scalar = node.scalar { return template(scalar) }
    case .expression:
      if let scalar = node.scalar { return expression(scalar) }
    case .mapping: return of(mapping: node)
    case .literal: return of(value: node, isSent: true)
    case .list(let element): return list(node.items ?? [node]) { of($0, element) }
    case .table(let element):
      return list(node.entries ?? []) { entry in
        var print = Fingerprint()
        print.add(entry.name.utf8)
        print.add(of(entry.value, element))
        return print.value
      }
    case .record(let fields): return of(node, fields)
    case .signal: return of(signal: node)
    case .chain: return list(node.items ?? [node]) { of(step: $0) }
    case .oneOf(let shapes): return of(node, oneOf: shapes)
    }
    return of(value: node)
  }

  private func of(_ node: YAMLNode, oneOf shapes: [ParameterShape]) -> UInt64 {
    for shape in shapes {
      switch shape {
      case .record where node.entries != nil, .mapping where node.entries != nil, .table where node.entries != nil,
        .list where node.items != nil, .chain where node.items != nil, .signal where node.entries != nil:
        return of(node, shape)
      case .duration:
        if node.scalar != nil, case .success = node.decodeDuration("") { return of(node, shape) }
      case .size:
        if node.scalar != nil, case .success = node.decodeSize("") { return of(node, shape) }
      case .expression where node.scalar != nil, .template where node.scalar != nil, .text where node.scalar != nil:
        return of(node, shape)
      default: break
      }
    }
    return of(value: node)
  }

  // MARK: Values

  /// The hash of a value as written: numbers by value, members in order.
  ///
  /// - Parameter isSent: Whether the value becomes an event, which keeps the spelling of its numbers.
  private func of(value node: YAMLNode, isSent: Bool = false) -> UInt64 {
    switch node.content {
    case .scalar(let scalar):
      switch scalar.kind {
      case .int, .float:
        // In an event, the spelling of fractions and zeros is visible.
        if !scalar.containsSecret, let value = scalar.int.map({ Double($0) }) ?? scalar.double,
          value.magnitude < 0x1p53,
          !isSent || scalar.kind == .int && value != 0
        {
          return number(4, value.bitPattern)
        }
        return text(scalar, tag: 10)
      case .null: return 5
      case .bool: return scalar.containsSecret ? text(scalar, tag: 6) : number(6, scalar.bool == true ? 1 : 0)
      case .string: return text(scalar)
      }
    case .sequence(let items): return list(items) { of(value: $0, isSent: isSent) }
    case .mapping(let entries):
      return list(entries) { entry in
        var print = Fingerprint()
        print.add(entry.name.utf8)
        print.add(of(value: entry.value, isSent: isSent))
        return print.value
      }
    }
  }

  /// The hash of a mapping of expressions.
  private func of(mapping node: YAMLNode) -> UInt64 {
    switch node.content {
    case .scalar(let scalar): return expression(scalar)
    case .sequence(let items): return list(items) { of(mapping: $0) }
    case .mapping(let entries):
      return list(entries) { entry in
        var print = Fingerprint()
        print.add(entry.name.utf8)
        print.add(of(mapping: entry.value))
        return print.value
      }
    }
  }

  private func number(_ tag: UInt8, _ bits: UInt64) -> UInt64 {
    var print = Fingerprint()
    print.add(tag)
    print.add(bits)
    return print.value
  }

  private func text(_ scalar: YAMLScalar, tag: UInt8 = 7) -> UInt64 {
    var print = Fingerprint()
    print.add(tag)
    print.add(scalar.text.shown(0, scalar.text.text.count))
    return print.value
  }

  /// The hash of an expression's meaning; the hash of the text if it is not an expression.
  private func expression(_ scalar: YAMLScalar) -> UInt64 {
    var diagnostics = Diagnostics()
    guard !scalar.containsSecret, let syntax = ExpressionSyntax.parse(scalar.text, into: &diagnostics) else {
      return text(scalar, tag: 8)
    }
    return number(8, syntax.meaning(functions))
  }

  private func template(_ scalar: YAMLScalar) -> UInt64 {
    var diagnostics = Diagnostics()
    guard scalar.text.text.hasOpeningBraces,
      let template = ExpressionTemplate.parse(scalar.text, into: &diagnostics)
    else { return text(scalar) }
    return number(7, template.meaning(functions))
  }

  private func list<Element>(_ elements: [Element], _ hash: (Element) -> UInt64) -> UInt64 {
    var print = Fingerprint()
    print.add(UInt8(9))
    for element in elements { print.add(hash(element)) }
    return print.value
  }

  private func unordered(_ entries: [YAMLEntry], _ hash: (YAMLEntry) -> UInt64) -> UInt64 {
    var sum: UInt64 = 0
    for entry in entries {
      var print = Fingerprint()
      print.add(entry.name.utf8)
      print.add(hash(entry))
      sum &+= print.value
    }
    return sum
  }
}
