/// A pipeline file in the canonical layout of `rxd fmt`.
///
/// The top-level keys are put into the order of ``order``; the entries below them keep theirs. Values, comments,
/// anchors and aliases must not change; the result is verified, and a file whose meaning would change is refused.
package struct FormattedFile: Sendable {
  /// The top-level keys: what a pipeline is, what it needs, what it does, and its tests.
  package static let order = [
    "name", "description", "threads", "delivery", "require", "whenLate", "state", "plugins", "patterns", "functions",
    "defaults",
    "sources",
    "tables", "signals", "commands", "sinks", "tests",
  ]

  package let bytes: [UInt8]

  /// Nil, with a diagnostic, if the YAML has errors or cannot be formatted. References and parameters need not be
  /// valid.
  package init?(_ source: SourceText, into diagnostics: inout Diagnostics) {
    var found = Diagnostics()
    guard let before = YAMLReader.read(source, into: &found), !found.hasErrors else {
      diagnostics.report(contentsOf: found.all)
      return nil
    }
    // LF and CRLF mean the same to YAML; a file keeps its own.
    let endsWithCR = source.bytes.contains(0x0D)
    let text = endsWithCR ? SourceText(name: source.name, bytes: source.bytes.filter { $0 != 0x0D }) : source
    guard let layout = YAMLReader.layout(text) else { return nil }
    func refuse(_ reason: String, at offset: Int) {
      diagnostics.report(
        Diagnostic(
          .notFormatted, reason, at: SourceLocation(text, offset: offset),
          help: "Nothing is changed; write it in a simpler form, or leave the file as it is"))
    }
    if let odd = Self.oddity(of: layout, text.bytes) {
      refuse("a text block with an indentation number, or with '+', is not formatted", at: odd)
      return nil
    }
    let start = Self.documentStart(text.bytes)
    var formatter = YAMLFormatter(text, from: start, layout, order: Self.order(of: layout, before, text.bytes))
    var bytes = Array(text.bytes[..<start]) + formatter.run(layout)
    let again = SourceText(name: source.name, bytes: bytes)
    guard let after = YAMLReader.read(again, into: &found), !found.hasErrors, let written = YAMLReader.layout(again),
      Self.areEqual(before, after, isTop: true)
    else {
      refuse("the file has a layout that cannot be changed without changing its meaning", at: 0)
      return nil
    }
    let second = YAMLFormatter(again, from: Self.documentStart(bytes), written, order: nil)
    guard formatter.isComplete, formatter.commentTexts.sorted() == second.commentTexts.sorted() else {
      refuse("a comment is at a position that cannot be kept", at: 0)
      return nil
    }
    if endsWithCR { bytes = bytes.flatMap { $0 == 0x0A ? [0x0D, 0x0A] : [$0] } }
    self.bytes = bytes
  }

  /// The offset after a byte order mark and the line `---` with which a document may begin.
  private static func documentStart(_ bytes: [UInt8]) -> Int {
    var line = bytes.starts(with: [0xEF, 0xBB, 0xBF]) ? 3 : 0
    let first = line
    while line < bytes.count {
      let end = bytes[line...].firstIndex(of: 0x0A) ?? bytes.count
      let text = bytes[line..<end].drop { $0 <= 0x20 }
      if text.starts(with: Array("---".utf8)) { return min(bytes.count, end + 1) }
      guard text.isEmpty || text.first == UInt8(ascii: "#") || text.first == UInt8(ascii: "%") else { return first }
      line = end + 1
    }
    return first
  }

  /// The location of a block scalar whose header has an indentation or keep indicator.
  private static func oddity(of node: YAMLLayoutNode, _ bytes: [UInt8]) -> Int? {
    if case .scalar(let style) = node.kind, style == .literal || style == .folded {
      let header = bytes[node.range].prefix { $0 > 0x20 }
      return header.contains { 0x30...0x39 ~= $0 || $0 == UInt8(ascii: "+") } ? node.range.lowerBound : nil
    }
    for child in node.children {
      if let found = oddity(of: child, bytes) { return found }
    }
    return nil
  }

  /// The top-level entries in canonical order, by index. Nil if they must stay where they are, because a key is unknown
  /// or an alias would come before its anchor.
  private static func order(of layout: YAMLLayoutNode, _ root: YAMLNode, _ bytes: [UInt8]) -> [Int]? {
    guard case .mapping(let entries) = layout.kind, let names = root.entries?.map(\.name), names.count == entries.count,
      names.allSatisfy(order.contains)
    else { return nil }
    let sortedIndexes = names.indices.sorted {
      (order.firstIndex(of: names[$0]) ?? 0, $0) < (order.firstIndex(of: names[$1]) ?? 0, $1)
    }
    if sortedIndexes == Array(names.indices) || layout.isFlow { return nil }
    // Entries that define or use anchors keep their order.
    let anchored = sortedIndexes.filter { usesAnchors(entries[$0].value) || usesAnchors(entries[$0].key) }
    return anchored == anchored.sorted() ? sortedIndexes : nil
  }

  private static func usesAnchors(_ node: YAMLLayoutNode) -> Bool {
    if case .alias = node.kind { return true }
    return !node.properties.isEmpty || node.children.contains(where: usesAnchors)
  }

  private static func areEqual(_ a: YAMLNode, _ b: YAMLNode, isTop: Bool = false) -> Bool {
    switch (a.content, b.content) {
    case (.scalar(let a), .scalar(let b)):
      return a.text.text == b.text.text && a.kind == b.kind && a.isTagged == b.isTagged
    case (.sequence(let a), .sequence(let b)):
      return a.count == b.count && zip(a, b).allSatisfy { areEqual($0, $1) }
    case (.mapping(var a), .mapping(var b)):
      if isTop {
        a.sort { $0.name < $1.name }
        b.sort { $0.name < $1.name }
      }
      return a.count == b.count && zip(a, b).allSatisfy { $0.name == $1.name && areEqual($0.value, $1.value) }
    default: return false
    }
  }
}
