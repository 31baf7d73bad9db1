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

/// An operator that sends rows which may change later, or understands those that it gets.
package protocol ChangingOperator: OperatorDeclaration {
  /// How its rows change earlier ones, given how those that it receives do.
  func changes(_ input: Changes) -> Changes
  /// Whether its result is right where the rows that it gets change so.
  func understands(_ input: Changes) -> Bool
}
