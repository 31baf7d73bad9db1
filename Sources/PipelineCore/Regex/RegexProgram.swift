/// A regular expression as instructions of a nondeterministic automaton; choices are ordered by preference.
///
/// Immutable and safe to share between threads.
final class RegexProgram: Sendable {
  enum Operation: UInt8, Sendable {
    /// Matches a code point of the set `b` and continues at `a`.
    case set
    /// Prefers `a` to `b`.
    case choice
    /// Stores the offset in the slot `b` and continues at `a`.
    case keep
    /// Continues at `a` if the assertion `b` holds.
    case assertion
    case match
  }

  struct Instruction: Sendable {
    var operation: Operation
    var a: Int32
    var b: Int32
  }

  /// An assertion about the code points around an offset, by the sets that contain them; -1: no set.
  enum Guard: Sendable {
    case beginText, endText, beginLine, endLine
    case wordBoundary(Bool)
    case behind(Int, Bool)
    case ahead(Int, Bool)
  }

  let instructions: [Instruction]
  let sets: [RegexSet]
  let guards: [Guard]
  /// The start instructions for a match at an offset, and for a search from it.
  let anchoredStart: Int32
  let searchStart: Int32
  /// Whether it can match only at the start of the text.
  let isAtBegin: Bool
  /// The number of slots: two for the whole match, then two for each group.
  let slotCount: Int
  /// The sets that must be known for the code point before an offset; see ``BeforeMask``.
  let setsBehind: [Int]
  /// For each instruction, the bits of the preceding code point that decide the assertions reachable without matching one.
  let asksBefore: [UInt64]
  let wordSet: Int
  let newlineSet: Int

  static let mostInstructions = 40_000
  /// The bits of the preceding code point: bit 0 means that there is none, the others stand for ``setsBehind``.
  static let beginBit: UInt64 = 1

  private struct Writer {
    var instructions: [Instruction] = []
    var sets: [RegexSet] = []
    var setNumbers: [RegexSet: Int] = [:]
    var guards: [Guard] = []
    var word: RegexSet
    /// Whether matches must equal RE2's to the byte: there is no program if RE2's own engines would order empty
    /// repetitions differently.
    var isExact: Bool
    var wordSet = -1
    var newlineSet = -1

    mutating func add(_ operation: Operation, _ a: Int32, _ b: Int32 = 0) throws(RegexFault) -> Int32 {
      guard instructions.count < RegexProgram.mostInstructions else {
        throw RegexFault(message: "the pattern grows too large")
      }
      instructions.append(Instruction(operation: operation, a: a, b: b))
      return Int32(instructions.count - 1)
    }

    mutating func number(_ set: RegexSet) -> Int {
      if let known = setNumbers[set] { return known }
      sets.append(set)
      setNumbers[set] = sets.count - 1
      return sets.count - 1
    }

    mutating func guarding(_ assertion: RegexTree.Assertion) -> Guard {
      switch assertion {
      case .beginText: return .beginText
      case .endText: return .endText
      case .beginLine:
        newlineSet = number(RegexSet(0x0A))
        return .beginLine
      case .endLine:
        newlineSet = number(RegexSet(0x0A))
        return .endLine
      case .wordBoundary(let wanted):
        wordSet = number(word)
        return .wordBoundary(wanted)
      case .behind(let set, let wanted): return .behind(number(set), wanted)
      case .ahead(let set, let wanted): return .ahead(number(set), wanted)
      }
    }

    /// Writes the instructions for `tree`, continuing at `next`; returns their start.
    mutating func write(_ tree: RegexTree, _ next: Int32) throws(RegexFault) -> Int32 {
      switch tree {
      case .empty: return next
      case .set(let set): return try add(.set, next, Int32(number(set)))
      case .sequence(let all):
        var at = next
        for one in all.reversed() { at = try write(one, at) }
        return at
      case .choice(let all):
        var at = try write(all[all.count - 1], next)
        for one in all.dropLast().reversed() {
          let first = try write(one, next)
          at = try add(.choice, first, at)
        }
        return at
      case .group(let number, let inner):
        let end = try add(.keep, next, Int32(2 * number + 1))
        return try add(.keep, try write(inner, end), Int32(2 * number))
      case .assertion(let assertion):
        guards.append(guarding(assertion))
        return try add(.assertion, next, Int32(guards.count - 1))
      case .atomic(let inner, _): return try write(inner, next)
      case .repetition(let inner, let least, let most, let isGreedy):
        return try write(inner, least, most, isGreedy, next)
      }
    }

    private mutating func choice(_ body: Int32, _ next: Int32, _ isGreedy: Bool) throws(RegexFault) -> Int32 {
      try isGreedy ? add(.choice, body, next) : add(.choice, next, body)
    }

    private mutating func write(
      _ inner: RegexTree, _ least: Int, _ most: Int?, _ isGreedy: Bool, _ next: Int32
    ) throws(RegexFault) -> Int32 {
      var at = next
      if let most {
        // x{2,4} is compiled as xx(x(x)?)?
        if case .assertion = inner, most > 1 {
          return try write(inner, min(least, 1), 1, isGreedy, next)
        }
        for _ in 0..<max(most - least, 0) {
          at = try choice(try write(inner, at), next, isGreedy)
        }
        for _ in 0..<least { at = try write(inner, at) }
        return at
      }
      if least == 0, !inner.isNullable {
        let loop = try add(.choice, 0, 0)
        let body = try write(inner, loop)
        instructions[Int(loop)] = Instruction(
          operation: .choice, a: isGreedy ? body : next, b: isGreedy ? next : body)
        return loop
      }
      // x+ as it is; x* as (x+)? if x can be empty, because an empty repetition is then preferred to none.
      if isExact, !isGreedy, inner.isNullable {
        throw RegexFault(message: "a lazy repetition of a pattern that can match nothing")
      }
      let loop = try add(.choice, 0, 0)
      let body = try write(inner, loop)
      instructions[Int(loop)] = Instruction(
        operation: .choice, a: isGreedy ? body : next, b: isGreedy ? next : body)
      at = body
      if least == 0 { return try choice(body, next, isGreedy) }
      for _ in 0..<least - 1 { at = try write(inner, at) }
      return at
    }
  }

  /// `groups`: the highest group number.
  init(_ tree: RegexTree, groups: Int, _ dialect: RegexParser.Dialect) throws(RegexFault) {
    var writer = Writer(word: RegexSet([RegexParser.wordPart(dialect)]), isExact: dialect == .re2)
    let match = try writer.add(.match, 0)
    let end = try writer.add(.keep, match, 1)
    let body = try writer.write(tree, end)
    let start = try writer.add(.keep, body, 0)
    // A search starts with .*?, which also matches bytes that are not UTF-8.
    let loop = try writer.add(.choice, start, 0)
    let everything = Int32(writer.number(.everything))
    let any = try writer.add(.set, loop, everything)
    writer.instructions[Int(loop)].b = any
    anchoredStart = start
    searchStart = loop
    slotCount = 2 * (groups + 1)
    sets = writer.sets
    guards = writer.guards
    instructions = writer.instructions
    wordSet = writer.wordSet
    newlineSet = writer.newlineSet
    var behind: [Int] = []
    func bit(_ set: Int) -> UInt64 {
      if let known = behind.firstIndex(of: set) { return 2 << UInt64(known) }
      behind.append(set)
      return 2 << UInt64(behind.count - 1)
    }
    let masks = guards.map { one -> UInt64 in
      switch one {
      case .beginText: Self.beginBit
      case .beginLine: Self.beginBit | bit(writer.newlineSet)
      case .wordBoundary: bit(writer.wordSet)
      case .behind(let set, _): bit(set)
      case .endText, .endLine, .ahead: 0
      }
    }
    guard behind.count < 62 else { throw RegexFault(message: "the pattern has too many look-behinds") }
    setsBehind = behind
    asksBefore = Self.asks(instructions, masks)
    isAtBegin = Self.isAtBegin(tree)
  }

  private static func isAtBegin(_ tree: RegexTree) -> Bool {
    switch tree {
    case .assertion(.beginText): true
    case .sequence(let all): all.first.map(isAtBegin) ?? false
    case .choice(let all): all.allSatisfy(isAtBegin)
    case .group(_, let inner), .atomic(let inner, _): isAtBegin(inner)
    case .repetition(let inner, let least, _, _): least > 0 && isAtBegin(inner)
    case .empty, .set, .assertion: false
    }
  }

  /// For each instruction, the bits needed by assertions that are reachable without matching a code point.
  private static func asks(_ instructions: [Instruction], _ masks: [UInt64]) -> [UInt64] {
    var result = [UInt64](repeating: 0, count: instructions.count)
    guard masks.contains(where: { $0 != 0 }) else { return result }
    // Loops need several passes; each pass adds at least one bit.
    var changed = true
    while changed {
      changed = false
      for (index, one) in instructions.enumerated() {
        let new: UInt64 =
          switch one.operation {
          case .set, .match: 0
          case .choice: result[Int(one.a)] | result[Int(one.b)]
          case .keep: result[Int(one.a)]
          case .assertion: result[Int(one.a)] | masks[Int(one.b)]
          }
        if new != result[index] {
          result[index] = new
          changed = true
        }
      }
    }
    return result
  }
}
