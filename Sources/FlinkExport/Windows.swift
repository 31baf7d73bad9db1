import PipelineCore

/// Windows and aggregates.
extension ScriptWriter {
  func windowed(_ input: Relation, _ window: RelationalWindow, _ info: StepPlan) throws(Refusal) -> Relation {
    func refused(_ message: String, _ help: String) -> Refusal {
      Refusal(message: message, help: help, location: info.location)
    }
    guard window.every != nil || window.gap != nil else {
      throw refused(
        "a count window has no equivalent: a table has no order of arrival", "Use a window by time: 'every', 'gap'")
    }
    if window.hasOwnTime {
      throw refused(
        "'time' of 'window' has no equivalent: event time is a part of a table's definition", "Give the source a 'time'"
      )
    }
    guard window.followsStream else {
      throw refused(
        "a window by the clock depends on when events are read",
        "Give the source 'time', and remove 'clock'")
    }
    let time = try time(of: input, info, "its events have none")
    if let zone = window.timezone, zone != "UTC" {
      throw refused("Flink's windows do not follow the days of a time zone", "Use UTC, or leave this step to rxd")
    }
    if window.maxLength != nil {
      throw refused("Flink's sessions have no 'maxLength'", "Remove it, or leave this step to rxd")
    }
    if window.sendsEmpty { throw refused("a window without events gives no row in Flink", "Remove 'empty'") }
    if window.changes != .none {
      throw refused(
        "Flink sends the result of a window once, when it closes", "Remove 'emit' and 'allowedLateness'")
    }
    guard let figures = window.figures else {
      throw refused(
        "a window that sends a list of its events has no equivalent", "Compute figures: 'aggregate: { n: count() }'")
    }
    for span in [window.every, window.length, window.gap].compactMap({ $0 }) {
      if SQLText.interval(span) == nil {
        throw refused("\(span) is not a whole number of milliseconds", "Use milliseconds or more")
      }
      if span > .seconds(999 * 86_400) {
        throw refused("Flink's windows are shorter than 1000 days", "Use a shorter window")
      }
    }
    let prepared = try prepare(input, figures, info)
    let table = try tableArgument(prepared.relation)
    let call: String
    var bounds = ("CAST(window_start AS TIMESTAMP_LTZ(9))", "CAST(window_end AS TIMESTAMP_LTZ(9))")
    if let gap = window.gap {
      streamingStep = streamingStep ?? (info.keyword, info.location)
      // Flink joins events that are exactly the gap apart.
      let milliseconds = gap.nanoseconds / 1_000_000 - (window.isInclusive ? 0 : 1)
      guard milliseconds > 0 else { throw refused("a gap of 1ms cannot be a session in Flink", "Use a longer gap") }
      let keys = prepared.relation.keys
      let split = keys.isEmpty ? "" : " PARTITION BY (\(keys.map(\.text).joined(separator: ", ")))"
      call = "SESSION(\(table)\(split), DESCRIPTOR(\(prepared.time)), \(SQLText.interval(milliseconds: milliseconds)))"
      bounds = ("CAST(MIN(\(prepared.time)) AS TIMESTAMP_LTZ(9))", "CAST(MAX(\(prepared.time)) AS TIMESTAMP_LTZ(9))")
    } else {
      let every = window.every ?? .zero
      let length = window.length ?? every
      if length == every {
        call = "TUMBLE(\(table), DESCRIPTOR(\(prepared.time)), \(SQLText.interval(every) ?? ""))"
      } else {
        guard length > every, length.nanoseconds % every.nanoseconds == 0 else {
          throw refused(
            "'length' is not a multiple of 'every', which Flink's sliding windows need", "Choose a multiple of \(every)"
          )
        }
        call =
          "HOP(\(table), DESCRIPTOR(\(prepared.time)), \(SQLText.interval(every) ?? ""), \(SQLText.interval(length) ?? ""))"
      }
    }
    _ = time
    var result = try figured(
      prepared, "TABLE(\(call))", grouping: ["window_start", "window_end", "window_time"], bounds: bounds, figures, info
    )
    result.time = window.gap == nil ? result.time : nil
    if window.gap != nil { result.timeEnd = "the sessions of rxd and of Flink have different last times" }
    return result
  }

  func aggregated(
    _ input: Relation, _ figures: FiguresParameter?, _ changes: PipelineCore.Changes, _ info: StepPlan
  ) throws(Refusal) -> Relation {
    guard let figures else {
      throw Refusal(
        message: "a fold depends on the order in which events arrive, and a table has none",
        help: "Use figures: 'aggregate: { total: sum(event.x) }'", location: info.location)
    }
    if changes == .none {
      endStep = endStep ?? (info.keyword, info.location)
    } else {
      streamingStep = streamingStep ?? ("\(info.keyword) with emit", info.location)
    }
    let prepared = try prepare(input, figures, info)
    let keys = prepared.relation.keys
    var result = try figured(prepared, prepared.relation.from, grouping: [], bounds: nil, figures, info)
    result.time = nil
    result.timeEnd = "'\(info.keyword)' sends figures of many events"
    if changes != .none {
      let leaves = result.shape.leaves
      let paths = result.keys.map { key in leaves.first { $0.value.text == key.text }?.path }
      result.changes = .byKey(keys.isEmpty || paths.contains { $0 == nil } ? nil : paths.compactMap { $0 })
    }
    return result
  }

  /// The rows of a window or of a group, with the arguments of the aggregates as columns.
  struct Prepared {
    var relation: Relation
    /// The column with the event time.
    var time: String
    /// The arguments, by their indexes in the parameter.
    var arguments: [SQLValue]
    var conditions: [SQLValue]
    /// The SQL of the keys and of the arguments before they were given column names.
    var keyTexts: [String]
    var argumentTexts: [String]
  }

  private func prepare(_ input: Relation, _ figures: FiguresParameter, _ info: StepPlan) throws(Refusal) -> Prepared {
    var relation = input.isPlain ? input : Self.columns(input)
    relation.keys = relation.groupKeys
    let translator = ExpressionTranslator(relation)
    let keyTexts = relation.keys.map(\.text)
    var fields: [(name: String, shape: Shape)] = []
    var isComputed = false
    func add(_ prefix: String, _ number: Int, _ parameter: ExpressionParameter) throws(Refusal) {
      let tree = try tree(parameter, at: info.location)
      let value = try translator.value(tree)
      try translator.isPresent(value, tree)
      try translator.isTyped(value, tree)
      if !value.isColumn || value.null == .failure { isComputed = true }
      fields.append(("__\(prefix)\(number + 1)", .leaf(value)))
    }
    for (number, argument) in figures.arguments.enumerated() { try add("value", number, argument.expression) }
    for (number, condition) in figures.conditions.enumerated() { try add("if", number, condition.expression) }
    let mayFail = fields.contains { $0.shape.value.null == .failure }
    try checkPolicy(info, mayFail: mayFail, standard: .route)
    // An argument under a condition may fail for events that do not fulfil it.
    for call in figures.calls {
      guard let argument = call.argument, call.condition != nil, fields[argument].shape.value.null == .failure else {
        continue
      }
      throw Refusal(
        message: "the value of '\(call.name)' can fail, also for events that the condition leaves out",
        help: "Filter before this step", location: figures.arguments[argument].expression.location ?? info.location)
    }
    let count = figures.arguments.count
    let argumentTexts = fields.prefix(count).map(\.shape.value.text)
    guard isComputed || !relation.conditions.isEmpty else {
      let values = fields.map(\.shape.value)
      return Prepared(
        relation: relation, time: relation.time ?? "", arguments: Array(values[..<count]),
        conditions: Array(values[count...]), keyTexts: keyTexts, argumentTexts: argumentTexts)
    }
    var narrow = relation
    // 'count' needs no columns other than the keys and the time.
    narrow.shape = fields.isEmpty ? .object([("__one", .leaf(SQLValue(text: "1", type: .bigint)))]) : .object(fields)
    narrow = Self.columns(narrow)
    if mayFail {
      narrow = Self.withoutFailures(narrow)
      narrow = Self.columns(narrow)
    }
    let values = fields.isEmpty ? [] : narrow.shape.leaves.map(\.value)
    return Prepared(
      relation: narrow, time: narrow.time ?? "", arguments: Array(values.prefix(count)),
      conditions: Array(values.dropFirst(count)), keyTexts: keyTexts, argumentTexts: argumentTexts)
  }

  /// The table argument of a window function: a table or a view.
  private func tableArgument(_ relation: Relation) throws(Refusal) -> String {
    if relation.from.first == "`" { return "TABLE \(relation.from)" }
    return relation.from
  }

  private func figured(
    _ prepared: Prepared, _ from: String, grouping: [String], bounds: (String, String)?, _ figures: FiguresParameter,
    _ info: StepPlan
  ) throws(Refusal) -> Relation {
    var fields: [(name: String, shape: Shape)] = []
    var variables: [String: ExpressionTranslator.Operand] = [:]
    var columns: [String] = []
    func add(_ name: String, _ column: String, _ value: SQLValue) {
      fields.append((column, .leaf(value)))
      columns.append(column)
      var read = value
      read.text = SQLText.name(column)
      read.isColumn = true
      read.isPrimary = true
      variables[name] = .value(read)
    }
    for (number, call) in figures.calls.enumerated() {
      // Windows and groups have at least one event; figures of a whole table may have none.
      let hasRows = !grouping.isEmpty || !prepared.relation.keys.isEmpty
      let value = try figure(call, prepared, figures, hasRows: hasRows, info)
      if let key = value.key {
        variables[call.name] = .value(key)
      } else {
        add(call.name, "__figure\(number + 1)", value.value)
      }
    }
    if let bounds {
      let read = try self.variables(of: figures.around.root, info)
      if read.contains("start") { add("start", "__start", SQLValue(text: bounds.0, type: .timestamp)) }
      if read.contains("end") { add("end", "__end", SQLValue(text: bounds.1, type: .timestamp)) }
    }
    if fields.isEmpty { fields.append(("__one", .leaf(SQLValue(text: "COUNT(*)", type: .bigint)))) }
    let keys = prepared.relation.keys
    var inner = prepared.relation
    inner.from = from
    inner.conditions = from == prepared.relation.from ? prepared.relation.conditions : []
    inner.shape = .object(fields)
    inner.time = grouping.isEmpty ? nil : "window_time"
    let (text, read) = Self.selected(inner)
    let groups = grouping + keys.map(\.text)
    let rows = text + (groups.isEmpty ? "" : "\nGROUP BY " + groups.joined(separator: ", "))
    var result = Self.reading("(\n\(SQLText.indented(rows))\n)", read)
    // The keys have been renamed.
    for (name, operand) in variables {
      if case .value(let value) = operand, let at = keys.firstIndex(where: { $0.text == value.text }) {
        variables[name] = .value(read.keys[at])
      }
    }
    result.shape = try shape(figures.around.root, ExpressionTranslator(variables, keys: read.keys), info)
    return try reshaped(result, result.shape, info)
  }

  private func figure(
    _ call: FiguresParameter.Call, _ prepared: Prepared, _ figures: FiguresParameter, hasRows: Bool, _ info: StepPlan
  ) throws(Refusal) -> (value: SQLValue, key: SQLValue?) {
    let location =
      call.argument.flatMap { figures.arguments[$0].expression.location } ?? figures.location ?? info.location
    func refused(_ message: String, _ help: String) -> Refusal {
      Refusal(message: message, help: help, location: location)
    }
    let filter = call.condition.map { " FILTER (WHERE \(prepared.conditions[$0].text))" } ?? ""
    guard let index = call.argument else {
      return (SQLValue(text: "COUNT(*)\(filter)", type: .bigint, range: 0...Int64.max), nil)
    }
    let value = prepared.arguments[index]
    let (text, type) = (value.text, value.type)
    switch call.function {
    case .count: return (SQLValue(text: "COUNT(*)\(filter)", type: .bigint, range: 0...Int64.max), nil)
    case .countDistinct:
      guard type.isKey || type == .timestamp else {
        throw refused(
          "different values of type \(type.shown) are not counted in the same way", "Count ints, strings or bools")
      }
      return (SQLValue(text: "COUNT(DISTINCT \(text))\(filter)", type: .bigint, range: 0...Int64.max), nil)
    case .sum:
      guard type == .bigint else {
        throw refused(
          type == .double
            ? "a sum of doubles depends on the order of its rounding, which Flink does not keep"
            : "a sum of \(type.shown) is not exported",
          "Sum ints, such as cents")
      }
      // The sum is computed in DECIMAL and parsed from its digits: a cast from DECIMAL would wrap around.
      return (
        SQLValue(
          text: "CAST(CAST(COALESCE(SUM(CAST(\(text) AS DECIMAL(19, 0)))\(filter), 0) AS STRING) AS BIGINT)",
          type: .bigint), nil
      )
    case .avg:
      guard type == .bigint else {
        throw refused(
          type == .double
            ? "a mean of doubles depends on the order of its rounding, which Flink does not keep"
            : "a mean of \(type.shown) is not exported",
          "Take the mean of ints, such as cents")
      }
      return (
        SQLValue(
          text: "CAST(SUM(CAST(\(text) AS DECIMAL(19, 0)))\(filter) AS DOUBLE) / NULLIF(COUNT(\(text))\(filter), 0)",
          type: .double, null: hasRows && filter.isEmpty && value.null == .never ? .never : .value, isPrimary: false),
        nil
      )
    case .min, .max:
      guard [.bigint, .double, .timestamp].contains(type) else {
        throw refused(
          type == .string
            ? "Flink orders strings by UTF-16 or by bytes, depending on their representation; rxd by code points"
            : "values of type \(type.shown) have no order in Flink SQL",
          "Use a number or a time")
      }
      return (
        SQLValue(
          text: "\(call.function == .min ? "MIN" : "MAX")(\(text))\(filter)", type: type,
          null: hasRows && filter.isEmpty && value.null == .never ? .never : .value), nil
      )
    case .first, .last:
      // All events of a group have the same key.
      if filter.isEmpty, let at = prepared.keyTexts.firstIndex(of: prepared.argumentTexts[index]) {
        return (value, prepared.relation.keys[at])
      }
      throw refused(
        "'\(call.function.rawValue)' depends on the order in which events arrive, and a table has none",
        "Read a part of the key of 'groupBy', or use min or max")
    }
  }

  /// The variables that a mapping reads.
  private func variables(of node: MappingParameter.Node?, _ info: StepPlan) throws(Refusal) -> Set<String> {
    switch node {
    case .expression(let parameter): return try tree(parameter, at: info.location).variables
    case .object(let members):
      var all: Set<String> = []
      for member in members { all.formUnion(try variables(of: member.node, info)) }
      return all
    case .list, nil: return []
    }
  }
}

extension TypedExpression {
  /// The names of the variables that the expression reads.
  fileprivate var variables: Set<String> {
    if case .variable(let name) = form { return [name] }
    return parts.reduce(into: []) { $0.formUnion($1.variables) }
  }

  private var parts: [TypedExpression] {
    switch form {
    case .null, .bool, .int, .uint, .double, .string, .bytes, .variable, .other: []
    case .select(let a, _, _), .has(let a, _), .not(let a), .negate(let a): [a]
    case .index(let a, let b, _), .binary(_, let a, let b): [a, b]
    case .call(_, let parts), .logic(let parts, _), .list(let parts): parts
    case .conditional(let a, let b, let c): [a, b, c]
    case .bind(_, let body): [body]
    }
  }
}
