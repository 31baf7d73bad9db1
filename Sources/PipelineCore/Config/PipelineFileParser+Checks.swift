// The common checks of the grammar: kinds, keys, names, references.

extension PipelineFileParser {
  /// Drops errors beyond ``maximumErrors``: no one reads them, and each takes time.
  mutating func report(
    _ code: Diagnostic.Code, _ message: String, _ location: SourceLocation,
    notes: [Diagnostic.Note] = [], help: String? = nil, fixIts: [Diagnostic.FixIt] = []
  ) {
    if diagnostics.count >= Self.maximumErrors { return }
    diagnostics.append(
      Diagnostic(code, message, at: location, notes: notes, help: help, fixIts: fixIts))
  }

  /// The entries of a mapping, which must not be empty; otherwise reports an error.
  mutating func mapping(_ node: YAMLNode, _ what: String, _ contents: String) -> [YAMLEntry]? {
    guard case .mapping(let entries) = node.content else {
      var help = "It holds \(contents)"
      if let scalar = node.scalar, scalar.style == .plain,
        let colon = scalar.text.text.firstIndex(of: UInt8(ascii: ":"))
      {
        help =
          "The ':' after '\(Printable.cut(scalar.text.text[..<colon]))' must be followed by a "
          + "space"
      }
      report(.wrongType, "\(what) is a mapping, not \(node.kindName)", node.location, help: help)
      return nil
    }
    if entries.isEmpty {
      report(.emptyCollection, "\(what) is empty here", node.location, help: "It holds \(contents)")
      return nil
    }
    return entries
  }

  /// The entries of `entry`'s mapping; none if it is empty.
  mutating func entries(_ entry: YAMLEntry) -> [YAMLEntry]? {
    if case .mapping(let entries) = entry.value.content { return entries }
    if entry.value.isNull { return nil }
    report(
      .wrongType, "'\(entry.key.shown)' takes a mapping, not \(entry.value.kindName)",
      entry.value.location.start,
      help: entry.value.items == nil
        ? "Write 'NAME: ...' below it, indented" : "Write 'NAME: ...' in place of '- '")
    return nil
  }

  mutating func text(_ node: YAMLNode, _ what: String) -> Located<String>? {
    guard let scalar = node.scalar, scalar.kind != .null else {
      report(.wrongType, "\(what) takes a text, not \(node.kindName)", node.location)
      return nil
    }
    if refusesSecret(in: node, what) { return nil }
    return Located(scalar.string, at: node.location)
  }

  /// Reports a secret in a printed value; returns whether there is any.
  mutating func refusesSecret(in node: YAMLNode, _ what: String) -> Bool {
    guard let secret = node.firstSecret else { return false }
    report(
      .misplacedSecret, "\(what) must not contain a secret", secret.location,
      help: "Only expressions, templates and passwords can; read other values from the environment: ${NAME}")
    return true
  }

  // MARK: Keys

  mutating func checkKeys(_ entries: [YAMLEntry], _ known: [String], of what: String) {
    for entry in entries where !known.contains(entry.name) {
      unknown(entry, among: known, what, beside: entries)
    }
  }

  /// - Parameter siblings: The keys that exist already, so that none of them is suggested.
  private mutating func unknown(
    _ entry: YAMLEntry, among known: [String], _ what: String, beside siblings: [YAMLEntry]
  ) {
    if diagnostics.count >= Self.maximumErrors { return }
    if let problem = entry.missingSpace(among: known) {
      diagnostics.append(problem)
      return
    }
    var correction = Suggestion.correction(for: entry.name, among: known)
    var hasFix = true
    if let name = correction?.name {
      if siblings.contains(where: { $0.name == name }) {
        correction = (name, "'\(name)' is already defined: remove one of them")
        hasFix = false
      } else if name == "from", entry.value.items != nil {
        hasFix = known.contains("merge")
        correction = (
          "merge",
          hasFix ? "Use 'merge' for several signals" : "Use 'from: { merge: [a, b] }' for several signals"
        )
      }
    }
    report(
      .unknownKey, "\(what) has no key '\(entry.key.shown)'", entry.key.location,
      help: correction?.help ?? "The keys are \(Suggestion.list(known))",
      fixIts: hasFix ? correction.map { [.init(entry.key.location, $0.name)] } ?? [] : [])
  }

  /// The advice for `type: NAME` beside parameters, as other programs write components; nil if the rest is another component.
  func typed(_ name: String, _ components: [YAMLEntry], _ role: Role) -> String? {
    let others = components.filter { $0.name != "type" }
    guard others.allSatisfy({ $0.value.scalar != nil }) else { return nil }
    let shown = others.prefix(2).map { "\(Printable.cut($0.name)): \($0.value.shown)" }
    let inside = (shown + (others.count > 2 ? ["..."] : [])).joined(separator: ", ")
    return "Write '\(role == .step ? "- " : "")\(name): { \(inside.isEmpty ? "..." : inside) }'"
  }

  /// Removes and reports unknown keys: those that resemble a reserved key, and keys that are reserved in other parts of
  /// the file. The remaining keys may be components.
  ///
  /// A single key counts as a component unless `always` says that a misspelling is more likely.
  mutating func rejectUnknown(
    _ entries: [YAMLEntry], among known: [String], _ what: String, always: Bool = false
  ) -> [YAMLEntry] {
    let candidates = entries.filter { entry in
      if let problem = entry.missingSpace(among: known) {
        diagnostics.append(problem)
        return false
      }
      guard ReservedKeys.anywhere.contains(entry.name) else { return true }
      report(
        .misplacedKey, "\(what) has no key '\(entry.key.shown)'", entry.key.location,
        help: "The keys allowed next to the component are \(Suggestion.list(known))")
      return false
    }
    guard candidates.count > 1 || always else { return candidates }
    return candidates.filter { entry in
      guard Suggestion.correction(for: entry.name, among: known) != nil else { return true }
      unknown(entry, among: known, what, beside: entries)
      return false
    }
  }

  /// Reports a key that does not belong alongside the origin of a signal.
  mutating func misplaced(_ entry: YAMLEntry, among known: [String], beside siblings: [YAMLEntry]) {
    if ReservedKeys.anywhere.contains(entry.name)
      || Suggestion.correction(for: entry.name, among: known) != nil
    {
      unknown(entry, among: known, "a signal", beside: siblings)
      return
    }
    report(
      .misplacedKey, "'\(entry.key.shown)' cannot be combined with the origin of a signal",
      entry.key.location,
      help: "If it is an operator, write '- \(entry.key.shown): ...' below 'chain:'")
  }

  mutating func require(_ keys: [String], _ entries: [YAMLEntry], _ parent: YAMLEntry) -> Bool {
    let missing = keys.filter { key in !entries.contains { $0.name == key } }
    if missing.isEmpty { return true }
    report(
      .missingKey, "'\(parent.key.shown)' needs \(Suggestion.list(missing))", parent.key.location)
    return false
  }

  // MARK: Names

  /// Whether `key` can be a name; reports an error otherwise.
  mutating func name(_ key: YAMLScalar) -> Bool {
    if Name.isValid(key.text.text) { return true }
    report(
      .invalidName, "'\(key.shown)' cannot be a name", key.location,
      help: "Use up to \(Name.maximumLength) letters, digits, '_' and '-', beginning with a letter "
        + "or '_'")
    return false
  }

  /// Whether `key` can name a source, a signal, a command, a sink or an input; reports an error otherwise. The names of
  /// inputs become variables of `reduce`, so they must not be words of the expression language.
  mutating func freeName(_ key: YAMLScalar, of what: String) -> Bool {
    guard name(key) else { return false }
    // Expressions never refer to sinks, but YAML reads some of these words as something other than text.
    let words =
      what == "a sink"
      ? ReservedKeys.literals : ["an input", "a table"].contains(what) ? ReservedKeys.noVariables : ReservedKeys.words
    guard words.contains(key.string) else { return true }
    report(
      .invalidName, "'\(key.shown)' cannot be the name of \(what): it is a word of the expression language",
      key.location, help: "Choose another name, such as '\(key.shown)s'")
    return false
  }

  /// Whether `key` can be the name of a component; reports an error otherwise.
  mutating func componentName(_ key: YAMLScalar) -> Bool {
    if key.isInterpolated {
      fromEnvironment(key, "the name of a component")
      return false
    }
    return name(key)
  }

  private mutating func fromEnvironment(_ scalar: YAMLScalar, _ what: String) {
    report(
      .invalidReference, "\(what) cannot come from the environment", scalar.location,
      help: "The structure of a file never depends on the environment; write the name out")
  }

  mutating func reference(_ node: YAMLNode) -> ReferenceNode? {
    guard let scalar = node.scalar, scalar.kind != .null || scalar.isPlaceholder else {
      report(
        .wrongType, "expected the name of a signal here, not \(node.kindName)", node.location)
      return nil
    }
    if scalar.isInterpolated {
      fromEnvironment(scalar, "the name of a signal")
      return nil
    }
    let text = scalar.text
    let parts = text.text.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    guard parts.count <= 2, parts.allSatisfy({ Name.isValid($0) }) else {
      report(
        .invalidReference, "'\(scalar.shown)' is not the name of a signal", node.location,
        help: text.text.contains(UInt8(ascii: ","))
          ? "To read several signals, write 'merge: [a, b]'"
          : "Write NAME, or NAME.errors for an output of it")
      return nil
    }
    func located(_ part: ArraySlice<UInt8>) -> Located<String> {
      Located(
        String(decoding: part, as: UTF8.self), at: text.location(part.startIndex, part.endIndex))
    }
    return ReferenceNode(
      name: located(parts[0]), output: parts.count == 2 ? located(parts[1]) : nil,
      location: node.location)
  }
}

/// The names of sources, signals, commands, sinks, steps and components.
package enum Name {
  package static let maximumLength = 64

  package static func isValid(_ name: some Collection<UInt8>) -> Bool {
    guard let first = name.first, isPart(first), first != UInt8(ascii: "-"),
      first < 0x30 || first > 0x39
    else { return false }
    return name.count <= maximumLength && name.allSatisfy(isPart)
  }

  package static func isPart(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "_"), UInt8(ascii: "-"): true
    default: false
    }
  }
}
