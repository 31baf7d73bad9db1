// Copies nodes and inserts the values of `$(NAME)`.

extension Reuse {
  /// A copy of `node`; nil if it is only an optional parameter without a value.
  ///
  /// - Parameter scope: Nil outside of templates and repetitions, where `$(` is plain text.
  mutating func build(_ node: YAMLNode, _ scope: ReuseScope?) -> YAMLNode? {
    if scope != nil {
      madeNodes += 1
      if madeNodes >= YAMLLimits.standard.expandedNodes {
        if madeNodes == YAMLLimits.standard.expandedNodes {
          report(
            .templateTooLarge, "templates and lists make more than \(YAMLLimits.standard.expandedNodes) values",
            node.location)
        }
        return nil
      }
    }
    var made = node
    if let scope { made.location = scope.location(node.location) }
    switch node.content {
    case .scalar(let scalar):
      guard let scope else { return node }
      return insert(scalar, made, scope)
    case .sequence(let items):
      made.content = .sequence(
        items.flatMap { item -> [YAMLNode] in
          Self.isRepetition(item) ? repeated(item, scope) : build(item, scope).map { [$0] } ?? []
        })
    case .mapping(let entries):
      var members: [YAMLEntry] = []
      var locations: [String: SourceLocation] = [:]
      for entry in entries {
        guard let value = build(entry.value, scope) else { continue }
        let key = scope.flatMap { self.key(entry.key, $0) } ?? entry.key
        if scope != nil, let first = locations.updateValue(key.location, forKey: key.string) {
          report(
            .duplicateKey, "the key '\(key.shown)' is created twice", key.location,
            notes: [.init("first here", at: first)],
            help: "Make it differ by $(NAME)")
        }
        members.append(YAMLEntry(key: key, value: value))
      }
      made.content = .mapping(members)
    }
    return made
  }

  /// Whether the node is `{ each: NAME, in: LIST, do: ITEM }`.
  private static func isRepetition(_ node: YAMLNode) -> Bool {
    guard let entries = node.entries, entries.count == 3 else { return false }
    return ["each", "in", "do"].allSatisfy { key in entries.contains { $0.name == key } }
  }

  private mutating func repeated(_ node: YAMLNode, _ scope: ReuseScope?) -> [YAMLNode] {
    guard let (name, items) = list(of: node, scope), let item = node["do"] else { return [] }
    return items.compactMap { build(item, self.scope(of: $0, named: name, within: scope)) }
  }

  // MARK: Scalars

  private mutating func key(_ key: YAMLScalar, _ scope: ReuseScope) -> YAMLScalar? {
    guard Self.reference(in: key.text, from: 0) != nil else { return scope.scalar(key) }
    let node = YAMLNode(.scalar(key), at: key.location)
    guard let made = insert(key, node, scope, isKey: true)?.scalar else { return nil }
    if made.containsSecret || made.isPlaceholder || made.text.text.isEmpty
      || made.text.text.count > YAMLLimits.standard.keyBytes
    {
      report(
        .insertion, "a key can be made of names and numbers only", key.location,
        help: "The structure of a file never depends on the environment")
    }
    return made
  }

  private struct Reference {
    /// Includes `$(` and `)`.
    var range: Range<Int>
    var path: [String]
  }

  /// The first `$(...)` that the file itself contains: neither `$$(` nor a part of an environment value counts.
  private static func reference(in text: LocatedText, from start: Int) -> Reference? {
    let bytes = text.text
    var at = start
    while at + 1 < bytes.count {
      guard bytes[at] == UInt8(ascii: "$"), bytes[at + 1] == UInt8(ascii: "("),
        text.offsets[at + 1] == text.offsets[at] + 1
      else {
        at += 1
        continue
      }
      let end = bytes[at...].firstIndex(of: UInt8(ascii: ")")) ?? bytes.count
      let inner = String(decoding: bytes[at + 2..<end], as: UTF8.self)
      return Reference(
        range: at..<min(end + 1, bytes.count),
        path: inner.split(separator: ".", omittingEmptySubsequences: false).map(String.init))
    }
    return nil
  }

  private mutating func insert(_ scalar: YAMLScalar, _ node: YAMLNode, _ scope: ReuseScope, isKey: Bool = false)
    -> YAMLNode?
  {
    let source = scope.scalar(scalar)
    var node = node
    node.content = .scalar(source)
    guard var next = Self.reference(in: scalar.text, from: 0) else { return node }
    let input = scalar.text
    if next.range == 0..<input.text.count, !isKey {
      guard let binding = value(next, source, scope) else { return node }
      return whole(binding, source)
    }
    var text: [UInt8] = []
    var offsets: [Int32] = []
    var insertions: [Range<Int>] = []
    var secrets: [Range<Int>] = []
    var at = 0
    func shifted(_ ranges: [Range<Int>], _ part: Range<Int>, to start: Int) -> [Range<Int>] {
      ranges.compactMap { range in
        let both = range.clamped(to: part)
        return both.isEmpty
          ? nil : both.lowerBound - part.lowerBound + start..<both.upperBound - part.lowerBound + start
      }
    }
    func copy(to end: Int) {
      insertions += shifted(input.insertions, at..<end, to: text.count)
      secrets += shifted(input.secrets, at..<end, to: text.count)
      text += input.text[at..<end]
      offsets += input.offsets[at..<end]
      at = end
    }
    var result = source
    while true {
      copy(to: next.range.lowerBound)
      guard let binding = value(next, source, scope), let value = part(binding, next, source, text) else { return node }
      let start = text.count
      let isExpression = binding.type == .expression
      if isExpression { text.append(UInt8(ascii: "(")) }
      secrets += value.text.secrets.map { $0.lowerBound + text.count..<$0.upperBound + text.count }
      text += value.text.text
      if isExpression { text.append(UInt8(ascii: ")")) }
      offsets += repeatElement(input.offsets[next.range.lowerBound], count: text.count - start)
      if !isExpression, binding.type != .template, text.count > start { insertions.append(start..<text.count) }
      result.containsSecret = result.containsSecret || value.containsSecret
      result.isPlaceholder = result.isPlaceholder || value.isPlaceholder
      at = next.range.upperBound
      guard let further = Self.reference(in: input, from: at) else { break }
      next = further
    }
    copy(to: input.text.count)
    if text.count > YAMLLimits.standard.blockScalarBytes {
      report(.insertion, "the value becomes longer than \(YAMLLimits.standard.blockScalarBytes) bytes", source.location)
    }
    result.text = LocatedText(text: text, source: source.text.source, offsets: offsets + input.offsets.suffix(1))
    result.text.quoting = input.quoting == .plain ? .none : input.quoting
    result.text.insertions = insertions
    result.text.secrets = secrets
    if scalar.style == .plain, !scalar.isTagged {
      result.kind = result.isPlaceholder ? .string : YAMLCoreSchema.kind(of: text)
    }
    node.content = .scalar(result)
    return node
  }

  /// The value of a reference that makes up the whole scalar; nil if the parameter has no value.
  private mutating func whole(_ binding: ReuseScope.Binding, _ scalar: YAMLScalar) -> YAMLNode? {
    guard var node = binding.node?.inserted(.init("inserted here", at: scalar.location)) else { return nil }
    // A parameter of type text stays text, even where an expression or a template is expected.
    guard binding.type == .text, var value = node.scalar else { return node }
    if value.text.text.hasOpeningBraces {
      reportBraces(scalar.location, .init("this is its value", at: node.location))
    }
    if !value.text.text.isEmpty { value.text.insertions = [0..<value.text.text.count] }
    node.content = .scalar(value)
    return node
  }

  private mutating func reportBraces(_ location: SourceLocation, _ given: Diagnostic.Note) {
    report(
      .insertion, "a value with {{ would become an expression here", location, notes: [given],
      help: "Give the parameter the type template")
  }

  /// The binding of a reference; nil after an error.
  private mutating func value(_ reference: Reference, _ scalar: YAMLScalar, _ scope: ReuseScope) -> ReuseScope.Binding?
  {
    let location = scalar.text.location(reference.range.lowerBound, reference.range.upperBound)
    let name = reference.path[0]
    guard scalar.text.text[reference.range.upperBound - 1] == UInt8(ascii: ")"), Name.isValid(Array(name.utf8)),
      var binding = scope.bindings[name]
    else {
      let known = scope.bindings.keys.sorted()
      let correction = Suggestion.correction(for: name, among: known)
      report(
        .insertion, "there is no parameter '\(Printable.cut(name))'", location,
        help: correction?.help ?? "Write $$( for the characters themselves"
          + (known.isEmpty ? "" : "; the parameters are \(Suggestion.list(known))"))
      return nil
    }
    for part in reference.path.dropFirst() {
      guard let node = binding.node, let member = node[part] else {
        let known = binding.node?.entries?.map(\.name) ?? []
        report(
          .insertion, "'\(Printable.cut(name))' has no member '\(Printable.cut(part))' here", location,
          notes: binding.node.map { [.init("this is its value", at: $0.location)] } ?? [],
          help: Suggestion.correction(for: part, among: known)?.help)
        return nil
      }
      binding = .init(node: member, type: .any)
    }
    return binding
  }

  /// The text to insert for a value into a longer text after `before`; nil after an error.
  private mutating func part(
    _ binding: ReuseScope.Binding, _ reference: Reference, _ scalar: YAMLScalar, _ before: [UInt8]
  ) -> YAMLScalar? {
    let location = scalar.text.location(reference.range.lowerBound, reference.range.upperBound)
    guard let node = binding.node else {
      report(
        .insertion, "a parameter that may be missing cannot be a part of a text", location, help: "Give it a default")
      return nil
    }
    let given = Diagnostic.Note("this is its value", at: node.location)
    guard let value = node.scalar, value.kind != .null else {
      report(.insertion, "\(node.kindName) cannot be a part of a text", location, notes: [given])
      return nil
    }
    if binding.type == .expression, Self.isQuoted(before) {
      report(
        .insertion, "an expression is not allowed within quotes", location, notes: [given],
        help: "Join texts with '+', or take a parameter of the type text")
      return nil
    }
    let bytes = value.text.text
    if binding.type != .expression, binding.type != .template, bytes.hasOpeningBraces {
      reportBraces(location, given)
      return nil
    }
    return value
  }

  /// Whether the end of `text` is within a quoted text of an expression. In a template, expressions begin after `{{`.
  private static func isQuoted(_ text: [UInt8]) -> Bool {
    var quote: UInt8?
    var at = 0
    for index in text.indices.dropFirst() where text[index] == 0x7B && text[index - 1] == 0x7B { at = index + 1 }
    while at < text.count {
      let byte = text[at]
      if let open = quote {
        if byte == UInt8(ascii: "\\") { at += 1 } else if byte == open { quote = nil }
      } else if byte == UInt8(ascii: "'") || byte == UInt8(ascii: "\"") {
        quote = byte
      }
      at += 1
    }
    return quote != nil
  }
}
