/// Lists, maps and loops.
extension Machine {
  @inline(never)
  func list(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    let children = code.pointee.children + Int(operation.pointee.a)
    let count = Int(operation.pointee.b)
    let target = context.elements(count)
    var length = 0
    for index in 0..<count {
      var element = quickValue(children[2 &* index])
      if element.isError { return element }
      if children[2 &* index &+ 1] != 0 {
        guard element.is(.optional) else {
          return located(context.failure(.notOptional, .absent, text: element.typeName), at)
        }
        guard let wrapped = element.wrapped else { continue }
        element = wrapped
      }
      target[length] = element
      length += 1
    }
    return Value(kind: .list, pointer: target.baseAddress, length: length)
  }

  @inline(never)
  func map(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    let children = code.pointee.children + Int(operation.pointee.a)
    let count = Int(operation.pointee.b)
    let target = context.entries(count)
    var length = 0
    for index in 0..<count {
      let key = context.plain(value(children[3 * index]))
      if key.isError { return key }
      var member = value(children[3 * index + 1])
      if member.isError { return member }
      guard Self.canBeKey(key) else {
        return located(context.failure(.badMapKey, .absent, text: key.typeName), at)
      }
      if children[3 * index + 2] != 0 {
        guard member.is(.optional) else {
          return located(context.failure(.notOptional, .absent, text: member.typeName), at)
        }
        guard let wrapped = member.wrapped else { continue }
        member = wrapped
      }
      for other in 0..<length {
        if context.equal(target[other].key, key) {
          return located(context.failure(.duplicateKey, key), at)
        }
      }
      target[length] = Entry(key: key, value: member)
      length += 1
    }
    return Value(kind: .map, pointer: target.baseAddress, length: length)
  }

  /// Builds a map whose keys the compiler has checked.
  @inline(never)
  func object(_ at: Int32) -> Value {
    let count = Int(operations[Int(at)].b)
    let children = code.pointee.children + Int(operations[Int(at)].a)
    guard let target = context.entries(count).baseAddress else { return .absent }
    for index in 0..<count {
      let member = quickValue(children[3 &* index &+ 1])
      if member.isError { return member }
      target[index] = Entry(key: operations[Int(children[3 &* index])].literal, value: member)
    }
    return Value(kind: .map, pointer: UnsafeRawPointer(target), length: count)
  }

  static func canBeKey(_ value: Value) -> Bool {
    switch value.what {
    case .bool, .int, .uint, .string: return value.flags & Value.netFlags == 0
    default: return false
    }
  }

  // MARK: Loops

  /// The range of a loop and the values of its variables in each iteration.
  private struct Rounds {
    var values: UnsafeBufferPointer<Value>
    var entries: UnsafeBufferPointer<Entry>
    var isMap: Bool
    var count: Int { isMap ? entries.count : values.count }
    let first: UnsafeMutablePointer<Value>
    let hasTwo: Bool
    let isInner: Bool

    @inline(__always)
    func enter(_ round: Int) {
      if isMap {
        first[0] = entries[round].key
        if hasTwo { first[1] = entries[round].value }
      } else if hasTwo {
        first[0] = .int(round)
        first[1] = values[round]
      } else {
        first[0] = values[round]
      }
    }
  }

  /// Counts an iteration; false if the limit is reached.
  @inline(__always)
  private func spend(_ rounds: Rounds) -> Bool {
    let left: Int
    if rounds.isInner {
      left = state.pointee.iterationsLeft &- 1
      state.pointee.iterationsLeft = left
    } else {
      left = state.pointee.outerIterationsLeft &- 1
      state.pointee.outerIterationsLeft = left
    }
    return left >= 0 && (left & 15 != 0 || context.hasRoom)
  }

  /// The largest number of iterations that the limits still allow.
  private func room(_ rounds: Rounds) -> Int {
    min(rounds.count, max(rounds.isInner ? state.pointee.iterationsLeft : state.pointee.outerIterationsLeft, 0))
  }

  @inline(never)
  func loop(_ at: Int32) -> Value {
    let operation = operations + Int(at)
    let range = context.expanded(value(operation.pointee.a))
    if range.isError { return located(range, at) }
    guard range.is(.list) || range.is(.map) else { return located(context.noOverload("loop", range), at) }
    let rounds = Rounds(
      values: range.is(.list) ? range.elements : .init(start: nil, count: 0),
      entries: range.is(.map) ? range.entries : .init(start: nil, count: 0), isMap: range.is(.map),
      first: state.pointee.locals + Int(operation.pointee.literal.payload),
      hasTwo: operation.pointee.flags & 1 != 0, isInner: operation.pointee.flags & 2 != 0)
    switch SyntaxTree.Loop.Kind(rawValue: operation.pointee.detail).unsafelyUnwrapped {
    case .all: return quantify(at, rounds, decisive: Truth.no)
    case .exists: return quantify(at, rounds, decisive: Truth.yes)
    case .existsOne: return existsOne(at, rounds)
    case .map, .transformList: return collect(at, rounds)
    case .filter: return filter(at, rounds)
    case .transformMap: return transformMap(at, rounds)
    case .transformMapEntry: return transformEntries(at, rounds)
    case .sortBy: return sortBy(at, rounds)
    case .groupBy: return groupBy(at, rounds)
    }
  }

  private func exhausted(_ at: Int32) -> Value {
    located(
      context.failure(
        min(state.pointee.iterationsLeft, state.pointee.outerIterationsLeft) < 0 ? .tooManyIterations : .tooLarge),
      at)
  }

  /// `all` and `exists`: one decisive element decides, even if others fail.
  private func quantify(_ at: Int32, _ rounds: Rounds, decisive: UInt8) -> Value {
    let body = operations[Int(at)].c
    var error = Value.absent
    for round in 0..<rounds.count {
      guard spend(rounds) else { return exhausted(at) }
      rounds.enter(round)
      let outcome = bool(body)
      if outcome == decisive { return .bool(decisive == Truth.yes) }
      if outcome == Truth.failed, error.isAbsent { error = state.pointee.error }
    }
    return error.isAbsent ? .bool(decisive == Truth.no) : error
  }

  private func existsOne(_ at: Int32, _ rounds: Rounds) -> Value {
    let body = operations[Int(at)].c
    var found = 0
    for round in 0..<rounds.count {
      guard spend(rounds) else { return exhausted(at) }
      rounds.enter(round)
      let outcome = bool(body)
      if outcome == Truth.failed { return state.pointee.error }
      if outcome == Truth.yes { found += 1 }
    }
    return .bool(found == 1)
  }

  /// Whether the iteration counts; nil if the condition fails, with the error in the state.
  @inline(__always)
  private func passes(_ condition: Int32) -> Bool? {
    guard condition >= 0 else { return true }
    let outcome = bool(condition)
    return outcome == Truth.failed ? nil : outcome == Truth.yes
  }

  private func collect(_ at: Int32, _ rounds: Rounds) -> Value {
    let operation = operations[Int(at)]
    let target = context.elements(room(rounds))
    var length = 0
    for round in 0..<rounds.count {
      guard spend(rounds) else { return exhausted(at) }
      rounds.enter(round)
      guard let counts = passes(operation.b) else { return state.pointee.error }
      if !counts { continue }
      let element = value(operation.c)
      if element.isError { return element }
      target[length] = element
      length += 1
    }
    return Value(kind: .list, pointer: target.baseAddress, length: length)
  }

  private func filter(_ at: Int32, _ rounds: Rounds) -> Value {
    let body = operations[Int(at)].c
    let target = context.elements(room(rounds))
    var length = 0
    for round in 0..<rounds.count {
      guard spend(rounds) else { return exhausted(at) }
      rounds.enter(round)
      guard let counts = passes(body) else { return state.pointee.error }
      if !counts { continue }
      target[length] = rounds.isMap ? rounds.entries[round].key : rounds.values[round]
      length += 1
    }
    return Value(kind: .list, pointer: target.baseAddress, length: length)
  }

  private func transformMap(_ at: Int32, _ rounds: Rounds) -> Value {
    let operation = operations[Int(at)]
    let target = context.entries(room(rounds))
    var length = 0
    for round in 0..<rounds.count {
      guard spend(rounds) else { return exhausted(at) }
      rounds.enter(round)
      guard let counts = passes(operation.b) else { return state.pointee.error }
      if !counts { continue }
      let member = value(operation.c)
      if member.isError { return member }
      target[length] = Entry(
        key: rounds.isMap ? rounds.entries[round].key : .int(round), value: member)
      length += 1
    }
    return Value(kind: .map, pointer: target.baseAddress, length: length)
  }

  private func transformEntries(_ at: Int32, _ rounds: Rounds) -> Value {
    let operation = operations[Int(at)]
    var members: [Entry] = []
    for round in 0..<rounds.count {
      guard spend(rounds) else { return exhausted(at) }
      rounds.enter(round)
      guard let counts = passes(operation.b) else { return state.pointee.error }
      if !counts { continue }
      let map = context.expanded(value(operation.c))
      if map.isError { return located(map, at) }
      guard map.is(.map) else { return located(context.noOverload("transformMapEntry", map), at) }
      members.append(contentsOf: map.entries)
    }
    return located(context.distinctMap(members, replaces: false), at)
  }

  private func sortBy(_ at: Int32, _ rounds: Rounds) -> Value {
    let body = operations[Int(at)].c
    var keys: [Value] = []
    var elements: [Value] = []
    keys.reserveCapacity(rounds.count)
    for round in 0..<rounds.count {
      guard spend(rounds) else { return exhausted(at) }
      rounds.enter(round)
      elements.append(rounds.first[0])
      let key = context.plain(value(body))
      if key.isError { return key }
      keys.append(key)
    }
    return located(context.sorted(elements, by: keys), at)
  }

  private func groupBy(_ at: Int32, _ rounds: Rounds) -> Value {
    let operation = operations[Int(at)]
    let isLong = operation.b >= 0
    var elements: [Value] = []
    var groups = GroupNumbers(context)
    elements.reserveCapacity(room(rounds))
    for round in 0..<rounds.count {
      guard spend(rounds) else { return exhausted(at) }
      rounds.enter(round)
      var element = rounds.first[0]
      let key = context.plain(value(isLong ? operation.b : operation.c))
      if key.isError { return key }
      if isLong {
        element = value(operation.c)
        if element.isError { return element }
      }
      groups.add(key)
      elements.append(element)
    }
    return groups.list(of: elements)
  }
}

/// Numbers keys in the order of their first appearance.
private struct GroupNumbers {
  private let context: Context
  private var keys: [Value] = []
  private var sizes: [Int] = []
  /// The group of each element.
  private var numbers: [Int32] = []
  /// Groups by the hash of their key; on a collision the next free hash is used.
  private var buckets: [Int: Int32] = [:]

  init(_ context: Context) { self.context = context }

  mutating func add(_ key: Value) {
    var probe = KeyIndex.hash(key, context)
    while let number = buckets[probe] {
      if context.equal(keys[Int(number)], key) {
        sizes[Int(number)] += 1
        numbers.append(number)
        return
      }
      probe = probe &+ 1
    }
    let number = Int32(truncatingIfNeeded: keys.count)
    buckets[probe] = number
    keys.append(key)
    sizes.append(1)
    numbers.append(number)
  }

  /// `[{key, values}]`; the values of each group keep their order.
  func list(of elements: [Value]) -> Value {
    let arena = context.arena
    let values = arena.elements(elements.count)
    // The position of the next element of each group.
    var next: [Int] = []
    next.reserveCapacity(sizes.count)
    var start = 0
    for size in sizes {
      next.append(start)
      start += size
    }
    for (element, number) in zip(elements, numbers) {
      values[next[Int(number)]] = element
      next[Int(number)] += 1
    }
    let groups = arena.elements(keys.count)
    for (number, key) in keys.enumerated() {
      let members = arena.entries(2)
      let first = next[number] - sizes[number]
      let part = UnsafeMutableBufferPointer(rebasing: values[first..<next[number]])
      members[0] = Entry(key: .literal("key"), value: key)
      members[1] = Entry(
        key: .literal("values"), value: Value(kind: .list, pointer: part.baseAddress, length: part.count))
      groups[number] = Value(kind: .map, pointer: members.baseAddress, length: 2)
    }
    return Value(kind: .list, pointer: groups.baseAddress, length: groups.count)
  }
}

extension Context {
  /// A map of these entries. Of equal keys, the last wins if `replaces`; otherwise they are an error.
  func distinctMap(_ members: [Entry], replaces: Bool) -> Value {
    let target = arena.entries(members.count)
    var length = 0
    var buckets: [Int: Int32] = [:]
    for entry in members {
      let hash = KeyIndex.hash(entry.key, self)
      // On a collision the next free hash is used.
      var probe = hash
      var existing: Int?
      while let other = buckets[probe] {
        if equal(target[Int(other)].key, entry.key) {
          existing = Int(other)
          break
        }
        probe = probe &+ 1
      }
      if let existing {
        guard replaces else { return failure(.duplicateKey, entry.key) }
        target[existing].value = entry.value
        continue
      }
      buckets[probe] = Int32(length)
      target[length] = entry
      length += 1
    }
    return Value(kind: .map, pointer: target.baseAddress, length: length)
  }

  /// The elements sorted by their keys; the sort is stable.
  func sorted(_ elements: [Value], by keys: [Value]) -> Value {
    for (index, key) in keys.enumerated() where index > 0 {
      if compare(.less, keys[0], key) == Truth.failed { return noOverload("<", keys[0], key) }
    }
    if keys.count == 1, compare(.less, keys[0], keys[0]) == Truth.failed { return noOverload("sort", keys[0]) }
    let order = keys.indices.sorted { a, b in
      if compare(.less, keys[a], keys[b]) == Truth.yes { return true }
      return compare(.less, keys[b], keys[a]) == Truth.yes ? false : a < b
    }
    return arena.list(order.map { elements[$0] })
  }
}
