extension FunctionRegistry {
  private static let t = ExpressionType.param("T")

  /// Lists and sets, based on CEL's extensions for them.
  static let lists: [FunctionSpec] = [
    FunctionSpec(
      "slice", "The elements from one position up to another.",
      [
        .member([.list(t), .int, .int], .list(t)) { arguments in
          let count = Int64(arguments[0].length)
          let (start, end) = (arguments[1].asInt, arguments[2].asInt)
          guard start >= 0, start <= count else { return arguments.outOfRange(1) }
          guard end >= start, end <= count else { return arguments.outOfRange(2) }
          var part = arguments[0]
          part.payload = part.payload &+ UInt64(start) &* UInt64(MemoryLayout<Value>.stride)
          part.length = UInt32(end - start)
          return part
        }
      ], examples: [("[1, 2, 3, 4].slice(1, 3)", "[2, 3]")]),
    FunctionSpec(
      "flatten", "The list with the lists in it opened, one level or the given number, or the map with the maps in it.",
      [
        .member([.list(.dyn)], .list(.dyn)) { flatten($0, depth: 1) },
        .member([.list(.dyn), .int], .list(.dyn)) { arguments in
          guard arguments[1].asInt >= 0 else {
            return arguments.context.failure(.invalidArgument, arguments[1], "a negative depth")
          }
          return flatten(arguments, depth: Int(min(arguments[1].asInt, 1000)))
        },
        .member([.map(.string, .dyn)], .map(.string, .dyn)) {
          flatten($0[0], separator: .literal("."), $0.context)
        },
        .member([.map(.string, .dyn), .string], .map(.string, .dyn)) {
          flatten($0[0], separator: $0[1], $0.context)
        },
      ],
      examples: [
        ("[1, [2, [3]]].flatten()", "[1, 2, [3]]"), ("[1, [2, [3]]].flatten(2)", "[1, 2, 3]"),
        ("{'a': {'b': 1, 'c': {}}, 'd': [2]}.flatten()", "{'a.b': 1, 'a.c': {}, 'd': [2]}"),
        ("{'a': {'b': 1}}.flatten('_')", "{'a_b': 1}"),
      ],
      details:
        "Of a map all levels are opened, and the keys of each are joined by a point or the separator; lists and empty maps stay as they are."
    ),
    FunctionSpec(
      "distinct", "The list without repeated elements.",
      [
        .member([.list(t)], .list(t)) { arguments in
          let context = arguments.context
          var entries: [Entry] = []
          for element in arguments[0].elements { entries.append(Entry(key: element, value: .null)) }
          let map = context.distinctMap(entries, replaces: true)
          return context.arena.list(map.entries.map(\.key))
        }
      ], examples: [("[1, 2, 1.0].distinct()", "[1, 2]")]),
    FunctionSpec(
      "sort", "The elements in ascending order; all must be of one kind that has an order.",
      [.member([.list(t)], .list(t)) { $0.context.sorted(Array($0[0].elements), by: Array($0[0].elements)) }],
      examples: [("[3, 1, 2].sort()", "[1, 2, 3]")]),
    FunctionSpec(
      "first", "The first element as an optional.",
      [.member([.list(t)], .optional(t)) { $0.context.arena.optional($0[0].elements.first) }],
      examples: [("[1, 2].first().value()", "1"), ("[].first().hasValue()", "false")]),
    FunctionSpec(
      "last", "The last element as an optional.",
      [.member([.list(t)], .optional(t)) { $0.context.arena.optional($0[0].elements.last) }],
      examples: [("[1, 2].last().value()", "2")]),
    FunctionSpec(
      "unwrapOpt", "The values of the optionals in a list, without the empty ones.",
      [.member([.list(.optional(t))], .list(t), unwrap)],
      examples: [("[optional.of(1), optional.none()].unwrapOpt()", "[1]")]),
    FunctionSpec(
      "optional.unwrap", "The values of the optionals in a list, without the empty ones.",
      [.global([.list(.optional(t))], .list(t), unwrap)],
      examples: [("optional.unwrap([optional.of(1), optional.none()])", "[1]")]),
    FunctionSpec(
      "lists.range", "The whole numbers from 0 up to, but not including, a number.",
      [
        .global([.int], .list(.int)) { arguments in
          let count = arguments[0].asInt
          guard count >= 0, count <= Int64(arguments.context.frame.iterationLimit) else {
            return arguments.outOfRange(0)
          }
          return arguments.context.arena.list((0..<Int(count)).map { Value.int($0) })
        }
      ], examples: [("lists.range(3)", "[0, 1, 2]")]),
    FunctionSpec(
      "sets.contains", "Whether every element of the second list is in the first.",
      [.global([.list(t), .list(t)], .bool) { .bool(contains($0[0], $0[1], $0.context)) }],
      examples: [("sets.contains([1, 2, 3], [2, 3])", "true")]),
    FunctionSpec(
      "sets.equivalent", "Whether each of two lists has every element of the other.",
      [
        .global([.list(t), .list(t)], .bool) {
          .bool(contains($0[0], $0[1], $0.context) && contains($0[1], $0[0], $0.context))
        }
      ], examples: [("sets.equivalent([1, 2], [2, 1, 1])", "true")]),
    FunctionSpec(
      "sets.intersects", "Whether two lists have an element in common.",
      [
        .global([.list(t), .list(t)], .bool) { arguments in
          let index = index(arguments[0], arguments.context)
          return .bool(arguments[1].elements.contains { index.index(of: $0, arguments.context) != nil })
        }
      ], examples: [("sets.intersects([1, 2], [2, 3])", "true")]),
  ]

  private static let unwrap: FunctionOverload.Body = { arguments in
    for element in arguments[0].elements where !element.is(.optional) {
      return arguments.context.failure(.notOptional, .absent, text: element.typeName)
    }
    return arguments.context.arena.list(arguments[0].elements.compactMap(\.wrapped))
  }

  private static func flatten(_ arguments: Arguments, depth: Int) -> Value {
    var out: [Value] = []
    func open(_ list: Value, _ depth: Int) -> Value? {
      for element in list.elements {
        guard depth > 0, element.isAnyList else {
          out.append(element)
          continue
        }
        let inner = arguments.context.expanded(element)
        if inner.isError { return inner }
        if let failure = open(inner, depth - 1) { return failure }
      }
      return nil
    }
    return open(arguments[0], depth) ?? arguments.context.arena.list(out)
  }

  private static func index(_ list: Value, _ context: Context) -> KeyIndex {
    let entries = context.arena.entries(Int(list.length))
    for (at, element) in list.elements.enumerated() { entries[at] = Entry(key: element, value: .null) }
    return KeyIndex(
      Value(kind: .map, pointer: entries.baseAddress, length: entries.count), context)
  }

  private static func contains(_ list: Value, _ other: Value, _ context: Context) -> Bool {
    if other.length == 0 { return true }
    let index = index(list, context)
    return other.elements.allSatisfy { index.index(of: $0, context) != nil }
  }
}
