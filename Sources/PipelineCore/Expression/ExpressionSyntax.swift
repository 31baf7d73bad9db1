/// An expression that has been read but not yet checked.
public struct ExpressionSyntax: Sendable {
  public let text: LocatedText
  let tree: SyntaxTree

  /// Reads an expression; nil, with a diagnostic, where it cannot be read.
  public static func parse(
    _ text: LocatedText, into diagnostics: inout Diagnostics
  ) -> ExpressionSyntax? {
    parse(text, limit: ExpressionLimits.sourceBytes, into: &diagnostics)
  }

  /// `limit`: bytes.
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
    do {
      return ExpressionSyntax(text: text, tree: try ExpressionParser.parse(text.text))
    } catch {
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

  /// What to do where YAML took only the beginning of the expression: `{ a: f(x, y) }` says that `a` is `f(x`.
  private static func helpWhereCut(_ text: LocatedText, _ error: SyntaxError) -> String? {
    guard text.quoting == .plain, error.code == .expressionSyntax, let end = text.offsets.last,
      end >= 0, Int(end) < text.source.bytes.count, text.source.bytes[Int(end)] == 0x2C
    else { return nil }
    return "Quote the expression: within braces a comma ends what is not quoted."
  }

  /// Whether the expression is a literal: its value does not depend on any event.
  public var isLiteral: Bool {
    if case .literal = tree[tree.root].kind { return true }
    return false
  }
}
