/// The keys that each place of the file understands beside a component key.
///
/// A component may not bear one of these names, and a reserved key of another place is reported as
/// misplaced rather than taken for a component.
public enum ReservedKeys {
  public static let topLevel = [
    "name", "description", "threads", "sources", "signals", "commands", "sinks", "tests", "patterns",
    "plugins", "defaults",
  ]
  public static let source = [
    "description", "onError", "buffer", "cold", "share", "schema", "movedFrom",
  ]
  /// Beside the origin; `reduce` only beside `combineLatest` and `zip`.
  public static let signal = [
    "from", "chain", "description", "onError", "buffer", "cold", "share", "schema", "movedFrom",
  ]
  public static let step = ["name", "description", "onError", "movedFrom"] + stepParameters
  /// Parameters of operators that stand beside the operator, because its own value is a mapping of the event.
  static let stepParameters = ["message"]
  public static let sink = [
    "from", "chain", "description", "onError", "buffer", "whenFull", "require", "movedFrom",
  ]
  public static let command = ["run", "enabled"] + commandParameters + ["description", "movedFrom"]
  /// What is handed to the component `command`, beside `run`.
  static let commandParameters = [
    "allowsConcurrentExecution", "maxConcurrent", "whenBusy", "queueLimit", "deliver", "replay",
  ]
  public static let test = [
    "name", "description", "inputs", "stubs", "expect", "tick", "until", "env", "now",
  ]
  public static let combining = CombiningNode.Keyword.allCases.map(\.rawValue)

  /// Reserved in some place of a node.
  static let anywhere = Set(source + signal + step + sink + command)

  /// What is a value in YAML and in expressions.
  static let literals: Set<String> = ["true", "false", "null"]

  /// The literals and the variables of the expression language: no source, signal or command may bear one of them.
  public static let words = Set(Variables.base.map(\.name) + ["running", "index"]).union(literals)

  /// What else cannot be a variable, and so not the name of an input that `reduce` is to see.
  static let noVariables = words.union(ExpressionParser.reserved).union(["in"])

  /// The outputs of a node that a reference may name, beside its events.
  public static let outputs = ["errors", "executing", "enabled", "values", "key"]
}
