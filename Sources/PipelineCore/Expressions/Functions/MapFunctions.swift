extension FunctionRegistry {
  private static let anyMap = ExpressionType.map(.dyn, .dyn)

  /// Maps: the language itself can build them but not change them.
  static let maps: [FunctionSpec] = [
    FunctionSpec(
      "merge", "One map with the entries of both; for a key in both the value of the second counts.",
      [.global([anyMap, anyMap], anyMap, merge), .member([anyMap, anyMap], anyMap, merge)],
      examples: [
        ("merge({'a': 1, 'b': 2}, {'b': 3})", "{'a': 1, 'b': 3}"), ("{'a': 1}.merge({'b': 2})", "{'a': 1, 'b': 2}"),
      ]
    ),
    FunctionSpec(
      "mergeDeep", "One map with the entries of both; if both have a map under one key, these maps are merged too.",
      [
        .global([anyMap, anyMap], anyMap) { mergeDeep($0[0], $0[1], $0.context, depth: 0) },
        .member([anyMap, anyMap], anyMap) { mergeDeep($0[0], $0[1], $0.context, depth: 0) },
      ],
      examples: [
        ("mergeDeep({'a': {'x': 1, 'y': 2}}, {'a': {'y': 3}})", "{'a': {'x': 1, 'y': 3}}"),
        ("mergeDeep({'a': {'x': 1}}, {'a': null})", "{'a': null}"),
      ]),
    FunctionSpec(
      "pick", "The map with only the entries of these keys, in its own order.",
      [.member([anyMap, .list(.dyn)], anyMap) { keep($0, listed: true) }],
      examples: [("{'a': 1, 'b': 2}.pick(['a', 'c'])", "{'a': 1}")]),
    FunctionSpec(
      "without", "The map without the entries of these keys.",
      [.member([anyMap, .list(.dyn)], anyMap) { keep($0, listed: false) }],
      examples: [("{'a': 1, 'b': 2}.without(['a'])", "{'b': 2}")]),
    FunctionSpec(
      "omit", "The map without the entries of these keys; the same as `without`.",
      [.member([anyMap, .list(.dyn)], anyMap) { keep($0, listed: false) }],
      examples: [("{'a': 1, 'b': 2}.omit(['a'])", "{'b': 2}")]),
    FunctionSpec(
      "keys", "The keys of a map, in its order.",
      [.member([anyMap], .list(.dyn)) { $0.context.arena.list($0[0].entries.map(\.key)) }],
      examples: [("{'a': 1, 'b': 2}.keys()", "['a', 'b']")]),
    FunctionSpec(
      "values", "The values of a map, in its order.",
      [.member([anyMap], .list(.dyn)) { $0.context.arena.list($0[0].entries.map(\.value)) }],
      examples: [("{'a': 1, 'b': 2}.values()", "[1, 2]")]),
  ]

  private static let merge: FunctionOverload.Body = { arguments in
    arguments.context.distinctMap(
      Array(arguments[0].entries) + Array(arguments[1].entries), replaces: true)
  }

  /// The deepest nesting that functions may build.
  private static let nesting = 500

  private static func mergeDeep(_ a: Value, _ b: Value, _ context: Context, depth: Int) -> Value {
    guard depth < nesting, context.hasRoom else { return context.failure(.tooLarge) }
    var members = Array(a.entries)
    let known = KeyIndex(a, context)
    var more: [Entry] = []
    for entry in b.entries {
      guard let at = known.index(of: context.plain(entry.key), context) else {
        more.append(entry)
        continue
      }
      guard members[at].value.isAnyMap, entry.value.isAnyMap else {
        members[at].value = entry.value
        continue
      }
      let (left, right) = (context.expanded(members[at].value), context.expanded(entry.value))
      if left.isError { return left }
      if right.isError { return right }
      let merged = mergeDeep(left, right, context, depth: depth + 1)
      if merged.isError { return merged }
      members[at].value = merged
    }
    members += more
    let target = context.arena.entries(members.count)
    _ = target.update(fromContentsOf: members)
    return Value(kind: .map, pointer: target.baseAddress, length: target.count)
  }

  /// The map with nested maps flattened: `separator` joins their keys.
  static func flatten(_ map: Value, separator: Value, _ context: Context) -> Value {
    var members: [Entry] = []
    var path = [UInt8]()
    func open(_ map: Value, _ depth: Int) -> Value? {
      guard depth < nesting, members.count <= ExpressionLimits.parts, context.hasRoom else {
        return context.failure(.tooLarge)
      }
      for entry in map.entries {
        guard entry.key.is(.string) else {
          return context.failure(.badMapKey, .absent, text: entry.key.typeName)
        }
        let length = path.count
        defer { path.removeLast(path.count - length) }
        if depth > 0 { path += separator.rawBytes }
        path += context.plain(entry.key).rawBytes
        if entry.value.isAnyMap {
          let inner = context.expanded(entry.value)
          if inner.isError { return inner }
          if inner.length > 0 {
            if let failure = open(inner, depth + 1) { return failure }
            continue
          }
        }
        guard context.hasRoom else { return context.failure(.tooLarge) }
        members.append(Entry(key: context.string(path), value: entry.value))
      }
      return nil
    }
    return open(map, 0) ?? context.distinctMap(members, replaces: true)
  }

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
