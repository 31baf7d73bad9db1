/// The variables of expressions, by their index in the frame.
public enum Variables {
  public static let event = 0
  public static let meta = 1
  public static let now = 2
  public static let env = 3
  public static let outer = 4
  public static let error = 5
  /// The index of the first variable that an operator adds: `running`, `index`, the inputs of `reduce`.
  public static let firstOwn = 6
  public static let base: [(name: String, type: ExpressionType)] = [
    ("event", .dyn), ("meta", .dyn), ("now", .timestamp), ("env", .map(.string, .string)),
    ("outer", .dyn), ("error", .dyn),
  ]
}
