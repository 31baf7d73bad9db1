/// Matches a program with a lazily built deterministic automaton that tracks where groups start and end.
///
/// A state corresponds to what the nondeterministic automaton is doing at one offset: instructions in the order of
/// preference, each with the number of the row that holds its offsets. Instructions with equal offsets share a row, so
/// rows are few and change only where a group starts or ends. A step is one lookup in a table, by state and class of
/// code points. The result is the match that a backtracking matcher would find first, as in RE2 and Perl.
///
/// Must be used by one thread at a time.
final class TaggedAutomaton {
  private struct State: Hashable {
    /// Instructions and rows, alternating.
    var roots: [Int32]
    /// The bits of the preceding code point that the instructions need.
    var before: UInt64
  }

  /// The changes of a step apart from the state; ``store(_:)`` defines the stored form.
  private struct Action {
    struct Move {
      /// The row of the old state, copied if another new row also comes from it.
      var source: Int32
      var isCopied: Bool
      var kept: [Int32]
    }
    /// 0: no match is possible any more.
    var next: Int32 = 0
    /// Whether the rows stay unchanged.
    var isPlain = true
    var moves: [Move] = []
    /// Rows of the old state that no instruction needs any more.
    var dropped: [Int32] = []
    /// The row of a match that ends before this code point; -1 if there is none.
    var matchRow: Int32 = -1
    var matchKept: [Int32] = []
  }

  private let program: RegexProgram
  private let slotCount: Int

  // The program does not distinguish between the code points of one class. Class 0 is the end of the text; 1 stands for
  // all bytes beyond ASCII, which the table does not cover.
  private var classNumbers: [[UInt64]: Int] = [:]
  /// The sets that the code points of each class belong to.
  private var memberships: [[UInt64]] = []
  private var beforeMasks: [UInt64] = []
  /// The class of each ASCII byte.
  private let asciiClasses: UnsafeMutablePointer<UInt8>
  private var otherClasses: [UInt32: UInt8] = [:]
  private static let otherClassesLimit = 4096

  private var stride: Int
  /// The entry of a state and a class: 0 if unknown, the index of the next state in this table, or, if negative, the
  /// complement of the index of an action.
  private var table: UnsafeMutablePointer<Int32>
  private var tableCapacity: Int
  /// The states by number; 0 is none.
  private var states: [State] = []
  private var stateNumbers: [State: Int32] = [:]
  /// Consecutive actions in the form of ``store(_:)``.
  private var actions: UnsafeMutablePointer<Int32>
  private var actionsUsed = 0
  private var actionsCapacity = 256
  private var bytes = 0
  /// The bytes scanned since all states were dropped.
  private var scanned = 0
  /// Whether new states are built nearly as fast as text is read, so that the table gains nothing.
  private(set) var isThrashing = false
  /// The memory limit in bytes.
  private let limit: Int
  private(set) var clearings = 0

  // The rows of offsets.
  private var rows: UnsafeMutablePointer<Int>
  private var rowCapacity: Int
  /// The index in ``rows`` of each row of a state; large enough for any state.
  private var indexOfRow: UnsafeMutablePointer<Int32>
  private var newIndexes: UnsafeMutablePointer<Int32>
  private var freeIndexes: UnsafeMutablePointer<Int32>
  private var freeCount = 0
  private var best: UnsafeMutablePointer<Int>

  private var scratch: Scratch

  /// Memory for building steps.
  private struct Scratch {
    var visited: [UInt32]
    var visit: UInt32 = 0
    var stack: [(instruction: Int32, kept: Int)] = []
    var kept: [Int32] = []
    var reached: [UInt32]
    var threads: [(instruction: Int32, source: Int32, kept: [Int32])] = []
  }

  init(_ program: RegexProgram, limit: Int = 2 << 20) {
    self.program = program
    self.limit = limit
    slotCount = program.slotCount
    asciiClasses = .allocate(capacity: 256)
    asciiClasses.initialize(repeating: 1, count: 256)
    scratch = Scratch(
      visited: Array(repeating: 0, count: program.instructions.count),
      reached: Array(repeating: 0, count: program.instructions.count))
    stride = 0
    tableCapacity = 0
    table = .allocate(capacity: 1)
    actions = .allocate(capacity: actionsCapacity)
    rowCapacity = 4
    rows = .allocate(capacity: rowCapacity * slotCount)
    rows.initialize(repeating: -1, count: rowCapacity * slotCount)
    indexOfRow = .allocate(capacity: rowCapacity)
    newIndexes = .allocate(capacity: rowCapacity)
    freeIndexes = .allocate(capacity: rowCapacity)
    best = .allocate(capacity: slotCount)
    best.initialize(repeating: -1, count: slotCount)
    memberships = [[], []]
    beforeMasks = [0, 0]
    for scalar in 0..<128 {
      asciiClasses[scalar] = classNumber(UInt32(scalar)) ?? 0
    }
    stride = memberships.count + 8
    clear()
    clearings = 0
  }

  deinit {
    asciiClasses.deallocate()
    table.deallocate()
    actions.deallocate()
    rows.deallocate()
    indexOfRow.deallocate()
    newIndexes.deallocate()
    freeIndexes.deallocate()
    best.deallocate()
  }

  // MARK: Classes

  /// The class of a code point, or nil if there are too many.
  private func classNumber(_ scalar: UInt32) -> UInt8? {
    var words = [UInt64](repeating: 0, count: (program.sets.count + 63) / 64)
    for (index, set) in program.sets.enumerated() where set.contains(scalar) {
      words[index / 64] |= 1 << UInt64(index % 64)
    }
    if let known = classNumbers[words] { return UInt8(known) }
    guard memberships.count < 255 else { return nil }
    let number = memberships.count
    classNumbers[words] = number
    memberships.append(words)
    var mask: UInt64 = 0
    for (index, set) in program.setsBehind.enumerated() where words[set / 64] >> UInt64(set % 64) & 1 == 1 {
      mask |= 2 << UInt64(index)
    }
    beforeMasks.append(mask)
    return UInt8(number)
  }

  /// The class of a code point beyond ASCII, or of an invalid byte.
  private func otherClass(_ scalar: UInt32) -> UInt8? {
    if let known = otherClasses[scalar] { return known }
    guard let number = classNumber(scalar) else { return nil }
    if otherClasses.count >= Self.otherClassesLimit { otherClasses.removeAll(keepingCapacity: true) }
    otherClasses[scalar] = number
    return number
  }

  private func belongs(_ group: Int, _ set: Int) -> Bool {
    group != 0 && memberships[group][set / 64] >> UInt64(set % 64) & 1 == 1
  }

  // MARK: States

  /// Drops all states.
  private func clear() {
    clearings += 1
    isThrashing = scanned < 16 * states.count
    scanned = 0
    states.removeAll(keepingCapacity: true)
    stateNumbers.removeAll(keepingCapacity: true)
    actionsUsed = 0
    states.append(State(roots: [], before: 0))
    if stride < memberships.count { stride = memberships.count + 16 }
    bytes = 0
    table.deallocate()
    tableCapacity = 16 * stride
    table = .allocate(capacity: tableCapacity)
    table.initialize(repeating: 0, count: tableCapacity)
  }

  private func number(_ state: State) -> Int32 {
    if let known = stateNumbers[state] { return known }
    let number = Int32(states.count)
    states.append(state)
    stateNumbers[state] = number
    bytes += stride * 4 + state.roots.count * 8 + 160
    if states.count * stride > tableCapacity {
      let larger = UnsafeMutablePointer<Int32>.allocate(capacity: 2 * tableCapacity)
      larger.update(from: table, count: tableCapacity)
      (larger + tableCapacity).initialize(repeating: 0, count: tableCapacity)
      table.deallocate()
      table = larger
      tableCapacity *= 2
    }
    return number
  }

  /// Whether an assertion holds between two code points.
  private func holds(_ one: RegexProgram.Guard, _ before: UInt64, _ group: Int) -> Bool {
    func behind(_ set: Int) -> Bool {
      guard let index = program.setsBehind.firstIndex(of: set) else { return false }
      return before & (2 << UInt64(index)) != 0
    }
    switch one {
    case .beginText: return before & RegexProgram.beginBit != 0
    case .endText: return group == 0
    case .beginLine: return before & RegexProgram.beginBit != 0 || behind(program.newlineSet)
    case .endLine: return group == 0 || belongs(group, program.newlineSet)
    case .wordBoundary(let wanted): return (behind(program.wordSet) != belongs(group, program.wordSet)) == wanted
    case .behind(let set, let wanted): return behind(set) == wanted
    case .ahead(let set, let wanted): return belongs(group, set) == wanted
    }
  }

  /// Builds the step from a state over a class and stores it in the table.
  private func step(_ number: Int32, _ group: Int) -> Int32 {
    let state = states[Int(number)]
    scratch.visit += 1
    if scratch.visit == 0 {
      for index in scratch.visited.indices {
        scratch.visited[index] = 0
        scratch.reached[index] = 0
      }
      scratch.visit = 1
    }
    scratch.threads.removeAll(keepingCapacity: true)
    var action = Action()
    var rowCount: Int32 = 0
    program.instructions.withUnsafeBufferPointer { instructions in
      var root = 0
      search: while root < state.roots.count {
        let source = state.roots[root + 1]
        rowCount = max(rowCount, source + 1)
        scratch.stack.append((state.roots[root], 0))
        root += 2
        scratch.kept.removeAll(keepingCapacity: true)
        while let (at, count) = scratch.stack.popLast() {
          scratch.kept.removeLast(scratch.kept.count - count)
          var at = at
          walk: while scratch.visited[Int(at)] != scratch.visit {
            scratch.visited[Int(at)] = scratch.visit
            let one = instructions[Int(at)]
            switch one.operation {
            case .choice:
              scratch.stack.append((one.b, scratch.kept.count))
              at = one.a
            case .keep:
              scratch.kept.append(one.b)
              at = one.a
            case .assertion:
              guard holds(program.guards[Int(one.b)], state.before, group) else { break walk }
              at = one.a
            case .set:
              if belongs(group, Int(one.b)), scratch.reached[Int(one.a)] != scratch.visit {
                scratch.reached[Int(one.a)] = scratch.visit
                scratch.threads.append((one.a, source, Self.unique(scratch.kept)))
              }
              break walk
            case .match:
              action.matchRow = source
              action.matchKept = Self.unique(scratch.kept)
              // Later threads have lower preference than this match.
              scratch.stack.removeAll(keepingCapacity: true)
              break search
            }
          }
        }
      }
      while root < state.roots.count {
        rowCount = max(rowCount, state.roots[root + 1] + 1)
        root += 2
      }
    }
    let entry = finish(&action, rowCount, group)
    table[Int(number) * stride + group] = entry
    return entry
  }

  /// Assigns rows and a state to the threads of a step.
  private func finish(_ action: inout Action, _ oldRows: Int32, _ group: Int) -> Int32 {
    var roots: [Int32] = []
    roots.reserveCapacity(2 * scratch.threads.count)
    var known: [(source: Int32, kept: [Int32])] = []
    var before: UInt64 = 0
    for thread in scratch.threads {
      var row = known.count
      for (index, one) in known.enumerated() where one.source == thread.source && one.kept == thread.kept {
        row = index
        break
      }
      if row == known.count { known.append((thread.source, thread.kept)) }
      roots.append(thread.instruction)
      roots.append(Int32(row))
      before |= program.asksBefore[Int(thread.instruction)]
    }
    var isPlain = known.count == Int(oldRows)
    for (index, one) in known.enumerated() where Int(one.source) != index || !one.kept.isEmpty { isPlain = false }
    action.isPlain = isPlain && !roots.isEmpty
    if !roots.isEmpty {
      action.next = number(State(roots: roots, before: beforeMasks[group] & before))
    }
    if action.isPlain, action.matchRow < 0 { return action.next * Int32(stride) }
    if !action.isPlain, action.next != 0 {
      for (index, one) in known.enumerated() {
        let isCopied = known[(index + 1)...].contains { $0.source == one.source }
        action.moves.append(.init(source: one.source, isCopied: isCopied, kept: one.kept))
      }
      for row in 0..<oldRows where !known.contains(where: { $0.source == row }) { action.dropped.append(row) }
    }
    return ~Int32(store(action))
  }

  private static func unique(_ slots: [Int32]) -> [Int32] { slots.count < 2 ? slots : Set(slots).sorted() }

  /// Stores an action: the index of the next state, whether it is plain, the row of a match, its slots (their number
  /// and the slots), the dropped rows likewise, the number of moves and each move: its source, whether it is copied,
  /// its slots.
  private func store(_ action: Action) -> Int {
    var words: [Int32] = [action.next * Int32(stride), action.isPlain ? 1 : 0, action.matchRow]
    words.append(Int32(action.matchKept.count))
    words += action.matchKept
    words.append(Int32(action.dropped.count))
    words += action.dropped
    words.append(Int32(action.moves.count))
    for move in action.moves {
      words += [move.source, move.isCopied ? 1 : 0, Int32(move.kept.count)]
      words += move.kept
    }
    if actionsUsed + words.count > actionsCapacity {
      let larger = UnsafeMutablePointer<Int32>.allocate(capacity: 2 * actionsCapacity + words.count)
      larger.update(from: actions, count: actionsUsed)
      actions.deallocate()
      actions = larger
      actionsCapacity = 2 * actionsCapacity + words.count
    }
    for (index, word) in words.enumerated() { actions[actionsUsed + index] = word }
    bytes += 4 * words.count
    reserveRows(action.moves.count)
    defer { actionsUsed += words.count }
    return actionsUsed
  }

  // MARK: Matching

  /// Finds the first match at or after `start`, or only at `start` if `anchored`: ``RegexProgram/slotCount`` offsets,
  /// -1 for none. With `mayGiveUp`, nil if this automaton does not suit the text.
  func find(
    _ text: UnsafeRawBufferPointer, from start: Int, anchored: Bool, mayGiveUp: Bool,
    into groups: UnsafeMutableBufferPointer<Int>
  ) -> Bool? {
    // Most patterns match at the start of the text or not at all; a match there is also what a search would find.
    let first = run(text, start, program.anchoredStart, mayGiveUp)
    guard first == false else { return copy(first, groups) }
    if anchored || (program.isAtBegin && start == 0) { return false }
    return copy(run(text, start, program.searchStart, mayGiveUp), groups)
  }

  private func copy(_ found: Bool?, _ groups: UnsafeMutableBufferPointer<Int>) -> Bool? {
    guard found == true else { return found }
    for index in 0..<min(groups.count, slotCount) { groups[index] = best[index] }
    return true
  }

  private func startState(_ text: UnsafeRawBufferPointer, _ start: Int, _ instruction: Int32) -> Int32? {
    var before = RegexProgram.beginBit
    let asked = program.asksBefore[Int(instruction)] | program.asksBefore[Int(program.anchoredStart)]
    if start > 0 {
      let scalar = asked == 0 ? 0 : UTF8Scalar.before(text, start)
      guard let group = scalar < 0x80 ? asciiClasses[Int(scalar)] : otherClass(scalar) else { return nil }
      before = beforeMasks[Int(group)]
    }
    return number(State(roots: [instruction, 0], before: before & asked))
  }

  private func run(
    _ text: UnsafeRawBufferPointer, _ start: Int, _ instruction: Int32, _ mayGiveUp: Bool
  ) -> Bool? {
    if mayGiveUp, isThrashing { return nil }
    let clearedBefore = clearings
    if bytes > limit { clear() }
    guard let first = startState(text, start, instruction) else { return mayGiveUp ? nil : false }
    // Row 0 starts without offsets.
    indexOfRow[0] = 0
    freeCount = rowCapacity - 1
    for index in 0..<freeCount { freeIndexes[index] = Int32(index + 1) }
    rows.update(repeating: -1, count: slotCount)
    var found = false
    /// The action with the latest match, whose row has not been copied yet, and the match's end.
    var pending = -1
    var pendingAt = 0

    let count = text.count
    let classes = asciiClasses
    var table = self.table
    var base = Int(first) * stride
    var at = start
    let text8 = text.bindMemory(to: UInt8.self)
    while true {
      // The path of nearly all steps: an ASCII character, a known state, unchanged rows.
      while at < count {
        let entry = table[base &+ Int(classes[Int(text8[at])])]
        if entry <= 0 { break }
        base = Int(entry)
        at &+= 1
      }
      let group: Int
      var length = 1
      if at < count {
        let byte = text[at]
        if byte < 0x80 {
          group = Int(classes[Int(byte)])
        } else {
          let scalar: UInt32
          (scalar, length) = UTF8Scalar.read(text, at)
          guard let other = otherClass(scalar) else { return mayGiveUp ? nil : false }
          group = Int(other)
          if group >= stride {
            // The class has no room in the table.
            if pending >= 0 { take(pending, pendingAt) }
            pending = -1
            let kept = states[base / stride]
            clear()
            base = Int(number(kept)) * stride
            table = self.table
          }
        }
      } else {
        group = 0
      }
      var entry = table[base + group]
      if entry == 0 {
        if bytes > limit {
          scanned += at - start
          if pending >= 0 { take(pending, pendingAt) }
          pending = -1
          let kept = states[base / stride]
          clear()
          if mayGiveUp, isThrashing || clearings - clearedBefore > 1 { return nil }
          base = Int(number(kept)) * stride
        }
        entry = step(Int32(base / stride), group)
        table = self.table
      }
      if entry > 0 {
        base = Int(entry)
        at += length
        continue
      }
      let action = Int(~entry)
      base = Int(actions[action])
      if actions[action + 1] == 1 {
        found = true
        pending = action
        pendingAt = at
      } else {
        if pending >= 0 {
          take(pending, pendingAt)
          pending = -1
        }
        if actions[action + 2] >= 0 {
          take(action, at)
          found = true
        }
        if base != 0 { move(action, at) }
      }
      if base == 0 || at >= count { break }
      at += length
    }
    if pending >= 0 { take(pending, pendingAt) }
    scanned += at - start
    return found
  }

  /// Stores the match that an action found.
  private func take(_ action: Int, _ at: Int) {
    let words = actions + action + 2
    best.update(from: rows + Int(indexOfRow[Int(words[0])]) * slotCount, count: slotCount)
    for index in 0..<Int(words[1]) { best[Int(words[2 + index])] = at }
  }

  /// Moves the offsets into the next state's rows.
  private func move(_ action: Int, _ at: Int) {
    var word = actions + action + 3
    word += Int(word[0]) + 1
    let dropped = Int(word[0])
    let moves = Int(word[1 + dropped])
    if moves == 1, dropped == 0 {
      word += 2
      let row = rows + Int(indexOfRow[Int(word[0])]) * slotCount
      for index in 0..<Int(word[2]) { row[Int(word[3 + index])] = at }
      return
    }
    for index in 0..<dropped {
      freeIndexes[freeCount] = indexOfRow[Int(word[1 + index])]
      freeCount += 1
    }
    word += dropped + 2
    var row = 0
    while row < moves {
      var rowIndex = indexOfRow[Int(word[0])]
      if word[1] == 1 {
        let source = Int(rowIndex)
        freeCount -= 1
        rowIndex = freeIndexes[freeCount]
        (rows + Int(rowIndex) * slotCount).update(from: rows + source * slotCount, count: slotCount)
      }
      let slots = rows + Int(rowIndex) * slotCount
      let kept = Int(word[2])
      for index in 0..<kept { slots[Int(word[3 + index])] = at }
      newIndexes[row] = rowIndex
      word += 3 + kept
      row += 1
    }
    swap(&indexOfRow, &newIndexes)
  }

  /// Makes room for `count` rows. Rows in use keep their index.
  private func reserveRows(_ count: Int) {
    guard count > rowCapacity else { return }
    let capacity = max(2 * rowCapacity, count)
    func larger<Element>(_ old: UnsafeMutablePointer<Element>, _ stride: Int) -> UnsafeMutablePointer<Element> {
      let new = UnsafeMutablePointer<Element>.allocate(capacity: capacity * stride)
      new.update(from: old, count: rowCapacity * stride)
      old.deallocate()
      return new
    }
    rows = larger(rows, slotCount)
    indexOfRow = larger(indexOfRow, 1)
    newIndexes = larger(newIndexes, 1)
    freeIndexes = larger(freeIndexes, 1)
    for rowIndex in rowCapacity..<capacity {
      freeIndexes[freeCount] = Int32(rowIndex)
      freeCount += 1
    }
    rowCapacity = capacity
  }
}
