/// The keys that each part of the file allows alongside a component key.
///
/// No component may have one of these names; a reserved key in the wrong part of the file is reported as misplaced
/// instead of counting as a component.
package enum ReservedKeys {
  /// Keys among those below that this version reports as not usable yet (RX320), as it does `defaults` at the top level.
  package enum Later {
    package static let source = ["buffer"]
    package static let signal = ["onError", "buffer", "schema"]
    package static let sink = ["onError", "require"]
  }

  package static let topLevel = [
    "name", "description", "threads", "delivery", "require", "whenLate", "state", "sources", "tables", "signals",
    "commands", "sinks", "tests", "patterns", "functions", "plugins", "defaults", "templates", "include", "foreach",
  ]
  package static let state = ["memory"]
  package static let function = ["description", "parameters", "returns", "value", "examples"]
  package static let source =
    [
      "description", "onError", "buffer", "cold", "share", "schema", "delivery", "whenLate", "movedFrom",
    ] + eventTime
  /// The options of a source or signal that give its events a time.
  package static let eventTime = ["time", "lateness", "idle", "maxAhead"]
  /// The keys of a signal other than its origin; `reduce` only with `combineLatest` and `zip`.
  package static let signal =
    [
      "from", "chain", "description", "onError", "buffer", "cold", "share", "schema", "movedFrom",
    ] + eventTime
  package static let step = ["name", "description", "onError", "whenLate", "movedFrom"] + stepParameters
  /// Parameters of operators that are written next to the operator's key, because the value of that key is an
  /// expression for the event.
  static let stepParameters = ["message"]
  package static let sink = [
    "from", "chain", "description", "onError", "buffer", "whenFull", "delivery", "require", "movedFrom",
  ]
  package static let command = ["run", "enabled"] + commandParameters + ["description", "movedFrom"]
  /// The parameters of the component `command`, alongside `run`.
  static let commandParameters = [
    "allowsConcurrentExecution", "maxConcurrent", "whenBusy", "queueLimit", "deliver", "replay",
  ]
  /// The parameters of a table, alongside the keys of its signal.
  package static let table = ["key", "row", "every", "delete", "maxRows"]
  package static let test = [
    "name", "description", "inputs", "tables", "stubs", "expect", "tick", "until", "env", "now",
  ]
  package static let combining = CombiningNode.Keyword.allCases.map(\.rawValue)

  /// The keys reserved in some part of a node.
  static let anywhere = Set(source + signal + step + sink + command)

  /// The literals of YAML and of expressions.
  static let literals: Set<String> = ["true", "false", "null"]

  /// The literals, and the variables of the expression language: a source, signal or command cannot have such a name.
  package static let words = Set(Variables.base.map(\.name) + ["running", "index"]).union(literals)

  /// All words that cannot be variables, and so cannot name inputs for `reduce`.
  static let noVariables = words.union(ExpressionParser.reserved).union(["in"])

  /// The outputs that a reference may name, besides the events.
  package static let outputs = ["errors", "executing", "enabled", "values", "key"]
}

extension [String] {
  /// The names that are not among `others`.
  func without(_ others: [String]) -> [String] { filter { !others.contains($0) } }
}
