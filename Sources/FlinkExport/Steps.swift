import PipelineCore

/// Steps.
extension ScriptWriter {
  /// The relation after a step; nil: the step, or an earlier one, was refused. Steps after a refused one are still
  /// checked.
  func apply(
    _ step: SignalPlan.Step, to input: Relation?, others: [Relation?], ownedBy owner: String
  ) -> Relation? {
    let info = plan.steps[step.id.number]
    guard let form = (step.component as? any RelationalOperator)?.relationalForm else {
      refuse(
        "'\(info.keyword)' has no equivalent in Flink SQL", Advice.forStep(info.keyword), at: info.location)
      for inner in step.inner where inner.origin == nil { _ = relation(of: inner, ownedBy: owner, input: nil) }
      return nil
    }
    // The other signals of joins and the chains of groups are checked in any case.
    guard let input else {
      for inner in step.inner where inner.origin == nil { _ = relation(of: inner, ownedBy: owner, input: nil) }
      return nil
    }
    do throws(Refusal) {
      try checkChanges(form, input, info)
      return try applied(form, step, info, input, others, owner)
    } catch {
      report(error)
      return nil
    }
  }

  private func checkChanges(_ form: RelationalForm, _ input: Relation, _ info: StepPlan) throws(Refusal) {
    if input.changes == .none { return }
    switch form {
    case .map, .set, .unset: return
    default:
      throw Refusal(
        message:
          "'\(info.keyword)' reads rows that change: rxd treats each change as an event, Flink corrects the result",
        help: "Let the step before it send its results at the end, or put it after the exported part",
        location: info.location)
    }
  }

  private func applied(
    _ form: RelationalForm, _ step: SignalPlan.Step, _ info: StepPlan, _ input: Relation, _ others: [Relation?],
    _ owner: String
  ) throws(Refusal) -> Relation? {
    switch form {
    case .filter(let condition):
      var relation = input.isPlain ? input : Self.columns(input)
      let value = try ExpressionTranslator(relation).boolean(try tree(condition, at: info.location))
      try checkPolicy(info, mayFail: value.null != .never, standard: .drop)
      relation.conditions.append(value.term)
      return relation
    case .map(let mapping): return try mapped(input, mapping, info)
    case .set(let fields):
      let relation = input.isPlain ? input : Self.columns(input)
      var shape = relation.shape
      for field in fields {
        let part = try self.shape(field.value.root, ExpressionTranslator(relation), info)
        guard let changed = shape.setting(path(field.name)[...], part) else {
          throw Refusal(
            message: "'\(field.name)' is set inside of a value whose fields the schema does not declare",
            help: "Declare it as an object in 'schema'", location: field.location)
        }
        shape = changed
      }
      return try reshaped(relation, shape, info)
    case .unset(let names):
      var shape = input.shape
      for name in names {
        guard let changed = shape.removing(path(name)[...]) else {
          throw Refusal(
            message: "'\(name)' is inside of a value whose fields the schema does not declare",
            help: "Declare it as an object in 'schema'", location: info.location)
        }
        shape = changed
      }
      if case .object(let fields) = shape, fields.isEmpty {
        throw Refusal(
          message: "no field is left, and a table has columns", help: "Keep a field", location: info.location)
      }
      return try reshaped(input, shape, info)
    case .eventTime:
      throw Refusal(
        message: "event time begins here, after a step, and in Flink it is a part of a table's definition",
        help: "Give the source a 'time'", location: info.location)
    case .window(let window): return try windowed(input, window, info)
    case .aggregate(let figures, let changes): return try aggregated(input, figures, changes, info)
    case .groupBy(let key, let idle): return try grouped(input, key, idle, step, info, owner)
    case .join(let join): return try joined(input, join, step, info, owner)
    case .distinct(let by, let within): return try distinct(input, by, within, info)
    case .topN(let by, let count, let per, let isDescending, let idle):
      try refuse(idle: idle, info)
      return try ranked(input, by, count, per, isDescending, info)
    case .latest(let by, let idle):
      try refuse(idle: idle, info)
      return try latest(input, by, info)
    case .merge: return try merged([input] + others.compactMap { $0 }, complete: others.allSatisfy { $0 != nil }, info)
    }
  }

  private func refuse(idle: TimeSpan?, _ info: StepPlan) throws(Refusal) {
    if idle != nil {
      throw Refusal(
        message: "'idle' of '\(info.keyword)' forgets keys by the clock, and Flink's state by other rules",
        help: "Remove 'idle', or leave this step to rxd", location: info.location)
    }
  }

  /// Refuses a policy that keeps events whose evaluation fails. Such rows are left out, as `drop` and, without a reader
  /// of the errors output, `route` do.
  func checkPolicy(_ info: StepPlan, mayFail: Bool, standard: ErrorPolicy) throws(Refusal) {
    guard mayFail, let policy = info.onError, policy == .keep || policy == .fail else { return }
    throw Refusal(
      message:
        "'onError: \(policy.rawValue)' has no equivalent: an export leaves out rows for which the evaluation fails",
      help: "Remove 'onError', or change the expression so that it cannot fail", location: info.location)
  }

  /// The components of a name with dots.
  private func path(_ name: String) -> [String] {
    name.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
  }

  // MARK: Projections

  private func mapped(_ input: Relation, _ mapping: MappingParameter, _ info: StepPlan) throws(Refusal) -> Relation {
    let relation = input.isPlain ? input : Self.columns(input)
    return try reshaped(relation, try shape(mapping.root, ExpressionTranslator(relation), info), info)
  }

  /// The relation with a new event. Rows in which an evaluation has failed are left out.
  func reshaped(_ relation: Relation, _ shape: Shape, _ info: StepPlan) throws(Refusal) -> Relation {
    var relation = relation
    let before = relation.shape.leaves
    relation.shape = shape
    let leaves = shape.leaves
    try checkPolicy(info, mayFail: leaves.contains { $0.value.null == .failure }, standard: .route)
    if let taken = leaves.first(where: { $0.path.contains { $0.hasPrefix("__") } }) {
      throw Refusal(
        message: "'\(taken.path.joined(separator: "."))' begins as the names of the export do",
        help: "Use another name",
        location: info.location)
    }
    if let missing = leaves.first(where: { $0.value.null == .nothing }) {
      throw Refusal(
        message: "'\(missing.path.joined(separator: "."))' may have no value, and would then be left out of the event",
        help: "End with '.orValue(...)'", location: info.location)
    }
    if case .byKey(let key?) = relation.changes {
      // The columns of the key may have been renamed.
      let paths = key.map { path in
        before.first { $0.path == path }.flatMap { old in leaves.first { $0.value.text == old.value.text }?.path }
      }
      relation.changes = .byKey(paths.contains { $0 == nil } ? nil : paths.compactMap { $0 })
    }
    return Self.withoutFailures(relation)
  }

  /// The shape that a mapping of expressions builds.
  func shape(
    _ node: MappingParameter.Node?, _ translator: ExpressionTranslator, _ info: StepPlan
  ) throws(Refusal) -> Shape {
    switch node {
    case .expression(let parameter):
      switch try translator.operand(try tree(parameter, at: info.location)) {
      case .object(let shape, nil): return shape
      default: return .leaf(try translator.value(try tree(parameter, at: info.location)))
      }
    case .object(let members):
      var fields: [(name: String, shape: Shape)] = []
      // Each refused member is reported, the last by the caller.
      var refusal: Refusal?
      for member in members {
        do throws(Refusal) {
          fields.append((member.key, try shape(member.node, translator, info)))
        } catch {
          if let refusal { report(refusal) }
          refusal = error
        }
      }
      if let refusal { throw refusal }
      if fields.isEmpty {
        throw Refusal(
          message: "the event has no fields, and a table has columns", help: "Add a field", location: info.location)
      }
      return .object(fields)
    case .list, nil:
      throw Refusal(
        message: "a list that expressions make is not exported", help: "Write its elements as fields",
        location: info.location)
    }
  }

  // MARK: Groups

  private func grouped(
    _ input: Relation, _ key: ExpressionParameter, _ idle: TimeSpan?, _ step: SignalPlan.Step, _ info: StepPlan,
    _ owner: String
  ) throws(Refusal) -> Relation? {
    try refuse(idle: idle, info)
    if input.isGrouped {
      throw Refusal(
        message: "a 'groupBy' inside of another one is not exported",
        help: "Write one 'groupBy' by a list of both keys",
        location: info.location)
    }
    var relation = input.isPlain ? input : Self.columns(input)
    relation.keys = []
    relation.keys = try keyValues(key, ExpressionTranslator(relation), info)
    if relation.keys.contains(where: { !$0.isColumn }) { relation = Self.columns(relation) }
    relation = Self.withoutFailures(relation)
    relation.isGrouped = true
    guard let chain = step.inner.first else { return relation }
    guard var result = self.relation(of: chain, ownedBy: owner, input: relation) else { return nil }
    result.isGrouped = false
    if !readsKey { result.keys = [] }
    return result
  }

  /// The parts of a key: one expression, or the elements of a list.
  func keyValues(
    _ key: ExpressionParameter, _ translator: ExpressionTranslator, _ info: StepPlan,
    allows: (FlinkType) -> Bool = \.isKey
  ) throws(Refusal) -> [SQLValue] {
    let tree = try tree(key, at: info.location)
    var parts = [tree]
    if case .list(let elements) = tree.form { parts = elements }
    var values: [SQLValue] = []
    for part in parts {
      let value = try translator.value(part)
      try translator.isPresent(value, part)
      guard allows(value.type) else {
        throw translator.refusal(
          part, "a \(value.type.shown) has other rules of equality as a key in Flink",
          "Use an int, a string or a bool")
      }
      if values.contains(where: { $0.text == value.text }) { continue }
      values.append(value)
    }
    try checkPolicy(info, mayFail: values.contains { $0.null == .failure }, standard: .route)
    return values
  }

  // MARK: Unions

  private func merged(_ inputs: [Relation], complete: Bool, _ info: StepPlan) throws(Refusal) -> Relation? {
    guard complete else { return nil }
    let first = inputs[0]
    let wanted = first.shape.leaves
    var texts: [String] = []
    let isTimed = inputs.allSatisfy { $0.time != nil }
    var nulls = wanted.map(\.value.null)
    for input in inputs {
      try checkChanges(.merge, input, info)
      let leaves = input.shape.leaves
      guard leaves.count == wanted.count,
        wanted.allSatisfy({ leaf in leaves.contains { $0.path == leaf.path && $0.value.type == leaf.value.type } })
      else {
        throw Refusal(
          message: "the signals of this 'merge' have different fields, and a union has the same columns",
          help: "Give them the same fields with 'map' before", location: info.location)
      }
      var ordered = input
      ordered.keys = []
      ordered.isGrouped = false
      if !isTimed { ordered.time = nil }
      // Columns must have the order of the first input's.
      ordered.shape = first.shape.mapLeaves { path, value in leaves.first { $0.path == path }?.value ?? value }
      for (index, leaf) in ordered.shape.leaves.enumerated() where leaf.value.null == .value { nulls[index] = .value }
      texts.append(Self.selected(ordered).text)
    }
    var model = first
    model.keys = []
    if !isTimed {
      model.time = nil
      model.timeEnd = "not all signals of 'merge' have event time"
    }
    var (_, read) = Self.selected(model)
    var at = 0
    read.shape = read.shape.mapLeaves { _, value in
      var value = value
      value.null = nulls[at]
      at += 1
      return value
    }
    return Self.reading("(\n\(SQLText.indented(texts.joined(separator: "\nUNION ALL\n")))\n)", read)
  }

  // MARK: Ranks

  private func ranked(
    _ input: Relation, _ by: ExpressionParameter, _ count: Int, _ per: ExpressionParameter, _ isDescending: Bool,
    _ info: StepPlan
  ) throws(Refusal) -> Relation {
    let time = try time(of: input, info, "equal ranks would have no order")
    let relation = input.isPlain ? input : Self.columns(input)
    let translator = ExpressionTranslator(relation)
    let rankTree = try tree(by, at: info.location)
    let rank = try translator.value(rankTree)
    try translator.isTyped(rank, rankTree)
    guard [.bigint, .double, .timestamp].contains(rank.type), rank.null == .never || rank.null == .failure else {
      throw translator.refusal(
        rankTree,
        rank.type == .string
          ? "Flink orders strings by UTF-16 or by bytes, rxd by code points"
          : "this rank has no order that is the same in Flink",
        "Use a number or a time that is never null")
    }
    var keys = per.isGiven ? try keyValues(per, translator, info) : []
    keys += relation.groupKeys
    try checkPolicy(info, mayFail: rank.null == .failure, standard: .route)
    streamingStep = streamingStep ?? (info.keyword, info.location)
    var ranked = rowNumbers(
      relation, partition: keys, order: "\(rank.text) \(isDescending ? "DESC" : "ASC"), \(time) ASC",
      condition: count == 1 ? "= 1" : "<= \(count)", filtered: [rank] + keys)
    ranked.time = nil
    ranked.timeEnd = "'\(info.keyword)' sends rows that change"
    ranked.changes = .rows
    return ranked
  }

  private func latest(_ input: Relation, _ by: ExpressionParameter, _ info: StepPlan) throws(Refusal) -> Relation {
    let time = try time(of: input, info, "the newest event is the one that came last")
    let relation = input.isPlain ? input : Self.columns(input)
    let keys = try keyValues(by, ExpressionTranslator(relation), info) + relation.groupKeys
    streamingStep = streamingStep ?? (info.keyword, info.location)
    var newest = rowNumbers(relation, partition: keys, order: "\(time) DESC", condition: "= 1", filtered: keys)
    newest.time = nil
    newest.timeEnd = "'\(info.keyword)' sends rows that change"
    let paths = relation.shape.leaves
    let keyPaths = keys.map { key in paths.first { $0.value.text == key.text }?.path }
    newest.changes = .byKey(keyPaths.contains { $0 == nil } ? nil : keyPaths.compactMap { $0 })
    return newest
  }

  private func distinct(
    _ input: Relation, _ by: ExpressionParameter, _ within: TimeSpan?, _ info: StepPlan
  ) throws(Refusal) -> Relation {
    if within != nil {
      throw Refusal(
        message: "'within' of 'distinct' forgets values by the clock",
        help: "Remove 'within', or leave this step to rxd",
        location: info.location)
    }
    var relation = input.isPlain ? input : Self.columns(input)
    let fields = relation.shape.leaves.map(\.value)
    guard by.isGiven else {
      throw Refusal(
        message: "whole events are compared by their JSON text, which a table does not have",
        help: "Write 'by' with ints, strings or bools: 'distinct: \"[event.a, event.b]\"'", location: info.location)
    }
    let keys = try keyValues(by, ExpressionTranslator(relation), info) + relation.groupKeys
    if relation.time == nil, fields.allSatisfy({ field in keys.contains { $0.text == field.text } }),
      keys.allSatisfy({ key in fields.contains { $0.text == key.text } })
    {
      let (text, read) = Self.selected(relation)
      let rows = "SELECT DISTINCT" + text.dropFirst("SELECT".count)
      return Self.reading("(\n\(SQLText.indented(rows))\n)", read)
    }
    // The first row to arrive is kept, regardless of its time.
    streamingStep = streamingStep ?? (info.keyword, info.location)
    relation = rowNumbers(
      relation, partition: keys, order: "`__arrival` ASC", condition: "= 1", filtered: keys, arrival: "PROCTIME()")
    return relation
  }

  /// The rows whose ROW_NUMBER within their partition fulfils a condition.
  private func rowNumbers(
    _ relation: Relation, partition: [SQLValue], order: String, condition: String, filtered: [SQLValue],
    arrival: String? = nil
  ) -> Relation {
    var inner = relation
    var failing: [String] = []
    for value in filtered where value.null == .failure && !failing.contains(value.text) { failing.append(value.text) }
    inner.conditions += failing.map { "\($0.contains(" ") ? "(\($0))" : $0) IS NOT NULL" }
    let split = partition.isEmpty ? "" : "PARTITION BY \(partition.map(\.text).joined(separator: ", ")) "
    var from = inner.from
    if let arrival {
      from = "(\n  SELECT *, \(arrival) AS `__arrival`\n  FROM \(SQLText.indented(from).drop { $0 == " " })\n)"
      inner.from = from
    }
    let (text, read) = Self.selected(inner)
    let numbered = text.replacing(
      "\nFROM ", with: ",\n  ROW_NUMBER() OVER (\(split)ORDER BY \(order)) AS `__row`\nFROM ", maxReplacements: 1)
    var result = Self.reading("(\n\(SQLText.indented(numbered))\n)", read)
    result.conditions = ["`__row` \(condition)"]
    return result
  }

  /// The column with the event time, which the step needs.
  func time(of relation: Relation, _ info: StepPlan, _ why: String) throws(Refusal) -> String {
    if let time = relation.time { return time }
    throw Refusal(
      message: "'\(info.keyword)' needs event time here: \(relation.timeEnd ?? why)",
      help: relation.timeEnd == nil ? "Give the source a 'time'" : "Use event time before that step only",
      location: info.location)
  }
}
