/// How the rows that a step sends change earlier ones.
package enum Changes: Int, Sendable, Equatable, Comparable {
  /// No row changes another: each is added.
  case none
  /// A later row may replace an earlier one with the same key.
  case rows
  /// A row may be retracted; each is retracted before another replaces it.
  case pairs

  package static func < (one: Changes, other: Changes) -> Bool { one.rawValue < other.rawValue }
}

/// An operator that sends rows that may change later, or that handles such rows.
package protocol ChangingOperator: OperatorDeclaration {
  /// How the rows that the operator sends change earlier ones, given how the rows that it receives change.
  func changes(_ input: Changes) -> Changes
  /// Whether the operator's result is right if the rows that it receives change in this way.
  func understands(_ input: Changes) -> Bool
}
