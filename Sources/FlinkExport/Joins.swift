import PipelineCore

/// Joins.
extension ScriptWriter {
  func joined(
    _ input: Relation, _ join: RelationalJoin, _ step: SignalPlan.Step, _ info: StepPlan, _ owner: String
  ) throws(Refusal) -> Relation? {
    guard let signal = step.inner.first, let other = relation(of: signal, ownedBy: owner, input: nil) else {
      return nil
    }
    guard join.followsTime else {
      throw Refusal(
        message: "a join by the clock depends on when events are read",
        help: "Give both sources 'time', and remove 'clock'",
        location: info.location)
    }
    let needs = "both signals need it"
    _ = try time(of: input, info, needs)
    _ = try time(of: other, info, needs)
    if other.changes != .none {
      throw Refusal(
        message: "the other signal of 'join' sends rows that change", help: "Join before that step",
        location: info.location)
    }
    guard join.reduce.isGiven else {
      throw Refusal(
        message: "a list of both events is not a row",
        help: "Name the fields: 'reduce: { id: event.id, name: other.name }'",
        location: info.location)
    }
    if join.changes != .none {
      throw Refusal(
        message: "Flink's join sends an event without a partner once, when that is certain", help: "Remove 'emit'",
        location: info.location)
    }
    if join.isAsOf { return try versioned(input, other, join, info, owner) }
    guard let before = SQLText.interval(join.before), let after = SQLText.interval(join.after) else {
      throw Refusal(
        message: "'within' is not a whole number of milliseconds", help: "Use milliseconds or more",
        location: info.location)
    }
    let left = try side(input, "e", join.key, "event", info)
    let right = try side(other, "o", join.otherKey, "other", info)
    try comparable(left, right, join, info)
    let kind =
      join.sendsLeft && join.sendsRight
      ? "FULL JOIN" : join.sendsLeft ? "LEFT JOIN" : join.sendsRight ? "RIGHT JOIN" : "JOIN"
    var conditions = zip(left.relation.keys, right.relation.keys).map { "\($0.text) = \($1.text)" }
    if conditions.isEmpty {
      throw Refusal(
        message: "Flink joins by time only together with equal keys", help: "Give 'key' and 'otherKey'",
        location: info.location)
    }
    conditions.append("\(right.time) BETWEEN \(left.time) - \(before) AND \(left.time) + \(after)")
    var relation = left.relation
    relation.from =
      "\(left.relation.from) AS e\n\(kind) \(right.relation.from) AS o\n  ON \(conditions.joined(separator: "\n  AND "))"
    relation.keys = []
    // The time of a pair is the later of its two times. That is a single column only if one side is never earlier than
    // the other.
    relation.time = nil
    relation.timeEnd = "a pair has the later of two times, and Flink keeps one of the two columns"
    if kind == "JOIN", join.before == .zero || join.after == .zero {
      relation.time = join.before == .zero ? right.time : left.time
      relation.timeEnd = nil
    }
    let translator = ExpressionTranslator([
      "event": .object(left.relation.shape, isNullIf: join.sendsRight ? "\(left.time) IS NULL" : nil),
      "other": .object(right.relation.shape, isNullIf: join.sendsLeft ? "\(right.time) IS NULL" : nil),
    ])
    let shape = try shape(join.reduce.root, translator, info)
    let result = Self.columns(try reduced(relation, shape))
    return try reshaped(result, result.shape, info)
  }

  private func reduced(_ relation: Relation, _ shape: Shape) throws(Refusal) -> Relation {
    var relation = relation
    relation.shape = shape
    return relation
  }

  /// One side of a join, under its alias.
  private struct Side {
    var relation: Relation
    var time: String
  }

  private func side(
    _ input: Relation, _ alias: String, _ key: ExpressionParameter, _ variable: String, _ info: StepPlan
  ) throws(Refusal) -> Side {
    var relation = input.isPlain ? input : Self.columns(input)
    relation.keys = []
    if key.isGiven {
      let translator = ExpressionTranslator([variable: .object(relation.shape, isNullIf: nil)])
      relation.keys = try keyValues(key, translator, info)
      if relation.keys.contains(where: { $0.null == .value }) {
        throw Refusal(
          message: "the key may be null, and null equals null in rxd and nothing in SQL",
          help: "Filter events with null before this step", location: key.location ?? info.location)
      }
      if relation.keys.contains(where: { !$0.isColumn }) { relation = Self.columns(relation) }
      relation = Self.withoutFailures(relation)
    }
    if !relation.conditions.isEmpty { relation = Self.columns(relation) }
    func prefixed(_ value: SQLValue) -> SQLValue {
      var value = value
      value.text = "\(alias).\(value.text)"
      return value
    }
    let time = "\(alias).\(relation.time ?? "")"
    relation.shape = relation.shape.mapLeaves { _, value in prefixed(value) }
    relation.keys = relation.keys.map(prefixed)
    return Side(relation: relation, time: time)
  }

  private func comparable(_ left: Side, _ right: Side, _ join: RelationalJoin, _ info: StepPlan) throws(Refusal) {
    let (a, b) = (left.relation.keys.map(\.type), right.relation.keys.map(\.type))
    guard a == b else {
      throw Refusal(
        message: "the keys are \(a.map(\.shown).joined(separator: ", ")) and \(b.map(\.shown).joined(separator: ", "))",
        help: "Convert one of them: 'string(...)'", location: join.otherKey.location ?? info.location)
    }
  }

  /// `asOf`: a temporal join with a versioned view.
  private func versioned(
    _ input: Relation, _ other: Relation, _ join: RelationalJoin, _ info: StepPlan, _ owner: String
  ) throws(Refusal) -> Relation? {
    streamingStep = streamingStep ?? ("join with asOf", info.location)
    guard join.otherKey.isGiven else {
      throw Refusal(
        message: "Flink joins versions by a key", help: "Give 'key' and 'otherKey'", location: info.location)
    }
    // The rows of the table, with the key as columns: the newest row at or before a time is valid.
    var rows = other.isPlain ? other : Self.columns(other)
    let translator = ExpressionTranslator(["other": .object(rows.shape, isNullIf: nil)])
    rows.keys = try keyValues(join.otherKey, translator, info)
    if rows.keys.contains(where: { $0.null == .value }) {
      throw Refusal(
        message: "the key may be null, and null equals null in rxd and nothing in SQL",
        help: "Filter events with null before this step", location: join.otherKey.location ?? info.location)
    }
    rows = Self.withoutFailures(rows)
    rows = Self.columns(rows)
    let split = rows.keys.map(\.text).joined(separator: ", ")
    let (text, read) = Self.selected(rows)
    let numbered = text.replacing(
      "\nFROM ",
      with: ",\n  ROW_NUMBER() OVER (PARTITION BY \(split) ORDER BY \(rows.time ?? "") DESC) AS `__row`\nFROM ",
      maxReplacements: 1)
    var newest = Self.reading("(\n\(SQLText.indented(numbered))\n)", read)
    newest.conditions = ["`__row` = 1"]
    let name = freshName("\(owner)_versions")
    let versions = view(name, newest)
    let left = try side(input, "e", join.key, "event", info)
    func prefixed(_ value: SQLValue) -> SQLValue {
      var value = value
      value.text = "o.\(value.text)"
      return value
    }
    var right = versions
    right.shape = versions.shape.mapLeaves { _, value in prefixed(value) }
    right.keys = versions.keys.map(prefixed)
    try comparable(left, Side(relation: right, time: "o.\(versions.time ?? "")"), join, info)
    var relation = left.relation
    relation.keys = []
    relation.time = left.time
    let conditions = zip(left.relation.keys, right.keys).map { "\($0.text) = \($1.text)" }
    relation.from =
      "\(left.relation.from) AS e\n\(join.sendsLeft ? "LEFT JOIN" : "JOIN") \(right.from) FOR SYSTEM_TIME AS OF \(left.time) AS o\n  ON "
      + conditions.joined(separator: "\n  AND ")
    let isNullIf = join.sendsLeft ? "o.\(versions.time ?? "") IS NULL" : nil
    let reducing = ExpressionTranslator([
      "event": .object(left.relation.shape, isNullIf: nil), "other": .object(right.shape, isNullIf: isNullIf),
    ])
    let result = Self.columns(try reduced(relation, try shape(join.reduce.root, reducing, info)))
    return try reshaped(result, result.shape, info)
  }
}
