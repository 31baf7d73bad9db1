/// An operator that keeps something for each of many keys. If the file has `state: { memory: SIZE }`, its steps move keys to the disk,
/// except in a chain of `groupBy`.
package protocol SpillingOperator: OperatorDeclaration {
  /// Whether they do, with these parameters; false: all keys stay in memory.
  var movesKeys: Bool { get }
  /// Whether its inner signals are those of groups, which stay in memory with it.
  var hasGroups: Bool { get }
}

extension SpillingOperator {
  package var movesKeys: Bool { true }
  package var hasGroups: Bool { false }
}
