extension FunctionRegistry {
  /// The macros: they look like calls, but the parser handles them, so the checker never finds them by name.
  static let macros: [FunctionSpec] = [
    FunctionSpec(
      macro: "has", "Whether a field exists.", forms: ["has(map.field) -> bool"],
      examples: [("has({'a': null}.a)", "true"), ("has(dyn({'a': 1}).a.c)", "false")],
      details:
        """
        In pipelines null and values that are not maps have no fields. After `&&` an expression can read the field \
        that `has` has found.
        """
    ),
    FunctionSpec(
      macro: "all", "Whether a condition holds for every element of a list or key of a map.",
      forms: [
        "list.all(item, bool) -> bool", "map.all(key, value, bool) -> bool", "list.all(index, item, bool) -> bool",
      ],
      examples: [("[1, 2].all(n, n > 0)", "true"), ("{'a': 1}.all(k, v, v > 1)", "false")]),
    FunctionSpec(
      macro: "exists", "Whether a condition holds for at least one element of a list or key of a map.",
      forms: [
        "list.exists(item, bool) -> bool", "map.exists(key, value, bool) -> bool",
        "list.exists(index, item, bool) -> bool",
      ], examples: [("[1, 2].exists(n, n > 1)", "true"), ("{'a': 1}.exists(k, k == 'b')", "false")]),
    FunctionSpec(
      macro: "existsOne", "Whether a condition holds for exactly one element; also written exists_one.",
      forms: ["list.existsOne(item, bool) -> bool", "map.existsOne(key, value, bool) -> bool"],
      examples: [("[1, 2, 3].existsOne(n, n > 2)", "true")]),
    FunctionSpec(
      macro: "map", "The values of an expression for each element, or for the elements that fulfil a condition.",
      forms: ["list.map(item, T) -> list(T)", "list.map(item, bool, T) -> list(T)", "map.map(key, T) -> list(T)"],
      examples: [
        ("[1, 2].map(n, n * 10)", "[10, 20]"), ("[1, 2].map(n, n > 1, n * 10)", "[20]"),
        ("{'a': 1}.map(k, k)", "['a']"),
      ]),
    FunctionSpec(
      macro: "filter", "The elements of a list, or keys of a map, that fulfil a condition.",
      forms: ["list.filter(item, bool) -> list", "map.filter(key, bool) -> list"],
      examples: [("[1, 2, 3].filter(n, n != 2)", "[1, 3]")]),
    FunctionSpec(
      macro: "sortBy", "The elements of a list in ascending order of the value of an expression.",
      forms: ["list.sortBy(item, T) -> list"], examples: [("['bb', 'a'].sortBy(s, size(s))", "['a', 'bb']")]),
    FunctionSpec(
      macro: "groupBy",
      """
      The elements of a list that have the same value of an expression, its key, together: a list of {key, values}.
      """,
      forms: [
        "list.groupBy(item, K) -> list({key: K, values: list})",
        "list.groupBy(item, K, T) -> list({key: K, values: list(T)})",
      ],
      examples: [
        ("['bb', 'a', 'cc'].groupBy(s, size(s))", "[{'key': 2, 'values': ['bb', 'cc']}, {'key': 1, 'values': ['a']}]"),
        ("[{'s': 'web', 'n': 1}, {'s': 'web', 'n': 2}].groupBy(e, e.s, e.n)", "[{'key': 'web', 'values': [1, 2]}]"),
        ("['b', 'a', 'b'].groupBy(s, s).map(g, [g.key, size(g.values)])", "[['b', 2], ['a', 1]]"),
      ],
      details: """
        Groups come in the order of their first elements, elements in their own order. With three arguments the values are those of the third \
        for each element. A key may be any value, a map too. The time is proportional to the number of elements. Events of a signal \
        are grouped by the operator groupBy.
        """),
    FunctionSpec(
      macro: "transformList", "The values of an expression of index and element, or of key and value.",
      forms: ["list.transformList(index, item, T) -> list(T)", "map.transformList(key, value, bool, T) -> list(T)"],
      examples: [("['a', 'b'].transformList(i, s, s + string(i))", "['a0', 'b1']")]),
    FunctionSpec(
      macro: "transformMap", "The map with the same keys, or the indices as keys, and the values of an expression.",
      forms: ["map.transformMap(key, value, T) -> map", "map.transformMap(key, value, bool, T) -> map"],
      examples: [("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 10)", "{'b': 20}")]),
    FunctionSpec(
      macro: "transformMapEntry",
      """
      One map of all the maps that an expression makes; a key that occurs twice is an error.
      """,
      forms: [
        "map.transformMapEntry(key, value, map) -> map", "list.transformMapEntry(index, item, bool, map) -> map",
      ], examples: [("{'a': 1}.transformMapEntry(k, v, {k.upperAscii(): v})", "{'A': 1}")]),
    FunctionSpec(
      macro: "optMap", "Applies an expression to the value of an optional; without a value the optional stays empty.",
      forms: ["optional.optMap(value, T) -> optional_type(T)"],
      examples: [("optional.of(2).optMap(n, n * 10).value()", "20")]),
    FunctionSpec(
      macro: "optFlatMap", "Applies an expression that makes an optional to the value of an optional, if it has one.",
      forms: ["optional.optFlatMap(value, optional_type(T)) -> optional_type(T)"],
      examples: [("optional.of([1]).optFlatMap(l, l.first()).value()", "1")]),
    FunctionSpec(
      macro: "cel.bind", "An expression in which a name stands for a value that is computed once.",
      forms: ["cel.bind(name, value, T) -> T"], examples: [("cel.bind(n, 2 + 3, n * n)", "25")]),
  ]
}
