extension FunctionRegistry {
  /// Every library, in the order in which the reference shows them.
  static let libraries: [[FunctionSpec]] = [
    standard, conversions, strings, regex, math, time, lists, maps, optionals, encodings, network,
  ]
}
