import PipelineCore

/// Rewrites expectations of a pipeline file to match the actual results; everything else in the file stays unchanged,
/// byte for byte.
package struct ExpectationUpdate {
  let source: SourceText
  private(set) var edits: [TextEdit] = []
  /// The expectations that were rewritten, by test and name.
  private var rewritten: Set<[String]> = []

  package init(_ source: SourceText) { self.source = source }

  /// Why an expectation cannot be rewritten.
  struct Refusal: Error {
    var message: String
    var help: String?

    init(_ message: String, help: String? = nil) {
      self.message = message
      self.help = help
    }
  }

  /// Rewrites one expectation of a test; nil on success, otherwise why it was refused.
  package mutating func rewrite(
    _ expectation: PipelineTest.Expectation, of test: PipelineTest, to history: SignalHistory
  ) -> Diagnostic? {
    var history = history
    if !expectation.hasMarks { history.entries.removeAll { $0.moment.isMark } }
    do throws(Refusal) {
      let found = try ExpectationEdits(source, expectation, history.entries).find()
      guard (edits + found).areApart else { throw Refusal("two expectations share the text to change") }
      edits += found
      rewritten.insert([test.name.value, expectation.subject.value])
      return nil
    } catch {
      return Diagnostic(
        .expectationNotRewritten, "'\(expectation.subject.value)' cannot be rewritten: \(error.message)",
        at: expectation.subject.location, help: error.help)
    }
  }

  package var isEmpty: Bool { edits.isEmpty }

  /// The changed lines, old and new.
  package var difference: String { edits.difference(of: source) }

  /// The new file; nil if more than the rewritten expectations would change.
  package func text() -> [UInt8]? {
    let bytes = edits.applied(to: source.bytes, in: 0..<source.bytes.count)
    var before = Diagnostics()
    var after = Diagnostics()
    guard let old = YAMLReader.read(source, into: &before),
      let new = YAMLReader.read(SourceText(name: source.name, bytes: bytes), into: &after), !after.hasErrors
    else { return nil }
    return isSameElsewhere(old, new) ? bytes : nil
  }

  /// Compares everything except the rewritten expectations.
  private func isSameElsewhere(_ old: YAMLNode, _ new: YAMLNode) -> Bool {
    same(old, new) { key, old, new in
      guard key == "tests", let olds = old.items, let news = new.items, olds.count == news.count else { return nil }
      return zip(olds, news).allSatisfy { old, new in
        let name = old["name"]?.string ?? ""
        return same(old, new) { key, old, new in
          guard key == "expect" else { return nil }
          return same(old, new) { key, _, _ in rewritten.contains([name, key]) ? true : nil }
        }
      }
    }
  }

  /// Whether two mappings have the same content. `other` may compare an entry itself; nil if it does not.
  private func same(_ old: YAMLNode, _ new: YAMLNode, _ other: (String, YAMLNode, YAMLNode) -> Bool?) -> Bool {
    guard let olds = old.entries, let news = new.entries, olds.count == news.count else { return false }
    return zip(olds, news).allSatisfy { old, new in
      old.name == new.name && (other(old.name, old.value, new.value) ?? old.value.isEquivalent(as: new.value))
    }
  }
}

extension YAMLNode {
  /// Whether two nodes have the same content, regardless of location and style.
  func isEquivalent(as other: YAMLNode) -> Bool {
    switch (content, other.content) {
    case (.scalar(let a), .scalar(let b)): a.text.text == b.text.text && a.kind == b.kind
    case (.sequence(let a), .sequence(let b)):
      a.count == b.count && zip(a, b).allSatisfy { $0.isEquivalent(as: $1) }
    case (.mapping(let a), .mapping(let b)):
      a.count == b.count && zip(a, b).allSatisfy { $0.name == $1.name && $0.value.isEquivalent(as: $1.value) }
    default: false
    }
  }
}
