extension FunctionRegistry {
  private static let anyMap = ExpressionType.map(.dyn, .dyn)

  /// Maps, which the language itself can build but not edit.
  static let maps: [FunctionSpec] = [
    FunctionSpec(
      "merge", "One map with the entries of both; where both have a key the second's value counts.",
      [
        .global([anyMap, anyMap], anyMap) { arguments in
          arguments.context.distinctMap(
            Array(arguments[0].entries) + Array(arguments[1].entries), replaces: true)
        }
      ], examples: [("merge({'a': 1, 'b': 2}, {'b': 3})", "{'a': 1, 'b': 3}")]),
    FunctionSpec(
      "pick", "The map with only the entries of these keys, in its own order.",
      [.member([anyMap, .list(.dyn)], anyMap) { keep($0, listed: true) }],
      examples: [("{'a': 1, 'b': 2}.pick(['a', 'c'])", "{'a': 1}")]),
    FunctionSpec(
      "without", "The map without the entries of these keys.",
      [.member([anyMap, .list(.dyn)], anyMap) { keep($0, listed: false) }],
      examples: [("{'a': 1, 'b': 2}.without(['a'])", "{'b': 2}")]),
    FunctionSpec(
      "keys", "The keys of a map, in its order.",
      [.member([anyMap], .list(.dyn)) { $0.context.arena.list($0[0].entries.map(\.key)) }],
      examples: [("{'a': 1, 'b': 2}.keys()", "['a', 'b']")]),
    FunctionSpec(
      "values", "The values of a map, in its order.",
      [.member([anyMap], .list(.dyn)) { $0.context.arena.list($0[0].entries.map(\.value)) }],
      examples: [("{'a': 1, 'b': 2}.values()", "[1, 2]")]),
  ]

  private static func keep(_ arguments: Arguments, listed: Bool) -> Value {
    let context = arguments.context
    let target = context.arena.entries(Int(arguments[0].length))
    var length = 0
    for entry in arguments[0].entries {
      let isListed = arguments[1].elements.contains { context.equal($0, entry.key) }
      guard isListed == listed else { continue }
      target[length] = entry
      length += 1
    }
    return Value(kind: .map, pointer: target.baseAddress, length: length)
  }
}
