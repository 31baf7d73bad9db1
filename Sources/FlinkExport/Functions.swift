import PipelineCore

/// Functions that mean exactly the same in Flink SQL.
extension ExpressionTranslator {
  func call(_ name: String, _ arguments: [TypedExpression], _ expression: TypedExpression) throws(Refusal) -> SQLValue {
    switch (name, arguments.count) {
    case ("orValue", 2): return try orValue(arguments[0], arguments[1], expression)
    case ("optional.ofNonNull", 1), ("optional.try", 1):
      throw refusal(
        expression, "the optional may have no value, and a column has no optionals", "End with '.orValue(...)'")
    case ("hasValue", 1):
      let value = try optional(arguments[0])
      return SQLValue(
        text: value.null == .never ? "TRUE" : "\(value.operand) IS NOT NULL", type: .boolean, isPrimary: false)
    case ("regex.extract", 2): return try extraction(arguments[0], arguments[1], expression)
    case ("split", 2):
      throw refusal(
        expression, "a list of parts is not exported", "Read one part, 'split(...)[1]', or their number, 'size(...)'")
    default: break
    }
    var values: [SQLValue] = []
    for argument in arguments.prefix(3) {
      // Lists and null are literals of single functions only.
      if case .list = argument.form { throw unknown(name, expression) }
      if case .call("split", let parts) = argument.form, name == "size", parts.count == 2 {
        return try numberOfParts(parts[0], parts[1], argument)
      }
      let value = try self.value(argument)
      try isPresent(value, argument)
      if name != value.type.shown { try isTyped(value, argument) }
      values.append(value)
    }
    guard let first = values.first else { throw unknown(name, expression) }
    let types = values.map(\.type)
    func result(_ text: String, _ type: FlinkType, range: ClosedRange<Int64> = Int64.min...Int64.max) -> SQLValue {
      SQLValue(text: text, type: type, null: values.allSatisfy { $0.null == .never } ? .never : .failure, range: range)
    }
    switch (name, types) {
    case ("size", [.string]): return result("CAST(CHAR_LENGTH(\(first.text)) AS BIGINT)", .bigint, range: 0...(1 << 31))
    case ("string", [.string]), ("int", [.bigint]), ("double", [.double]), ("timestamp", [.timestamp]):
      var same = first
      if same.null == .value {
        same.null = .failure
        same.isColumn = false
      }
      return same
    case ("string", [.bigint]): return result("CAST(\(first.text) AS STRING)", .string)
    case ("string", [.boolean]): return result("LOWER(CAST(\(first.text) AS STRING))", .string)
    case ("double", [.bigint]): return result("CAST(\(first.text) AS DOUBLE)", .double)
    case ("int", [.timestamp]):
      // Seconds are rounded down, also before 1970.
      return result(
        "EXTRACT(EPOCH FROM FLOOR(\(first.text) TO SECOND))", .bigint, range: -62_135_596_800...253_402_300_799)
    case ("timestamp", [.string]):
      guard case .string(let text) = arguments[0].form, let literal = Self.moment(text) else {
        throw refusal(
          expression, "rxd reads RFC 3339 with any offset, and Flink times without one",
          "Declare the field as 'timestamp' in 'schema', or write a literal such as timestamp('2026-01-31T12:00:00Z')")
      }
      return result(literal, .timestamp)
    case ("startsWith", [.string, .string]): return result("STARTSWITH(\(first.text), \(values[1].text))", .boolean)
    case ("endsWith", [.string, .string]): return result("ENDSWITH(\(first.text), \(values[1].text))", .boolean)
    case ("contains", [.string, .string]):
      var found = result("POSITION(\(values[1].operand) IN \(first.operand)) > 0", .boolean)
      found.isPrimary = false
      return found
    case ("lowerAscii", [.string]): return result(Self.letters(first.text, to: "a"), .string)
    case ("upperAscii", [.string]): return result(Self.letters(first.text, to: "A"), .string)
    case ("replace", [.string, .string, .string]):
      guard case .string(let sought) = arguments[1].form, !sought.isEmpty else {
        throw refusal(
          expression, "'replace' is exported for a literal that is not empty", "Write the text to be replaced")
      }
      return result("REPLACE(\(first.text), \(values[1].text), \(values[2].text))", .string)
    case ("matches", [.string, .string]):
      return result("REGEXP(\(first.text), \(try pattern(arguments[1], expression)))", .boolean)
    case ("formatTime", [.timestamp, .string]):
      guard case .string(let text) = arguments[1].form, let format = Self.timeFormat(text) else {
        throw refusal(
          expression, "this form of time has no equivalent in Flink SQL",
          "Use %Y, %m, %d, %H, %M, %S, %F and %T, in UTC")
      }
      return result("DATE_FORMAT(\(first.text), \(SQLText.literal(format)))", .string)
    case (_, [.timestamp]):
      guard let part = Self.parts[name] else { throw unknown(name, expression) }
      // EXTRACT is wrong for times before 1970 with fractions of a second.
      var extracted = result("CAST(DATE_FORMAT(\(first.text), '\(part.unit)') AS BIGINT)", .bigint, range: part.range)
      if part.isFromZero {
        extracted.text += " - 1"
        extracted.isPrimary = false
        extracted.range = 0...(part.range.upperBound - 1)
      }
      return extracted
    default: throw unknown(name, expression)
    }
  }

  private func unknown(_ name: String, _ expression: TypedExpression) -> Refusal {
    let help =
      Self.remedies[name]
      ?? "Compute it in rxd, before the exported part"
    return refusal(expression, "'\(name)' has no exact equal in Flink SQL for these arguments", help)
  }

  private static let remedies = [
    "trim": "rxd trims all of Unicode's white space, Flink spaces: trim before the exported part",
    "lower": "Use 'lowerAscii', whose letters are the same in both",
    "upper": "Use 'upperAscii', whose letters are the same in both",
    "int": "rxd refuses anything but whole numbers, Flink rounds or trims it: declare the field as int",
    "double": "rxd and Flink read different texts as numbers: declare the field as double",
    "string": "rxd and Flink write doubles and times in different ways: keep the number or the time",
    "substring": "rxd fails beyond the end of a text, Flink cuts: compute it before the exported part",
    "format": "Concatenate with '+'",
    "getHours": "Only UTC is exported: leave the time zone out, or compute the hour before the exported part",
  ]

  // MARK: Optionals

  /// An optional, represented by NULL if it has no value.
  private func optional(_ expression: TypedExpression) throws(Refusal) -> SQLValue {
    switch expression.form {
    case .call("optional.ofNonNull", let arguments) where arguments.count == 1:
      var value = try self.value(arguments[0])
      if value.null == .failure {
        throw refusal(
          arguments[0], "the evaluation may fail, and SQL has one NULL for a failure and for a null",
          "Use 'optional.try(...)', which is empty in both cases")
      }
      if value.null == .value { value.null = .nothing }
      return value
    case .call("optional.try", let arguments) where arguments.count == 1:
      var value = try self.value(arguments[0])
      if value.null == .value {
        throw refusal(
          arguments[0], "the value may be null, which 'optional.try' keeps", "Use 'optional.ofNonNull(...)'")
      }
      if value.null == .failure { value.null = .nothing }
      return value
    case .call("regex.extract", _): return try value(expression)
    case .select(let target, let field, true):
      // A field that is always there.
      if case .object(let shape, nil) = try operand(target), let found = shape.field(field), found.value.null == .never
      {
        return found.value
      }
      throw refusal(
        expression, "'.?\(field)' distinguishes an absent field from null, and a table has only NULL",
        "Write 'optional.ofNonNull(event.\(field))'")
    default:
      throw refusal(expression, "this optional has no equivalent in Flink SQL", "Use 'optional.ofNonNull(...)'")
    }
  }

  private func orValue(
    _ target: TypedExpression, _ other: TypedExpression, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    let value = try optional(target)
    if value.null == .never { return value }
    if case .null = other.form {
      var value = value
      value.null = .value
      return value
    }
    let instead = try self.value(other)
    try isPresent(instead, other)
    guard instead.type == value.type else {
      throw refusal(
        other, "the value is a \(value.type.shown) and this a \(instead.type.shown), and a column has one type",
        "Use a value of the same type")
    }
    return SQLValue(
      text: "COALESCE(\(value.text), \(instead.text))", type: value.type, null: instead.null,
      range: min(
        value.range.lowerBound, instead.range.lowerBound)...max(value.range.upperBound, instead.range.upperBound))
  }

  // MARK: Texts

  private static func letters(_ text: String, to first: Character) -> String {
    let (upper, lower) = ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
    return "TRANSLATE(\(text), '\(first == "a" ? upper : lower)', '\(first == "a" ? lower : upper)')"
  }

  /// `event.s.split('/')[1]`.
  func element(_ list: TypedExpression, _ index: TypedExpression, _ expression: TypedExpression) throws(Refusal)
    -> SQLValue
  {
    guard case .call("split", let arguments) = list.form, arguments.count == 2, case .int(let number) = index.form,
      0...100_000 ~= number
    else {
      throw refusal(
        expression, "an element is exported only of 'split' with a number",
        "Compute it in rxd, before the exported part")
    }
    let separator = try self.separator(arguments[1])
    let text = try value(arguments[0])
    guard text.type == .string else { throw refusal(arguments[0], "'split' takes a text", "Use a string") }
    try isPresent(text, arguments[0])
    let part = "SPLIT_INDEX(\(text.text), \(separator), \(number))"
    // Flink divides the empty text into no parts.
    return SQLValue(
      text: number > 0 ? part : "CASE WHEN \(text.operand) = '' THEN '' ELSE \(part) END", type: .string,
      null: number > 0 ? .failure : failure(text))
  }

  /// The number of parts.
  private func numberOfParts(
    _ text: TypedExpression, _ separator: TypedExpression, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    let mark = try self.separator(separator)
    let value = try self.value(text)
    guard value.type == .string else { throw refusal(text, "'split' takes a text", "Use a string") }
    try isPresent(value, text)
    return SQLValue(
      text: "CAST(CHAR_LENGTH(\(value.text)) - CHAR_LENGTH(REPLACE(\(value.text), \(mark), '')) + 1 AS BIGINT)",
      type: .bigint, null: failure(value), range: 1...(1 << 31))
  }

  /// One ASCII character, so that both languages split alike.
  private func separator(_ expression: TypedExpression) throws(Refusal) -> String {
    guard case .string(let text) = expression.form, text.utf8.count == 1, let byte = text.utf8.first,
      0x20..<0x7F ~= byte
    else {
      throw refusal(expression, "'split' is exported for a separator of one ASCII character", "Write it as a literal")
    }
    return SQLText.literal(text)
  }

  private func extraction(
    _ text: TypedExpression, _ pattern: TypedExpression, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    let value = try self.value(text)
    guard value.type == .string else { throw refusal(text, "'regex.extract' takes a text", "Use a string") }
    if value.null != .never {
      throw refusal(
        text, "the text may be null, and SQL has one NULL for a failure and for a text that does not match",
        "Filter before this step")
    }
    let written = try self.pattern(pattern, expression)
    let groups = written.utf8.count { $0 == UInt8(ascii: "(") }
    guard groups <= 1 else {
      throw refusal(pattern, "'regex.extract' takes a pattern with at most one group", "Remove a group")
    }
    return SQLValue(text: "REGEXP_EXTRACT(\(value.text), \(written), \(groups))", type: .string, null: .nothing)
  }

  /// A pattern whose matches are the same in RE2 and in Java: ASCII texts, sets of ASCII characters, `*`, `+`, `?`, one
  /// level of groups that always take part, and `^` at the start.
  private func pattern(_ pattern: TypedExpression, _ expression: TypedExpression) throws(Refusal) -> String {
    guard case .string(let text) = pattern.form, Self.isCommonPattern(Array(text.utf8)) else {
      throw refusal(
        pattern, "RE2 and Java's regular expressions may match differently here",
        "Use letters, digits, sets such as [a-z] or [^&], '*', '+', '?' and one group; or 'contains', 'startsWith', 'split'"
      )
    }
    return SQLText.literal(text)
  }

  private static func isCommonPattern(_ text: [UInt8]) -> Bool {
    let plain = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_ =/:,;&%@#<>\"!~'-".utf8)
    var at = text.first == UInt8(ascii: "^") ? 1 : 0
    var isInGroup = false
    while at < text.count {
      var isRepeatable = true
      switch text[at] {
      case let byte where plain.contains(byte): at += 1
      case UInt8(ascii: "["):
        at += 1
        if at < text.count, text[at] == UInt8(ascii: "^") { at += 1 }
        let start = at
        while at < text.count, plain.contains(text[at]),
          !"&-~".utf8.contains(text[at]) || at == start || isRange(text, at) || isSingle(text, at)
        {
          at += 1
        }
        guard at > start, at < text.count, text[at] == UInt8(ascii: "]") else { return false }
        at += 1
      case UInt8(ascii: "(") where !isInGroup && at + 1 < text.count && text[at + 1] != UInt8(ascii: "?"):
        isInGroup = true
        at += 1
        isRepeatable = false
      case UInt8(ascii: ")") where isInGroup:
        isInGroup = false
        at += 1
        isRepeatable = false
      default: return false
      }
      if isRepeatable, at < text.count, "*+?".utf8.contains(text[at]) { at += 1 }
    }
    return !isInGroup && !text.isEmpty
  }

  /// Whether a hyphen within a set lies between two letters or digits.
  private static func isRange(_ text: [UInt8], _ at: Int) -> Bool {
    guard text[at] == UInt8(ascii: "-"), at + 1 < text.count else { return false }
    let letters = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789".utf8)
    return letters.contains(text[at - 1]) && letters.contains(text[at + 1]) && text[at - 1] < text[at + 1]
  }

  /// Whether an ampersand or tilde within a set is not doubled: Java intersects sets by `&&`.
  private static func isSingle(_ text: [UInt8], _ at: Int) -> Bool {
    text[at] != UInt8(ascii: "-") && text[at - 1] != text[at]
  }

  // MARK: Times

  /// The parts of times in UTC, by their letters in DATE_FORMAT.
  private static let parts: [String: (unit: String, range: ClosedRange<Int64>, isFromZero: Bool)] = [
    "getFullYear": ("yyyy", 1...9999, false), "getMonth": ("MM", 1...12, true), "getDate": ("dd", 1...31, false),
    "getDayOfMonth": ("dd", 1...31, true), "getHours": ("HH", 0...23, false), "getMinutes": ("mm", 0...59, false),
    "getSeconds": ("ss", 0...59, false),
  ]

  /// `2026-01-31T12:00:00Z` as a literal.
  private static func moment(_ text: String) -> String? {
    guard let match = text.wholeMatch(of: /(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d(\.\d{1,9})?)Z/) else { return nil }
    return "CAST(TIMESTAMP '\(match.1) \(match.2)' AS TIMESTAMP_LTZ(9))"
  }

  /// A format of `formatTime` in Java's pattern letters; nil: it cannot be expressed.
  private static func timeFormat(_ text: String) -> String? {
    guard text.contains("%") else { return nil }
    var result = ""
    var characters = text[...]
    while let character = characters.popFirst() {
      switch character {
      case "%":
        switch characters.popFirst() {
        case "Y": result += "yyyy"
        case "m": result += "MM"
        case "d": result += "dd"
        case "H": result += "HH"
        case "M": result += "mm"
        case "S": result += "ss"
        case "F": result += "yyyy-MM-dd"
        case "T": result += "HH:mm:ss"
        default: return nil
        }
      case "-", ":", " ", "/", ".", ",", "_": result.append(character)
      default:
        guard character.isASCII, character.isLetter else { return nil }
        result += "'\(character)'"
      }
    }
    return result
  }
}
