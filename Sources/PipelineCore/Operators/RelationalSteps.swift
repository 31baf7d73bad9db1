// The relational forms of operators.

extension Filter: RelationalOperator {
  package var relationalForm: RelationalForm { .filter(condition) }
}

extension Map: RelationalOperator {
  package var relationalForm: RelationalForm { .map(to) }
}

extension SetFields: RelationalOperator {
  package var relationalForm: RelationalForm { .set(fields.entries.map { ($0.name, $0.value, $0.location) }) }
}

extension UnsetFields: RelationalOperator {
  package var relationalForm: RelationalForm { .unset(fields) }
}

extension EventTimeStep: RelationalOperator {
  package var relationalForm: RelationalForm {
    .eventTime(RelationalTime(time: time, lateness: lateness, idle: idle, maxAhead: maxAhead))
  }
}

extension Window: RelationalOperator {
  package var relationalForm: RelationalForm {
    .window(
      RelationalWindow(
        every: every, length: length, timezone: timezone, gap: gap, isInclusive: inclusive, maxLength: maxLength,
        hasOwnTime: time.isGiven, followsStream: followsStream, figures: aggregate.isGiven ? aggregate : nil,
        changes: changes(.none), sendsEmpty: empty))
  }
}

extension Aggregate: RelationalOperator {
  package var relationalForm: RelationalForm { .aggregate(figures.isGiven ? figures : nil, emit.changes()) }
}

extension GroupBy: RelationalOperator {
  package var relationalForm: RelationalForm { .groupBy(key: key, idle: idle) }
}

extension Join: RelationalOperator {
  package var relationalForm: RelationalForm {
    .join(
      RelationalJoin(
        before: within?.before ?? .zero, after: within?.after ?? .zero, isAsOf: asOf, key: key, otherKey: otherKey,
        reduce: reduce, sendsLeft: unmatched.sendsLeft, sendsRight: unmatched.sendsRight, followsTime: followsTime,
        changes: changes(.none)))
  }
}

extension Distinct: RelationalOperator {
  package var relationalForm: RelationalForm { .distinct(by: by, within: within) }
}

extension TopN: RelationalOperator {
  package var relationalForm: RelationalForm {
    .topN(by: by, count: count, per: per, isDescending: order == .descending, idle: idle)
  }
}

extension Latest: RelationalOperator {
  package var relationalForm: RelationalForm { .latest(by: by, idle: idle) }
}

extension Merge: RelationalOperator {
  package var relationalForm: RelationalForm { .merge }
}
