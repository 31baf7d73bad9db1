extension FunctionRegistry {
  /// Every library, in the order in which the reference shows them.
  static let libraries: [[FunctionSpec]] = [
    standard, conversions, time, optionals,
  ]
}
