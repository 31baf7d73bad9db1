/// A text that contains expressions: `books/{{ event.id }}.json`.
package struct ExpressionTemplate: Sendable {
  enum Part: Sendable {
    /// `shown`: the text for logs.
    case text([UInt8], shown: [UInt8])
    case expression(ExpressionSyntax)
  }

  package let text: LocatedText
  let parts: [Part]

  /// Whether it contains no expression, so that its text is constant.
  package var isConstant: Bool {
    parts.allSatisfy { if case .text = $0 { return true } else { return false } }
  }

  /// The text before the first expression; the whole text if there is none.
  package var literalPrefix: String {
    guard case .text(let bytes, _)? = parts.first else { return "" }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// An expression with the same result: the template's only expression, or a concatenation of its parts.
  var asExpression: String {
    let written = parts.map { part -> String in
      switch part {
      case .text(let bytes, _):
        let text = String(decoding: bytes, as: UTF8.self)
        return "'" + LocatedText.escaped(LocatedText.escaped(text, "\\", with: "\\"), "'", with: "\\") + "'"
      case .expression(let syntax):
        let text = String(decoding: syntax.text.text, as: UTF8.self).trimmed
        return parts.count == 1 ? text : "string(\(text))"
      }
    }
    return written.joined(separator: " + ")
  }

  /// The text with the source of its expressions, without the braces around them.
  var withoutBraces: String {
    parts.map { part in
      switch part {
      case .text(let bytes, _): String(decoding: bytes, as: UTF8.self)
      case .expression(let syntax): String(decoding: syntax.text.text, as: UTF8.self).trimmed
      }
    }.joined()
  }

  /// The prefix for logs.
  var shownPrefix: [UInt8] {
    guard case .text(_, let shown)? = parts.first else { return [] }
    return shown
  }

  /// Parses a template; nil, with diagnostics, after an error in an expression.
  ///
  /// `{{ '{{' }}` writes two opening braces.
  package static func parse(
    _ text: LocatedText, into diagnostics: inout Diagnostics
  ) -> ExpressionTemplate? {
    let bytes = text.text
    let neutral = text.insertions.isEmpty ? bytes : text.neutral
    var parts: [Part] = []
    var at = 0
    var plain = 0
    var failed = false
    func endPlain() {
      if plain < at { parts.append(.text(Array(bytes[plain..<at]), shown: text.shown(plain, at))) }
    }
    while at < bytes.count {
      guard bytes[at] == 0x7B, at + 1 < bytes.count, bytes[at + 1] == 0x7B else {
        at += 1
        continue
      }
      endPlain()
      guard let end = end(of: neutral, from: at + 2) else {
        diagnostics.report(
          Diagnostic(
            .templateUnclosed, "'{{' has no '}}'", at: text.location(at, at + 2),
            help: "Close the expression with '}}'; for two braces as text write {{ '{{' }}."))
        return nil
      }
      let inner = text.slice(at + 2, end)
      if let syntax = ExpressionSyntax.parse(inner, into: &diagnostics) {
        parts.append(.expression(syntax))
      } else {
        failed = true
      }
      at = end + 2
      plain = at
    }
    endPlain()
    return failed ? nil : ExpressionTemplate(text: text, parts: parts)
  }

  /// The offset of the `}}` that ends the expression, skipping strings and maps.
  private static func end(of bytes: [UInt8], from start: Int) -> Int? {
    var at = start
    var depth = 0
    while at < bytes.count {
      switch bytes[at] {
      case 0x22, 0x27:
        let quote = bytes[at]
        var close = at + 1
        while close < bytes.count, bytes[close] != quote {
          close += bytes[close] == 0x5C ? 2 : 1
        }
        // The parser reports an unclosed quote.
        if close < bytes.count { at = close }
      case 0x7B: depth += 1
      case 0x7D:
        if depth == 0 {
          if at + 1 < bytes.count, bytes[at + 1] == 0x7D { return at }
        } else {
          depth -= 1
        }
      default: break
      }
      at += 1
    }
    return nil
  }

  var expressions: [ExpressionSyntax] {
    parts.compactMap { if case .expression(let syntax) = $0 { syntax } else { nil } }
  }

  /// The locations of expressions that call `urlEncode(...)` for a part of their text, although the whole text is
  /// encoded for the URL.
  var encodedTwice: [SourceLocation] {
    parts.compactMap { part in
      if case .expression(let syntax) = part, syntax.tree.encodesTwice { return syntax.text.location }
      return nil
    }
  }

  /// Resolves the expressions; any type is allowed except functions' own.
  package func check(
    in scope: ExpressionScope, into diagnostics: inout Diagnostics
  ) -> CheckedTemplate? {
    var checked: [CheckedTemplate.Part] = []
    var failed = false
    for part in parts {
      switch part {
      case .text(let bytes, let shown): checked.append(.text(bytes, shown: shown))
      case .expression(let syntax):
        if let expression = syntax.check(in: scope, expecting: nil, into: &diagnostics) {
          checked.append(.expression(expression))
        } else {
          failed = true
        }
      }
    }
    return failed ? nil : CheckedTemplate(text: text, parts: checked)
  }
}

/// A template with checked expressions.
package struct CheckedTemplate: Sendable {
  enum Part: Sendable {
    case text([UInt8], shown: [UInt8])
    case expression(CheckedExpression)
  }

  package let text: LocatedText
  let parts: [Part]

  /// Whether it contains no expression, so that its text is constant.
  package var isConstant: Bool { expressions.isEmpty }

  package var expressions: [CheckedExpression] {
    parts.compactMap { if case .expression(let expression) = $0 { return expression } else { return nil } }
  }

  package var reads: [ReadPath] { expressions.flatMap(\.reads) }

  package func compile(projection: Projection? = nil) -> TemplateProgram {
    var shown: [TemplateProgram.Part] = []
    let programs = parts.map { part -> TemplateProgram.Part in
      switch part {
      case .text(let bytes, let masked):
        shown.append(.text(masked))
        return .text(bytes)
      case .expression(let expression):
        let program = TemplateProgram.Part.program(expression.compile(projection: projection))
        shown.append(expression.isSecret ? .text(Array(LocatedText.mask.utf8)) : program)
        return program
      }
    }
    return TemplateProgram(
      programs,
      shown: text.isSecret || expressions.contains(where: \.isSecret)
        ? TemplateProgram(
          shown, insertions: expressions.filter { !$0.isSecret }.map(\.syntax.tree.urlInsertion)) : nil,
      insertions: expressions.map(\.syntax.tree.urlInsertion))
  }
}

/// A compiled template: immutable, shared between threads.
package final class TemplateProgram: Sendable {
  enum Part: Sendable {
    case text([UInt8])
    case program(Program)
  }

  private let parts: [Part]
  private let masked: TemplateProgram?
  /// How the text of each expression goes into a URL, in order.
  let insertions: [URLInsertion]

  /// `shown`: the same template with `(secret)` in place of secrets; nil if it contains none.
  init(_ parts: [Part], shown: TemplateProgram? = nil, insertions: [URLInsertion] = []) {
    self.parts = parts
    masked = shown
    self.insertions = insertions
  }

  /// Renders the text for logs.
  var shown: TemplateProgram { masked ?? self }

  /// Whether it contains no expression, so that its text is constant.
  package var isConstant: Bool {
    parts.allSatisfy { if case .text = $0 { return true } else { return false } }
  }

  /// Appends the text; returns nil, or the error of the failed expression. Text appended before the failure stays.
  ///
  /// Texts are inserted literally, bools and times as by `string(...)`, null as nothing, numbers, lists and maps as
  /// JSON: unchanged numbers keep their spelling, others are written without an exponent.
  package func render(_ frame: EvaluationFrame, into buffer: OutputBuffer) -> Value? {
    render(frame, into: buffer) { _ in }
  }

  /// Appends the text and records the inserted ranges.
  ///
  /// - Parameter inserted: Receives the range of the buffer that each expression has filled.
  @inline(__always)
  func render(
    _ frame: EvaluationFrame, into buffer: OutputBuffer, inserted: (Range<Int>) -> Void
  ) -> Value? {
    let context = Context(state: frame.state)
    for part in parts {
      switch part {
      case .text(let bytes): buffer.append(bytes)
      case .program(let program):
        let value = program.evaluate(frame)
        if value.isError { return value }
        let start = buffer.count
        if let error = ValueText.render(value, into: buffer, context) { return error }
        inserted(start..<buffer.count)
      }
    }
    return nil
  }

  /// Why rendering failed, from the expression that failed.
  package func failureMessage(_ error: Value, _ frame: EvaluationFrame) -> String {
    for case .program(let program) in parts {
      let again = program.evaluate(frame)
      let failure = again.isError ? again : ValueText.render(again, into: OutputBuffer(), Context(state: frame.state))
      if let failure, failure.aux == error.aux { return program.failureMessage(failure, frame) }
    }
    return "the template cannot be filled"
  }
}

extension ValueText {
  /// Appends the value's text in a template; an error if it has none.
  static func render(_ value: Value, into buffer: OutputBuffer, _ context: Context) -> Value? {
    switch value.what {
    case .null, .absent: return nil
    case .optional:
      guard let wrapped = value.wrapped else { return nil }
      return render(wrapped, into: buffer, context)
    case .list, .map, .jsonList, .jsonMap:
      guard let failure = JSONWriter.append(value, to: buffer) else { return nil }
      return context.failure(.invalidArgument, .absent, text: failure.description)
    case .error: return value
    case .double where value.asDouble.isFinite || value.hasNumberText:
      JSONWriter.append(value, to: buffer)
      return nil
    default:
      return append(value, to: buffer, context) ? nil : context.noOverload("string", value)
    }
  }
}

extension String {
  /// The text without surrounding spaces.
  fileprivate var trimmed: String {
    var view = Substring(self)
    while view.first == " " { view.removeFirst() }
    while view.last == " " { view.removeLast() }
    return String(view)
  }
}
