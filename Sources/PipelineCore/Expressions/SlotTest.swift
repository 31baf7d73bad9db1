#if canImport(Glibc)
  import Glibc
#endif

/// One term of a condition that compares a slot with a constant: 32 trivially copyable bytes.
///
/// A condition of such terms under `&&`, `||` and `!` is a sequence of tests. If a test has the expected outcome, the
/// next one follows, otherwise its jump is taken. A term that a test cannot decide (an absent field, a text with
/// escapes, kinds without an order) is evaluated by the operations, which implement all rules; no side effect precedes
/// that.
struct SlotTest {
  enum Code: UInt8 {
    /// Whether an int lies in a range: `low` is its least element, `high` the distance from it to the greatest.
    case intEqual, intLess, intLessOrEqual
    case doubleEqual, doubleLess, doubleLessOrEqual, doubleGreater, doubleGreaterOrEqual
    case boolEqual
    case null
    /// Equality of text, by its length in bytes: none, 1 to 3, 4 to 8, 9 to 16, more.
    case empty, short, word, twoWords, text
    case present
    /// Whether the slot is of one of the kinds `low`; otherwise the operations give the reason.
    case kind
    /// The slot's bool.
    case truth
    /// Any other term: the operation with the number `slot`.
    case other
  }

  var code: Code
  /// The outcome for which the next test follows; otherwise `jump`.
  var expected = Truth.yes
  /// The outcome for an absent slot; ``Truth/failed`` leaves it to the operations.
  var absent = Truth.failed
  /// Whether the test may decide for values of another kind than the constant's.
  var judgesOthers = true
  /// The index of a test, or the complement of the final outcome.
  var jump: Int32 = 0
  var slot: Int32
  /// The length of the text in bytes.
  var length: UInt32 = 0
  /// The constant: for a text, its first and last bytes, or its address.
  var low: UInt64 = 0
  var high: UInt64 = 0

  // MARK: Running

  /// The outcome of `count` tests (``Truth``); `last` if every test has its expected outcome.
  @inline(__always)
  static func run(
    _ tests: UnsafePointer<SlotTest>, _ count: Int, last: UInt8,
    _ code: UnsafePointer<Program.Code>, _ state: UnsafeMutablePointer<EvaluationFrame.State>
  ) -> UInt8 {
    run(tests, count, last: last, UnsafePointer(state.pointee.slots)) { test, slot in
      test.pointee.code == .other ? test.evaluate(code, state) : test.judge(slot)
    }
  }

  /// Like ``run``, but only compares slots: ``Truth/failed`` where a test needs more.
  @inline(__always)
  static func compare(
    _ tests: UnsafePointer<SlotTest>, _ count: Int, last: UInt8, _ slots: UnsafePointer<Value>
  ) -> UInt8 {
    run(tests, count, last: last, slots) { _, _ in Truth.failed }
  }

  /// Whether ``compare(_:_:last:_:)`` supports the test.
  var isComparison: Bool {
    switch code {
    case .intEqual, .intLess, .intLessOrEqual, .short, .word, .twoWords: true
    default: false
    }
  }

  /// `otherwise` decides tests that a comparison of the slot cannot decide.
  @inline(__always)
  private static func run(
    _ tests: UnsafePointer<SlotTest>, _ count: Int, last: UInt8, _ slots: UnsafePointer<Value>,
    otherwise: (UnsafePointer<SlotTest>, UnsafePointer<Value>) -> UInt8
  ) -> UInt8 {
    let end = tests + count
    var test = tests
    while true {
      let slot = slots + Int(test.pointee.slot)
      let outcome: UInt8
      switch test.pointee.code {
      // One comparison serves all three: the branch is predictable, where a jump table is not.
      case .intEqual, .intLess, .intLessOrEqual:
        outcome =
          slot.pointee.is(.int)
          ? bit(slot.pointee.payload &- test.pointee.low <= test.pointee.high) : otherwise(test, slot)
      case .short:
        outcome =
          test.fits(slot)
          ? bit(shortBits(slot.pointee.pointer, test.pointee.length) == test.pointee.low) : otherwise(test, slot)
      case .word:
        guard test.fits(slot), let text = slot.pointee.pointer else {
          outcome = otherwise(test, slot)
          break
        }
        let low = text.loadUnaligned(as: UInt32.self)
        let high = text.loadUnaligned(fromByteOffset: Int(test.pointee.length) &- 4, as: UInt32.self)
        outcome = bit(UInt64(low) | UInt64(high) << 32 == test.pointee.low)
      case .twoWords:
        guard test.fits(slot), let text = slot.pointee.pointer else {
          outcome = otherwise(test, slot)
          break
        }
        let low = text.loadUnaligned(as: UInt64.self)
        let high = text.loadUnaligned(fromByteOffset: Int(test.pointee.length) &- 8, as: UInt64.self)
        outcome = bit((low ^ test.pointee.low) | (high ^ test.pointee.high) == 0)
      default:
        outcome = otherwise(test, slot)
      }
      if outcome == test.pointee.expected {
        test += 1
        if test == end { return last }
        continue
      }
      if outcome == Truth.failed { return outcome }
      let jump = test.pointee.jump
      if jump < 0 { return UInt8(truncatingIfNeeded: ~jump) }
      test = tests + Int(jump)
    }
  }

  @inline(__always)
  private static func bit(_ holds: Bool) -> UInt8 { holds ? Truth.yes : Truth.no }

  /// The first, middle and last of 1 to 3 bytes, which together cover all of them.
  @inline(__always)
  fileprivate static func shortBits(_ text: UnsafeRawPointer?, _ length: UInt32) -> UInt64 {
    guard let text else { return .max }
    let first = text.load(as: UInt8.self)
    let middle = text.load(fromByteOffset: Int(length >> 1), as: UInt8.self)
    let last = text.load(fromByteOffset: Int(length) &- 1, as: UInt8.self)
    return UInt64(first) | UInt64(middle) << 8 | UInt64(last) << 16
  }
}

extension UnsafePointer<SlotTest> {
  @inline(__always)
  fileprivate var number: Int64 {
    let greatest = Int64(bitPattern: pointee.low &+ pointee.high)
    return pointee.code == .intLess ? greatest &+ 1 : greatest
  }

  /// Whether the slot is a text without escapes and as long as the constant.
  @inline(__always)
  fileprivate func fits(_ slot: UnsafePointer<Value>) -> Bool {
    slot.pointee.is(.string) && slot.pointee.flags == 0 && slot.pointee.length == pointee.length
  }

  @inline(never)
  fileprivate func evaluate(
    _ code: UnsafePointer<Program.Code>, _ state: UnsafeMutablePointer<EvaluationFrame.State>
  ) -> UInt8 {
    Machine(operations: code.pointee.operations, code: code, state: state).bool(pointee.slot)
  }

  /// The outcome of rare tests, and of values of another kind than the constant's.
  @inline(never)
  fileprivate func judge(_ slot: UnsafePointer<Value>) -> UInt8 {
    let value = slot.pointee
    if value.isAbsent { return pointee.absent }
    let holds: Bool
    switch pointee.code {
    case .present: return Truth.yes
    case .kind: return UInt32(truncatingIfNeeded: pointee.low) & KindSet.of(value) == 0 ? Truth.failed : Truth.yes
    case .truth:
      guard value.is(.bool) else { return Truth.failed }
      holds = value.asBool
    case .null:
      guard !value.isError else { return Truth.failed }
      holds = value.isNull
    case .boolEqual:
      guard value.is(.bool) else { return other(value) }
      holds = value.payload == pointee.low
    case .intEqual, .intLess, .intLessOrEqual:
      guard value.is(.double), pointee.judgesOthers else {
        return pointee.code == .intEqual ? other(value) : Truth.failed
      }
      let (double, limit) = (value.asDouble, Double(number))
      guard double == double else { return Truth.failed }
      holds = pointee.code == .intEqual ? double == limit : pointee.code == .intLess ? double < limit : double <= limit
    case .doubleEqual, .doubleLess, .doubleLessOrEqual, .doubleGreater, .doubleGreaterOrEqual:
      guard value.is(.double) || value.is(.int) && pointee.judgesOthers else {
        return pointee.code == .doubleEqual ? other(value) : Truth.failed
      }
      let (double, limit) = (value.asNumber, Double(bitPattern: pointee.low))
      switch pointee.code {
      case .doubleLess: holds = double < limit
      case .doubleLessOrEqual: holds = double <= limit
      case .doubleGreater: holds = double > limit
      case .doubleGreaterOrEqual: holds = double >= limit
      default: holds = double == limit
      }
    case .empty, .short, .word, .twoWords, .text:
      guard value.is(.string) else { return other(value) }
      guard value.flags == 0 else { return Truth.failed }
      guard value.length == pointee.length else { return Truth.no }
      // Of the codes for texts, only `.empty` and `.text` get here with an equal length; ``run`` has compared the
      // others.
      guard pointee.code == .text, let text = value.pointer,
        let constant = UnsafeRawPointer(bitPattern: UInt(pointee.low))
      else { return pointee.code == .empty ? Truth.yes : Truth.failed }
      holds = memcmp(text, constant, Int(value.length)) == 0
    case .other: return Truth.failed
    }
    return holds ? Truth.yes : Truth.no
  }

  /// Whether a scalar of another kind equals the constant: false unless both are numbers.
  private func other(_ value: Value) -> UInt8 {
    guard pointee.judgesOthers else { return Truth.failed }
    switch value.what {
    case .null, .bool: return Truth.no
    case .int, .double, .uint:
      switch pointee.code {
      case .boolEqual, .empty, .short, .word, .twoWords, .text: return Truth.no
      default: return Truth.failed
      }
    case .string:
      switch pointee.code {
      case .boolEqual, .intEqual, .doubleEqual: return Truth.no
      default: return Truth.failed
      }
    default: return Truth.failed
    }
  }
}

// MARK: Making

/// Makes the tests of a condition.
struct SlotTests {
  private(set) var tests: [SlotTest] = []
  /// The outcome if all tests have the expected outcome.
  private(set) var last = Truth.yes
  private let operations: [Operation]
  private let children: [Int32]
  private let context: Context

  /// The maximum number of tests of a condition.
  private static let limit = 1000
  /// Longer lists are searched otherwise.
  private static let listLimit = 8

  /// Nil if tests would gain nothing. `context` compares constants.
  init?(_ operations: [Operation], _ children: [Int32], root: Int32, _ context: Context) {
    self.operations = operations
    self.children = children
    self.context = context
    guard count(root) <= Self.limit else { return nil }
    emit(root, yes: ~Int32(Truth.yes), no: ~Int32(Truth.no))
    if tests.allSatisfy({ $0.code == .other }) { return nil }
  }

  /// The number of tests of an operation.
  private func count(_ at: Int32) -> Int {
    let operation = operations[Int(at)]
    switch operation.code {
    case .and, .or: return terms(operation).reduce(0) { $0 + count($1) }
    case .not: return count(operation.a)
    case .contains: return elements(operation)?.count ?? 1
    case .bind where guardTest(operation) != nil: return 1 + count(operation.c)
    default: return 1
    }
  }

  private func terms(_ operation: Operation) -> ArraySlice<Int32> {
    children[Int(operation.a)..<Int(operation.a) + Int(operation.b)]
  }

  private mutating func emit(_ at: Int32, yes: Int32, no: Int32) {
    let operation = operations[Int(at)]
    switch operation.code {
    case .and, .or:
      let terms = terms(operation)
      for (index, term) in terms.enumerated() {
        let isLast = index == terms.count - 1
        let next = Int32(tests.count + count(term))
        if operation.code == .and {
          emit(term, yes: isLast ? yes : next, no: no)
        } else {
          emit(term, yes: yes, no: isLast ? no : next)
        }
      }
    case .not:
      emit(operation.a, yes: no, no: yes)
    case .bind:
      guard let test = guardTest(operation) else { return append(other(at), yes, no) }
      append(test, Int32(tests.count + 1), no)
      emit(operation.c, yes: yes, no: no)
    case .contains:
      guard let constants = elements(operation) else { return append(other(at), yes, no) }
      for (index, constant) in constants.enumerated() {
        guard var test = Self.equality(constant) else { return }
        test.slot = operations[Int(operation.a)].a
        append(test, yes, index == constants.count - 1 ? no : Int32(tests.count + 1))
      }
    default:
      let (test, isInverted) = self.test(at)
      append(test, isInverted ? no : yes, isInverted ? yes : no)
    }
  }

  private mutating func append(_ test: SlotTest, _ yes: Int32, _ no: Int32) {
    var test = test
    let next = Int32(tests.count + 1)
    if no == next {
      test.expected = Truth.no
      test.jump = yes
    } else {
      // On true either the next test follows, or this is the last test.
      test.expected = Truth.yes
      test.jump = no
      if yes < 0 { last = UInt8(truncatingIfNeeded: ~yes) }
    }
    tests.append(test)
  }

  /// The test that an argument exists and has its kind, if it is a plain slot and nothing else needs its value.
  private func guardTest(_ operation: Operation) -> SlotTest? {
    guard operation.flags == 3 else { return nil }
    var read = operations[Int(operation.b)]
    var test = SlotTest(code: .present, slot: 0)
    if read.code == .argument {
      test.code = .kind
      test.low = UInt64(UInt32(bitPattern: read.b))
      read = operations[Int(read.a)]
      if read.code == .declared { read = operations[Int(read.a)] }
    }
    guard read.code == .slot else { return nil }
    test.slot = read.a
    return test
  }

  private func other(_ at: Int32) -> SlotTest { SlotTest(code: .other, slot: at) }

  /// The constants of `slot in [...]`, if each can be tested.
  private func elements(_ operation: Operation) -> [Value]? {
    guard operations[Int(operation.a)].code == .slot, operations[Int(operation.b)].code == .literal else { return nil }
    let list = operations[Int(operation.b)].literal
    guard list.is(.list), list.length > 0, list.length <= Self.listLimit else { return nil }
    let elements = Array(list.elements)
    return elements.allSatisfy({ Self.equality($0) != nil }) ? elements : nil
  }

  /// The test of one term, and whether its outcome is inverted.
  private func test(_ at: Int32) -> (SlotTest, isInverted: Bool) {
    let operation = operations[Int(at)]
    switch operation.code {
    case .slot: return (SlotTest(code: .truth, slot: operation.a), false)
    case .hasSlot where operation.b < 0:
      return (SlotTest(code: .present, absent: Truth.no, slot: operation.a), false)
    case .compareSlot:
      guard let relation = Relation(rawValue: operation.detail),
        let (test, isInverted) = Self.comparison(relation, operation.literal)
      else { break }
      return (bound(test, operation.c, read: operation.a, relation, operation.literal, isInverted), isInverted)
    case .compare:
      let read = operations[Int(operation.a)]
      guard read.code == .slotOr, operations[Int(operation.b)].code == .literal,
        let relation = Relation(rawValue: operation.detail),
        let (test, isInverted) = Self.comparison(relation, operations[Int(operation.b)].literal)
      else { break }
      return (
        bound(test, read.a, read: operation.a, relation, operations[Int(operation.b)].literal, isInverted), isInverted
      )
    default: break
    }
    return (other(at), false)
  }

  /// The test for this slot; the outcome for an absent slot follows the reading operation.
  private func bound(
    _ test: SlotTest, _ slot: Int32, read: Int32, _ relation: Relation, _ constant: Value, _ isInverted: Bool
  ) -> SlotTest {
    var test = test
    test.slot = slot
    let operation = operations[Int(read)]
    test.judgesOthers = operation.code != .declared && operation.code != .argument
    guard operation.b < 0 else { return test }
    let instead: Value
    switch operation.code {
    case .slotOrNull: instead = .null
    case .slotOr where operations[Int(operation.c)].code == .literal: instead = operations[Int(operation.c)].literal
    default: return test
    }
    let outcome = context.compare(relation, instead, constant)
    test.absent = outcome == Truth.failed ? outcome : isInverted ? outcome ^ 1 : outcome
    return test
  }

  private static func comparison(_ relation: Relation, _ constant: Value) -> (SlotTest, isInverted: Bool)? {
    func test(_ code: SlotTest.Code) -> SlotTest { SlotTest(code: code, slot: 0, low: constant.payload) }
    switch (relation, constant.what) {
    case (.equal, _): return equality(constant).map { ($0, false) }
    case (.notEqual, _): return equality(constant).map { ($0, true) }
    case (.less, .int), (.greaterOrEqual, .int):
      guard constant.asInt > .min else { return nil }
      return (ints(.intLess, .min, constant.asInt - 1), relation == .greaterOrEqual)
    case (.lessOrEqual, .int), (.greater, .int):
      return (ints(.intLessOrEqual, .min, constant.asInt), relation == .greater)
    // NaN is neither less nor not less.
    case (.less, .double): return (test(.doubleLess), false)
    case (.lessOrEqual, .double): return (test(.doubleLessOrEqual), false)
    case (.greater, .double): return (test(.doubleGreater), false)
    case (.greaterOrEqual, .double): return (test(.doubleGreaterOrEqual), false)
    default: return nil
    }
  }

  private static func ints(_ code: SlotTest.Code, _ least: Int64, _ greatest: Int64) -> SlotTest {
    SlotTest(
      code: code, slot: 0, low: UInt64(bitPattern: least),
      high: UInt64(bitPattern: greatest) &- UInt64(bitPattern: least))
  }

  private static func equality(_ constant: Value) -> SlotTest? {
    switch constant.what {
    case .null: return SlotTest(code: .null, slot: 0)
    case .bool: return SlotTest(code: .boolEqual, slot: 0, low: constant.payload)
    case .int: return ints(.intEqual, constant.asInt, constant.asInt)
    case .double: return SlotTest(code: .doubleEqual, slot: 0, low: constant.payload)
    case .string where constant.flags == 0: return text(constant)
    default: return nil
    }
  }

  private static func text(_ constant: Value) -> SlotTest {
    var test = SlotTest(code: .text, slot: 0, length: constant.length)
    let bytes = constant.rawBytes
    let tail = bytes.count
    switch tail {
    case 0: test.code = .empty
    case 1...3:
      test.code = .short
      test.low = SlotTest.shortBits(bytes.baseAddress, constant.length)
    case 4...8:
      test.code = .word
      test.low =
        UInt64(bytes.loadUnaligned(as: UInt32.self))
        | UInt64(bytes.loadUnaligned(fromByteOffset: tail - 4, as: UInt32.self)) << 32
    case 9...16:
      test.code = .twoWords
      test.low = bytes.loadUnaligned(as: UInt64.self)
      test.high = bytes.loadUnaligned(fromByteOffset: tail - 8, as: UInt64.self)
    default: test.low = constant.payload
    }
    return test
  }
}
