package import PipelineCore

/// `rxd check --fix` for one file: makes the replacements that its diagnostics propose.
///
/// A replacement is kept only if the diagnostic offers no alternative, and if the file then has fewer errors and none
/// of a new kind: otherwise a new mistake would replace the user's own.
package struct FixedFile {
  private let loader: PipelineLoader
  package private(set) var loaded: PipelineLoader.Loaded
  /// The changed lines, each group under its location.
  package private(set) var difference = ""
  package private(set) var count = 0

  /// The maximum number of replacements that are tried: a file with more mistakes is left for another run.
  private var attempts = 2_000

  /// The kinds of diagnostics whose replacements are made; nil: all.
  private let codes: Set<Diagnostic.Code>?

  package init(_ loaded: PipelineLoader.Loaded, _ loader: PipelineLoader, only codes: Set<Diagnostic.Code>? = nil) {
    self.loader = loader
    self.loaded = loaded
    self.codes = codes
  }

  /// Makes one replacement after another. A replacement may reveal errors, because an error in the YAML hides
  /// everything after it; then further replacements are made, and all are kept if together they make the file better.
  package mutating func make() {
    // Diagnostics for which a replacement did not improve the current text.
    var useless: Set<String> = []
    while let first = improve(except: useless) {
      if first.isEmpty { useless = [] } else { useless.insert(first) }
    }
  }

  /// Makes replacements until the file is better, and keeps them. Returns nil if no replacement is left, an empty name
  /// if the file is better, and otherwise the name of the diagnostic whose replacement led to no improvement.
  private mutating func improve(except useless: Set<String>) -> String? {
    var useless = useless
    var first: String?
    var current = loaded
    var difference = ""
    var made = 0
    while attempts > 0, let source = current.source,
      let (diagnostic, fix) = next(current, in: source, except: useless)
    {
      attempts -= 1
      let edit = TextEdit(offset: fix.location.offset, length: fix.location.length, fix.replacement)
      var bytes = source.bytes
      bytes.replaceSubrange(edit.offset..<edit.offset + edit.length, with: edit.replacement.utf8)
      let fresh = loader.compile(loaded.path, SourceText(name: source.name, bytes: bytes))
      let name = Self.name(diagnostic)
      guard !fresh.diagnostics.contains(where: { Self.name($0) == name }) else {
        useless.insert(name)
        if first == nil, made == 0 { return name }
        continue
      }
      if first == nil { first = name }
      difference += [edit].difference(of: source)
      made += 1
      current = fresh
      if Self.isBetter(fresh.diagnostics, than: loaded.diagnostics) {
        self.difference += difference
        count += made
        loaded = fresh
        return ""
      }
    }
    return first
  }

  /// The first diagnostic with exactly one fix: choosing among several would be a guess.
  private func next(
    _ loaded: PipelineLoader.Loaded, in source: SourceText, except useless: Set<String>
  ) -> (Diagnostic, Diagnostic.FixIt)? {
    for diagnostic in loaded.diagnostics where diagnostic.fixIts.count == 1 {
      if let codes, !codes.contains(diagnostic.code) { continue }
      let fix = diagnostic.fixIts[0]
      let end = fix.location.offset + fix.location.length
      if fix.location.text.name == source.name, end <= source.bytes.count, !useless.contains(Self.name(diagnostic)) {
        return (diagnostic, fix)
      }
    }
    return nil
  }

  private static func name(_ diagnostic: Diagnostic) -> String {
    "\(diagnostic.location.map { "\($0)" } ?? "") \(diagnostic.code.name) \(diagnostic.message)"
  }

  /// Whether there are fewer errors, or equally many errors and fewer diagnostics, and no error of a new kind.
  package static func isBetter(_ after: [Diagnostic], than before: [Diagnostic]) -> Bool {
    func errors(_ all: [Diagnostic]) -> [Diagnostic] { all.filter { $0.severity == .error } }
    let (old, new) = (errors(before), errors(after))
    let kinds = Set(old.map(\.code))
    return (new.count, after.count) < (old.count, before.count) && new.allSatisfy { kinds.contains($0.code) }
  }
}
