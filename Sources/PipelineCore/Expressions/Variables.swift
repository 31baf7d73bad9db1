/// The variables of expressions, by their index in the frame.
package enum Variables {
  package static let event = 0
  package static let meta = 1
  package static let now = 2
  package static let env = 3
  package static let outer = 4
  package static let error = 5
  /// The index of the first variable that an operator adds: `running`, `index`, the inputs of `reduce`.
  package static let firstOwn = 6
  package static let base: [(name: String, type: ExpressionType)] = [
    ("event", .dyn), ("meta", .dyn), ("now", .timestamp), ("env", .map(.string, .string)),
    ("outer", .dyn), ("error", .dyn),
  ]
}
