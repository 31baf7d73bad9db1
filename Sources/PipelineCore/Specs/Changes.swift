/// What becomes of the rows that a step sends.
package enum Changes: Int, Sendable, Equatable, Comparable {
  /// Nothing: each is one more.
  case none
  /// A later row may take the place of an earlier one with the same key.
  case rows
  /// A row may be taken back; each is taken back before another takes its place.
  case pairs

  package static func < (one: Changes, other: Changes) -> Bool { one.rawValue < other.rawValue }
}

/// An operator that sends rows which may change later, or understands those that it gets.
package protocol ChangingOperator: OperatorDeclaration {
  /// What becomes of its rows, given what becomes of those that it gets.
  func changes(_ input: Changes) -> Changes
  /// Whether its result is right where the rows that it gets change so.
  func understands(_ input: Changes) -> Bool
}
