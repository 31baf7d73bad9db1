/// A compiled ``LineJoining/Rule``.
struct LineRule {
  private let pattern: Pattern?
  private let isIndentation: Bool
  /// Whether the rule tests the line after a possible boundary rather than the line before it.
  let looksAhead: Bool
  /// Whether a line that matches, or is indented, means that there is no boundary.
  let matchJoins: Bool

  init(_ rule: LineJoining.Rule) throws(CodecFailure) {
    pattern = try rule.pattern.map { text throws(CodecFailure) in try Self.compile(text, rule.name) }
    switch rule {
    case .start: (looksAhead, matchJoins) = (true, false)
    case .continuation, .indented: (looksAhead, matchJoins) = (true, true)
    case .end: (looksAhead, matchJoins) = (false, false)
    case .wrapped: (looksAhead, matchJoins) = (false, true)
    }
    isIndentation = rule == .indented
  }

  /// Compiles the pattern of the parameter `name`.
  static func compile(_ pattern: String, _ name: String) throws(CodecFailure) -> Pattern {
    let text = Array(pattern.utf8)
    guard !text.isEmpty, text.count <= RegexDecoding.patternLimit else {
      throw CodecFailure(
        option: name,
        message: text.isEmpty
          ? "the pattern of '\(name)' is empty, so every line matches"
          : "the pattern is longer than \(RegexDecoding.patternLimit) bytes")
    }
    let compiled = text.withUnsafeBytes { Pattern($0) }
    if let failure = compiled.failure {
      throw CodecFailure(
        option: name, message: "the pattern does not compile: \(failure.reason)", offset: failure.offset,
        help: PatternAdvice.help(text, failure.reason, inExpression: false))
    }
    return compiled
  }

  /// Whether a line, given without its line end, matches.
  func matches(_ line: UnsafeRawBufferPointer) -> Bool {
    if isIndentation { return line.first == 0x20 || line.first == 0x09 }
    return pattern?.matches(line) ?? false
  }
}
