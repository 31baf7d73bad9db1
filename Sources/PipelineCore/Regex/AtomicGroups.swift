/// Resolves atomic groups, `(?>x)` and `x++`, if they mean the same as plain groups; otherwise they are errors.
///
/// A plain group differs from an atomic one only if the rest of the pattern fails after the preferred match of the
/// group, but succeeds after another. That is impossible
///
/// 1. if the rest never fails,
/// 2. if all matches of the group from one offset have the same length, or
/// 3. if the longest match is preferred, and the rest starts with none of the characters that can extend a match.
struct AtomicGroups {
  /// The characters that a match can start with.
  private struct Beginning {
    var ascii: (UInt64, UInt64) = (0, 0)
    var beyond = false

    mutating func add(_ set: RegexSet) {
      for scalar in 0..<64 where set.contains(UInt32(scalar)) { ascii.0 |= 1 << UInt64(scalar) }
      for scalar in 0..<64 where set.contains(UInt32(scalar + 64)) { ascii.1 |= 1 << UInt64(scalar) }
      beyond = beyond || set.isNegated || set.namesNonASCII || set.parts.contains { $0.isNegated }
    }

    mutating func add(_ other: Self) {
      ascii = (ascii.0 | other.ascii.0, ascii.1 | other.ascii.1)
      beyond = beyond || other.beyond
    }

    func isDisjoint(_ other: Self) -> Bool {
      ascii.0 & other.ascii.0 == 0 && ascii.1 & other.ascii.1 == 0 && !(beyond && other.beyond)
    }
  }

  /// Whether a tree matches the empty text: nowhere, somewhere, everywhere.
  private enum Emptiness: Int { case never, sometimes, always }

  private struct Outlook {
    var first = Beginning()
    var empty = Emptiness.always

    /// This tree, followed by `next`.
    func followed(by next: Outlook) -> Outlook {
      guard empty != .never else { return self }
      var result = next
      result.first.add(first)
      if empty == .sometimes, next.empty == .always { result.empty = .sometimes }
      return result
    }
  }

  private static let mostStates = 300

  /// The tree without atomic groups.
  static func resolve(_ tree: RegexTree) throws(RegexFault) -> RegexTree {
    hasAtomic(tree) ? try resolve(tree, Outlook()) : tree
  }

  private static func hasAtomic(_ tree: RegexTree) -> Bool {
    switch tree {
    case .empty, .set, .assertion: false
    case .atomic: true
    case .sequence(let all), .choice(let all): all.contains(where: hasAtomic)
    case .repetition(let inner, _, _, _), .group(_, let inner): hasAtomic(inner)
    }
  }

  private static func resolve(_ tree: RegexTree, _ next: Outlook) throws(RegexFault) -> RegexTree {
    switch tree {
    case .empty, .set, .assertion: return tree
    case .sequence(let all):
      var next = next
      var result: [RegexTree] = []
      for one in all.reversed() {
        result.append(try resolve(one, next))
        next = outlook(one).followed(by: next)
      }
      return .sequence(result.reversed())
    case .choice(let all):
      var result: [RegexTree] = []
      for one in all { result.append(try resolve(one, next)) }
      return .choice(result)
    case .group(let number, let inner): return .group(number, try resolve(inner, next))
    case .repetition(let inner, let least, let most, let isGreedy):
      var behind = next
      // Repetitions of a group that captures nothing may divide their match in any way.
      if case .atomic(let body, _) = inner, most == nil, isGreedy, !hasGroups(body) {
        return .repetition(try resolve(inner, behind), least: least, most: most, isGreedy: isGreedy)
      }
      if most != 1 {
        behind.first.add(outlook(inner).first)
        if behind.empty == .always, least > 1 { behind.empty = .sometimes }
      }
      return .repetition(try resolve(inner, behind), least: least, most: most, isGreedy: isGreedy)
    case .atomic(let inner, let at):
      let body = try resolve(inner, next)
      if next.empty == .always || length(body) != nil || isPlain(body, next) { return body }
      throw RegexFault(
        message: "this '(?>' would match something else as a plain group", offset: at,
        help: "Atomic groups are not supported: write (?:...), and let what follows begin with another character.")
    }
  }

  private static func hasGroups(_ tree: RegexTree) -> Bool {
    switch tree {
    case .empty, .set, .assertion: false
    case .group: true
    case .sequence(let all), .choice(let all): all.contains(where: hasGroups)
    case .repetition(let inner, _, _, _), .atomic(let inner, _): hasGroups(inner)
    }
  }

  private static func outlook(_ tree: RegexTree) -> Outlook {
    var result = Outlook()
    switch tree {
    case .empty: break
    case .assertion: result.empty = .sometimes
    case .set(let set):
      result.first.add(set)
      result.empty = .never
    case .sequence(let all):
      for one in all.reversed() { result = outlook(one).followed(by: result) }
    case .choice(let all):
      result.empty = .never
      for one in all.map(outlook) {
        result.first.add(one.first)
        if one.empty.rawValue > result.empty.rawValue { result.empty = one.empty }
      }
    case .group(_, let inner), .atomic(let inner, _): return outlook(inner)
    case .repetition(let inner, let least, _, _):
      result = outlook(inner)
      if least == 0 { result.empty = .always }
    }
    return result
  }

  /// The common length of all matches in code points, if there is one.
  private static func length(_ tree: RegexTree) -> Int? {
    switch tree {
    case .empty, .assertion: return 0
    case .set: return 1
    case .group(_, let inner), .atomic(let inner, _): return length(inner)
    case .repetition(let inner, let least, let most, _):
      guard let most, least == most, let one = length(inner) else { return nil }
      return one * least
    case .sequence(let all):
      var sum = 0
      for one in all {
        guard let one = length(one) else { return nil }
        sum += one
      }
      return sum
    case .choice(let all):
      let lengths = Set(all.map(length))
      return lengths.count == 1 ? lengths.first ?? nil : nil
    }
  }

  /// Follows everything that the group can have matched, in the automaton's order of preference.
  private static func isPlain(_ tree: RegexTree, _ next: Outlook) -> Bool {
    guard let program = try? RegexProgram(tree, groups: 0, .grok), program.guards.isEmpty,
      program.instructions.count < 3000
    else { return false }
    var scalars = Array(UInt32(0)..<128) + [0xA0, 0xE9, 0x301, 0x661, 0x2014, 0x4E00, 0x1F600]
    for set in program.sets {
      for part in set.parts { for range in part.ranges { scalars += [range.lowerBound, range.upperBound] } }
    }
    var seen: Set<[Bool]> = []
    let alphabet = scalars.filter { scalar in seen.insert(program.sets.map { $0.contains(scalar) }).inserted }
    var known: Set<[Int32]> = []
    var waiting: [[Int32]] = [[program.anchoredStart]]
    var continuing = Beginning()
    var isLongestFirst = true
    while let state = waiting.popLast() {
      guard known.insert(state).inserted else { continue }
      if known.count > mostStates { return false }
      var visited: Set<Int32> = []
      var reading: [(set: Int, next: Int32)] = []
      var matchAt: Int?
      var stack = Array(state.reversed())
      while let at = stack.popLast() {
        guard visited.insert(at).inserted else { continue }
        let one = program.instructions[Int(at)]
        switch one.operation {
        case .choice: stack += [one.b, one.a]
        case .keep, .assertion: stack.append(one.a)
        case .set: reading.append((Int(one.b), one.a))
        case .match: matchAt = reading.count
        }
      }
      if let matchAt {
        for one in reading { continuing.add(program.sets[one.set]) }
        if matchAt < reading.count { isLongestFirst = false }
      }
      for scalar in alphabet {
        var targets: [Int32] = []
        for one in reading where program.sets[one.set].contains(scalar) && !targets.contains(one.next) {
          targets.append(one.next)
        }
        if !targets.isEmpty { waiting.append(targets) }
      }
    }
    if continuing.isDisjoint(Beginning()), continuing.ascii == (0, 0), !continuing.beyond { return true }
    return isLongestFirst && next.empty == .never && continuing.isDisjoint(next.first)
  }
}
