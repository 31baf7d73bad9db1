extension FunctionRegistry {
  /// Patterns in RE2's syntax, based on CEL's regex extension.
  static let regex: [FunctionSpec] = [
    FunctionSpec(
      "regex.replace", "The text with the matches replaced, all or a limited number; \\\\1 stands for group 1.",
      [
        .global([.string, .string, .string], .string, prepare: prepared { replace($0, limit: -1, $1) }) {
          replace($0, limit: -1)
        },
        .global([.string, .string, .string, .int], .string, prepare: prepared { replace($0, limit: $0[3].asInt, $1) }) {
          replace($0, limit: $0[3].asInt)
        },
      ], examples: [("regex.replace('a1b22', r'[0-9]+', '#')", "'a#b#'")]),
    FunctionSpec(
      "regex.extract", "The first match as an optional: its group if the pattern has one, else the whole match.",
      [
        .global([.string, .string], .optional(.string), prepare: prepared { extract($0, $1) }) { extract($0) }
      ], examples: [("regex.extract('id=42', r'id=(\\d+)').value()", "'42'")]),
    FunctionSpec(
      "regex.extractAll", "All matches: their group if the pattern has one, else the whole match.",
      [
        .global([.string, .string], .list(.string), prepare: prepared { extractAll($0, $1) }) { extractAll($0) }
      ], examples: [("regex.extractAll('a1b22', r'\\d+')", "['1', '22']")]),
  ]

  /// A constant pattern is compiled once.
  private static func prepared(
    _ body: @escaping @Sendable (Arguments, Pattern) -> Value
  ) -> FunctionOverload.Prepare {
    { constants in
      guard let source = constants[1], source.is(.string), source.flags == 0 else { return .none }
      let pattern = Pattern(source.rawBytes)
      // `check` reports an invalid pattern at its location, so this need not.
      return pattern.failure == nil ? .body { body($0, pattern) } : .none
    }
  }

  private static func extract(_ arguments: Arguments, _ known: Pattern? = nil) -> Value {
    var first: Value?
    let failure = matches(arguments, known) {
      first = $0
      return false
    }
    return failure ?? arguments.context.arena.optional(first)
  }

  private static func extractAll(_ arguments: Arguments, _ known: Pattern? = nil) -> Value {
    var all: [Value] = []
    let failure = matches(arguments, known) {
      all.append($0)
      return true
    }
    return failure ?? arguments.context.arena.list(all)
  }

  private static func pattern(_ arguments: Arguments, _ known: Pattern?) -> (pattern: Pattern?, failure: Value) {
    if let known { return (known, .absent) }
    let source = arguments[1].rawBytes
    guard source.count <= ExpressionLimits.patternBytes else {
      return (nil, arguments.context.failure(.tooLarge))
    }
    let pattern = arguments.context.frame.pattern(source)
    if let failure = pattern.failure {
      return (nil, arguments.context.failure(.badPattern, .absent, text: failure.reason))
    }
    return (pattern, .absent)
  }

  /// Calls `body` with each match until it returns false; an error if the pattern is invalid.
  private static func matches(
    _ arguments: Arguments, _ known: Pattern?, _ body: (Value) -> Bool
  ) -> Value? {
    let (compiled, failure) = pattern(arguments, known)
    guard let compiled else { return failure }
    guard compiled.groupCount <= 1 else {
      return arguments.context.failure(
        .invalidArgument, .absent, "the pattern has more than one group; write (?:...) for the others")
    }
    let text = arguments[0].rawBytes
    var groups = [Int](repeating: -1, count: 2 * (compiled.groupCount + 1))
    var at = 0
    while at <= text.count, compiled.find(text, from: at, into: &groups) {
      let group = compiled.groupCount * 2
      if groups[group] >= 0 {
        let part = arguments.context.slice(arguments[0], groups[group]..<groups[group + 1])
        if !body(part) { return nil }
      }
      at = groups[1] > groups[0] ? groups[1] : groups[1] + step(text, groups[1])
    }
    return nil
  }

  private static func step(_ text: UnsafeRawBufferPointer, _ at: Int) -> Int {
    at < text.count ? CodePoints.length(at: at, in: text) : 1
  }

  private static func replace(_ arguments: Arguments, limit: Int64, _ known: Pattern? = nil) -> Value {
    let (compiled, failure) = pattern(arguments, known)
    guard let compiled else { return failure }
    let text = arguments[0].rawBytes
    let replacement = arguments[2].rawBytes
    if let bad = badReference(replacement, compiled.groupCount) {
      return arguments.context.failure(.invalidArgument, .int(bad), "the pattern has no such group")
    }
    var left = limit < 0 ? Int64.max : limit
    var groups = [Int](repeating: -1, count: 2 * (compiled.groupCount + 1))
    return arguments.context.build { buffer in
      var at = 0
      var copied = 0
      while left > 0, at <= text.count, compiled.find(text, from: at, into: &groups) {
        buffer.append(UnsafeRawBufferPointer(rebasing: text[copied..<groups[0]]))
        expand(replacement, text, groups, buffer)
        copied = groups[1]
        at = groups[1] > groups[0] ? groups[1] : groups[1] + step(text, groups[1])
        left -= 1
        if buffer.count > ExpressionLimits.stringBytes { return }
      }
      if copied < text.count { buffer.append(UnsafeRawBufferPointer(rebasing: text[copied...])) }
    }
  }

  private static func badReference(_ replacement: UnsafeRawBufferPointer, _ count: Int) -> Int? {
    var at = 0
    while at + 1 < replacement.count {
      if replacement[at] == 0x5C {
        if ASCII.isDigit(replacement[at + 1]), Int(replacement[at + 1] - 0x30) > count {
          return Int(replacement[at + 1] - 0x30)
        }
        at += 1
      }
      at += 1
    }
    return nil
  }

  private static func expand(
    _ replacement: UnsafeRawBufferPointer, _ text: UnsafeRawBufferPointer, _ groups: [Int],
    _ buffer: OutputBuffer
  ) {
    var at = 0
    while at < replacement.count {
      let byte = replacement[at]
      at += 1
      guard byte == 0x5C, at < replacement.count else {
        buffer.append(byte)
        continue
      }
      let next = replacement[at]
      at += 1
      guard ASCII.isDigit(next) else {
        if next != 0x5C { buffer.append(0x5C) }
        buffer.append(next)
        continue
      }
      let group = Int(next - 0x30) * 2
      if group + 1 < groups.count, groups[group] >= 0 {
        buffer.append(UnsafeRawBufferPointer(rebasing: text[groups[group]..<groups[group + 1]]))
      }
    }
  }
}
