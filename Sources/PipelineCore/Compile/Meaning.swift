/// What a file's parameters mean, as a hash.
///
/// Equal for two spellings of one thing: `60s` and `1m`, `take: 5` and `take: { count: 5 }`, a default that is given, spaces in expressions, the
/// order of parameters. Different where events would be: the order of the members that `map` makes, for one. Secrets are left out, because
/// stored bytes must reveal nothing about them.
struct Meaning {
  let catalogue: Catalogue

  // MARK: Files

  /// Of everything in a pipeline file that affects how the pipeline runs: not of comments, the description and the tests. Not for a
  /// file with interpolated secrets.
  func of(file root: YAMLNode) -> UInt64 {
    var print = Fingerprint()
    for section in (root.entries ?? []).sorted(by: { $0.name < $1.name })
    where !["description", "tests"].contains(section.name) {
      print.add(section.name.utf8)
      guard let members = section.value.entries else {
        print.add(of(value: section.value))
        continue
      }
      // The order of signals and sinks decides which receives an event first.
      for member in members {
        print.add(UInt8(0))
        print.add(member.name.utf8)
        print.add(of(signal: member.value))
      }
    }
    return print.value
  }

  /// Of a source, signal, command or sink: a mapping of a component, `from`, `chain` and options.
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
      return node.string.flatMap { of([.operator], $0, nil) } ?? of(value: node)
    }
    return unordered(entries) { entry in of([.operator], entry.name, entry.value) ?? of(value: entry.value) }
  }

  // MARK: Components

  /// Of the parameters of a component of one of these kinds; nil: there is none of that name.
  func of(_ kinds: [ComponentKind], _ keyword: String, _ arguments: YAMLNode?) -> UInt64? {
    let known = kinds.lazy.compactMap { catalogue.component($0, keyword)?.parameters }
    let keys = arguments?.entries?.map(\.name) ?? []
    // One name may stand for a source and for a sink.
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

  /// Of one parameter; 0 if it has its default.
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
    case .text, .secret, .template, .choice, .signalName:
      if let scalar = node.scalar { return text(scalar) }
    case .expression:
      if let scalar = node.scalar { return expression(scalar) }
    case .mapping: return of(mapping: node)
    case .literal: return of(value: node)
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
      case .expression where node.scalar != nil: return of(node, shape)
      default: break
      }
    }
    return of(value: node)
  }

  // MARK: Values

  /// Of a value as it stands: numbers by their value, members in their order.
  private func of(value node: YAMLNode) -> UInt64 {
    switch node.content {
    case .scalar(let scalar):
      switch scalar.kind {
      case .int, .float:
        if !scalar.containsSecret, let value = Double(scalar.text.string), value.magnitude < 0x1p53 {
          return number(4, value.bitPattern)
        }
        return text(scalar)
      case .null: return 5
      case .bool: return text(scalar, tag: 6)
      case .string: return text(scalar)
      }
    case .sequence(let items): return list(items) { of(value: $0) }
    case .mapping(let entries):
      return list(entries) { entry in
        var print = Fingerprint()
        print.add(entry.name.utf8)
        print.add(of(value: entry.value))
        return print.value
      }
    }
  }

  /// Of a mapping of expressions.
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
    if !scalar.containsSecret { print.add(scalar.text.text) }
    return print.value
  }

  private func expression(_ scalar: YAMLScalar) -> UInt64 {
    var print = Fingerprint()
    print.add(UInt8(8))
    if !scalar.containsSecret { print.add(Self.withoutSpaces(scalar.text.text)) }
    return print.value
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

  /// An expression without the spaces that do not separate words; texts stay as they are.
  static func withoutSpaces(_ text: [UInt8]) -> [UInt8] {
    func isWord(_ byte: UInt8) -> Bool {
      (byte | 0x20) &- 97 < 26 || byte &- 48 < 10 || byte == UInt8(ascii: "_") || byte >= 0x80
    }
    var result: [UInt8] = []
    var at = 0
    var hasSpace = false
    while at < text.count {
      let byte = text[at]
      if byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D {
        hasSpace = true
        at += 1
        continue
      }
      if hasSpace, let last = result.last, isWord(last),
        isWord(byte) || byte == UInt8(ascii: "'") || byte == UInt8(ascii: "\"")
      {
        result.append(0x20)
      }
      hasSpace = false
      // A comment or a text: taken as it is, to its end.
      if byte == UInt8(ascii: "'") || byte == UInt8(ascii: "\"") {
        let end = endOfText(text, at)
        result += text[at..<end]
        at = end
      } else if byte == UInt8(ascii: "/"), at + 1 < text.count, text[at + 1] == byte {
        let end = text[at...].firstIndex(of: 0x0A) ?? text.count
        at = end
        hasSpace = true
      } else {
        result.append(byte)
        at += 1
      }
    }
    return result
  }

  /// The index behind the text that begins at `start` with a quote, of which three may begin a long one.
  private static func endOfText(_ text: [UInt8], _ start: Int) -> Int {
    let quote = text[start]
    let isLong = start + 2 < text.count && text[start + 1] == quote && text[start + 2] == quote
    let isRaw = start > 0 && text[start - 1] | 0x20 == UInt8(ascii: "r")
    var at = start + (isLong ? 3 : 1)
    while at < text.count {
      if text[at] == UInt8(ascii: "\\"), !isRaw {
        at += 2
      } else if text[at] == quote, !isLong {
        return at + 1
      } else if text[at] == quote, at + 2 < text.count, text[at + 1] == quote, text[at + 2] == quote {
        return at + 3
      } else {
        at += 1
      }
    }
    return text.count
  }
}
