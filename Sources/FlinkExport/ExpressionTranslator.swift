import PipelineCore

/// The reason why a part of the file cannot be exported.
struct Refusal: Error {
  var message: String
  var help: String
  var location: SourceLocation
}

/// Translates expressions that mean exactly the same in Flink SQL, and refuses all others.
///
/// A failed evaluation becomes NULL: SQL's operators propagate it as CEL propagates an error, and AND and OR ignore it
/// in the same cases as `&&` and `||`. A step then drops rows in which such a value is NULL, as rxd drops events whose
/// evaluation fails. Where NULL could also be the value null, the expression is refused.
struct ExpressionTranslator {
  /// The meaning of a name.
  enum Operand {
    /// An object. `isNullIf`: the condition under which it is null instead; nil: never.
    case object(Shape, isNullIf: String?)
    case value(SQLValue)
  }

  var variables: [String: Operand]
  /// The key of the group.
  var keys: [SQLValue] = []
  /// The SQL of columns that are known not to be NULL, and of conditions that are known to be true, at the current
  /// expression.
  private var present: Set<String> = []
  /// The maximum length of an expression's SQL.
  private static let textLimit = 20_000

  init(_ variables: [String: Operand], keys: [SQLValue] = []) {
    self.variables = variables
    self.keys = keys
  }

  /// For expressions that read the columns of a relation as `event`.
  init(_ relation: Relation) {
    self.init(["event": .object(relation.shape, isNullIf: nil)], keys: relation.keys)
  }

  /// Translates an expression to one column.
  func value(_ expression: TypedExpression) throws(Refusal) -> SQLValue {
    switch try operand(expression) {
    case .value(var value):
      value.isUntyped = expression.type.isUnknown && (value.type == .timestamp || value.type == .double)
      if value.text.utf8.count > Self.textLimit {
        throw refusal(
          expression, "the expression has more than \(Self.textLimit) characters in SQL",
          "Compute a part of it in a 'set' before this step")
      }
      return value
    case .object(let shape, let isNullIf):
      var row = shape.value
      if let isNullIf {
        row = SQLValue(
          text: "CASE WHEN NOT (\(isNullIf)) THEN \(row.text) END", type: row.type, null: .value, isPrimary: false)
      }
      return row
    }
  }

  /// Translates an expression; objects keep their fields.
  func operand(_ expression: TypedExpression) throws(Refusal) -> Operand {
    switch expression.form {
    case .variable(let name): try variable(name, expression)
    case .select(let target, let field, false): try selection(target, field, expression)
    case .bind(let values, let body): try bound(values, body)
    default: .value(try computed(expression))
    }
  }

  func refusal(_ expression: TypedExpression, _ message: String, _ help: String) -> Refusal {
    Refusal(message: message, help: help, location: expression.location)
  }

  // MARK: Reading

  private func variable(_ name: String, _ expression: TypedExpression) throws(Refusal) -> Operand {
    if let known = variables[name] {
      switch known {
      case .value(let value): return .value(seen(value))
      case .object(let shape, let isNullIf):
        if case .leaf(let value) = shape { return .value(seen(value)) }
        return .object(shape, isNullIf: isNullIf.flatMap { present.contains($0) ? nil : $0 })
      }
    }
    switch name {
    case "now":
      throw refusal(
        expression, "'now' is the time of the turn in rxd, and Flink has none",
        "Use the event's own time, or leave what needs the clock to rxd")
    case "meta":
      throw refusal(
        expression, "'meta' says where rxd received the event, and a table does not have it",
        "Only 'meta.key' inside of 'groupBy' is exported; let rxd write other facts into the event")
    case "env":
      throw refusal(
        expression, "'env' is read when rxd starts, and a job of Flink does not see it",
        "Write ${NAME}, whose value becomes part of the export")
    default:
      throw refusal(expression, "'\(name)' has no equivalent in Flink SQL", "Leave this step to rxd")
    }
  }

  private func seen(_ value: SQLValue) -> SQLValue {
    guard value.null == .value, present.contains(value.text) else { return value }
    var value = value
    value.null = .never
    return value
  }

  private func selection(
    _ target: TypedExpression, _ field: String, _ expression: TypedExpression
  ) throws(Refusal) -> Operand {
    if case .variable("meta") = target.form, field == "key", variables["meta"] == nil {
      guard keys.count == 1 else {
        throw refusal(
          expression,
          keys.isEmpty ? "'meta.key' is read outside of 'groupBy'" : "'meta.key' is a list of \(keys.count) values",
          "Read a field of the event, or 'first(...)' of a part of the key")
      }
      return .value(keys[0])
    }
    switch try operand(target) {
    case .object(let shape, let isNullIf):
      guard let inner = shape.field(field) else {
        throw refusal(expression, "there is no field '\(field)'", "Declare it in 'schema'")
      }
      guard let isNullIf else {
        if case .leaf(let value) = inner { return .value(seen(value)) }
        return .object(inner, isNullIf: nil)
      }
      // The object may be null, and reading a field of null fails.
      guard case .leaf(var value) = inner, value.null == .never else {
        throw refusal(
          expression, "the object may be null, and so may its field: SQL has one NULL for a failure and for a null",
          "Compare with null first: 'other == null ? ... : ...'")
      }
      _ = isNullIf
      value.null = .failure
      return .value(value)
    case .value(let value):
      guard case .row(let fields) = value.type, let found = fields.first(where: { $0.name == field }) else {
        throw refusal(
          expression, "a field of a \(value.type.shown) has no equivalent in Flink SQL",
          "Declare it as an object in 'schema'")
      }
      if value.null != .never, found.isNullable {
        throw refusal(
          expression, "the object may be null, and so may its field: SQL has one NULL for a failure and for a null",
          "Compare the object with null first")
      }
      return .value(
        seen(
          SQLValue(
            text: "\(value.operand).\(SQLText.name(field))", type: found.type,
            null: value.null != .never ? .failure : found.isNullable ? .value : .never, isColumn: value.isColumn)))
    }
  }

  private func bound(_ values: [TypedExpression], _ body: TypedExpression) throws(Refusal) -> Operand {
    for value in values {
      // A failed value makes the whole expression fail, even if the body does not read it.
      guard case .value(let translated) = try operand(value) else { continue }
      if translated.null == .failure {
        throw refusal(
          value, "the bound value can fail, also where it is not read", "Write the value where it is used")
      }
    }
    return try operand(body)
  }

  // MARK: Computing

  private func computed(_ expression: TypedExpression) throws(Refusal) -> SQLValue {
    switch expression.form {
    case .null:
      throw refusal(expression, "null alone has no type, and a column has one", "Leave the field out")
    case .bool(let value): return SQLValue(text: value ? "TRUE" : "FALSE", type: .boolean)
    case .int(let value): return SQLValue(text: "CAST(\(value) AS BIGINT)", type: .bigint, range: value...value)
    case .double(let value): return SQLValue(text: SQLText.double(value), type: .double)
    case .string(let value): return SQLValue(text: try literal(value, expression), type: .string)
    case .logic(let terms, let isAnd): return try logic(terms, isAnd)
    case .not(let operand):
      let value = try boolean(operand)
      return SQLValue(text: "NOT \(value.operand)", type: .boolean, null: failure(value), isPrimary: false)
    case .negate(let operand): return try negation(operand)
    case .conditional(let condition, let yes, let no): return try choice(condition, yes, no, expression)
    case .binary(let symbol, let left, let right):
      switch symbol {
      case "==", "!=": return try equality(left, right, isEqual: symbol == "==", expression)
      case "<", "<=", ">", ">=": return try order(symbol, left, right, expression)
      case "in": return try membership(left, right, expression)
      default: return try arithmetic(symbol, left, right, expression)
      }
    case .call(let name, let arguments): return try call(name, arguments, expression)
    case .index(let list, let index, _): return try element(list, index, expression)
    case .has(let target, let field): return try presence(target, field, expression)
    case .select(_, let field, _):
      throw refusal(
        expression, "'.?\(field)' distinguishes an absent field from null, and a table has only NULL",
        "Write 'optional.ofNonNull(event.\(field)).orValue(...)'")
    case .variable, .bind:
      throw refusal(expression, "the expression has no equivalent in Flink SQL", "Leave this step to rxd")
    case .uint:
      throw refusal(expression, "Flink has no unsigned numbers", "Use an int")
    case .bytes: throw refusal(expression, "bytes have no equivalent in Flink SQL", "Use a string")
    case .list:
      throw refusal(expression, "a list that an expression makes is not exported", "Write its elements as fields")
    case .other(let what):
      throw refusal(
        expression, "\(what) has no equivalent in Flink SQL",
        what.hasPrefix("a row of a table") || what.hasPrefix("a key of a table")
          ? "Use 'join' with 'asOf: true' and the table's source as a signal with 'time'"
          : "Compute it in rxd, before the exported part")
    }
  }

  func literal(_ text: String, _ expression: TypedExpression) throws(Refusal) -> String {
    guard text.unicodeScalars.allSatisfy({ $0.value >= 0x20 && $0.value != 0x7F }) else {
      throw refusal(expression, "the text has control characters", "Compute it in rxd, before the exported part")
    }
    return SQLText.literal(text)
  }

  /// The meaning of NULL in the result of an operator that fails if an operand is null.
  func failure(_ values: SQLValue...) -> SQLValue.Null { values.allSatisfy { $0.null == .never } ? .never : .failure }

  func isPresent(_ value: SQLValue, _ expression: TypedExpression) throws(Refusal) {
    if value.null == .nothing {
      throw refusal(expression, "the optional may have no value", "End with '.orValue(...)'")
    }
  }

  /// Refuses a value whose type Flink knows and rxd does not.
  func isTyped(_ value: SQLValue, _ expression: TypedExpression) throws(Refusal) {
    if value.isUntyped {
      throw refusal(
        expression, "rxd does not know that this is a \(value.type.shown), and takes what JSON has",
        "Write '\(value.type.shown)(...)' around it")
    }
  }

  func boolean(_ expression: TypedExpression) throws(Refusal) -> SQLValue {
    let value = try self.value(expression)
    guard value.type == .boolean else {
      throw refusal(expression, "a condition is needed, and this is a \(value.type.shown)", "Compare it with something")
    }
    try isPresent(value, expression)
    return value
  }

  private func logic(_ terms: [TypedExpression], _ isAnd: Bool) throws(Refusal) -> SQLValue {
    var values: [SQLValue] = []
    for term in terms { values.append(try boolean(term)) }
    return SQLValue(
      text: values.map(\.term).joined(separator: isAnd ? " AND " : " OR "), type: .boolean,
      null: values.allSatisfy { $0.null == .never } ? .never : .failure, isPrimary: false, isLogic: true)
  }

  private func negation(_ operand: TypedExpression) throws(Refusal) -> SQLValue {
    let value = try self.value(operand)
    try isTyped(value, operand)
    switch value.type {
    case .double: return SQLValue(text: "-\(value.operand)", type: .double, null: failure(value), isPrimary: false)
    case .bigint:
      return try arithmetic(
        "-", SQLValue(text: "CAST(0 AS BIGINT)", type: .bigint, range: 0...0), value, operand)
    default: throw refusal(operand, "'-' of a \(value.type.shown) has no equivalent in Flink SQL", "Use a number")
    }
  }

  private func choice(
    _ condition: TypedExpression, _ yes: TypedExpression, _ no: TypedExpression, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    let test = try boolean(condition)
    let (whenYes, whenNo) = known(by: condition)
    var results: [SQLValue?] = []
    for (branch, facts) in [(yes, whenYes), (no, whenNo)] {
      if case .null = branch.form {
        results.append(nil)
        continue
      }
      var inner = self
      inner.present.formUnion(facts)
      let value = try inner.value(branch)
      try isPresent(value, branch)
      results.append(value)
    }
    guard let some = results[0] ?? results[1] else {
      throw refusal(expression, "null alone has no type, and a column has one", "Leave the field out")
    }
    if let a = results[0], let b = results[1], a.type != b.type {
      throw refusal(
        expression, "one branch is a \(a.type.shown) and the other a \(b.type.shown), and a column has one type",
        "Convert one of them: 'string(...)', 'double(...)'")
    }
    let kinds = results.map { $0?.null ?? .value } + (test.null == .never ? [] : [.failure])
    if kinds.contains(.value), kinds.contains(.failure) {
      throw refusal(
        expression, "the result may be null, and its evaluation may fail: SQL has one NULL for both",
        "Use a value other than null, or filter before this step")
    }
    let texts = results.map { $0?.text ?? "CAST(NULL AS \(some.type.sql))" }
    // A condition that fails makes the result fail.
    let otherwise = test.null == .never ? "ELSE" : "WHEN NOT \(test.operand) THEN"
    let ranges = results.compactMap { $0?.range }
    return SQLValue(
      text: "CASE WHEN \(test.text) THEN \(texts[0]) \(otherwise) \(texts[1]) END", type: some.type,
      null: kinds.contains(.failure) ? .failure : kinds.contains(.value) ? .value : .never,
      range: (ranges.map(\.lowerBound).min() ?? .min)...(ranges.map(\.upperBound).max() ?? .max))
  }

  /// The SQL known not to be NULL where a condition is true, and where it is false.
  private func known(by condition: TypedExpression) -> (yes: Set<String>, no: Set<String>) {
    guard case .binary(let symbol, let left, let right) = condition.form, symbol == "==" || symbol == "!=" else {
      return ([], [])
    }
    let compared: TypedExpression
    if case .null = right.form {
      compared = left
    } else if case .null = left.form {
      compared = right
    } else {
      return ([], [])
    }
    let texts: Set<String> =
      switch try? operand(compared) {
      case .value(let value) where value.isColumn: [value.text]
      case .object(_, let isNullIf?): [isNullIf]
      default: []
      }
    return symbol == "==" ? ([], texts) : (texts, [])
  }

  // MARK: Comparing

  private func equality(
    _ left: TypedExpression, _ right: TypedExpression, isEqual: Bool, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    for (side, other) in [(left, right), (right, left)] {
      guard case .null = other.form else { continue }
      switch try operand(side) {
      case .object(_, let isNullIf):
        guard let isNullIf else { return SQLValue(text: isEqual ? "FALSE" : "TRUE", type: .boolean) }
        return SQLValue(
          text: isEqual ? isNullIf : "NOT (\(isNullIf))", type: .boolean, isPrimary: false)
      case .value(let value):
        try isPresent(value, side)
        if value.null == .failure {
          throw refusal(
            side, "the evaluation may fail, and SQL has one NULL for a failure and for a null",
            "Compare a field with null")
        }
        if value.null == .never { return SQLValue(text: isEqual ? "FALSE" : "TRUE", type: .boolean) }
        return SQLValue(text: "\(value.operand) IS \(isEqual ? "" : "NOT ")NULL", type: .boolean, isPrimary: false)
      }
    }
    let (a, b) = try comparable(left, right, expression)
    if case .array = a.type { throw refusal(expression, "lists are compared in rxd only", "Compare their elements") }
    if case .map = a.type { throw refusal(expression, "maps are compared in rxd only", "Compare their fields") }
    if case .row = a.type { throw refusal(expression, "objects are compared in rxd only", "Compare their fields") }
    let kinds = [a.null, b.null]
    if kinds.contains(.value) {
      if kinds.contains(.failure) {
        throw refusal(
          expression, "one side may be null and the other may fail: SQL has one NULL for both",
          "Filter events with null before this step")
      }
      return SQLValue(
        text: "\(a.operand) IS \(isEqual ? "NOT " : "")DISTINCT FROM \(b.operand)", type: .boolean, isPrimary: false)
    }
    return SQLValue(
      text: "\(a.operand) \(isEqual ? "=" : "<>") \(b.operand)", type: .boolean, null: failure(a, b), isPrimary: false)
  }

  private func order(
    _ symbol: String, _ left: TypedExpression, _ right: TypedExpression, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    let (a, b) = try comparable(left, right, expression)
    switch a.type {
    case .bigint, .double, .timestamp: break
    case .string:
      throw refusal(
        expression, "Flink orders strings by UTF-16 or by bytes, depending on their representation; rxd by code points",
        "Compare numbers or times, or compare with '=='")
    default:
      throw refusal(expression, "values of type \(a.type.shown) have no order in Flink SQL", "Compare numbers or times")
    }
    return SQLValue(text: "\(a.operand) \(symbol) \(b.operand)", type: .boolean, null: failure(a, b), isPrimary: false)
  }

  /// Two values of one type. Literals are written without a cast.
  private func comparable(
    _ left: TypedExpression, _ right: TypedExpression, _ expression: TypedExpression
  ) throws(Refusal) -> (SQLValue, SQLValue) {
    var (a, b) = (try value(left), try value(right))
    try isPresent(a, left)
    try isPresent(b, right)
    if case .int(let number) = left.form { a = literal(number, beside: b.type) }
    if case .int(let number) = right.form { b = literal(number, beside: a.type) }
    // Numbers are compared by their values.
    if a.type == .timestamp { try isTyped(a, left) }
    if b.type == .timestamp { try isTyped(b, right) }
    guard a.type == b.type else {
      throw refusal(
        expression,
        "a \(a.type.shown) and a \(b.type.shown) are compared exactly in rxd, and rounded to one type in Flink",
        "Convert one of them: 'double(...)', 'int(...)', 'timestamp(...)'")
    }
    return (a, b)
  }

  /// An int as a literal of the other operand's type, where that is exact.
  private func literal(_ number: Int64, beside type: FlinkType) -> SQLValue {
    if type == .double, number.magnitude <= 1 << 53 {
      return SQLValue(text: SQLText.double(Double(number)), type: .double, isPrimary: number >= 0)
    }
    return SQLValue(text: "\(number)", type: .bigint, isPrimary: number >= 0, range: number...number)
  }

  private func membership(
    _ left: TypedExpression, _ right: TypedExpression, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    guard case .list(let elements) = right.form, !elements.isEmpty else {
      throw refusal(expression, "'in' is exported only for a list of literals", "Write the list: 'event.x in [1, 2]'")
    }
    let value = try self.value(left)
    try isPresent(value, left)
    var texts: [String] = []
    for element in elements {
      switch element.form {
      case .int(let number): texts.append(literal(number, beside: value.type).text)
      case .string(let text): texts.append(try literal(text, element))
      default: throw refusal(element, "'in' is exported only for a list of literals", "Write a number or a text")
      }
      let type = try self.value(element).type
      guard type == value.type || type == .bigint && value.type == .double else {
        throw refusal(element, "a \(type.shown) never equals a \(value.type.shown)", "Remove it from the list")
      }
    }
    guard value.type == .bigint || value.type == .string || value.type == .double else {
      throw refusal(left, "'in' of a \(value.type.shown) is not exported", "Use an int or a string")
    }
    let test = "\(value.operand) IN (\(texts.joined(separator: ", ")))"
    // A list of numbers and texts never contains null.
    let mayBeNull = value.null == .value
    return SQLValue(
      text: mayBeNull ? "\(value.operand) IS NOT NULL AND \(test)" : test, type: .boolean,
      null: value.null == .failure ? .failure : .never, isPrimary: false, isLogic: mayBeNull)
  }

  private func presence(
    _ target: TypedExpression, _ field: String, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    if case .object(let shape, nil) = try operand(target), let found = shape.field(field) {
      if case .leaf(let value) = found, value.null != .never {
        throw refusal(
          expression, "'has' distinguishes an absent field from null, and a table has only NULL",
          "Write 'event.\(field) != null', which is true for a value only")
      }
      return SQLValue(text: "TRUE", type: .boolean)
    }
    throw refusal(expression, "'has' of this value has no equivalent in Flink SQL", "Compare it with null")
  }

  // MARK: Numbers

  private func arithmetic(
    _ symbol: String, _ left: TypedExpression, _ right: TypedExpression, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    let (a, b) = (try value(left), try value(right))
    try isPresent(a, left)
    try isPresent(b, right)
    try isTyped(a, left)
    try isTyped(b, right)
    return try arithmetic(symbol, a, b, expression)
  }

  private func arithmetic(
    _ symbol: String, _ a: SQLValue, _ b: SQLValue, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    switch (a.type, b.type) {
    case (.double, .double) where symbol != "%":
      return SQLValue(text: "\(a.operand) \(symbol) \(b.operand)", type: .double, null: failure(a, b), isPrimary: false)
    case (.string, .string) where symbol == "+":
      return SQLValue(text: "\(a.operand) || \(b.operand)", type: .string, null: failure(a, b), isPrimary: false)
    case (.bigint, .bigint): return try whole(symbol, a, b, expression)
    default:
      throw refusal(
        expression, "'\(symbol)' of a \(a.type.shown) and a \(b.type.shown) is not exported",
        a.type == .timestamp || b.type == .timestamp
          ? "Compute with 'int(...)', in seconds" : "Convert one of them: 'double(...)', 'string(...)'")
    }
  }

  /// Whole numbers: in rxd a result beyond 64 bits is an error, in Flink it wraps around. So a result that may not fit
  /// is computed in DECIMAL and parsed from its digits: TRY_CAST from DECIMAL would wrap around, too.
  private func whole(
    _ symbol: String, _ a: SQLValue, _ b: SQLValue, _ expression: TypedExpression
  ) throws(Refusal) -> SQLValue {
    let (low, high) = (a.range, b.range)
    if symbol == "/" || symbol == "%" {
      guard !high.contains(0), !high.contains(-1) else {
        throw refusal(
          expression, "the divisor may be 0 or -1, where Flink ends the job or wraps around",
          "Divide by a number that the file gives, or by 'double(...)'")
      }
      var quotients: [Int64] = [0]
      for dividend in [low.lowerBound, low.upperBound] {
        for divisor in [high.lowerBound, high.upperBound] { quotients.append(dividend / divisor) }
      }
      let largest = max(high.lowerBound.magnitude, high.upperBound.magnitude) - 1
      let bound = Int64(clamping: largest)
      return symbol == "/"
        ? SQLValue(
          text: "\(a.operand) / \(b.operand)", type: .bigint, null: failure(a, b), isPrimary: false,
          range: (quotients.min() ?? .min)...(quotients.max() ?? .max))
        : SQLValue(
          text: "MOD(\(a.text), \(b.text))", type: .bigint, null: failure(a, b), range: -bound...bound)
    }
    if let range = Self.range(symbol, low, high) {
      return SQLValue(
        text: "\(a.operand) \(symbol) \(b.operand)", type: .bigint, null: failure(a, b), isPrimary: false, range: range)
    }
    let sides = [a, b].map { value in
      let isLiteral = value.range.lowerBound == value.range.upperBound
      return "CAST(\(isLiteral ? "\(value.range.lowerBound)" : value.text) AS DECIMAL(19, 0))"
    }
    return SQLValue(
      text: "TRY_CAST(CAST(\(sides[0]) \(symbol) \(sides[1]) AS STRING) AS BIGINT)", type: .bigint, null: .failure)
  }

  /// The range of a sum, difference or product; nil: it exceeds 64 bits.
  private static func range(_ symbol: String, _ a: ClosedRange<Int64>, _ b: ClosedRange<Int64>) -> ClosedRange<Int64>? {
    var results: [Int64] = []
    for x in [a.lowerBound, a.upperBound] {
      for y in [b.lowerBound, b.upperBound] {
        let (value, isBeyond) =
          symbol == "+"
          ? x.addingReportingOverflow(y)
          : symbol == "-" ? x.subtractingReportingOverflow(y) : x.multipliedReportingOverflow(by: y)
        if isBeyond { return nil }
        results.append(value)
      }
    }
    return (results.min() ?? 0)...(results.max() ?? 0)
  }
}

extension ExpressionType {
  /// Whether the type is unknown to the expression checker.
  fileprivate var isUnknown: Bool {
    switch self {
    case .dyn: true
    case .optional(let inner), .wrapper(let inner): inner.isUnknown
    default: false
    }
  }
}
