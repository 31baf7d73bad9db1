extension LocatedText {
  /// The text with each inserted value replaced by letters, which have no syntactic meaning; of the same length.
  var neutral: [UInt8] {
    var bytes = text
    for insertion in insertions where !Array(text[insertion]).hasBraces {
      for at in insertion { bytes[at] = UInt8(ascii: "a") }
    }
    return bytes
  }

  /// The text of the expression with its values inserted as numbers, literals, or characters of quoted texts. A value,
  /// whatever it contains, can never change the structure; nil, with a diagnostic, if it would.
  func withInsertedValues(into diagnostics: inout Diagnostics) -> LocatedText? {
    guard !insertions.isEmpty else { return self }
    var bytes = text
    for insertion in insertions { for at in insertion { bytes[at] = UInt8(ascii: "a") } }
    var lexer = ExpressionLexer(bytes)
    var result = self
    (result.text, result.offsets, result.insertions, result.secrets) = ([], [], [], [])
    var secrets = secrets[...]
    var at = 0
    func copy(to end: Int) {
      while let secret = secrets.first, secret.lowerBound < end {
        let start = result.text.count + secret.lowerBound - at
        result.secrets.append(start..<start + min(secret.upperBound, end) - secret.lowerBound)
        secrets.removeFirst()
      }
      result.text += text[at..<end]
      result.offsets += offsets[at..<end]
      at = end
    }
    var token = (start: 0, end: 0)
    for insertion in insertions {
      while token.end < insertion.upperBound {
        do throws(SyntaxError) {
          let (next, start) = try lexer.next()
          token = (start, lexer.position)
          if case .end = next { break }
        } catch {
          diagnostics.report(
            Diagnostic(error.code, error.message, at: location(error.start, error.end), help: error.help))
          return nil
        }
      }
      copy(to: insertion.lowerBound)
      let value = Array(text[insertion])
      var written: [UInt8]?
      let head = bytes[token.start..<max(token.start, min(insertion.lowerBound, token.end))]
      if let quote = head.first(where: { $0 == 0x27 || $0 == 0x22 }), token.end <= bytes.count,
        token.end > insertion.upperBound, head.prefix(while: { $0 != quote }).allSatisfy(ASCII.isLetterOrUnderscore)
      {
        let isRaw = head.prefix { $0 != quote }.contains { $0 | 0x20 == UInt8(ascii: "r") }
        written = isRaw ? (value.contains { $0 == quote || $0 < 0x20 } ? nil : value) : Self.quoted(value, quote)
        if written == nil {
          diagnostics.report(
            Diagnostic(
              .outOfRange, "a text with its surrounding quote or a control character cannot be a part of a raw text",
              at: location(insertion.lowerBound, insertion.upperBound), help: "Remove the 'r' before the quotes"))
          return nil
        }
      } else if Self.isLiteral(value) {
        written = value
      }
      guard let written else {
        diagnostics.report(
          Diagnostic(
            .outOfRange, "a text may be inserted only within a quoted text of an expression",
            at: location(insertion.lowerBound, insertion.upperBound),
            help: "Write '$(NAME)' in quotes, or give the parameter the type expression"))
        return nil
      }
      let start = result.text.count
      result.text += written
      result.offsets += repeatElement(offsets[insertion.lowerBound], count: written.count)
      result.insertions.append(start..<result.text.count)
      at = insertion.upperBound
      while let secret = secrets.first, secret.lowerBound < at {
        result.secrets.append(start..<result.text.count)
        secrets.removeFirst()
      }
    }
    copy(to: text.count)
    result.offsets += offsets.suffix(1)
    return result
  }

  /// Whether a value is a number, a bool or null, and nothing else.
  private static func isLiteral(_ value: [UInt8]) -> Bool {
    var lexer = ExpressionLexer(value.first == UInt8(ascii: "-") ? Array(value.dropFirst()) : value)
    guard let (token, start) = try? lexer.next(), start == 0, lexer.position == lexer.bytes.count else { return false }
    switch token {
    case .number, .double: return true
    case .name(let name): return ["true", "false", "null"].contains(name)
    default: return false
    }
  }

  /// The characters of a text between `quote`, with escapes.
  private static func quoted(_ value: [UInt8], _ quote: UInt8) -> [UInt8] {
    value.flatMap { byte -> [UInt8] in
      switch byte {
      case quote, UInt8(ascii: "\\"): [UInt8(ascii: "\\"), byte]
      case 0x00..<0x20, 0x7F:
        Array("\\x".utf8) + [byte >> 4, byte & 15].map { $0 < 10 ? 0x30 + $0 : 0x61 + $0 - 10 }
      default: [byte]
      }
    }
  }
}

extension [UInt8] {
  fileprivate var hasBraces: Bool {
    zip(self, dropFirst()).contains { $0 == (0x7B, 0x7B) || $0 == (0x7D, 0x7D) }
  }
}
