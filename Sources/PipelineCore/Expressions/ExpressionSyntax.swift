/// A parsed expression that has not been checked yet.
package struct ExpressionSyntax: Sendable {
  package let text: LocatedText
  var tree: SyntaxTree
  /// The texts of the inserted function bodies; nodes whose `text` is 1 lie in the first.
  var inserted: [LocatedText] = []

  /// Parses an expression; nil, with a diagnostic, after an error.
  package static func parse(
    _ text: LocatedText, into diagnostics: inout Diagnostics
  ) -> ExpressionSyntax? {
    diagnostics.concealing(text) { parse(text, limit: ExpressionLimits.sourceBytes, into: &$0) }
  }

  /// `limit`: in bytes.
  static func parse(
    _ text: LocatedText, limit: Int, into diagnostics: inout Diagnostics
  ) -> ExpressionSyntax? {
    guard text.text.count <= limit else {
      diagnostics.report(
        Diagnostic(
          .expressionTooLong,
          "the expression has \(text.text.count) bytes, more than the \(limit) allowed",
          at: text.location, help: "Split it into several steps."))
      return nil
    }
    guard text.text.withUnsafeBytes({ CodePoints.areValid($0) }) else {
      diagnostics.report(
        Diagnostic(.expressionSyntax, "the expression is not valid UTF-8", at: text.location))
      return nil
    }
    guard let text = text.withInsertedValues(into: &diagnostics) else { return nil }
    do {
      return ExpressionSyntax(text: text, tree: try ExpressionParser.parse(text.text))
    } catch {
      if !text.isSecret, isProse(text) {
        let quoted = "'\(text.string)'"
        diagnostics.report(
          Diagnostic(
            error.code, "this is a text, but an expression is expected here", at: text.location,
            help: "YAML removes its own quotes; a text in an expression needs quotes of its own: \"\(quoted)\"",
            fixIts: [text.rewritten(quoted)]))
        return nil
      }
      let location = text.location(error.start, error.end)
      diagnostics.report(
        Diagnostic(
          error.code, error.message, at: location, help: helpWhereCut(text, error) ?? error.help,
          fixIts: text.isSecret
            ? []
            : error.replacement.map { [text.fix(error.start, error.end, $0)] }
              ?? []))
      return nil
    }
  }

  /// Whether a text in YAML quotes is prose rather than a mistyped expression.
  private static func isProse(_ text: LocatedText) -> Bool {
    guard text.quoting == .single || text.quoting == .double, !text.text.isEmpty else { return false }
    let words = text.text.split(separator: UInt8(ascii: " "))
    let operators = Set("()[]{}<>=&|+*/%?'\"\\`".utf8)
    return words.count > 1 && !text.text.contains(where: operators.contains) && text.text[0] != UInt8(ascii: "-")
      && !words.contains { word in
        ["and", "or", "not", "event"].contains(String(decoding: word, as: UTF8.self).lowercased())
          || word.starts(with: "event.".utf8)
      }
  }

  /// Help for the case that YAML took only the start of the expression: `{ a: f(x, y) }` sets `a` to `f(x`.
  private static func helpWhereCut(_ text: LocatedText, _ error: SyntaxError) -> String? {
    guard text.quoting == .plain, error.code == .expressionSyntax, let end = text.offsets.last,
      end >= 0, Int(end) < text.source.bytes.count, text.source.bytes[Int(end)] == 0x2C
    else { return nil }
    return "Quote the expression: within braces a comma ends unquoted text."
  }

  /// The text in which the nodes with this number lie.
  func text(_ number: Int32) -> LocatedText { number == 0 ? text : inserted[Int(number) - 1] }

  /// Whether the expression is a literal, independent of any event.
  package var isLiteral: Bool {
    if case .literal = tree[tree.root].kind { return true }
    return false
  }
}
