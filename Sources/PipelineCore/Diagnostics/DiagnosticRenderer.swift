/// Whether output is coloured.
package enum ColorMode: String, Sendable, CaseIterable {
  case auto, always, never

  /// `isTerminal`: whether the stream written to is a terminal; `noColor`: whether NO_COLOR is set and not empty.
  package func isEnabled(isTerminal: Bool, noColor: Bool) -> Bool {
    switch self {
    case .always: true
    case .never: false
    case .auto: isTerminal && !noColor
    }
  }
}

/// Writes diagnostics for people and for programs, ordered by file and location.
public struct DiagnosticRenderer: Sendable {
  /// Whether the text contains escape sequences for colours.
  public var colors = false
  /// Only ``text(_:)`` has limits; the other formats are complete.
  public var maximumErrors = 50
  /// A text ends after the first diagnostic that makes it longer than this.
  public var maximumBytes = 64 << 10
  /// The version in SARIF output.
  public var toolVersion = ""

  /// A renderer for plain or coloured text.
  public init(colors: Bool = false, toolVersion: String = "") {
    self.colors = colors
    self.toolVersion = toolVersion
  }

  /// A report in the style of compilers: each diagnostic with its source line, marks, notes, help and fixes, and a last
  /// line with the number of errors. Empty if there are none.
  public func text(_ diagnostics: [Diagnostic]) -> String {
    if diagnostics.isEmpty { return "" }
    let ordered = Self.ordered(diagnostics)
    var page = ""
    var shown = 0
    var shownErrors = 0
    for diagnostic in ordered {
      if shownErrors == maximumErrors || shown == 2 * maximumErrors { break }
      let block = self.block(diagnostic)
      if page.utf8.count + block.utf8.count > maximumBytes { break }
      page += block + "\n"
      shown += 1
      if diagnostic.severity == .error { shownErrors += 1 }
    }
    if shown < ordered.count { page += "\(ordered.count - shown) more are not shown\n" }
    return page + Self.summary(diagnostics) + "\n"
  }

  /// `2 errors, 1 warning in search.yaml`, or `in 3 files`.
  package static func summary(_ diagnostics: [Diagnostic]) -> String {
    var counts: [String] = []
    for (severity, noun) in [(Diagnostic.Severity.error, "error"), (.warning, "warning")] {
      let count = diagnostics.count { $0.severity == severity }
      if count > 0 { counts.append("\(count) \(noun)\(count == 1 ? "" : "s")") }
    }
    if counts.isEmpty { counts = ["no errors"] }
    // Locations in an included file count for the file that includes it.
    let files = Set(diagnostics.compactMap { $0.location?.text.outermost.name })
    let suffix =
      files.isEmpty
      ? ""
      : files.count == 1
        ? " in " + Printable.cut(files.first ?? "", limit: 200)
        : " in \(files.count) files"
    return counts.joined(separator: ", ") + suffix
  }

  /// Sorted by file name and offset, after those without a location; otherwise the order is kept.
  static func ordered(_ diagnostics: [Diagnostic]) -> [Diagnostic] {
    diagnostics.enumerated().sorted { a, b in
      let (first, second) = (a.element.location, b.element.location)
      switch (first, second) {
      case (nil, nil): return a.offset < b.offset
      case (nil, _): return true
      case (_, nil): return false
      case (let first?, let second?):
        if first.text.name != second.text.name { return first.text.name < second.text.name }
        return (first.offset, a.offset) < (second.offset, b.offset)
      }
    }.map(\.element)
  }

  // MARK: One diagnostic

  private enum Style: String {
    case error = "\u{1B}[1;31m"
    case warning = "\u{1B}[1;33m"
    case note = "\u{1B}[1;36m"
    case gutter = "\u{1B}[1;34m"
    case title = "\u{1B}[1m"
  }

  private func paint(_ text: String, _ style: Style) -> String {
    colors ? style.rawValue + text + "\u{1B}[0m" : text
  }

  private func style(_ severity: Diagnostic.Severity) -> Style {
    switch severity {
    case .error: .error
    case .warning: .warning
    case .note: .note
    }
  }

  package func block(_ diagnostic: Diagnostic) -> String {
    let locations = [diagnostic.location] + diagnostic.notes.map(\.location)
    let digits = locations.compactMap { $0?.line }.max().map { String($0).utf8.count } ?? 1
    let margin = String(repeating: " ", count: digits)
    let severity = style(diagnostic.severity)

    var block = paint("\(diagnostic.severity.rawValue)[\(diagnostic.code.name)]", severity)
    block += paint(": " + Printable.cut(diagnostic.message, limit: 500), .title) + "\n"
    if let location = diagnostic.location {
      block += excerpt(location, margin, mark: "^", severity)
    }
    for note in diagnostic.notes {
      block += remark("note", note.message, margin)
      if let location = note.location { block += excerpt(location, margin, mark: "-", .note) }
    }
    if let help = diagnostic.help { block += remark("help", help, margin) }
    for fix in diagnostic.fixIts { block += remark("fix", Self.words(fix, diagnostic.location), margin) }
    return block
  }

  /// A passage of a source with a title and remarks, in the layout of a diagnostic. It reports no error.
  package func passage(_ title: String, at location: SourceLocation?, _ remarks: [(kind: String, text: String)])
    -> String
  {
    let margin = String(repeating: " ", count: location.map { String($0.line).utf8.count } ?? 1)
    var block = paint(Printable.cut(title, limit: 500), .title) + "\n"
    if let location { block += excerpt(location, margin, mark: "^", .warning) }
    for remark in remarks { block += self.remark(remark.kind, remark.text, margin, limit: 4096) }
    return block
  }

  private func remark(_ kind: String, _ text: String, _ margin: String, limit: Int = 500) -> String {
    margin + " " + paint("=", .gutter) + " " + paint(kind, .note) + ": "
      + Printable.cut(text, limit: limit) + "\n"
  }

  private func excerpt(
    _ location: SourceLocation, _ margin: String, mark: Character, _ style: Style
  ) -> String {
    let position = location.text.position(at: location.offset)
    let name = Printable.cut(location.text.name, limit: 200)
    var block = margin + paint("-->", .gutter) + " \(name):\(position.line):\(position.column)\n"
    // After the last line there is nothing to show.
    if location.text.lineRange(position.line).isEmpty, location.offset >= location.text.bytes.count {
      return block
    }
    let excerpt = SourceExcerpt(location)
    let number = String(excerpt.line)
    let padding = String(repeating: " ", count: max(0, margin.utf8.count - number.utf8.count))
    let bar = paint("|", .gutter)
    block += "\(margin) \(bar)\n"
    block += paint(padding + number, .gutter) + " \(bar)"
    block += (excerpt.text.isEmpty ? "" : " " + excerpt.text) + "\n"
    let marks = String(repeating: mark, count: excerpt.width)
    block += "\(margin) \(bar) " + String(repeating: " ", count: excerpt.indent)
    return block + paint(marks, style) + "\n"
  }

  /// `marked`: the marked location; a fix at another location names the text that it replaces.
  static func words(_ fix: Diagnostic.FixIt, _ marked: SourceLocation? = nil) -> String {
    let isElsewhere = marked.map { $0 != fix.location } ?? false
    let old = Printable.cut(
      String(
        decoding: fix.location.text.bytes.dropFirst(fix.location.offset).prefix(fix.location.length), as: UTF8.self),
      limit: 60)
    if fix.replacement.isEmpty { return isElsewhere ? "remove \(old)" : "remove it" }
    let isBlank = fix.replacement.utf8.allSatisfy { $0 == 0x20 }
    let text =
      isBlank
      ? "\(fix.replacement.utf8.count) spaces" : Printable.cut(fix.replacement, limit: 200)
    if fix.location.length == 0 { return "insert \(text)" }
    return isElsewhere ? "replace \(old) with \(text)" : "replace with \(text)"
  }
}
